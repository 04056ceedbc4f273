// Package staging gives the program's staging memory back in the order in which the program took it, whoever
// is done with it first. It knows positions, and nothing of what the memory holds.
package staging

import "sync"

// Staging is the staging memory of a client. Release frees everything up to a position. Copies may end in another order: a stage that is done
// stays in the list until all before it are done.
type Staging struct {
	release func(position uint64)

	mu      sync.Mutex
	pending []*Stage
}

// New makes an empty one. Release frees what the program took up to a position.
func New(release func(position uint64)) *Staging { return &Staging{release: release} }

// Stage is the staging memory of one message.
type Stage struct {
	position uint64
	lent     any // the context that reads the bytes; nil if none does
	done     bool
	handed   bool // the message has handed it on; only the loop uses this
}

// IsOpen says whether a message has staging memory, and has not handed it on: it is given back with the
// end of the message.
func (st *Stage) IsOpen() bool { return st != nil && !st.handed }

// Taken hands the staging memory of a message on to the caller, who gives it back.
func (st *Stage) Taken() *Stage {
	if !st.IsOpen() {
		return nil
	}
	st.handed = true
	return st
}

// Take registers a message's staging memory; nil if it has none. Messages must be registered in the
// order in which they were read from the ring.
func (s *Staging) Take(position uint64) *Stage {
	if position == 0 {
		return nil
	}
	st := &Stage{position: position}
	s.mu.Lock()
	s.pending = append(s.pending, st)
	s.mu.Unlock()
	return st
}

// Lend notes that a context reads the bytes. They are freed when its copy has ended (Free), or when
// the context has (Returned).
func (s *Staging) Lend(st *Stage, to any) {
	s.mu.Lock()
	st.lent = to
	s.mu.Unlock()
}

// Free says that nobody will read the bytes again. Any goroutine may call it.
func (s *Staging) Free(st *Stage) {
	if st == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.done = true
	s.advance()
}

// Returned frees all that a context was reading: one that is closed drops its copies without
// calling Free.
func (s *Staging) Returned(by any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.pending {
		st.done = st.done || st.lent == by
	}
	s.advance()
}

func (s *Staging) advance() {
	var last uint64
	for len(s.pending) > 0 && s.pending[0].done {
		last = s.pending[0].position
		s.pending = s.pending[1:]
	}
	if last > 0 {
		s.release(last)
	}
}
