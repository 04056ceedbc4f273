package simt

import "muster/ptx/simt/program"

// inst is an instruction of a program with the functions of the engine that run it.
type inst struct {
	program.Inst
	run    func(*gang, *inst)      // nil for those that end a basic block
	inner  func(*gang, *inst)      // what run does under the guard, if there is one
	affine func(*gang, *inst) bool // computes on regular registers; see affine.go
}

// guarded runs an instruction in the lanes in which its guard holds.
func guarded(g *gang, in *inst) {
	m := g.p[in.Guard]
	if in.GuardNot {
		m = g.live.without(&m)
	}
	m = m.and(&g.mask)
	if m.empty() {
		return
	}
	saved := g.mask
	g.setMask(m)
	in.inner(g, in)
	g.setMask(saved)
}
