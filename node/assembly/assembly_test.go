package assembly

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/machine"
	"muster/ivm/proto"
	"muster/node/ask"
	"muster/node/gateway"
	"muster/node/nodefile"
	"muster/node/settings"
	"muster/wire/borrow"
	"muster/wire/client"
	"muster/wire/status"
	"muster/wire/trust"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// What the configuration leaves out is filled in, and what it says stays.
func TestComplete(t *testing.T) {
	memory, err := machine.Memory()
	if err != nil {
		t.Fatal(err)
	}
	cfg := settings.Default()
	cfg.Devices = []settings.Device{}
	if _, err := Complete(&cfg); err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	if cfg.Name != host || cfg.Swap.Size != memory/2 || len(cfg.Devices) != 0 {
		t.Errorf("%s, %d, %v", cfg.Name, cfg.Swap.Size, cfg.Devices)
	}
	cfg.Name, cfg.Swap.Size = "n1", 1<<30
	if _, err := Complete(&cfg); err != nil || cfg.Name != "n1" || cfg.Swap.Size != 1<<30 {
		t.Errorf("%s, %d, %v", cfg.Name, cfg.Swap.Size, err)
	}
}

// Where other nodes reach a node follows from what it was told, where it listens, and its name.
func TestGatewayOf(t *testing.T) {
	for _, c := range []struct{ told, listen, want string }{
		{"", "", ""},
		{"n1.example.org:9", "", "n1.example.org:9"},
		{"n1.example.org:9", ":9421", "n1.example.org:9"},
		{"", ":9421", "n1:9421"},
		{"", "0.0.0.0:9421", "n1:9421"},
		{"", "[::]:9421", "n1:9421"},
		{"", "10.0.0.7:9421", "10.0.0.7:9421"},
		{"", "gpu1:9421", "gpu1:9421"},
	} {
		cfg := settings.Config{Name: "n1"}
		cfg.Head.Gateway, cfg.Remote.Listen = c.told, c.listen
		if got := gatewayOf(cfg); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// A port that the system chose is the one that other nodes are told.
func TestAddressHasTheRealPort(t *testing.T) {
	cfg := settings.Config{Name: "n1"}
	cfg.Remote.Listen = ":0"
	e := &elements{cfg: cfg}
	if got := e.address(); got != "" {
		t.Errorf("before it listens: %q", got)
	}
	e.listening = &net.TCPAddr{Port: 4711}
	if got := e.address(); got != "n1:4711" {
		t.Error(got)
	}
	e.cfg.Remote.Listen = ":9421"
	if got := e.address(); got != "n1:9421" {
		t.Error(got)
	}
}

// Only the last word of the head counts for a daemon that comes to it late.
func TestLatestPeers(t *testing.T) {
	latest, tell := latestPeers()
	tell([]string{"a:1"})
	tell([]string{"b:1"})
	if got := <-latest; len(got) != 1 || got[0] != "b:1" {
		t.Error(got)
	}
}

// A guest's data are fetched from nodes that the configuration or the head names, and from no others.
func TestPeerBook(t *testing.T) {
	b := newPeerBook([]string{"a:1"})
	b.lookup = func(context.Context, string) ([]string, error) { return nil, errors.New("nothing is known") }
	has := func(address string) bool { _, is := b.find(context.Background(), address); return is }
	told := []string{"b:1"}
	b.tell(told)
	told[0] = "evil:1" // the caller's slice is its own
	for address, want := range map[string]bool{"a:1": true, "b:1": true, "c:1": false, "evil:1": false} {
		if has(address) != want {
			t.Errorf("%s: %v", address, !want)
		}
	}
	b.tell(nil)
	if has("b:1") || !has("a:1") {
		t.Error("a node that the head no longer names is still a peer, or one of the configuration is not")
	}
}

// A node without what a part needs says which setting gives it.
func TestMissingCertificates(t *testing.T) {
	user := t.TempDir()
	if err := os.WriteFile(filepath.Join(user, "user.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ofUser := RemoteIn(user, settings.Remote{})
	for _, c := range []struct {
		name, want string
		err        func() error
	}{
		{"a gateway without any", "tls.cert", func() error { _, err := nodeTLS(settings.Remote{}); return err }},
		{"a gateway with a user's folder", "is a user's folder", func() error { _, err := nodeTLS(ofUser); return err }},
		{"a plain gateway", "", func() error { _, err := nodeTLS(settings.Remote{Plain: true}); return err }},
		{"a plain gateway with half of them", "tls.key", func() error { _, err := nodeTLS(settings.Remote{Plain: true, Cert: "x"}); return err }},
		{"peers", "tls.ca", func() error {
			_, _, err := peerDialler(settings.Config{Offload: settings.Offload{Peers: []string{"a:1"}}})
			return err
		}},
		{"peers that are not used", "", func() error {
			_, _, err := peerDialler(settings.Config{Offload: settings.Offload{Peers: []string{"a:1"}, Mode: settings.OffloadOff}})
			return err
		}},
		{"a head elsewhere", "--tls-dir", func() error { _, err := headOf(settings.Config{Head: settings.Head{Address: "h"}}); return err }},
		{"a head here", "", func() error { _, err := headOf(settings.Config{Head: settings.Head{Address: "unix:@h"}}); return err }},
	} {
		err := c.err()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// answering is a server that shows the certificate in a folder, and greets whoever accepts it. The
// name of its files begins with kind.
func answering(t *testing.T, folder, kind string) (address string) {
	t.Helper()
	own, err := trust.Load(filepath.Join(folder, kind+".pem"), filepath.Join(folder, kind+"-key.pem"), filepath.Join(folder, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	own.VerifyConnection = nil // what it thinks of the other does not matter here
	l, err := tls.Listen("tcp", "127.0.0.1:0", trust.Listen(own, tls.RequireAndVerifyClientCert, slog.New(slog.DiscardHandler), borrow.Protocol, proto.ALPN))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "hello")
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// A node that asks another for devices or elements goes on only if a node answers, and one whose
// certificate was not revoked: also if that happens later.
func TestNodesDialNodes(t *testing.T) {
	dir := t.TempDir()
	authority, _, err := gateway.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder := func(path string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := RemoteIn(folder(authority.Node([]string{"a"}, 1)), settings.Remote{})
	good := answering(t, folder(authority.Node([]string{"b", "127.0.0.1"}, 1)), "node")
	bad := answering(t, folder(authority.Node([]string{"c", "127.0.0.1"}, 1)), "node")
	head := answering(t, folder(authority.Head([]string{"h", "127.0.0.1"}, 1)), "head")
	peers, _, err := peerDialler(settings.Config{Remote: own, Offload: settings.Offload{Peers: []string{"b:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	elements, err := nodeDialler(own, proto.ALPN)
	if err != nil {
		t.Fatal(err)
	}
	try := func(address, want string) {
		t.Helper()
		for name, dial := range map[string]func(context.Context, string) (net.Conn, error){"peers": peers, "elements": elements} {
			conn, err := dial(t.Context(), address)
			if err == nil {
				conn.Close()
			}
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	try(good, "")
	try(bad, "")
	try(head, "not that of a node")
	if _, _, err := authority.Revoke([]string{"node-c"}); err != nil {
		t.Fatal(err)
	}
	try(good, "")
	try(bad, "was revoked")
}

// Users of other nodes have elements here only where the administrator lets them.
func TestAccount(t *testing.T) {
	e := &elements{cfg: settings.Config{Name: "n1"}}
	refused := func(name, want string) {
		t.Helper()
		if _, err := e.account(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	refused("root", "--ivm")
	e.cfg.Remote.IVM = true
	refused("no-such-user", "has no user")
	refused("root", "--ivm-root")
}

// A whole node comes up, with a gateway that other machines reach, and ends.
func TestRun(t *testing.T) {
	authority, _, err := gateway.OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := authority.Node([]string{"localhost"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := settings.Default()
	cfg.Name, cfg.Warm = "n1", 0
	cfg.Socket.Address = fmt.Sprintf("@muster-assembly-%d", os.Getpid())
	cfg.State = filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(cfg.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if cfg.Devices, err = nodefile.Devices("soft:memory=256M"); err != nil {
		t.Fatal(err)
	}
	cfg.Remote = RemoteIn(folder, settings.Remote{Listen: "127.0.0.1:0"})
	if _, err := Complete(&cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Run(ctx, cfg, Options{Log: quiet, WorkerCommand: []string{"/bin/false"}, Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	s, err := ask.Status(cfg.Socket.Address)
	if err != nil || s.Node != "n1" || len(s.Devices) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	mustTellOfList(t, authority, folder, func() string {
		s, err := ask.Status(cfg.Socket.Address)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s.Problems)
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := ask.Status(cfg.Socket.Address); err == nil {
		t.Error("the node still answers")
	}
}

// mustTellOfList revokes a certificate, and takes the list away: the problems must say so until it is back.
func mustTellOfList(t *testing.T, authority *gateway.Authority, folder string, problems func() string) {
	t.Helper()
	if _, err := authority.User("eve", 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := authority.Revoke([]string{"user-eve"}); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(folder, trust.FileRevoked)
	for _, missing := range []bool{false, true, false} {
		var err error
		switch _, here := os.Stat(list); {
		case missing:
			err = os.Rename(list, list+".away")
		case here != nil:
			err = os.Rename(list+".away", list)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := problems(); strings.Contains(got, "certificates: the list of revoked certificates "+list+" is missing, and there was one: copy ") != missing {
			t.Errorf("missing %v: the problems are %s", missing, got)
		}
	}
}

// A node that accepts no connections, and makes some, says so as well.
func TestListOfANodeThatOnlyConnects(t *testing.T) {
	authority, _, err := gateway.OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := authority.Node([]string{"localhost"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := settings.Default()
	cfg.Remote = RemoteIn(folder, settings.Remote{})
	check, err := listCheck(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustTellOfList(t, authority, folder, func() string {
		if err := check.Trouble(); err != nil {
			return fmt.Sprint(status.Problem{Part: check.Part, What: err.Error()})
		}
		return ""
	})
}

// A part that cannot be had ends the start, with the reason.
func TestRunRefuses(t *testing.T) {
	cfg := settings.Default()
	cfg.Name, cfg.Devices = "n1", []settings.Device{}
	cfg.Remote.Listen = "127.0.0.1:0"
	if err := Run(t.Context(), cfg, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), "programs on other machines cannot be served") {
		t.Error(err)
	}
	cfg.Remote.Listen = ""
	cfg.Head.Address = "h"
	if err := Run(t.Context(), cfg, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), "the head (--head)") {
		t.Error(err)
	}
}
