package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"muster/wire"
	"muster/wire/grant"
)

// jobWorld is a job with one local device whose daemon is the test.
type jobWorld struct {
	t      *testing.T
	grant  *grant.Grant
	socket string // of the job
	daemon *net.UnixListener
	ended  chan string // what is logged when a program's connection has ended
}

func newJobWorld(t *testing.T, devices ...grant.Device) *jobWorld {
	t.Helper()
	name := func(what string) string {
		return fmt.Sprintf("@muster-job-test-%s-%d-%d", what, os.Getpid(), time.Now().UnixNano())
	}
	listen := func(socket string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	w := &jobWorld{t: t, socket: name("job"), ended: make(chan string, 16), grant: &grant.Grant{
		ID: "g", User: "u", Secret: grant.NewCredential(), Limit: grant.AllDevices, Devices: append([]grant.Device{{Node: "n", Device: 3}}, devices...),
	}}
	local := name("daemon")
	w.daemon = listen(local)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(logTo(w.ended), nil))
	programs := listen(w.socket)
	go func() { done <- Serve(ctx, programs, w.grant, local, log) }()
	t.Cleanup(func() {
		w.daemon.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

type logTo chan string

func (l logTo) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// accept greets a program that connects to the daemon, as a daemon with one device does.
func (w *jobWorld) accept() (*net.UnixConn, wire.Hello) {
	conn, err := w.daemon.AcceptUnix()
	if err != nil {
		return nil, wire.Hello{}
	}
	var hello wire.Hello
	err = wire.ReadAs(conn, &hello)
	err = errors.Join(err, wire.WriteRecord(conn, &wire.Welcome{Version: wire.Version, Driver: 13000, Devices: 1}),
		wire.WriteRecord(conn, &wire.Device{Memory: 1 << 20, Name: "d", Uuid: make([]byte, 16)}))
	if err != nil {
		w.t.Error(err)
	}
	return conn, hello
}

// When a program ends while it is being attached, no other client is made for it.
func TestProgramEndsWhileItIsAttached(t *testing.T) {
	w := newJobWorld(t)
	program := make(chan *Session, 1)
	go func() {
		s, err := Dial(w.socket, Hello("p", 0))
		if err != nil {
			t.Error(err)
		}
		program <- s
	}()
	first, hello := w.accept()
	first.Close()
	if hello.Grant != string(w.grant.Secret) || hello.Token != "" || hello.Pid != uint32(os.Getpid()) {
		t.Errorf("the daemon heard %+v", hello)
	}
	s := <-program
	if err := wire.WriteRecord(s.conn, &wire.Attach{}); err != nil {
		t.Fatal(err)
	}
	second, _ := w.accept()
	defer second.Close()
	var attach wire.Attach
	if err := wire.ReadAs(second, &attach); err != nil {
		t.Fatal(err)
	}
	s.Close()
	ring, arena, err := wire.Create(wire.DefaultGeometry)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	var record bytes.Buffer
	_ = wire.WriteRecord(&record, &wire.Attached{ArenaBase: 1 << 40, ArenaSize: 1 << 30, Memory: 1 << 20, Warp: 32, Client: 1})
	if err := wire.SendFiles(second, record.Bytes(), ring, arena); err != nil {
		t.Fatal(err)
	}
	again := make(chan struct{})
	go func() {
		if conn, _ := w.accept(); conn != nil {
			conn.Close()
			close(again)
		}
	}()
	select {
	case <-again:
		t.Error("another client was made for a program that has ended")
	case line := <-w.ended:
		if !strings.Contains(line, "the program has gone") {
			t.Error(line)
		}
	}
}

// No program is served a device that the job does not have.
func TestJobHasNoSuchDevice(t *testing.T) {
	w := newJobWorld(t)
	go func() {
		if conn, _ := w.accept(); conn != nil {
			conn.Close()
		}
	}()
	var refused *wire.Refused
	if _, err := Attach(w.socket, Hello("p", 0), 1); !errors.As(err, &refused) || refused.Reason != "there is no device 1: the job has 1" {
		t.Error(err)
	}
}

// A node that shows other devices than the grant has there is not used.
func TestNodeShowsOtherDevices(t *testing.T) {
	w := newJobWorld(t, grant.Device{Node: "n", Device: 4})
	go func() {
		if conn, _ := w.accept(); conn != nil {
			conn.Close()
		}
	}()
	if _, err := Dial(w.socket, Hello("p", 0)); err == nil || !strings.Contains(err.Error(), "node n: it shows 1 devices, and the grant has 2 there") {
		t.Error(err)
	}
}

func TestAtBus(t *testing.T) {
	before := []byte{1, 0, 0, 0, 5, 0, 0, 0, attrPCIBus, 0, 0, 0, 1, 0, 0, 0, 9}
	after := atBus(before, 7)
	if before[12] != 1 || after[12] != 7 || after[4] != 5 || len(after) != len(before) {
		t.Errorf("%v became %v", before, after)
	}
}
