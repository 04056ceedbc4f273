package ask

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
	"muster/wire"
)

// What is in the way of a node is said in words.
func TestAskSaysWhatIsInTheWay(t *testing.T) {
	dir, err := os.MkdirTemp("", "ask") // a path that other users can walk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Status(file); err == nil || errors.Is(err, ErrNoNode) || !strings.HasPrefix(err.Error(), file+" is no socket: name the one that the node was started with") {
		t.Error(err)
	}
	if _, err := Status(filepath.Join(dir, "none")); !errors.Is(err, ErrNoNode) {
		t.Error(err)
	}
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		mode os.FileMode
		want string
	}{
		{0o660, "you may not use the socket " + socket + ": group 54321 may; ask the administrator to make you a member of it"},
		{0o600, "you may not use the socket " + socket + ": only its owner may (mode 0600); run a node of your own (muster run --private)"},
	} {
		if err := os.Chmod(socket, c.mode); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 { // else the test is skipped below
			if err := os.Chown(socket, -1, 54321); err != nil {
				t.Fatal(err)
			}
		}
		asAnother(t, 65534, func() { _, err = StatusWithin(socket, 0) })
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}

// Whoever answers, it is told as a sentence.
func TestAskUnderstandsRefusals(t *testing.T) {
	record := func(reason string) []byte {
		var b strings.Builder
		if err := wire.WriteRecord(&b, &wire.Refused{Result: 802, Reason: reason}); err != nil {
			t.Fatal(err)
		}
		return []byte(b.String())
	}
	likeJSON := strings.Repeat("x", '{'-8) // so long that the record begins as a document does
	for _, c := range []struct {
		name   string
		answer []byte
		want   string
	}{
		{"a record", record("there is no room"), "refuses: there is no room"},
		{"a record that begins as a document", record(likeJSON), "refuses: " + likeJSON},
		{"a document", []byte(`{"error":"the node is shutting down"}` + "\n"), "refuses: the node is shutting down"},
		{"nothing", nil, "closed the connection without an answer: it may just be ending, or have no room; try again"},
		{"noise", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "does not answer as a node does: invalid character 'H' looking for beginning of value"},
	} {
		for _, atOnce := range []bool{true, false} {
			socket := fmt.Sprintf("@muster-ask-%d-%s-%v", os.Getpid(), strings.ReplaceAll(c.name, " ", "-"), atOnce)
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if !atOnce {
					_, _ = conn.Read(make([]byte, 100))
				}
				_, _ = conn.Write(c.answer)
			}()
			_, err = Status(socket)
			if want := "the node at " + socket + " " + c.want; err == nil || err.Error() != want {
				t.Errorf("%s: got %v\nwant %s", c.name, err, want)
			}
			l.Close()
		}
	}
}

// asAnother runs something as another user of the machine.
func asAnother(t *testing.T, uid int, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can be somebody else")
	}
	done := make(chan struct{})
	var errno syscall.Errno
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		if errno == 0 {
			do()
		}
	}()
	if <-done; errno != 0 {
		t.Fatal("setresuid:", errno)
	}
}
