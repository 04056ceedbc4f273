package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// streams makes the two ends of a connection to a node's socket.
func streams(t *testing.T) (worker, daemon *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@muster-control-%d-%s", os.Getpid(), t.Name()), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if worker, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if daemon, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { worker.Close(); daemon.Close() })
	return worker, daemon
}

// A worker hands over what it holds and gets a connection, on which both talk.
func TestAdoption(t *testing.T) {
	worker, daemon := streams(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	type outcome struct {
		*Adopted
		err error
	}
	introduced := make(chan outcome, 1)
	go func() {
		a, err := Introduce(worker, 7, []Held{{"ring", null}, {"arena", null}})
		introduced <- outcome{a, err}
	}()
	request, err := ReadAdoption(daemon)
	if err != nil || request != (Adoption{AdoptRequest, 7, Protocol}) {
		t.Fatal(request, err)
	}
	held, err := ReceiveHeld(daemon)
	if err != nil || len(held) != 2 || held[0].Name != "ring" || held[1].Name != "arena" {
		t.Fatal(held, err)
	}
	for _, h := range held {
		h.File.Close()
	}
	own, child, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := Adopt(daemon, child, null); err != nil {
		t.Fatal(err)
	}
	child.Close()
	got := <-introduced
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer got.End.Close()
	defer got.Errors.Close()
	if err := got.End.Send(Standing{Lease: 3}); err != nil {
		t.Fatal(err)
	}
	if m, err := own.Receive(); err != nil || m.(Standing).Lease != 3 {
		t.Error(m, err)
	}
}

// The daemon's refusal is final; after any other error a later attempt may succeed.
func TestNotAdopted(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(*net.UnixConn)
		final  bool
	}{
		{"refused", func(d *net.UnixConn) { _ = RefuseAdoption(d, "no") }, true},
		{"a request that is not known", func(d *net.UnixConn) { _, _ = d.Write([]byte(`{"error":"no"}` + "\n")) }, true},
		{"refused late", func(d *net.UnixConn) { held, _ := ReceiveHeld(d); _ = held; _ = RefuseAdoption(d, "no") }, true},
		{"nothing", func(d *net.UnixConn) {}, false},
		{"nothing later", func(d *net.UnixConn) { _, _ = ReceiveHeld(d) }, false},
		{"a record", func(d *net.UnixConn) { _, _ = d.Write([]byte("\x10\x00\x00\x00\x05\x00\x00\x00refused\n")) }, false},
		{"another word", func(d *net.UnixConn) { _, _ = d.Write([]byte(`{"adopted":true}` + "\n")) }, false},
		{"no descriptors", func(d *net.UnixConn) { _, _ = ReceiveHeld(d); _ = sendLine(d, answerLine{Adopted: true}) }, false},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			worker, daemon := streams(t)
			go func() {
				_, _ = ReadAdoption(daemon)
				c.answer(daemon)
				daemon.Close()
			}()
			_, err := Introduce(worker, 1, nil)
			var refused *NotAdopted
			if err == nil || errors.As(err, &refused) != c.final || c.final && refused.Reason != "no" {
				t.Error(err)
			}
		})
	}
}

// What a worker must not send is refused.
func TestHeldIsStrict(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for i, c := range []struct {
		names []string
		files int
	}{{[]string{"a"}, 0}, {nil, 1}, {[]string{"a"}, 2}, {make([]string, 60), 60}, {[]string{strings.Repeat("a", 5000)}, 1}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			worker, daemon := streams(t)
			var files []*os.File
			for range c.files {
				files = append(files, null)
			}
			_ = sendLine(worker, heldLine{c.names}, files...)
			if held, err := ReceiveHeld(daemon); err == nil {
				t.Error(held)
			}
		})
	}
	worker, daemon := streams(t)
	_, _ = worker.Write([]byte(`{"request":"status"}` + "\n"))
	if _, err := ReadAdoption(daemon); err == nil || !strings.Contains(err.Error(), "can only be adopted") {
		t.Error(err)
	}
}

// Every change of the messages changes their description.
func TestProtocolDescribesMessages(t *testing.T) {
	type one struct {
		A int           `json:"a"`
		B []Held        `json:"b"`
		C time.Duration `json:"c"`
	}
	seen := map[string]bool{}
	for _, v := range []any{
		one{}, struct {
			A int `json:"a"`
		}{}, struct {
			A int `json:"b"`
		}{}, struct {
			A uint `json:"a"`
		}{}, struct {
			A *int `json:"a"`
		}{}, struct {
			A []int `json:"a"`
		}{}, struct {
			A time.Duration `json:"a"`
		}{},
	} {
		var b strings.Builder
		describe(&b, reflect.TypeOf(v))
		if seen[b.String()] {
			t.Errorf("%T is described as another: %s", v, b.String())
		}
		seen[b.String()] = true
	}
	if Protocol == 0 {
		t.Error("there is no description")
	}
}
