package daemon

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"muster/ivm/core"
	"muster/ivm/proto"
	"muster/wire"
)

func newService(t *testing.T) *Service {
	t.Helper()
	s := New(Config{
		Name: "n", Address: func() string { return "" }, Info: func(string, string) (int, int) { return 1, 0 }, Memory: 1 << 40, Log: slog.New(slog.DiscardHandler),
		Dial: func(context.Context, string) (net.Conn, error) { return nil, io.EOF },
	})
	t.Cleanup(s.Close)
	return s
}

// newProgram begins a program of a user's.
func newProgram(t *testing.T, s *Service, user string) (*member, error) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	e, err := s.begin(&proto.Launch{Executable: "/bin/true", Folder: "/", Args: []string{"true"}}, []*os.File{null, null}, Who{Name: user})
	if err != nil {
		return nil, err
	}
	return e.member, nil
}

func refusedWith(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// A user who has as many programs, elements or objects as a user may have leaves room for others.
func TestOneUserLeavesRoomForOthers(t *testing.T) {
	s := newService(t)
	var all []*member
	for range maxProgramsOfUser {
		m, err := newProgram(t, s, "ada")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	_, err := newProgram(t, s, "ada")
	refusedWith(t, err, "as many as a user may")
	bob, err := newProgram(t, s, "bob")
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(core.Page)
	s.mostObjects = 2000
	for i := range s.mostObjects / 2 { // over several programs
		m := all[i%2]
		is := core.Object{Number: uint64(i + 1), Size: size}
		o, err := m.newObject(is)
		if err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		m.objects[is.Number] = o
		m.mu.Unlock()
	}
	_, err = all[2].newObject(core.Object{Number: 1, Size: size})
	refusedWith(t, err, "as many as they may")
	if _, err := bob.newObject(core.Object{Number: 1, Size: size}); err != nil {
		t.Error(err)
	}
	if got := all[0].share.objects.Load(); got != s.mostObjects/2 {
		t.Errorf("%d objects are counted after one was refused", got)
	}
	for _, m := range all {
		m.finish("the test is over")
	}
	m, err := newProgram(t, s, "ada")
	for err != nil { // the last ends of the others may still be under way
		runtime.Gosched()
		m, err = newProgram(t, s, "ada")
	}
	m.share.elements.Store(maxElementsOfUser)
	if take(&m.share.elements, maxElementsOfUser) || !take(&bob.share.elements, maxElementsOfUser) {
		t.Error("elements are not counted by user")
	}
}

// A program that is over counts while a write to its output is stuck: it keeps a thread of the daemon.
func TestStuckOutputCounts(t *testing.T) {
	s := newService(t)
	m, err := newProgram(t, s, "ada")
	if err != nil {
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	m.root.listening.Go(func() { <-stuck })
	m.finish("the test is over")
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return m.share.programs
	}
	if count() != 1 {
		t.Error("a program whose output is stuck is not counted")
	}
	close(stuck)
	for count() != 0 {
		runtime.Gosched()
	}
}

// A frame that brings descriptors with each of its bytes is refused.
func TestFramesBringFewDescriptors(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn.(*net.UnixConn)
	}
	const frames = 50
	for range frames {
		if err := wire.SendFiles(conns[0], []byte{0}, os.Stderr, os.Stderr); err != nil {
			t.Fatal(err)
		}
	}
	conns[0].Close()
	in := &fileReader{conn: conns[1]}
	n, err := io.Copy(io.Discard, in)
	if err == nil || len(in.files) > 2*maxFiles {
		t.Errorf("%d descriptors came with %d bytes of one frame: %v", len(in.files), n, err)
	}
	for _, f := range in.take() {
		f.Close()
	}
}
