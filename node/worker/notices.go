package worker

import (
	"sync"
	"sync/atomic"
)

// notices is the queue of what other goroutines of this process tell the loop. It has no bound, so put
// never blocks: a driver has one thread for the host functions of all streams, and if what tells of one
// had to wait for the loop, copies for which the loop waits could not end. Streams wait for the
// functions that they have told of, and how many may be out is bounded.
type notices struct {
	news  chan struct{} // holds one element while notices may be waiting
	count atomic.Int32

	mu   sync.Mutex
	list []notice
}

// manyNotices is from how many on faults are not told of.
const manyNotices = 16

func newNotices() *notices { return &notices{news: make(chan struct{}, 1)} }

// put adds a notice.
func (q *notices) put(n notice) {
	q.mu.Lock()
	q.list = append(q.list, n)
	q.count.Store(int32(len(q.list)))
	q.mu.Unlock()
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// take removes and returns the oldest notice.
func (q *notices) take() (notice, bool) {
	if q.waiting() == 0 {
		return notice{}, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.list[0]
	q.list = q.list[1:]
	q.count.Store(int32(len(q.list)))
	return n, true
}

// waiting is how many notices there are.
func (q *notices) waiting() int { return int(q.count.Load()) }
