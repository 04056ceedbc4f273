package daemon

import (
	"net"
	"slices"
	"sync"

	"muster/ivm/core"
	"muster/ivm/proto"
)

// A node's gateway has places for so many connections of another node, for the programs of all users. So
// a user's programs share a few for each purpose. A program that needs one while all are in use waits, and
// takes over that of another program which is idle.

// mostLinks is how many connections a user's programs have to another node for one purpose.
const mostLinks = 8

// exchanging is the purpose of gets and puts. Others are the requests proto.AskGroup and proto.SyncGroup:
// the first has another node make the second, and that one has this node exchange pages, so none of
// them may wait for a connection that the one before it has.
const exchanging = proto.GetPages

// purpose is what a member has connections for.
type purpose struct {
	node core.NodeID
	kind proto.Op
}

// reached is a node that a user's programs have connections to for a purpose.
type reached struct {
	address string
	kind    proto.Op
}

// links are the connections of a user's programs to a node for one purpose. mu protects the pools, too,
// and the service's mu programs.
type links struct {
	programs int // that have a pool of them

	mu     sync.Mutex
	change *sync.Cond
	open   int         // also those that are being made
	idle   []*dataConn // those of them that no exchange uses, of all programs
}

// linksTo returns the links of a user to a node, for another program.
func (s *Service) linksTo(of *share, to reached) *links {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := of.links[to]
	if l == nil {
		l = &links{}
		l.change = sync.NewCond(&l.mu)
		of.links[to] = l
	}
	l.programs++
	return l
}

// forgetLinks notes that a program that is over needs its links no more. The caller holds the service's mu.
func (m *member) forgetLinks(pools map[purpose]*pool) {
	for to, p := range pools {
		if p.links.programs--; p.links.programs == 0 {
			delete(m.share.links, reached{m.program.Nodes[to.node], to.kind})
		}
	}
}

// pool has a program's connections to another member for one purpose.
type pool struct {
	links  *links
	all    map[*dataConn]bool
	closed bool
}

// take returns an idle connection of the pool, or a new one.
func (p *pool) take(dial func() (*dataConn, error)) (*dataConn, error) {
	c, err := p.await()
	if err != nil || c != nil && c.pool == p {
		return c, err
	}
	if c != nil { // another program's, which makes room
		c.Close()
	}
	c, err = dial()
	l := p.links
	l.mu.Lock()
	if err == nil && !p.closed {
		p.all[c] = true
		l.mu.Unlock()
		return c, nil
	}
	l.lose(1)
	l.mu.Unlock()
	if err == nil {
		c.Close()
		err = net.ErrClosed
	}
	return nil, err
}

// await waits for an idle connection of the pool, or until another may be made, which counts then. That
// may be in place of another program's, which is returned.
func (p *pool) await() (*dataConn, error) {
	l := p.links
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		own := slices.IndexFunc(l.idle, func(c *dataConn) bool { return c.pool == p })
		switch {
		case p.closed:
			return nil, net.ErrClosed
		case own >= 0:
			c := l.idle[own]
			l.idle = slices.Delete(l.idle, own, own+1)
			return c, nil
		case l.open < mostLinks:
			l.open++
			return nil, nil
		case len(l.idle) > 0: // the one that has been idle for longest
			c := l.idle[0]
			l.idle = slices.Delete(l.idle, 0, 1)
			delete(c.pool.all, c)
			return c, nil
		}
		l.change.Wait()
	}
}

// lose notes that there are fewer connections. The caller holds mu.
func (l *links) lose(n int) {
	l.open -= n
	l.change.Broadcast()
}

// close ends the connections of a pool, and all waits for one.
func (p *pool) close() {
	l := p.links
	l.mu.Lock()
	defer l.mu.Unlock()
	p.closed = true
	before := len(l.idle)
	l.idle = slices.DeleteFunc(l.idle, func(c *dataConn) bool { return c.pool == p })
	l.lose(before - len(l.idle)) // the others leave
	for c := range p.all {
		go c.Close()
	}
}

// leave makes the connection idle if it still works, and closes it otherwise.
func (c *dataConn) leave(good bool) {
	p, l := c.pool, c.pool.links
	l.mu.Lock()
	if good && !p.closed {
		l.idle = append(l.idle, c)
		l.change.Broadcast()
		l.mu.Unlock()
		return
	}
	delete(p.all, c)
	l.lose(1)
	l.mu.Unlock()
	c.Close()
}
