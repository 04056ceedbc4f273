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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/internal/door"
	"muster/internal/whois"
	"muster/wire/api"
	"muster/wire/identity"
	"muster/wire/trust"
)

// caller is the user or node at the other end of a connection.
type caller struct {
	user string // "" for a node
	// node is the certificate of a node; nil for users.
	node *x509.Certificate
	// head is the certificate of another head; nil for users and nodes.
	head *x509.Certificate
	// vouched are the certificate and those of its authorities (trust.Vouched), of a user who has
	// signed in to the page those by which he asked for it; nil at the socket.
	vouched []*x509.Certificate
	// root says that the caller is this machine's root, or the user whom the head runs as. Either
	// could impersonate any of its agents anyway.
	root bool
	// local says that the caller is at the socket.
	local bool
	// page says that the request comes from a browser, which proves less than a certificate does.
	page bool
	// wrong is why the connection's requests are refused; nil if they are not.
	wrong error
}

func (c *caller) String() string {
	if c.node != nil {
		return "node " + c.node.Subject.CommonName
	}
	if c.head != nil {
		return "head " + c.head.Subject.CommonName
	}
	return c.user
}

// visitor is an accepted connection.
type visitor struct {
	net.Conn
	who   caller
	place *door.Place // nil until the caller is known
	// forget is called when the connection is closed; nil for nothing.
	forget func()
	once   sync.Once
}

func (v *visitor) Close() error {
	err := v.Conn.Close()
	v.once.Do(func() {
		v.place.Leave()
		if v.forget != nil {
			v.forget()
		}
	})
	return err
}

// CloseWrite closes the sending direction.
func (v *visitor) CloseWrite() error {
	if half, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// visitorOf finds the visitor behind a connection of the HTTP server.
func visitorOf(c net.Conn) *visitor {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	v, _ := c.(*visitor)
	return v
}

// doors are the listeners, and the connections that they have accepted.
type doors struct {
	*daemon
	addresses Addresses
	unknown   *door.Places // by address
	users     *door.Places // by user
	nodes     *door.Places // by node
	listeners []*door.Listener
	tls       *tls.Config
	known     *handed
	server    *http.Server
	web       *webServer
	page      *pageServer
	names     whois.Names
	// turnedAway counts the connections whose callers are being told that all places are taken.
	turnedAway atomic.Int64

	mu       sync.Mutex
	visitors map[*visitor]struct{} // of users who have shown a certificate
}

// openDoors opens the port, the socket, the port for metrics and that for the page.
func (d *daemon) openDoors() (*doors, error) {
	limits := d.cfg.Connections
	o := &doors{
		daemon: d, known: newHanded(), visitors: map[*visitor]struct{}{},
		unknown: door.NewPlaces(max(1, limits.Unknown/2), limits.Unknown),
		users:   door.NewPlaces(limits.User, limits.All), nodes: door.NewPlaces(limits.Node, limits.Nodes),
	}
	o.server = &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: limits.Greet, IdleTimeout: limits.Idle, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, &visitorOf(c).who)
		},
		ConnState: o.noteState,
		ErrorLog:  log.New(io.Discard, "", 0), // it would report what strangers do, and they could fill the log
	}
	err := errors.Join(o.openPort(), o.openSocket(), o.openWeb(), o.openPage())
	if err != nil {
		o.close(0)
		return nil, err
	}
	return o, nil
}

// callerKey is the context key of a request's caller.
type callerKey struct{}

// noteState tells the places which connections are in use, and which may be closed for others.
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
	l, err := o.listen("tcp", o.cfg.Listen)
	if err != nil {
		return fmt.Errorf("the head's port (--listen): %w", door.PortTrouble(o.cfg.Listen, err))
	}
	o.tls = strict(o.TLS, o.log)
	if o.peers != nil {
		o.tls.NextProtos = append(o.tls.NextProtos, protocolHeads)
	}
	o.addresses.Listen = l.Addr().String()
	o.add(l.(*net.TCPListener))
	return nil
}

// strict allows only callers with a certificate of the authority.
func strict(given *tls.Config, log *slog.Logger) *tls.Config {
	return trust.Listen(given, tls.RequireAndVerifyClientCert, log, "http/1.1") // HTTP/2 connections cannot be upgraded
}

func (o *doors) openSocket() error {
	if o.cfg.Socket == "" {
		return nil
	}
	isFile := !strings.HasPrefix(o.cfg.Socket, "@")
	if isFile && (o.peers == nil || !o.peers.ports.has("unix", o.cfg.Socket)) {
		// The head holds the store's lock, so no other head uses this state: a socket found here is
		// left over, unless another program answers at it.
		if info, err := os.Lstat(o.cfg.Socket); err == nil && info.Mode()&fs.ModeSocket != 0 {
			if c, err := net.Dial("unix", o.cfg.Socket); err == nil {
				_ = c.Close()
				return fmt.Errorf("another program answers at %s: stop it, or give the head another socket (--socket)", o.cfg.Socket)
			}
			_ = os.Remove(o.cfg.Socket)
		}
	}
	l, err := o.listen("unix", o.cfg.Socket)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another program has the socket %s: stop it, or give the head another one (--socket)", o.cfg.Socket)
	}
	if err != nil {
		return fmt.Errorf("the head's socket (--socket): %w", err)
	}
	if isFile {
		// Every user may connect; the kernel says which user it is.
		if err := os.Chmod(o.cfg.Socket, 0o666); err != nil {
			_ = l.Close()
			return fmt.Errorf("the head's socket: %w", err)
		}
	}
	o.addresses.Socket = o.cfg.Socket
	o.add(l.(*net.UnixListener))
	return nil
}

// listen opens a listener. That of a head that is one of several stays open for its next doors.
func (o *doors) listen(network, address string) (net.Listener, error) {
	if o.peers != nil {
		return o.peers.ports.listen(network, address)
	}
	return net.Listen(network, address)
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

// serve begins to accept connections.
func (o *doors) serve() {
	for _, l := range o.listeners {
		go o.accept(l)
	}
	go func() { _ = o.server.Serve(o.known) }()
	o.web.serve()
	o.page.serve()
}

// close stops accepting, and gives requests that are being served the time wait to finish.
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

// accept accepts connections. Each has a goroutine of its own that identifies the caller and hands
// the connection to the HTTP server, so that a slow caller delays no other.
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
				o.welcome(v, v, o.local(local)) // looking up a user's name may take long
				return
			}
			o.handshake(v)
		}()
	}
}

// handshake performs the TLS handshake, in which the caller must show a certificate.
func (o *doors) handshake(v *visitor) {
	_ = v.SetDeadline(time.Now().Add(o.cfg.Connections.Greet))
	conn := tls.Server(v, o.tls)
	if err := conn.Handshake(); err != nil {
		var broken *trust.BrokenList
		if errors.As(err, &broken) {
			broken.Tell(o.log)
		} else {
			o.log.Log(context.Background(), levelOf(err, slog.LevelInfo), "a connection was refused", "from", v.RemoteAddr().String(), "error", err)
			o.noteRefused(err)
		}
		o.metrics.refusedConnections.Add(1)
		_ = v.Close()
		return
	}
	_ = v.SetDeadline(time.Time{})
	who := shown(trust.Vouched(conn.ConnectionState()))
	if conn.ConnectionState().NegotiatedProtocol == protocolHeads {
		if who.head == nil {
			o.log.Warn("a connection was refused", "from", v.RemoteAddr().String(), "error", "it speaks as a head, and shows the certificate of "+who.String())
			_ = v.Close()
			return
		}
		o.peers.node.Serve(conn)
		return
	}
	o.welcome(v, conn, who)
}

// noteRefused notes that a node was refused, if its certificate is one of the authority's.
func (o *doors) noteRefused(err error) {
	c := trust.Known(o.tls, err)
	if c == nil || identity.KindOf(c) != identity.Node {
		return
	}
	o.refusals.note("handshake "+c.Subject.CommonName, refusal{names: identity.NodeNames(c), reason: trust.ExplainCaller(c, err).Error(), at: o.Now(), outside: true})
}

// levelOf is the log level for a caller that was refused: most, or only Debug if the caller just
// connected and said nothing, which any process can do as often as it likes.
func levelOf(err error, most slog.Level) slog.Level {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) {
		return slog.LevelDebug
	}
	return most
}

// shown returns the caller whom the first of some certificates identifies; the others vouch for it.
func shown(vouched []*x509.Certificate) caller {
	c := vouched[0]
	switch identity.KindOf(c) {
	case identity.Node:
		return caller{node: c, vouched: vouched}
	case identity.Head:
		return caller{head: c, vouched: vouched}
	}
	name, err := identity.UserOf(c)
	return caller{user: name, vouched: vouched, wrong: err}
}

// local returns the caller at the other end of a Unix socket, as the kernel identifies it.
func (o *doors) local(conn *net.UnixConn) caller {
	who, err := whois.Of(conn)
	if err != nil {
		return caller{wrong: err}
	}
	return caller{user: o.names.Of(who.Uid), root: whois.RootOrSelf(who.Uid), local: true}
}

// welcome gives a connection one of its user's or node's places, and hands it to the HTTP server.
func (o *doors) welcome(v *visitor, conn net.Conn, who caller) {
	v.who = who
	places, name := o.users, who.user
	if who.node != nil {
		places, name = o.nodes, who.node.Subject.CommonName
	} else if who.head != nil {
		name = who.String()
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
	o.register(v)
	if !o.known.hand(conn) {
		_ = conn.Close()
	}
}

// maxTurnedAway is how many callers are told at a time that there is no place. The connections of
// others are just closed, so that they cannot exhaust the head's descriptors this way.
const maxTurnedAway = 64

// full tells a caller why there is no place for it.
func full(conn net.Conn, patience time.Duration, reason string) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	// A client that is still sending its request might not see the answer: read the first line.
	_, _ = bufio.NewReaderSize(conn, 512).ReadSlice('\n')
	text, _ := json.Marshal(api.Error{Error: reason})
	fmt.Fprintf(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// handed is a net.Listener of connections that were accepted elsewhere.
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
