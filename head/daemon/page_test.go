package daemon

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/policy/catalog"
	"muster/wire/api"
)

// visitor of the page: a browser without a screen.
type pageVisitor struct {
	t           testing.TB
	c           *cluster
	cookie, key string
}

// do sends a request with the headers that a browser on the page sends, modified by change.
func (v *pageVisitor) do(method, path string, body any, change func(*http.Request)) *http.Response {
	v.t.Helper()
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			v.t.Fatal(err)
		}
		text = strings.NewReader(string(encoded))
	}
	r, err := http.NewRequest(method, v.c.at.Page+path, text)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", v.c.at.Page)
	r.Header.Set(keyHeader, v.key)
	r.Header.Set("Cookie", v.cookie)
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// status is the status of a request, which must have a reason if it is refused.
func (v *pageVisitor) status(method, path string, body any, change func(*http.Request)) (int, string) {
	v.t.Helper()
	answer := v.do(method, path, body, change)
	text, _ := io.ReadAll(answer.Body)
	var e api.Error
	if answer.StatusCode != http.StatusOK && (json.Unmarshal(text, &e) != nil || e.Error == "") {
		v.t.Errorf("%s %s: %d without a reason: %.100s", method, path, answer.StatusCode, text)
	}
	if policy := answer.Header.Get("Content-Security-Policy"); policy != contentPolicy {
		v.t.Errorf("%s %s: its content policy is %q", method, path, policy)
	}
	return answer.StatusCode, e.Error
}

// ticketOf requests a one-time address.
func ticketOf(u *asker) signIn {
	u.t.Helper()
	var p api.Page
	u.must("POST", "/v1/page", nil, &p)
	_, ticket, _ := strings.Cut(p.Address, "#ticket=")
	return signIn{ticket}
}

// visitPage signs in as the user who asks.
func visitPage(t testing.TB, c *cluster, u *asker) *pageVisitor {
	t.Helper()
	v := &pageVisitor{t: t, c: c}
	answer := v.do("POST", sessionPath, ticketOf(u), nil)
	var s signedIn
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("signing in: %d, %v", answer.StatusCode, err)
	}
	set := answer.Header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/", fmt.Sprintf("Max-Age=%d", int(pageTime.Seconds()))} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie is %q, without %s", set, want)
		}
	}
	v.cookie, _, _ = strings.Cut(set, ";")
	v.key = s.Key
	return v
}

// A request needs a cookie and a key, must come from the page itself and by a name of the head, and
// has its user's rights.
func TestPageRequests(t *testing.T) {
	c := start(t, withPage)
	alice, bob := c.user("alice"), c.user("bob")
	v := visitPage(t, c, bob)
	mine, hers := bob.submit(command("sleep")), alice.submit(command("sleep"))
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, test := range []struct {
		why, method, path string
		body              any
		change            func(*http.Request)
		status            int
		reason            string
	}{
		{"who asks", "GET", "/v1/cluster", nil, nil, 200, ""},
		{"without a cookie", "GET", "/v1/cluster", nil, header("Cookie", ""), 401, "muster page"},
		{"a wrong cookie", "GET", "/v1/cluster", nil, header("Cookie", v.cookie+"x"), 401, "muster page"},
		{"without a key", "GET", "/v1/cluster", nil, header(keyHeader, ""), 401, "muster page"},
		{"a wrong key", "GET", "/v1/cluster", nil, header(keyHeader, "x"), 401, "muster page"},
		{"a name that somebody pointed here", "GET", "/v1/cluster", nil, func(r *http.Request) { r.Host = "evil.example:9424" }, 421, "no name of this head"},
		{"the same, for a file", "GET", "/", nil, func(r *http.Request) { r.Host = "evil.example" }, 421, "no name of this head"},
		{"another name of this machine", "GET", "/v1/cluster", nil, func(r *http.Request) { r.Host = "localhost:1"; r.Header.Set("Origin", "http://localhost:1") }, 200, ""},
		{"another site's page", "GET", "/v1/cluster", nil, header("Origin", "http://evil.example"), 403, "another site"},
		{"another port's page", "DELETE", fmt.Sprintf("/v1/jobs/%d", mine), nil, header("Origin", "http://127.0.0.1:1"), 403, "another site"},
		{"another site's page, as browsers say", "GET", "/v1/cluster", nil, header("Sec-Fetch-Site", "same-site"), 403, "another site"},
		{"a form", "DELETE", fmt.Sprintf("/v1/jobs/%d", mine), nil, header("Content-Type", "text/plain"), 415, "application/json"},
		{"another user's job", "DELETE", fmt.Sprintf("/v1/jobs/%d", hers), nil, nil, 403, ""},
		{"a node", "POST", "/v1/nodes/n1/drain", api.Drain{Reason: "x"}, nil, 403, ""},
		{"a submission", "POST", "/v1/jobs", command("true"), nil, 200, ""},
		{"a submission of a form", "POST", "/v1/jobs", command("true"), header("Content-Type", "text/plain"), 415, "application/json"},
		{"a submission of another site", "POST", "/v1/jobs", command("true"), header("Origin", "http://evil.example"), 403, "another site"},
		{"a submission without a key", "POST", "/v1/jobs", command("true"), header(keyHeader, ""), 401, "muster page"},
		{"a submission for another user", "POST", "/v1/jobs", api.Submission{Arguments: []string{"true"}, Directory: "/", User: "alice"}, nil, 403, "signed in alone"},
		{"a command in a job", "POST", fmt.Sprintf("/v1/jobs/%d/exec?arg=true", mine), nil, nil, 403, "command line"},
		{"a backup", "GET", "/v1/backup", nil, nil, 403, "command line"},
		{"a snapshot", "GET", "/v1/snapshot", nil, nil, 403, "command line"},
		{"another address", "POST", "/v1/page", nil, nil, 403, "command line"},
		{"an agent", "GET", "/v1/agent", nil, nil, 403, ""},
		{"no file", "GET", "/js/../../etc/passwd", nil, nil, 404, ""},
		{"a file, changed", "POST", "/style.css", nil, nil, 405, "GET"},
		{"a session, read", "GET", sessionPath, nil, nil, 405, "POST or DELETE"},
		{"a ticket and more", "POST", sessionPath, map[string]string{"ticket": "x", "user": "alice"}, nil, 400, "ticket"},
		{"a ticket that is none", "POST", sessionPath, signIn{"x"}, nil, 401, "muster page"},
		{"his own job", "DELETE", fmt.Sprintf("/v1/jobs/%d", mine), nil, nil, 200, ""},
	} {
		if status, reason := v.status(test.method, test.path, test.body, test.change); status != test.status || !strings.Contains(reason, test.reason) {
			t.Errorf("%s: %d %q, want %d %q", test.why, status, reason, test.status, test.reason)
		}
	}
	var info api.Cluster
	if err := json.NewDecoder(v.do("GET", "/v1/cluster", nil, nil).Body).Decode(&info); err != nil || info.User != "bob" || info.Admin {
		t.Errorf("the page asks as %+v, %v", info, err)
	}
	for _, path := range []string{"/", "/index.html", "/style.css", "/icon.svg", "/js/main.js"} {
		answer := v.do("GET", path, nil, header("Cookie", ""))
		again := v.do("GET", path, nil, header("If-None-Match", answer.Header.Get("ETag")))
		if answer.StatusCode != 200 || answer.Header.Get("Content-Type") == "" || again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: %d %s, then %d", path, answer.StatusCode, answer.Header.Get("Content-Type"), again.StatusCode)
		}
	}
}

// Tickets are valid once and for a minute; sessions end by themselves, when their user signs out,
// and when there are too many.
func TestPageSessions(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	p := openPages(t.TempDir(), func() time.Time { return now }, nobodyRevoked, slog.New(slog.DiscardHandler))
	sign := func(user string) (cookie, key string) {
		cookie, key, got, ok := p.redeem(p.ticket(user, nil))
		if !ok || got != user {
			t.Fatalf("%s is not signed in", user)
		}
		return cookie, key
	}
	once := p.ticket("alice", nil)
	if _, _, _, ok := p.redeem(once); !ok {
		t.Error("a ticket is not good")
	}
	if _, _, _, ok := p.redeem(once); ok {
		t.Error("a ticket is good twice")
	}
	late := p.ticket("alice", nil)
	now = now.Add(ticketTime)
	if _, _, _, ok := p.redeem(late); ok {
		t.Error("a ticket is good after its time")
	}
	first := p.ticket("bob", nil)
	for range maxTicketsEach {
		p.ticket("bob", nil)
	}
	if _, _, _, ok := p.redeem(first); ok || len(p.tickets) > maxTicketsEach {
		t.Errorf("bob has %d tickets", len(p.tickets))
	}

	cookie, key := sign("carol")
	carol := p.find(cookie, key)
	for range maxSessionsEach {
		sign("dave") // as many as he likes: they do not affect carol
	}
	if carol == nil || p.find(cookie, key) != carol {
		t.Error("carol's session has gone")
	}
	daves := 0
	for _, s := range p.sessions {
		if s.user == "dave" {
			daves++
		}
	}
	if daves != maxSessionsEach {
		t.Errorf("dave has %d sessions", daves)
	}
	for i := range maxSessions {
		sign(fmt.Sprintf("u%d", i/maxSessionsEach))
	}
	if len(p.sessions) != maxSessions || p.find(cookie, key) != nil || carol.over.Err() == nil {
		t.Errorf("%d sessions; the oldest is not over", len(p.sessions))
	}

	// Another daemon knows them; a damaged file costs the sessions, and nothing else.
	cookie, key = sign("erin")
	again := openPages(strings.TrimSuffix(p.file, "/pages.json"), p.now, nobodyRevoked, p.log)
	erin := again.find(cookie, key)
	if erin == nil || erin.user != "erin" || again.find(cookie, "x") != nil {
		t.Error("erin is not known after a restart")
	}
	again.signOut(erin)
	if again.find(cookie, key) != nil || erin.over.Err() == nil {
		t.Error("erin is still signed in")
	}
	cookie, key = sign("frank")
	now = now.Add(pageTime)
	if p.find(cookie, key) != nil || len(p.sessions) != 0 {
		t.Errorf("%d sessions are left after their time", len(p.sessions))
	}
}

// While a head is away, another user of its machine can take its port, and browsers show that user
// their cookie and key. Without TLS these are worthless when the head is back.
func TestPageSessionsEndWithTheHead(t *testing.T) {
	c := start(t, withPage)
	v := visitPage(t, c, c.user("bob"))
	if answer := v.do("GET", "/v1/cluster", nil, nil); answer.StatusCode != http.StatusOK {
		t.Fatalf("bob is not signed in: %d", answer.StatusCode)
	}
	cfg := c.cfg
	cfg.Page = strings.TrimPrefix(c.at.Page, "http://")
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	v.c = startIn(t, cfg, withPage)
	if answer := v.do("GET", "/v1/cluster", nil, nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("whoever had the port meanwhile is bob: %d", answer.StatusCode)
	}
}

// A session that ends takes its streams with it.
func TestPageStreamsEndWithTheirSession(t *testing.T) {
	c := start(t, withPage)
	v := visitPage(t, c, c.user("bob"))
	stream := v.do("GET", "/v1/events", nil, nil)
	lines := bufio.NewReader(stream.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, ":") {
		t.Fatalf("%q, %v", line, err)
	}
	if status, _ := v.status("DELETE", sessionPath, nil, nil); status != http.StatusOK {
		t.Errorf("signing out: %d", status)
	}
	if _, err := io.ReadAll(lines); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the stream ends with %v", err)
	}
	if status, _ := v.status("GET", "/v1/cluster", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("after signing out: %d", status)
	}
}

// A browser that does not read its answer delays no other client: it is cut off.
func TestPageSlowReader(t *testing.T) {
	c := start(t, withPage)
	u := c.user("")
	v := visitPage(t, c, u)
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.at.Page, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: %s\r\n%s: %s\r\n\r\n", v.cookie, keyHeader, v.key)
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	// Nothing more is read. Many changes are made, and each is answered.
	list := make([]api.Submission, 1000)
	for i := range list {
		list[i] = command("true")
		list[i].Options = []string{"--comment=" + strings.Repeat("x", 4000)}
	}
	for range 4 {
		u.must("POST", "/v1/jobs", list, nil)
	}
	_ = conn.SetReadDeadline(time.Now().Add(4 * time.Minute))
	rest, err := io.ReadAll(conn)
	if text := string(rest); err != nil || !strings.Contains(text, "event: cut") {
		t.Errorf("%d bytes and %v, and not told that it was cut off", len(rest), err)
	}
}

// Beyond this machine the page is served over TLS alone, by the names of the certificate.
func TestPageOverTLS(t *testing.T) {
	c := start(t, func(cfg *Config, o *Options) { withPage(cfg, o); cfg.Page = "0.0.0.0:0" })
	var p api.Page
	c.user("bob").must("POST", "/v1/page", nil, &p)
	if !strings.HasPrefix(p.Address, "https://127.0.0.1:") || p.Local {
		t.Errorf("the address is %+v, not by the name that bob asked", p)
	}
	at, ticket, _ := strings.Cut(p.Address, "#ticket=")
	trust := &tls.Config{RootCAs: certOf(t, "user", "bob").RootCAs}
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	defer h.CloseIdleConnections()
	answer, err := h.Post(at+"page/session", "application/json", strings.NewReader(fmt.Sprintf(`{"ticket":%q}`, ticket)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if cookie := answer.Header.Get("Set-Cookie"); answer.StatusCode != http.StatusOK || !strings.Contains(cookie, "Secure") {
		t.Errorf("%d, the cookie is %q", answer.StatusCode, cookie)
	}
	if plain, err := http.Get(strings.Replace(at, "https", "http", 1)); err == nil {
		defer plain.Body.Close()
		if plain.StatusCode == http.StatusOK {
			t.Error("the page is served unencrypted")
		}
	}
	cfg := Default()
	cfg.State, cfg.Socket, cfg.Page = t.TempDir(), "@muster-head-test-unencrypted", "0.0.0.0:0"
	err = Run(t.Context(), cfg, Options{Policy: catalog.New, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "unencrypted") {
		t.Errorf("a page without a certificate: %v", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg.Page, cfg.Said = taken.Addr().String(), map[string]string{"page": "head.yaml:3:1"}
	err = Run(t.Context(), cfg, Options{Policy: catalog.New, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.HasPrefix(err.Error(), "head.yaml:3:1: page: ") || !strings.Contains(err.Error(), "another program has "+cfg.Page) || !strings.Contains(err.Error(), "--page 127.0.0.1:0 takes any") {
		t.Errorf("the port of another program: %v", err)
	}
}

// The policy's reason is requested for jobs by their names.
func TestSomeJobs(t *testing.T) {
	c := start(t, withPage)
	c.busyNode("n1", 1)
	u := c.user("")
	for range 3 {
		u.submit(api.Submission{Arguments: []string{"sleep"}, Directory: "/", Options: []string{"-n1", "--gres=gpu:1"}})
	}
	var all, some api.Jobs
	u.must("GET", "/v1/jobs", nil, &all)
	u.must("GET", "/v1/jobs?job=3,2,3,99", nil, &some)
	if len(all.Jobs) != 3 || all.Jobs[2].Why != "" {
		t.Errorf("of all jobs: %+v", all.Jobs)
	}
	if len(some.Jobs) != 2 || some.Jobs[0].ID != 3 || !strings.Contains(some.Jobs[0].Why, "GPU") || some.Jobs[1].ID != 2 {
		t.Errorf("of some jobs: %+v", some.Jobs)
	}
	for path, want := range map[string]string{
		"/v1/jobs?job=x": "is no job", "/v1/jobs?job=1&user=bob": "nothing else", "/v1/jobs?job=" + strings.Repeat("1,", 100) + "1": "at most 100",
	} {
		if status, problem := u.do("GET", path, nil, nil); status != http.StatusBadRequest || !strings.Contains(problem, want) {
			t.Errorf("%s: %d %s", path, status, problem)
		}
	}
}
