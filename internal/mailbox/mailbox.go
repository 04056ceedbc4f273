// Package mailbox is a queue from many goroutines to one. It has no bound, so Put never blocks,
// however long the reader is busy with something else; what is put must therefore be bounded by
// whoever puts it. The package knows nothing of what is in the queue.
package mailbox

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Box is the queue.
type Box[T any] struct {
	news     chan struct{} // holds one element while something may be waiting
	count    atomic.Int32  // len(list), to be read without the lock
	replaces func(next, last T) bool

	mu   sync.Mutex
	list []T
}

// New makes an empty queue. Where replaces says so, what is put takes the place of the last in the
// queue, because it says all that the last one says; nil: never.
func New[T any](replaces func(next, last T) bool) *Box[T] {
	return &Box[T]{news: make(chan struct{}, 1), replaces: replaces}
}

// Put adds an element. It never blocks.
func (b *Box[T]) Put(v T) {
	b.mu.Lock()
	if n := len(b.list); n > 0 && b.replaces != nil && b.replaces(v, b.list[n-1]) {
		b.list[n-1] = v
	} else {
		b.list = append(b.list, v)
	}
	b.count.Store(int32(len(b.list)))
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// Take removes and returns the oldest element; false if there is none. It takes no lock then.
func (b *Box[T]) Take() (v T, ok bool) {
	if b.Len() == 0 {
		return v, false
	}
	return b.Pick(func(T) bool { return true })
}

// Pick removes and returns the oldest element for which wanted returns true. The others keep their order.
func (b *Box[T]) Pick(wanted func(T) bool) (v T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.list, wanted)
	if i < 0 {
		return v, false
	}
	v = b.list[i]
	b.list = slices.Delete(b.list, i, i+1)
	b.count.Store(int32(len(b.list)))
	return v, true
}

// Len is how many elements there are. It takes no lock, so that a busy reader can ask often.
func (b *Box[T]) Len() int { return int(b.count.Load()) }

// News receives when something may have been put since the last time that it received. What was put may
// have been taken since.
func (b *Box[T]) News() <-chan struct{} { return b.news }
