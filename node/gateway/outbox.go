package gateway

import (
	"bufio"
	"sync"

	"muster/wire"
)

// outgoing is a frame, with bytes of the arena before it.
type outgoing struct {
	offset uint64
	data   []byte
	frame  wire.Frame
}

const (
	// queued is how many frames wait to be written at most.
	queued = 64
	// small is how many bytes whoever finds them writes itself: waking another takes
	// longer.
	small = 16 << 10
)

// outbox is what is to be written to a connection, in order. One writes at a time: whoever
// put something there, if it is short, or the goroutine in serve.
type outbox struct {
	out  *bufio.Writer // the writer's
	send func(*bufio.Writer, outgoing) error

	mu      sync.Mutex
	change  *sync.Cond
	queue   []outgoing
	spare   []outgoing // to be the next queue
	bytes   int        // of data in the queue
	writing bool       // somebody does
	ended   bool
	err     error
}

func newOutbox(out *bufio.Writer, send func(*bufio.Writer, outgoing) error) *outbox {
	b := &outbox{out: out, send: send}
	b.change = sync.NewCond(&b.mu)
	return b
}

// put adds something, and waits for that while there is too much. After the end it is
// dropped.
func (b *outbox) put(o outgoing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) >= queued && !b.ended {
		b.change.Broadcast() // serve writes it
		b.change.Wait()
	}
	if !b.ended {
		b.queue = append(b.queue, o)
		b.bytes += len(o.data)
	}
}

// push writes what is there, or leaves it to serve. It is called after one or several puts,
// and returns why nothing can be written any more.
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

// write writes what is in the queue. The caller holds mu, and nobody writes.
func (b *outbox) write() {
	all := b.queue
	b.queue, b.bytes, b.writing = b.spare[:0], 0, true
	if len(all) >= queued {
		b.change.Broadcast() // there is room
	}
	b.mu.Unlock()
	err := b.writeAll(all)
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

// serve writes what others leave to it, until the end, and returns what to write last with.
// Nobody else writes then.
func (b *outbox) serve() (*bufio.Writer, error) {
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

// end lets nobody wait any more.
func (b *outbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.change.Broadcast()
}
