package remote

import (
	"sync"
	"sync/atomic"
)

// hosts are the host functions of a context's streams that have not run.
type hosts struct {
	last atomic.Uint64 // the latest number of a host function or a wait for a word: its cookie

	mu      sync.Mutex
	waiting map[uint64]func() // by cookie
	served  bool              // the lender was asked for the next one, and is asked again after each
}

// add takes a function, and says whether it is the context's first.
func (h *hosts) add(f func()) (cookie uint64, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first = !h.served; first {
		h.served, h.waiting = true, map[uint64]func(){}
	}
	cookie = h.last.Add(1)
	h.waiting[cookie] = f
	return cookie, first
}

// take returns a function that its stream has reached; nil if there is none of that cookie.
func (h *hosts) take(cookie uint64) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.waiting[cookie]
	delete(h.waiting, cookie)
	return f
}
