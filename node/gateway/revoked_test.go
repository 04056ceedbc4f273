package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/wholefile"
	"muster/wire/client"
	"muster/wire/trust"
)

// handshake connects a user with a folder to a node with another, and returns what the node says.
func handshake(t *testing.T, node, user string) error {
	t.Helper()
	server, err := LoadDir(node)
	if err != nil {
		return err
	}
	own, err := client.LoadTLS(user)
	if err != nil {
		t.Fatal(err)
	}
	own = own.Clone()
	own.ServerName = "localhost"
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		c := tls.Client(far, own)
		_ = c.Handshake()
		far.Close()
	}()
	return tls.Server(near, strict(server, slog.New(slog.DiscardHandler))).Handshake()
}

// A certificate that was revoked opens no door, from when the list is beside the authority's; others
// go on being good, and so does one that is made anew for the same user.
func TestRevoked(t *testing.T) {
	dir := t.TempDir()
	a, _, err := OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if list, err := a.List(); list == nil || err != nil { // nil would be null in JSON
		t.Errorf("the list of a new authority is %v, %v", list, err)
	}
	node, err := a.Node([]string{"localhost"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	alice, err := a.User("alice", 1)
	if err != nil {
		t.Fatal(err)
	}
	bob, err := a.User("bob", 1)
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "alice") // the user has taken it
	if err := os.Rename(alice, gone); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{gone, bob} {
		if err := handshake(t, node, user); err != nil {
			t.Fatal(err)
		}
	}
	revoked, written, err := a.Revoke([]string{"user-alice"})
	if err != nil || len(revoked) != 1 || len(written) != 2 {
		t.Fatalf("revoked %v in %v, %v", revoked, written, err)
	}
	if err := handshake(t, node, gone); err == nil || !strings.Contains(err.Error(), "of user-alice was revoked: its owner needs a new one") {
		t.Errorf("alice: %v", err)
	}
	if err := handshake(t, node, bob); err != nil {
		t.Errorf("bob: %v", err)
	}
	anew, err := a.User("alice", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := handshake(t, node, anew); err != nil {
		t.Errorf("alice with a new certificate: %v", err)
	}
	if other, err := a.Node([]string{"other", "localhost"}, 1); err != nil || handshake(t, other, gone) == nil {
		t.Errorf("a node that is made later lets alice in: %v", err)
	}
	if list, err := a.List(); err != nil || len(list) != 5 {
		t.Errorf("the list is %v, %v", list, err)
	}
}

// A user whose certificate was revoked is told what may have happened and what to do, although TLS
// has only "bad certificate" for it.
func TestRevokedUserIsTold(t *testing.T) {
	a, _, err := OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	node, err := a.Node([]string{"127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	user, err := a.User("alice", 1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadTLS(user)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Revoke([]string{"user-alice"}); err != nil {
		t.Fatal(err)
	}
	server, err := LoadDir(node)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	refused := make(chan error, 1)
	go func() {
		plain, err := listener.Accept()
		if err != nil {
			refused <- err
			return
		}
		refused <- tls.Server(plain, strict(server, slog.New(slog.DiscardHandler))).Handshake()
		_, _ = io.Copy(io.Discard, plain) // the caller reads why before the connection is closed
		plain.Close()
	}()
	err = client.Check(t.Context(), client.Secure(listener.Addr().String(), config, ""))
	for _, want := range []string{"revoked", "ask an administrator", "muster cert"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("alice is told %v, and not %q", err, want)
		}
	}
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "of user-alice was revoked") {
		t.Errorf("the node's log will have %v", err)
	}
}

// A node that serves hears of a list that comes later, without being started again; one that
// somebody else made lets nobody in.
func TestRevokedWhileServing(t *testing.T) {
	dir := t.TempDir()
	a, _, err := OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	node, err := a.Node([]string{"localhost"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := LoadDir(node)
	if err != nil {
		t.Fatal(err)
	}
	user, err := a.User("alice", 1)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := trust.LoadPair(filepath.Join(user, client.FileUser), filepath.Join(user, client.FileUserKey))
	if err != nil {
		t.Fatal(err)
	}
	state := tls.ConnectionState{}
	state.PeerCertificates = append(state.PeerCertificates, pair.Leaf)
	if err := config.VerifyConnection(state); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Revoke([]string{"user-alice"}); err != nil {
		t.Fatal(err)
	}
	if err := config.VerifyConnection(state); err == nil {
		t.Error("a list that came later is not heard of")
	}
	stranger, _, err := OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.User("alice", 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := stranger.Revoke([]string{"user-alice"}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"no list": "hello", "nothing": "", "as good as nothing": "\n \n", "another authority's": read(t, filepath.Join(stranger.dir, trust.FileRevoked))} {
		if err := wholefile.Replace(filepath.Join(node, trust.FileRevoked), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := config.VerifyConnection(tls.ConnectionState{}); err == nil || !strings.Contains(err.Error(), "muster cert revoke") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := LoadDir(node); err == nil {
			t.Errorf("%s: the node starts", name)
		}
	}
}

// logged is a log that a test reads while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// errors are the lines of level ERROR.
func (l *logged) errors() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A program whose user's certificate is revoked while it is served is ended, and told why; those of
// other users go on.
func TestRevokedWhileConnected(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	a, _, err := OpenAuthority(w.dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := a.User("bob", 1)
	if err != nil {
		t.Fatal(err)
	}
	bobs, err := client.LoadTLS(folder)
	if err != nil {
		t.Fatal(err)
	}
	socket := newSocket()
	w.relay(t, socket, client.Secure(w.address, bobs, ""))
	ada, bob := attachTo(t, w.socket), attachTo(t, socket)
	defer ada.Close()
	defer bob.Close()
	if err := wholefile.Replace(filepath.Join(w.dir, "node-localhost", trust.FileRevoked), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.gateway.endRevoked() // a list that cannot be used ends nobody
	for _, s := range []*client.Session{ada, bob} {
		if reason, closed := s.Shared.Closed(); closed {
			t.Fatalf("a broken list ends a program: %s", reason)
		}
	}
	if err := os.Remove(filepath.Join(w.dir, "node-localhost", trust.FileRevoked)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Revoke([]string{"user-ada"}); err != nil {
		t.Fatal(err)
	}
	w.gateway.endRevoked()
	if reason := ada.Wait(); !strings.Contains(reason, "of user-ada was revoked: its owner needs a new one") {
		t.Errorf("ada's program is told %q", reason)
	}
	if reason, closed := bob.Shared.Closed(); closed {
		t.Errorf("bob's program has ended: %s", reason)
	}
}

// A list that cannot be used is an error in the node's log, once each time that it breaks and not for
// each connection. Programs are told that it is not their fault, and whose it is.
func TestBrokenListIsTheNodesFault(t *testing.T) {
	var log logged
	w := newWorld(t, testGeometry, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	file := filepath.Join(w.dir, "node-localhost", trust.FileRevoked)
	for round := 1; round <= 3; round++ {
		if err := wholefile.Replace(file, []byte(strings.Repeat("broken", round)), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			err := client.Check(t.Context(), client.Secure(w.address, w.user, ""))
			if err == nil || !strings.Contains(err.Error(), "which is no fault of yours: its administrator has to mend that") || strings.Contains(err.Error(), "your certificate") {
				t.Errorf("the user is told %v", err)
			}
		}
		w.gateway.endRevoked()
		lines := log.errors()
		if len(lines) != round || !strings.Contains(lines[round-1], file) || !strings.Contains(lines[round-1], "copy the one that muster cert revoke wrote, or remove the file") {
			t.Errorf("the log has %d errors after the list was broken for the %d. time: %q", len(lines), round, lines)
		}
		if round == 1 {
			continue // it changes, and is as broken as before
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := client.Check(t.Context(), client.Secure(w.address, w.user, "")); err != nil {
			t.Errorf("the list was mended: %v", err)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each list has a higher number than the last, even if the clock was ahead then: nodes take no older one.
func TestListNumbersRise(t *testing.T) {
	dir := certificates(t)
	now := time.Now()
	var last *big.Int
	for _, at := range []time.Time{now.Add(time.Hour), now, now} {
		authority, _, err := OpenAuthority(dir, at)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := authority.Revoke([]string{"user-ada"}); err != nil {
			t.Fatal(err)
		}
		list, err := trust.ReadRevoked(filepath.Join(dir, trust.FileRevoked), []*x509.Certificate{authority.cert})
		if err != nil {
			t.Fatal(err)
		}
		if n := list.Number(); last != nil && n.Cmp(last) <= 0 {
			t.Errorf("%v follows %v", n, last)
		}
		last = list.Number()
	}
}
