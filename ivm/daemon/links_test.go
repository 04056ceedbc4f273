package daemon

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"muster/ivm/core"
	"muster/ivm/proto"
)

// far is a node that answers each request once, when it may.
type far struct {
	open, most atomic.Int64 // connections
	asked      chan struct{}
	may        chan struct{} // closed when requests are answered
}

func (f *far) dial(context.Context, string) (net.Conn, error) {
	near, conn := net.Pipe()
	open := f.open.Add(1)
	for most := f.most.Load(); open > most && !f.most.CompareAndSwap(most, open); most = f.most.Load() {
	}
	go func() {
		defer conn.Close()
		for {
			r, err := proto.Read(conn)
			if err != nil {
				return
			}
			if r.Op != proto.Data {
				f.asked <- struct{}{}
				<-f.may
			}
			if proto.Done(r.Tag).Write(conn) != nil {
				return
			}
		}
	}()
	return &counted{Conn: near, closed: sync.OnceFunc(func() { f.open.Add(-1) })}, nil
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// wide is a program of a user's on this node and another.
func wide(s *Service, user string, id uint64) *member {
	m := newMember(s, &proto.Program{ID: id, User: user, Nodes: []string{"here:1", "there:1"}, Self: 0}, nil)
	m.toRoot = make(events, 8)
	return m
}

// However many exchanges a user's programs have at a time, they share a few connections to another node,
// and each gets one in its turn. Another user gets one meanwhile.
func TestProgramsOfAUserShareConnections(t *testing.T) {
	const programs, each = 3, 20
	s := newService(t)
	there := &far{asked: make(chan struct{}, programs*each+1), may: make(chan struct{})}
	s.cfg.Dial = there.dial
	var all []*member
	for i := range programs {
		m := wide(s, "ada", uint64(i+1))
		if err := s.add(m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	var calls sync.WaitGroup
	call := func(m *member) {
		calls.Go(func() {
			if _, err := m.call(1, &proto.Frame{Op: proto.AskGroup}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, m := range all {
		for range each {
			call(m)
		}
	}
	for range mostLinks {
		<-there.asked
	}
	bob := wide(s, "bob", programs+1)
	if err := s.add(bob); err != nil {
		t.Fatal(err)
	}
	call(bob)
	<-there.asked
	close(there.may)
	calls.Wait()
	if most := there.most.Load(); most > mostLinks+1 {
		t.Errorf("%d connections at a time", most)
	}
	for _, m := range append(all, bob) {
		m.finish("the test is over")
	}
	left := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(bob.share.links) + len(all[0].share.links)
	}
	for left() != 0 {
		runtime.Gosched()
	}
}

// A program that waits for a connection hears of its end, and gives back what it had.
func TestWaitsForConnectionsEnd(t *testing.T) {
	s := newService(t)
	there := &far{asked: make(chan struct{}, mostLinks), may: make(chan struct{})}
	defer close(there.may)
	s.cfg.Dial = there.dial
	m, other := wide(s, "ada", 1), wide(s, "ada", 2)
	for _, m := range []*member{m, other} {
		if err := s.add(m); err != nil {
			t.Fatal(err)
		}
	}
	results := make(chan error, mostLinks+1)
	for range mostLinks + 1 { // the last waits
		go func() {
			_, err := m.call(1, &proto.Frame{Op: proto.AskGroup})
			results <- err
		}()
	}
	for range mostLinks {
		<-there.asked
	}
	m.loseNode(1, "the test says so")
	for range mostLinks + 1 {
		if err := <-results; failure(err).Code != core.Lost {
			t.Errorf("%v", err)
		}
	}
	c, err := other.data(1, proto.AskGroup)
	if err != nil {
		t.Fatal(err)
	}
	if open := c.pool.links.open; open != 1 {
		t.Errorf("%d connections are counted", open)
	}
	c.leave(true)
	m.finish("the test is over")
	other.finish("the test is over")
}

// A user who has as many programs on several nodes as a user may have leaves room for others.
func TestOneUsersWideProgramsLeaveRoom(t *testing.T) {
	s := newService(t)
	for i := range uint64(maxWideOfUser) {
		if err := s.add(wide(s, "ada", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	refusedWith(t, s.add(wide(s, "ada", 1000)), "and others, as many as a user may")
	if err := s.add(wide(s, "bob", 1001)); err != nil {
		t.Error(err)
	}
	if _, err := newProgram(t, s, "ada"); err != nil {
		t.Error(err)
	}
}
