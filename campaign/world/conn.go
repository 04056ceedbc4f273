package world

import (
	"time"

	"muster/head"
	"muster/wire/agent"
)

// conn is a connection between an agent and the head. In each direction messages keep their order
// (unless the world reorders them), take some time, and may arrive twice. When the connection
// breaks, messages in transit are lost, and each side notices in its own time.
type conn struct {
	w       *World
	host    *host
	life    uint64 // of the agent
	session head.Session
	dead    bool // nothing passes any longer
	down    time.Duration
	up      time.Duration // up and down: when the last message of each direction arrives
}

// connect makes a connection. It may fail.
func (h *host) connect() *conn {
	hd := h.w.head
	if hd.core == nil || h.w.now < h.cutUntil {
		return nil
	}
	hd.session++
	c := &conn{w: h.w, host: h, life: h.life, session: hd.session}
	hd.sessions[c.session] = c
	return c
}

// passage is the transit time of a message. *last is when the previous message arrives; the new one
// does not overtake it, unless the world reorders messages. Messages that begin and end loans
// always keep their order: a device is lent again once the node was told that the previous loan is
// over, and that relies on the order within a connection.
func (c *conn) passage(last *time.Duration, m any) time.Duration {
	loan := false
	switch m.(type) {
	case agent.Lend, agent.Unlend, agent.Limit:
		loan = true
	}
	if !loan && c.w.chance(c.w.Reorder) {
		return c.w.delay(20 * time.Millisecond)
	}
	*last = max(*last, c.w.now+c.w.delay(2*time.Millisecond))
	return *last - c.w.now
}

// toHead sends a message to the head.
func (c *conn) toHead(sent agent.ToHead) {
	m := c.w.toHead(sent)
	if m == nil {
		return
	}
	times := 1
	if c.w.chance(c.w.Repeat) {
		times = 2
	}
	for range times {
		c.w.after(c.passage(&c.up, m), func() {
			if c.dead || c.w.head.sessions[c.session] != c {
				return
			}
			if hello, ok := m.(agent.Hello); ok {
				if times == 1 { // the head refuses a second one, which other tests cover
					c.w.head.tell(head.Greeted{Session: c.session, Hello: hello})
					return
				}
				times = 1
				return
			}
			c.w.head.tell(head.Said{Session: c.session, Message: m})
		})
	}
}

// toAgent sends a message to the agent.
func (c *conn) toAgent(sent agent.ToAgent) {
	m := c.w.toAgent(c.session, sent)
	if m == nil {
		return
	}
	times := 1
	if c.w.chance(c.w.Repeat) {
		times = 2
	}
	for range times {
		c.w.after(c.passage(&c.down, m), func() {
			if !c.dead && c.host.conn == c && c.host.life == c.life {
				c.host.heard(m)
			}
		})
	}
}

// broken breaks the connection. Both sides notice, at different times.
func (c *conn) broken() { c.ends(c.w.delay(5*time.Second), c.w.delay(5*time.Second)) }

// halfOpen makes nothing pass any longer, and tells neither side: each notices by the other's silence.
func (c *conn) halfOpen() {
	silence := c.w.head.config().Silence
	c.ends(silence, 2*silence)
}

// ends makes nothing pass any longer. Each side notices after a time of its own.
func (c *conn) ends(ofHead, ofHost time.Duration) {
	if c.dead {
		return
	}
	c.dead = true
	hd, life := c.w.head, c.w.head.life
	c.w.after(ofHead, func() {
		if hd.core != nil && hd.life == life && hd.sessions[c.session] == c {
			delete(hd.sessions, c.session)
			hd.tell(head.HungUp{Session: c.session})
		}
	})
	c.w.after(ofHost, func() {
		if c.host.conn == c && c.host.life == c.life {
			c.host.hungUp()
		}
	})
}
