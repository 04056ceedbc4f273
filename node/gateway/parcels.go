package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"muster/internal/door"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/identity"
	"muster/wire/parcel"
	"muster/wire/trust"
)

// Data go from the device of one lender to that of another without passing through the node of the
// program (wire/parcel). The gateway of the first keeps parcels for the second (give), and that of
// the second fetches them (porter). Neither daemon nor workers know of it: to the workers these are
// a copy from the device and a copy to it.

// A parcel is read through a bounce buffer.
const _ = uint(parcel.Most-wire.BounceBuffer) + uint(wire.BounceBuffer-parcel.Most)

// laneConn is a connection on which long writes are few.
type laneConn struct {
	*tls.Conn
	lane *door.Lane
}

func (c laneConn) Write(b []byte) (int, error) { return c.lane.Write(b) }

// serveParcels gives another node the parcels that guests have left for it here.
func (g *Gateway) serveParcels(ctx context.Context, conn net.Conn) {
	secure := conn.(*tls.Conn) // serveNode has seen its certificate
	taker := parcel.HolderOf(secure.ConnectionState().PeerCertificates[0])
	_ = g.shelf.Serve(ctx, laneConn{secure, door.NewLane(secure, g.Limits.Silence)}, taker)
}

// own is how other nodes know this one; the zero value if it has no certificate.
func (g *Gateway) own() (own parcel.Holder) {
	if g.TLS != nil && len(g.TLS.Certificates) > 0 && g.TLS.Certificates[0].Leaf != nil {
		own = parcel.HolderOf(g.TLS.Certificates[0].Leaf)
	}
	return own
}

// errNoGuest ends clients that are no guests and send what only guests may.
var errNoGuest = errors.New("only a guest may send this")

// give reads bytes of a guest's memory and keeps them for another node.
func (b *bridge) give(h wire.Header, body []byte) error {
	var m wire.ParcelGive
	if err := m.Decode(body); err != nil {
		return err
	}
	var key parcel.Key
	var taker parcel.Holder
	data, err := b.unstaged(h.Data, h.Length)
	switch {
	case err != nil:
		return fmt.Errorf("%v: %w", h.Op, err)
	case !b.visitor.guest:
		return errNoGuest
	case copy(key[:], m.Key) != len(m.Key) || copy(taker[:], m.Taker) != len(m.Taker) || len(m.Key) != len(key) || len(m.Taker) != len(taker) || h.Length == 0 || h.Length > parcel.Most:
		return fmt.Errorf("%v of %d bytes, with a key of %d and a taker of %d", h.Op, h.Length, len(m.Key), len(m.Taker))
	case !b.waits[h.Slot].CompareAndSwap(false, true):
		return fmt.Errorf("%v wants its answer in slot %d, where one is due already", h.Op, h.Slot)
	}
	p, err := b.visitor.shelf.Leave(key, taker)
	if err != nil {
		b.answerParcel(h, resultNotReady)
		return nil
	}
	read := wire.CopyOut{Src: m.Src, Stream: m.Stream}
	pending, err := b.session.Producer.Start(wire.Header{Op: read.Op(), Data: h.Data, Length: h.Length}, read.Append(nil))
	if err != nil {
		p.Withdraw()
		return err
	}
	b.all.Go(func() {
		defer p.Withdraw()
		result, _, err := pending.Wait()
		if err != nil {
			return
		}
		if result == 0 {
			result = b.keep(p, data)
		}
		b.answerParcel(h, result)
	})
	return nil
}

// keep keeps a parcel until it is fetched, or nobody comes for it.
func (b *bridge) keep(p *parcel.Parcel, data []byte) (result int32) {
	late := time.NewTimer(parcel.Patience)
	defer late.Stop()
	p.Fill(data)
	defer p.Withdraw() // before the client may use the buffer for something else
	select {
	case <-p.Taken():
		b.visitor.given.Add(uint64(len(data)))
		return 0
	case <-late.C:
	case <-b.isOver:
	}
	return resultNotReady
}

// answerParcel answers one of the two messages. Neither has data of its own for the client.
func (b *bridge) answerParcel(h wire.Header, result int32) {
	h.Data, h.Length = 0, 0
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	b.reply(given{header: h}, result, nil)
	b.push()
}

const (
	// mostOrders is how many parcels of a client may wait to be fetched.
	mostOrders = 64
	// mostAsked is how many are asked for before the first has come.
	mostAsked = 16
	// mostOrigins is to how many other gateways a client's porter has connections at a time.
	mostOrigins = 8

	originTime = 5 * time.Second // for connecting, and after a failure until it is tried again
	originIdle = parcel.Idle / 2 // after this time the other side may have hung up
)

// order is a parcel to be fetched.
type order struct {
	header wire.Header
	copy   wire.CopyIn
	size   int
	key    parcel.Key
	from   origin
}

// origin is the gateway that has a parcel.
type origin struct {
	holder  parcel.Holder
	address string
}

// fetch has a parcel fetched, and copied to a guest's memory.
func (b *bridge) fetch(h wire.Header, body []byte) error {
	var m wire.ParcelTake
	if err := m.Decode(body); err != nil {
		return err
	}
	o := order{header: h, copy: wire.CopyIn{Dst: m.Dst, Stream: m.Stream}, size: int(m.Size), from: origin{address: m.Address}}
	switch {
	case !b.visitor.guest:
		return errNoGuest
	case copy(o.key[:], m.Key) != len(m.Key) || copy(o.from.holder[:], m.Giver) != len(m.Giver) || len(m.Key) != len(o.key) || len(m.Giver) != len(o.from.holder) || m.Size == 0 || m.Size > parcel.Most:
		return fmt.Errorf("%v of %d bytes, with a key of %d and a giver of %d", h.Op, m.Size, len(m.Key), len(m.Giver))
	case !b.waits[h.Slot].CompareAndSwap(false, true):
		return fmt.Errorf("%v wants its answer in slot %d, where one is due already", h.Op, h.Slot)
	}
	if b.orders == nil {
		b.orders = make(chan order, mostOrders)
		p := &porter{bridge: b, conns: map[origin]*source{}, failed: map[origin]time.Time{}}
		b.guarded(p.run)
	}
	select {
	case b.orders <- o:
	default:
		b.answerParcel(h, resultNotReady)
	}
	return nil
}

// porter fetches the parcels of one client, in order. The reader does not wait for it, since it
// waits for other nodes; the client sends what comes after a parcel when that is answered.
type porter struct {
	*bridge
	ctx    context.Context
	conns  map[origin]*source
	failed map[origin]time.Time // when
}

// source is a connection to another gateway.
type source struct {
	*tls.Conn
	used   time.Time
	broken bool
	forget func() bool // takes back that the end of the porter closes it
}

// drop closes a connection.
func (s *source) drop() {
	s.broken = true
	s.forget()
	_ = s.NetConn().Close()
}

func (p *porter) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.all.Go(func() {
		<-p.isOver
		cancel()
	})
	p.ctx = ctx
	defer p.hangUp()
	buffer := make([]byte, parcel.Most)
	for {
		var batch []order
		select {
		case o := <-p.orders:
			batch = append(batch, o)
		case <-p.isOver:
			return
		}
		for more := true; more && len(batch) < mostAsked; {
			select {
			case o := <-p.orders:
				batch = append(batch, o)
			default:
				more = false
			}
		}
		p.carry(batch, buffer)
	}
}

func (p *porter) hangUp() {
	for _, s := range p.conns {
		s.drop()
	}
	clear(p.conns)
}

// carry fetches parcels. It asks for all of them before it waits for the first.
func (p *porter) carry(batch []order, buffer []byte) {
	own := p.visitor.own()
	from := make([]*source, len(batch))
	for i, o := range batch {
		if o.from.holder == own { // two devices of this node
			continue
		}
		s, err := p.reach(o.from)
		if err == nil {
			err = parcel.Ask(s, o.key)
		}
		if err != nil {
			p.fails(o.from, s, err)
			continue
		}
		from[i] = s
	}
	for i, o := range batch {
		to, there := buffer[:o.size], false
		switch s := from[i]; {
		case o.from.holder == own:
			there = p.visitor.shelf.Take(p.ctx, o.key, own, to) == o.size
		case s == nil || s.broken:
		default:
			err := parcel.Receive(s, to)
			if there = err == nil; there {
				s.used = time.Now()
			} else if !errors.Is(err, parcel.ErrNone) {
				p.fails(o.from, s, err)
			}
		}
		if there && p.session.Producer.SendData(wire.Header{Op: o.copy.Op(), Slot: -1}, o.copy.Append(nil), to) != nil {
			return // the bridge is over
		}
		if !there {
			p.answerParcel(o.header, resultNotReady)
			continue
		}
		p.visitor.fetched.Add(uint64(o.size))
		p.answerParcel(o.header, 0)
	}
}

// fails gives up a gateway for a moment.
func (p *porter) fails(from origin, s *source, why error) {
	if len(p.failed) >= mostOrigins {
		clear(p.failed)
	}
	p.failed[from] = time.Now()
	if s != nil {
		s.drop()
		if p.conns[from] == s {
			delete(p.conns, from)
		}
	}
	p.visitor.Log.Debug("data of another node cannot be fetched from it: the program's node brings them", "from", from.address, "error", why)
}

// errNoPeer refuses to connect to an address that only the client has named.
var errNoPeer = errors.New("it is none of this node's peers")

// reach connects to the gateway that has a parcel, which must be that of a peer.
func (p *porter) reach(from origin) (*source, error) {
	if s := p.conns[from]; s != nil {
		if time.Since(s.used) < originIdle {
			return s, nil
		}
		s.drop()
		delete(p.conns, from)
	}
	g := p.visitor.Gateway
	if at, failed := p.failed[from]; failed && time.Since(at) < originTime {
		return nil, errors.New("it could not be reached a moment ago")
	}
	if g.TLS == nil || g.TLS.ClientCAs == nil || g.Peer == nil {
		return nil, errNoPeer
	}
	ctx, cancel := context.WithTimeout(p.ctx, originTime)
	defer cancel()
	address, is := g.Peer(ctx, from.address)
	if !is {
		return nil, errNoPeer
	}
	if len(p.conns) >= mostOrigins {
		p.hangUp()
	}
	config := trust.Dial(g.TLS, func(c *x509.Certificate) error {
		if identity.KindOf(c) != identity.Node || parcel.HolderOf(c) != from.holder {
			return errors.New("it is not the node that the client means")
		}
		return nil
	}, parcel.Protocol)
	conn, err := client.Dialler(address, config)(ctx)
	if err != nil {
		return nil, err
	}
	s := &source{Conn: conn.(*tls.Conn), used: time.Now()}
	s.forget = context.AfterFunc(p.ctx, func() { _ = s.NetConn().Close() })
	p.conns[from] = s
	return s, nil
}
