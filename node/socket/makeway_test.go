package socket

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/node/settings"
)

// abandoned makes a socket at which nobody answers.
func abandoned(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func mustListen(t *testing.T, path string) *listener {
	t.Helper()
	l, err := Listen(settings.Socket{Address: path}, 0o666, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func answers(path string) bool {
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// onlyIn expects nothing else in a folder.
func onlyIn(t *testing.T, folder string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("in the folder is %q, want %q", got, names)
	}
}

func TestADeadSocketIsReplaced(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "s")
	abandoned(t, path)
	l := mustListen(t, path)
	if !answers(path) {
		t.Error("nobody answers")
	}
	onlyIn(t, folder, "s")
	l.Close()
	onlyIn(t, folder)
}

// What is not a dead socket of ours is left as it is.
// A process that a killed daemon was starting holds its socket for a moment, and answers nobody.
func TestASocketThatIsHeldForAMomentIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	held, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	held.SetUnlinkOnClose(false)
	go func() {
		conn, err := held.Accept()
		held.Close()
		if err == nil {
			conn.Close()
		}
	}()
	if err := makeWay(path); err != nil {
		t.Error(err)
	}
}

func TestListenRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("a year's work"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "is a file, which is left alone: give the node's socket a path at which there is nothing"},
		{"a folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a folder: give the node's socket a path at which there is nothing"},
		{"a link to a dead socket", func(t *testing.T, path string) {
			abandoned(t, path+"-target")
			if err := os.Symlink(path+"-target", path); err != nil {
				t.Fatal(err)
			}
		}, "is a symbolic link: name the socket itself"},
		{"a link to a file", func(t *testing.T, path string) {
			if err := os.Symlink("/etc/passwd", path); err != nil {
				t.Fatal(err)
			}
		}, "is a symbolic link: name the socket itself"},
		{"a live socket", func(t *testing.T, path string) { mustListen(t, path) },
			"a node answers at "},
		{"a socket of another kind", func(t *testing.T, path string) {
			l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "whether a node answers at "},
		{"another user's socket", func(t *testing.T, path string) {
			abandoned(t, path)
			if err := os.Chown(path, 65534, -1); err != nil {
				need.Missing(t, need.Root, "only root can give files away")
			}
		}, "but user 65534 made it: remove it by hand, or give this node another socket (--socket)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			c.make(t, path)
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			l, err := Listen(settings.Socket{Address: path}, 0o666, slog.New(slog.DiscardHandler))
			if err == nil {
				l.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want ...%s", err, c.want)
			}
			if after, err := os.Lstat(path); err != nil || !sameSocket(before, after) {
				t.Errorf("it is not what it was: %v", err)
			}
		})
	}
}

// A daemon that starts between the look and the removal keeps its socket.
func TestASocketThatWasReplacedIsPutBack(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "s")
	abandoned(t, path)
	dead, err := deadSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, filepath.Join(t.TempDir(), "old")); err != nil { // whose number is then not used again
		t.Fatal(err)
	}
	mustListen(t, path)
	if err := removeSame(path, dead); err == nil || !strings.Contains(err.Error(), "another node starts at "+path) {
		t.Errorf("got %v", err)
	}
	if !answers(path) {
		t.Error("the other daemon's socket is lost")
	}
	onlyIn(t, folder, "s")
}

// A daemon whose socket was removed leaves that of the next one alone.
func TestCloseLeavesAnothersSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := mustListen(t, path)
	if err := os.Rename(path, path+"-old"); err != nil {
		t.Fatal(err)
	}
	second := mustListen(t, path)
	first.Close()
	if !answers(path) {
		t.Error("the second daemon's socket is lost")
	}
	second.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestANameWithoutAFileIsTakenOnce(t *testing.T) {
	name := "@muster-test-" + filepath.Base(t.TempDir()) + "-" + t.Name()
	mustListen(t, name)
	if _, err := Listen(settings.Socket{Address: name}, 0o666, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "a node answers at "+name+" already: stop it, or give this one another socket (--socket)") {
		t.Errorf("got %v", err)
	}
}
