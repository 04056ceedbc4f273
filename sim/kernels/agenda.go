package kernels

import "time"

// entry is the next event of an actor, which is a process or a call. Of entries
// with the same time the lowest order comes first.
type entry struct {
	at    time.Duration
	order int64
	actor int32
}

func (a *entry) before(b *entry) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// agenda is a 4-ary heap with at most one entry per actor, which can be moved.
type agenda struct {
	heap []entry
	at   []int32 // by actor: its index in the heap, or -1
}

// grow makes room for the given number of actors.
func (a *agenda) grow(actors int) {
	for len(a.at) < actors {
		a.at = append(a.at, none)
	}
}

func (a *agenda) first() (entry, bool) {
	if len(a.heap) == 0 {
		return entry{}, false
	}
	return a.heap[0], true
}

// set enters an actor, or moves its entry.
func (a *agenda) set(actor int32, at time.Duration, order int64) {
	e := entry{at, order, actor}
	i := a.at[actor]
	if i == none {
		a.heap = append(a.heap, e)
		a.rise(len(a.heap)-1, e)
		return
	}
	if e.before(&a.heap[i]) {
		a.rise(int(i), e)
	} else {
		a.sink(int(i), e)
	}
}

// removeFirst takes out the entry that is due first.
func (a *agenda) removeFirst() {
	a.at[a.heap[0].actor] = none
	last := a.heap[len(a.heap)-1]
	a.heap = a.heap[:len(a.heap)-1]
	if len(a.heap) > 0 {
		a.sink(0, last)
	}
}

// rise puts an entry where it belongs, at place i or above.
func (a *agenda) rise(i int, e entry) {
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		a.at[a.heap[i].actor] = int32(i)
		i = up
	}
	a.heap[i] = e
	a.at[e.actor] = int32(i)
}

// sink puts an entry where it belongs, at place i or below.
func (a *agenda) sink(i int, e entry) {
	h := a.heap
	for {
		c := 4*i + 1
		if c >= len(h) {
			break
		}
		least := c
		for k := c + 1; k < min(c+4, len(h)); k++ {
			if h[k].before(&h[least]) {
				least = k
			}
		}
		if !h[least].before(&e) {
			break
		}
		h[i] = h[least]
		a.at[h[i].actor] = int32(i)
		i = least
	}
	h[i] = e
	a.at[e.actor] = int32(i)
}
