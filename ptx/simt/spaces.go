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

// Local memory. It is interleaved: word n of all lanes of a gang lies together, one
// word a lane, so that lanes with equal addresses read one row. It has no view.

// localWord returns the word of a lane's local memory that holds an address.
func (g *gang) localWord(in *inst, lane int, addr, n uint64) *uint32 {
	if addr >= g.team.x.localBytes || g.team.x.localBytes-addr < n {
		g.fault(in, lane, IllegalAddress, addr, "outside the thread's local memory")
	}
	if addr&(n-1) != 0 {
		g.fault(in, lane, MisalignedAddress, addr, "")
	}
	return &g.local[int(addr/4)*g.width+lane]
}

func (g *gang) readLocal(in *inst, lane int, addr, n uint64) uint64 {
	w := g.localWord(in, lane, addr, n)
	switch n {
	case 8:
		return uint64(*w) | uint64(g.local[int(addr/4+1)*g.width+lane])<<32
	case 4:
		return uint64(*w)
	}
	return uint64(*w) >> (addr & 3 * 8) & (1<<(n*8) - 1)
}

func (g *gang) writeLocal(in *inst, lane int, addr, n, value uint64) {
	w := g.localWord(in, lane, addr, n)
	switch n {
	case 8:
		*w = uint32(value)
		g.local[int(addr/4+1)*g.width+lane] = uint32(value >> 32)
	case 4:
		*w = uint32(value)
	default:
		shift, m := addr&3*8, uint32(1<<(n*8)-1)
		*w = *w&^(m<<shift) | uint32(value)&m<<shift
	}
}

func loadLocal[T memval, D regval](g *gang, in *inst, a *access, size uint64) {
	if len(in.List) > 1 {
		g.checkAligned(in, a, size*uint64(len(in.List)))
	}
	for e, slot := range in.List {
		if slot < 0 {
			continue
		}
		d := fileOf[D](g).partial(g, in, slot)
		off := uint64(e)*size - a.shift
		if a.linear && a.step == 0 && size >= 4 && g.full {
			at := a.base + a.imm + off
			g.localWord(in, g.mask.first(), at, size)
			row := g.local[int(at/4)*g.width:]
			if size == 4 {
				for l := range d {
					d[l] = D(T(row[l]))
				}
			} else {
				high := row[g.width:]
				for l := range d {
					d[l] = D(uint64(row[l]) | uint64(high[l])<<32)
				}
			}
			continue
		}
		for lane := g.lo; lane < g.hi; lane++ {
			if g.mask.has(lane) {
				if at := a.at(lane) + off; at < 1<<32 {
					d[lane] = D(T(g.readLocal(in, lane, at, size)))
				} else {
					d[lane] = D(loadLane[T](g, in, lane, at+a.shift))
				}
			}
		}
	}
}

func storeLocal[T memval, D regval](g *gang, in *inst, a *access, s []D, size uint64) {
	if a.linear && a.step == 0 && size == 4 && g.full {
		at := a.base + a.imm - a.shift
		g.localWord(in, g.mask.first(), at, size)
		row := g.local[int(at/4)*g.width:][:g.width]
		for l := range row {
			row[l] = uint32(s[l])
		}
		return
	}
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			if at := a.at(lane) - a.shift; at < 1<<32 {
				g.writeLocal(in, lane, at, size, uint64(s[lane]))
			} else {
				storeLane(g, in, lane, a.at(lane), T(s[lane]))
			}
		}
	}
}
