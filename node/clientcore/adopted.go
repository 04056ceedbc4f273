package clientcore

import "muster/wire/control"

// Adopted says that another daemon serves the client from now on. The core tells it the client's
// standing, and asks it again for whatever the last daemon did not answer. The executor must have
// handed in everything that the last daemon said.
//
// Nothing need be remembered to ask again: the message that waits is handled from its beginning,
// and finds that nothing was asked.
func (c *Core) Adopted(now Time) ([]Op, error) {
	c.start(now)
	c.Lease.Wanting, c.Lease.Growing, c.Lease.Stale, c.Lease.Coming = false, false, false, 0
	c.Asked.Bytes = 0
	for i := range c.Further { // the next daemon has lent nothing
		f := &c.Further[i]
		f.Leaving, f.Former, f.Asked, f.Returned = true, true, false, 0
	}
	c.Activity.unwatch(c)
	c.say(c.Standing())
	c.Activity.report(c)
	if c.Head == nil {
		c.commitLess(c.onHost())
	}
	return c.advance()
}

// Standing is what a daemon must know about a client that it has not served before.
func (c *Core) Standing() control.Standing {
	s := control.Standing{Lease: c.Lease.Number, Failed: c.Faulted != nil, Committed: c.Committed}
	if l := &c.Lease; l.Held {
		s.Held, s.Device, s.Memory = true, l.Device, l.Memory
		return s
	}
	s.Keeps = c.keeps()
	for i, d := range c.config.Devices {
		if c.context(d.Place) != nil {
			s.Device = i
		}
	}
	return s
}

// unwatch notes that no daemon wants to know whether the client is idle. A daemon that does sends
// Watch.
func (a *Activity) unwatch(c *Core) {
	a.Idle = false
	if a.Watching {
		a.Watching = false
		c.emit(Op{Kind: WatchWaits})
	}
}
