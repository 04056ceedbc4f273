package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/node/gateway"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/client"
	"muster/wire/dial"
)

func with(t *tls.Config, change func(*tls.Config)) *tls.Config {
	t = t.Clone()
	change(t)
	return t
}

// Who may connect over TLS, and as what.
func TestCertificates(t *testing.T) {
	c := start(t, nil)
	other, _, err := gateway.OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := other.User("alice", 30)
	if err != nil {
		t.Fatal(err)
	}
	expiredIn := t.TempDir()
	expired := func() tls.Certificate {
		for _, file := range []string{client.FileCA, gateway.FileCAKey} {
			text, err := os.ReadFile(filepath.Join(authority(), file))
			if err == nil {
				err = os.WriteFile(filepath.Join(expiredIn, file), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		a, _, err := gateway.OpenAuthority(expiredIn, time.Now().AddDate(0, 0, -40))
		if err != nil {
			t.Fatal(err)
		}
		dir, err := a.User("alice", 30)
		if err != nil {
			t.Fatal(err)
		}
		return loadCert(t, dir, "user").Certificates[0]
	}()
	alice, node := certOf(t, "user", "alice"), certOf(t, "node", "n1")
	ctx := context.Background()
	for _, k := range []struct {
		name        string
		tls         *tls.Config
		user, agent string // what is wrong; "" for nothing
	}{
		{"a user", alice, "", "this is for nodes"},
		{"a node", node, "this is for users", ""},
		{"no certificate", with(alice, func(c *tls.Config) { c.Certificates = nil }), "certificate required", "certificate required"},
		{"another authority's", with(alice, func(c *tls.Config) { c.Certificates = loadCert(t, stranger, "user").Certificates }), "tls: ", "tls: "},
		{"an expired one", with(alice, func(c *tls.Config) { c.Certificates = []tls.Certificate{expired} }), "expired", "expired"},
		{"a head's", with(alice, func(c *tls.Config) {
			c.Certificates = loadCert(t, filepath.Join(authority(), "head-localhost"), "head").Certificates
		}), "is that of a muster head, not of a user", "is that of a muster head, not of a user"},
		{"a head of another authority", with(alice, func(c *tls.Config) { c.RootCAs = loadCert(t, stranger, "user").RootCAs }), "made by another authority than the one", "made by another authority than the one"},
	} {
		h, base, err := dial.Client(dial.Config{Head: c.at.Listen, TLS: k.tls})
		if err != nil {
			t.Fatal(err)
		}
		_, problem := (&asker{t, h, base}).do("GET", "/v1/cluster", nil, nil)
		conn, err := dial.DialAgent(ctx, dial.Config{Head: c.at.Listen, TLS: k.tls})
		if err == nil {
			_ = conn.Close()
		}
		h.CloseIdleConnections()
		for _, got := range []struct{ as, problem, want string }{{"user", problem, k.user}, {"agent", fmt.Sprint(err), k.agent}} {
			if got.problem == "<nil>" {
				got.problem = ""
			}
			if (got.problem == "") != (got.want == "") || !strings.Contains(got.problem, got.want) {
				t.Errorf("%s as %s: got %q, want %q", k.name, got.as, got.problem, got.want)
			}
		}
	}
	old := with(alice, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 })
	if _, err := tls.Dial("tcp", c.at.Listen, old); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: %v", err)
	}
	// A node with a head's name is no head.
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certOf(t, "node", "127.0.0.1").Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	if _, err := dial.DialAgent(ctx, dial.Config{Head: l.Addr().String(), TLS: node}); err == nil || !strings.Contains(err.Error(), "is not that of a head") {
		t.Errorf("a node as head: %v", err)
	}
}

// What agents must not send ends their session, with a reason if there is one.
func TestAgentsAreChecked(t *testing.T) {
	c := start(t, nil)
	as := c.as("node", "n1")
	wrongVersion := hello("n1")
	wrongVersion.Version = 99
	for _, k := range []struct {
		name  string
		first agent.ToHead
		want  string
	}{
		{"another node's name", hello("n2"), `not for node "n2"`},
		{"another version", wrongVersion, "the agent speaks version 99"},
		{"no hello", agent.Pong{}, "begins with hello"},
	} {
		a := c.greet(as, hello("n1"))
		_ = a.conn.Close()
		conn, err := dial.DialAgent(context.Background(), as)
		if err != nil {
			t.Fatal(err)
		}
		a = &agentAt{t, conn}
		a.say(k.first)
		if r, ok := a.hear().(agent.Refused); !ok || !strings.Contains(r.Reason, k.want) {
			t.Errorf("%s: %+v", k.name, r)
		}
		ends(t, conn)
	}
	a := c.greet(as, hello("n1"))
	heard[agent.Welcome](a)
	if _, err := a.conn.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil { // where the message ends is unknown
		t.Fatal(err)
	}
	ends(t, a.conn)
	a = c.greet(as, hello("n1"))
	heard[agent.Welcome](a)
	a.say(hello("n1"))
	ends(t, a.conn)
	// A message that is read to its end and makes no sense is passed over.
	a = c.greet(as, hello("n1"))
	heard[agent.Welcome](a)
	if _, err := a.conn.Write([]byte("\x05\x00\x00\x00hello")); err != nil {
		t.Fatal(err)
	}
	a.say(agent.AskPeers{})
	heard[agent.Peers](a)
}

// ends waits until the other side closes a connection.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(4 * time.Minute))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection goes on")
	}
	_ = conn.Close()
}

// An agent that is silent is disconnected; one that answers pings is not.
func TestSilentAgents(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := start(t, func(cfg *Config, _ *Options) { cfg.Core.Silence = 4 * time.Second })
	silent, talker := c.greet(c.as("", ""), hello("n1")), c.greet(c.as("", ""), hello("n2"))
	pings, started := 0, make(chan agent.Start)
	go func() {
		defer close(started)
		for {
			m, err := agent.ReadToAgent(talker.conn)
			if err != nil {
				t.Error(err)
				return
			}
			switch m := m.(type) {
			case agent.Ping:
				pings++
				talker.say(agent.Pong{})
			case agent.Start:
				started <- m
				return
			}
		}
	}()
	ends(t, silent.conn)
	job := c.user("").submit(command("true"))
	if m := <-started; m.Task.Job != job || pings == 0 {
		t.Errorf("started %v after %d pings", m.Task, pings)
	}
}

// Connections that send nothing, or little, are closed in time, and do not keep others out
// meanwhile.
func TestSlowAndManyConnections(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := start(t, func(cfg *Config, _ *Options) {
		cfg.Connections = Connections{Unknown: 8, User: 4, Greet: 4 * time.Second, Idle: 4 * time.Second, Request: 4 * time.Second}
	})
	var slow []net.Conn
	raw := func() net.Conn {
		conn, err := net.Dial("tcp", c.at.Listen)
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
		return conn
	}
	for range 50 {
		raw() // sends nothing
	}
	for _, text := range []string{"GET", "GET /v1/cluster HTTP/1.1\r\nHost: x\r\n", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", ""} {
		conn, err := tls.Dial("tcp", c.at.Listen, certOf(t, "user", "mallory"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	alice := c.user("alice")
	for range 10 {
		alice.must("GET", "/v1/cluster", nil, nil)
	}
	for _, conn := range slow {
		ends(t, conn)
	}
	// One with headers that are too large, and one with a body that never ends.
	huge, err := tls.Dial("tcp", c.at.Listen, certOf(t, "user", "mallory"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = fmt.Fprintf(huge, "GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 2*maxHeader))
	}()
	if answer, err := http.ReadResponse(bufio.NewReader(huge), nil); err == nil && answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %s", answer.Status)
	}
	_ = huge.Close()
}

// A user who has as many connections as allowed, all in use, is told so; others are served.
func TestPlacesOfUsers(t *testing.T) {
	c := start(t, func(cfg *Config, _ *Options) { cfg.Connections = Connections{User: 2} })
	mallory := c.user("mallory")
	for range 2 {
		answer, err := mallory.http.Get(mallory.base + "/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := answer.Body.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if status, problem := mallory.do("GET", "/v1/cluster", nil, nil); status != http.StatusServiceUnavailable || !strings.Contains(problem, "mallory has as many connections") {
		t.Errorf("got %d %s", status, problem)
	}
	c.user("alice").must("GET", "/v1/cluster", nil, nil)
}

// A disk that fails ends the head, and nothing that was not written is acknowledged.
func TestFailingDisk(t *testing.T) {
	limit := errors.New("no space left on device")
	var full atomic.Bool
	c := start(t, func(_ *Config, o *Options) {
		o.commit = func(write func() error) error {
			if full.Load() {
				return limit
			}
			return write()
		}
	})
	u := c.user("")
	first := u.submit(command("true"))
	full.Store(true)
	status, problem := u.do("POST", "/v1/jobs", command("true"), nil)
	if status != http.StatusServiceUnavailable || !strings.Contains(problem, "cannot write to its disk") {
		t.Errorf("got %d %s", status, problem)
	}
	if err := c.stop(); err == nil || !strings.Contains(err.Error(), "cannot write to its disk") {
		t.Errorf("it ended with %v", err)
	}
	c = startIn(t, c.cfg, nil)
	var jobs api.Jobs
	c.user("").must("GET", "/v1/jobs", nil, &jobs)
	if len(jobs.Jobs) != 1 || jobs.Jobs[0].ID != first {
		t.Errorf("there are %+v", jobs.Jobs)
	}
}
