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
	byNothing cause = iota // it does not, or only because others needed its room
	byItself               // to run faster, as migrate found out
	byHand                 // Move
	byDrain                // Drain
)

// minGain is how many times as fast a client must be elsewhere to be moved there.
const minGain = 1.2

func (m Moves) plus(n Moves) Moves {
	return Moves{m.Auto + n.Auto, m.ByHand + n.ByHand, m.Drain + n.Drain}
}

// untarget cancels a client's move: it may go anywhere again.
func (f *fleet) untarget(x *client) {
	if x.target == AnyDevice {
		return
	}
	if d := f.devices[x.target]; d.mover == x {
		d.mover = nil
	}
	x.target, x.moving = AnyDevice, byNothing
}

// arrive ends a move with the grant of d, and counts it.
func (f *fleet) arrive(x *client, d *device) {
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
	f.untarget(x)
	x.moving = byNothing
}

// intended returns the device for which a client left another one, if it is still idle,
// and the clients that have to stop keeping bytes there.
func (b *books) intended(x *client) (*device, []victim) {
	if x.moving != byItself {
		return nil, nil
	}
	d := b.seatOf(x, x.target)
	if d.load() > 0 || !allowed(x, d) {
		return nil, nil
	}
	set, _, ok := b.victims(x, d, false, false)
	if !ok {
		return nil, nil
	}
	return d, set
}

// migrate tells clients to leave for idle devices where they run faster, while no
// client waits. A client's loss grows only with Ran. So unless something else changed
// (anew), only the client that just ran is examined: Ran events are frequent, and a
// step must stay short.
func (c *Core) migrate() {
	ran, all := c.ranNow, c.anew
	c.ranNow = nil
	if !c.cfg.Migrate || c.waiting() > 0 || c.growing > 0 {
		return
	}
	if all {
		c.anew = false
		c.listIdle()
	}
	if len(c.idle) == 0 || (!all && (ran == nil || ran.phase < c.cfg.MoveCost)) {
		return
	}
	for _, t := range c.idle {
		if c.expects(t) {
			continue
		}
		x := ran
		if all {
			x = c.mostLost(t)
		} else if c.lost(x, t) == 0 {
			x = nil
		}
		if x != nil {
			x.target, x.moving, t.mover = t.id, byItself, x
			c.revoke(victim{client: x, why: ForMove})
		}
	}
}

// listIdle lists the devices that clients may be moved to, the fastest first.
func (f *fleet) listIdle() {
	f.idle = f.idle[:0]
	for _, d := range f.devices {
		if d.up() && d.load() == 0 {
			f.idle = append(f.idle, d)
		}
	}
	if len(f.idle) > 1 {
		slices.SortStableFunc(f.idle, func(a, b *device) int { return cmp.Compare(b.Speed, a.Speed) })
	}
}

// expects says whether a client was told to go to d and may still come. A client that
// does not ask for a device within the cost of a move is taken to do something else.
func (r *rules) expects(d *device) bool {
	return d.mover != nil && (d.mover.state == Assigned || r.now-d.mover.leftAt < r.cfg.MoveCost)
}

// mostLost returns the client that has lost most by not being on t, if that is enough
// for a move; of equals the one with the lowest number.
func (b *books) mostLost(t *device) (best *client) {
	var most time.Duration
	for _, d := range b.all {
		if t.Speed*float64(d.base().bindings()) < minGain*d.Speed {
			continue
		}
		for _, x := range d.slots {
			if x == nil {
				continue
			}
			if lost := b.lost(x, t); lost > most || (best != nil && lost == most && x.id < best.id) {
				best, most = x, lost
			}
		}
	}
	return best
}

// movable says whether x may be moved by itself to a device like t.
func movable(x *client, t *device) bool { return settled(x) && !x.stays && x.isOf(t) }

// lost is how much GPU time x has lost since its grant because it was not alone
// on t. It is 0 if that is less than a move costs, or if x would not gain enough
// or cannot go there.
func (r *rules) lost(x *client, t *device) time.Duration {
	if x.part != nil && x.part.of == t {
		t = x.part
	}
	if x.phase < r.cfg.MoveCost || !movable(x, t) || (x.want.Pinned != AnyDevice && x.want.Pinned != t.id) {
		return 0
	}
	if t.Speed*float64(x.dev.base().bindings()) < minGain*x.dev.Speed { // a cheap upper bound, which settles most cases
		return 0
	}
	gain := t.Speed * x.crowd() / x.dev.Speed
	if gain < r.enough(x) || !t.couldTake(x.memory) {
		return 0
	}
	return x.phase - time.Duration(float64(x.phase)/gain)
}

// enough is the least gain for which x is moved: with it, x has lost as much GPU time since its grant
// as the move costs. It is infinite if x has run for less than that.
func (r *rules) enough(x *client) float64 {
	cost := r.moveCost(x)
	if x.phase <= cost {
		return math.Inf(1)
	}
	return max(minGain, float64(x.phase)/float64(x.phase-cost))
}

// Gain says for which idle device a client would be moved.
type Gain struct {
	Speed float64       // that the device must have at least
	Stay  time.Duration // how long the client must be there, at the least gain, for the moves there and back to pay
}

// elsewhere is like any device of another node.
var elsewhere = &device{Device: Device{Elsewhere: true}}

// Gains says for which idle devices of other nodes clients would be moved there now; those that a
// slower one suffices for first. Only clients count that may says; none does while others wait, since
// nobody is moved then.
func (b *books) Gains(may func(ClientID) bool) (gains []Gain) {
	if !b.cfg.Migrate || b.waiting() > 0 || b.growing > 0 {
		return nil
	}
	for _, d := range b.all {
		for _, x := range d.slots {
			if x == nil || x.phase < b.cfg.MoveCost || !movable(x, elsewhere) || x.want.Pinned != AnyDevice || !may(x.id) {
				continue
			}
			if gain := b.enough(x); !math.IsInf(gain, 1) {
				const turns = 2 * minGain / (minGain - 1)
				gains = append(gains, Gain{gain * d.Speed / x.crowd(), time.Duration(turns * float64(b.moveCost(x)))})
			}
		}
	}
	slices.SortStableFunc(gains, func(a, b Gain) int { return cmp.Compare(a.Speed, b.Speed) })
	return gains
}

// crowd is how many clients share x's device, x included. A client that ran less than x
// since it was granted counts for that fraction only, and one that was told to leave
// not at all.
func (x *client) crowd() float64 {
	all := float64(1)
	for _, d := range x.dev.family() {
		for _, v := range d.slots {
			if v != nil && v != x && !v.revoking {
				all += min(1, float64(v.phase)/float64(x.phase))
			}
		}
	}
	return all
}

// couldTake says whether a client that needs this many bytes fits on an idle device
// once those that only keep bytes there let go.
func (d *device) couldTake(need uint64) bool {
	free := d.free()
	for _, v := range d.keepers {
		if mayStopKeeping(v) {
			free += v.taken()
		}
	}
	return d.holdsNow(need) && int64(need+d.ContextCost) <= free
}

// moveCost is the time that it takes to move x: its memory is copied out and in again.
// The product needs 128 bits, and the result is bounded so that sums of a few do not
// overflow.
func (r *rules) moveCost(x *client) time.Duration {
	const most = uint64(math.MaxInt64 / 4)
	high, low := bits.Mul64(2*x.memory, uint64(time.Second))
	copying := most
	if bandwidth := orDefault(r.cfg.MoveBandwidth, DefaultMoveBandwidth); high < bandwidth {
		copying, _ = bits.Div64(high, low, bandwidth)
	}
	return time.Duration(min(copying, most)) + min(r.cfg.MoveCost, time.Duration(most))
}
