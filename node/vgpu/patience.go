package vgpu

import (
	"slices"
	"time"
)

// A client that was told to leave does so when its kernels have ended, and a kernel may never end. So
// what others wait for because of it is bounded in time here.

// maxLapses bounds how long a client may keep room from others while clients do not leave: MaxWait,
// doubled that many times. So a client that needs much is served if no kernel takes longer than that.
const maxLapses = 9

// patience is for how long x may keep room from others that it cannot use before clients have left. It
// doubles each time that this was in vain, so that x is served in the end if kernels do end.
func (r *rules) patience(x *client) time.Duration { return r.cfg.MaxWait << x.lapsed() }

// lapsed is how often x has given up, as far as that counts.
func (x *client) lapsed() int { return min(x.lapses, maxLapses) }

// expectedBy is until when a client that was told to leave is expected to have done so.
func (r *rules) expectedBy(v *client) Time { return v.toldAt + r.cfg.MaxWait + r.moveCost(v) }

// isComing says whether what a client that was told to leave takes will be free soon.
func (r *rules) isComing(v *client) bool { return r.now < r.expectedBy(v) }

// fitsBesideOverdue says whether x would fit on d if all left but those that should have, had they as long
// as x may keep room from others.
func (r *rules) fitsBesideOverdue(x *client, d *device) bool {
	slots, bytes := d.coming(func(v *client) bool { return r.now >= v.toldAt+r.patience(x)+r.moveCost(v) })
	return slots < d.Slots && int64(x.want.Need+d.ContextCost) <= d.atMost()-bytes
}

// openTimes say until when clients that gave up that often, or more often, keep nothing from others: of
// a device, or of the slots of a user who may have so many.
type openTimes [maxLapses + 1]Time

// mayHold says whether x may keep room of d from others until clients have left. One that has given up
// again leaves the device for as long as it kept it, to all who have given up less often, and the slot
// to its user's other clients.
func (r *rules) mayHold(x *client, d *device) bool {
	waits := func(t Time) bool { return r.now < t }
	return x.lapses == 0 || !slices.ContainsFunc(d.openBy[:x.lapsed()+1], waits) && !slices.ContainsFunc(x.user.openBy[:x.lapsed()+1], waits)
}

// hold keeps what a claim is for from others.
func (f *fleet) hold(p *claim) {
	p.held = true
	f.count(p, 1)
}

// count adds a claim that is held to what others cannot have, or takes it away.
func (f *fleet) count(p *claim, sign int) {
	if !p.held {
		return
	}
	if home := p.owner.part; p.slot && home != nil && home != p.dev {
		home.called += sign
	}
	p.dev.claimed += int64(sign) * p.bytes
	if p.slot {
		p.dev.claims += sign
		p.owner.user.slots += sign * p.owner.slotCount()
	}
}

// stillThere says whether the room of a claim that was not held is there, or will be when its victims
// have left.
func stillThere(p *claim) bool {
	slots, lack := p.dev.freeSlots(), missing(p.owner, p.dev)
	for _, v := range p.from {
		if v.frees == p && v.dev != nil && v.dev.base() == p.dev.base() {
			lack -= v.taken()
			if v.dev == p.dev && v.state == Assigned {
				slots++
			}
		}
	}
	return slots > 0 && lack <= 0
}

// lapse takes back promises and reservations that kept room from others for too long, because clients
// did not leave. Their owners go behind all others that have waited too long, and the room is first for
// clients that fit as it is. The clients that were told to leave still do when they can.
func (c *Core) lapse() {
	for _, x := range c.ready {
		d, held := x.reserved, true
		if x.claim != nil {
			d, held = x.claim.dev, x.claim.held
		}
		if d == nil || c.now < x.holdsBy {
			continue
		}
		c.drop(x.claim)
		c.unreserve(x, x.reserved)
		if !held {
			continue
		}
		if x.lapses > 0 {
			d.openBy[x.lapsed()] = c.now + c.patience(x)
			if x.part == nil && x.user.limit > 0 {
				x.user.openBy[x.lapsed()] = c.now + c.patience(x)
			}
		}
		x.lapses++
		x.rank, c.lapsed = c.seq, true
	}
	if c.growing == 0 {
		return
	}
	for _, d := range c.all {
		for _, x := range d.slots {
			if x != nil && x.claim != nil && c.now >= x.holdsBy {
				c.endGrow(x)
				c.deny(x.id, NoRoom)
			}
		}
	}
}
