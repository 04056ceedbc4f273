package remote

import (
	"sync/atomic"
	"time"

	"muster/wire"
	"muster/wire/client"
)

// bulk limits how much of long copies is in flight on a context's connection. The connection
// delivers messages in order, so a small message waits for all bytes of long copies sent before
// it. While only long copies are sent, they may fill the connection. While there are other
// messages too, long copies are sent in small pieces, and at most narrowWindow of those may be
// unanswered.
type bulk struct {
	last   atomic.Int64  // time since began of the latest message that was no long copy
	window chan struct{} // one element for each small piece in flight
}

const (
	// narrowPiece is the length of small pieces in bytes, and narrowWindow how many may be in
	// flight: 2 MiB in all, a millisecond or two of a fast link.
	narrowPiece, narrowWindow = 256 << 10, 8
	// stillBusy is how long after a small message more of them are expected.
	stillBusy = 20 * time.Millisecond
)

var began = time.Now()

func (b *bulk) init() {
	b.window = make(chan struct{}, narrowWindow)
	b.last.Store(-int64(stillBusy))
}

// small notes that a message other than a long copy is being sent.
func (b *bulk) small() { b.last.Store(int64(time.Since(began))) }

// narrow says whether small messages were sent lately, so that long copies must limit themselves.
func (b *bulk) narrow() bool { return int64(time.Since(began))-b.last.Load() < int64(stillBusy) }

// enter waits until another small piece may be in flight; false if the context ends first.
func (b *bulk) enter(over <-chan struct{}) bool {
	select {
	case b.window <- struct{}{}:
		return true
	case <-over:
		return false
	}
}

func (b *bulk) leave() { <-b.window }

// sendLong sends the bytes of a long copy. Behind each small piece it sends a query; the lender
// answers in order, so the answer shows that the piece has arrived.
func (s *stream) sendLong(dst uint64, src []byte) error {
	c := s.c
	for len(src) > 0 {
		n, narrow := min(len(src), wire.MaxPiece), c.bulk.narrow()
		if narrow {
			n = min(n, narrowPiece)
			if !c.bulk.enter(c.over) {
				return c.ended()
			}
		}
		err := c.postData(&wire.CopyIn{Dst: dst, Stream: s.id}, src[:n])
		if narrow {
			if err == nil {
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
