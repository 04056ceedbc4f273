package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log"
	"mime"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muster/internal/door"
	"muster/web"
	"muster/wire/api"
	"muster/wire/trust"
)

// The head's page: files that a browser loads, and the API as everywhere else, with the rights of
// the user who has signed in.
//
// A browser has no certificate. A user asks the head for a one-time address (POST /v1/page, where
// the head knows who asks), and the page signs in with it. The head refuses what other sites, and
// other ports of the same machine, can make a browser do:
//
//   - only names of the head are accepted as Host, against DNS rebinding;
//   - requests of other origins are refused, and changes must say that they are JSON,
//     which a form cannot;
//   - a session needs a cookie and a key (see pageSession);
//   - nothing but the head's own files is loaded or run (contentPolicy).
//
// A page submits jobs of the user who has signed in, and of nobody else. It runs no commands in jobs and reads
// nothing of what the head keeps secret: see route.notForPages.

// DefaultPage is the default address of the page. With port 0 the system chooses one that is free.
const DefaultPage = "127.0.0.1:9424"

// NoPage is the setting for a head without a page.
const NoPage = "none"

const (
	sessionPath = "/page/session"
	keyHeader   = "Muster-Page"
	// contentPolicy lets the page load its own files and ask this head, and nothing else; text can
	// never become markup or script in it.
	contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

// pageServer serves the page. The methods of a nil pageServer do nothing.
type pageServer struct {
	*doors
	pages    *pages
	files    map[string]*pageFile // by path
	server   *http.Server
	listener net.Listener
	strange  *door.Places // places of connections that have not shown a session, by address
	address  string       // HOST:PORT
	scheme   string
	cookie   string // its name
	api      http.Handler
}

// pageFile is a file of the page, ready to be sent.
type pageFile struct {
	kind, tag string
	text      []byte
}

func (o *doors) openPage() error {
	if o.cfg.Page == "" || o.cfg.Page == NoPage {
		return nil
	}
	l, err := o.listen("tcp", o.cfg.Page)
	if err != nil {
		host, _, _ := net.SplitHostPort(o.cfg.Page)
		return o.cfg.At("page", fmt.Errorf("the port of the page (--page): %w; --page %s takes any that is free, --page none serves no page", door.PortTrouble(o.cfg.Page, err), net.JoinHostPort(host, "0")))
	}
	at := l.Addr().(*net.TCPAddr)
	p := &pageServer{
		doors: o, listener: door.Listen(l.(*net.TCPListener), false), scheme: "http", cookie: fmt.Sprintf("muster-%d", at.Port), api: o.server.Handler,
		strange: door.NewPlaces(max(1, o.cfg.Connections.Unknown/2), o.cfg.Connections.Unknown), files: pageFiles(),
	}
	if !at.IP.IsLoopback() {
		if o.TLS == nil || len(o.TLS.Certificates) == 0 {
			_ = l.Close()
			return fmt.Errorf("the page at %s would go over the network unencrypted: give the head a certificate (--tls-dir), or serve the page on this machine alone, as --page %s", o.cfg.Page, DefaultPage)
		}
		p.scheme = "https"
	}
	p.pages = openPages(p.sessionsIn(), o.Now, o.revoked, o.log)
	p.address = net.JoinHostPort(p.ownName(at), fmt.Sprint(at.Port))
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: o.cfg.Connections.Greet, IdleTimeout: o.cfg.Connections.Idle, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, pageConnKey{}, pageConnOf(c))
		},
		ConnState: func(c net.Conn, state http.ConnState) { pageConnOf(c).note(state) },
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	o.addresses.Page = p.scheme + "://" + p.address
	o.page = p
	return nil
}

// sessionsIn is the folder in which sessions survive a restart of the head. Without TLS there is
// none: any user of this machine can take the port while the head is away, and browsers that try to
// reach the head would show that user cookie and key.
func (p *pageServer) sessionsIn() string {
	if p.scheme == "http" {
		_ = os.Remove(filepath.Join(p.cfg.State, "pages.json")) // left from a time with TLS, or from an older head
		return ""
	}
	return p.cfg.State
}

// ownName is the name by which browsers reach the page: an address of this machine, or a name in
// its certificate.
func (p *pageServer) ownName(at *net.TCPAddr) string {
	if p.scheme == "http" || !at.IP.IsUnspecified() {
		return at.IP.String()
	}
	if leaf := p.TLS.Certificates[0].Leaf; leaf != nil && len(leaf.DNSNames) > 0 {
		return leaf.DNSNames[0]
	}
	return "localhost"
}

func (p *pageServer) serve() {
	if p == nil {
		return
	}
	var l net.Listener = &pageListener{p}
	if p.scheme == "https" {
		// A browser shows no certificate, and none is asked for.
		l = tls.NewListener(l, trust.ListenToBrowsers(p.TLS))
	}
	go func() { _ = p.server.Serve(l) }()
}

func (p *pageServer) close() {
	if p == nil {
		return
	}
	p.pages.close()
	_ = p.server.Close()
	_ = p.listener.Close()
}

// pageConnKey is the context key of a request's connection.
type pageConnKey struct{}

// pageConn is a browser's connection. It has one of the strangers' places until it has shown a
// session, and then one of its user's.
type pageConn struct {
	net.Conn
	mu    sync.Mutex
	place *door.Place
	user  string
	gone  bool
}

func pageConnOf(c net.Conn) *pageConn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return c.(*pageConn)
}

func (c *pageConn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	c.place.Leave()
	return err
}

// note tells the places whether a user's connection is in use, or may be closed for others.
func (c *pageConn) note(state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.user == "":
	case state == http.StateActive:
		c.place.Use()
	case state == http.StateIdle:
		c.place.Wait()
	}
}

// belong moves the connection to one of a user's places.
func (c *pageConn) belong(user string, places *door.Places) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user == user || c.gone {
		return nil
	}
	place, err := places.Take(user, false, func() { _ = c.Conn.Close() })
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "%s has as many connections to the head as allowed, or all are in use: close some", user)
	}
	place.Use()
	c.place.Leave()
	c.place, c.user = place, user
	return nil
}

// pageListener gives each accepted connection one of the strangers' places.
type pageListener struct{ *pageServer }

func (l *pageListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &pageConn{Conn: accepted}
		if c.place, err = l.strange.Take(door.Origin(accepted.RemoteAddr()), false, func() { _ = accepted.Close() }); err != nil {
			_ = accepted.Close()
			continue
		}
		return c, nil
	}
}

func (l *pageListener) Close() error   { return l.listener.Close() }
func (l *pageListener) Addr() net.Addr { return l.listener.Addr() }

// ServeHTTP answers a browser.
func (p *pageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.allow(w)
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	asksHead := r.URL.Path == sessionPath || strings.HasPrefix(r.URL.Path, "/v1/")
	var err error
	switch {
	case !p.isOurs(r.Host):
		err = refuse(http.StatusMisdirectedRequest, "%.80q is no name of this head: use the address that muster page prints", r.Host)
	case asksHead:
		err = p.checkOrigin(r)
	}
	switch {
	case err != nil:
		p.metrics.refusedRequests.Add(1)
		sendError(w, err)
	case p.follows():
		p.pointToLeader(w, r)
	case r.URL.Path == sessionPath:
		p.serveSession(w, r)
	case asksHead:
		p.serveAPI(w, r)
	default:
		p.serveFile(w, r)
	}
}

// pointToLeader sends a browser to the page of the head that leads, which listens at the same port.
func (p *pageServer) pointToLeader(w http.ResponseWriter, r *http.Request) {
	leader := p.peers.node.Leader()
	host, _, err := net.SplitHostPort(leader)
	if _, port, _ := net.SplitHostPort(p.address); err == nil && leader != p.peers.self && p.scheme == "https" && r.Method == http.MethodGet && r.URL.Path == "/" {
		http.Redirect(w, r, "https://"+net.JoinHostPort(host, port)+"/", http.StatusTemporaryRedirect)
		return
	}
	sendError(w, p.peers.elsewhere(w, &caller{}))
}

// isOurs says whether the browser used a name of this head. Another site's name may resolve to this
// address (DNS rebinding), and is refused.
func (p *pageServer) isOurs(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(name)
	switch {
	case strings.EqualFold(name, "localhost"), ip != nil && ip.IsLoopback():
		return true // this includes the near end of a tunnel
	case p.scheme == "http":
		return false
	}
	leaf := p.TLS.Certificates[0].Leaf
	return leaf != nil && leaf.VerifyHostname(name) == nil
}

// checkOrigin refuses requests that a page of another site makes a browser send.
func (p *pageServer) checkOrigin(r *http.Request) error {
	other := refuse(http.StatusForbidden, "a page of another site cannot ask the head")
	if origin := r.Header.Get("Origin"); origin != "" && origin != p.scheme+"://"+r.Host {
		return other
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return other
	}
	if r.Method == http.MethodGet {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "changes must say Content-Type: application/json")
	}
	return nil
}

// session is the session that a request shows; nil if it shows none, or a wrong one.
func (p *pageServer) session(r *http.Request) *pageSession {
	c, err := r.Cookie(p.cookie)
	if err != nil {
		return nil
	}
	return p.pages.find(c.Value, r.Header.Get(keyHeader))
}

// signIn is the page's first request; it has the ticket of the one-time address.
type signIn struct {
	Ticket string `json:"ticket"`
}

// signedIn answers signIn. The page shows the key in the header Muster-Page of each request, beside
// the cookie.
type signedIn struct {
	User string `json:"user"`
	Key  string `json:"key"`
}

var errSignIn = refuse(http.StatusUnauthorized, "run muster page, and open the address that it prints")

// serveSession signs a browser in and out.
func (p *pageServer) serveSession(w http.ResponseWriter, r *http.Request) {
	set := func(value string, age int) {
		http.SetCookie(w, &http.Cookie{Name: p.cookie, Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: p.scheme == "https"})
	}
	switch r.Method {
	case http.MethodPost:
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.cfg.Connections.Greet))
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4096))
		var given signIn
		if err == nil {
			err = strictly(text, &given)
		}
		if err != nil {
			sendError(w, refuse(http.StatusBadRequest, "the ticket cannot be read: %v", err))
			return
		}
		cookie, key, user, ok := p.pages.redeem(given.Ticket)
		if !ok {
			sendError(w, refuse(http.StatusUnauthorized, "this address was used already, or is older than a minute: run muster page for another one"))
			return
		}
		p.log.Info("a browser has signed in to the page", "user", user, "from", r.RemoteAddr)
		set(cookie, int(pageTime.Seconds()))
		sendJSON(w, http.StatusOK, signedIn{User: user, Key: key})
	case http.MethodDelete:
		if s := p.session(r); s != nil {
			p.pages.signOut(s)
		}
		set("", -1)
		sendJSON(w, http.StatusOK, struct{}{})
	default:
		w.Header().Set("Allow", "POST, DELETE")
		sendError(w, refuse(http.StatusMethodNotAllowed, "%.20s cannot be done there: use POST or DELETE", r.Method))
	}
}

// serveAPI answers a request with the rights of the user who has signed in, until the session ends.
func (p *pageServer) serveAPI(w http.ResponseWriter, r *http.Request) {
	s := p.session(r)
	if s == nil {
		sendError(w, errSignIn)
		return
	}
	if conn, ok := r.Context().Value(pageConnKey{}).(*pageConn); ok {
		if err := conn.belong(s.user, p.users); err != nil {
			sendError(w, err)
			return
		}
	}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), callerKey{}, &caller{user: s.user, vouched: s.vouched, page: true}))
	defer cancel()
	defer context.AfterFunc(s.over, cancel)()
	p.api.ServeHTTP(w, r.WithContext(ctx))
}

// pageFiles reads the page's files.
func pageFiles() map[string]*pageFile {
	files := map[string]*pageFile{}
	_ = fs.WalkDir(web.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(web.Files, name)
		sum := sha256.Sum256(text)
		files["/"+name] = &pageFile{kind: kinds[path.Ext(name)], tag: `"` + hex.EncodeToString(sum[:12]) + `"`, text: text}
		return err
	})
	files["/"] = files["/index.html"]
	return files
}

// kinds are the media types of the page's files; the system's own list differs from one
// machine to the next.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// serveFile sends a file of the page. The files contain nothing of the cluster, so everyone may
// have them.
func (p *pageServer) serveFile(w http.ResponseWriter, r *http.Request) {
	f := p.files[r.URL.Path]
	switch {
	case f == nil:
		sendError(w, refuse(http.StatusNotFound, "there is nothing at %.80s: the page is at /", r.URL.Path))
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		sendError(w, refuse(http.StatusMethodNotAllowed, "%.20s cannot be done there: use GET", r.Method))
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache") // browsers must ask whether it has changed: a new head has a new page
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", fmt.Sprint(len(f.text)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.text)
	}
}

// servePage makes a one-time address for a user.
func servePage(q *request) (any, error) {
	p := q.doors.page
	if p == nil {
		return nil, refuse(http.StatusNotFound, "this head serves no page: its administrator can have it do so (muster head --page %s)", DefaultPage)
	}
	address := p.address
	// Users on other machines reach the head by the name that they used for this request.
	if name, _, err := net.SplitHostPort(q.r.Host); err == nil && p.scheme == "https" && p.isOurs(q.r.Host) {
		_, port, _ := net.SplitHostPort(p.address)
		address = net.JoinHostPort(name, port)
	}
	return api.Page{
		Address: p.scheme + "://" + address + "/#ticket=" + p.pages.ticket(q.who.user, q.who.vouched),
		Local:   p.scheme == "http", Expires: int(ticketTime.Seconds()),
	}, nil
}
