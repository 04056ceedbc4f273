package daemon

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/client"
	"muster/head/api"
	"muster/head/dial"
	"muster/node/gateway"
	"muster/wire/agent"
	"muster/wire/trust"
)

// A node whose certificate is revoked while it is connected is told so and its session ends; others go
// on. Whoever lists the nodes sees why, and a user whose certificate is revoked is served no more.
func TestRevokedWhileConnected(t *testing.T) {
	dir := t.TempDir()
	a, _, err := gateway.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := a.Head([]string{"localhost", "127.0.0.1"}, 30)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n2"} {
		if _, err := a.Node([]string{node}, 30); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"alice", "bob"} {
		if _, err := a.User(user, 30); err != nil {
			t.Fatal(err)
		}
	}
	own, err := trust.Load(filepath.Join(folder, gateway.FileHead), filepath.Join(folder, gateway.FileHeadKey), filepath.Join(folder, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, func(cfg *Config, o *Options) {
		o.TLS = own
		cfg.Core.Silence = 4 * time.Second // looks once a second
	})
	as := func(kind, name string) dial.Config {
		return dial.Config{Head: c.at.Listen, TLS: loadCert(t, filepath.Join(dir, kind+"-"+name), kind)}
	}
	asking := func(name string) *asker {
		h, base, err := dial.Client(as("user", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.CloseIdleConnections)
		return &asker{t, h, base}
	}
	alice, bob := asking("alice"), asking("bob")
	n1, n2 := c.greet(as("node", "n1"), hello("n1")), c.greet(as("node", "n2"), hello("n2"))
	heard[agent.Welcome](n1)
	heard[agent.Welcome](n2)
	go simulate(n2.conn)
	if code, problem := bob.do("GET", "/v1/cluster", nil, nil); code != http.StatusOK {
		t.Fatal(problem)
	}
	if _, _, err := a.Revoke([]string{"node-n1", "user-bob"}); err != nil {
		t.Fatal(err)
	}
	if refused := heard[agent.Refused](n1); !strings.Contains(refused.Reason, "of node-n1 was revoked: its owner needs a new one") {
		t.Errorf("the node is told %q", refused.Reason)
	}
	var list api.Nodes
	for deadline := time.Now().Add(4 * time.Minute); len(list.Nodes) != 2 || list.Nodes[0].Connected; { // the head hears of the end a moment later
		list = api.Nodes{}
		if code, problem := alice.do("GET", "/v1/nodes", nil, &list); code != http.StatusOK || time.Now().After(deadline) {
			t.Fatalf("the session goes on: %s", problem)
		}
	}
	if n := list.Nodes[0]; n.State != api.NodeDown || !strings.HasPrefix(n.Reason, "the head refuses it: the certificate ") || !strings.Contains(n.Reason, "was revoked") {
		t.Errorf("of the node that was revoked it says %s, %q", n.State, n.Reason)
	}
	if n := list.Nodes[1]; !n.Connected || n.Reason != "" {
		t.Errorf("of the other one it says %+v", n)
	}
	if len(list.Refused) != 1 || list.Refused[0].Name != "n1" {
		t.Errorf("refused are %+v", list.Refused)
	}
	if code, problem := bob.do("GET", "/v1/cluster", nil, nil); code == http.StatusOK || !strings.Contains(problem, "revoked") {
		t.Errorf("a user who was revoked is answered %d, %s", code, problem)
	}
}

// Whoever lists the nodes sees which ones the head refuses, and why, until it accepts them.
func TestRefusedNodesAreListed(t *testing.T) {
	c := start(t, nil)
	alice := c.user("alice")
	refused := func() string {
		var list api.Nodes
		if code, problem := alice.do("GET", "/v1/nodes", nil, &list); code != http.StatusOK {
			t.Fatal(problem)
		}
		var all []string
		for _, r := range list.Refused {
			all = append(all, r.Name+": "+r.Reason)
		}
		return strings.Join(all, "\n")
	}
	if got := refused(); got != "" {
		t.Errorf("at first there are %q", got)
	}
	heard[agent.Refused](c.greet(c.as("node", "n1"), hello("n9")))
	if got := refused(); !strings.Contains(got, `n9: the certificate is that of ["n1"], and not of node "n9": give the node one of these names (--name)`) {
		t.Errorf("a node with another's certificate: %q", got)
	}
	first := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](first)
	if got := refused(); got != "" {
		t.Errorf("it was accepted, and there is %q", got)
	}
	twin := hello("n1")
	twin.Incarnation = "another"
	heard[agent.Refused](c.greet(c.as("node", "n1"), twin))
	if got := refused(); !strings.HasPrefix(got, "n1: node n1 is connected already, with another spool") {
		t.Errorf("another machine of that name: %q", got)
	}
	// What somebody says who has no certificate of the authority is in no list.
	other, _, err := gateway.OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := other.Node([]string{"evil"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	stranger := c.as("node", "n1")
	stranger.TLS.Certificates = loadCert(t, folder, "node").Certificates
	if _, err := dial.DialAgent(t.Context(), stranger); err == nil {
		t.Error("a stranger is accepted")
	}
	if got := refused(); strings.Contains(got, "evil") {
		t.Errorf("a stranger is listed: %q", got)
	}
}

// A node whose certificate has expired is listed, though its handshake fails.
func TestExpiredNodeIsListed(t *testing.T) {
	dir := t.TempDir()
	past, _, err := gateway.OpenAuthority(dir, time.Now().AddDate(0, 0, -40)) // the authority is as old
	if err != nil {
		t.Fatal(err)
	}
	folder, err := past.Node([]string{"expired"}, 30)
	if err != nil {
		t.Fatal(err)
	}
	head, err := past.Head([]string{"127.0.0.1"}, 90)
	if err != nil {
		t.Fatal(err)
	}
	alices, err := past.User("alice", 90)
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, func(_ *Config, o *Options) {
		own := loadCert(t, head, "head")
		o.TLS = &tls.Config{Certificates: own.Certificates, ClientCAs: own.RootCAs}
	})
	as := dial.Config{Head: c.at.Listen, TLS: loadCert(t, folder, "node")}
	if _, err := dial.DialAgent(t.Context(), as); err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("the node is told %v", err)
	}
	var list api.Nodes
	h, base, err := dial.Client(dial.Config{Head: c.at.Listen, TLS: loadCert(t, alices, "user")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	alice := &asker{t, h, base}
	for deadline := time.Now().Add(4 * time.Minute); len(list.Refused) == 0; { // it may be told before the head notes it
		if code, problem := alice.do("GET", "/v1/nodes", nil, &list); code != http.StatusOK || time.Now().After(deadline) {
			t.Fatalf("it is not listed: %s", problem)
		}
	}
	if r := list.Refused[0]; r.Name != "expired" || !strings.HasSuffix(r.Reason, "make a new certificate with muster cert DIR --host expired") {
		t.Errorf("got %+v", r)
	}
}

// Refusals are forgotten when the node tries no more, and there is room for so many.
func TestRefusalsAreBounded(t *testing.T) {
	var r refusals
	now := time.Unix(1000, 0)
	for i := range maxRefusals + 10 {
		name := fmt.Sprint("n", i)
		r.note(name, []string{name}, "no", now.Add(time.Duration(i)*time.Millisecond))
	}
	if n := len(r.lately(now)); n != maxRefusals {
		t.Errorf("%d are kept", n)
	}
	if _, kept := r.byHolder["n9"]; kept {
		t.Error("the oldest is kept")
	}
	if n := len(r.lately(now.Add(refusedFor + time.Hour))); n != 0 {
		t.Errorf("%d are kept for ever", n)
	}
}
