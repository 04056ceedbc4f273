package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/wire"
	"muster/wire/client"
)

// faulty is the TCP connection below TLS. After so many bytes, in both directions together, it breaks,
// or silently drops what is sent and brings nothing more.
type faulty struct {
	net.Conn
	left  atomic.Int64
	drops bool
}

func (f *faulty) use(n int) bool {
	if f.left.Add(-int64(n)) >= 0 {
		return true
	}
	if !f.drops {
		_ = f.Conn.Close()
	}
	return false
}

func (f *faulty) Write(b []byte) (int, error) {
	if !f.use(len(b)) && f.drops {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

func (f *faulty) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	for !f.use(n) && f.drops && err == nil {
		n, err = f.Conn.Read(b)
	}
	return n, err
}

// faultyDial dials TLS over a connection that fails.
func (w *world) faultyDial(protocol string, after int64, drops bool) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := net.Dial("tcp", w.address)
		if err != nil {
			return nil, err
		}
		f := &faulty{Conn: conn, drops: drops}
		f.left.Store(1 << 40)
		config := w.user.Clone()
		config.ServerName, config.NextProtos = "localhost", []string{protocol}
		secure := tls.Client(f, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		f.left.Store(after)
		return secure, nil
	}
}

// A program whose connections break, or fall silent, at any moment goes on and sees what it would have
// seen, also over lanes.
func TestSessionsResume(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.LaneFrom, c.Limits.Silence = 20_000, 400*time.Millisecond })
	const steps = 40
	want, err := runProgram(w.daemon.socket, 5, steps)
	if err != nil {
		t.Fatal(err)
	}
	cuts := 30
	if testing.Short() {
		cuts = 10
	}
	for i := range cuts {
		drops := i%4 == 3
		after := int64(700 + i*i*1500)
		if i%2 == 0 {
			after = int64(700 + 100*i)
		}
		var resumed, made atomic.Int64
		again, lane := client.ResumeDialler(w.address, w.user), client.LaneDialler(w.address, w.user)
		socket := newSocket()
		w.relay(t, socket, client.Remote{
			Dial: w.faultyDial(wire.StreamProtocol, after, drops),
			Lane: func(ctx context.Context) (net.Conn, error) {
				if made.Add(1) <= 3 {
					return w.faultyDial(wire.LaneProtocol, after*2, drops)(ctx)
				}
				return lane(ctx)
			},
			Resume: func(ctx context.Context) (net.Conn, error) {
				if resumed.Add(1) == 1 { // the second breaks, too
					return w.faultyDial(wire.ResumeProtocol, after, false)(ctx)
				}
				return again(ctx)
			},
		})
		saw, err := runProgram(socket, 5, steps)
		if err != nil {
			t.Fatalf("cut after %d bytes (dropped: %v): %v", after, drops, err)
		}
		if a, b := strings.Join(saw, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("cut after %d bytes (dropped: %v) it saw\n%s\nand on the ring\n%s", after, drops, a, b)
		}
		if resumed.Load() == 0 && after < 10_000 {
			t.Errorf("the connection was not cut after %d bytes", after)
		}
	}
	if _, resumed, _ := w.gateway.Sessions(); resumed < uint64(cuts) {
		t.Errorf("sessions were resumed %d times", resumed)
	}
	eventually(t, "all clients are gone", func() bool { return w.daemon.clientsServed() == 0 })
	eventually(t, "all places are free", func() bool { return w.gateway.known.Taken()+w.gateway.lanes.Taken() == 0 })
}

// A client whose program's side falls silent keeps its device until the session is given up, and not
// longer; the program is told.
func TestSilentSessionsEnd(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.Limits.Silence, c.Limits.Keep = 200*time.Millisecond, 300*time.Millisecond })
	socket := newSocket()
	w.relay(t, socket, client.Remote{
		Dial:   w.faultyDial(wire.StreamProtocol, 3000, true),
		Resume: func(context.Context) (net.Conn, error) { return nil, errors.New("no way") },
	})
	s := attachTo(t, socket)
	defer s.Close()
	var closed *wire.ClosedError
	var err error
	for err == nil {
		_, err = s.Producer.Call(&wire.Synchronise{}, nil)
	}
	if !errors.As(err, &closed) || !strings.Contains(closed.Reason, "could not be made again within 300ms") {
		t.Errorf("the program was told %v", err)
	}
	eventually(t, "the device is free", func() bool { return w.daemon.clientsServed() == 0 })
}

// Only the one whose session it is resumes it: by its key, its certificate and its grant.
func TestStrangersDoNotResume(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	authority, _, err := OpenAuthority(w.dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.User("eve", 1); err != nil {
		t.Fatal(err)
	}
	eve, err := client.LoadTLS(w.dir + "/user-eve")
	if err != nil {
		t.Fatal(err)
	}
	s := attachTo(t, w.socket)
	defer s.Close()
	eventually(t, "it is served", func() bool { return w.theBridge() != nil })
	key := w.theBridge().visitor.key
	try := func(config *tls.Config, hello wire.Hello, key wire.LaneKey) wire.Frame {
		t.Helper()
		conn, err := client.ResumeDialler(w.address, config)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ask := wire.Frame{Kind: wire.FrameResume, Key: key}
		if err := wire.WriteRecord(conn, &hello); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(ask.Append(nil)); err != nil {
			t.Fatal(err)
		}
		f, err := wire.NewFrameReader(conn).Next()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	granted := client.Hello("test", 0)
	granted.Grant = "a grant"
	for name, f := range map[string]wire.Frame{
		notYours:  try(eve, client.Hello("test", 0), key),
		noSession: try(w.user, client.Hello("test", 0), wire.LaneKey{1}),
	} {
		if f.Kind != wire.FrameClosed || f.Reason != name {
			t.Errorf("%q: got %v %q", name, f.Kind, f.Reason)
		}
	}
	if f := try(w.user, granted, key); f.Kind != wire.FrameClosed || f.Reason != notYours {
		t.Errorf("with another grant: %v %q", f.Kind, f.Reason)
	}
	if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		t.Error("strangers have hurt the session:", err)
	}
}

// A session that ends while its connection is broken says why to the program's side that comes again.
func TestTheReasonWaits(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	socket, mayResume := newSocket(), make(chan struct{})
	again := client.ResumeDialler(w.address, w.user)
	var first net.Conn
	w.relay(t, socket, client.Remote{
		Dial: func(ctx context.Context) (conn net.Conn, err error) {
			first, err = client.Dialler(w.address, w.user)(ctx)
			return first, err
		},
		Resume: func(ctx context.Context) (net.Conn, error) {
			<-mayResume
			return again(ctx)
		},
	})
	s := attachTo(t, socket)
	defer s.Close()
	if _, err := s.Producer.Call(&wire.MemAlloc{}, nil); err != nil {
		t.Fatal(err)
	}
	_ = first.(*tls.Conn).NetConn().Close()
	w.daemon.end(0, "the device is gone")
	eventually(t, "its session has ended", func() bool { return w.theBridge() == nil })
	close(mayResume)
	if got := s.Wait(); got != "the device is gone" {
		t.Errorf("got %q", got)
	}
}

// sessionLog keeps what a gateway logs about sessions.
type sessionLog struct {
	mu    sync.Mutex
	lines []string
}

func (h *sessionLog) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, string(b))
	return len(b), nil
}

// count is how many lines have a text.
func (h *sessionLog) count(text string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

// What becomes of a session whose connection breaks is logged, each event once, and the gateway says
// which client it is and how long it may still be resumed.
func TestCutSessionsAreTold(t *testing.T) {
	var log sessionLog
	const keep = 2 * time.Second
	w := newWorld(t, testGeometry, func(c *Config) { c.Log, c.Limits.Keep = slog.New(slog.NewTextHandler(&log, nil)), keep })
	socket, mayResume := newSocket(), make(chan struct{}, 1)
	again := client.ResumeDialler(w.address, w.user)
	var link atomic.Pointer[tls.Conn]
	note := func(conn net.Conn, err error) (net.Conn, error) {
		if err == nil {
			link.Store(conn.(*tls.Conn))
		}
		return conn, err
	}
	w.relay(t, socket, client.Remote{
		Dial: func(ctx context.Context) (net.Conn, error) { return note(client.Dialler(w.address, w.user)(ctx)) },
		Resume: func(ctx context.Context) (net.Conn, error) {
			select {
			case <-mayResume:
				return note(again(ctx))
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	s := attachTo(t, socket)
	defer s.Close()
	if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		t.Fatal(err)
	}
	if cut := w.gateway.Cut(); len(cut) != 0 {
		t.Errorf("%v are cut", cut)
	}
	_ = link.Load().NetConn().Close()
	eventually(t, "it is cut", func() bool { return len(w.gateway.Cut()) == 1 })
	if left, ok := w.gateway.Cut()[s.Attached.Client]; !ok || left <= 0 || left > keep {
		t.Errorf("client %d may come back: %v", s.Attached.Client, w.gateway.Cut())
	}
	mayResume <- struct{}{}
	eventually(t, "it is resumed", func() bool { return log.count("a session is resumed") == 1 })
	if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		t.Fatal(err)
	}
	if cut := w.gateway.Cut(); len(cut) != 0 {
		t.Errorf("%v are cut though they were resumed", cut)
	}
	_ = link.Load().NetConn().Close()
	eventually(t, "it is cut again", func() bool { return log.count("a session is cut") == 2 })
	eventually(t, "it is given up", func() bool { return log.count("a session is given up") == 1 })
	eventually(t, "its client is gone", func() bool { return w.daemon.clientsServed() == 0 })
	if cut, resumed, gone := log.count("a session is cut"), log.count("a session is resumed"), log.count("a session is given up"); cut != 2 || resumed != 1 || gone != 1 {
		t.Errorf("cut %d times, resumed %d, given up %d:\n%s", cut, resumed, gone, log.lines)
	}
}
