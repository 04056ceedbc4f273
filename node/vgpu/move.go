package vgpu

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// cause is why a client changes its device.
type cause uint8

const (
	byNothing cause = iota // it does not, or only because others needed its place
	byItself               // to run faster, as migrate found out
	byHand                 // Move
	byDrain                // Drain
)

// minGain is how many times as fast a client must be elsewhere to be moved there.
const minGain = 1.2

func (m Moves) plus(n Moves) Moves {
	return Moves{m.Auto + n.Auto, m.ByHand + n.ByHand, m.Drain + n.Drain}
}

// untarget lets a client go anywhere again.
func (c *Core) untarget(x *client) {
	if x.target == AnyDevice {
		return
	}
	if d := c.devices[x.target]; d.mover == x {
		d.mover = nil
	}
	x.target, x.moving = AnyDevice, byNothing
}

// arrive counts a move that ends with a grant of d, and ends it.
func (c *Core) arrive(x *client, d *device) {
	moves, elsewhere := &x.stats.moves, x.last != AnyDevice && x.last != d.id && x.want.Need > 0
	switch {
	case !elsewhere:
	case x.moving == byItself && x.target == d.id:
		moves.Auto++
	case x.moving == byHand:
		moves.ByHand++
	case x.moving == byDrain:
		moves.Drain++
	}
	x.stays = x.moving == byHand
	c.untarget(x)
	x.moving = byNothing
}

// intended returns the device that a client left another one for, if it is still
// idle, and who has to stop keeping bytes there.
func (c *Core) intended(x *client) (*device, []victim) {
	if x.moving != byItself {
		return nil, nil
	}
	d := c.devices[x.target]
	if d.load() > 0 || !allowed(x, d) {
		return nil, nil
	}
	set, _, ok := c.victims(x, d, false, false)
	if !ok {
		return nil, nil
	}
	return d, set
}

// migrate tells clients to leave for idle devices where they run faster, while
// nobody waits. What a client lost grows only when it says that it ran, so only
// that one need be looked at unless something else changed: with a Ran for each
// kernel this is what keeps a step as short as it is without moves.
func (c *Core) migrate() {
	ran, all := c.ranNow, c.anew
	c.ranNow = nil
	if !c.cfg.Migrate || c.waiting() > 0 || c.growing > 0 {
		return
	}
	if !all && (ran == nil || ran.phase < c.cfg.MoveCost) {
		return
	}
	c.anew = false
	for _, t := range c.idleDevices() {
		var best *client
		var most time.Duration
		consider := func(x *client) {
			if lost := c.lost(x, t); lost > most || (best != nil && lost == most && x.id < best.id) {
				best, most = x, lost
			}
		}
		if all {
			c.eachBound(consider)
		} else {
			consider(ran)
		}
		if best == nil {
			continue
		}
		best.target, best.moving, t.mover = t.id, byItself, best
		c.revoke(victim{best, ForMove})
	}
}

// idleDevices lists the devices that clients may be moved to, the fastest first.
func (c *Core) idleDevices() []*device {
	idle := c.idle[:0]
	for _, d := range c.devices {
		if d.up() && d.load() == 0 && !c.expects(d) {
			idle = append(idle, d)
		}
	}
	slices.SortStableFunc(idle, func(a, b *device) int { return cmp.Compare(b.Speed, a.Speed) })
	c.idle = idle
	return idle
}

// expects says that a client was told to go to d and may still come. One that
// does not ask for a device for as long as a move costs does something else.
func (c *Core) expects(d *device) bool {
	return d.mover != nil && (d.mover.state == Assigned || c.now-d.mover.leftAt < c.cfg.MoveCost)
}

func (c *Core) eachBound(f func(x *client)) {
	for _, d := range c.devices {
		if d.bound == 0 {
			continue
		}
		for _, x := range d.slots {
			if x != nil {
				f(x)
			}
		}
	}
}

// lost is how much GPU time x has lost since its grant because it was not alone
// on t. It is 0 if that is less than a move costs, or if x would not gain enough
// or cannot go there.
func (c *Core) lost(x *client, t *device) time.Duration {
	if !settled(x) || x.stays || x.phase < c.cfg.MoveCost || (x.want.Pinned != AnyDevice && x.want.Pinned != t.id) || !t.couldTake(x.memory) {
		return 0
	}
	gain := t.Speed * x.crowd() / x.dev.Speed
	if !(gain >= minGain) {
		return 0
	}
	lost := x.phase - time.Duration(float64(x.phase)/gain)
	if lost < c.moveCost(x) {
		return 0
	}
	return lost
}

// crowd is how many clients share x's device with it, itself included. One that
// ran less than x since it was granted counts for that part, and one that is to
// leave not at all.
func (x *client) crowd() float64 {
	all := float64(1)
	for _, v := range x.dev.slots {
		if v != nil && v != x && !v.revoking {
			all += min(1, float64(v.phase)/float64(x.phase))
		}
	}
	return all
}

// couldTake says whether so many bytes fit on an idle device when those who only
// keep bytes there let go.
func (d *device) couldTake(need uint64) bool {
	free := d.free()
	for _, v := range d.keepers {
		if mayStopKeeping(v) {
			free += v.taken()
		}
	}
	return d.holdsEver(need) && int64(need+d.ContextCost) <= free
}

// moveCost is what it takes to move x: its memory is copied out and in again.
func (c *Core) moveCost(x *client) time.Duration {
	const most = uint64(math.MaxInt64 / 4)
	high, low := bits.Mul64(2*x.memory, uint64(time.Second))
	copying := most
	if high < c.cfg.MoveBandwidth {
		copying, _ = bits.Div64(high, low, c.cfg.MoveBandwidth)
	}
	return time.Duration(min(copying, most)) + min(c.cfg.MoveCost, time.Duration(most))
}
