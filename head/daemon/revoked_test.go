package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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
	"muster/wire/trust"
)

func nobodyRevoked([]*x509.Certificate) *trust.Revoked { return nil }

// revoking is a head with an authority of its own, which can revoke.
type revoking struct {
	*cluster
	dir       string
	authority *gateway.Authority
	look      chan time.Time
}

// startRevoking has the nodes n1 and n2, and the users alice and bob.
func startRevoking(t *testing.T, change func(*Config, *Options)) *revoking {
	t.Helper()
	r := &revoking{dir: t.TempDir(), look: make(chan time.Time)}
	var err error
	if r.authority, _, err = gateway.OpenAuthority(r.dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	folder, err := r.authority.Head([]string{"localhost", "127.0.0.1"}, 30)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n2"} {
		if _, err := r.authority.Node([]string{node}, 30); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"alice", "bob"} {
		if _, err := r.authority.User(user, 30); err != nil {
			t.Fatal(err)
		}
	}
	own, err := trust.Load(filepath.Join(folder, gateway.FileHead), filepath.Join(folder, gateway.FileHeadKey), filepath.Join(folder, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	r.cluster = start(t, func(cfg *Config, o *Options) {
		o.TLS, o.lookAtRevoked = own, r.look
		cfg.Core.Silence = 2 * time.Minute
		if change != nil {
			change(cfg, o)
		}
	})
	return r
}

func (r *revoking) as(kind, name string) dial.Config {
	return dial.Config{Head: r.at.Listen, TLS: loadCert(r.t, filepath.Join(r.dir, kind+"-"+name), kind)}
}

func (r *revoking) user(name string) *asker {
	r.t.Helper()
	h, base, err := dial.Client(r.as("user", name))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(h.CloseIdleConnections)
	return &asker{r.t, h, base}
}

func (r *revoking) revoke(names ...string) {
	r.t.Helper()
	if _, _, err := r.authority.Revoke(names); err != nil {
		r.t.Fatal(err)
	}
}

// Without the list of revoked certificates nobody is let in, which the health of the head tells.
func TestMissingListIsAProblem(t *testing.T) {
	c := startRevoking(t, func(cfg *Config, _ *Options) { cfg.HTTP = "127.0.0.1:0" })
	list := filepath.Join(c.dir, "head-localhost", trust.FileRevoked)
	c.revoke("user-bob")
	health := func() string {
		t.Helper()
		answer, err := http.Get("http://" + c.at.HTTP + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.StatusCode, " ", string(text), err)
	}
	if got := health(); got != "200 ok\n<nil>" {
		t.Errorf("with the list: %s", got)
	}
	if err := os.Rename(list, list+".away"); err != nil {
		t.Fatal(err)
	}
	if got := health(); !strings.HasPrefix(got, "503 nobody who uses TLS is let in: the list of revoked certificates "+list+" is missing") {
		t.Errorf("without the list: %s", got)
	}
	if err := os.Rename(list+".away", list); err != nil {
		t.Fatal(err)
	}
	if got := health(); got != "200 ok\n<nil>" {
		t.Errorf("the list is back: %s", got)
	}
}

// A node whose certificate is revoked while it is connected is told so and its session ends; others go
// on. Whoever lists the nodes sees why, and a user whose certificate is revoked is served no more.
func TestRevokedWhileConnected(t *testing.T) {
	c := startRevoking(t, nil)
	alice, bob := c.user("alice"), c.user("bob")
	n2 := c.greet(c.as("node", "n2"), hello("n2"))
	heard[agent.Welcome](n2) // it is known first, and listed second
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	heard[agent.Welcome](n1)
	go simulate(n2.conn)
	if code, problem := bob.do("GET", "/v1/cluster", nil, nil); code != http.StatusOK {
		t.Fatal(problem)
	}
	c.revoke("node-n1", "user-bob")
	if code, problem := bob.do("GET", "/v1/cluster", nil, nil); code != http.StatusForbidden || !strings.Contains(problem, "of user-bob was revoked") {
		t.Errorf("a user who was revoked is answered %d, %s", code, problem)
	}
	c.look <- time.Now()
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
}

// What a revoked user follows ends: changes, a command among a job's processes, and the page. Those of
// other users go on.
func TestRevokedUserIsHungUpOn(t *testing.T) {
	c := startRevoking(t, withPage)
	alice, bob := c.user("alice"), c.user("bob")
	n1 := c.greet(c.as("node", "n1"), hello("n1"))
	job := bob.submit(command("cat"))
	n1.say(agent.Report{Task: heard[agent.Start](n1).Task, State: agent.Running})
	waitFor(t, bob, job, api.Running)
	execs := make(chan net.Conn, 1)
	go func() {
		defer close(execs)
		conn, err := dial.Upgrade(context.Background(), c.as("user", "bob"), "POST", fmt.Sprintf("/v1/jobs/%d/exec?arg=cat", job), dial.ProtocolStream)
		if err != nil {
			t.Error(err)
			return
		}
		execs <- conn
	}()
	far, err := dial.DialStream(context.Background(), c.as("node", "n1"), heard[agent.Open](n1).Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	exec, ok := <-execs
	if !ok {
		t.FailNow()
	}
	follow := func(u *asker) *bufio.Reader {
		answer, err := u.http.Get(u.base + "/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return bufio.NewReader(answer.Body)
	}
	bobs, alices := follow(bob), follow(alice)
	page, alicesPage := visitPage(t, c.cluster, bob), visitPage(t, c.cluster, alice)
	paged := page.do("GET", "/v1/events", nil, nil)
	c.revoke("user-bob")
	c.look <- time.Now()
	_, _ = io.Copy(io.Discard, bobs) // until the head hangs up
	_, _ = io.Copy(io.Discard, paged.Body)
	ends(t, exec)
	if status, _ := alicesPage.status("GET", "/v1/cluster", nil, nil); status != http.StatusOK {
		t.Errorf("another user's page is answered %d", status)
	}
	alice.submit(command("-n9999"))
	for line := ""; !strings.HasPrefix(line, "data: "); {
		if line, err = alices.ReadString('\n'); err != nil {
			t.Fatalf("another user's changes end: %v", err)
		}
	}
}

// The page of a revoked user is over at once, and so is a ticket for it.
func TestRevokedUserHasNoPage(t *testing.T) {
	c := startRevoking(t, withPage)
	bob := c.user("bob")
	page, ticket := visitPage(t, c.cluster, bob), ticketOf(bob)
	if status, problem := page.status("GET", "/v1/cluster", nil, nil); status != http.StatusOK {
		t.Fatal(problem)
	}
	c.revoke("user-bob")
	if status, _ := page.status("GET", "/v1/cluster", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("the page of a revoked user is answered %d", status)
	}
	if status, _ := page.status("POST", sessionPath, ticket, nil); status != http.StatusUnauthorized {
		t.Errorf("the ticket of a revoked user is answered %d", status)
	}
}

// A head that is started again knows by which certificate a browser was signed in. What an older head
// has written does not say, and is forgotten.
func TestSavedSessionsAreRevoked(t *testing.T) {
	dir := t.TempDir()
	vouched := []*x509.Certificate{certOf(t, "user", "bob").Certificates[0].Leaf}
	quiet := slog.New(slog.DiscardHandler)
	p := openPages(dir, time.Now, nobodyRevoked, quiet)
	cookie, key, _, _ := p.redeem(p.ticket("bob", vouched))
	root, rootKey, _, _ := p.redeem(p.ticket("root", nil))
	revoked := func(list []*x509.Certificate) *trust.Revoked {
		if len(list) == 1 && list[0].Equal(vouched[0]) {
			return &trust.Revoked{Certificate: list[0]}
		}
		return nil
	}
	if openPages(dir, time.Now, nobodyRevoked, quiet).find(cookie, key) == nil {
		t.Error("bob is not known after a restart")
	}
	again := openPages(dir, time.Now, revoked, quiet)
	if again.find(cookie, key) != nil || again.find(root, rootKey) == nil {
		t.Error("bob is signed in still, or root is not")
	}
	text, err := os.ReadFile(p.file)
	var saved []map[string]any
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	for _, s := range saved {
		delete(s, "socket")
	}
	if err == nil {
		text, err = json.Marshal(saved)
	}
	if err == nil {
		err = os.WriteFile(p.file, text, 0o600)
	}
	if err != nil || len(saved) != 1 {
		t.Fatalf("%d sessions are in the file, %v", len(saved), err)
	}
	if openPages(dir, time.Now, revoked, quiet).find(root, rootKey) != nil {
		t.Error("a session of an older head counts")
	}
}

// Who is refused is told why, also if the list changes meanwhile.
func TestRevokedIsLookedUpOnce(t *testing.T) {
	var armed atomic.Bool
	c := start(t, func(_ *Config, o *Options) {
		leaf := certOf(t, "user", "bob").Certificates[0].Leaf
		own := o.TLS.Clone()
		own.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) > 0 && armed.CompareAndSwap(true, false) {
				return &trust.Revoked{Certificate: leaf}
			}
			return nil
		}
		o.TLS = own
	})
	bob := c.user("bob")
	bob.must("GET", "/v1/cluster", nil, nil)
	armed.Store(true)
	if code, problem := bob.do("GET", "/v1/cluster", nil, nil); code != http.StatusForbidden || !strings.Contains(problem, "of user-bob was revoked") {
		t.Errorf("got %d %q", code, problem)
	}
}

// An agent that calls itself what no node can be called, in a version that the head does not know, is
// listed by the name in its certificate.
func TestStrangeNamesAreNotListed(t *testing.T) {
	c := start(t, nil)
	wrong := hello("x\x1b[2J\r\n")
	wrong.Version = 99
	heard[agent.Refused](c.greet(c.as("node", "n1"), wrong))
	var list api.Nodes
	c.user("alice").must("GET", "/v1/nodes", nil, &list)
	if len(list.Refused) != 1 || list.Refused[0].Name != "n1" || strings.ContainsAny(list.Refused[0].Reason, "\x1b\r\n") {
		t.Errorf("refused are %+v", list.Refused)
	}
}
