package door

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// eagerPair is a connection of TCP, one side of which is eager.
func eagerPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if far, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return NewEager(accepted), far
}

// mayLook sets the number of readers that may poll, for a test.
func mayLook(t *testing.T, n int) {
	before := SetLookers(n)
	t.Cleanup(func() { SetLookers(before) })
}

// idler does something at the nth look, and looks a number of times.
type idler struct {
	looks, most int
	at          map[int]func()
	slept       atomic.Int32
	asleep      func()
}

func (i *idler) Look() bool {
	if do := i.at[i.looks]; do != nil {
		do()
	}
	i.looks++
	return i.looks < i.most
}

func (i *idler) Sleep() {
	i.slept.Add(1)
	if i.asleep != nil {
		i.asleep()
	}
}

func reads(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	b := make([]byte, 100)
	if n, err := conn.Read(b); err != nil || string(b[:n]) != want {
		t.Fatalf("%q, %v where %q was due", b[:n], err, want)
	}
}

func says(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Error(err)
	}
}

// A reader that looks finds what comes, and one that has stopped is woken, also by what
// was announced to it while it looked.
func TestEagerReads(t *testing.T) {
	mayLook(t, 1)
	near, far := eagerPair(t)
	i := &idler{most: 1 << 30, at: map[int]func(){3: func() { says(t, far, "found") }}}
	WhileIdle(near, i)
	reads(t, near, "found")
	if i.slept.Load() != 0 {
		t.Error("it slept")
	}
	*i = idler{most: 5, asleep: func() { go says(t, far, "woken") }}
	reads(t, near, "woken")
	if i.looks != 5 || i.slept.Load() != 1 {
		t.Errorf("it looked %d times and slept %d times", i.looks, i.slept.Load())
	}
	*i = idler{most: 5}
	says(t, far, "there")
	far.(*net.TCPConn).CloseWrite()
	reads(t, near, "there")
	if _, err := near.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	if looking.Load() != 0 {
		t.Error("somebody still looks")
	}
}

// Deadlines work, and closing a connection ends its reader. The reader itself must not close it
// between two polls, because closing waits for the read.
func TestEagerEnds(t *testing.T) {
	mayLook(t, 1)
	near, _ := eagerPair(t)
	i := &idler{most: 3, asleep: func() { _ = near.SetReadDeadline(time.Unix(1, 0)) }}
	WhileIdle(near, i)
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = near.SetReadDeadline(time.Time{})
	*i = idler{most: 3, at: map[int]func(){1: func() { go near.Close() }}} // which waits for the reader
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// Only the given number of readers polls; the others sleep immediately, and Sleep is called for
// them.
func TestEagerReadersAreFew(t *testing.T) {
	mayLook(t, 1)
	first, firstFar := eagerPair(t)
	second, secondFar := eagerPair(t)
	other := &idler{most: 1 << 30, asleep: func() { says(t, secondFar, "second") }}
	WhileIdle(second, other)
	WhileIdle(first, &idler{most: 1 << 30, at: map[int]func(){0: func() {
		reads(t, second, "second")
		says(t, firstFar, "first")
	}}})
	reads(t, first, "first")
	if other.looks != 0 || other.slept.Load() != 1 {
		t.Errorf("the second looked %d times and slept %d times", other.looks, other.slept.Load())
	}
	for cores, want := range map[int]int{1: 0, 2: 0, 3: 1, 4: 1, 8: 2, 16: 4} {
		if n := lookersFor(cores); n != want {
			t.Errorf("%d look on %d cores, %d should", n, cores, want)
		}
	}
}

// Buffered writes arrive complete and in order, at the latest on Release, or when the buffer is
// full.
func TestEagerHolds(t *testing.T) {
	near, far := eagerPair(t)
	e := near.(*Eager)
	var want []byte
	write := func(n int) {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(len(want) + i)
		}
		want = append(want, b...)
		if written, err := e.Write(b); written != n || err != nil {
			t.Error(written, err)
		}
	}
	done := make(chan []byte)
	go func() {
		got, _ := io.ReadAll(far)
		done <- got
	}()
	write(10)
	e.Hold()
	for _, n := range []int{100, 16 << 10, holdAtMost, 1, holdAtMost + 1, 5, holdAtMost - 5, 7} {
		write(n)
	}
	if err := e.Release(); err != nil {
		t.Error(err)
	}
	write(20)
	if len(e.held) != 0 {
		t.Error("something is still held")
	}
	near.Close()
	if got := <-done; !bytes.Equal(got, want) {
		t.Errorf("%d bytes came of %d, or others", len(got), len(want))
	}
}
