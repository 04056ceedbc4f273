package whois

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestOf(t *testing.T) {
	at := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // and once more after it was closed
		who, err := Of(c)
		if closed := c.Close() != nil; closed != (err != nil) {
			t.Fatal(who, err)
		} else if err == nil && (int(who.Pid) != os.Getpid() || int(who.Uid) != os.Getuid() || !RootOrSelf(who.Uid)) {
			t.Fatalf("%+v", who)
		}
	}
}

func TestNames(t *testing.T) {
	var n Names
	for range 2 {
		if root, nobody := n.Of(0), n.Of(4242424242); root != "root" || nobody != "4242424242" {
			t.Fatal(root, nobody)
		}
	}
}
