package bench

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"muster/internal/need"
)

// A link divides its bandwidth fairly, and sockets opened at an end belong to its namespace.
func TestLink(t *testing.T) {
	if testing.Short() {
		t.Skip("makes network namespaces")
	}
	const rate = 20_000_000
	l, err := NewLink(rate, 3)
	if errors.Is(err, ErrNoLink) {
		need.Missing(t, need.Mount, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if door, err := net.Listen("tcp", l.Far.Address+":0"); err == nil {
		door.Close()
		t.Error("an end's address is this machine's, too")
	}
	got, trip, err := l.Idle(t.Context(), 200*time.Millisecond)
	if err != nil || got > 1.3*rate || got < 0.2*rate || trip <= 0 {
		t.Errorf("%.0f bytes a second, %v s a round trip, %v", got, trip, err)
	}
	address, err := l.Far.FreePort()
	if host, _, bad := net.SplitHostPort(address); err != nil || bad != nil || host != l.Far.Address {
		t.Errorf("%s, %v", address, err)
	}
}

// The ends of a star reach each other, over the bandwidth of their cables.
func TestStar(t *testing.T) {
	if testing.Short() {
		t.Skip("makes network namespaces")
	}
	const rate = 20_000_000
	s, err := NewStar(rate, 3)
	if errors.Is(err, ErrNoLink) {
		need.Missing(t, need.Mount, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	between := &Link{Near: s.Ends[0], Far: s.Ends[2]}
	if got, _, err := between.Idle(t.Context(), 200*time.Millisecond); err != nil || got > 1.3*rate || got < 0.2*rate {
		t.Errorf("%.0f bytes a second, %v", got, err)
	}
}

// A link without a bandwidth limit uses the loopback interface.
func TestLoopback(t *testing.T) {
	l := Loopback()
	defer l.Close()
	traffic, err := l.Fill(2)
	if err != nil {
		t.Fatal(err)
	}
	for traffic.received.Load() == 0 {
		runtime.Gosched()
	}
	if got := traffic.Stop(); got <= 0 {
		t.Error(got)
	}
}
