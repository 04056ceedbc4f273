package remote

import (
	"sync/atomic"
	"time"

	"muster/client"
	"muster/wire"
)

// bulk is the room that long copies have on the connection. Messages travel in one order, so
// that what is sent behind a long copy waits for all of it that is on its way. While nobody else
// sends anything, that may be as much as the connection holds. When somebody does, it is
// little: small pieces, and few of them that the lender has not taken.
type bulk struct {
	last   atomic.Int64  // when anything else was sent
	window chan struct{} // a place for each small piece on its way
}

const (
	// narrowPiece is how long the small pieces are, and narrowWindow how many may be on their way:
	// 2 MiB, a millisecond or two of a fast link.
	narrowPiece, narrowWindow = 256 << 10, 8
	// stillBusy is how long after a message others are expected.
	stillBusy = 20 * time.Millisecond
)

var began = time.Now()

func (b *bulk) init() {
	b.window = make(chan struct{}, narrowWindow)
	b.last.Store(-int64(stillBusy))
}

// small notes that something else than a long copy was sent.
func (b *bulk) small() { b.last.Store(int64(time.Since(began))) }

// narrow says whether others send, too.
func (b *bulk) narrow() bool { return int64(time.Since(began))-b.last.Load() < int64(stillBusy) }

// enter waits for a place for a small piece; false if the context ends first.
func (c *Context) enter() bool {
	select {
	case c.bulk.window <- struct{}{}:
		return true
	case <-c.over:
		return false
	}
}

func (b *bulk) leave() { <-b.window }

// sendLong sends the bytes of a long copy.
func (s *stream) sendLong(dst uint64, src []byte) error {
	c := s.c
	for len(src) > 0 {
		n, narrow := min(len(src), wire.MaxPiece), c.bulk.narrow()
		if narrow {
			n = min(n, narrowPiece)
			if !c.enter() {
				return c.ended()
			}
		}
		err := c.postData(&wire.CopyIn{Dst: dst, Stream: s.id}, src[:n])
		if narrow {
			if err == nil { // the answer says that the lender has taken the piece
				err = c.start(&wire.StreamQuery{Stream: s.id}, span{}, func(client.Answer) { c.bulk.leave() })
			}
			if err != nil {
				c.bulk.leave()
			}
		}
		if err != nil {
			return err
		}
		dst, src = dst+uint64(n), src[n:]
	}
	return nil
}
