package simt

import (
	"muster/ptx"
	"muster/ptx/simt/vec"
)

// Copies keep a register's form.

func runCopy32(g *gang, in *inst) { g.r32.copy(g, in, in.a) }
func runCopy64(g *gang, in *inst) { g.r64.copy(g, in, in.a) }

// runSelect32: a where predicate c holds, else b.
func runSelect32(g *gang, in *inst) {
	p, r := g.selector(in), &g.r32
	if which, ok := g.decided(in, p); ok {
		r.copy(g, in, which)
		return
	}
	a, b := r.expand(in.a), r.expand(in.b)
	d := r.out(g, in)
	lo := g.lo &^ 63
	vec.Select(d[lo:g.hi], a[lo:g.hi], b[lo:g.hi], p[lo/64:])
	r.commit(g, in)
}

func runSelect64(g *gang, in *inst) {
	p, r := g.selector(in), &g.r64
	if which, ok := g.decided(in, p); ok {
		r.copy(g, in, which)
		return
	}
	a, b := r.expand(in.a), r.expand(in.b)
	d := r.out(g, in)
	lo := g.lo &^ 63
	vec.Select(d[lo:g.hi], a[lo:g.hi], b[lo:g.hi], p[lo/64:])
	r.commit(g, in)
}

func (g *gang) selector(in *inst) mask {
	p := g.p[in.c]
	if in.negated {
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
		return in.a, true
	case yes.empty():
		return in.b, true
	}
	return 0, false
}

// The modes of operations on predicates: what is inverted.
const (
	invertA = 1 << iota
	invertB
)

func (g *gang) predicates(in *inst) (a, b mask) {
	a = g.p[in.a]
	if in.b >= 0 {
		b = g.p[in.b]
	}
	for i := range a {
		if in.mode&invertA != 0 {
			a[i] = ^a[i]
		}
		if in.mode&invertB != 0 {
			b[i] = ^b[i]
		}
	}
	return a, b
}

func runPredCopy(g *gang, in *inst) {
	a, _ := g.predicates(in)
	g.setPredicate(in.d, a)
}

func runPredAnd(g *gang, in *inst) {
	a, b := g.predicates(in)
	g.setPredicate(in.d, a.and(&b))
}

func runPredOr(g *gang, in *inst) {
	a, b := g.predicates(in)
	g.setPredicate(in.d, a.or(&b))
}

func runPredXor(g *gang, in *inst) {
	a, b := g.predicates(in)
	x, y := a.without(&b), b.without(&a)
	g.setPredicate(in.d, x.or(&y))
}

// runPredConst: all lanes get imm.
func runPredConst(g *gang, in *inst) {
	var m mask
	if in.imm != 0 {
		m = g.mask
	}
	g.setPredicate(in.d, m)
}

// runIsSpace: predicate d, a: generic address.
func runIsSpace(g *gang, in *inst) {
	var m mask
	for lane := g.lo; lane < g.hi; lane++ {
		space, _ := window(g.r64.lane(in.a, lane))
		if space == in.space || in.space == ptx.ConstSpace && space == ptx.GlobalSpace && g.team.x.kernel.isConstant(g.r64.lane(in.a, lane)) {
			m.set(lane)
		}
	}
	g.setPredicate(in.d, m)
}

// runClock: a number that grows with every reading; d has 32 or 64 bits.
// It stands for time without reading a clock.
func runClock(g *gang, in *inst) {
	g.sync = true
	g.ticks++
	if in.size == 8 {
		for lane, d := g.lo, g.r64.partial(g, in, in.d); lane < g.hi; lane++ {
			if g.mask.has(lane) {
				d[lane] = g.ticks
			}
		}
		return
	}
	for lane, d := g.lo, g.r32.partial(g, in, in.d); lane < g.hi; lane++ {
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
