package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/wire"
	"muster/wire/client"
)

// theBridge is that of the only client.
func (w *world) theBridge() *bridge {
	w.gateway.mu.Lock()
	defer w.gateway.mu.Unlock()
	for _, b := range w.gateway.bridges {
		return b
	}
	return nil
}

// openLanes has a client use so much that it makes its lanes, and waits for them.
func openLanes(t *testing.T, w *world, s *client.Session) *bridge {
	t.Helper()
	in := (&wire.CopyIn{Dst: deviceBase}).Append(nil)
	var b *bridge
	eventually(t, "the lanes are open", func() bool {
		if err := s.Producer.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, in, make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		b = w.theBridge()
		return b != nil && b.lanes.Open() >= 2
	})
	return b
}

// A program that only copies out has lanes, too.
func TestLanesForCopiesOut(t *testing.T) {
	w := newWorld(t, testGeometry, lanesFrom(3000))
	s := attachTo(t, w.socket)
	defer s.Close()
	out := wire.Header{Op: wire.OpCopyOut, Slot: -1, Data: testGeometry.Staging, Length: 5000}
	if err := s.Producer.Send(out, (&wire.CopyOut{Src: deviceBase}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lanes are open", func() bool {
		b := w.theBridge()
		return b != nil && b.lanes.Open() >= 2
	})
}

// The first long copy from pinned memory is sent in parts although there are no lanes yet, so that most
// of them find some.
func TestFirstCopyIsInParts(t *testing.T) {
	w := newWorld(t, testGeometry, lanesFrom(150))
	s := attachTo(t, w.socket)
	defer s.Close()
	const size = 20_000 // parts have 32 * 150 bytes
	in := wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: testGeometry.Staging + testGeometry.Bounce, Length: size}
	if err := s.Producer.Send(in, (&wire.CopyIn{Dst: deviceBase}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		t.Fatal(err)
	}
	if n := w.theBridge().given.Load() / 2; n < 5 {
		t.Errorf("the node was given %d messages", n)
	}
}

func lanesFrom(n uint64) func(*Config) { return func(c *Config) { c.LaneFrom = n } }

// A program sees the same whether its data come over lanes or not, in parts or whole.
func TestLanesAreLikeTheRing(t *testing.T) {
	t.Run("whole", func(t *testing.T) { lanesAreLikeTheRing(t, 3000) })
	t.Run("in parts", func(t *testing.T) { lanesAreLikeTheRing(t, 150) })
}

func lanesAreLikeTheRing(t *testing.T, from uint64) {
	w := newWorld(t, testGeometry, lanesFrom(from))
	for seed := range uint64(3) {
		want, err := runProgram(w.daemon.socket, seed, 150)
		if err != nil {
			t.Fatal(err)
		}
		s := attachTo(t, w.socket)
		b := openLanes(t, w, s)
		p := &program{s: s, random: rand.New(rand.NewPCG(seed, 7))}
		if err := p.run(150); err != nil {
			t.Fatal(err)
		}
		if a, b := strings.Join(p.saw, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("seed %d: over lanes it saw\n%s\nand on the ring\n%s", seed, a, b)
		}
		s.Close()
		eventually(t, "the bridge is gone", func() bool { return w.theBridge() == nil })
		if err := b.lanes.Send(make([]byte, 1), nil); err == nil {
			t.Error("the lanes of a client that has gone are open")
		}
	}
	eventually(t, "all places are free", func() bool { return w.gateway.known.Taken()+w.gateway.lanes.Taken() == 0 })
}

// It sees the same if the lanes come while it copies in parts, or never.
func TestLanesThatComeLate(t *testing.T) {
	w := newWorld(t, testGeometry, lanesFrom(150))
	dial := client.LaneDialler(w.address, w.user)
	for seed := range uint64(8) {
		want, err := runProgram(w.daemon.socket, seed, 150)
		if err != nil {
			t.Fatal(err)
		}
		socket, served := newSocket(), make(chan struct{})
		w.relay(t, socket, client.Remote{Dial: client.Dialler(w.address, w.user), Lane: func(ctx context.Context) (net.Conn, error) {
			if seed%4 == 0 {
				return nil, errors.New("no lane today")
			}
			select {
			case <-time.After(time.Duration(seed) * 2 * time.Millisecond):
			case <-served:
			}
			return dial(ctx)
		}})
		saw, err := runProgram(socket, seed, 150)
		close(served)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := strings.Join(saw, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("seed %d: over late lanes it saw\n%s\nand on the ring\n%s", seed, a, b)
		}
	}
}

// When lanes break, or fall silent, others replace them, and the program does not notice.
func TestLanesThatBreak(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.LaneFrom, c.Limits.Silence = 1000, 400*time.Millisecond })
	want, err := runProgram(w.daemon.socket, 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i, plenty := range []int64{0, 40, 100, 5000, 30_000, 200_000} {
		socket, dial := newSocket(), client.LaneDialler(w.address, w.user)
		var broken atomic.Int64
		w.relay(t, socket, client.Remote{Dial: client.Dialler(w.address, w.user), Lane: func(ctx context.Context) (net.Conn, error) {
			if broken.Add(1) > 6 { // the others last
				return dial(ctx)
			}
			return w.faultyDial(wire.LaneProtocol, plenty, i%2 == 1)(ctx)
		}, Resume: client.ResumeDialler(w.address, w.user)}) // on a busy machine all connections may fall silent
		saw, err := runProgram(socket, 1, 100)
		if err != nil {
			t.Fatalf("lanes that break after %d bytes: %v", plenty, err)
		}
		if a, b := strings.Join(saw, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("over lanes that break after %d bytes it saw\n%s\nand on the ring\n%s", plenty, a, b)
		}
	}
}

// A node that ends a client may have announced data that its lanes do not bring any more. The program is
// told why all the same, and soon: it does not wait for these data as for those of a network that is slow.
func TestEndWhileDataAreDue(t *testing.T) {
	due := wire.Frame{Kind: wire.FrameAway, Offset: testGeometry.Staging, Length: 4000}
	beside := outgoing{frame: wire.Frame{Kind: wire.FrameState}, data: make([]byte, 8), offset: testGeometry.Staging + 8000}
	for name, last := range map[string][]outgoing{"nothing follows": nil, "others follow": {beside, beside}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testGeometry, func(c *Config) {
				c.LaneFrom, c.Limits.Silence, c.Limits.Keep = 3000, 4*time.Second, time.Hour
			})
			s := attachTo(t, w.socket)
			defer s.Close()
			b := openLanes(t, w, s)
			b.mu.Lock()
			for _, o := range append([]outgoing{{frame: due}}, last...) {
				b.box.put(o)
			}
			b.push()
			b.mu.Unlock()
			b.over("the node is shutting down")
			told := make(chan string)
			go func() { told <- s.Wait() }()
			select {
			case got := <-told:
				if got != "the node is shutting down" {
					t.Errorf("got %q", got)
				}
			case <-time.After(time.Minute):
				t.Error("the program waits for data that do not come")
			}
		})
	}
}

// Whoever does not know a key is sent away, and takes no place.
func TestLanesOfStrangers(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.LaneFrom, c.Limits.Greet = 1000, 2*time.Second })
	s := attachTo(t, w.socket)
	defer s.Close()
	taken := w.gateway.known.Taken() + w.gateway.lanes.Taken()
	for _, said := range [][]byte{make([]byte, 32), {1, 2, 3}, nil} {
		config := w.user.Clone()
		config.NextProtos = []string{wire.LaneProtocol}
		conn, err := tls.Dial("tcp", w.address, config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(said); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("a stranger was told %x, %v", answer, err)
		}
		conn.Close()
	}
	if now := w.gateway.known.Taken() + w.gateway.lanes.Taken(); now != taken {
		t.Errorf("strangers have %d places", now-taken)
	}
	if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		t.Error(err)
	}
}

// A user whose places are all taken has fewer lanes, or none, and everything works.
func TestFewPlacesForLanes(t *testing.T) {
	for places := 1; places < 4; places++ {
		w := newWorld(t, testGeometry, func(c *Config) { c.LaneFrom, c.Limits.User = 1000, places })
		want, err := runProgram(w.daemon.socket, 3, 100)
		if err != nil {
			t.Fatal(err)
		}
		got, err := runProgram(w.socket, 3, 100)
		if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%d places: %v", places, err)
		}
	}
}

// The lanes of one program do not take the places of its user's others.
func TestLanesLeaveRoomForPrograms(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.LaneFrom, c.Limits.User = 1000, 3 })
	s := attachTo(t, w.socket)
	defer s.Close()
	openLanes(t, w, s)
	for range 2 {
		other, err := client.Attach(w.socket, client.Hello("test", 0), 1)
		if err != nil {
			t.Fatalf("a user with one program was refused another: %v", err)
		}
		defer other.Close()
	}
}
