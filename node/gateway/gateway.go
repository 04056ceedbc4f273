// Package gateway lets programs on other machines use a node. It accepts connections over TLS,
// authenticates the peer, and acts as a client of the local daemon on its behalf. What a program's
// relay takes from a ring there, the gateway puts on a ring here.
//
// A program authenticates with a user's certificate, or with a token if the node is configured so.
// A program of a job shows the credential of its grant instead, which the daemon knows
// (wire/grant), and needs neither. If it has a certificate as well, that must be of the grant's
// user.
//
// Another node that asks for virtual GPUs (wire/borrow) shows a node's certificate; the gateway
// passes its questions to the daemon. Gateways also fetch data of guests from each other
// (wire/parcel).
//
// The authority that makes certificates of users, nodes and heads, and revokes them, is a folder of
// files (certs.go, revoked.go).
//
// The package knows no device, and nothing of the daemon but its socket.
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

	"muster/internal/door"
	"muster/wire"
	"muster/wire/borrow"
	"muster/wire/client"
	"muster/wire/grant"
	"muster/wire/identity"
	"muster/wire/lanes"
	"muster/wire/parcel"
	"muster/wire/trust"
)

// Config says who may connect, and to which daemon.
type Config struct {
	// Socket is the daemon's socket.
	Socket string
	// TLS has the node's certificate and, unless a token suffices, the authority that signs the
	// certificates of users: see LoadTLS.
	TLS *tls.Config
	// Token is the secret that programs must know; "": none.
	Token string
	// Plain accepts programs without TLS, if they prove that they know the token: for trusted
	// networks. TLS may then be nil; in that case connections with TLS are refused.
	Plain bool
	// Grants says that the daemon refuses every program without a grant, so that neither an
	// authority nor a token is needed.
	Grants bool
	Limits Limits // 0 stands for the value in DefaultLimits
	// LaneFrom is the size in bytes from which data go over lanes, connections for bulk data; 0 for
	// the default.
	LaneFrom uint64
	// Nodes serves connections from the daemons of other nodes, by the protocol that TLS agreed on
	// (ALPN). The peers have shown a node's certificate of the authority. Whether they are there is for
	// these conversations to know: one that reads nothing for long is not given up (door.GiveUpNever).
	Nodes map[string]func(context.Context, net.Conn)
	// Peer says whether there is another node's gateway at HOST:PORT, from which data of guests may
	// be fetched (wire/parcel), and how this node writes its address; nil if there is none.
	Peer func(ctx context.Context, address string) (as string, is bool)
	Log  *slog.Logger
}

// Limits bound what peers may take, and how long they may be silent.
//
// A connection is unknown until it is authenticated, waits until it asks for a device, and is
// served from then on. An unknown connection is closed when Greet is over, or to make room for
// another one from the same address, or from an address with fewer connections. A waiting
// connection is closed when Idle is over, or to make room for another one of the same user; nothing
// is lost, since the program's side connects again when it needs to. The peer of a served
// connection sends something at least every quarter of Silence (door.Resumable): otherwise the
// connection is broken, and the client ends unless its program's side resumes it within Keep.
type Limits struct {
	Unknown int // connections that are not authenticated yet
	All     int // connections of users; and as many lanes
	User    int // of these, of one user

	Greet, Idle, Silence, Keep time.Duration // Keep below 0 is none
}

// DefaultLimits are used where the configuration says nothing.
var DefaultLimits = Limits{
	Unknown: 64, All: 512, User: 128,
	Greet: 10 * time.Second, Idle: 2 * time.Minute, Silence: 20 * time.Second, Keep: time.Minute,
}

func (l Limits) complete() Limits {
	d := DefaultLimits
	return Limits{
		Unknown: cmp.Or(l.Unknown, d.Unknown), All: cmp.Or(l.All, d.All), User: cmp.Or(l.User, d.User),
		Greet: cmp.Or(l.Greet, d.Greet), Idle: cmp.Or(l.Idle, d.Idle), Silence: cmp.Or(l.Silence, d.Silence), Keep: max(0, cmp.Or(l.Keep, d.Keep)),
	}
}

// tokenUser is the user name of programs that have no certificate, only the token.
const tokenUser = "remote"

// How many refusals, and how many sessions that are cut or resumed, are logged in a minute.
const mostRefusals, mostCuts = 20, 100

// CUresult codes of refusals.
const (
	resultNotPermitted = 800
	resultNotReady     = 802
	resultMismatch     = 803
)

// Gateway accepts the connections of other machines.
type Gateway struct {
	Config
	listener *door.Listener
	unknown  *door.Places  // by address
	known    *door.Places  // by user or job
	lanes    *door.Places  // by user or job; apart, so that lanes do not take the places that programs need
	peers    *door.Places  // of nodes that ask for virtual GPUs, by node
	nodes    *door.Places  // of other conversations between nodes, by node
	takers   *door.Places  // of nodes that fetch parcels, by node: they must not use up the former
	shelf    *parcel.Shelf // data of guests for other nodes
	ended    atomic.Bool

	given, fetched atomic.Uint64 // bytes of parcels, by which data went past the programs' nodes
	resumed        atomic.Uint64 // sessions, each time

	refusals, cuts door.Sparing // what is logged of them

	mu      sync.Mutex
	bridges map[wire.LaneKey]*bridge // that accept lanes and can be resumed, by their secret key
	reasons map[wire.LaneKey]string  // why sessions ended that nobody was connected to
	shown   map[*shown]struct{}      // certificates of those who are connected
}

// New makes a gateway. It accepts connections once Serve is called.
func New(listener *net.TCPListener, c Config) (*Gateway, error) {
	switch {
	case c.Plain && c.Token == "":
		return nil, errors.New("without TLS a token is all that says who may come: give one (token: in the file of --config), or leave plain out")
	case c.TLS == nil && c.Plain:
	case c.TLS == nil || len(c.TLS.Certificates) == 0:
		return nil, errors.New("a node that others can reach needs a certificate: muster cert makes one")
	case c.TLS.ClientCAs == nil && c.Token == "" && !c.Grants:
		return nil, errors.New("anybody could come: give the authority that vouches for users, or a token")
	}
	if c.TLS != nil {
		c.TLS = strict(c.TLS, c.Log)
		c.TLS.NextProtos = append(c.TLS.NextProtos, slices.Sorted(maps.Keys(c.Nodes))...)
		c.TLS.NextProtos = append(c.TLS.NextProtos, parcel.Protocol)
	}
	c.Limits, c.LaneFrom = c.Limits.complete(), cmp.Or(c.LaneFrom, lanes.Worth)
	g := &Gateway{
		Config: c, listener: door.Listen(listener, false),
		unknown: door.NewPlaces(c.Limits.Unknown, c.Limits.Unknown),
		known:   door.NewPlaces(c.Limits.User, c.Limits.All),
		lanes:   door.NewPlaces(c.Limits.User, c.Limits.All),
		peers:   door.NewPlaces(peersEach, c.Limits.All),
		nodes:   door.NewPlaces(c.Limits.User, c.Limits.All),
		takers:  door.NewPlaces(c.Limits.User, c.Limits.All),
		bridges: map[wire.LaneKey]*bridge{}, reasons: map[wire.LaneKey]string{}, shown: map[*shown]struct{}{}, shelf: parcel.NewShelf(),
		refusals: door.Sparing{Most: mostRefusals}, cuts: door.Sparing{Most: mostCuts},
	}
	g.shelf.Guard = wire.Guard
	g.Nodes = maps.Clone(c.Nodes)
	if g.Nodes == nil {
		g.Nodes = map[string]func(context.Context, net.Conn){}
	}
	g.Nodes[parcel.Protocol] = g.serveParcels
	g.listener.Notice = func(trouble error) {
		if trouble != nil {
			c.Log.Error("no connections of other machines can be accepted for now", "error", trouble)
		} else {
			c.Log.Info("connections of other machines can be accepted again")
		}
	}
	return g, nil
}

// Trouble returns why connections cannot be served; nil if they can.
func (g *Gateway) Trouble() error {
	if g.ended.Load() {
		return errors.New("programs of other machines are no longer served")
	}
	if trouble := g.listener.Trouble(); trouble != nil {
		return fmt.Errorf("no connection can be accepted: %w", trouble)
	}
	return nil
}

// Parcels is how many bytes of guests other nodes have fetched here, and how many were fetched from
// other nodes.
func (g *Gateway) Parcels() (given, fetched uint64) { return g.given.Load(), g.fetched.Load() }

// Sessions is how many sessions have no connection at present, how often one was resumed, and how many
// bytes are kept to be sent again.
func (g *Gateway) Sessions() (cut int, resumed, kept uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.bridges {
		bytes, isCut := b.link.Kept()
		if kept += bytes; isCut {
			cut++
		}
	}
	return cut, g.resumed.Load(), kept
}

// Cut says of clients that have no connection at present how long their programs' sides may still
// resume them.
func (g *Gateway) Cut() map[uint64]time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	cut := map[uint64]time.Duration{}
	for _, b := range g.bridges {
		if left, is := b.link.Left(); is {
			cut[b.session.Attached.Client] = left
		}
	}
	return cut
}

// Serve accepts connections until ctx is cancelled, and then ends all of them.
func (g *Gateway) Serve(ctx context.Context) {
	defer g.ended.Store(true)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = g.listener.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	g.watchRevoked(ctx)
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		// A new unknown connection displaces the oldest, so their number is bounded.
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

// strict accepts no certificate that does not verify.
func strict(given *tls.Config, log *slog.Logger) *tls.Config {
	auth := tls.NoClientCert
	if given.ClientCAs != nil { // a program without a certificate may have a grant
		auth = tls.VerifyClientCertIfGiven
	}
	return trust.Listen(given, auth, log, wire.StreamProtocol, wire.LaneProtocol, wire.ResumeProtocol, borrow.Protocol)
}

// serve serves one connection to its end.
func (g *Gateway) serve(ctx context.Context, plain net.Conn, unknown *door.Place) {
	defer plain.Close()
	log := g.Log.With("from", plain.RemoteAddr().String())
	if tcp, ok := plain.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = door.GiveUpAfterAMinute("", "", raw)
		}
	}
	_ = plain.SetDeadline(time.Now().Add(g.Limits.Greet))
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, protocol, err := g.meet(plain, func(c *tls.Conn) error { return c.HandshakeContext(ctx) })
	var broken *trust.BrokenList
	switch {
	case errors.As(err, &broken):
		broken.Tell(g.Log)
		return
	case err != nil && saysNothing(err):
		log.Debug("a connection was refused", "error", err)
		return
	case err != nil:
		g.refusals.Info(log, "a connection was refused", "error", err)
		return
	}
	switch protocol {
	case wire.LaneProtocol:
		g.serveLane(conn, unknown, stop)
		return
	case wire.ResumeProtocol:
		g.resume(conn, unknown, stop, log)
		return
	}
	papers := g.remember(conn, func(string) { _ = plain.Close() })
	defer g.discard(papers)
	if protocol == borrow.Protocol { // negotiated with TLS only
		g.servePeer(ctx, conn.(*tls.Conn), unknown, log)
		return
	}
	if protocol := protocolOf(conn); g.Nodes[protocol] != nil {
		stop()
		places := g.nodes
		if protocol == parcel.Protocol {
			places = g.takers
		} else {
			door.GiveUpNever(plain)
		}
		g.serveNode(ctx, conn, unknown, places, g.Nodes[protocol], log)
		return
	}
	v := &visitor{Gateway: g, conn: conn, in: bufio.NewReaderSize(conn, bufferSize)}
	defer v.leave()
	session, err := v.setUp(ctx, unknown)
	var refused *wire.Refused
	switch {
	case errors.As(err, &refused):
		g.refusals.Info(log, "a program was refused", "user", v.user, "reason", refused.Reason)
		_ = wire.WriteRecord(conn, refused)
		_ = conn.Close()
		return
	case err != nil:
		log.Debug("a connection ended", "user", v.user, "error", err)
		return
	}
	stop() // from here on the bridge ends it, and tells the program why
	_ = plain.SetDeadline(time.Time{})
	log.Debug("a program is served", "user", v.user, "client", session.Attached.Client)
	b := newBridge(v, session)
	g.admit(b)
	g.endBy(papers, b.over)
	reason := b.run(ctx)
	g.endBy(papers, nil)
	log.Debug("a program is no more served", "user", v.user, "client", session.Attached.Client, "reason", reason)
}

// protocolOf returns the protocol that TLS agreed on; "" without TLS.
func protocolOf(conn link) string {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.ConnectionState().NegotiatedProtocol
	}
	return ""
}

// serveNode serves the daemon of another node, which must have a node's certificate.
func (g *Gateway) serveNode(ctx context.Context, conn link, unknown *door.Place, places *door.Places, serve func(context.Context, net.Conn), log *slog.Logger) {
	certificates := conn.(*tls.Conn).ConnectionState().PeerCertificates
	if len(certificates) == 0 || identity.KindOf(certificates[0]) != identity.Node {
		g.refusals.Info(log, "a connection was refused", "error", "it wants to speak as a node, and has no node's certificate")
		return
	}
	plain := conn.NetConn()
	place, err := places.Take(certificates[0].Subject.CommonName, false, func() { _ = plain.Close() })
	if err != nil || !place.Use() {
		g.refusals.Info(log, "a connection was refused", "error", "there are as many connections of other nodes as there may be")
		return
	}
	defer place.Leave()
	unknown.Leave()
	_ = plain.SetDeadline(time.Time{})
	serve(ctx, conn)
}

// saysNothing says whether a handshake failed because the peer sent nothing, or hung up: that is for
// debugging only.
func saysNothing(err error) bool {
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}

// visitor is a connection that has shown a certificate, if one is required.
type visitor struct {
	*Gateway
	conn  link
	in    *bufio.Reader
	user  string
	grant string       // the credential that it has shown
	guest bool         // it is another node, which has a device of this one as its own
	key   wire.LaneKey // of the lanes that it may open, and of its session
	whose string       // the key of place: a user or a job
	place *door.Place  // among the known connections
}

func (v *visitor) leave() { v.place.Leave() }

// setUp makes a connection a client of the daemon. It takes nothing of the daemon before the
// connection is authenticated, nor while the connection waits.
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

// letIn finds out whose connection it is, and what the daemon answers to its hello. Only the daemon
// knows whether a grant is valid, so until it has answered, a connection with a grant takes no
// place of a job.
func (v *visitor) letIn(hello *wire.Hello) (*client.Session, error) {
	user, err := v.identify(v.conn, hello)
	if err != nil {
		return nil, err
	}
	v.user, v.grant, v.guest = user, hello.Grant, hello.Guest != 0
	if hello.Grant == "" {
		if err := v.takePlace(user, "user "+user); err != nil {
			return nil, err
		}
	}
	hello.Token = wire.SpeakFor(user, v.conn.RemoteAddr().String())
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

// tell sends the program the daemon's answer.
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

// wait waits until the program asks for a device. It may do much else first.
func (v *visitor) wait(ctx context.Context) (wanted wire.Attach, err error) {
	_ = v.conn.SetDeadline(time.Now().Add(v.Limits.Idle))
	if err := ctx.Err(); err != nil {
		return wanted, err // the deadline just set may have replaced the one that the end of ctx had set
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

// errMadeRoom ends a connection that was closed to make room for a newer one.
var errMadeRoom = errors.New("it was closed to make room for others of its user")

// attach makes the connection the client of a device. The devices must still be those that the
// program was told of.
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
	_ = v.conn.SetWriteDeadline(time.Now().Add(v.Limits.Greet)) // starting a worker may have taken longer than Greet
	if err != nil {
		return notReady(err)
	}
	if err := wire.WriteRecord(v.conn, &session.Attached); err != nil {
		return err
	}
	if _, err := rand.Read(v.key[:]); err != nil {
		return err
	}
	geometry := wire.Frame{Kind: wire.FrameGeometry, Geometry: session.Shared.Geometry(), Lanes: lanes.Most, From: v.LaneFrom, Key: v.key,
		Silence: uint64(v.Limits.Silence / time.Millisecond), Keep: uint64(v.Limits.Keep / time.Millisecond)}
	_, err = v.conn.Write(geometry.Append(nil))
	return err
}

// jobKey returns a key that tells jobs apart, from each other and from users.
func jobKey(credential string) string { return "job " + grant.Credential(credential).Hash().String() }

// takePlace takes one of the places of a user or a job, or refuses the connection.
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

// identify returns the user of a connection, or refuses it; "" if a grant decides.
func (c *Config) identify(conn link, hello *wire.Hello) (string, error) {
	secure, ok := conn.(*tls.Conn)
	switch {
	case !ok && hello.Grant != "": // anyone on the network could have read it
		return "", &wire.Refused{Result: resultNotPermitted, Reason: "a grant's credential must not travel without TLS: leave --plain out"}
	case !ok: // MeetPlain has checked that it knows the token
		return tokenUser, nil
	}
	state := secure.ConnectionState()
	certified := len(state.PeerCertificates) > 0
	switch {
	case hello.Grant != "" && !certified:
		return "", nil
	case hello.Grant == "" && c.Token != "" && !sameSecret(hello.Token, c.Token):
		return "", &wire.Refused{Result: resultNotPermitted, Reason: "the node wants a token, and was given none or another: put the one that its administrator has into $MUSTER_TOKEN"}
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

// sameSecret compares in constant time.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// spoken turns an error of reading into a refusal if the peer sent something wrong. If it sent
// nothing, the error stays as it is.
func spoken(err error) error {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return err
	}
	return &wire.Refused{Result: resultMismatch, Reason: "this is a Muster node, and what came is not what a program says: " + err.Error()}
}

// notReady turns an error between gateway and daemon into a refusal.
func notReady(err error) error {
	var refused *wire.Refused
	if errors.As(err, &refused) {
		return refused
	}
	return &wire.Refused{Result: resultNotReady, Reason: "the node could not serve the program: " + err.Error()}
}
