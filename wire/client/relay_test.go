package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/door"
	"muster/wire"
)

// relayTo starts a relay whose node is the test.
func relayTo(t *testing.T, play func(far net.Conn)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	played, done := make(chan struct{}), make(chan error)
	remote := Remote{Token: "secret", Dial: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer close(played)
			defer far.Close()
			play(far)
		}()
		return near, nil
	}}
	go func() { done <- Relay(ctx, listener, remote, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-played
	})
	return socket
}

// playNode takes a node's part up to its first frame.
func playNode(t *testing.T, far net.Conn) {
	var hello wire.Hello
	if err := wire.ReadAs(far, &hello); err != nil || hello.Token != "secret" {
		t.Errorf("the node heard %+v, %v", hello, err)
	}
	_ = wire.WriteRecord(far, &wire.Welcome{Devices: 1})
	_ = wire.WriteRecord(far, &wire.Device{})
	_ = wire.ReadAs(far, &wire.Attach{})
	_ = wire.WriteRecord(far, &wire.Attached{})
}

// begin sends the first frame of a node, and returns what carries the next.
func begin(far net.Conn) speaker {
	_, _ = far.Write((&wire.Frame{Kind: wire.FrameGeometry, Geometry: geometry, Silence: 20_000}).Append(nil))
	return speaker{door.NewResumable(far, nil, nil, door.Resuming{Silence: 20 * time.Second})}
}

// speaker is a connection that sends at once.
type speaker struct{ *door.Resumable }

func (s speaker) Write(b []byte) (int, error) {
	n, err := s.Resumable.Write(b)
	if err == nil {
		err = s.Flush()
	}
	return n, err
}

// Whatever a node sends, the program is told what was wrong with it.
func TestNodesThatAreWrong(t *testing.T) {
	frame := func(f wire.Frame) []byte { return append(f.Append(nil), make([]byte, f.Bytes)...) }
	broke := func(why string) string {
		return "the connection to the node broke: " + why + "; what the program had there is lost: see whether the node and the network to it are up (there, with muster ps or systemctl status muster), then start the program again"
	}
	for _, c := range []struct {
		name string
		send []byte
		want string
	}{
		{"nothing", nil, broke("the node closed it")},
		{"half a frame", []byte{1, 2, 3}, broke("a frame's head breaks off: unexpected EOF")},
		{"garbage", bytes.Repeat([]byte{0xa5}, 8), broke("a damaged frame: frame 165 of 2779096485 bytes")},
		{"a message", frame(wire.Frame{Kind: wire.FrameMessage, Header: wire.Header{Op: wire.OpReset, Slot: 1}}), broke("message where none is due")},
		{"data in staging memory", frame(wire.Frame{Kind: wire.FrameData, Offset: 8, Bytes: 8}), broke("data for staging memory")},
		{"data out of bounds", frame(wire.Frame{Kind: wire.FrameData, Offset: 1 << 40, Bytes: 8}), broke("8 bytes at 1099511627776 are not in the data arena of 4194304 bytes")},
		{"a reason", frame(wire.Frame{Kind: wire.FrameClosed, Reason: "the device is gone"}), "the device is gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := relayTo(t, func(far net.Conn) {
				playNode(t, far)
				_, _ = begin(far).Write(c.send)
			})
			s, err := Attach(socket, Hello("", 0), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := s.Wait(); got != c.want {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		name, want string
		send       []byte
	}{
		{"no geometry", "the node does not answer as a node does: state where geometry was due", frame(wire.Frame{Kind: wire.FrameState})},
		{"a geometry that cannot be", "the node does not answer as a node does: the shared memory cannot have these sizes: {Ring:1 Staging:0 Bounce:0 Pinned:0}",
			frame(wire.Frame{Kind: wire.FrameGeometry, Geometry: wire.Geometry{Ring: 1}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := relayTo(t, func(far net.Conn) {
				playNode(t, far)
				_, _ = far.Write(c.send)
			})
			if _, err := Attach(socket, Hello("", 0), 0); err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// What the program sends arrives unchanged, data before the messages that need them, and staging
// memory is released.
func TestWhatTheNodeHears(t *testing.T) {
	type heard struct {
		frame wire.Frame
		data  string
	}
	frames := make(chan heard, 16)
	socket := relayTo(t, func(far net.Conn) {
		defer close(frames)
		playNode(t, far)
		r := wire.NewFrameReader(begin(far))
		for {
			f, err := r.Next()
			data := make([]byte, f.Bytes)
			if err != nil || r.ReadBytes(data) != nil {
				return
			}
			f.Body = bytes.Clone(f.Body)
			frames <- heard{f, string(data)}
		}
	})
	s, err := Attach(socket, Hello("", 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	pinned := geometry.Staging + geometry.Bounce
	copy(s.Shared.Arena()[pinned:], "pinned")
	in := (&wire.CopyIn{Dst: 5}).Append(nil)
	out := (&wire.CopyOut{Src: 5}).Append(nil)
	for _, err := range []error{
		s.Producer.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, in, []byte("staged")),
		s.Producer.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: pinned, Length: 6}, in),
		s.Producer.Send(wire.Header{Op: wire.OpCopyOut, Slot: -1, Data: pinned + 2, Length: 2}, out),
		s.Producer.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: pinned, Length: 6}, in),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []struct {
		kind   wire.FrameKind
		offset uint64
		data   string
	}{
		{wire.FrameMessage, 0, "staged"},
		{wire.FrameData, pinned, "pinned"}, {wire.FrameMessage, 0, ""},
		{wire.FrameMessage, 0, ""},
		// The node will fill the two bytes in between.
		{wire.FrameData, pinned, "pi"}, {wire.FrameData, pinned + 4, "ed"}, {wire.FrameMessage, 0, ""},
	} {
		got := <-frames
		if got.frame.Kind != want.kind || got.frame.Offset != want.offset || got.data != want.data {
			t.Errorf("frame %d is %v at %d with %q, want %+v", i, got.frame.Kind, got.frame.Offset, got.data, want)
		}
	}
	// A function of the program writes what a copy behind it reads.
	for _, err := range []error{
		s.Producer.Send(wire.Header{Op: wire.OpHostFunction, Slot: -1}, (&wire.HostFunction{Cookie: 9}).Append(nil)),
		s.Producer.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: pinned + 8, Length: 6}, in),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"", "\x00\x00\x00\x00\x00\x00", ""} {
		if got := <-frames; got.data != want {
			t.Errorf("frame %d behind a function has %q, want %q", i, got.data, want)
		}
	}
	copy(s.Shared.Arena()[pinned+8:], "filled")
	for range 2 { // the second belongs to no function
		if err := s.Producer.Send(wire.Header{Op: wire.OpHostDone, Slot: -1}, (&wire.HostDone{Cookie: 9}).Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []struct {
		kind wire.FrameKind
		data string
	}{{wire.FrameData, "filled"}, {wire.FrameMessage, ""}, {wire.FrameMessage, ""}} {
		if got := <-frames; got.frame.Kind != want.kind || got.data != want.data {
			t.Errorf("frame %d of a function that has returned is %v with %q, want %+v", i, got.frame.Kind, got.data, want)
		}
	}
	// All of staging memory can be used, many times over.
	for range 20 {
		if err := s.Producer.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, in, make([]byte, geometry.Staging/2)); err != nil {
			t.Fatal(err)
		}
		<-frames
	}
	s.Close()
	for range frames { // until the relay has closed the connection
	}
}

// Parts that touch are merged, and there are never many.
func TestBehind(t *testing.T) {
	var b behind
	b.note(piece{0, 8})
	if len(b.pieces) != 0 {
		t.Errorf("%v is noted behind no function", b.pieces)
	}
	b.functions = 2
	for _, p := range []piece{{0, 8}, {100, 8}, {8, 8}, {4, 8}, {0, 2}} {
		b.note(p)
	}
	if want := []piece{{0, 16}, {100, 8}}; !slices.Equal(b.pieces, want) {
		t.Errorf("%v, want %v", b.pieces, want)
	}
	for i := range uint64(10 * maxBehind) {
		b.note(piece{1000 * (i + 1), 1})
	}
	if len(b.pieces) != maxBehind || b.pieces[maxBehind-1].offset+b.pieces[maxBehind-1].length != 10*maxBehind*1000+1 {
		t.Errorf("%d pieces, the last %v", len(b.pieces), b.pieces[maxBehind-1])
	}
	b.returned()
	if b.returned(); b.functions != 0 || len(b.pieces) != 0 {
		t.Errorf("when all have returned: %+v", b)
	}
}

// A program that begins while its node is cut off waits for the link, and is told if none comes in time.
// What no waiting mends is told at once.
func TestBeginningWhileCutOff(t *testing.T) {
	for _, c := range []struct {
		name     string
		fails    int // so many attempts
		by       error
		patience time.Duration
		tries    int
		want     string // "": it is served
	}{
		{"a network that comes back", 2, syscall.EHOSTUNREACH, time.Hour, 3, ""},
		{"a connection that breaks", 2, io.EOF, time.Hour, 3, ""},
		{"a network that stays away", 1 << 30, syscall.EHOSTUNREACH, time.Nanosecond, 1, "no route to host; tried for 1ns"},
		{"a certificate that does not count", 1 << 30, errors.New("unknown authority"), time.Hour, 1, "unknown authority"},
		{"nobody who waits", 1 << 30, syscall.EHOSTUNREACH, 0, 1, "no route to host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "socket")
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			tries, done := 0, make(chan error)
			var played sync.WaitGroup
			remote := Remote{Token: "secret", Patience: c.patience, Dial: func(context.Context) (net.Conn, error) {
				if tries++; tries <= c.fails {
					return nil, fmt.Errorf("the node cannot be reached: %w", c.by)
				}
				near, far := net.Pipe()
				played.Go(func() {
					defer far.Close()
					playNode(t, far)
					_, _ = begin(far).Write((&wire.Frame{Kind: wire.FrameClosed, Reason: "it was served"}).Append(nil))
				})
				return near, nil
			}}
			go func() { done <- Relay(ctx, listener, remote, slog.New(slog.DiscardHandler)) }()
			s, err := Attach(socket, Hello("", 0), 0)
			if err == nil {
				if got := s.Wait(); got != "it was served" {
					t.Errorf("got %q", got)
				}
				s.Close()
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			played.Wait()
			if tries != c.tries || c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("after %d attempts: %v", tries, err)
			}
		})
	}
}

// Whoever connects to a job's socket, again and again, does not fill the disk that has the job's log.
func TestProgramsDoNotFillTheLog(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Relay(ctx, listener, Remote{}, slog.New(slog.NewTextHandler(&log, nil))) }()
	for range 2 * mostEnds {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.UnixConn).CloseWrite() // it is no program
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(log.Bytes(), []byte("\n")); lines != mostEnds {
		t.Errorf("%d lines of %d ends:\n%.500s", lines, 2*mostEnds, log.String())
	}
}
