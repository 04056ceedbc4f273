package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/head/api"
	"muster/internal/door"
	"muster/wire/identity"
)

// caller is who is at the other end of a connection.
type caller struct {
	user string // "" for a node
	// node is the certificate of a node; nil for users.
	node *x509.Certificate
	// root says that it is this machine's root, or the user whom the head runs as: he
	// could be any of its agents anyway.
	root bool
	// page says that a browser asks, which has less than a certificate to show.
	page bool
	// wrong is why no caller is served there.
	wrong error
}

func (c *caller) String() string {
	if c.node != nil {
		return "node " + c.node.Subject.CommonName
	}
	return c.user
}

// visitor is a connection, as it was accepted.
type visitor struct {
	net.Conn
	who   caller
	place *door.Place // nil until it is known whose it is
	once  sync.Once
}

func (v *visitor) Close() error {
	err := v.Conn.Close()
	v.once.Do(func() { v.place.Leave() })
	return err
}

// CloseWrite says that nothing more will be sent.
func (v *visitor) CloseWrite() error {
	if half, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// visitorOf finds the visitor of a connection that the HTTP server has.
func visitorOf(c net.Conn) *visitor {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	v, _ := c.(*visitor)
	return v
}

// doors is where requests come in.
type doors struct {
	*daemon
	addresses Addresses
	unknown   *door.Places // by where they come from
	users     *door.Places // by user
	nodes     *door.Places // by node
	listeners []*door.Listener
	tls       *tls.Config
	known     *handed
	server    *http.Server
	web       *webServer
	page      *pageServer
	names     userNames
	// turnedAway counts the connections that are being told that there is no place for
	// them.
	turnedAway atomic.Int64
}

// openDoors opens the port, the socket, and what metrics are asked for at.
func (d *daemon) openDoors() (*doors, error) {
	limits := d.cfg.Connections
	o := &doors{
		daemon: d, known: newHanded(),
		unknown: door.NewPlaces(max(1, limits.Unknown/2), limits.Unknown),
		users:   door.NewPlaces(limits.User, limits.All), nodes: door.NewPlaces(limits.Node, limits.Nodes),
		names: userNames{known: map[uint32]string{}},
	}
	o.server = &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: limits.Greet, IdleTimeout: limits.Idle, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, &visitorOf(c).who)
		},
		ConnState: o.noteState,
		ErrorLog:  log.New(io.Discard, "", 0), // of what strangers do; it would fill the log
	}
	err := errors.Join(o.openPort(), o.openSocket(), o.openWeb(), o.openPage())
	if err != nil {
		o.close(0)
		return nil, err
	}
	return o, nil
}

// callerKey is the key of the caller in a request's context.
type callerKey struct{}

// noteState tells the places which connections are in use, and which can be closed
// for others.
func (o *doors) noteState(c net.Conn, state http.ConnState) {
	v := visitorOf(c)
	switch state {
	case http.StateActive:
		v.place.Use()
	case http.StateIdle:
		v.place.Wait()
	}
}

func (o *doors) openPort() error {
	if o.cfg.Listen == "" {
		return nil
	}
	if o.TLS == nil || len(o.TLS.Certificates) == 0 || o.TLS.ClientCAs == nil {
		return errors.New("the head's port needs a certificate, and the authority that vouches for users: give --tls-dir with the folder that muster cert --head made, or --listen '' to do without a port")
	}
	l, err := net.Listen("tcp", o.cfg.Listen)
	if err != nil {
		return fmt.Errorf("the head's port (--listen): %w", door.PortTrouble(o.cfg.Listen, err))
	}
	o.tls = strict(o.TLS)
	o.addresses.Listen = l.Addr().String()
	o.add(l.(*net.TCPListener))
	return nil
}

// strict allows only current TLS, and only callers with a known certificate.
func strict(given *tls.Config) *tls.Config {
	t := given.Clone()
	t.MinVersion = tls.VersionTLS13
	t.ClientAuth = tls.RequireAndVerifyClientCert
	t.NextProtos = []string{"http/1.1"} // a connection that is upgraded is one
	t.SessionTicketsDisabled = true
	return t
}

func (o *doors) openSocket() error {
	if o.cfg.Socket == "" {
		return nil
	}
	isFile := !strings.HasPrefix(o.cfg.Socket, "@")
	if isFile {
		// The store's lock says that no other head is there: what is there was left.
		if info, err := os.Lstat(o.cfg.Socket); err == nil && info.Mode()&fs.ModeSocket != 0 {
			if c, err := net.Dial("unix", o.cfg.Socket); err == nil {
				_ = c.Close()
				return fmt.Errorf("another program answers at %s: stop it, or give the head another socket (--socket)", o.cfg.Socket)
			}
			_ = os.Remove(o.cfg.Socket)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.cfg.Socket, Net: "unix"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another program has the socket %s: stop it, or give the head another one (--socket)", o.cfg.Socket)
	}
	if err != nil {
		return fmt.Errorf("the head's socket (--socket): %w", err)
	}
	if isFile {
		// Everybody may ask; the kernel says who it is.
		if err := os.Chmod(o.cfg.Socket, 0o666); err != nil {
			_ = l.Close()
			return fmt.Errorf("the head's socket: %w", err)
		}
	}
	o.addresses.Socket = o.cfg.Socket
	o.add(l)
	return nil
}

func (o *doors) add(l interface {
	net.Listener
	SetDeadline(time.Time) error
}) {
	listener := door.Listen(l, false)
	listener.Notice = func(trouble error) {
		if trouble != nil {
			o.log.Error("no connections can be accepted for now", "address", l.Addr().String(), "error", trouble)
		} else {
			o.log.Info("connections can be accepted again", "address", l.Addr().String())
		}
	}
	o.listeners = append(o.listeners, listener)
}

// serve lets people in.
func (o *doors) serve() {
	for _, l := range o.listeners {
		go o.accept(l)
	}
	go func() { _ = o.server.Serve(o.known) }()
	o.web.serve()
	o.page.serve()
}

// close refuses new connections, and gives those that are being served some time to
// finish.
func (o *doors) close(wait time.Duration) {
	for _, l := range o.listeners {
		_ = l.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_ = o.server.Shutdown(ctx)
	_ = o.server.Close()
	o.unknown.Close()
	o.web.close()
	o.page.close()
}

// accept finds out who comes, and hands them to the HTTP server.
func (o *doors) accept(l *door.Listener) {
	for {
		accepted, err := l.Accept()
		if err != nil {
			return
		}
		v := &visitor{Conn: accepted.(*door.Conn).Conn}
		place, err := o.unknown.Take(door.Origin(v.RemoteAddr()), false, func() { _ = v.Conn.Close() })
		if err != nil {
			_ = v.Close()
			continue
		}
		go func() {
			defer place.Leave()
			if local, ok := v.Conn.(*net.UnixConn); ok {
				o.welcome(v, v, o.local(local)) // asking for a user's name may take long
				return
			}
			o.handshake(v)
		}()
	}
}

// handshake lets a stranger show a certificate.
func (o *doors) handshake(v *visitor) {
	_ = v.SetDeadline(time.Now().Add(o.cfg.Connections.Greet))
	conn := tls.Server(v, o.tls)
	if err := conn.Handshake(); err != nil {
		o.log.Log(context.Background(), levelOf(err, slog.LevelInfo), "a connection was refused", "from", v.RemoteAddr().String(), "error", err)
		o.metrics.refusedConnections.Add(1)
		_ = v.Close()
		return
	}
	_ = v.SetDeadline(time.Time{})
	o.welcome(v, conn, shown(conn.ConnectionState().PeerCertificates[0]))
}

// levelOf is the log level for a caller that was not let in: most, or only Debug if the
// caller connected and said nothing, which any process can do as often as it likes.
func levelOf(err error, most slog.Level) slog.Level {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) {
		return slog.LevelDebug
	}
	return most
}

// shown says which caller a certificate stands for.
func shown(c *x509.Certificate) caller {
	if identity.KindOf(c) == identity.Node {
		return caller{node: c}
	}
	name, err := identity.UserOf(c)
	return caller{user: name, wrong: err}
}

// local says who is at the other end of a Unix socket.
func (o *doors) local(conn *net.UnixConn) caller {
	raw, err := conn.SyscallConn()
	if err != nil {
		return caller{wrong: err}
	}
	var credentials *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || failed != nil {
		return caller{wrong: fmt.Errorf("asking who connected: %w", errors.Join(err, failed))}
	}
	return caller{user: o.names.of(credentials.Uid), root: credentials.Uid == 0 || credentials.Uid == uint32(os.Getuid())}
}

// userNames remembers names, since asking for one may take long.
type userNames struct {
	mu    sync.Mutex
	known map[uint32]string
}

func (n *userNames) of(uid uint32) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.known[uid]; ok {
		return name
	}
	name := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	n.known[uid] = name
	return name
}

// welcome gives a connection a place of its user or node, and hands it to the HTTP
// server.
func (o *doors) welcome(v *visitor, conn net.Conn, who caller) {
	v.who = who
	places, name := o.users, who.user
	if who.node != nil {
		places, name = o.nodes, who.node.Subject.CommonName
	} else if who.wrong != nil {
		name = "?"
	}
	var err error
	if v.place, err = places.Take(name, who.root, func() { _ = v.Conn.Close() }); err != nil {
		o.metrics.refusedConnections.Add(1)
		if o.turnedAway.Add(1) <= maxTurnedAway {
			go func() {
				defer o.turnedAway.Add(-1)
				full(conn, o.cfg.Connections.Greet, fmt.Sprintf("%s has as many connections to the head as allowed, or all are in use: close some", &who))
			}()
			return
		}
		o.turnedAway.Add(-1)
		_ = conn.Close()
		return
	}
	if !o.known.hand(conn) {
		_ = conn.Close()
	}
}

// maxTurnedAway is how many are told at a time; others only see that they are not
// served, so that they cannot take descriptors by it.
const maxTurnedAway = 64

// full tells a caller for whom there is no place why.
func full(conn net.Conn, patience time.Duration, reason string) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	// It is heard only by those who have said what they want.
	_, _ = bufio.NewReaderSize(conn, 512).ReadSlice('\n')
	text, _ := json.Marshal(api.Error{Error: reason})
	fmt.Fprintf(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// handed is a listener of connections that were accepted elsewhere.
type handed struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newHanded() *handed { return &handed{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (h *handed) hand(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.ended:
		return false
	}
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.ended) })
	return nil
}

func (h *handed) Addr() net.Addr { return &net.UnixAddr{Name: "handed", Net: "unix"} }
