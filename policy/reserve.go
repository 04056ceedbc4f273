package policy

import (
	"math"
	"slices"
	"time"

	"muster/model"
)

// Never is the time of a reservation that was not made.
const Never = time.Duration(math.MaxInt64)

// ReserveEarliest finds the earliest time, at most within from now, at which a
// job of this shape fits if all running jobs end as expected. It reserves what
// the job takes then: PlaceBeside leaves that free. It returns the time, or
// Never.
func (v *View) ReserveEarliest(sh *Shape, within time.Duration) time.Duration {
	if v.reservesByTrial(sh) {
		return v.reserveByTrial(sh, within)
	}
	return v.reserveNodes(sh, within)
}

func (v *View) reservesByTrial(sh *Shape) bool { return !sh.plain || v.shares > 0 }

// ReserveCost estimates the work of ReserveEarliest: it examines every running
// job and, for shapes that need trials, nodes for each end.
func (v *View) ReserveCost(sh *Shape) int {
	nodes, jobs := len(v.cluster.Nodes), 0
	for i := range v.state.ends.chunks {
		c := &v.state.ends.chunks[i]
		jobs += c.hi - c.lo
	}
	if v.reservesByTrial(sh) {
		return nodes + 8*jobs
	}
	return nodes/32 + jobs
}

// reserveByTrial gives running jobs back to the pool, in the order of their
// ends, until the shape fits. It notes what the placement leaves free, and
// rolls the pool back.
func (v *View) reserveByTrial(sh *Shape, within time.Duration) time.Duration {
	v.checkpoint()
	defer v.rollback()
	for ends := v.releases(within); ends.next(); {
		for _, id := range ends.jobs {
			v.give(v.Held(id))
		}
		a := v.place(sh, Sharing)
		if a == nil {
			continue
		}
		v.lim.begin()
		for i := range a.Parts {
			left := v.lim.add(v.pool, a.Parts[i].Node)
			if sh.exclusive {
				left.gpus = 0
				clear(left.shares)
			}
			left.takePart(&a.Parts[i])
		}
		for _, g := range a.Grants {
			v.lim.add(v.pool, g.Node).takeGrant(g)
		}
		return ends.at
	}
	v.lim.begin()
	return Never
}

// releases iterates over the running jobs in groups that are expected to end at
// the same time.
type releases struct {
	v      *View
	cursor Cursor
	id     JobID
	more   bool
	last   time.Duration

	at   time.Duration
	jobs []JobID
}

func (v *View) releases(within time.Duration) releases {
	r := releases{v: v, cursor: v.Ends(), last: Never, jobs: v.together[:0]}
	if within < Never-v.now {
		r.last = v.now + within
	}
	r.id, _, r.more = r.cursor.Next()
	return r
}

func (r *releases) next() bool {
	if !r.more {
		return false
	}
	r.at = r.v.ExpectedEnd(r.id)
	if r.at > r.last {
		return false
	}
	r.jobs = r.jobs[:0]
	for r.more && r.v.ExpectedEnd(r.id) == r.at {
		r.jobs = append(r.jobs, r.id)
		r.id, _, r.more = r.cursor.Next()
	}
	r.v.together = r.jobs
	return true
}

// future is what will be free of a node when some jobs have ended. An old stamp
// marks an entry that has not been used in this call.
type future struct {
	nodeState
	stamp uint32
	suits bool
}

// reserveNodes is reserveByTrial for plain shapes, the most frequent ones: it
// counts suitable nodes without changing the pool.
func (v *View) reserveNodes(sh *Shape, within time.Duration) time.Duration {
	if len(v.futures) < len(v.nodes) {
		v.futures = make([]future, len(v.nodes))
	}
	v.generation++
	v.fresh = false // first overwrites the latest placement
	fits := v.first(sh, Sharing)
	chosen := v.chosen[:0]
	for i := range v.out.Parts {
		n := v.out.Parts[i].Node
		v.futureOf(n).suits = true
		chosen = append(chosen, n)
	}
	if v.chosen = chosen; fits {
		return v.keep(sh, v.now)
	}
	for ends := v.releases(within); ends.next(); {
		for _, id := range ends.jobs {
			chosen = v.releaseInto(chosen, sh, v.Held(id))
		}
		if len(chosen) >= int(sh.nodes) {
			slices.SortFunc(chosen, v.tiersFor(sh, Sharing).before)
			v.chosen = chosen
			return v.keep(sh, ends.at)
		}
	}
	v.chosen = chosen
	v.lim.begin()
	return Never
}

func (v *View) futureOf(n int32) *future {
	f := &v.futures[n]
	if f.stamp != v.generation {
		*f = future{nodeState: v.nodes[n], stamp: v.generation}
	}
	return f
}

// releaseInto adds what a holds to the futures of its nodes, and appends the
// nodes that then suit the shape to chosen.
func (v *View) releaseInto(chosen []int32, sh *Shape, a *model.Allocation) []int32 {
	look := func(n int32, f *future) {
		if f.suits || f.cores < sh.cores || f.memory < sh.memory || sh.allowed != nil && !sh.allowed.has(n) ||
			sh.gpus > 0 && v.choose(f.gpus, sh, n, int(sh.gpus)) == 0 {
			return
		}
		f.suits = true
		chosen = append(chosen, n)
	}
	for i := range a.Parts {
		part := &a.Parts[i]
		if v.hidden != nil && v.hidden[part.Node].out {
			continue // the node is not up: other jobs get nothing of it
		}
		f := v.futureOf(part.Node)
		f.cores += part.Cores
		f.memory += part.Memory
		f.gpus |= v.usable(part.Node, part.GPUs)
		look(part.Node, f)
	}
	for _, g := range a.Grants { // these are whole devices, as no shares are out
		f := v.futureOf(g.Node)
		f.gpus |= v.usable(g.Node, 1<<g.Device)
		look(g.Node, f)
	}
	return chosen
}

// keep limits the first chosen nodes to what the shape leaves of them at the
// time of the reservation.
func (v *View) keep(sh *Shape, at time.Duration) time.Duration {
	v.lim.begin()
	for _, n := range v.chosen[:sh.nodes] {
		f := v.futureOf(n)
		left := v.lim.add(v.pool, n)
		left.cores, left.memory, left.gpus = f.cores-sh.cores, f.memory-sh.memory, f.gpus
		taken := uint64(0)
		if sh.gpus > 0 {
			taken = v.choose(f.gpus, sh, n, int(sh.gpus))
		}
		left.gpus &^= taken
		for d := range left.shares {
			t := v.cluster.Nodes[n].GPUs[d]
			left.shares[d] = v.cluster.GPUTypes[t].Memory
			if left.gpus>>d&1 == 0 {
				left.shares[d] = 0
			}
		}
	}
	return at
}
