// Package gateway lets programs on other machines use a node: it accepts
// connections over TLS, checks who is there, and is a client of the local daemon
// in their name. What a program's relay takes from a ring there, it puts on a
// ring here.
//
// A program says who it is by a user's certificate, or by a token if that is how the
// node is set up. A program of a job shows the credential of its grant instead, which
// the daemon knows (wire/grant): it needs neither. If it has a certificate as well,
// that must be of the grant's user.
//
// Another node that asks for virtual GPUs (wire/borrow) shows the certificate of a node; its
// questions go to the daemon.
//
// It knows no device and nothing of the daemon but its socket.
package gateway

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/client"
	"muster/internal/door"
	"muster/wire"
	"muster/wire/borrow"
	"muster/wire/grant"
	"muster/wire/identity"
	"muster/wire/lanes"
)

// Config says who may come, and where to.
type Config struct {
	// Socket is the daemon's.
	Socket string
	// TLS has the node's certificate and, unless a token suffices, the authority
	// that vouches for users: see LoadTLS.
	TLS *tls.Config
	// Token is what programs must know; "" for nothing.
	Token string
	// Plain lets programs come without TLS, if they show that they know the token: for networks
	// that are trusted. Then TLS may be nil, and nobody comes with it.
	Plain bool
	// Grants says that the daemon lets nobody in without a grant: then neither an
	// authority nor a token is needed.
	Grants bool
	Limits Limits // what is 0 is as DefaultLimits has it
	// LaneFrom is how many bytes at a time are worth connections of their own; 0 for as
	// many as usual.
	LaneFrom uint64
	// Nodes holds conversations with the daemons of other nodes, by what TLS calls them (ALPN).
	// They have shown a node's certificate of the authority.
	Nodes map[string]func(context.Context, net.Conn)
	Log   *slog.Logger
}

// Limits bound what those outside may take, and how long they may be silent.
//
// A connection is unknown until it has shown who it is, waits until it asks for a
// device, and is served from then on. One that is unknown is closed when Greet is
// over, or to make room for another that comes from the same address or from where
// fewer come from. One that waits is closed when Idle is over, or to make room for
// another of the same user; nothing is lost, since a program's side makes a new
// one when it needs it. One that is served must read what it is sent, and go on with
// what it has begun to send, within Silence.
type Limits struct {
	Unknown int // connections of which it is not known whose they are
	All     int // connections of users; and as many for bulk data
	User    int // of these, of one user

	Greet, Idle, Silence time.Duration
}

// DefaultLimits are those of a node of which nothing was said.
var DefaultLimits = Limits{
	Unknown: 64, All: 512, User: 128,
	Greet: 10 * time.Second, Idle: 2 * time.Minute, Silence: time.Minute,
}

func (l Limits) complete() Limits {
	d := DefaultLimits
	return Limits{
		Unknown: cmp.Or(l.Unknown, d.Unknown), All: cmp.Or(l.All, d.All), User: cmp.Or(l.User, d.User),
		Greet: cmp.Or(l.Greet, d.Greet), Idle: cmp.Or(l.Idle, d.Idle), Silence: cmp.Or(l.Silence, d.Silence),
	}
}

// tokenUser is the name of users who have no certificate, only the token.
const tokenUser = "remote"

// CUresults of refusals.
const (
	resultNotPermitted = 800
	resultNotReady     = 802
	resultMismatch     = 803
)

// Gateway is where programs of other machines come in.
type Gateway struct {
	Config
	listener *door.Listener
	unknown  *door.Places // by where they come from
	known    *door.Places // by user
	lanes    *door.Places // by user: they must not take the places that programs need
	peers    *door.Places // by node
	nodes    *door.Places // by node
	ended    atomic.Bool

	mu      sync.Mutex
	bridges map[wire.LaneKey]*bridge // that take lanes
}

// New makes a gateway that accepts connections once it serves.
func New(listener *net.TCPListener, c Config) (*Gateway, error) {
	switch {
	case c.Plain && c.Token == "":
		return nil, errors.New("without TLS a token is all that says who may come: give one, or leave plain out")
	case c.TLS == nil && c.Plain:
	case c.TLS == nil || len(c.TLS.Certificates) == 0:
		return nil, errors.New("a node that others can reach needs a certificate: muster cert makes one")
	case c.TLS.ClientCAs == nil && c.Token == "" && !c.Grants:
		return nil, errors.New("anybody could come: give the authority that vouches for users, or a token")
	}
	if c.TLS != nil {
		c.TLS = strict(c.TLS)
		c.TLS.NextProtos = append(c.TLS.NextProtos, slices.Sorted(maps.Keys(c.Nodes))...)
	}
	c.Limits, c.LaneFrom = c.Limits.complete(), cmp.Or(c.LaneFrom, lanes.Worth)
	g := &Gateway{
		Config: c, listener: door.Listen(listener, false),
		unknown: door.NewPlaces(c.Limits.Unknown, c.Limits.Unknown),
		known:   door.NewPlaces(c.Limits.User, c.Limits.All),
		lanes:   door.NewPlaces(c.Limits.User, c.Limits.All),
		peers:   door.NewPlaces(peersEach, c.Limits.All),
		nodes:   door.NewPlaces(c.Limits.User, c.Limits.All),
		bridges: map[wire.LaneKey]*bridge{},
	}
	g.listener.Notice = func(trouble error) {
		if trouble != nil {
			c.Log.Error("no connections of other machines can be accepted for now", "error", trouble)
		} else {
			c.Log.Info("connections of other machines can be accepted again")
		}
	}
	return g, nil
}

// Trouble says why nobody from other machines is served; nil if they are.
func (g *Gateway) Trouble() error {
	if g.ended.Load() {
		return errors.New("programs of other machines are no longer served")
	}
	if trouble := g.listener.Trouble(); trouble != nil {
		return fmt.Errorf("no connection can be accepted: %w", trouble)
	}
	return nil
}

// Serve accepts connections until ctx is over, and then ends those there are.
func (g *Gateway) Serve(ctx context.Context) {
	defer g.ended.Store(true)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = g.listener.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		// The oldest makes room: so the number of those that are served is bounded.
		place, err := g.unknown.Take(door.Origin(conn.RemoteAddr()), false, func() { _ = conn.Close() })
		if err != nil {
			_ = conn.Close()
			continue
		}
		all.Go(func() {
			defer place.Leave()
			g.serve(ctx, conn.(*door.Conn).Conn, place)
		})
	}
}

// strict allows nothing old, and nobody unknown.
func strict(given *tls.Config) *tls.Config {
	t := given.Clone()
	t.MinVersion = tls.VersionTLS13
	t.NextProtos = []string{wire.StreamProtocol, wire.LaneProtocol, borrow.Protocol}
	t.SessionTicketsDisabled = true
	t.DynamicRecordSizingDisabled = true
	t.ClientAuth = tls.NoClientCert
	if t.ClientCAs != nil { // who has none may have a grant
		t.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return t
}

// serve serves one connection to its end.
func (g *Gateway) serve(ctx context.Context, plain net.Conn, unknown *door.Place) {
	defer plain.Close()
	log := g.Log.With("from", plain.RemoteAddr().String())
	if tcp, ok := plain.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = client.GiveUpAfterAMinute("", "", raw)
		}
	}
	_ = plain.SetDeadline(time.Now().Add(g.Limits.Greet))
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, protocol, err := g.meet(plain, func(c *tls.Conn) error { return c.HandshakeContext(ctx) })
	if err != nil {
		log.Log(ctx, levelOf(err), "a connection was refused", "error", err)
		return
	}
	switch protocol {
	case wire.LaneProtocol:
		g.serveLane(conn, unknown, stop)
		return
	case borrow.Protocol: // agreed on with TLS only
		g.servePeer(ctx, conn.(*tls.Conn), unknown, log)
		return
	}
	if serve := g.Nodes[protocolOf(conn)]; serve != nil {
		stop()
		g.serveNode(ctx, conn, unknown, serve, log)
		return
	}
	patient := door.NewPatient(conn, g.Limits.Silence)
	v := &visitor{Gateway: g, conn: conn, in: bufio.NewReaderSize(patient, bufferSize)}
	defer v.leave()
	session, err := v.setUp(ctx, unknown)
	var refused *wire.Refused
	switch {
	case errors.As(err, &refused):
		log.Info("a program was refused", "user", v.user, "reason", refused.Reason)
		_ = wire.WriteRecord(conn, refused)
		_ = conn.Close()
		return
	case err != nil:
		log.Debug("a connection ended", "user", v.user, "error", err)
		return
	}
	stop() // from here on it ends with a word
	_ = plain.SetDeadline(time.Time{})
	log.Debug("a program is served", "user", v.user, "client", session.Attached.Client)
	b := newBridge(v, patient, session)
	g.admitLanes(b)
	reason := b.run(ctx)
	log.Debug("a program is no more served", "user", v.user, "client", session.Attached.Client, "reason", reason)
}

// protocolOf is what TLS calls the conversation; "" without TLS.
func protocolOf(conn link) string {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.ConnectionState().NegotiatedProtocol
	}
	return ""
}

// serveNode holds a conversation with another node's daemon, which must have a node's certificate.
func (g *Gateway) serveNode(ctx context.Context, conn link, unknown *door.Place, serve func(context.Context, net.Conn), log *slog.Logger) {
	certificates := conn.(*tls.Conn).ConnectionState().PeerCertificates
	if len(certificates) == 0 || identity.KindOf(certificates[0]) != identity.Node {
		log.Info("a connection was refused", "error", "it wants to speak as a node, and has no node's certificate")
		return
	}
	plain := conn.NetConn()
	place, err := g.nodes.Take(certificates[0].Subject.CommonName, false, func() { _ = plain.Close() })
	if err != nil || !place.Use() {
		log.Info("a connection was refused", "error", "there are as many connections of other nodes as there may be")
		return
	}
	defer place.Leave()
	unknown.Leave()
	_ = plain.SetDeadline(time.Time{})
	serve(ctx, conn)
}

// levelOf is how much a failed handshake matters. Anybody can connect and say
// nothing, as often as they like.
func levelOf(err error) slog.Level {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// visitor is a connection that has shown a certificate, if one is needed.
type visitor struct {
	*Gateway
	conn  link
	in    *bufio.Reader
	user  string
	key   wire.LaneKey // of the lanes that it may have
	whose string       // place is
	place *door.Place  // as a user's
}

func (v *visitor) leave() { v.place.Leave() }

// setUp makes a connection a client of the daemon. Nothing is taken from the
// daemon before the connection has shown that it may come, nor while it waits.
func (v *visitor) setUp(ctx context.Context, unknown *door.Place) (*client.Session, error) {
	var hello wire.Hello
	if err := wire.ReadAs(v.in, &hello); err != nil {
		return nil, spoken(err)
	}
	seen, err := v.letIn(&hello)
	if err != nil {
		return nil, err
	}
	unknown.Leave()
	if err := v.tell(seen); err != nil {
		return nil, err
	}
	wanted, err := v.wait(ctx)
	if err != nil {
		return nil, err
	}
	return v.attach(hello, seen, wanted)
}

// letIn finds out whose the connection is, and what the daemon says to that. The daemon
// knows whether a grant is good: until it has said so, the connection is nobody's.
func (v *visitor) letIn(hello *wire.Hello) (*client.Session, error) {
	user, err := v.identify(v.conn, hello)
	if err != nil {
		return nil, err
	}
	v.user = user
	if hello.Grant == "" {
		if err := v.takePlace(user, "user "+user); err != nil {
			return nil, err
		}
	}
	hello.Token = wire.SpeaksFor + user
	seen, err := client.Dial(v.Socket, *hello)
	if err != nil {
		return nil, notReady(err)
	}
	seen.Close()
	if hello.Grant != "" {
		return seen, v.takePlace(jobKey(hello.Grant), "the job")
	}
	return seen, nil
}

// tell tells the program what the daemon said.
func (v *visitor) tell(seen *client.Session) error {
	if err := wire.WriteRecord(v.conn, &seen.Welcome); err != nil {
		return err
	}
	for i := range seen.Devices {
		if err := wire.WriteRecord(v.conn, &seen.Devices[i]); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until the program wants a device. It may do much else before.
func (v *visitor) wait(ctx context.Context) (wanted wire.Attach, err error) {
	_ = v.conn.SetDeadline(time.Now().Add(v.Limits.Idle))
	if err := ctx.Err(); err != nil {
		return wanted, err // the deadline that this ended may have been its own
	}
	if !v.place.Wait() {
		return wanted, errMadeRoom
	}
	if err := wire.ReadAs(v.in, &wanted); err != nil {
		return wanted, spoken(err)
	}
	if !v.place.Use() {
		return wanted, errMadeRoom
	}
	_ = v.conn.SetDeadline(time.Now().Add(v.Limits.Greet))
	return wanted, nil
}

// errMadeRoom ends a connection whose place was needed by a newer one.
var errMadeRoom = errors.New("it was closed to make room for others of its user")

// attach makes the connection the client of a device, which must be as the program
// was told.
func (v *visitor) attach(hello wire.Hello, seen *client.Session, wanted wire.Attach) (*client.Session, error) {
	session, err := client.Dial(v.Socket, hello)
	if err != nil {
		return nil, notReady(err)
	}
	if err := v.attachTo(session, seen, wanted); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

func (v *visitor) attachTo(session, seen *client.Session, wanted wire.Attach) error {
	if !session.Shows(seen.Welcome, seen.Devices) {
		return &wire.Refused{Result: resultNotReady, Reason: "the node's devices are not those of which the program was told: start it again"}
	}
	err := session.AttachAs(wanted)
	_ = v.conn.SetWriteDeadline(time.Now().Add(v.Limits.Greet)) // starting a worker may have taken longer
	if err != nil {
		return notReady(err)
	}
	if err := wire.WriteRecord(v.conn, &session.Attached); err != nil {
		return err
	}
	if _, err := rand.Read(v.key[:]); err != nil {
		return err
	}
	geometry := wire.Frame{Kind: wire.FrameGeometry, Geometry: session.Shared.Geometry(), Lanes: lanes.Most, From: v.LaneFrom, Key: v.key}
	_, err = v.conn.Write(geometry.Append(nil))
	return err
}

// jobKey tells jobs apart, from each other and from users.
func jobKey(credential string) string { return "job " + grant.Credential(credential).Hash().String() }

// takePlace takes one of the places of a user or a job, or refuses.
func (v *visitor) takePlace(key, who string) (err error) {
	plain := v.conn.NetConn()
	v.whose = key
	v.place, err = v.known.Take(key, false, func() { _ = plain.Close() })
	switch {
	case errors.Is(err, door.ErrUserFull):
		return &wire.Refused{Result: resultNotReady, Reason: fmt.Sprintf("%s has %d programs' connections to this node, as many as allowed: wait until some have ended", who, v.Limits.User)}
	case err != nil:
		return &wire.Refused{Result: resultNotReady, Reason: fmt.Sprintf("the node serves %d connections of other machines, as many as it may: try again later", v.Limits.All)}
	}
	return nil
}

// identify says who is there, or refuses; "" for whoever a grant is for.
func (c *Config) identify(conn link, hello *wire.Hello) (string, error) {
	secure, ok := conn.(*tls.Conn)
	switch {
	case !ok && hello.Grant != "": // it was heard by whoever listens
		return "", &wire.Refused{Result: resultNotPermitted, Reason: "a grant's credential must not travel without TLS: leave --plain out"}
	case !ok: // it has shown that it knows the token
		return tokenUser, nil
	}
	state := secure.ConnectionState()
	certified := len(state.PeerCertificates) > 0
	switch {
	case hello.Grant != "" && !certified:
		return "", nil
	case hello.Grant == "" && c.Token != "" && !sameSecret(hello.Token, c.Token):
		return "", &wire.Refused{Result: resultNotPermitted, Reason: "the node wants a token, and this is not it"}
	case !certified && (c.TLS.ClientCAs != nil || c.Token == ""):
		return "", &wire.Refused{Result: resultNotPermitted, Reason: "the node wants to know who is there: show a certificate of its authority (--tls-dir), or use a grant (--grant)"}
	case !certified:
		return tokenUser, nil
	}
	name, err := identity.UserOf(state.PeerCertificates[0])
	if err != nil {
		return "", &wire.Refused{Result: resultNotPermitted, Reason: err.Error()}
	}
	return name, nil
}

// sameSecret takes as long for any guess.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// spoken makes a refusal of what the other side said wrong; that it said nothing
// stays an error.
func spoken(err error) error {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return err
	}
	return &wire.Refused{Result: resultMismatch, Reason: "this is a Muster node, and what came is not what a program says: " + err.Error()}
}

// notReady makes a refusal of what went wrong between gateway and daemon.
func notReady(err error) error {
	var refused *wire.Refused
	if errors.As(err, &refused) {
		return refused
	}
	return &wire.Refused{Result: resultNotReady, Reason: "the node could not serve the program: " + err.Error()}
}
