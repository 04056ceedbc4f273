package gateway

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"time"

	"muster/internal/door"
	"muster/wire"
)

// admit lets a bridge accept lanes and be resumed, until it ends.
func (g *Gateway) admit(b *bridge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bridges[b.visitor.key] = b
}

// dismiss stops a bridge from accepting lanes and from being resumed.
func (g *Gateway) dismiss(b *bridge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := b.visitor.key
	if g.bridges[key] != b {
		return
	}
	delete(g.bridges, key)
	// If nobody is connected at this moment, the program's side may come and ask.
	if g.Limits.Keep > 0 && b.reason != "" && len(g.reasons) < g.Limits.All {
		g.reasons[key] = b.reason
		time.AfterFunc(g.Limits.Keep, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.reasons, key)
		})
	}
}

// Refusals to resume a session.
const (
	noSession   = "the node has ended the session, or was started again: what the program had there is lost. Start the program again"
	notYours    = "the session is another user's or grant's"
	sessionOver = "the session has ended"
)

// resume lets the client of a session whose connection broke go on over a new one. The peer shows who
// it is, as the client did then, and the key that only the client was told.
func (g *Gateway) resume(conn link, unknown *door.Place, unhurried func() bool, log *slog.Logger) {
	refuse := func(reason string) {
		g.refusals.Info(log, "a session was not resumed", "reason", reason)
		_, _ = conn.Write((&wire.Frame{Kind: wire.FrameClosed, Reason: reason}).Append(nil))
		_ = conn.Close()
	}
	var hello wire.Hello
	if err := wire.ReadAs(conn, &hello); err != nil {
		return
	}
	user, err := g.identify(conn, &hello)
	if err != nil {
		refuse(err.Error())
		return
	}
	ask, err := wire.NewFrameReader(conn).Next()
	if err != nil || ask.Kind != wire.FrameResume {
		return
	}
	g.mu.Lock()
	b, reason := g.bridges[ask.Key], cmp.Or(g.reasons[ask.Key], noSession)
	if b != nil { // under g.mu: a bridge that is ending waits for this connection
		b.all.Add(1)
	}
	g.mu.Unlock()
	if b == nil {
		refuse(reason)
		return
	}
	defer b.all.Done()
	if v := b.visitor; v.user != user || !sameSecret(v.grant, hello.Grant) || !bytes.Equal(leafOf(v.conn), leafOf(conn)) {
		refuse(notYours)
		return
	}
	if ask.Last {
		b.over("")
		refuse(sessionOver)
		return
	}
	unhurried()
	lost, err := b.link.Resume(conn, ask.Offset, func(arrived uint64) error {
		_, err := conn.Write((&wire.Frame{Kind: wire.FrameResume, Offset: arrived}).Append(nil))
		_ = conn.SetDeadline(time.Time{})
		return err
	})
	if err != nil {
		g.refusals.Info(log, "a session was not resumed", "reason", err)
		return
	}
	unknown.Leave()
	g.resumed.Add(1)
	g.cuts.Info(log, "a session is resumed", "user", user, "client", b.session.Attached.Client)
	<-lost
}

// leafOf is the certificate that the peer of a connection has shown; nil if none.
func leafOf(conn link) []byte {
	if secure, ok := conn.(*tls.Conn); ok && len(secure.ConnectionState().PeerCertificates) > 0 {
		return secure.ConnectionState().PeerCertificates[0].Raw
	}
	return nil
}

// serveLane serves a lane, a connection for a client's bulk data. The peer sends the key that only
// the client was told. Once the lane is the client's, it ends with the client's bridge, which tells
// the client why, and not with the gateway: unhurried stops the gateway's end from closing it.
func (g *Gateway) serveLane(conn link, unknown *door.Place, unhurried func() bool) {
	var key wire.LaneKey
	if _, err := io.ReadFull(conn, key[:]); err != nil {
		return
	}
	g.mu.Lock()
	b := g.bridges[key]
	if b != nil { // under g.mu: a bridge that is ending waits for this lane
		b.all.Add(1)
	}
	g.mu.Unlock()
	if b == nil {
		return
	}
	defer b.all.Done()
	place, err := g.lanes.Take(b.visitor.whose, false, func() { _ = conn.NetConn().Close() })
	if err != nil {
		return // the client makes do with the lanes it has
	}
	defer place.Leave()
	if !place.Use() {
		return
	}
	unknown.Leave()
	bulk, err := sealed(conn)
	if err != nil {
		return
	}
	lane := door.NewLane(bulk, g.Limits.Silence)
	if b.lanes.Join(lane) != nil {
		return
	}
	unhurried()
	_ = conn.SetDeadline(time.Time{})
	if b.confirm(conn, lane) != nil {
		lane.HangUp()
	}
	if err := b.lanes.Serve(lane); err != nil {
		b.over(unread(err))
	}
}

// sealed returns what carries the data of a lane: TLS itself only if it uses another cipher than
// door.Sealed, and the connection itself without TLS.
func sealed(conn link) (net.Conn, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return conn, nil
	}
	bulk, err := door.Seal(secure, false)
	if err != nil || bulk == nil {
		return conn, err
	}
	return bulk, nil
}

// confirm tells the client that a lane is accepted, and waits until it has read that.
func (b *bridge) confirm(conn link, lane *door.Lane) error {
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(lane, make([]byte, 1))
	return err
}
