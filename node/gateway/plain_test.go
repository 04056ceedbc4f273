package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/wire"
	"muster/wire/client"
)

const plainToken = "a token that nobody guesses"

func plainly(c *Config) { c.Plain, c.Token, c.LaneFrom = true, plainToken, 1000 }

// plainRelay starts a relay without TLS, which knows a token.
func (w *world) plainRelay(t *testing.T, address, token string) (socket string) {
	t.Helper()
	socket = newSocket()
	w.relay(t, socket, plainRemote(address, token))
	return socket
}

func plainRemote(address, token string) client.Remote {
	return client.Remote{Dial: client.PlainDialler(address, wire.PlainStream, token), Lane: client.PlainDialler(address, wire.PlainLane, token)}
}

// greeted is how many have said hello to the daemon.
func (d *testDaemon) greeted() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.tokens)
}

// heard is what two sides said to each other.
type heard struct {
	mu            sync.Mutex
	program, node []byte
}

// listenIn passes connections on and keeps what is said.
func listenIn(t *testing.T, to string) (address string, h *heard) {
	t.Helper()
	h = &heard{}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { door.Close() })
	pass := func(to, from net.Conn, kept *[]byte) {
		defer to.Close()
		b := make([]byte, 4096)
		for {
			n, err := from.Read(b)
			h.mu.Lock()
			*kept = append(*kept, b[:n]...)
			h.mu.Unlock()
			if _, failed := to.Write(b[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := door.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			go pass(far, near, &h.program)
			go pass(near, far, &h.node)
		}
	}()
	return door.Addr().String(), h
}

// Without TLS a program sees the same, also over lanes, beside others that have it. The token
// is never said.
func TestPlainIsLikeTheRing(t *testing.T) {
	w := newWorld(t, testGeometry, plainly)
	address, h := listenIn(t, w.address)
	sameResults(t, w.daemon.socket, w.plainRelay(t, address, plainToken), 2)
	sameResults(t, w.daemon.socket, w.socket, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.program) == 0 || bytes.Contains(h.program, []byte(plainToken)) || bytes.Contains(h.node, []byte(plainToken)) {
		t.Error("the token was said, or nothing was")
	}
	w.daemon.mu.Lock()
	defer w.daemon.mu.Unlock()
	for _, token := range w.daemon.tokens {
		if user, _, _ := wire.SpokenFor(token); user != "ada" && user != tokenUser && token != "" {
			t.Errorf("the daemon was told of %q", token)
		}
	}
}

// Both sides must want it, and know the same token.
func TestPlainNeedsBoth(t *testing.T) {
	strictWorld := newWorld(t, testGeometry, func(c *Config) { c.Token = plainToken })
	plainWorld := newWorld(t, testGeometry, plainly)
	without := newWorld(t, testGeometry, func(c *Config) { plainly(c); c.TLS = nil })
	for _, c := range []struct {
		name, want string
		w          *world
		remote     client.Remote
	}{
		{"a node that wants TLS", "it does not take connections without TLS (plain: true in its configuration): use --tls-dir", strictWorld, plainRemote(strictWorld.address, plainToken)},
		{"another token", "was given none or another", plainWorld, plainRemote(plainWorld.address, plainToken+".")},
		{"no token", "was given none or another", plainWorld, plainRemote(plainWorld.address, "")},
		{"a node without a certificate", "try again, since it may be busy or just starting; if its administrator says that it has plain: true, use --plain instead of --tls-dir", without, client.Remote{Dial: client.Dialler(without.address, without.user), Token: plainToken}},
		{"both", "", plainWorld, plainRemote(plainWorld.address, plainToken)},
		{"both, and no certificate", "", without, plainRemote(without.address, plainToken)},
		{"a grant", "must not travel without TLS", plainWorld, client.Remote{Dial: client.PlainDialler(plainWorld.address, wire.PlainStream, plainToken), Grant: "secret"}},
	} {
		known := c.w.daemon.greeted()
		err := client.Check(t.Context(), c.remote)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && c.w.daemon.greeted() != known:
			t.Errorf("%s: the daemon heard of it", c.name)
		}
	}
	if _, err := New(nil, Config{Plain: true}); err == nil {
		t.Error("a node without TLS and without a token is open to all")
	}
}

// A program that wants TLS says nothing to a node that pretends there were none: so nobody
// between them can have it left out.
func TestPlainIsNoDowngrade(t *testing.T) {
	fake, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	first := make(chan byte, 1)
	go func() {
		conn, err := fake.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := make([]byte, 1)
		_, _ = io.ReadFull(conn, b)
		first <- b[0]
		_, _ = conn.Write(make([]byte, 64)) // as a node without TLS would
	}()
	w := newWorld(t, testGeometry, plainly)
	err = client.Check(t.Context(), client.Remote{Dial: client.Dialler(fake.Addr().String(), w.user), Token: plainToken})
	if err == nil {
		t.Error("it was let in")
	}
	if b := <-first; b == wire.PlainFirst {
		t.Error("a program that wants TLS spoke without")
	}
}

// What was heard of others cannot be used again: neither a program's part, nor a node's, nor
// what one side says itself.
func TestPlainIsHeardByOthers(t *testing.T) {
	w := newWorld(t, testGeometry, plainly)
	address, h := listenIn(t, w.address)
	if err := client.Check(t.Context(), plainRemote(address, plainToken)); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	program, node := bytes.Clone(h.program), bytes.Clone(h.node)
	h.mu.Unlock()
	known := w.daemon.greeted()
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(program); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(conn); len(answer) > 32 {
		t.Errorf("who says it again is told %d bytes", len(answer))
	}
	if w.daemon.greeted() != known {
		t.Error("the daemon heard of one who says it again")
	}
	for name, play := range map[string]func(conn net.Conn){
		"a node's part again": func(conn net.Conn) { go conn.Write(node) },
		"an echo": func(conn net.Conn) { // its random part and its proof
			b := make([]byte, 49)
			_, _ = io.ReadFull(conn, b)
			_, _ = conn.Write(b[17:])
			_, _ = io.ReadFull(conn, b[:32])
			_, _ = conn.Write(b[:32])
		},
		"nothing but zeros": func(conn net.Conn) { go conn.Write(make([]byte, 1<<16)) },
	} {
		far, near := net.Pipe()
		go func() {
			play(far)
			_, _ = io.Copy(io.Discard, far)
		}()
		if err := wire.GreetPlain(near, wire.PlainStream, plainToken); !errors.Is(err, wire.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
		near.Close()
		far.Close()
	}
}

// Who stops in the middle, or never stops, has its time and no more, and leaves nothing.
func TestPlainStrangers(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { plainly(c); c.Limits.Greet = 200 * time.Millisecond })
	greeting := append([]byte("muster-plain/1\n\x00\x01"), make([]byte, 32)...)
	leavesNothing(t, w, func() {
		for i, said := range [][]byte{nil, greeting[:1], greeting[:20], greeting, append(bytes.Clone(greeting), make([]byte, 32)...), bytes.Repeat([]byte("m"), 1<<20), bytes.Repeat(greeting, 1<<12)} {
			conn, err := net.Dial("tcp", w.address)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(4 * time.Minute))
			go func() { _, _ = conn.Write(said) }()
			answer, err := io.ReadAll(conn)
			var network net.Error
			if errors.As(err, &network) && network.Timeout() || len(answer) > 32 {
				t.Errorf("stranger %d: %d bytes, %v", i, len(answer), err)
			}
			conn.Close()
		}
	})
	if err := client.Check(t.Context(), plainRemote(w.address, plainToken)); err != nil {
		t.Error("others were hurt:", err)
	}
	if err := (func() error {
		s, err := client.Attach(w.plainRelay(t, w.address, plainToken), client.Hello("test", 0), 1)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Producer.Call(&wire.Synchronise{}, nil)
		return err
	})(); err != nil {
		t.Error(err)
	}
}

// A program's side does not wait for ever for a node that says nothing.
func TestPlainNodesThatSayNothing(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		conn, err := silent.Accept()
		if err == nil {
			_, _ = io.ReadFull(conn, make([]byte, 49)) // it waits from here on
			cancel(fmt.Errorf("enough"))
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	if _, err := client.PlainDialler(silent.Addr().String(), wire.PlainStream, plainToken)(ctx); err == nil {
		t.Error("it was let in")
	}
}
