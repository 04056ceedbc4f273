package cuda

import "sync/atomic"

// ring hands out parts of a buffer and takes them back in the same order.
type ring struct {
	memory []byte
	taken  uint64        // bytes handed out so far; who takes holds a lock
	given  atomic.Uint64 // of those, how many came back
}

// room is a part of a ring.
type room struct {
	ring   *ring
	memory []byte
	end    uint64 // what had been handed out with it
}

// take hands out n contiguous bytes, or nothing if there are none free. n is at
// most half of the ring, so that waiting always helps.
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

// give brings a part back, and all that was handed out before it.
func (r room) give() { r.ring.given.Store(r.end) }
