package simt

import (
	"muster/ptx"
	"muster/ptx/simt/program"
	"muster/ptx/simt/vec"
)

// This file runs the arithmetic instructions, with one function for each number of
// sources. All try the same three ways. If all sources are regular, the rule of
// affine.go may give base and stride of the result. If they have no stride, the
// lane kernel runs on one lane, or on the bases of the chunks. Else it runs on all
// lanes between the first and the last active one, and commit keeps the active
// ones. Sources are expanded before the destination is prepared, since a source
// may be the destination.

// arithmetic returns the function that runs a kernel, by its shape.
func arithmetic(kernel any) func(*gang, *inst) {
	switch kernel.(type) {
	case vec.Unary32:
		return runOne[uint32, uint32, vec.Unary32]
	case vec.Unary64:
		return runOne[uint64, uint64, vec.Unary64]
	case vec.Widen:
		return runOne[uint64, uint32, vec.Widen]
	case vec.Narrow:
		return runOne[uint32, uint64, vec.Narrow]
	case vec.Binary32:
		return runTwo[uint32, uint32, uint32, vec.Binary32]
	case vec.Binary64:
		return runTwo[uint64, uint64, uint64, vec.Binary64]
	case vec.WidenBinary:
		return runTwo[uint64, uint32, uint32, vec.WidenBinary]
	case vec.Shift64:
		return runTwo[uint64, uint64, uint32, vec.Shift64]
	case vec.Ternary32:
		return runThree[uint32, uint32, uint32, uint32, vec.Ternary32]
	case vec.Ternary64:
		return runThree[uint64, uint64, uint64, uint64, vec.Ternary64]
	case vec.WidenAdd:
		return runThree[uint64, uint32, uint32, uint64, vec.WidenAdd]
	case vec.Extract64:
		return runThree[uint64, uint64, uint32, uint32, vec.Extract64]
	case vec.Choose64:
		return runThree[uint64, uint64, uint64, uint32, vec.Choose64]
	case vec.Quad32:
		return runFour[uint32, uint32, uint32, vec.Quad32]
	case vec.Insert64:
		return runFour[uint64, uint64, uint32, vec.Insert64]
	case vec.Compare32:
		return runCompare[uint32, vec.Compare32]
	case vec.Compare64:
		return runCompare[uint64, vec.Compare64]
	case vec.Test32:
		return runTest[uint32, vec.Test32]
	case vec.Test64:
		return runTest[uint64, vec.Test64]
	case vec.Carry32:
		return runCarry[uint32, vec.Carry32]
	case vec.Carry64:
		return runCarry[uint64, vec.Carry64]
	}
	return nil
}

func runOne[D, A regval, K ~func(d []D, a []A)](g *gang, in *inst) {
	k := in.K.(K)
	rd, ra := fileOf[D](g), fileOf[A](g)
	if fa := &ra.form[in.A]; fa.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride == 0 {
			if fa.bits&linear != 0 {
				ra.one[1][0] = fa.base
				k(rd.one[0], ra.one[1])
				rd.setUniform(in.D, rd.one[0][0])
				return
			}
			k(rd.bases[in.D], ra.chunks(in.A))
			rd.setCompressed(in.D, 0)
			return
		}
	}
	a := ra.expand(in.A)
	d := rd.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	rd.commit(g, in)
}

func runTwo[D, A, B regval, K ~func(d []D, a []A, b []B)](g *gang, in *inst) {
	k := in.K.(K)
	rd, ra, rb := fileOf[D](g), fileOf[A](g), fileOf[B](g)
	if fa, fb := &ra.form[in.A], &rb.form[in.B]; fa.bits&regular != 0 && fb.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride == 0 && fb.stride == 0 {
			if fa.bits&fb.bits&linear != 0 {
				ra.one[1][0], rb.one[2][0] = fa.base, fb.base
				k(rd.one[0], ra.one[1], rb.one[2])
				rd.setUniform(in.D, rd.one[0][0])
				return
			}
			k(rd.bases[in.D], ra.chunks(in.A), rb.chunks(in.B))
			rd.setCompressed(in.D, 0)
			return
		}
	}
	a, b := ra.expand(in.A), rb.expand(in.B)
	d := rd.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	rd.commit(g, in)
}

func runThree[D, A, B, C regval, K ~func(d []D, a []A, b []B, c []C)](g *gang, in *inst) {
	k := in.K.(K)
	rd, ra, rb, rc := fileOf[D](g), fileOf[A](g), fileOf[B](g), fileOf[C](g)
	fa, fb, fc := &ra.form[in.A], &rb.form[in.B], &rc.form[in.C]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride == 0 && fb.stride == 0 && fc.stride == 0 {
			if fa.bits&fb.bits&fc.bits&linear != 0 {
				ra.one[1][0], rb.one[2][0], rc.one[3][0] = fa.base, fb.base, fc.base
				k(rd.one[0], ra.one[1], rb.one[2], rc.one[3])
				rd.setUniform(in.D, rd.one[0][0])
				return
			}
			k(rd.bases[in.D], ra.chunks(in.A), rb.chunks(in.B), rc.chunks(in.C))
			rd.setCompressed(in.D, 0)
			return
		}
	}
	a, b, c := ra.expand(in.A), rb.expand(in.B), rc.expand(in.C)
	d := rd.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	rd.commit(g, in)
}

// runFour runs kernels with four sources, of which the first two have one type and
// the last two another.
func runFour[D, A, C regval, K ~func(d []D, a, b []A, c, e []C)](g *gang, in *inst) {
	k := in.K.(K)
	rd, ra, rc := fileOf[D](g), fileOf[A](g), fileOf[C](g)
	fa, fb, fc, fe := &ra.form[in.A], &ra.form[in.B], &rc.form[in.C], &rc.form[in.E]
	if fa.uniform() && fb.uniform() && fc.uniform() && fe.uniform() && g.whole(in) {
		ra.one[1][0], ra.one[2][0], rc.one[3][0], rc.one[4][0] = fa.base, fb.base, fc.base, fe.base
		k(rd.one[0], ra.one[1], ra.one[2], rc.one[3], rc.one[4])
		rd.setUniform(in.D, rd.one[0][0])
		return
	}
	a, b, c, e := ra.expand(in.A), ra.expand(in.B), rc.expand(in.C), rc.expand(in.E)
	d := rd.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi], e[g.lo:g.hi])
	rd.commit(g, in)
}

func runCompare[T regval, K ~func(d []uint64, a, b []T)](g *gang, in *inst) {
	k := in.K.(K)
	r := fileOf[T](g)
	fa, fb := &r.form[in.A], &r.form[in.B]
	if fa.bits&regular != 0 && fb.bits&regular != 0 {
		if comparePeriodic(g, r, in, k) {
			return
		}
		if in.Ordered != 0 && compareRegular(g, r, in) {
			return
		}
		if fa.stride|fb.stride == 0 {
			k(g.bits[:1], r.chunks(in.A), r.chunks(in.B))
			g.setPredicate(in.D, spread(g.bits[0]))
			return
		}
	}
	a, b := r.expand(in.A), r.expand(in.B)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi], b[lo:g.hi])
	g.setPredicate(in.D, g.bits)
}

func runTest[T regval, K ~func(d []uint64, a []T)](g *gang, in *inst) {
	a := fileOf[T](g).expand(in.A)
	lo := g.lo &^ 63
	in.K.(K)(g.bits[lo/64:], a[lo:g.hi])
	g.setPredicate(in.D, g.bits)
}

func runCarry[T regval, K ~func(d, a, b, c []T, in, out []uint64)](g *gang, in *inst) {
	r := fileOf[T](g)
	a, b, c := r.expand(in.A), r.expand(in.B), r.expand(in.C)
	d := r.out(g, in)
	g.bits = g.cc
	in.K.(K)(d[:g.width], a, b, c, g.cc[:], g.bits[:])
	r.commit(g, in)
	out, old := g.bits.and(&g.mask), g.cc.without(&g.mask)
	g.cc = out.or(&old)
}

// setPredicate writes a predicate's active lanes.
func (g *gang) setPredicate(slot int32, bits mask) {
	d := &g.p[slot]
	for i, m := range g.mask {
		d[i] = d[i]&^m | bits[i]&m
	}
}

// spread turns each of the low 16 bits into the 16 bits of a chunk.
func spread(b uint64) mask {
	var m mask
	for i := range m {
		for j := range 64 / chunk {
			m[i] |= -(b & 1) & (1<<chunk - 1) << (j * chunk)
			b >>= 1
		}
	}
	return m
}

// Copies keep a register's form.

func runCopy[T regval](g *gang, in *inst) { fileOf[T](g).copy(g, in, in.A) }

// runSelect: a where predicate c holds, else b.
func runSelect[T regval](g *gang, in *inst) {
	p, r := g.selector(in), fileOf[T](g)
	if which, ok := g.decided(in, p); ok {
		r.copy(g, in, which)
		return
	}
	a, b := r.expand(in.A), r.expand(in.B)
	d := r.out(g, in)
	lo := g.lo &^ 63
	vec.Select(d[lo:g.hi], a[lo:g.hi], b[lo:g.hi], p[lo/64:])
	r.commit(g, in)
}

func (g *gang) selector(in *inst) mask {
	p := g.p[in.C]
	if in.Negated {
		for i := range p {
			p[i] = ^p[i]
		}
	}
	return p
}

// decided says which source all active lanes select, if it is the same.
func (g *gang) decided(in *inst, p mask) (int32, bool) {
	switch yes := p.and(&g.mask); {
	case yes == g.mask:
		return in.A, true
	case yes.empty():
		return in.B, true
	}
	return 0, false
}

func (g *gang) predicates(in *inst) (a, b mask) {
	a = g.p[in.A]
	if in.B >= 0 {
		b = g.p[in.B]
	}
	for i := range a {
		if in.Mode&program.InvertA != 0 {
			a[i] = ^a[i]
		}
		if in.Mode&program.InvertB != 0 {
			b[i] = ^b[i]
		}
	}
	return a, b
}

func runPredCopy(g *gang, in *inst) {
	a, _ := g.predicates(in)
	g.setPredicate(in.D, a)
}

func runPredAnd(g *gang, in *inst) {
	a, b := g.predicates(in)
	g.setPredicate(in.D, a.and(&b))
}

func runPredOr(g *gang, in *inst) {
	a, b := g.predicates(in)
	g.setPredicate(in.D, a.or(&b))
}

func runPredXor(g *gang, in *inst) {
	a, b := g.predicates(in)
	x, y := a.without(&b), b.without(&a)
	g.setPredicate(in.D, x.or(&y))
}

// runPredConst: all lanes get imm.
func runPredConst(g *gang, in *inst) {
	var m mask
	if in.Imm != 0 {
		m = g.mask
	}
	g.setPredicate(in.D, m)
}

// runIsSpace: predicate d, a: generic address.
func runIsSpace(g *gang, in *inst) {
	var m mask
	for lane := g.lo; lane < g.hi; lane++ {
		space, _ := program.Window(g.r64.lane(in.A, lane))
		if space == in.Space || in.Space == ptx.ConstSpace && space == ptx.GlobalSpace && g.team.x.kernel.IsConstant(g.r64.lane(in.A, lane)) {
			m.set(lane)
		}
	}
	g.setPredicate(in.D, m)
}

// runClock: a number that grows with every reading; d has 32 or 64 bits.
// It stands for time without reading a clock.
func runClock(g *gang, in *inst) {
	g.sync = true
	g.ticks++
	if in.Size == 8 {
		for lane, d := g.lo, g.r64.partial(g, in, in.D); lane < g.hi; lane++ {
			if g.mask.has(lane) {
				d[lane] = g.ticks
			}
		}
		return
	}
	for lane, d := g.lo, g.r32.partial(g, in, in.D); lane < g.hi; lane++ {
		if g.mask.has(lane) {
			d[lane] = uint32(g.ticks)
		}
	}
}

// runNothing is for hints.
func runNothing(*gang, *inst) {}

// runSleep runs nanosleep. It does not sleep. A thread that asks to sleep most likely
// waits for another thread, so the round of its loop costs more (see loops).
func runSleep(g *gang, in *inst) { g.sync = true }
