package worker

import (
	"errors"
	"fmt"
	"sync"

	"muster/wire"
)

// hosts are functions of the program's that streams call: a stream waits until
// the program has run its function.
type hosts struct {
	mu      sync.Mutex
	queue   []uint64                 // cookies that the program has not been given
	running map[uint64]chan struct{} // closed when the function has returned
	slots   []int                    // where the program waits for a cookie
}

func (t *hosts) outstanding() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running)
}

// match hands out cookies to who waits for them.
func (t *hosts) match(s *session) {
	for len(t.queue) > 0 && len(t.slots) > 0 {
		s.shared.Reply(t.slots[0], success, (&wire.HostNextReply{Cookie: t.queue[0]}).Append(nil))
		t.queue, t.slots = t.queue[1:], t.slots[1:]
	}
}

// call lets the program run a function, and waits for its end. It runs in the
// order of a stream.
func (t *hosts) call(s *session, cookie uint64, done chan struct{}) {
	t.mu.Lock()
	if t.running[cookie] == done { // otherwise it was dropped
		t.queue = append(t.queue, cookie)
		t.match(s)
	}
	t.mu.Unlock()
	select {
	case <-done:
	case <-s.ctx.Done():
	}
}

// drop lets go of all that wait: the context has failed.
func (t *hosts) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cookie, done := range t.running {
		close(done)
		delete(t.running, cookie)
	}
	t.queue = nil
}

func (s *session) hostFunction(_ wire.Header, m *wire.HostFunction) error {
	if m.Cookie == 0 {
		return fmt.Errorf("a function without a cookie: %w", errProtocol)
	}
	if _, err := s.streams.find(m.Stream); err != nil {
		return err
	}
	if s.gpu == nil || !s.lease.held {
		if err := s.ready(nil); err != nil {
			return err
		}
	}
	// Ordering may wait for functions that were given before, but not for this one.
	on, err := s.give(m.Stream)
	if err != nil {
		return err
	}
	t := &s.hosts
	t.mu.Lock()
	if t.running == nil {
		t.running = map[uint64]chan struct{}{}
	}
	if t.running[m.Cookie] != nil {
		t.mu.Unlock()
		return fmt.Errorf("cookie %d is taken: %w", m.Cookie, errProtocol)
	}
	if len(t.running) >= maxObjects {
		t.mu.Unlock()
		return tooMany("functions of the program's that have not returned")
	}
	done, cookie := make(chan struct{}), m.Cookie
	t.running[cookie] = done
	t.mu.Unlock()
	err = s.block(func() error { return on.Call(func() { t.call(s, cookie, done) }) })
	if err != nil {
		t.mu.Lock()
		if t.running[cookie] == done {
			delete(t.running, cookie)
		}
		t.mu.Unlock()
	}
	return err
}

func (s *session) hostNext(h wire.Header, _ *wire.HostNext) error {
	t := &s.hosts
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.slots) >= wire.Slots {
		return fmt.Errorf("more than %d calls wait for their answers: %w", wire.Slots, errProtocol)
	}
	t.slots = append(t.slots, h.Slot)
	t.match(s)
	return nil
}

func (s *session) hostDone(_ wire.Header, m *wire.HostDone) error {
	t := &s.hosts
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.running[m.Cookie]
	if done == nil {
		return nil // the context failed meanwhile
	}
	close(done)
	delete(t.running, m.Cookie)
	return nil
}

func (s *session) hostStop(wire.Header, *wire.HostStop) error {
	t := &s.hosts
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, slot := range t.slots {
		s.shared.Reply(slot, success, (&wire.HostNextReply{}).Append(nil))
	}
	t.slots = nil
	return nil
}

// printed is what kernels have printed and the program has not fetched.
type printed struct {
	mu      sync.Mutex
	text    []byte
	dropped bool
}

// maxPrinted is what is kept; more is dropped, and said so.
const maxPrinted = 1 << 20

const droppedNote = "muster: more was printed than is kept between two synchronising calls\n"

// print takes what a kernel prints. It never waits.
func (s *session) print(text []byte) {
	p := &s.printed
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.text)+len(text) > maxPrinted {
		if !p.dropped {
			p.text = append(p.text, droppedNote...)
			s.shared.SetPrint(true)
		}
		p.dropped = true
		return
	}
	p.text = append(p.text, text...)
	s.shared.SetPrint(true)
}

func (s *session) printFetch(h wire.Header, _ *wire.PrintFetch) ([]byte, error) {
	out, err := s.shared.Data(h.Data, h.Length)
	if err != nil {
		return nil, errors.Join(err, errProtocol)
	}
	p := &s.printed
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(out, p.text)
	p.text = p.text[n:]
	reply := wire.PrintFetchReply{Size: uint32(n)}
	if len(p.text) > 0 {
		reply.More = 1
	} else {
		p.text, p.dropped = nil, false
		s.shared.SetPrint(false)
	}
	return reply.Append(nil), nil
}
