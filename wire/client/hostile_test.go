package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/wire"
)

// Promises are limited: the next waits until one was kept, or until the end.
func TestPromisesAreBounded(t *testing.T) {
	var p promised
	for seq := range uint32(maxPromised) {
		if !p.add(seq, piece{uint64(seq), 1}) {
			t.Fatalf("promise %d was refused", seq)
		}
	}
	if p.add(maxPromised, piece{}) {
		t.Error("there are too many, and it was taken")
	}
	took := make(chan bool)
	go func() { took <- p.wait(maxPromised, piece{maxPromised, 1}) }()
	p.kept(5)
	if !<-took {
		t.Error("there was room, and it was not taken")
	}
	go func() { took <- p.wait(maxPromised+1, piece{}) }()
	p.end()
	if <-took {
		t.Error("it was taken after the end")
	}
}

// The relay waits for a node that keeps its promises late.
func TestManyPromises(t *testing.T) {
	const many = 3*maxPromised + 7
	socket := relayTo(t, func(far net.Conn) {
		playNode(t, far)
		node := begin(far)
		r := wire.NewFrameReader(node)
		for seq := uint32(0); seq < many; seq++ {
			if f, err := r.Next(); err != nil || f.Header.Seq != seq {
				t.Errorf("%v, %v where message %d was due", f.Header, err, seq)
				return
			}
			if seq%maxPromised != maxPromised-1 {
				continue
			}
			for kept := seq + 1 - maxPromised; kept <= seq; kept++ {
				if _, err := node.Write((&wire.Frame{Kind: wire.FrameReply, Seq: kept, Slot: -1}).Append(nil)); err != nil {
					t.Error(err)
				}
			}
		}
		_, _ = node.Write((&wire.Frame{Kind: wire.FrameClosed, Reason: "all were heard"}).Append(nil))
	})
	s, err := Attach(socket, Hello("", 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := (&wire.CopyOut{Src: 5}).Append(nil)
	for range many {
		if err := s.Producer.Send(wire.Header{Op: wire.OpCopyOut, Slot: -1, Data: geometry.Staging, Length: 2}, out); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Wait(); got != "all were heard" {
		t.Errorf("got %q", got)
	}
}

// timed is a connection that counts the reads with a deadline, and those without.
type timed struct {
	net.Conn
	mu                 sync.Mutex
	time               time.Time
	limited, unlimited int
}

func (c *timed) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = t
	return c.Conn.SetDeadline(t)
}

func (c *timed) Read(b []byte) (int, error) {
	c.mu.Lock()
	if c.time.IsZero() {
		c.unlimited++
	} else {
		c.limited++
	}
	c.mu.Unlock()
	return c.Conn.Read(b)
}

// Until a node has sent everything that a client needs, it has a deadline.
func TestNodesThatSayNothing(t *testing.T) {
	near, far := net.Pipe()
	conn := &timed{Conn: near}
	socket := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	remote := Remote{Token: "secret", Dial: func(context.Context) (net.Conn, error) { return conn, nil }}
	go func() { done <- Relay(ctx, listener, remote, slog.New(slog.DiscardHandler)) }()
	attached := make(chan error)
	go func() {
		s, err := Attach(socket, Hello("", 0), 0)
		if err == nil {
			s.Close()
		}
		attached <- err
	}()
	playNode(t, far)
	far.Close() // instead of the geometry
	if err := <-attached; err == nil || !strings.Contains(err.Error(), "the node does not answer as a node does") {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if conn.limited == 0 || conn.unlimited > 0 {
		t.Errorf("%d reads had a time, and %d would wait for ever", conn.limited, conn.unlimited)
	}
}

// A node that claims to have impossibly many devices is refused.
func TestNodesWithTooMuch(t *testing.T) {
	socket := relayTo(t, func(far net.Conn) {
		_ = wire.ReadAs(far, &wire.Hello{})
		_ = wire.WriteRecord(far, &wire.Welcome{Devices: 1 << 31})
		_, _ = io.Copy(io.Discard, far)
	})
	if _, err := Attach(socket, Hello("", 0), 0); err == nil || err.Error() != "the node does not answer as a node does: it says that it has 2147483648 devices" {
		t.Error(err)
	}
}

// A node that has closed an unused connection is greeted again, and must announce the same.
func TestComesAgain(t *testing.T) {
	for _, c := range []struct {
		name, want string
		again      wire.Device
	}{
		{"the same", "that is all", wire.Device{Name: "a"}},
		{"another device", "the node's devices are not those of which the program was told: start it again", wire.Device{Name: "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			greet := func(far net.Conn, device wire.Device) {
				_ = wire.ReadAs(far, &wire.Hello{})
				_ = wire.WriteRecord(far, &wire.Welcome{Devices: 1})
				_ = wire.WriteRecord(far, &device)
			}
			var visits atomic.Int64
			socket := relayToEach(t, func(far net.Conn) {
				if visits.Add(1) == 1 {
					greet(far, wire.Device{Name: "a"})
					return // and it closes the connection
				}
				greet(far, c.again)
				if wire.ReadAs(far, &wire.Attach{}) != nil {
					return
				}
				_ = wire.WriteRecord(far, &wire.Attached{})
				_, _ = begin(far).Write((&wire.Frame{Kind: wire.FrameClosed, Reason: "that is all"}).Append(nil))
			})
			s, err := Attach(socket, Hello("", 0), 0)
			got := fmt.Sprint(err)
			if err == nil {
				got = s.Wait()
				s.Close()
			}
			if got != c.want || visits.Load() != 2 {
				t.Errorf("after %d visits: %s", visits.Load(), got)
			}
		})
	}
}

// relayToEach starts a relay whose node is the test, one connection after the other.
func relayToEach(t *testing.T, play func(far net.Conn)) (socket string) {
	t.Helper()
	node, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	played := make(chan struct{})
	go func() {
		defer close(played)
		for {
			far, err := node.Accept()
			if err != nil {
				return
			}
			play(far)
			far.Close()
		}
	}()
	socket = filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	remote := Remote{Dial: func(context.Context) (net.Conn, error) { return net.Dial("tcp", node.Addr().String()) }}
	go func() { done <- Relay(ctx, listener, remote, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		node.Close()
		<-played
	})
	return socket
}

// A lack of descriptors does not end the relay: programs that have connected are served when there
// are descriptors again.
func TestRelayOutlivesALackOfDescriptors(t *testing.T) {
	var heard notes
	socket := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	remote := Remote{Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("here I am") }}
	go func() { done <- Relay(ctx, listener, remote, slog.New(slog.NewTextHandler(&heard, nil))) }()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	program := os.NewFile(uintptr(fd), "program")
	defer program.Close()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	free, err := syscall.Dup(fd) // the lowest that is free
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(free)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(free), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }()
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Error(err)
	}
	for !heard.have("too many open files") {
		select {
		case err := <-done:
			t.Fatal("the relay has ended:", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	hello := Hello("", 0)
	if err := wire.WriteRecord(program, &hello); err != nil {
		t.Fatal(err)
	}
	if err := wire.ReadAs(program, &wire.Welcome{}); err == nil || err.Error() != "here I am" {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// notes is a log that may be read while it is written.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *notes) have(words string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return bytes.Contains(n.text.Bytes(), []byte(words))
}

// Who asks a node for its devices, and has little time, does not wait for one that says nothing.
func TestGreetHasItsTime(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	ctx, cancel := context.WithCancel(t.Context())
	remote := Remote{Dial: func(context.Context) (net.Conn, error) { return near, nil }}
	go func() {
		_ = wire.ReadAs(far, &wire.Hello{})
		cancel()
	}()
	began := time.Now()
	if _, _, err := Greet(ctx, remote, Hello("", 0)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(began); took > setUpTime/2 {
		t.Errorf("it took %v", took)
	}
}
