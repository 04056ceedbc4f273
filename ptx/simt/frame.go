package simt

import "muster/ptx/simt/program"

// Calls. Each thread has a stack of frames in its local memory. The register
// frame holds the address of the running function's frame. The register link
// holds the return address, which is the index of an instruction. Most threads
// have the same frame and link, so both mostly stay uniform.

// runEnter: d = a + imm, the callee's frame; x: bytes that it needs. It faults if
// the stack is too small.
func runEnter(g *gang, in *inst) {
	if !g.r64.regular(in.A) || !g.r64.form[in.A].uniform() || !g.whole(in) {
		a := g.r64.expand(in.A)
		d := g.r64.partial(g, in, in.D)
		for lane := g.lo; lane < g.hi; lane++ {
			if g.mask.has(lane) {
				d[lane] = g.checkStack(in, lane, a[lane])
			}
		}
		return
	}
	g.r64.setUniform(in.D, g.checkStack(in, g.mask.first(), g.r64.form[in.A].base))
}

func (g *gang) checkStack(in *inst, lane int, frame uint64) uint64 {
	next := frame + uint64(in.Imm)
	if local := g.team.x.localBytes; frame > local || next+uint64(in.X) > local {
		g.fault(in, lane, StackOverflow, 0, "calls go deeper than the stack allows")
	}
	return next
}

// runLeave: d = a - imm.
func runLeave(g *gang, in *inst) {
	if g.r64.regular(in.A) && g.r64.form[in.A].uniform() && g.whole(in) {
		g.r64.setUniform(in.D, g.r64.form[in.A].base-uint64(in.Imm))
		return
	}
	a := g.r64.expand(in.A)
	d := g.r64.partial(g, in, in.D)
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			d[lane] = a[lane] - uint64(in.Imm)
		}
	}
}

// runLink: d = x.
func runLink(g *gang, in *inst) {
	if g.whole(in) {
		g.r32.setUniform(in.D, uint32(in.X))
		return
	}
	d := g.r32.partial(g, in, in.D)
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			d[lane] = uint32(in.X)
		}
	}
}

// runPass copies an argument from the caller's frame (a + x) to the
// callee's (a + imm), y bytes.
func runPass(g *gang, in *inst) { g.pass(in, uint64(in.X), uint64(in.Imm)) }

// runPassBack copies a result the other way.
func runPassBack(g *gang, in *inst) { g.pass(in, uint64(in.Imm), uint64(in.X)) }

func (g *gang) pass(in *inst, from, to uint64) {
	if g.full && g.r64.regular(in.A) && g.r64.form[in.A].uniform() {
		base, n := g.r64.form[in.A].base, uint64(in.Y)
		if local := g.team.x.localBytes; base > local || base+max(from, to)+n > local {
			g.fault(in, g.mask.first(), StackOverflow, 0, "calls go deeper than the stack allows")
		}
		rows := int(n/4) * g.width
		copy(g.local[int(base+to)/4*g.width:][:rows], g.local[int(base+from)/4*g.width:][:rows])
		return
	}
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		base := g.r64.lane(in.A, lane)
		if local := g.team.x.localBytes; base > local || base+max(from, to)+uint64(in.Y) > local {
			g.fault(in, lane, StackOverflow, 0, "calls go deeper than the stack allows")
		}
		for i := uint64(0); i < uint64(in.Y); i += 4 {
			g.writeLocal(in, lane, base+to+i, 4, g.readLocal(in, lane, base+from+i, 4))
		}
	}
}

// runSave stores the registers in list (their classes in k) in the frame at
// a + x, 8 bytes each.
func runSave(g *gang, in *inst) {
	classes, _ := in.K.([]program.Class)
	for i, slot := range in.List {
		at := uint64(in.X) + uint64(i)*8
		for lane := g.lo; lane < g.hi; lane++ {
			if !g.mask.has(lane) {
				continue
			}
			var v uint64
			switch classes[i] {
			case program.Bits32:
				v = uint64(g.r32.lane(slot, lane))
			case program.Bits64:
				v = g.r64.lane(slot, lane)
			case program.Predicate:
				if g.p[slot].has(lane) {
					v = 1
				}
			}
			g.writeLocal(in, lane, g.r64.lane(in.A, lane)+at, 8, v)
		}
	}
}

// runRestore loads the registers that runSave stored.
func runRestore(g *gang, in *inst) {
	classes, _ := in.K.([]program.Class)
	for i, slot := range in.List {
		at := uint64(in.X) + uint64(i)*8
		read := func(lane int) uint64 { return g.readLocal(in, lane, g.r64.lane(in.A, lane)+at, 8) }
		switch classes[i] {
		case program.Bits32:
			d := g.r32.partial(g, in, slot)
			for lane := g.lo; lane < g.hi; lane++ {
				if g.mask.has(lane) {
					d[lane] = uint32(read(lane))
				}
			}
		case program.Bits64:
			d := g.r64.partial(g, in, slot)
			for lane := g.lo; lane < g.hi; lane++ {
				if g.mask.has(lane) {
					d[lane] = read(lane)
				}
			}
		case program.Predicate:
			var m mask
			for lane := g.lo; lane < g.hi; lane++ {
				if g.mask.has(lane) && read(lane) != 0 {
					m.set(lane)
				}
			}
			g.setPredicate(slot, m)
		}
	}
}
