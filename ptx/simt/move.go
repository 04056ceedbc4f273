package simt

import (
	"muster/ptx"
	"muster/ptx/simt/program"
	"muster/ptx/simt/vec"
)

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
