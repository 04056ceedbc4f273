package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"muster/wire"
)

var geometry = wire.Geometry{Ring: 128 << 10, Staging: 2 << 20, Bounce: 1 << 20, Pinned: 1 << 20}

// playDaemon lets a test take the daemon's part, once.
func playDaemon(t *testing.T, play func(conn *net.UnixConn)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		play(conn)
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return socket
}

func write(conn *net.UnixConn, messages ...wire.Message) {
	for _, m := range messages {
		_ = wire.WriteRecord(conn, m)
	}
}

// attached sends the record with the descriptors of a ring and an arena.
func attached(t *testing.T, conn *net.UnixConn) {
	ring, arena, err := wire.Create(geometry)
	if err != nil {
		t.Error(err)
		return
	}
	defer ring.Close()
	defer arena.Close()
	var record bytes.Buffer
	_ = wire.WriteRecord(&record, &wire.Attached{Client: 9})
	if err := wire.SendFiles(conn, record.Bytes(), ring, arena); err != nil {
		t.Error(err)
	}
}

func TestAttach(t *testing.T) {
	heard := make(chan any, 2)
	socket := playDaemon(t, func(conn *net.UnixConn) {
		var hello wire.Hello
		_ = wire.ReadAs(conn, &hello)
		heard <- hello
		write(conn, &wire.Welcome{Version: 1, Devices: 2}, &wire.Device{Name: "a"}, &wire.Device{Name: "b"})
		var attach wire.Attach
		_ = wire.ReadAs(conn, &attach)
		heard <- attach
		attached(t, conn)
	})
	s, err := Attach(socket, Hello("program", 77), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Shared.Geometry() != geometry || s.Attached.Client != 9 || len(s.Devices) != 2 || s.Devices[1].Name != "b" {
		t.Errorf("got %+v", s)
	}
	hello := (<-heard).(wire.Hello)
	if hello.Magic != wire.Magic || hello.Schema != wire.Schema || hello.Memory != 77 || hello.Program != "program" {
		t.Errorf("the daemon heard %+v", hello)
	}
	if attach := (<-heard).(wire.Attach); attach.Device != 1 {
		t.Errorf("the daemon heard %+v", attach)
	}
	if got := s.Wait(); got != "the node ended the client without a word" {
		t.Errorf("got %q", got)
	}
}

// A daemon that sends the same again does not end the client by that.
func TestAttachedTwice(t *testing.T) {
	twice, end := make(chan struct{}), make(chan struct{})
	socket := playDaemon(t, func(conn *net.UnixConn) {
		_ = wire.ReadAs(conn, &wire.Hello{})
		write(conn, &wire.Welcome{Version: 1, Devices: 1}, &wire.Device{Name: "a"})
		_ = wire.ReadAs(conn, &wire.Attach{})
		attached(t, conn)
		attached(t, conn)
		close(twice)
		<-end
	})
	s, err := Attach(socket, Hello("program", 77), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-twice
	over := make(chan string, 1)
	go func() { over <- s.Wait() }()
	for range 1000 { // gives Wait time to read what came
		runtime.Gosched()
	}
	select {
	case got := <-over:
		t.Errorf("it is over: %s", got)
		close(end)
	default:
		close(end)
		<-over
	}
}

func TestAttachFails(t *testing.T) {
	welcome := &wire.Welcome{Devices: 1}
	for _, c := range []struct {
		name string
		play func(conn *net.UnixConn)
		want string
	}{
		{"refused at once", func(conn *net.UnixConn) { write(conn, &wire.Refused{Reason: "go away"}) }, "go away"},
		{"no word", func(conn *net.UnixConn) {}, "EOF"},
		{"another record", func(conn *net.UnixConn) { write(conn, &wire.Attach{}) }, "attach where welcome was due"},
		{"too many devices", func(conn *net.UnixConn) { write(conn, &wire.Welcome{Devices: 1 << 30}) }, "the node says that it has 1073741824 devices"},
		{"refused later", func(conn *net.UnixConn) {
			write(conn, welcome, &wire.Device{})
			_ = wire.ReadAs(conn, &wire.Attach{})
			write(conn, &wire.Refused{Reason: "full"})
		}, "full"},
		{"no descriptors", func(conn *net.UnixConn) {
			write(conn, welcome, &wire.Device{})
			_ = wire.ReadAs(conn, &wire.Attach{})
			write(conn, &wire.Attached{})
		}, "the node sent 0 descriptors, not those of the ring and the arena"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := playDaemon(t, func(conn *net.UnixConn) {
				_ = wire.ReadAs(conn, &wire.Hello{})
				c.play(conn)
			})
			_, err := Attach(socket, Hello("", 0), 0)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := Dial(filepath.Join(t.TempDir(), "none"), Hello("", 0)); err == nil || !strings.Contains(err.Error(), "start one with muster node") {
		t.Errorf("without a daemon: %v", err)
	}
}

// A program is told why the node cannot be reached, as a refusal.
func TestRelayWithoutANode(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	remote := Remote{Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("the cable is cut") }}
	go func() { done <- Relay(ctx, listener, remote, slog.New(slog.DiscardHandler)) }()
	_, err = Attach(socket, Hello("", 0), 0)
	var refused *wire.Refused
	if !errors.As(err, &refused) || refused.Reason != "the cable is cut" || refused.Result != resultNotReady {
		t.Errorf("got %v", err)
	}
	if err := Check(ctx, remote); err == nil || err.Error() != "the cable is cut" {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What is left of a piece is exactly the bytes that are not promised.
func TestPromised(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		const size = 40
		var p promised
		var taken [size]bool
		for seq := range uint32(random.IntN(5)) {
			at := piece{uint64(random.IntN(size)), 0}
			at.length = uint64(random.IntN(int(size-at.offset) + 1))
			p.add(seq, at)
			if random.IntN(3) == 0 {
				p.kept(seq)
				continue
			}
			for i := range at.length {
				taken[at.offset+i] = true
			}
		}
		all := piece{uint64(random.IntN(size)), 0}
		all.length = uint64(random.IntN(int(size-all.offset) + 1))
		var got, want [size]bool
		for _, part := range p.without(all) {
			for i := range part.length {
				if got[part.offset+i] {
					t.Errorf("seed %d: byte %d twice", seed, part.offset+i)
				}
				got[part.offset+i] = true
			}
		}
		for i := range all.length {
			want[all.offset+i] = !taken[all.offset+i]
		}
		if got != want {
			t.Errorf("seed %d: %v without %v:\ngot  %s\nwant %s", seed, all, p.pieces, marks(got[:]), marks(want[:]))
		}
	}
}

func marks(b []bool) string {
	return strings.NewReplacer("true", "x", "false", ".", " ", "").Replace(fmt.Sprint(b))
}
