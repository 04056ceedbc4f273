package gateway

import (
	"crypto/tls"
	"io"
	"net"
	"time"

	"muster/internal/door"
	"muster/wire"
)

// admitLanes lets a bridge accept lanes, until it ends.
func (g *Gateway) admitLanes(b *bridge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bridges[b.visitor.key] = b
}

// dismissLanes stops a bridge from accepting lanes.
func (g *Gateway) dismissLanes(b *bridge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.bridges, b.visitor.key)
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
	if err := b.confirm(conn, lane); err != nil {
		b.over("")
		return
	}
	b.over(unread(b.lanes.Serve(lane))) // the client cannot go on without it
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
	lane.Begun(true)
	_, err := io.ReadFull(lane, make([]byte, 1))
	return err
}
