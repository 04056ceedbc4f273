package gateway

import (
	"io"
	"sync"

	"muster/wire"
)

// outgoing is a frame, preceded by bytes of the arena.
type outgoing struct {
	offset uint64
	data   []byte
	frame  wire.Frame
}

const (
	// queued bounds the frames that wait to be written.
	queued = 64
	// small is the size up to which the goroutine that finds data writes them itself: to wake
	// another one takes longer.
	small = 16 << 10
)

// sink is a connection that sends what was written to it with Flush.
type sink interface {
	io.Writer
	AvailableBuffer() []byte
	Flush() error
}

// outbox is a queue of what is to be written to a connection. One goroutine writes at a time
// (writing): one that has put something short there, or the one in serve. The writer owns out, and
// does not hold mu while it writes.
type outbox struct {
	out  sink // owned by the goroutine that set writing
	send func(sink, outgoing) error

	mu      sync.Mutex
	change  *sync.Cond
	queue   []outgoing
	spare   []outgoing // the last queue that was written, to be reused
	bytes   int        // size of the data in queue
	writing bool       // a goroutine is writing
	ended   bool
	err     error
}

func newOutbox(out sink, send func(sink, outgoing) error) *outbox {
	b := &outbox{out: out, send: send}
	b.change = sync.NewCond(&b.mu)
	return b
}

// put adds a frame, and blocks while the queue is full. After the end the frame is dropped.
func (b *outbox) put(o outgoing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) >= queued && !b.ended {
		b.change.Broadcast() // wakes serve, which makes room
		b.change.Wait()
	}
	if !b.ended {
		b.queue = append(b.queue, o)
		b.bytes += len(o.data)
	}
}

// push writes what is in the queue, or leaves it to serve. It is called after one or several puts,
// and returns the error after which nothing can be written.
func (b *outbox) push() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 && !b.ended && !b.writing && b.bytes <= small {
		b.write()
	}
	if len(b.queue) > 0 {
		b.change.Broadcast()
	}
	return b.err
}

// write writes the queue, and releases mu meanwhile. The caller must hold mu, and writing must be
// false.
func (b *outbox) write() {
	all := b.queue
	b.queue, b.bytes, b.writing = b.spare[:0], 0, true
	if len(all) >= queued {
		b.change.Broadcast() // there is room for those who wait in put
	}
	b.mu.Unlock()
	// The data are in memory for which the system may have no page. Nothing is locked here, so that the
	// fault can become an error like any other.
	err := wire.Guard(func() error { return b.writeAll(all) })
	clear(all)
	b.mu.Lock()
	b.spare, b.writing = all, false
	if err != nil && b.err == nil {
		b.err = err
	}
	if b.ended {
		b.change.Broadcast()
	}
}

func (b *outbox) writeAll(all []outgoing) error {
	for _, o := range all {
		if err := b.send(b.out, o); err != nil {
			return err
		}
	}
	return b.out.Flush()
}

// serve writes what others leave to it, until the end. It returns the writer, for a last frame:
// nobody else writes then.
func (b *outbox) serve() (sink, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil {
		switch {
		case b.writing || len(b.queue) == 0 && !b.ended:
			b.change.Wait()
		case len(b.queue) > 0:
			b.write()
		default:
			return b.out, nil
		}
	}
	return b.out, b.err
}

// end drops what is put from now on, and ends all waits.
func (b *outbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.change.Broadcast()
}
