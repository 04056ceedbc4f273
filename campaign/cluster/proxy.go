package cluster

import (
	"net"
	"sync"
	"time"
)

// proxy is a link between two processes that can be disturbed.
type proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	mode   linkMode
	delay  time.Duration
	healed chan struct{} // closed when the link works again
	conns  map[net.Conn]bool
	lost   map[*pair]bool // true for connections that are half-open
	closed chan struct{}
	serves sync.WaitGroup
}

// pair is a connection with its continuation.
type pair struct{ near, far net.Conn }

// linkMode is the state of a link.
type linkMode int

const (
	linkWell  linkMode = iota
	linkCut            // connections are closed, and new ones refused
	linkStall          // nothing passes until the link works again
	linkSlow           // everything is delayed
	// linkHalfOpen: what is sent on the present connections vanishes, also when the link works
	// again, and their sides are not told, not even that the other has closed its own.
	linkHalfOpen
)

// newProxy listens on a free port, for connections to target.
func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}, lost: map[*pair]bool{}, closed: make(chan struct{})}
	p.serves.Go(p.serve)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serves.Go(func() { p.connect(near) })
	}
}

// connect relays the data between two sides.
func (p *proxy) connect(near net.Conn) {
	defer p.forget(near)
	if !p.know(near) {
		return
	}
	far, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	defer p.forget(far)
	if !p.know(far) {
		return
	}
	c := &pair{near, far}
	p.mu.Lock()
	p.lost[c] = p.mode == linkHalfOpen
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.lost, c)
		p.mu.Unlock()
	}()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			p.pump(c, way[0], way[1])
			if !p.isLost(c) {
				near.Close()
				far.Close()
			}
		})
	}
	both.Wait()
	if p.isLost(c) { // one that closed its side knows; the other must not be told
		<-p.closed
	}
}

// used says whether there is a connection on which data pass.
func (p *proxy) used() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lost := range p.lost {
		if !lost {
			return true
		}
	}
	return false
}

func (p *proxy) isLost(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[c]
}

// know registers a connection, unless the link is cut.
func (p *proxy) know(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == linkCut {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// pump relays one direction. The end of a connection is delayed like data.
func (p *proxy) pump(c *pair, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.pass()
		if p.isLost(c) {
			n = 0
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits for as long as the link delays data.
func (p *proxy) pass() {
	p.mu.Lock()
	mode, delay, healed := p.mode, p.delay, p.healed
	p.mu.Unlock()
	switch mode {
	case linkStall:
		<-healed
	case linkSlow:
		select {
		case <-time.After(delay):
		case <-healed:
		}
	}
}

// hurt disturbs the link until heal.
func (p *proxy) hurt(mode linkMode, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.delay, p.healed = mode, delay, make(chan struct{})
	if mode == linkHalfOpen {
		for c := range p.lost {
			p.lost[c] = true
		}
	}
	if mode == linkCut {
		for c := range p.conns {
			c.Close()
		}
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode != linkWell {
		p.mode = linkWell
		close(p.healed)
	}
}

func (p *proxy) close() {
	p.heal()
	p.listener.Close()
	close(p.closed)
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.mode, p.healed = linkCut, make(chan struct{})
	p.mu.Unlock()
	p.serves.Wait()
}
