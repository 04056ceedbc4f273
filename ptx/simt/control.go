package simt

import (
	"fmt"
	"math/bits"

	"muster/ptx/simt/program"
)

// Divergence: the lanes of a gang stand at one or more places in the code. The
// lanes at one place form a group. The scheduler runs the group at the lowest
// place until it passes another group, and merges groups at the same place:
// compilers lay out code such that paths meet further down. A group that loops
// while others wait gives way after some time; otherwise a lane that spins until
// a lane of another group writes a flag would spin for ever.
//
// Groups change only between basic blocks. So a register that carries no value
// from one block to another (a private one) may be written in all lanes at once,
// whatever the mask: before another group runs, its value is dead.

type groupState uint8

const (
	ready     groupState = iota
	atBar                // waits at a barrier of the block
	atWarp               // waits until the lanes of its warp that the mask names reach the same instruction
	atWarpBar            // waits until those lanes are at a bar.warp.sync, of any place
)

type group struct {
	pc    int32
	state groupState
	bar   uint8 // number of the barrier
	lanes mask
	stamp uint64 // of gang.stamp when it last gave way; the oldest one runs next
}

// The fairness rule. A round of a loop costs 1, or loopSync if it has
// synchronised with memory: such a loop probably waits for another thread. A
// group whose rounds cost more than the limit gives way.
const (
	loopBudget  = 4096    // the limit while other groups of the gang wait
	loopSync    = 64      // cost of a round that synchronised
	loopAlone   = 1 << 20 // the limit of a group that is alone and does not synchronise
	favourBlock = 512     // basic blocks that the next group may run although it is not the lowest
)

// outcome is why a gang stopped running.
type outcome uint8

const (
	finished  outcome = iota // all its threads have exited
	blocked                  // all its threads wait at barriers or for their warps
	yielded                  // its loops have used up their limit; other gangs and teams should run
	exhausted                // the budget is used up, or a stop was asked for
)

// advance runs the gang until it finishes, blocks, yields or is stopped. It takes
// the instructions that it runs from the worker's budget and never runs more.
//
// The outer loop chooses a group, the inner one runs basic blocks of it. The
// inner loop ends when the groups have changed, when the group gives way, and,
// while there are several groups, after every block, since another group may be
// the lowest one now; only a favoured group goes on (see giveWay).
//
// A gang that was stopped inside a block (partial) goes on with the same group
// and does not choose: private registers are valid in that group's block only.
func (g *gang) advance(w *worker) outcome {
	code := g.team.x.image.code
	for {
		if !g.partial {
			if o, ok := g.choose(); !ok {
				g.rounds = 0
				return o
			}
		}
		pc := g.groups[g.cur].pc
		for {
			p := g.traverse(w, pc)
			if p.how == passStopped {
				// The budget does not pay for the whole block: run what it pays for.
				return g.step(w, p.first, code[p.first].End)
			}
			next, same := p.next, true
			if p.how == passEnd {
				in := &code[p.end]
				if in.Long && g.takesBack(w, p.end, p.end) {
					return g.step(w, p.end, p.end)
				}
				if w.spot != nil {
					w.spot.at(p.end)
				}
				next, same = g.finish(in, p.end)
				if in.Long {
					g.charge(w)
				}
				g.learn(w, p.end)
				// A branch back that only some lanes take is a round of a loop, too.
				if !same && in.Back && g.loops() && g.yields() {
					g.partial = false
					return yielded
				}
			}
			g.partial = false
			if !same {
				break
			}
			if p.how != passNext && next <= p.first && g.loops() {
				g.groups[g.cur].pc = next
				if g.yields() {
					return yielded
				}
				break
			}
			pc = next
			g.groups[g.cur].pc = pc
			if len(g.groups) > 1 {
				if g.favour > 0 {
					g.favour--
					if g.favour > 0 && !g.meets(pc) {
						continue
					}
				}
				break
			}
		}
	}
}

// loops adds the cost of a round of a loop to what the group has spent, and
// returns whether it must give way.
func (g *gang) loops() bool {
	limit := loopBudget
	g.spin++
	if g.sync {
		g.spin += loopSync - 1
		g.sync = false
	} else if len(g.groups) == 1 {
		limit = loopAlone
	}
	return g.spin > limit
}

// yields makes the running group give way. It returns true if the whole gang
// must yield to other gangs and teams: no other group of it can run, or its
// groups have given way to each other more than eight times.
func (g *gang) yields() bool {
	g.rounds++
	if g.giveWay() && g.rounds <= 8 {
		return false
	}
	g.spin, g.rounds = 0, 0
	return true
}

// step runs as many instructions of a basic block as the budget allows, never the
// last one, and leaves the gang inside the block.
func (g *gang) step(w *worker, pc, end int32) outcome {
	code := g.team.x.image.code
	for ; pc < end && w.budget > 0 && !w.stop.Load(); pc++ {
		if code[pc].Long && w.spent {
			break
		}
		w.budget--
		w.stats.Instructions++
		w.stats.LaneOps += uint64(g.count)
		in := &code[pc]
		if w.spot != nil {
			w.spot.single(pc, g.count)
		}
		in.run(g, in)
		if in.Long {
			g.charge(w)
		}
	}
	g.groups[g.cur].pc = pc
	g.partial = true
	return exhausted
}

// meets says whether another ready group stands at a place.
func (g *gang) meets(pc int32) bool {
	for i := range g.groups {
		if i != g.cur && g.groups[i].pc == pc && g.groups[i].state == ready {
			return true
		}
	}
	return false
}

// choose makes the ready group at the lowest place the running one, or keeps the
// running one while it is favoured. All ready groups at the same place are merged
// into it. At a warp instruction those that wait there are merged as well, since
// the lanes that they wait for may be in the chosen group. If no group is ready,
// it returns false and why.
func (g *gang) choose() (outcome, bool) {
	for {
		if len(g.groups) == 0 {
			return finished, false
		}
		best := -1
		if g.favour > 0 && g.cur < len(g.groups) && g.groups[g.cur].state == ready {
			best = g.cur
		} else {
			g.favour = 0
			for i := range g.groups {
				if g.groups[i].state == ready && (best < 0 || g.groups[i].pc < g.groups[best].pc) {
					best = i
				}
			}
		}
		if best < 0 {
			if g.wakeWarps() {
				continue
			}
			return blocked, false
		}
		g.cur = best
		pc := g.groups[best].pc
		waits := g.team.x.image.code[pc].Flow == program.FlowWarp
		for i := 0; i < len(g.groups); i++ {
			o := &g.groups[i]
			if i != g.cur && o.pc == pc && (o.state == ready || waits && o.state == atWarp) {
				g.groups[g.cur].lanes = g.groups[g.cur].lanes.or(&o.lanes)
				g.remove(i)
				i--
			}
		}
		g.setMask(g.groups[g.cur].lanes)
		return 0, true
	}
}

// remove takes a group out of the list and keeps cur on its group.
func (g *gang) remove(i int) {
	end := len(g.groups) - 1
	g.groups[i] = g.groups[end]
	g.groups = g.groups[:end]
	if g.cur == end {
		g.cur = i
	}
}

// giveWay makes the ready group that gave way longest ago the running one, and
// favours it: otherwise the group at the lowest place, which loops, would be
// chosen again at once. It returns false if no other group is ready.
func (g *gang) giveWay() bool {
	g.stamp++
	g.groups[g.cur].stamp = g.stamp
	best := -1
	for i := range g.groups {
		if i != g.cur && g.groups[i].state == ready && (best < 0 || g.groups[i].stamp < g.groups[best].stamp) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	g.spin = 0
	g.cur = best
	g.favour = favourBlock
	return true
}

// split takes lanes m out of the running group and makes them a group at place
// pc. It may move the groups in memory: pointers to them become invalid.
func (g *gang) split(m mask, pc int32) {
	cur := &g.groups[g.cur]
	cur.lanes = cur.lanes.without(&m)
	g.groups = append(g.groups, group{pc: pc, lanes: m, stamp: cur.stamp})
}

// finish runs the last instruction of a basic block, which stands at index at.
// It returns where the group goes on, and true. If the groups have changed it
// returns false; the groups then have their new places.
func (g *gang) finish(in *inst, at int32) (next int32, same bool) {
	if in.Guard >= 0 && in.Flow > program.FlowBranch {
		return g.finishGuarded(in, at)
	}
	if g.team.check != nil {
		g.team.x.check.synchronises(g, in)
	}
	switch in.Flow {
	case program.FlowNone:
		if in.run != nil {
			in.run(g, in)
		}
		return at + 1, true
	case program.FlowJump:
		return in.Target, true
	case program.FlowBranch:
		p := g.p[in.A]
		if in.Negated {
			p = g.mask.without(&p)
		}
		p = p.and(&g.mask)
		switch {
		case p == g.mask:
			return in.Target, true
		case p.empty():
			return at + 1, true
		}
		g.groups[g.cur].pc = at + 1
		g.split(p, in.Target)
		return 0, false
	case program.FlowTable:
		return g.scatter(func(lane int) int32 {
			i := g.r32.lane(in.A, lane)
			if int(i) >= len(in.Targets) {
				g.fault(in, lane, IllegalCall, 0, fmt.Sprintf("branch %d of a table of %d", i, len(in.Targets)))
			}
			return in.Targets[i]
		})
	case program.FlowCall:
		entries := g.team.x.image.Entries
		return g.scatter(func(lane int) int32 {
			entry, ok := entries[g.r64.lane(in.A, lane)]
			if !ok {
				g.fault(in, lane, IllegalCall, 0, fmt.Sprintf("%#x is not the address of a function", g.r64.lane(in.A, lane)))
			}
			return entry
		})
	case program.FlowReturn:
		if f := &g.r32.form[in.A]; f.uniform() {
			return g.returnTo(in, g.first, f.base), true
		}
		return g.scatter(func(lane int) int32 { return g.returnTo(in, lane, g.r32.lane(in.A, lane)) })
	case program.FlowExit:
		g.exit(g.mask)
		return 0, false
	case program.FlowTrap:
		g.fault(in, g.mask.first(), Trapped, 0, "")
	case program.FlowBarrier:
		return g.barrier(in, at)
	case program.FlowWarp:
		if g.warpsComplete(in) {
			in.run(g, in)
			return at + 1, true
		}
		return g.parkWarps(in, at, atWarp)
	case program.FlowWarpWait:
		if g.warpsComplete(in) {
			return at + 1, true
		}
		return g.parkWarps(in, at, atWarpBar)
	}
	panic("simt: unknown end of a basic block")
}

// returnTo checks a return address: a recursive function saves it in the thread's
// frame, where the thread can overwrite it.
func (g *gang) returnTo(in *inst, lane int, to uint32) int32 {
	if code := g.team.x.image.code; uint64(to) >= uint64(len(code)) || !code[to].Returns {
		g.fault(in, lane, IllegalCall, 0, "the return address in the thread's local memory was overwritten")
	}
	return int32(to)
}

// finishGuarded runs the last instruction of a block under a guard. It makes the
// lanes that the guard excludes a group after the instruction, and runs a copy
// of the instruction without the guard for the others.
func (g *gang) finishGuarded(in *inst, at int32) (int32, bool) {
	m := g.p[in.Guard]
	if in.GuardNot {
		m = g.mask.without(&m)
	}
	m = m.and(&g.mask)
	if m.empty() {
		return at + 1, true
	}
	if rest := g.mask.without(&m); !rest.empty() {
		g.groups[g.cur].pc = at
		g.split(rest, at+1)
		g.setMask(m)
		plain := *in
		plain.Guard = -1
		if next, same := g.finish(&plain, at); same {
			g.groups[g.cur].pc = next
		}
		return 0, false
	}
	plain := *in
	plain.Guard = -1
	return g.finish(&plain, at)
}

// scatter sends each active lane to the place that to returns for it. Lanes with
// the same place stay together. to faults for a lane that has no valid place;
// the first loop asks for every lane, before the groups change.
func (g *gang) scatter(to func(lane int) int32) (int32, bool) {
	first := to(g.mask.first())
	rest := g.mask
	var same mask
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) && to(lane) == first {
			same.set(lane)
		}
	}
	if same == g.mask {
		return first, true
	}
	g.groups[g.cur].pc = first
	rest = rest.without(&same)
	for !rest.empty() {
		pc := to(rest.first())
		var m mask
		for w, b := range rest {
			for ; b != 0; b &= b - 1 {
				if lane := w<<6 + bits.TrailingZeros64(b); to(lane) == pc {
					m.set(lane)
				}
			}
		}
		g.split(m, pc)
		rest = rest.without(&m)
	}
	return 0, false
}

// exit ends the threads of some lanes of the running group. That may complete
// barriers of the block and warp instructions that waited for these lanes.
func (g *gang) exit(m mask) {
	if len(g.groups) == 1 && m == g.groups[0].lanes { // the last threads of the gang
		g.live, g.groups, g.favour = mask{}, g.groups[:0], 0
		g.team.leave(g, m)
		return
	}
	g.live = g.live.without(&m)
	cur := &g.groups[g.cur]
	cur.lanes = cur.lanes.without(&m)
	if cur.lanes.empty() {
		g.remove(g.cur)
		g.favour = 0
	}
	g.team.leave(g, m)
	g.wakeWarps()
}
