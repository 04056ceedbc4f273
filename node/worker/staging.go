package worker

import "sync"

// staging gives staging memory back to the client in the order in which the client took it, because
// release frees everything up to a position. Copies may end in another order: a stage that is done
// stays in the list until all before it are done.
type staging struct {
	release func(position uint64)

	mu      sync.Mutex
	pending []*stage
}

// stage is the staging memory of one message.
type stage struct {
	position uint64
	lent     *gpu // the context that reads the bytes; nil if none does
	done     bool
	handed   bool // the message has handed it on; only the loop uses this
}

// isOpen says whether a message has staging memory, and has not handed it on: it is given back with the
// end of the message.
func (st *stage) isOpen() bool { return st != nil && !st.handed }

// taken hands the staging memory of a message on to the caller, who gives it back.
func (st *stage) taken() *stage {
	if !st.isOpen() {
		return nil
	}
	st.handed = true
	return st
}

// take registers a message's staging memory; nil if it has none. Messages must be registered in the
// order in which they were read from the ring.
func (s *staging) take(position uint64) *stage {
	if position == 0 {
		return nil
	}
	st := &stage{position: position}
	s.mu.Lock()
	s.pending = append(s.pending, st)
	s.mu.Unlock()
	return st
}

// lend notes that a context reads the bytes. They are freed when its copy has ended (free), or when
// the context has (returned).
func (s *staging) lend(st *stage, to *gpu) {
	s.mu.Lock()
	st.lent = to
	s.mu.Unlock()
}

// free says that nobody will read the bytes again. Any goroutine may call it.
func (s *staging) free(st *stage) {
	if st == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.done = true
	s.advance()
}

// returned frees all that a context was reading: one that is closed drops its copies without
// calling free.
func (s *staging) returned(by *gpu) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.pending {
		st.done = st.done || st.lent == by
	}
	s.advance()
}

func (s *staging) advance() {
	var last uint64
	for len(s.pending) > 0 && s.pending[0].done {
		last = s.pending[0].position
		s.pending = s.pending[1:]
	}
	if last > 0 {
		s.release(last)
	}
}
