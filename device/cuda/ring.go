package cuda

import "sync/atomic"

// ring allocates parts of a buffer, which are freed in the order in which they were
// allocated. One goroutine at a time allocates; another may free at the same time.
type ring struct {
	memory []byte
	taken  uint64        // bytes allocated so far, gaps at the end of memory included; guarded by queue.mu
	given  atomic.Uint64 // how many of those are free again
}

// room is an allocated part of a ring.
type room struct {
	ring   *ring
	memory []byte
	end    uint64 // value of ring.taken after the allocation
}

// take allocates n contiguous bytes, and returns false if they are not free. It skips the end of
// memory if the part does not fit there. n is at most half of the ring, so that it always fits
// once all parts are free.
func (r *ring) take(n int) (room, bool) {
	size := uint64(len(r.memory))
	at := r.taken % size
	skip := uint64(0)
	if at+uint64(n) > size {
		skip, at = size-at, 0
	}
	end := r.taken + skip + uint64(n)
	if end-r.given.Load() > size {
		return room{}, false
	}
	r.taken = end
	return room{ring: r, memory: r.memory[at:][:n:n], end: end}, true
}

// give frees a part, and all that were allocated before it.
func (r room) give() { r.ring.given.Store(r.end) }
