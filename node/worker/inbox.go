package worker

import (
	"slices"
	"sync"
	"sync/atomic"

	"muster/wire/control"
)

// inbox is the queue of the daemon's messages that the loop has not handled. It has no bound, so
// put never blocks: the goroutine that puts also answers pings, and must do so however long the
// loop waits for a kernel to end.
type inbox struct {
	news  chan struct{} // holds one element while messages may be waiting
	count atomic.Int32

	mu       sync.Mutex
	messages []control.ToWorker
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

// put adds a message. Of several Watch messages in a row only the last is kept: the daemon sends
// one each time another client begins or stops waiting for the device, which may be often, and
// without this the queue would grow while the loop is busy. So it is with Grants of the same lease:
// the last one has all that the others had, and more comes to the device at once. All other messages
// are answers to the worker, or rare.
func (b *inbox) put(m control.ToWorker) {
	b.mu.Lock()
	n := len(b.messages)
	if n > 0 && replaces(m, b.messages[n-1]) {
		b.messages[n-1] = m
	} else {
		b.messages = append(b.messages, m)
	}
	b.count.Store(int32(len(b.messages)))
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// replaces says whether a message says all that the one before it says.
func replaces(m, before control.ToWorker) bool {
	switch m := m.(type) {
	case control.Watch:
		_, watch := before.(control.Watch)
		return watch
	case control.Grant:
		grant, ok := before.(control.Grant)
		return ok && grant.Lease == m.Lease
	}
	return false
}

// take removes and returns the oldest message.
func (b *inbox) take() (control.ToWorker, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) == 0 {
		return nil, false
	}
	m := b.messages[0]
	b.messages[0] = nil
	b.messages = b.messages[1:]
	b.count.Store(int32(len(b.messages)))
	return m, true
}

// pick removes and returns the oldest message of type M. The others keep their order.
func pick[M control.ToWorker](b *inbox) (m M, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, waits := range b.messages {
		if m, ok = waits.(M); ok {
			b.messages = slices.Delete(b.messages, i, i+1)
			b.count.Store(int32(len(b.messages)))
			return m, true
		}
	}
	return m, false
}

// waits says whether there are messages. It takes no lock: the loop asks before each launch.
func (b *inbox) waits() bool { return b.count.Load() > 0 }
