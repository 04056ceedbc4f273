package sharing

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"muster/device"
	"muster/node/clientcore"
)

func asker(t *testing.T, owner string) *Counter {
	return New(t.Context(), owner, func() bool { return false })
}

// someFile is one that can be offered.
func someFile(t *testing.T) *os.File {
	f, err := os.CreateTemp(t.TempDir(), "memory")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func connect(t *testing.T, name clientcore.Name) net.Conn {
	conn, err := net.Dial("unix", counterName([2]uint64{name[0], name[1]}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Those who connect and say nothing, or half of a question, keep neither a worker from
// ending nor others from asking, and there are never many of them.
func TestCounterAndSilentPeers(t *testing.T) {
	giver := Counter{owner: "1000"}
	name, err := giver.Offer(someFile(t))
	if err != nil {
		t.Fatal(err)
	}
	giver.Take(name)
	oldest := connect(t, name)
	var last net.Conn
	for i := range 2 * mostAsking {
		last = connect(t, name)
		if _, err := last.Write(make([]byte, i%18)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := oldest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the first of too many: %v", err)
	}
	w := asker(t, "1000")
	defer w.Close()
	if _, err := w.Fetch(name); err != nil {
		t.Errorf("one who asks: %v", err)
	}
	giver.Close()
	if n := len(giver.asking); n != 0 {
		t.Errorf("%d are still answered", n)
	}
	if _, err := last.Read(make([]byte, 1)); err == nil {
		t.Error("one who said nothing got an answer")
	}
}

// Who answers may be a program, which says nothing: the worker goes on as soon as the daemon
// wants something.
func TestCounterThatNeverAnswers(t *testing.T) {
	name, err := randomWords()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", counterName(name))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := asker(t, "1000")
	w.heard = func() bool { return true }
	_, err = w.Fetch(clientcore.Name{name[0], name[1]})
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it waited to the end: %v", err)
	}
}

// An answer with more than the one descriptor leaves none behind.
func TestCounterAnswerWithTwoDescriptors(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*net.UnixConn{}
	for i := range ends {
		f := os.NewFile(uintptr(pair[i]), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ends[i] = c.(*net.UnixConn)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, _, err := ends[0].WriteMsgUnix([]byte{1}, syscall.UnixRights(int(writer.Fd()), int(writer.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := receiveFile(ends[1]); err == nil {
		t.Error("two descriptors were taken")
	}
	writer.Close()
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // else it would wait
		t.Error(err)
	}
}

// What was offered and never taken is gone when the next is.
func TestCounterDropsWhatNobodyTook(t *testing.T) {
	giver := Counter{owner: "1000"}
	defer giver.Close()
	var files [2]*os.File
	for i := range files {
		files[i] = someFile(t)
		name, err := giver.Offer(files[i])
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			giver.Take(name)
		}
	}
	giver.DropUnused()
	if _, err := files[0].Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a file that nobody took: %v", err)
	}
	if _, err := files[1].Stat(); err != nil {
		t.Errorf("a file that the client has: %v", err)
	}
}

// A file is given to a worker of the same user that knows its name, while the client has
// it; to nobody else.
func TestCounter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(path, []byte("contents"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	giver := Counter{owner: "1000"}
	defer giver.Close()
	asks := func(owner string) *Counter { return asker(t, owner) }
	name, err := giver.Offer(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asks("1000").Fetch(name); err == nil {
		t.Error("it was given before the client had it")
	}
	if giver.Take(name) != f || giver.Take(name) != f {
		t.Fatal("the client does not get its own file")
	}
	other := name
	other[3]++
	nobody := name
	nobody[0]++
	for _, tt := range []struct {
		owner string
		name  [4]uint64
	}{{"1001", name}, {"", name}, {"10000", name}, {"1000", other}, {"1000", nobody}} {
		if _, err := asks(tt.owner).Fetch(tt.name); err == nil {
			t.Errorf("user %q got %v", tt.owner, tt.name)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			w := asks("1000")
			defer w.Close()
			got, err := w.Fetch(name)
			if err != nil {
				t.Error(err)
				return
			}
			b := make([]byte, 8)
			if n, err := got.ReadAt(b, 0); n != 8 || string(b) != "contents" {
				t.Errorf("the file has %q: %v", b[:n], err)
			}
			if w.Take(name) != got {
				t.Error("it is not found a second time")
			}
		})
	}
	all.Wait()
	giver.Put(name, f)
	if _, err := asks("1000").Fetch(name); err != nil {
		t.Errorf("the client still has it: %v", err)
	}
	giver.Put(name, f)
	if _, err := asks("1000").Fetch(name); err == nil {
		t.Error("it was given after the client had closed it")
	}
	if _, err := (&Counter{}).Offer(f); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("a program of another machine: %v", err)
	}
}
