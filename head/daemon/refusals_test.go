package daemon

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/node/gateway"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
)

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
	if got := refused(); !strings.Contains(got, `n9: the certificate is for "n1", not for node "n9": give the node one of these names (--name)`) {
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
		r.note(name, refusal{names: []string{name}, reason: "no", at: now.Add(time.Duration(i) * time.Millisecond)})
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

// What a certificate or an agent says is kept in small, and can be shown on a terminal.
func TestRefusalsAreClipped(t *testing.T) {
	var r refusals
	now := time.Unix(1000, 0)
	many := []string{"bad\x1b[2J", strings.Repeat("x", 1<<20), ""}
	for i := range 100 {
		many = append(many, fmt.Sprint("n", i))
	}
	r.note(strings.Repeat("h", 1<<20), refusal{names: many, reason: "it\r\n\x1b]0;" + strings.Repeat("y", 1<<20), at: now})
	r.note("nobody", refusal{names: many[:3], reason: "no", at: now})
	for holder, one := range r.byHolder {
		if len(holder) > 1024 || len(one.names) != maxRefusedNames || one.names[0] != "n0" || len(one.reason) > maxRefusedReason || strings.ContainsAny(one.reason, "\r\n\x1b") {
			t.Errorf("of %.20s there are %d names and %d bytes: %.20q", holder, len(one.names), len(one.reason), one.reason)
		}
	}
	if len(r.byHolder) != 1 {
		t.Errorf("%d are kept", len(r.byHolder))
	}
}

// A handshake with a certificate of a node says nothing of the node itself while that is connected.
func TestHandshakesDoNotContradictNodes(t *testing.T) {
	var r refusals
	now := time.Unix(1000, 0)
	both := refusal{names: []string{"n1.site", "n1"}, reason: "revoked", at: now}
	r.note("certificate n1", both)
	both.outside, both.at = true, now.Add(time.Second)
	r.note("handshake n1", both)
	away := api.Nodes{Nodes: []api.Node{{Name: "n0"}, {Name: "n1"}}}
	r.show(&away, now)
	if len(away.Refused) != 1 || away.Refused[0].Name != "n1" || away.Refused[0].At != 1001 || away.Nodes[1].Reason != "the head refuses it: revoked" || away.Nodes[0].Reason != "" {
		t.Errorf("a node that is away: %+v", away)
	}
	r.forget("certificate n1", "n1")
	r.note("handshake n1", both)
	here := api.Nodes{Nodes: []api.Node{{Name: "n1", Connected: true}}}
	r.show(&here, now)
	if len(here.Refused) != 1 || !strings.HasPrefix(here.Refused[0].Reason, "the node itself is connected, and somebody shows another certificate of it: ") || here.Nodes[0].Reason != "" {
		t.Errorf("a node that is connected: %+v", here)
	}
}

// Whoever lists the nodes sees why one is down that nobody has drained.
func TestWhyANodeIsDown(t *testing.T) {
	c := start(t, nil)
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	_ = n1.conn.Close()
	var list api.Nodes
	for deadline := time.Now().Add(4 * time.Minute); len(list.Nodes) != 1 || list.Nodes[0].Connected; { // the head hears of the end a moment later
		list = api.Nodes{}
		if code, problem := c.user("alice").do("GET", "/v1/nodes", nil, &list); code != http.StatusOK || time.Now().After(deadline) {
			t.Fatal(problem)
		}
	}
	if reason := list.Nodes[0].Reason; !strings.HasPrefix(reason, "not heard of for 00:00:") || !strings.Contains(reason, ": the node closed the connection; its jobs are given up after ") {
		t.Errorf("it says %q", reason)
	}
	if got := unheard(time.Hour, time.Minute, ""); got != "not heard of for 01:00:00" {
		t.Errorf("of one that was given up it says %q", got)
	}
}

// Why another machine was refused while a node was connected is not why that node is away now.
func TestRefusalsBeforeANodeWasAway(t *testing.T) {
	r := &refusals{byHolder: map[string]refusal{"twin": {names: []string{"n1"}, reason: "it is connected already", at: time.Unix(100, 0)}}}
	for since, want := range map[float64]string{90: "the head refuses it: it is connected already", 101: "the head refuses it: it is connected already", 115: ""} {
		list := api.Nodes{Nodes: []api.Node{{Name: "n1", Since: since}}}
		r.show(&list, time.Unix(120, 0))
		if got := list.Nodes[0].Reason; got != want {
			t.Errorf("away since %v: %q", since, got)
		}
	}
}
