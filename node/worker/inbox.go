package worker

import (
	"slices"
	"sync"
	"sync/atomic"

	"muster/wire/control"
)

// inbox is what the daemon has said and the loop has not heard. Putting something in
// never waits: the goroutine that does also answers pings, and must do so however
// long the loop waits for a kernel to end.
type inbox struct {
	news  chan struct{} // has one element while something may be there
	count atomic.Int32

	mu       sync.Mutex
	messages []control.ToWorker
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

// put adds a message. Of several Watches in a row only the last counts: other
// clients come and go as often as they like, and each time the daemon changes its
// mind. All other messages answer the worker, or come once.
func (b *inbox) put(m control.ToWorker) {
	b.mu.Lock()
	n := len(b.messages)
	_, watch := m.(control.Watch)
	if watch && n > 0 {
		_, watch = b.messages[n-1].(control.Watch)
	}
	if watch && n > 0 {
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

// take returns the oldest message.
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

// pick returns the oldest message of a kind. The others stay.
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

// waits says whether there is something to hear.
func (b *inbox) waits() bool { return b.count.Load() > 0 }
