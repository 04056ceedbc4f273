package sim

import (
	"math/bits"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// Binding has nodes bind the shares of jobs to devices late, and again, as the runtime of a node does
// for a grant with a reach (docs/grants.md). A share has its home, the device of which the policy gave
// it a part, where its memory is kept for it. Its job's programs go to an idle device of the same node if
// they gain at least minGain there: to whole speed, from the home's speed divided among those
// that need it. When a job starts, they go at once. Later a move costs time, and they go when they have
// lost as much by staying. They come home when the device is given to a job whole, or when the memory
// that nobody was given there no longer holds them; that costs a move, too.
//
// Programs with a whole device stay there, as do jobs that ran when the simulation began. The network between a
// program and a device that its node borrows is not modelled. A share is taken to be
// full: a move copies all of it. What a job may use beyond its share changes nothing here.
type Binding struct {
	// Usual is how jobs have GPUs whose users say nothing.
	Usual model.Holds
	// Cost is the time of a move, beside copying the share out and in with Bandwidth bytes a second; 0
	// copies in no time.
	Cost      time.Duration
	Bandwidth int64
}

// minGain is how many times as fast programs must be elsewhere to go there, in millionths.
const minGain = 1_200_000

// distance is as how fast programs take a device of another node to be, in millionths.
const distance = 800_000

// bound is what late binding knows of a share.
type bound struct {
	home   int32
	speed  uint64 // of the device where it is
	memory int64
	fresh  bool          // its job has just started: it may go anywhere at once
	since  time.Duration // when it came to its device
}

// binding is where shares are bound. A nil binding binds nothing.
type binding struct {
	*Binding
	network *network
	places  []place // by device, as sharedDevices counts them
	// due is, of each node where one is due, when the next share has lost enough to go.
	due     map[int32]time.Duration
	changed []int32 // nodes of which something changed, or is due: scratch memory of settle
	far     int     // jobs whose reach is the cluster
}

// place is a device as shares are bound to it.
type place struct {
	node  int32
	speed uint64
	size  int64
	whole int32 // jobs that have it whole
	kept  int64 // of its memory, for shares whose home it is
	away  int64 // of shares whose home is another
}

func newBinding(cfg *Binding, n *network) *binding {
	b := &binding{Binding: cfg, network: n, due: map[int32]time.Duration{}}
	c := n.run.Cluster
	n.devices.prepare(c)
	for i := range c.Nodes {
		for _, t := range c.Nodes[i].GPUs {
			b.places = append(b.places, place{node: int32(i), speed: n.speeds[t], size: c.GPUTypes[t].Memory})
		}
	}
	return b
}

// hold notes that a job with this allocation has its whole devices, or (-1) that it no longer has.
func (b *binding) hold(a *model.Allocation, change int32) {
	if b == nil {
		return
	}
	first := b.network.devices.first
	note := func(k int32) {
		b.places[k].whole += change
		b.network.devices.touch(k)
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		set := p.GPUs
		if p.Exclusive {
			set = 1<<len(b.network.run.Cluster.Nodes[p.Node].GPUs) - 1
		}
		for ; set != 0; set &= set - 1 {
			note(first[p.Node] + int32(bits.TrailingZeros64(set)))
		}
	}
	for _, g := range a.Grants {
		if g.Memory == 0 {
			note(first[g.Node] + g.Device)
		}
	}
}

// enter makes the shares of a job that starts movable, if its reach lets them be.
func (b *binding) enter(u *sharer, a *model.Allocation) {
	if b == nil {
		return
	}
	for i := range u.shares {
		s := &u.shares[i]
		b.places[s.home].kept += s.memory
		s.speed, s.since = b.places[s.home].speed, u.start
	}
	reach := u.job.GPU.Of(&u.job.Request, 1, false, b.Usual).Reach
	if reach == model.ReachDevice {
		return
	}
	if u.far = reach == model.ReachCluster; u.far {
		b.far++
	}
	// From now on its time is counted on devices of speed 1, and those that it has say how long it takes.
	u.movable, u.compute, u.least = true, u.job.Run, 0
	first := b.network.devices.first
	whole := func(k int32) { u.least = max(u.least, slower(fullLoad, b.places[k].speed)) }
	for i := range a.Parts {
		for set := a.Parts[i].GPUs; set != 0; set &= set - 1 {
			whole(first[a.Parts[i].Node] + int32(bits.TrailingZeros64(set)))
		}
	}
	for _, g := range a.Grants {
		if g.Memory == 0 {
			whole(first[g.Node] + g.Device)
		}
	}
}

func (b *binding) leave(u *sharer) {
	if b == nil {
		return
	}
	if u.far {
		b.far--
	}
	for i := range u.shares {
		s := &u.shares[i]
		b.places[s.home].kept -= s.memory
		if s.device != s.home {
			b.places[s.device].away -= s.memory
		}
	}
}

// slower is by which factor work takes longer under a load on a device of a speed.
func slower(load, speed uint64) uint64 {
	return uint64(mulDiv(max(load, fullLoad), normalSpeed, speed))
}

// slowness is the factor of a job's slowest device.
func (d *sharedDevices) slowness(u *sharer) uint64 {
	most := u.least
	for i := range u.shares {
		most = max(most, slower(d.devices[u.shares[i].device].load, u.shares[i].speed))
	}
	return most
}

// next is when shares are to be bound again although nothing else happens; policy.Never if they are not.
func (b *binding) next() time.Duration {
	at := policy.Never
	if b == nil {
		return at
	}
	for _, due := range b.due {
		if at == policy.Never || due < at {
			at = due
		}
	}
	return at
}

// settle binds the shares of all nodes where something changed, or where a move is due.
func (b *binding) settle(now time.Duration) {
	if b == nil {
		return
	}
	b.changed = b.changed[:0]
	for _, k := range b.network.devices.changed {
		b.changed = append(b.changed, b.places[k].node)
	}
	for node, due := range b.due {
		if due <= now {
			b.changed = append(b.changed, node)
		}
	}
	if b.far > 0 && len(b.changed) > 0 { // what changed on one node may be a reason to go on others
		clear(b.due)
		b.bind(0, int32(len(b.places)), now)
		return
	}
	slices.Sort(b.changed)
	for _, node := range slices.Compact(b.changed) {
		delete(b.due, node)
		from := b.network.devices.first[node]
		b.bind(from, from+int32(len(b.network.run.Cluster.Nodes[node].GPUs)), now)
	}
}

// bind binds the shares on some devices: first those that must leave, then those that gain by it, one after
// the other, as long as there are any.
func (b *binding) bind(from, to int32, now time.Duration) {
	for k := from; k < to; k++ {
		for p := &b.places[k]; p.away > 0 && (p.whole > 0 || p.away+p.kept > p.size); {
			b.sendHome(k, now)
		}
	}
	for b.improve(from, to, now) {
	}
	for k := from; k < to; k++ {
		for _, slot := range b.network.devices.devices[k].users {
			for i := range b.network.users[slot].shares {
				b.network.users[slot].shares[i].fresh = false
			}
		}
	}
}

// sendHome has the share that came last to a device leave it.
func (b *binding) sendHome(k int32, now time.Duration) {
	var last *sharer
	at, slot := 0, int32(0)
	for _, s := range b.network.devices.devices[k].users {
		u := &b.network.users[s]
		for i := range u.shares {
			own := &u.shares[i]
			if own.device != k || own.home == k || last != nil && (own.since < last.shares[at].since || own.since == last.shares[at].since && u.id < last.id) {
				continue
			}
			last, at, slot = u, i, s
		}
	}
	b.move(slot, last, at, last.shares[at].home, now)
}

// improve moves the share that has lost most by not being on the fastest idle one of some devices that any
// gains by. It returns false if there is none.
func (b *binding) improve(from, to int32, now time.Duration) bool {
	var idle []int32
	for k := from; k < to; k++ {
		if len(b.network.devices.devices[k].users) == 0 && b.places[k].whole == 0 {
			idle = append(idle, k)
		}
	}
	slices.SortStableFunc(idle, func(x, y int32) int { return int(min(1, max(-1, int64(b.places[y].speed)-int64(b.places[x].speed)))) })
	for _, t := range idle {
		var best *sharer
		var most time.Duration
		at, slot := 0, int32(0)
		for k := from; k < to; k++ {
			for _, s := range b.network.devices.devices[k].users {
				u := &b.network.users[s]
				for i := range u.shares {
					if u.shares[i].device != k {
						continue
					}
					lost, gains := b.gains(u, i, t, now)
					if gains && (best == nil || lost > most || lost == most && u.id < best.id) {
						best, most, at, slot = u, lost, i, s
					}
				}
			}
		}
		if best != nil {
			b.move(slot, best, at, t, now)
			return true
		}
	}
	return false
}

// gains says whether a share is to go to an idle device now, and how much it has lost by not being there.
// If it is to go later, that is noted.
func (b *binding) gains(u *sharer, i int, t int32, now time.Duration) (lost time.Duration, goes bool) {
	s, p := &u.shares[i], &b.places[t]
	if !u.movable || s.home != t && p.kept+s.memory > p.size {
		return 0, false
	}
	if !u.far && b.places[s.home].node != p.node {
		return 0, false
	}
	gain := uint64(mulDiv(max(b.network.devices.devices[s.device].load, fullLoad), b.worth(s, t), b.worth(s, s.device)))
	if gain < minGain {
		return 0, false
	}
	if s.fresh {
		return 0, true
	}
	due := model.After(s.since, time.Duration(mulDiv(uint64(b.cost(s)), gain, gain-1_000_000)))
	if due > now {
		if at, some := b.due[p.node]; !some || due < at {
			b.due[p.node] = due
		}
		return 0, false
	}
	stayed := now - s.since
	return stayed - time.Duration(mulDiv(uint64(stayed), 1_000_000, gain)), true
}

// worth is how fast programs take a device to be.
func (b *binding) worth(s *deviceShare, k int32) uint64 {
	if b.places[k].node == b.places[s.home].node {
		return b.places[k].speed
	}
	return max(1, uint64(mulDiv(b.places[k].speed, distance, 1_000_000)))
}

// cost is the time of moving a share.
func (b *binding) cost(s *deviceShare) time.Duration {
	cost := b.Cost
	if b.Bandwidth > 0 {
		cost = model.After(cost, atBandwidth(2*s.memory, b.Bandwidth))
	}
	return cost
}

// move binds a share of the job in a slot to another device.
func (b *binding) move(slot int32, u *sharer, i int, to int32, now time.Duration) {
	s, d := &u.shares[i], &b.network.devices
	if s.device != s.home {
		b.places[s.device].away -= s.memory
	}
	d.quit(slot, s.device, s.load)
	s.device, s.since, s.speed = to, now, b.places[to].speed
	if to != s.home {
		b.places[to].away += s.memory
	}
	d.devices[to].users = append(d.devices[to].users, slot)
	d.devices[to].load += s.load
	d.touch(to)
	if !s.fresh {
		cost := b.cost(s)
		u.owed = model.After(u.owed, cost)
		s.since = model.After(now, cost)
		b.network.run.result.Rebinds++
	}
}
