package gateway

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"muster/wire"
	"muster/wire/client"
)

// traces are what connections leave behind if they are not cleared away.
type traces struct{ goroutines, descriptors int }

func tracesNow(t testing.TB) traces {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return traces{runtime.NumGoroutine(), len(files)}
}

// leavesNothing runs something, and waits until nothing is left of it.
func leavesNothing(t *testing.T, w *world, do func()) {
	t.Helper()
	before := tracesNow(t)
	do()
	var now traces
	defer func() {
		if t.Failed() {
			t.Logf("before %+v, now %+v", before, now)
		}
	}()
	eventually(t, "nothing is left", func() bool {
		now = tracesNow(t)
		return w.daemon.clientsServed() == 0 && now.goroutines <= before.goroutines && now.descriptors <= before.descriptors
	})
}

// impatient is a gateway that waits for nobody.
func impatient(c *Config) { c.Limits.Silence, c.Limits.Keep = 100*time.Millisecond, -1 }

// frameOf is a message as it travels.
func frameOf(seq uint32, slot int, m wire.Message, data, length uint64) []byte {
	f := wire.Frame{Kind: wire.FrameMessage, Header: wire.Header{Op: m.Op(), Slot: slot, Seq: seq, Data: data, Length: length}, Body: m.Append(nil)}
	return f.Append(nil)
}

// A client asks and asks, and never reads an answer. What that costs is bounded,
// and ends.
func TestNeverReads(t *testing.T) {
	for _, c := range []struct {
		name string
		slot func(i int) int // where the answer is due
	}{
		{"in all slots", func(i int) int { return i % wire.Slots }},
		{"in one slot", func(int) int { return 7 }},
		{"without a slot", func(int) int { return -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testGeometry, impatient)
			leavesNothing(t, w, func() {
				before := runtime.NumGoroutine()
				conn := rawConversation(t, w)
				defer conn.Close()
				const many = 5000
				out := &wire.CopyOut{Src: deviceBase}
				for i, at := 0, uint64(0); i < many; i++ {
					slot, length := c.slot(i), uint64(wire.BounceBuffer)
					frame := frameOf(uint32(i), slot, out, testGeometry.Staging, length)
					if _, err := conn.Write(append(segmentOf(at, len(frame)), frame...)); err != nil {
						break // it was ended
					}
					at += uint64(len(frame))
				}
				most := 0
				eventually(t, "it is ended", func() bool {
					most = max(most, runtime.NumGoroutine()-before)
					return w.daemon.clientsServed() == 0 || most > many/2
				})
				if most > 2*wire.Slots {
					t.Errorf("it made %d goroutines", most)
				}
			})
		})
	}
}

// An answer is due in a slot only once at a time.
func TestSlotTwice(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	conn, frames := conversation(t, w)
	next := &wire.HostNext{} // is never answered here
	if _, err := conn.Write(append(frameOf(0, 3, next, 0, 0), frameOf(1, 3, next, 0, 0)...)); err != nil {
		t.Fatal(err)
	}
	f, err := frames.Next()
	if want := "the program's side sent what it must not: host_next wants its answer in slot 3, where one is due already"; err != nil || f.Kind != wire.FrameClosed || f.Reason != want {
		t.Errorf("got %v %q, %v", f.Kind, f.Reason, err)
	}
}

// A client begins something and falls silent: it ends.
func TestBreaksOff(t *testing.T) {
	w := newWorld(t, testGeometry, impatient)
	in := &wire.CopyIn{Dst: deviceBase}
	staged := wire.Frame{Kind: wire.FrameMessage, Header: wire.Header{Op: in.Op(), Slot: -1, Length: 1000}, Body: in.Append(nil), Bytes: 1000}
	data := wire.Frame{Kind: wire.FrameData, Offset: testGeometry.Staging, Bytes: 1000}
	for _, c := range []struct {
		name  string
		begin []byte
	}{
		{"a head", []byte{40, 0}}, {"a message", frameOf(0, -1, in, 0, 0)[:30]},
		{"staged data", append(staged.Append(nil), 1, 2, 3)}, {"data", append(data.Append(nil), 1, 2, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t, w, func() {
				conn := rawConversation(t, w)
				defer conn.Close()
				if _, err := conn.Write(append(segmentOf(0, len(c.begin)), c.begin...)); err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, conn) // until it is ended
			})
		})
	}
}

// segmentOf is the head of a segment as door.Resumable sends it.
func segmentOf(at uint64, length int) []byte {
	head := binary.LittleEndian.AppendUint64(nil, uint64(length))
	return append(binary.LittleEndian.AppendUint64(head, at), make([]byte, 8)...)
}

// A client goes while its worker takes no more messages: nobody reads what it has
// sent, and still its end is noticed.
func TestGoesWhileTheWorkerIsBusy(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	leavesNothing(t, w, func() {
		conn, _ := conversation(t, w)
		eventually(t, "it is served", func() bool { return w.daemon.clientsServed() == 1 })
		var all bytes.Buffer
		all.Write(frameOf(0, -1, &wire.HostFunction{Stream: 1, Cookie: 1}, 0, 0)) // which is never done
		fill := &wire.Fill{Dst: deviceBase, Width: 4, Count: 1, Height: 1, Stream: 1}
		// A few more than the test's worker and the ring take, so that the end of the
		// connection is not kept back by what is before it.
		size := (wire.HeaderSize + len(fill.Append(nil)) + 7) &^ 7
		most := streamQueue + int(testGeometry.Ring)/size + 200
		for seq := range uint32(most) {
			all.Write(frameOf(seq+1, -1, fill, 0, 0))
		}
		if _, err := conn.Write(all.Bytes()); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	})
}

// One who holds all places from which nobody is known hurts only those who come from
// the same address, and even those can come.
func TestUnknownConnections(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.Limits.Unknown = 8 })
	leavesNothing(t, w, func() {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		for range 50 {
			conn, err := from.Dial("tcp", w.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		for range 3 {
			attachTo(t, w.socket).Close()
		}
		config := w.user.Clone()
		config.ServerName = "localhost"
		near, err := tls.DialWithDialer(&from, "tcp", w.address, config)
		if err != nil {
			t.Fatal(err)
		}
		near.Close()
	})
}

// Places are each user's: one who has used his up does not take others'.
func TestUsersHavePlaces(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.Limits.User, c.Limits.All = 3, 6 })
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
	hello := client.Hello("test", 0)
	var waiting []*tls.Conn
	for i := range 10 { // the oldest makes room
		conn, err := tls.Dial("tcp", w.address, eve)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(4 * time.Minute))
		if err := errors.Join(wire.WriteRecord(conn, &hello), wire.ReadAs(conn, &wire.Welcome{})); err != nil {
			t.Fatal(i, err)
		}
		waiting = append(waiting, conn)
	}
	closed := make(chan error, len(waiting))
	for _, conn := range waiting {
		go func() {
			_, err := io.Copy(io.Discard, conn)
			closed <- err
		}()
	}
	for i := range 7 { // mostly the first, if the gateway was not slower than this test
		if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d connections were closed, and should be 7", i)
		}
	}
	for range 3 {
		defer attachTo(t, w.socket).Close()
	}
	if got := w.gateway.known.Taken(); got != 6 {
		t.Errorf("%d places are taken", got)
	}
	if _, err := client.Attach(w.socket, client.Hello("test", 0), 0); err == nil || !strings.Contains(err.Error(), "user ada has 3 programs' connections") {
		t.Errorf("a fourth of ada's: %v", err)
	}
}

// Thousands who say what nobody does leave nothing.
func TestMalformedConnections(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	many := 3000
	if testing.Short() {
		many = 300
	}
	leavesNothing(t, w, func() {
		for i := range many {
			conn, err := net.Dial("tcp", w.address)
			if err != nil {
				t.Fatal(err)
			}
			switch i % 4 {
			case 0: // a word that is none of TLS
				_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\n\r\n%d", i)
			case 1: // half a greeting of TLS
				_, _ = conn.Write([]byte{22, 3, 1, 2, 0, 1, 0})
			case 2: // the other direction is ended
				_ = conn.(*net.TCPConn).CloseWrite()
			}
			if i%2 == 0 {
				_ = conn.(*net.TCPConn).SetLinger(0) // breaks
			}
			conn.Close()
		}
		attachTo(t, w.socket).Close()
	})
}

// A program's side that has begun to send data and does not go on is told at once that the worker has
// ended: the end does not wait for the data.
func TestTheEndDoesNotWaitForData(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.Limits.Silence = time.Hour })
	conn, frames := conversation(t, w)
	call := wire.Frame{Kind: wire.FrameMessage, Header: wire.Header{Op: wire.OpMemAlloc, Slot: 0}, Body: (&wire.MemAlloc{}).Append(nil)}
	copies := wire.Frame{Kind: wire.FrameMessage, Header: wire.Header{Op: wire.OpCopyIn, Slot: -1, Seq: 1, Length: 100}, Body: (&wire.CopyIn{}).Append(nil), Bytes: 100}
	if _, err := conn.Write(append(copies.Append(call.Append(nil)), make([]byte, 50)...)); err != nil {
		t.Fatal(err)
	}
	if f, err := frames.Next(); err != nil || f.Kind != wire.FrameReply {
		t.Fatal(f, err) // so the gateway has come to the copy, or is about to
	}
	w.daemon.end(0, "the device is gone")
	if f, err := frames.Next(); err != nil || f.Kind != wire.FrameClosed || f.Reason != "the device is gone" {
		t.Errorf("got %v %q, %v", f.Kind, f.Reason, err)
	}
}
