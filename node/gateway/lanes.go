package gateway

import (
	"io"
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
	lane := door.NewLane(conn, g.Limits.Silence)
	if b.lanes.Join(lane) != nil {
		return
	}
	unhurried()
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte{1}); err != nil {
		b.over("")
		return
	}
	b.over(unread(b.lanes.Serve(lane))) // the client cannot go on without it
}
