package node

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if _, err := Ask(file); err == nil || errors.Is(err, ErrNoNode) || !strings.HasPrefix(err.Error(), file+" is no socket: name the one that the node was started with") {
		t.Error(err)
	}
	if _, err := Ask(filepath.Join(dir, "none")); !errors.Is(err, ErrNoNode) {
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
		asUser(t, 65534, func() { _, err = ask(socket, 0) })
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}
