package worker

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
	"muster/internal/mailbox"
	"muster/node/clientcore"
	"muster/wire/control"
)

func asker(t *testing.T, owner string) *worker {
	return &worker{counter: counter{owner: owner}, inbox: mailbox.New(replaces), ctx: t.Context()}
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
	giver := counter{owner: "1000"}
	name, err := giver.offer(someFile(t))
	if err != nil {
		t.Fatal(err)
	}
	giver.take(name)
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
	defer w.counter.close()
	if _, err := w.fetch(name); err != nil {
		t.Errorf("one who asks: %v", err)
	}
	giver.close()
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
	w.inbox.Put(control.Revoke{})
	_, err = w.fetch(clientcore.Name{name[0], name[1]})
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
	giver := counter{owner: "1000"}
	defer giver.close()
	var files [2]*os.File
	for i := range files {
		files[i] = someFile(t)
		name, err := giver.offer(files[i])
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			giver.take(name)
		}
	}
	giver.dropUnused()
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
	giver := counter{owner: "1000"}
	defer giver.close()
	asks := func(owner string) *worker { return asker(t, owner) }
	name, err := giver.offer(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asks("1000").fetch(name); err == nil {
		t.Error("it was given before the client had it")
	}
	if giver.take(name) != f || giver.take(name) != f {
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
		if _, err := asks(tt.owner).fetch(tt.name); err == nil {
			t.Errorf("user %q got %v", tt.owner, tt.name)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			w := asks("1000")
			defer w.counter.close()
			got, err := w.fetch(name)
			if err != nil {
				t.Error(err)
				return
			}
			b := make([]byte, 8)
			if n, err := got.ReadAt(b, 0); n != 8 || string(b) != "contents" {
				t.Errorf("the file has %q: %v", b[:n], err)
			}
			if w.counter.take(name) != got {
				t.Error("it is not found a second time")
			}
		})
	}
	all.Wait()
	giver.put(name, f)
	if _, err := asks("1000").fetch(name); err != nil {
		t.Errorf("the client still has it: %v", err)
	}
	giver.put(name, f)
	if _, err := asks("1000").fetch(name); err == nil {
		t.Error("it was given after the client had closed it")
	}
	if _, err := (&counter{}).offer(f); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("a program of another machine: %v", err)
	}
}
