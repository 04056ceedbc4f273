package lanes

import (
	"sync"
	"sync/atomic"
)

const (
	// queueItems and queueBytes are how much a Queue holds.
	queueItems = 64
	queueBytes = 256 << 10
)

// Queue does things in the order in which they were given to it, each after the parcel that it
// waits for has arrived. So the goroutine that reads messages can go on to announce the next
// parcels to the lanes, and what the messages ask for is done in order all the same.
type Queue struct {
	start  func(serve func())
	failed func(error)
	left   atomic.Int32 // items that were not done yet

	mu      sync.Mutex
	change  *sync.Cond
	items   []item
	bytes   int
	serving bool
	err     error
}

type item struct {
	after *Parcel // nil if it waits for none
	bytes int
	do    func() error
}

// NewQueue makes a queue. With its first item it starts a goroutine, by start, which ends after the
// first error: of a parcel, of an item, or of End. The goroutine passes it to failed.
func NewQueue(start func(serve func()), failed func(error)) *Queue {
	q := &Queue{start: start, failed: failed}
	q.change = sync.NewCond(&q.mu)
	return q
}

// Idle says that all items were done. Only the goroutine that calls Do can rely on it: it may then
// do the next thing itself.
func (q *Queue) Idle() bool { return q.left.Load() == 0 }

// Do queues an item that holds a number of bytes. It waits while the queue is full, and returns the
// error after which nothing is done. Only one goroutine may call it.
func (q *Queue) Do(after *Parcel, bytes int, do func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil && (len(q.items) >= queueItems || len(q.items) > 0 && q.bytes+bytes > queueBytes) {
		q.change.Wait()
	}
	if q.err != nil {
		return q.err
	}
	q.left.Add(1)
	q.items, q.bytes = append(q.items, item{after, bytes, do}), q.bytes+bytes
	if !q.serving {
		q.serving = true
		q.start(q.serve)
	}
	q.change.Broadcast()
	return nil
}

// Drain waits until all items were done, or there was an error, which it returns.
func (q *Queue) Drain() error {
	if q.Idle() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil && !q.Idle() {
		q.change.Wait()
	}
	return q.err
}

// End ends the queue. An item that waits for a parcel goes on to wait until the lanes are closed.
func (q *Queue) End(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
		q.change.Broadcast()
	}
}

// Err is the error after which nothing is done; nil while there is none.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *Queue) serve() {
	for {
		i, err := q.next()
		if err == nil && i.after != nil {
			err = i.after.Wait()
		}
		if err == nil {
			err = i.do()
		}
		if err != nil {
			q.End(err)
			q.failed(err)
			return
		}
		q.done()
	}
}

// next waits for an item and takes it.
func (q *Queue) next() (item, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && q.err == nil {
		q.change.Wait()
	}
	if q.err != nil {
		return item{}, q.err
	}
	i := q.items[0]
	q.items[0] = item{}
	q.items, q.bytes = q.items[1:], q.bytes-i.bytes
	return i, nil
}

func (q *Queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left.Add(-1)
	q.change.Broadcast()
}
