package door

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// played is a socket whose Accept returns the given results, one after the other.
type played struct {
	results []error // nil is a connection
	conns   int
	tries   int
	tried   func(n int) // called by Accept, if it is not nil
}

func (p *played) Accept() (net.Conn, error) {
	if p.tries++; p.tried != nil {
		p.tried(p.tries)
	}
	if len(p.results) == 0 {
		return nil, net.ErrClosed
	}
	err := p.results[0]
	p.results = p.results[1:]
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
	}
	p.conns++
	conn, other := net.Pipe()
	other.Close()
	return conn, nil
}

func (p *played) SetDeadline(time.Time) error { return nil }
func (p *played) Close() error                { return nil }
func (p *played) Addr() net.Addr              { return nil }

// Nothing but its being closed ends a listener, and it says how it is.
func TestListenerGoesOn(t *testing.T) {
	failures := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED, syscall.EPERM, syscall.EPROTO}
	p := &played{}
	for range 20 {
		p.results = append(append(p.results, failures...), nil)
	}
	l := Listen(p, false)
	clock := time.Unix(1000, 0)
	l.now = func() time.Time { return clock }
	var rests []time.Duration
	var notices []string
	l.Notice = func(trouble error) { notices = append(notices, fmt.Sprint(trouble)) }
	l.rest = func(d time.Duration, _ <-chan struct{}) {
		if l.Trouble() == nil {
			t.Error("it rests, and has no trouble")
		}
		rests = append(rests, d)
	}
	for i := range 20 {
		conn, err := l.Accept()
		if err != nil || conn.(*Conn).Last {
			t.Fatal(i, conn, err)
		}
		if err := l.Trouble(); err != nil {
			t.Fatal("a connection was accepted, and still:", err)
		}
		conn.Close()
		clock = clock.Add(soon / 2) // every second trouble is soon after another
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if len(rests) != 20*len(failures) || rests[0] != shortestRest || rests[1] != 2*shortestRest || rests[len(failures)] != shortestRest {
		t.Errorf("it rested %v", rests)
	}
	if len(notices) != 20 || !strings.Contains(notices[0], "too many open files") || notices[1] != "<nil>" {
		t.Errorf("it said %q", notices)
	}
}

// A timeout without a connection is no trouble, and ends earlier trouble.
func TestListenerIsWellWhenNobodyComes(t *testing.T) {
	p := &played{results: []error{syscall.EMFILE, os.ErrDeadlineExceeded, syscall.ENOMEM, nil}}
	l := Listen(p, false)
	rests := 0
	l.rest = func(d time.Duration, _ <-chan struct{}) {
		if rests++; d != shortestRest {
			t.Errorf("it rested %v after it was well", d)
		}
	}
	if _, err := l.Accept(); err != nil || rests != 2 {
		t.Error(err, rests)
	}
}

// A rest ends with the listener.
func TestListenerClosedWhileItRests(t *testing.T) {
	p := &played{results: make([]error, 1000)}
	for i := range p.results {
		p.results[i] = syscall.EMFILE
	}
	l := Listen(p, false)
	l.rest = func(_ time.Duration, closed <-chan struct{}) {
		l.Close()
		rest(time.Hour, closed)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || len(p.results) < 990 {
		t.Error(err, len(p.results))
	}
}

// The descriptor that was kept is used for one connection at a time.
func TestLastDescriptor(t *testing.T) {
	full := syscall.EMFILE
	p := &played{results: []error{full, nil, full, full, nil, full, nil}}
	l := Listen(p, true)
	rests := 0
	l.rest = func(time.Duration, <-chan struct{}) { rests++ }
	l.pending = func() bool { return true }
	if l.kept == nil {
		t.Fatal("no descriptor is kept")
	}
	first, err := l.Accept()
	if err != nil || !first.(*Conn).Last || l.kept != nil || l.Trouble() == nil || rests != 0 {
		t.Fatal(first, err, l.kept, l.Trouble(), rests)
	}
	// It is not there any more (here it can be had again: so it is, after a rest).
	second, err := l.Accept()
	if err != nil || !second.(*Conn).Last || rests != 1 {
		t.Fatal(second, err, rests)
	}
	for range 2 {
		first.Close()
		second.Close()
	}
	if l.kept == nil {
		t.Error("it was not kept again")
	}
	third, err := l.Accept()
	if err != nil || !third.(*Conn).Last || rests != 1 {
		t.Error(third, err, rests)
	}
	l.Close()
	third.Close()
	if l.kept != nil {
		t.Error("a descriptor is kept for nobody")
	}
}

// The spare descriptor is not used while no connection is waiting.
func TestLastDescriptorIsKeptForSomebody(t *testing.T) {
	real, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	l := Listen(real.(*net.TCPListener), true)
	if l.last(syscall.EMFILE) != nil || l.kept == nil {
		t.Error("nobody waits, and the descriptor was given away")
	}
	other, err := net.Dial("tcp", real.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	conn := l.last(syscall.EMFILE)
	if conn == nil || l.kept != nil {
		t.Fatal("somebody waits, and was not accepted")
	}
	if conn.Close(); l.kept == nil {
		t.Error("it was not kept again")
	}
	if l.last(syscall.ENOMEM) != nil {
		t.Error("a descriptor does not help")
	}
}

// While one listener accepts with its spare descriptor, no other one that lacks descriptors accepts.
func TestFreedDescriptorIsForItsListener(t *testing.T) {
	held := func(n int) bool {
		if freed.TryLock() {
			freed.Unlock()
			return false
		}
		return true
	}
	last := &played{results: []error{syscall.EMFILE, nil}}
	last.tried = func(n int) {
		if held(n) != (n == 2) {
			t.Errorf("accepting for the %d. time, the freed descriptor is reserved: %v", n, held(n))
		}
	}
	l := Listen(last, true)
	l.pending = func() bool { return true }
	conn, err := l.Accept()
	if err != nil || !conn.(*Conn).Last {
		t.Fatal(conn, err)
	}
	conn.Close()
	other := &played{results: []error{syscall.EMFILE, syscall.EMFILE, nil, nil}}
	other.tried = func(n int) {
		if held(n) != (n == 2 || n == 3) { // the first and the last time it does not know of any trouble
			t.Errorf("accepting for the %d. time without a spare descriptor, it is reserved: %v", n, held(n))
		}
	}
	l = Listen(other, false)
	l.rest = func(time.Duration, <-chan struct{}) {}
	for range 2 {
		if conn, err := l.Accept(); err != nil || conn.(*Conn).Last {
			t.Fatal(conn, err)
		}
	}
}
