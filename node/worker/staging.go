package worker

import "sync"

// staging gives staging memory back in the order in which the client took it,
// though copies may end in another order.
type staging struct {
	release func(position uint64)

	mu      sync.Mutex
	pending []*stage
}

// stage is the staging memory of one message.
type stage struct {
	position uint64
	lent     *gpu // that reads the bytes; nil if none does
	done     bool
}

// take notes a message's staging memory; nil if it has none.
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

// lend notes that a device reads the bytes, and frees them when it has.
func (s *staging) lend(st *stage, to *gpu) {
	s.mu.Lock()
	st.lent = to
	s.mu.Unlock()
}

// free says that the bytes were read. Any goroutine may call it.
func (s *staging) free(st *stage) {
	if st == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.done = true
	s.advance()
}

// returned says that a context reads nothing any more: one that ends drops copies
// without a word.
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
