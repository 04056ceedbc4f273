package policy

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"muster/model"
)

// Profile is the expected future of a cluster: which job will hold what, and
// until when. It answers when a job could start beside all of these holds.
//
// The placer is on an idle cluster. Before each placement the limits of every
// candidate node are set to what is free there during the whole run (leave), so
// that first fit finds what fits at that time.
type Profile struct {
	*placer // on an idle cluster; its limits say what is left of each node

	whole   []capacity // by node: what it has when there are no holds
	holds   [][]hold   // by node
	version []uint64   // by node: changes with its holds; no two states of a node have the same
	clock   uint64     // the latest version given
	lifted  []uint64   // the versions that Lift replaced, for PutBack
	// firstEnd is the earliest end of each node's holds.
	firstEnd []time.Duration
	// freed lists the nodes on which something was given up, in order; MayGain
	// reads it from a mark on.
	freed []int32
	asOf  time.Duration // the current time; see At

	windows [][]nodeWindows // by class of shapes, then node
	starts  []startable     // scratch
	points  []time.Duration // scratch
}

// capacity is what a node has for jobs: nothing if it is not up.
type capacity struct {
	cores   int32
	memory  int64
	devices uint64
}

// hold is what one job has of one node during [start, end).
type hold struct {
	start, end time.Duration
	job        JobID
	cores      int32
	device     int32 // the device of a share
	memory     int64
	gpus       uint64 // whole devices
	share      int64  // memory of that device; 0 if it is no share
	closed     bool   // the node lends nothing
}

type window struct{ from, to time.Duration }

// lasts says whether the window lasts for d from an instant in it.
func (w window) lasts(from, d time.Duration) bool { return w.to == forever || w.to-from >= d }

// nodeWindows caches the windows of one class on one node, valid for one
// version of the node's holds.
type nodeWindows struct {
	version uint64
	list    []window
}

// startable says that one node suits a start at any time in [from, to].
type startable struct {
	from, to time.Duration
	node     int32
}

// forever is the end of the last window of a node.
const forever = time.Duration(math.MaxInt64)

// NewProfile returns a future without holds, on the nodes that are up in the
// view. When the view's generation changes, the caller must make a new one.
func NewProfile(v *View) *Profile {
	c := v.Cluster()
	n := len(c.Nodes)
	p := &Profile{whole: make([]capacity, n), placer: newPlacer(newPool(c)), holds: make([][]hold, n), version: make([]uint64, n), firstEnd: make([]time.Duration, n), clock: 1}
	p.lim.active = true
	p.lim.gen = 1
	p.lim.left = make([]nodeLeft, n)
	for i := range n {
		p.version[i], p.firstEnd[i] = 1, forever
		p.lim.stamp[i], p.lim.at[i] = 1, int32(i)
		p.lim.left[i] = nodeLeft{shares: make([]int64, len(c.Nodes[i].GPUs))}
		w := &p.whole[i]
		w.cores, w.memory, w.devices = v.Capacity(int32(i))
	}
	return p
}

// Hold notes that job will have a during [start, end).
func (p *Profile) Hold(job JobID, a *model.Allocation, start, end time.Duration) {
	add := func(n int32, h hold) {
		h.job, h.start, h.end = job, start, end
		p.holds[n] = append(p.holds[n], h)
		p.firstEnd[n] = min(p.firstEnd[n], end)
		p.clock++
		p.version[n] = p.clock
	}
	for i := range a.Parts {
		part := &a.Parts[i]
		add(part.Node, hold{cores: part.Cores, memory: part.Memory, gpus: part.GPUs, closed: part.Exclusive})
	}
	for _, g := range a.Grants {
		if g.Memory > 0 {
			add(g.Node, hold{device: g.Device, share: g.Memory})
		} else {
			add(g.Node, hold{gpus: 1 << g.Device})
		}
	}
}

// At sets the current time.
func (p *Profile) At(now time.Duration) { p.asOf = now }

// Drop removes a job's holds on the nodes of a for good, and records that they
// are free.
func (p *Profile) Drop(job JobID, a *model.Allocation) {
	p.Lift(job, a)
	p.GiveUp(a)
}

// Lift removes a job's holds, so that the caller can look for another place for
// it. PutBack must follow if there is none, or GiveUp if there is.
func (p *Profile) Lift(job JobID, a *model.Allocation) {
	p.lifted = p.lifted[:0]
	p.eachNode(a, func(n int32) {
		p.holds[n] = slices.DeleteFunc(p.holds[n], func(h hold) bool { return h.job == job })
		p.firstEnd[n] = forever
		for i := range p.holds[n] {
			p.firstEnd[n] = min(p.firstEnd[n], p.holds[n][i].end)
		}
		p.lifted = append(p.lifted, p.version[n])
		p.clock++
		p.version[n] = p.clock
	})
}

// PutBack undoes the latest Lift. It restores the old versions too, so that
// windows computed before the Lift are valid again. Windows computed in between
// have versions that will not be used again.
func (p *Profile) PutBack(job JobID, a *model.Allocation, start, end time.Duration) {
	p.Hold(job, a, start, end)
	i := 0
	p.eachNode(a, func(n int32) {
		p.version[n] = p.lifted[i]
		i++
	})
}

// GiveUp records that a, which was lifted, is free for other jobs.
func (p *Profile) GiveUp(a *model.Allocation) {
	p.eachNode(a, func(n int32) { p.freed = append(p.freed, n) })
}

func (p *Profile) eachNode(a *model.Allocation, do func(n int32)) {
	for i := range a.Parts {
		do(a.Parts[i].Node)
	}
	for _, g := range a.Grants {
		if a.Borrowed(g) {
			do(g.Node)
		}
	}
}

// Drops is a mark for MayGain: the length of the record of what was given up
// since the last Forget.
func (p *Profile) Drops() int { return len(p.freed) }

// Forget clears that record. Earlier marks become invalid.
func (p *Profile) Forget() { p.freed = p.freed[:0] }

// MayGain says whether anything given up since mark could let a job of this
// shape, which runs for d and now holds own, start before before. False is
// certain; true only means that Earliest must be asked. A negative mark stands
// for the beginning.
func (p *Profile) MayGain(sh *Shape, d, now, before time.Duration, mark int, own *model.Allocation) bool {
	if sh.Request.Remote != nil {
		return true // another job's start may move it to nodes where it fits
	}
	if mark == len(p.freed) {
		return false
	}
	if mark < 0 || sh.nodes == 0 {
		return true
	}
	for _, n := range p.freed[mark:] {
		_, mine := slices.BinarySearchFunc(own.Parts, n, func(part model.Part, n int32) int { return int(part.Node - n) })
		for _, w := range p.nodeWindows(sh, n, now) {
			// On a node of its own a short window may continue where the job's
			// own hold begins.
			if w.from < before && (mine || w.lasts(max(w.from, now), d)) {
				return true
			}
		}
	}
	return false
}

// Earliest finds the first time from now on, and before before, at which a job
// of this shape has what it needs for d, and where. Only now and the instants
// at which a hold ends need to be examined. The placement is valid until the
// next call.
//
// Windows of nodes count numbers only, not which devices are free; so they give
// candidates, and placeAt decides. The loop sweeps over time: it adds each node
// when its window opens, drops those that no longer last for d, and tries a
// placement as soon as enough nodes are open.
func (p *Profile) Earliest(sh *Shape, d, now, before time.Duration) (time.Duration, *model.Allocation) {
	d = max(d, 1)
	if sh.nodes == 0 || sh.Request.Remote != nil {
		return p.earliestAnywhere(sh, d, now, before)
	}
	p.starts = p.starts[:0]
	for n := range int32(len(p.holds)) {
		if sh.allowed != nil && !sh.allowed.has(n) {
			continue
		}
		for _, w := range p.nodeWindows(sh, n, now) {
			from := max(w.from, now)
			if from >= before {
				break
			}
			if w.lasts(from, d) {
				to := w.to - d
				if w.to == forever {
					to = forever
				}
				p.starts = append(p.starts, startable{from, to, n})
			}
		}
	}
	if len(p.starts) < int(sh.nodes) {
		return 0, nil
	}
	slices.SortFunc(p.starts, func(a, b startable) int {
		if a.from != b.from {
			return compareTimes(a.from, b.from)
		}
		return int(a.node - b.node)
	})
	open := 0 // p.starts[:open] have from <= t; stillOpen drops those that are over
	for i := 0; i < len(p.starts); {
		t := p.starts[i].from
		for i < len(p.starts) && p.starts[i].from == t {
			p.starts[open] = p.starts[i]
			open++
			i++
		}
		until := before
		if i < len(p.starts) {
			until = p.starts[i].from
		}
		// Until the next window opens these nodes are tried: at t and, if
		// enough nodes are open but no placement is found (the devices did not
		// match), whenever a hold ends.
		for ; t < until; t = p.nextEnd(t, before) {
			open = stillOpen(p.starts[:open], t)
			if open < int(sh.nodes) {
				break
			}
			if a := p.placeAt(sh, d, t, p.starts[:open]); a != nil {
				return t, a
			}
		}
	}
	return 0, nil
}

// stillOpen moves the entries that suit a start at t to the front, and returns
// their number.
func stillOpen(starts []startable, t time.Duration) int {
	keep := 0
	for _, s := range starts {
		if s.to >= t {
			starts[keep] = s
			keep++
		}
	}
	return keep
}

// nextEnd is the first instant after t at which a hold ends, or before.
func (p *Profile) nextEnd(t, before time.Duration) time.Duration {
	next := before
	for n := range p.holds {
		for i := range p.holds[n] {
			if end := max(p.holds[n][i].end, p.asOf+1); end > t {
				next = min(next, end)
			}
		}
	}
	return next
}

func compareTimes(a, b time.Duration) int {
	if a < b {
		return -1
	}
	return 1
}

// placeAt looks for a first fit during [t, t+d) among the given nodes. A limit
// of -1 cores excludes all others.
func (p *Profile) placeAt(sh *Shape, d, t time.Duration, nodes []startable) *model.Allocation {
	for i := range p.lim.left {
		p.lim.left[i].cores = -1
	}
	for _, s := range nodes {
		p.leave(s.node, t, model.After(t, d))
	}
	return p.place(sh, Sharing)
}

// earliestAnywhere tries every instant on all nodes: for requests that do not
// ask for a number of nodes with the same on each.
func (p *Profile) earliestAnywhere(sh *Shape, d, now, before time.Duration) (time.Duration, *model.Allocation) {
	points := append(p.points[:0], now)
	for n := range p.holds {
		for i := range p.holds[n] {
			if end := max(p.holds[n][i].end, now+1); end < before {
				points = append(points, end)
			}
		}
	}
	slices.Sort(points)
	points = slices.Compact(points)
	p.points = points
	for _, t := range points {
		if t >= before {
			break
		}
		for n := range int32(len(p.holds)) {
			p.leave(n, t, model.After(t, d))
		}
		if a := p.place(sh, Sharing); a != nil {
			return t, a
		}
	}
	return 0, nil
}

// leave sets the limits of a node to what is free during the whole of [t, end).
func (p *Profile) leave(n int32, t, end time.Duration) {
	node := &p.cluster.Nodes[n]
	left := &p.lim.left[n]
	w := &p.whole[n]
	left.cores, left.memory, left.gpus = w.cores, w.memory, w.devices
	left.touched = false
	for d, typ := range node.GPUs {
		left.shares[d] = 0
		if w.devices>>d&1 != 0 {
			left.shares[d] = p.cluster.GPUTypes[typ].Memory
		}
	}
	holds := p.holds[n]
	// Free capacity falls only where a hold starts, so its minimum over [t,
	// end) is at t or at the start of a hold.
	p.leaveAt(left, holds, n, t)
	for i := range holds {
		if s := holds[i].start; s > t && s < end {
			p.leaveAt(left, holds, n, s)
		}
	}
}

// leaveAt narrows left to what is free at one instant.
func (p *Profile) leaveAt(left *nodeLeft, holds []hold, n int32, t time.Duration) {
	node, w := &p.cluster.Nodes[n], &p.whole[n]
	cores, memory, taken := w.cores, w.memory, uint64(0)
	shared := uint64(0)
	for i := range holds {
		h := &holds[i]
		if h.start > t || h.end <= t && !p.overdue(h, t) {
			continue
		}
		left.touched = true
		cores -= h.cores
		memory -= h.memory
		taken |= h.gpus
		if h.closed {
			taken = wholeMask(len(node.GPUs))
		}
		if h.share > 0 {
			shared |= 1 << h.device
		}
	}
	left.cores, left.memory = min(left.cores, cores), min(left.memory, memory)
	left.gpus &^= taken | shared
	for set := taken; set != 0; set &= set - 1 {
		left.shares[bits.TrailingZeros64(set)] = 0
	}
	for ; shared != 0; shared &= shared - 1 {
		d := int32(bits.TrailingZeros64(shared))
		free := p.cluster.GPUTypes[node.GPUs[d]].Memory
		for i := range holds {
			if h := &holds[i]; h.share > 0 && h.device == d && h.start <= t && (h.end > t || p.overdue(h, t)) {
				free -= h.share
			}
		}
		left.shares[d] = min(left.shares[d], free)
	}
}

// overdue says whether a hold belongs to a job that has outlived its estimate.
// Such a hold lasts until it is dropped; it counts at the current instant and
// is expected to end at the next.
func (p *Profile) overdue(h *hold, t time.Duration) bool { return h.end <= p.asOf && t == p.asOf }

// nodeWindows are the periods during which a node has what the shape asks of
// each node, by numbers alone: which devices are free, and shares, are not
// examined.
func (p *Profile) nodeWindows(sh *Shape, n int32, now time.Duration) []window {
	class := int(sh.class)
	for class >= len(p.windows) {
		p.windows = append(p.windows, nil)
	}
	if p.windows[class] == nil {
		p.windows[class] = make([]nodeWindows, len(p.holds))
	}
	c := &p.windows[class][n]
	overdue := p.firstEnd[n] <= now
	if c.version == p.version[n] && !overdue {
		return c.list
	}
	c.version = p.version[n]
	if overdue {
		c.version = 0 // an overdue hold makes them valid at this instant only
	}
	c.list = c.list[:0]
	holds := p.holds[n]
	points := append(p.points[:0], now)
	for i := range holds {
		if s := holds[i].start; s > now {
			points = append(points, s)
		}
		points = append(points, max(holds[i].end, now+1))
	}
	slices.Sort(points)
	p.points = slices.Compact(points)
	whole := &p.whole[n]
	open := false
	for _, t := range p.points {
		cores, memory, taken := whole.cores, whole.memory, uint64(0)
		busy := false
		for i := range holds {
			h := &holds[i]
			if h.start <= t && max(h.end, now+1) > t {
				busy = true
				cores -= h.cores
				memory -= h.memory
				taken |= h.gpus
				if h.share > 0 {
					taken |= 1 << h.device
				}
			}
		}
		fits := cores >= sh.cores && memory >= sh.memory && !(sh.exclusive && busy)
		if sh.gpuMemory == 0 && bits.OnesCount64(whole.devices&^taken) < int(sh.gpus) {
			fits = false
		}
		switch {
		case fits && !open:
			c.list = append(c.list, window{t, forever})
		case !fits && open:
			c.list[len(c.list)-1].to = t
		}
		open = fits
	}
	return c.list
}
