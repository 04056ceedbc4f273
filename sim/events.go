package sim

import (
	"time"

	"muster/policy"
)

// event is the end of a job.
type event struct {
	at  time.Duration
	job policy.JobID
	// turn distinguishes the events of one job: only the newest is valid.
	turn    int32
	attempt uint16 // of a job that was requeued; see outages.attempt
	killed  bool
	saved   bool // the job has been saved, and is not over: see moves
}

func (a *event) before(b *event) bool {
	return a.at < b.at || a.at == b.at && a.job < b.job
}

// events is a 4-ary heap: shallow, and the children of a node share cache lines.
type events struct{ heap []event }

func (q *events) first() (time.Duration, bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *events) push(e event) {
	q.heap = append(q.heap, e)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
}

func (q *events) pop() event {
	h := q.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	q.heap = h
	n := len(h)
	if n == 0 {
		return top
	}
	i := 0
	for {
		c := 4*i + 1
		if c >= n {
			break
		}
		least := c
		for k := c + 1; k < min(c+4, n); k++ {
			if h[k].before(&h[least]) {
				least = k
			}
		}
		if !h[least].before(&last) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return top
}
