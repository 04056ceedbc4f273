package clientcore

import (
	"maps"
	"slices"
	"time"

	"muster/vmm"
	"muster/wire/control"
)

// Further devices. The kernels of a client whose launches are mapped run on several devices: that
// of its lease, which is its home, and others that the daemon lends as long as no other client
// needs them. The context at home is the first in Contexts. It alone has what can be in one context
// only: the contents of variables, textures, and what host functions need. Further contexts have
// the same modules. All of them are left when home is.

// Further is a device that the client was lent besides that of its lease, or has asked for.
type Further struct {
	Device  int
	Number  uint64 // of the loan; 0: none
	Memory  uint64 // bytes that may be used there
	Asked   bool   // a request is not answered yet
	Leaving bool   // the daemon wants it back, or it is unused
	NotBy   Time   // it is not asked for before this time
	Last    Time   // when a kernel was last launched there, or it was lent
	Vain    int    // how many times in a row it was lent for nothing
	// Returned is the last loan that went back. An answer to a request for more of it may still come,
	// or may not, and is about nothing. Former says that the loan is one of a daemon that has ended:
	// nothing comes of it, and its number may be that of another loan again.
	Returned uint64 `json:",omitempty"`
	Former   bool   `json:",omitempty"`

	Kernels int           // launched there since the last report to the daemon
	Ran     time.Duration // how long they ran
	Moved   uint64        // bytes that were copied there for them
}

// askAgain is how long the core waits before it asks again for a device that it did not get, or had
// to give back. A device of another node to which the mapper sent nothing for unusedFor goes back
// to the clients that can use it. Each time in a row that this happens the core waits twice as
// long, at most maxVain doublings.
const (
	askAgain  = time.Second
	unusedFor = 5 * time.Second
	maxVain   = 6
)

// further returns the loan of a device; nil if there is none and none was asked for. Launches ask for
// it, so that it does not look through the loans: furtherAt has the place of each, counted from 1.
func (c *Core) further(device int) *Further {
	for ; c.placed < len(c.Further); c.placed++ {
		d := c.Further[c.placed].Device
		for len(c.furtherAt) <= d {
			c.furtherAt = append(c.furtherAt, 0)
		}
		c.furtherAt[d] = c.placed + 1
	}
	if device >= len(c.furtherAt) || c.furtherAt[device] == 0 {
		return nil
	}
	return &c.Further[c.furtherAt[device]-1]
}

// lent says whether the client may use a further device.
func (f *Further) lent() bool { return f != nil && f.Number > 0 && !f.Leaving }

// wantFurther asks for devices that the client does not have, and for more memory where its own has
// grown. It does not wait for the answers.
func (c *Core) wantFurther(bytes uint64) {
	for i := range c.config.Devices {
		d := &c.config.Devices[i]
		if i == c.Lease.Device || d.Memory == 0 || bytes+d.ContextCost > d.Memory {
			continue
		}
		f := c.further(i)
		if f == nil {
			c.Further = append(c.Further, Further{Device: i})
			f = &c.Further[len(c.Further)-1]
		}
		if d.Far && f.lent() && c.Now-f.Last >= unusedFor {
			f.Leaving, f.Vain = true, min(f.Vain+1, maxVain)
			c.mapping.stale()
		}
		if f.Asked || f.Leaving || c.Now < f.NotBy || f.Number > 0 && f.Memory >= bytes {
			continue
		}
		f.Asked = true
		c.say(control.WantFurther{Device: i, Memory: bytes})
	}
}

// grantedFurther handles a loan, or more memory of one. A loan that is not expected goes back.
func (c *Core) grantedFurther(m control.GrantFurther) {
	f := c.further(m.Device)
	if f != nil && m.Loan == f.Returned {
		return
	}
	if f == nil || !f.Asked || !c.Lease.Held || c.Lease.Device == m.Device {
		if f != nil {
			f.Asked = false
		}
		c.say(control.ReleasedFurther{Device: m.Device, Loan: m.Loan})
		return
	}
	f.Asked = false
	if f.Number == 0 {
		f.Last = c.Now
	}
	f.Number, f.Memory = m.Loan, m.Memory
	c.mapping.stale()
}

// deniedFurther notes that a device, or more of it, is not available now.
func (c *Core) deniedFurther(m control.DenyFurther) {
	if f := c.further(m.Device); f != nil && f.Asked {
		f.Asked, f.NotBy = false, c.Now+askAgain
	}
}

// revokeFurther notes that the daemon wants a device back.
func (c *Core) revokeFurther(m control.RevokeFurther) {
	f := c.further(m.Device)
	if f == nil || f.Number != m.Loan {
		return // it was returned already
	}
	f.Leaving = true
	c.mapping.stale()
}

// leavesFurther leaves the next further context that must be left, or returns a device without one.
// It returns false if there is nothing to do. Running host functions come first, as with a lease.
func (c *Core) leavesFurther() bool {
	if c.Outstanding() > 0 {
		return false
	}
	for i := range c.Further {
		f := &c.Further[i]
		if !f.Leaving {
			continue
		}
		if p := c.config.Devices[f.Device].Place; c.context(p) != nil {
			c.leave(p, true, 0)
			return true
		}
		c.giveUp(f)
		return true
	}
	return false
}

// giveUp returns a further device, on which there is no context.
func (c *Core) giveUp(f *Further) {
	c.tellFurther(f)
	back := Further{Device: f.Device, Asked: f.Asked, NotBy: c.Now + askAgain<<f.Vain, Vain: f.Vain, Returned: f.Returned}
	if f.Number > 0 {
		c.say(control.ReleasedFurther{Device: f.Device, Loan: f.Number})
		if back.Asked, back.Returned = false, f.Number; f.Former { // a request for more went with it
			back.Returned = 0
		}
	}
	*f = back
	c.mapping.stale()
}

// giveUpAll returns all further devices. Only requests that are not answered yet are remembered, and
// what was returned.
func (c *Core) giveUpAll() {
	var known []Further
	for i := range c.Further {
		f := &c.Further[i]
		if c.giveUp(f); f.Asked || f.Returned > 0 {
			known = append(known, Further{Device: f.Device, Asked: f.Asked, Returned: f.Returned})
		}
	}
	c.Further, c.furtherAt, c.placed = known, nil, 0
}

// tellFurther tells the daemon which kernels ran on a further device.
func (c *Core) tellFurther(f *Further) {
	if ran := c.ranFurther(f); f.Number > 0 && news(ran) {
		c.say(ran)
	}
	f.told()
}

// ranFurther is what the daemon has not been told of a further device.
func (c *Core) ranFurther(f *Further) control.RanFurther {
	return control.RanFurther{Device: f.Device, Loan: f.Number, Kernels: f.Kernels, Busy: f.Ran, Moved: f.Moved, Queued: c.mapping.queuedAt(f.Device)}
}

// news says whether there is anything to tell.
func news(r control.RanFurther) bool {
	return r.Kernels > 0 || r.Busy > 0 || r.Moved > 0 || r.Queued > 0
}

// told notes that the daemon was told everything.
func (f *Further) told() { f.Kernels, f.Ran, f.Moved = 0, 0, 0 }

// forgetFurther drops what the core knows about a further context that no longer exists. All work
// there has ended.
func (c *Core) forgetFurther(p vmm.Place) {
	c.Contexts = slices.DeleteFunc(c.Contexts, func(x *Context) bool { return x.Place == p })
	for _, st := range c.Streams.ByID {
		if st.At == p {
			st.Live = false
		}
	}
	for _, e := range c.Events {
		if e.Place == p {
			e.Live, e.Pending = false, false
		}
	}
	c.mapping.stale()
}

// isFurther says whether a context is not the one at home.
func (c *Core) isFurther(p vmm.Place) bool {
	return len(c.Contexts) > 1 && c.Contexts[0].Place != p
}

// together makes all of the client's work run at home from now on: streams that wait for words in
// memory must see what kernels write there. It returns false until further contexts are left.
func (c *Core) together() (bool, error) {
	if c.mapping == nil {
		return true, nil
	}
	c.Together = true
	if len(c.Contexts) > 1 {
		c.leave(c.Contexts[len(c.Contexts)-1].Place, true, 0)
		return false, nil
	}
	c.giveUpAll()
	return true, nil
}

// room is how many bytes of the client's memory may be at a place.
func (c *Core) room(p vmm.Place) uint64 {
	memory := uint64(0)
	if c.Lease.Held && p == c.place() {
		memory = c.Lease.Memory
	} else if f := c.further(p.Index()); f.lent() {
		memory = f.Memory
	}
	return memory - min(memory, c.beside())
}

// openFurther opens a context on a further device, with the modules of home.
func (c *Core) openFurther(device int) {
	d := &c.config.Devices[device]
	c.opening = &Context{Place: d.Place, Cost: d.ContextCost}
	c.ask(Op{Kind: Open, Place: d.Place, Modules: c.Modules.replay(), Limits: maps.Clone(c.Limits), Anew: !c.housed})
}

// openedFurther notes that a further context is open. If it could not be opened the device goes
// back; the program need not know.
func (c *Core) openedFurther(x *Context, o Outcome) {
	if o.Err != nil {
		c.giveUp(c.further(x.Place.Index()))
		return
	}
	c.Made++
	x.Number = c.Made
	x.Has = map[uint64]bool{}
	for _, e := range c.Modules.Journal {
		x.Has[e.Module] = !e.Unload
	}
	c.Contexts = append(c.Contexts, x)
}

// loadedFurther notes that a further context has a module, or has refused it.
func (c *Core) loadedFurther(x *Context, serial uint64, o Outcome) {
	x.Has[serial] = o.Err == nil
	if o.Err != nil {
		c.mapping.refuses(x.Place.Index(), serial)
	}
}
