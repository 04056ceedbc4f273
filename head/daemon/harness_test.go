package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/browser"
	"muster/node/gateway"
	"muster/policy/catalog"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/client"
	"muster/wire/dial"
	"muster/wire/envelope"
	"muster/wire/trust"
)

var sockets atomic.Int64

// authority is shared by all tests, since making keys takes a while.
var authority = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "muster-head-test")
	if err != nil {
		panic(err)
	}
	a, _, err := gateway.OpenAuthority(dir, time.Now())
	if err != nil {
		panic(err)
	}
	_, err = a.Head([]string{"localhost", "127.0.0.1"}, 30)
	if err != nil {
		panic(err)
	}
	return dir
})

var certs sync.Mutex

// certOf is the TLS configuration of a user or a node, made when it is first needed.
func certOf(t testing.TB, kind, name string) *tls.Config {
	t.Helper()
	certs.Lock()
	defer certs.Unlock()
	dir := filepath.Join(authority(), kind+"-"+name)
	if _, err := os.Stat(dir); err != nil {
		a, _, err := gateway.OpenAuthority(authority(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if kind == "user" {
			_, err = a.User(name, 30)
		} else {
			_, err = a.Node([]string{name}, 30)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return loadCert(t, dir, kind)
}

func loadCert(t testing.TB, dir, kind string) *tls.Config {
	t.Helper()
	pair, err := trust.LoadPair(filepath.Join(dir, kind+".pem"), filepath.Join(dir, kind+"-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	believed, err := trust.Believe(filepath.Join(dir, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: believed.RootCAs}
}

// cluster is a head under test.
type cluster struct {
	t    testing.TB
	cfg  Config
	at   Addresses
	stop func() error
	wait func() error // until it has ended by itself
}

// start starts a head with a socket and a port; change, if it is not nil, may modify its
// configuration and options.
func start(t testing.TB, change func(*Config, *Options)) *cluster {
	t.Helper()
	cfg := Default()
	cfg.State = t.TempDir()
	return startIn(t, cfg, change)
}

func startIn(t testing.TB, cfg Config, change func(*Config, *Options)) *cluster {
	t.Helper()
	cfg.Listen, cfg.Socket = "127.0.0.1:0", fmt.Sprintf("@muster-head-test-%d-%d", os.Getpid(), sockets.Add(1))
	head := loadCert(t, filepath.Join(authority(), "head-localhost"), "head")
	ready := make(chan Addresses, 1)
	o := Options{
		TLS: &tls.Config{Certificates: head.Certificates, ClientCAs: head.RootCAs}, Policy: catalog.New, Version: "test", Now: time.Now,
		Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})), Ready: func(a Addresses) { ready <- a },
	}
	if change != nil {
		change(&cfg, &o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, o) }()
	c := &cluster{t: t, cfg: cfg}
	c.wait = sync.OnceValue(func() error { return <-ended })
	c.stop = func() error { cancel(); return c.wait() }
	t.Cleanup(func() { _ = c.stop() })
	select {
	case c.at = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return c
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// as is how a user reaches the head: "" through its socket.
func (c *cluster) as(kind, name string) dial.Config {
	if kind == "" {
		return dial.Config{Head: "unix:" + c.at.Socket}
	}
	return dial.Config{Head: c.at.Listen, TLS: certOf(c.t, kind, name)}
}

// asker sends requests.
type asker struct {
	t    testing.TB
	http *http.Client
	base string
}

func (c *cluster) user(name string) *asker {
	kind := "user"
	if name == "" {
		kind = ""
	}
	h, base, err := dial.Client(c.as(kind, name))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(h.CloseIdleConnections)
	return &asker{c.t, h, base}
}

// do sends a request and decodes the answer, unless into is nil. It returns the text of an error of
// the head.
func (a *asker) do(method, path string, body, into any) (status int, problem string) {
	a.t.Helper()
	var text io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		text = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			a.t.Fatal(err)
		}
		text = bytes.NewReader(encoded)
	}
	r, err := http.NewRequest(method, a.base+path, text)
	if err != nil {
		a.t.Fatal(err)
	}
	answer, err := a.http.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	if answer.StatusCode != http.StatusOK {
		var e api.Error
		if err := json.Unmarshal(all, &e); err != nil || e.Error == "" {
			a.t.Errorf("%s %s: %d without a reason: %s", method, path, answer.StatusCode, all)
		}
		return answer.StatusCode, e.Error
	}
	if into != nil {
		if err := json.Unmarshal(all, into); err != nil {
			a.t.Fatalf("%s %s: %v: %s", method, path, err, all)
		}
	}
	return answer.StatusCode, ""
}

// must sends a request that must succeed.
func (a *asker) must(method, path string, body, into any) {
	a.t.Helper()
	if status, problem := a.do(method, path, body, into); status != http.StatusOK {
		a.t.Fatalf("%s %s: %d %s", method, path, status, problem)
	}
}

func (a *asker) submit(s api.Submission) uint64 {
	a.t.Helper()
	var done api.Submitted
	a.must("POST", "/v1/jobs", s, &done)
	return done.Job
}

// agentAt is a simulated agent.
type agentAt struct {
	t    testing.TB
	conn net.Conn
}

func (c *cluster) greet(as dial.Config, hello agent.Hello) *agentAt {
	c.t.Helper()
	conn, err := dial.DialAgent(context.Background(), as)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	a := &agentAt{c.t, conn}
	a.say(hello)
	return a
}

func hello(node string) agent.Hello {
	return agent.Hello{Version: agent.Version, Node: node, Incarnation: "i-" + node, Cores: 8, Memory: 8 << 30}
}

// say sends a message, also one that agent.Encode refuses.
func (a *agentAt) say(m agent.ToHead) {
	a.t.Helper()
	text, err := envelope.Encode(m)
	if err == nil {
		_, err = a.conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// hear returns the next message other than a ping.
func (a *agentAt) hear() agent.ToAgent {
	a.t.Helper()
	_ = a.conn.SetReadDeadline(time.Now().Add(4 * time.Minute))
	for {
		m, err := agent.ReadToAgent(a.conn)
		if err != nil {
			a.t.Fatal(err)
		}
		if _, ping := m.(agent.Ping); !ping {
			return m
		}
		a.say(agent.Pong{})
	}
}

// heard returns the next message of a kind.
func heard[M agent.ToAgent](a *agentAt) M {
	a.t.Helper()
	for {
		if m, ok := a.hear().(M); ok {
			return m
		}
	}
}

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("MUSTER_HEAD_TEST_CHILD") != "":
		child()
		return
	case os.Getenv("MUSTER_HEAD_TEST_AGENTS") != "":
		agentsChild()
		return
	case os.Getenv(simulatorVariable) != "":
		simulatorChild()
		return
	}
	code := browser.Main(m)
	_ = os.RemoveAll(authority())
	os.Exit(code)
}

func command(words ...string) api.Submission {
	return api.Submission{Arguments: words, Directory: "/tmp"}
}
