package simt

import (
	"muster/ptx"
	"muster/ptx/simt/program"
)

// This file resolves addresses: to which state space an address belongs, and which
// stretch of memory a lane reaches with it.

// globalView returns the view around an address of global memory; ok is false if
// nothing is mapped there. It remembers the last view, since most accesses of a
// gang are to the same stretch.
func (g *gang) globalView(addr uint64) (view, bool) {
	if addr-g.region.base < g.region.size {
		return g.region, true
	}
	r, ok := g.team.x.memory.Find(addr)
	if !ok || addr >= program.GlobalEnd {
		return view{}, false
	}
	g.region = viewOf(r.Base, r.Bytes)
	return g.region, true
}

// sharedView returns the shared memory of a lane's block.
func (g *gang) sharedView(lane int) view { return g.team.shared[g.blockOf[lane]] }

// place resolves an address of a state space, for one lane: a view and an address
// in it. If nothing is there the view is empty, so that any access to it faults.
// Local memory is interleaved and has no view; local says that the address is one
// of it.
func (g *gang) place(in *inst, lane int, addr uint64) (v view, at uint64, local bool) {
	space := in.Space
	if space == ptx.NoSpace {
		space, addr = program.Window(addr)
	}
	switch space {
	case ptx.SharedSpace:
		v, addr = g.sharedOf(lane, addr)
		return v, addr, false
	case ptx.LocalSpace:
		return view{}, addr, true
	case ptx.ParamSpace:
		return g.team.x.params, addr, false
	case ptx.GlobalSpace, ptx.ConstSpace:
		if v, ok := g.globalView(addr); ok {
			return v, addr, false
		}
	}
	return view{}, addr, false
}

// checkWritable stops a kernel that writes to its parameters.
func (g *gang) checkWritable(in *inst, lane int, v view, addr uint64) {
	if v.ptr == g.team.x.params.ptr {
		g.fault(in, lane, WriteToReadOnly, addr, "parameters of a kernel cannot be written")
	}
}
