package sim

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
	"muster/sim/fairshare"
)

// network computes how long jobs take. A job that shares neither ports nor devices takes its own
// run time. All others are sharers: they progress at a rate that depends on their shares of ports
// and devices. When rates change, a sharer completes the rest of its work at the new rate.
//
// All arithmetic is in integers, so that every machine computes the same.
type network struct {
	run     *run
	fair    *fairshare.Network
	devices sharedDevices
	binding *binding // nil: each share is used where it was granted
	uniform bool     // all devices have speed 1
	// speeds of the device types, in millionths.
	speeds []uint64
	// overhead is the factor for remote transfers, far the additional factor for far nodes; both in
	// thousandths.
	overhead, far uint64

	users  []sharer // by slot; slots are reused
	vacant []int32
	slotOf map[policy.JobID]int32
	userOf []int32 // slot, by flow
	moved  []int32 // slots whose rates changed; scratch memory of settle
}

// whole is all the work of a job, in the unit of sharer.left. Being a power of two, it makes the
// conversion from work to time a shift.
const whole = uint64(1) << 62

// fraction is the number of fractional bits in rates, so that shares of slow links are exact
// enough.
const fraction = 20

// normalSpeed is speed 1 in the unit of network.speeds.
const normalSpeed = 1_000_000

// sharer is a running job that uses the network or shares of devices, so that
// its run time depends on other jobs.
type sharer struct {
	id    policy.JobID
	job   *model.Job
	flows []jobFlow // in order of part
	// shares are the devices of which it has a share. crowding is the factor by which the most
	// crowded of them lengthens its computation, in the unit of load.
	shares   []deviceShare
	crowding uint64
	// movable says that nodes may bind its shares elsewhere. compute is then for devices of speed 1, and
	// crowding includes the speeds; least is what its whole devices make of that. owed is the time of
	// moves that is still to be added.
	movable bool
	far     bool // also on other nodes
	least   uint64
	owed    time.Duration
	// compute is its computation time on devices that no other job uses. fixed is the part of its
	// time that other jobs do not affect.
	compute, fixed time.Duration
	start          time.Duration

	left    uint64        // work still to do at the time since, out of whole
	total   time.Duration // time that all its work takes at the current rates; -1 before the first settlement
	since   time.Duration // when left was last updated; later than now while it moves
	end     event         // its end at the current rates
	entered time.Duration // the time of its event in the heap, which may be before end
	turn    int32         // turn of that event; 0 if it has none
	moved   bool
}

// jobFlow is one of a job's flows through the network.
type jobFlow struct {
	flow   fairshare.Flow
	part   int32
	remote bool  // GPU data of a borrowed device; otherwise data between the job's nodes
	bytes  int64 // including overhead
	// native is the time that the data take without remote access or competing jobs. The job's own
	// run time already includes it.
	native time.Duration
}

func newNetwork(r *run) *network {
	c := r.Cluster
	capacity := make([]int64, len(c.Nodes))
	for i := range c.Nodes {
		capacity[i] = min(c.Nodes[i].Link.Bandwidth, math.MaxInt64>>fraction) << fraction
	}
	n := &network{
		run: r, fair: fairshare.New(capacity), uniform: true,
		overhead: thousandths(c.Remote.Overhead), far: thousandths(c.Remote.Far),
		slotOf: map[policy.JobID]int32{},
	}
	for _, t := range c.GPUTypes {
		speed := uint64(min(max(1, math.Round(t.Speed*normalSpeed)), 1<<50))
		n.speeds = append(n.speeds, speed)
		n.uniform = n.uniform && speed == normalSpeed
	}
	if r.Bind != nil && r.Alone == nil {
		n.binding = newBinding(r.Bind, n)
	}
	return n
}

// thousandths converts a factor to thousandths. A factor of 0 means that none was given, and counts
// as 1.
func thousandths(factor float64) uint64 {
	if factor == 0 {
		return 1000
	}
	return uint64(math.Round(factor * 1000))
}

// enter starts a job. If other jobs cannot affect it, enter schedules its end; otherwise settle
// does, once all starts and ends of this instant are known.
func (n *network) enter(id policy.JobID, j *model.Job, a *model.Allocation) {
	now := n.run.now
	alone := n.alone(id, j, a)
	run := alone.Time
	ports, shares := alone.Net != nil || n.usesPorts(j, a), len(a.Grants) > 0 && hasShares(a)
	if !ports && !shares {
		n.run.events.push(n.endOf(id, j, now, run))
		return
	}
	s := n.newSlot()
	u := &n.users[s]
	*u = sharer{
		id: id, job: j, flows: u.flows[:0], shares: u.shares[:0], crowding: fullLoad,
		start: now, left: whole, since: now, compute: run,
	}
	if ports {
		n.addFlows(s, u, j, a, alone.Net)
	}
	if shares {
		n.devices.enter(n.run.Cluster, s, u, a, alone.Load)
		n.binding.enter(u, a)
	}
	if len(u.flows) == 0 && len(u.shares) == 0 {
		n.vacant = append(n.vacant, s)
		n.run.events.push(n.endOf(id, j, now, model.After(u.compute, u.fixed)))
		return
	}
	n.slotOf[id] = s
	u.total = -1 // until the rates are settled
}

// alone is the behaviour of a job on devices that no other job uses.
func (n *network) alone(id policy.JobID, j *model.Job, a *model.Allocation) Alone {
	switch {
	case n.run.Alone != nil:
		return n.run.Alone(int(n.run.jobOf[id]), a)
	case n.uniform, n.run.Anywhere != nil && n.run.Anywhere[n.run.jobOf[id]]:
		return Alone{Time: j.Run}
	}
	return Alone{Time: n.scaled(j.Run, a)}
}

func (n *network) usesPorts(j *model.Job, a *model.Allocation) bool {
	return len(a.Parts) > 1 && j.Traffic.NetBytes > 0 ||
		len(a.Grants) > 0 && (j.Traffic.GPUBytes > 0 || j.Traffic.GPUConns > 0) && a.UsesBorrowed()
}

// scaled is the run time on the slowest device of an allocation; run itself if it has no device.
func (n *network) scaled(run time.Duration, a *model.Allocation) time.Duration {
	c := n.run.Cluster
	const none = math.MaxUint64
	slowest := uint64(none)
	for i := range a.Parts {
		node := &c.Nodes[a.Parts[i].Node]
		for set := a.Parts[i].GPUs; set != 0; set &= set - 1 {
			slowest = min(slowest, n.speeds[node.GPUs[bits.TrailingZeros64(set)]])
		}
	}
	for _, g := range a.Grants {
		slowest = min(slowest, n.speeds[c.Nodes[g.Node].GPUs[g.Device]])
	}
	if slowest == none || slowest == normalSpeed {
		return run
	}
	return time.Duration(mulDiv(uint64(run), normalSpeed, slowest))
}

// addFlows makes the job a user of ports. net, if not nil, has the bytes between its nodes, by
// part. A part has a flow through its own port for data between nodes, and a flow to each node from
// which it borrows devices. The latency of remote calls goes into fixed.
func (n *network) addFlows(s int32, u *sharer, j *model.Job, a *model.Allocation, net []int64) {
	c := n.run.Cluster
	add := func(f jobFlow, p, q int32) {
		f.flow = n.fair.Add(p, q)
		for int(f.flow) >= len(n.userOf) {
			n.userOf = append(n.userOf, 0)
		}
		n.userOf[f.flow] = s
		u.flows = append(u.flows, f)
	}
	latency := time.Duration(0)
	for i := range a.Parts {
		node := a.Parts[i].Node
		link := c.Nodes[node].Link
		bytes := j.Traffic.NetBytes
		if net != nil {
			bytes = net[i]
		}
		if link.Bandwidth > 0 && len(a.Parts) > 1 && bytes > 0 {
			add(jobFlow{part: int32(i), bytes: bytes, native: atBandwidth(bytes, link.Bandwidth)}, node, -1)
		}
		lenders := lendersOf(a, int32(i))
		if len(lenders) == 0 {
			continue
		}
		for _, lender := range lenders {
			latency = max(latency, time.Duration(n.further(int64(model.After(c.Remote.Latency, link.Latency)), node, lender)))
		}
		if j.Traffic.GPUBytes == 0 {
			continue
		}
		native := time.Duration(0)
		if t := firstType(c, a, int32(i)); c.GPUTypes[t].PeerBandwidth > 0 {
			native = atBandwidth(j.Traffic.GPUBytes, c.GPUTypes[t].PeerBandwidth)
		}
		for _, lender := range lenders {
			p, q := node, lender // a port without a bandwidth has no limit
			if link.Bandwidth == 0 {
				p, q = lender, -1
			} else if c.Nodes[lender].Link.Bandwidth == 0 {
				q = -1
			}
			if c.Nodes[p].Link.Bandwidth > 0 {
				bytes := n.further(n.withOverhead(j.Traffic.GPUBytes/int64(len(lenders))), node, lender)
				add(jobFlow{part: int32(i), remote: true, bytes: bytes, native: native}, p, q)
			}
		}
	}
	u.fixed = model.After(u.fixed, time.Duration(mulDiv(uint64(j.Traffic.GPUConns), uint64(latency), 1)))
}

// withOverhead is the number of bytes on the network for bytes of GPU data.
func (n *network) withOverhead(bytes int64) int64 {
	return mulDiv(uint64(bytes), n.overhead, 1000)
}

// further is a cost between a process on node a and a device on node b: higher if the nodes are on
// different switches.
func (n *network) further(cost int64, a, b int32) int64 {
	if n.far == 1000 || n.run.Cluster.Distance(a, b) < 2 {
		return cost
	}
	return mulDiv(uint64(cost), n.far, 1000)
}

// lendersOf lists the nodes from which a part borrows, each once.
func lendersOf(a *model.Allocation, part int32) []int32 {
	var out []int32
	for _, g := range a.Grants {
		if g.For == part && a.Borrowed(g) && !slices.Contains(out, g.Node) {
			out = append(out, g.Node)
		}
	}
	return out
}

// firstType is the type of the first device that serves a part.
func firstType(c *model.Cluster, a *model.Allocation, part int32) int {
	p := &a.Parts[part]
	if p.GPUs != 0 {
		return c.Nodes[p.Node].GPUs[bits.TrailingZeros64(p.GPUs)]
	}
	for _, g := range a.Grants {
		if g.For == part {
			return c.Nodes[g.Node].GPUs[g.Device]
		}
	}
	return 0
}

// atBandwidth is the time that bytes take at a bandwidth in bytes per second.
func atBandwidth(bytes, bandwidth int64) time.Duration {
	return time.Duration(mulDiv(uint64(bytes), uint64(time.Second), uint64(bandwidth)))
}

// atRate is the time that bytes take at a rate with fractional bits.
func atRate(bytes, rate int64) time.Duration {
	return time.Duration(mulDiv(uint64(bytes), uint64(time.Second)<<fraction, uint64(max(1, rate))))
}

// plenty limits computed times and sizes. As a time it is longer than any simulation, and several
// of them can be added without overflow.
const plenty = math.MaxInt64 / 8

// mulDiv is a * b / c rounded down, at most plenty. The product has 128 bits, so it cannot
// overflow.
func mulDiv(a, b, c uint64) int64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return plenty
	}
	q, _ := bits.Div64(hi, lo, c)
	return int64(min(q, plenty))
}

// leave removes a job from ports and shared devices. The jobs that remain get new rates at the next
// settle.
func (n *network) leave(id policy.JobID) {
	s, ok := n.slotOf[id]
	if !ok {
		return
	}
	u := &n.users[s]
	for _, f := range u.flows {
		n.fair.Remove(f.flow)
	}
	n.binding.leave(u)
	n.devices.leave(s, u)
	delete(n.slotOf, id)
	n.vacant = append(n.vacant, s)
}

// settle computes the new rates after all events of an instant, and moves the ends of the jobs
// whose rates changed. For each of them it first subtracts the work done at the old rate since the
// last change, in units of 1/whole, and then computes the time for the rest at the new rate,
// rounded up.
func (n *network) settle(now time.Duration) {
	n.moved = n.moved[:0]
	move := func(s int32) {
		if !n.users[s].moved {
			n.users[s].moved = true
			n.moved = append(n.moved, s)
		}
	}
	for _, f := range n.fair.Settle() {
		move(n.userOf[f])
	}
	n.binding.settle(now)
	if len(n.devices.changed) > 0 {
		n.devices.settle(n.users, move)
	}
	for _, s := range n.moved {
		u := &n.users[s]
		u.moved = false
		u.work(now)
		u.since, u.owed = max(now, u.since)+u.owed, 0
		u.total = n.totalOf(u)
		hi, lo := bits.Mul64(u.left, uint64(u.total))
		rest := hi<<2 | lo>>62
		if lo<<2 != 0 {
			rest++
		}
		u.reschedule(&n.run.events, n.endOf(u.id, u.job, u.start, model.After(u.since-u.start, time.Duration(rest))))
	}
}

// work subtracts what a job has done since its rates last changed.
func (u *sharer) work(now time.Duration) {
	if u.total > 0 && now > u.since {
		hi, lo := bits.Mul64(uint64(now-u.since), whole)
		done, _ := bits.Div64(hi, lo, uint64(u.total))
		u.left -= min(done, u.left)
	}
}

// totalOf is the time that all work of a job takes at the current rates: its computation, its fixed
// part, and the delay of its slowest part by transfers, beyond what the run time already includes.
func (n *network) totalOf(u *sharer) time.Duration {
	compute := u.compute
	if u.crowding != fullLoad {
		compute = time.Duration(mulDiv(uint64(compute), u.crowding, fullLoad))
	}
	worst := time.Duration(0)
	for i := 0; i < len(u.flows); {
		part := u.flows[i].part
		net, gpu, native := time.Duration(0), time.Duration(0), time.Duration(0)
		for ; i < len(u.flows) && u.flows[i].part == part; i++ {
			f := &u.flows[i]
			rate := n.fair.Rate(f.flow)
			if f.remote {
				gpu = max(gpu, atRate(f.bytes, rate))
				native = f.native
			} else {
				net += atRate(f.bytes, rate) - f.native
			}
		}
		worst = max(worst, net+gpu-native)
	}
	return model.After(model.After(compute, u.fixed), worst)
}

// reschedule sets the end of a job. If the job already has an event that is not later than the new
// end, that event stays in the heap, and due pushes a new one when it comes. Otherwise ends that
// move back and forth would fill the heap with void events.
func (u *sharer) reschedule(q *events, end event) {
	if u.turn > 0 && u.entered <= end.at {
		end.turn = u.turn
		u.end = end
		return
	}
	u.turn++
	end.turn = u.turn
	u.end, u.entered = end, end.at
	q.push(end)
}

// endOf is the end of a job that started at start and needs run: after run, or at its wall time if
// that is shorter and jobs are killed.
func (n *network) endOf(id policy.JobID, j *model.Job, start, run time.Duration) event {
	killed := !n.run.NoKill && j.WallTime > 0 && run > j.WallTime
	if killed {
		run = j.WallTime
	}
	end := event{at: model.After(start, run), job: id, killed: killed}
	if n.run.outages.attempt != nil {
		end.attempt = n.run.outages.attempt[id]
	}
	return end
}

// due says whether an event that has come really ends its job, and if so whether the job is killed.
// If the end has moved to a later time, due pushes a new event for it.
func (n *network) due(e event) (killed, due bool) {
	if e.turn == 0 {
		return e.killed, true
	}
	s, ok := n.slotOf[e.job]
	if !ok || n.users[s].turn != e.turn {
		return false, false
	}
	u := &n.users[s]
	if u.end.at > e.at {
		u.entered = u.end.at
		n.run.events.push(u.end)
		return false, false
	}
	return u.end.killed, true
}

func (n *network) newSlot() int32 {
	if l := len(n.vacant); l > 0 {
		s := n.vacant[l-1]
		n.vacant = n.vacant[:l-1]
		return s
	}
	n.users = append(n.users, sharer{})
	return int32(len(n.users) - 1)
}

func coresOf(a *model.Allocation) int {
	sum := 0
	for i := range a.Parts {
		sum += int(a.Parts[i].Cores)
	}
	return sum
}

func gpusOf(c *model.Cluster, a *model.Allocation) float64 {
	whole, shares := 0, 0.0
	for i := range a.Parts {
		whole += bits.OnesCount64(a.Parts[i].GPUs)
	}
	for _, g := range a.Grants {
		if g.Memory == 0 {
			whole++
		} else {
			shares += float64(g.Memory) / float64(c.GPUTypes[c.Nodes[g.Node].GPUs[g.Device]].Memory)
		}
	}
	return float64(whole) + shares
}
