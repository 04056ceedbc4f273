package clientcore

import (
	"time"

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

// loans is the further devices that the client has, or has asked for.
type loans struct {
	*standing
	Further []Further
	mapped  *mapped // chooses among them

	furtherAt []int // where in Further each device is, counted from 1; 0: it is not
	placed    int   // how many of Further are in furtherAt
}

func (l *loans) save(to *State)   { to.Further = l.Further }
func (l *loans) load(from *State) { l.Further, l.furtherAt, l.placed = from.Further, nil, 0 }

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
func (l *loans) further(device int) *Further {
	for ; l.placed < len(l.Further); l.placed++ {
		d := l.Further[l.placed].Device
		for len(l.furtherAt) <= d {
			l.furtherAt = append(l.furtherAt, 0)
		}
		l.furtherAt[d] = l.placed + 1
	}
	if device >= len(l.furtherAt) || l.furtherAt[device] == 0 {
		return nil
	}
	return &l.Further[l.furtherAt[device]-1]
}

// lent says whether the client may use a further device.
func (f *Further) lent() bool { return f != nil && f.Number > 0 && !f.Leaving }

// wantFurther asks for devices that the client does not have, and for more memory where its own has
// grown. It does not wait for the answers.
func (l *loans) wantFurther(bytes uint64) {
	for i := range l.config.Devices {
		d := &l.config.Devices[i]
		if i == l.Lease.Device || d.Memory == 0 || bytes+d.ContextCost > d.Memory {
			continue
		}
		f := l.further(i)
		if f == nil {
			l.Further = append(l.Further, Further{Device: i})
			f = &l.Further[len(l.Further)-1]
		}
		if d.Far && f.lent() && l.Now-f.Last >= unusedFor {
			f.Leaving, f.Vain = true, min(f.Vain+1, maxVain)
			l.mapped.stale()
		}
		if f.Asked || f.Leaving || l.Now < f.NotBy || f.Number > 0 && f.Memory >= bytes {
			continue
		}
		f.Asked = true
		l.say(control.WantFurther{Device: i, Memory: bytes})
	}
}

// grantedFurther handles a loan, or more memory of one. A loan that is not expected goes back.
func (l *loans) grantedFurther(m control.GrantFurther) {
	f := l.further(m.Device)
	if f != nil && m.Loan == f.Returned {
		return
	}
	if f == nil || !f.Asked || !l.Lease.Held || l.Lease.Device == m.Device {
		if f != nil {
			f.Asked = false
		}
		l.say(control.ReleasedFurther{Device: m.Device, Loan: m.Loan})
		return
	}
	f.Asked = false
	if f.Number == 0 {
		f.Last = l.Now
	}
	f.Number, f.Memory = m.Loan, m.Memory
	l.mapped.stale()
}

// deniedFurther notes that a device, or more of it, is not available now.
func (l *loans) deniedFurther(m control.DenyFurther) {
	if f := l.further(m.Device); f != nil && f.Asked {
		f.Asked, f.NotBy = false, l.Now+askAgain
	}
}

// revokeFurther notes that the daemon wants a device back.
func (l *loans) revokeFurther(m control.RevokeFurther) {
	f := l.further(m.Device)
	if f == nil || f.Number != m.Loan {
		return // it was returned already
	}
	f.Leaving = true
	l.mapped.stale()
}

// giveUp returns a further device, on which there is no context.
func (l *loans) giveUp(f *Further) {
	l.tellFurther(f)
	back := Further{Device: f.Device, Asked: f.Asked, NotBy: l.Now + askAgain<<f.Vain, Vain: f.Vain, Returned: f.Returned}
	if f.Number > 0 {
		l.say(control.ReleasedFurther{Device: f.Device, Loan: f.Number})
		if back.Asked, back.Returned = false, f.Number; f.Former { // a request for more went with it
			back.Returned = 0
		}
	}
	*f = back
	l.mapped.stale()
}

// adopted notes that another daemon serves the client, which has lent nothing.
func (l *loans) adopted() {
	for i := range l.Further {
		f := &l.Further[i]
		f.Leaving, f.Former, f.Asked, f.Returned = true, true, false, 0
	}
}

// giveUpAll returns all further devices. Only requests that are not answered yet are remembered, and
// what was returned.
func (l *loans) giveUpAll() {
	var known []Further
	for i := range l.Further {
		f := &l.Further[i]
		if l.giveUp(f); f.Asked || f.Returned > 0 {
			known = append(known, Further{Device: f.Device, Asked: f.Asked, Returned: f.Returned})
		}
	}
	l.Further, l.furtherAt, l.placed = known, nil, 0
}

// tellFurther tells the daemon which kernels ran on a further device.
func (l *loans) tellFurther(f *Further) {
	if ran := l.ranFurther(f); f.Number > 0 && news(ran) {
		l.say(ran)
	}
	f.told()
}

// ranFurther is what the daemon has not been told of a further device.
func (l *loans) ranFurther(f *Further) control.RanFurther {
	return control.RanFurther{Device: f.Device, Loan: f.Number, Kernels: f.Kernels, Busy: f.Ran, Moved: f.Moved, Queued: l.mapped.queuedAt(f.Device)}
}

// news says whether there is anything to tell.
func news(r control.RanFurther) bool {
	return r.Kernels > 0 || r.Busy > 0 || r.Moved > 0 || r.Queued > 0
}

// told notes that the daemon was told everything.
func (f *Further) told() { f.Kernels, f.Ran, f.Moved = 0, 0, 0 }
