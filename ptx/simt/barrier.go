package simt

import (
	"fmt"
	"math/bits"

	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
)

// clusterBarrier is the number of the barrier that a block shares with its cluster.
const clusterBarrier = shape.MaxBarriers

// barrier is the state of one barrier of a block.
type barrier struct {
	arrived  int // threads
	expected int // threads; 0: all that have not exited
	holds    int // in how many of the arrived threads the predicate of bar.red holds
}

// barrier makes the running group arrive at a barrier and wait for the threads of
// its blocks. The lanes wait in groups at the barrier's own place; release lets
// them continue after it.
func (g *gang) barrier(in *inst, at int32) (int32, bool) {
	t := g.team
	if g.full && len(t.gangs) == 1 && in.Mode == program.BarSync && in.B < 0 && len(g.groups) == 1 {
		if t.check != nil {
			t.x.check.passes(t)
		}
		return at + 1, true // all live threads of the team are in this group
	}
	switch in.Mode {
	case program.ClusterArrive:
		return g.arriveInCluster(at)
	case program.ClusterWait:
		return g.waitInCluster(at)
	}
	// The number may be in a register, and not the same in all lanes.
	var numbers uint32
	cur := g.groups[g.cur]
	for rest := g.mask; !rest.empty(); {
		number := g.r32.lane(in.A, rest.first())
		if number >= shape.MaxBarriers {
			g.fault(in, rest.first(), IllegalCall, 0, "barriers are numbered 0 to 15")
		}
		here := g.atNumber(in, rest, number)
		t.arrive(g, in, here, number)
		grp := group{pc: at, state: atBar, bar: uint8(number), lanes: here, stamp: cur.stamp}
		if in.Mode == program.BarArrive {
			grp.pc, grp.state = at+1, ready
		}
		if numbers == 0 {
			g.groups[g.cur] = grp
		} else {
			g.groups = append(g.groups, grp)
		}
		numbers |= 1 << number
		rest = rest.without(&here)
	}
	for ; numbers != 0; numbers &= numbers - 1 {
		t.release(bits.TrailingZeros32(numbers))
	}
	return 0, false
}

// arriveInCluster counts the running group among those that have arrived at the
// barrier of their cluster. They go on.
func (g *gang) arriveInCluster(at int32) (int32, bool) {
	t := g.team
	t.arrivals = true
	g.arrived = g.arrived.or(&g.mask)
	for b := range t.live {
		m := g.lanesOf[b].and(&g.mask)
		t.bars[b][clusterBarrier].arrived += m.count()
	}
	g.groups[g.cur].pc = at + 1
	t.release(clusterBarrier)
	return 0, false
}

// waitInCluster makes those lanes of the running group wait that have arrived and
// whose cluster is not complete. release has taken the others out of arrived;
// they go on.
func (g *gang) waitInCluster(at int32) (int32, bool) {
	waits := g.arrived.and(&g.mask)
	if waits.empty() {
		return at + 1, true
	}
	cur := &g.groups[g.cur]
	parked := group{pc: at, state: atBar, bar: clusterBarrier, lanes: waits, stamp: cur.stamp}
	if rest := g.mask.without(&waits); !rest.empty() {
		cur.lanes, cur.pc = rest, at+1
		g.groups = append(g.groups, parked)
	} else {
		*cur = parked
		g.favour = 0
	}
	return 0, false
}

// atNumber returns the lanes of m that name barrier number.
func (g *gang) atNumber(in *inst, m mask, number uint32) mask {
	if g.r32.form[in.A].uniform() {
		return m
	}
	var here mask
	for lane := g.lo; lane < g.hi; lane++ {
		if m.has(lane) && g.r32.lane(in.A, lane) == number {
			here.set(lane)
		}
	}
	return here
}

// arrive adds lanes to the counts of a barrier, of each block that they belong to.
func (t *team) arrive(g *gang, in *inst, lanes mask, number uint32) {
	t.arrivals = true
	for b := range t.live {
		m := g.lanesOf[b]
		if m = m.and(&lanes); m.empty() {
			continue
		}
		bar := &t.bars[b][number]
		bar.arrived += m.count()
		if in.B >= 0 {
			bar.expected = int(g.r32.lane(in.B, m.first()))
			if bar.expected%g.warp != 0 || bar.expected == 0 || bar.expected > shape.MaxThreads {
				g.fault(in, m.first(), IllegalCall, 0, fmt.Sprintf("the threads of a barrier must be a multiple of the warp size, up to %d", shape.MaxThreads))
			}
			// Expected threads are counted in whole warps, so the missing threads
			// of the block's last warp arrive with its last thread.
			if threads := int(t.x.launch.Block.Count()); int(g.threadOf[m.end()-1]) == threads-1 {
				absent := shape.Round(threads, shape.WarpSize) - threads
				bar.arrived += absent
				if in.Mode == program.BarAnd {
					bar.holds += absent
				}
			}
		}
		if in.C >= 0 {
			p := g.p[in.C]
			if in.Negated {
				p = m.without(&p)
			}
			p = p.and(&m)
			bar.holds += p.count()
		}
	}
}

// release lets the threads of all complete blocks pass a barrier: it writes the
// results of bar.red, makes the waiting lanes of all gangs ready after the
// barrier, and clears the barrier for its next use. A group with lanes of blocks
// that are not complete is split.
func (t *team) release(number int) {
	done := t.passing[:0] // blocks
	for b := range t.live {
		if t.together(b, number) {
			done = append(done, b)
		}
	}
	t.passing = done
	if len(done) == 0 {
		return
	}
	for _, g := range t.gangs {
		var mine mask
		for _, b := range done {
			mine = mine.or(&g.lanesOf[b])
		}
		if number == clusterBarrier {
			g.arrived = g.arrived.without(&mine)
		}
		for i := range g.groups {
			grp := &g.groups[i]
			if grp.state != atBar || int(grp.bar) != number {
				continue
			}
			m := grp.lanes.and(&mine)
			if m.empty() {
				continue
			}
			in := &t.x.image.code[grp.pc]
			if in.Mode != program.BarSync {
				for _, b := range done {
					g.barrierResult(in, m.and(&g.lanesOf[b]), t.bars[b][number])
				}
			}
			if m == grp.lanes {
				grp.state = ready
				grp.pc++
				continue
			}
			grp.lanes = grp.lanes.without(&m)
			g.groups = append(g.groups, group{pc: grp.pc + 1, lanes: m, stamp: grp.stamp})
		}
	}
	for _, b := range done {
		t.bars[b][number] = barrier{}
		if t.check != nil {
			t.check[b].Pass(number)
		}
	}
}

// barrierResult writes what bar.red computed.
func (g *gang) barrierResult(in *inst, m mask, b barrier) {
	if m.empty() {
		return
	}
	saved := g.mask
	g.setMask(m)
	switch in.Mode {
	case program.BarPopc:
		d := g.r32.partial(g, in, in.D)
		for lane := g.lo; lane < g.hi; lane++ {
			if m.has(lane) {
				d[lane] = uint32(b.holds)
			}
		}
	case program.BarAnd, program.BarOr:
		var all mask
		if in.Mode == program.BarAnd && b.holds == b.arrived || in.Mode == program.BarOr && b.holds > 0 {
			all = m
		}
		g.setPredicate(in.D, all)
	}
	g.setMask(saved)
}

// leave subtracts exited threads from the live threads of their blocks. That may
// complete barriers at which all other threads wait.
func (t *team) leave(g *gang, m mask) {
	if len(t.live) == 1 {
		t.live[0] -= m.count()
	} else {
		t.leaveBlocks(g, m)
	}
	if !t.arrivals {
		return
	}
	for n := range shape.MaxBarriers + 1 {
		for b := range t.live {
			if t.bars[b][n].arrived > 0 {
				t.release(n)
				break
			}
		}
	}
}

func (t *team) leaveBlocks(g *gang, m mask) {
	for b := range t.live {
		gone := g.lanesOf[b].and(&m)
		if !gone.empty() {
			t.live[b] -= gone.count()
		}
	}
}

// members returns the lanes that a lane's warp instruction waits for: those of its
// warp that its mask names and that have not exited.
func (g *gang) members(in *inst, lane int) mask {
	base := lane &^ (g.warp - 1)
	var m mask
	named := uint64(1<<g.warp - 1)
	if in.E >= 0 {
		named &= uint64(g.r32.lane(in.E, lane))
	}
	m[base>>6] = named << (base & 63)
	return m.and(&g.live)
}

// warpsComplete says whether every warp of the group has all the lanes that
// the instruction at hand waits for.
func (g *gang) warpsComplete(in *inst) bool {
	if g.full {
		return true
	}
	missing := g.incomplete(in)
	return missing.empty()
}

// incomplete returns the lanes of the group that must wait.
func (g *gang) incomplete(in *inst) mask {
	var waits mask
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		m := g.members(in, lane)
		if m = m.without(&g.mask); !m.empty() {
			waits.set(lane)
		}
	}
	return waits
}

// parkWarps makes the lanes wait whose warps are not complete, and runs the
// instruction for the rest.
func (g *gang) parkWarps(in *inst, at int32, state groupState) (int32, bool) {
	waits := g.incomplete(in)
	cur := &g.groups[g.cur]
	if rest := g.mask.without(&waits); !rest.empty() {
		cur.lanes = rest
		g.groups = append(g.groups, group{pc: at, state: state, lanes: waits, stamp: cur.stamp})
		g.setMask(rest)
		if in.run != nil {
			in.run(g, in)
		}
		g.groups[g.cur].pc = at + 1
	} else {
		cur.pc, cur.state = at, state
		g.favour = 0
	}
	g.wakeWarps()
	return 0, false
}

// wakeWarps makes waiting lanes ready that no longer miss a lane. Lanes at a
// bar.warp.sync continue after it once all their members are at one, at whatever
// place. Lanes at another warp instruction become ready at it, and run it, once
// all their members are in the same group or have exited. It returns whether any
// lane became ready.
func (g *gang) wakeWarps() bool {
	var atBars mask
	any := false
	for i := range g.groups {
		if g.groups[i].state == atWarpBar {
			atBars = atBars.or(&g.groups[i].lanes)
			any = true
		} else if g.groups[i].state == atWarp {
			any = true
		}
	}
	if !any {
		return false
	}
	woken := false
	for i := 0; i < len(g.groups); i++ {
		grp := g.groups[i]
		if grp.state != atWarp && grp.state != atWarpBar {
			continue
		}
		in := &g.team.x.image.code[grp.pc]
		here := grp.lanes
		if grp.state == atWarpBar {
			here = atBars
		}
		var free mask
		for w, b := range grp.lanes {
			for ; b != 0; b &= b - 1 {
				lane := w<<6 + bits.TrailingZeros64(b)
				m := g.members(in, lane)
				if m = m.without(&here); m.empty() {
					free.set(lane)
				}
			}
		}
		if free.empty() {
			continue
		}
		woken = true
		next := grp
		next.state = ready
		if grp.state == atWarpBar {
			next.pc++ // bar.warp.sync has nothing to run; other instructions run when chosen
		}
		if free == grp.lanes {
			g.groups[i] = next
			continue
		}
		next.lanes = free
		g.groups[i].lanes = grp.lanes.without(&free)
		g.groups = append(g.groups, next)
	}
	return woken
}
