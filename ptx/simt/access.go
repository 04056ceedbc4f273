package simt

import (
	"muster/ptx"
	"muster/ptx/simt/program"
)

// This file finds out how the lanes of a gang address memory in one instruction: in
// equal steps, or each lane by itself. The functions in memory_unsafe.go then read and
// write there.
//
// Each access tries fast paths for whole gangs and chunks first. None of them faults:
// an access that one cannot prove to be in bounds and aligned falls back to loadLane or
// storeLane, which resolve the address of one lane from the beginning and report the
// fault of the right lane.

// access is how one instruction of a gang reaches memory: with addresses in equal
// steps, or with an address for each lane.
type access struct {
	g        *gang
	in       *inst
	regular  bool     // addresses go in equal steps, else they are in lanes
	linear   bool     // they do so along the whole gang: base + lane*step
	periodic bool     // they are the same in each chunk: base + lane of the chunk * step
	base     uint64   // of lane 0, if linear or periodic
	bases    []uint64 // of each chunk's lane 0, if regular; see chunks
	step     uint64
	lanes    []uint64  // of each lane, if not regular
	imm      uint64    // to add to each address
	space    ptx.Space // for a generic address that of the first active lane
	shift    uint64    // what to subtract from a generic address to get one of its space
	memory   view      // that all lanes most likely use; no ptr if there is none
	block    int32     // the block whose shared memory was looked up last
	even     bool      // the step is so small that a chunk cannot wrap around: two lanes in bounds have all between them in bounds
}

func (g *gang) access(in *inst) *access {
	if in.Sync {
		g.sync = true
	}
	a := &g.reach
	a.g, a.in, a.imm, a.space = g, in, uint64(in.Imm), in.Space
	a.regular, a.linear, a.periodic, a.bases, a.shift, a.memory = false, false, false, nil, 0, view{}
	if g.r64.regular(in.A) {
		f := &g.r64.form[in.A]
		a.regular, a.linear = true, f.bits&linear != 0
		a.step, a.base = f.stride, f.base
		a.periodic = f.bits&periodic != 0
		if f.bits&scalar == 0 {
			a.bases = g.r64.chunks(in.A)
		}
	} else {
		a.lanes = g.r64.expand(in.A)
	}
	addr := a.at(g.first)
	if a.space == ptx.NoSpace {
		// Most generic accesses of a gang are to one space. Lanes with another space
		// are out of the bounds of the view, and fall back to loadLane or storeLane.
		var within uint64
		a.space, within = program.Window(addr)
		a.shift = addr - within
	}
	a.even = a.regular && a.step+1<<40 < 1<<41
	switch a.space {
	case ptx.GlobalSpace, ptx.ConstSpace:
		a.memory, _ = g.globalView(addr)
	case ptx.SharedSpace:
		if g.team.x.perGang == 1 {
			a.memory = g.team.shared[0]
			a.memory.base = a.shift
		}
	case ptx.ParamSpace:
		a.memory = g.team.x.params
		a.memory.base = a.shift
	}
	return a
}

// keep copies the addresses if the load may overwrite the register that holds them.
func (a *access) keep() {
	for _, slot := range a.in.List {
		if slot != a.in.A {
			continue
		}
		a.chunks()
		if a.regular {
			a.bases = append([]uint64(nil), a.bases...)
		} else if len(a.in.List) > 1 {
			a.lanes = append([]uint64(nil), a.lanes...)
		}
		return
	}
}

// at returns a lane's address.
func (a *access) at(lane int) uint64 {
	switch {
	case a.linear:
		return a.base + uint64(lane)*a.step + a.imm
	case a.periodic:
		return a.base + uint64(lane%chunk)*a.step + a.imm
	case a.regular:
		return a.bases[lane/chunk] + uint64(lane%chunk)*a.step + a.imm
	}
	return a.lanes[lane] + a.imm
}

// chunks computes the bases of a regular access if they are missing.
func (a *access) chunks() {
	if a.regular && a.bases == nil {
		a.bases = a.g.r64.chunks(a.in.A)
	}
}

// complete says whether all lanes of the gang take part.
func (g *gang) complete() bool { return g.count == g.width }

// oneSpace says whether an address means the same place for all lanes of a chunk.
// Generic addresses of local memory do not: each lane has its own. Linear and
// periodic accesses have one address, whose space is known.
func (a *access) oneSpace() bool {
	if a.in.Space != ptx.NoSpace || a.linear || a.periodic {
		return true
	}
	for _, base := range a.bases {
		if space, _ := program.Window(base + a.imm); space != a.space {
			return false
		}
	}
	return true
}

// rows says whether the lanes of each chunk use n bytes each, one behind the other,
// all in one memory. It returns what to subtract from a base to get its offset.
func (a *access) rows(n uint64) (shift uint64, ok bool) {
	if !a.regular || a.step != n || a.memory.ptr == nil || a.memory.size < chunk*n {
		return 0, false
	}
	a.chunks()
	shift = a.memory.base - a.imm
	limit := a.memory.size - chunk*n
	for _, base := range a.bases {
		if off := base - shift; off > limit || off&(n-1) != 0 {
			return 0, false
		}
	}
	return shift, true
}

// next makes v the memory that chunk c most likely uses; callers go through the
// chunks in order, so it looks up a block's shared memory once. v.ptr is nil if the
// lanes of a chunk may have different memories.
func (a *access) next(v *view, c int) {
	if a.memory.ptr != nil || a.space != ptx.SharedSpace {
		*v = a.memory
		return
	}
	if b := a.g.blockOf[c*chunk]; a.g.team.x.stride >= chunk && (v.ptr == nil || b != a.block) {
		a.block = b
		*v = a.g.team.shared[b]
		v.base = a.shift
	}
}

// inBlocks says whether an access is to the same places in the shared memories of
// several blocks, all of them in bounds. It returns the first and the last lane
// within a chunk that are active in any chunk, and the offset of the first one.
func (a *access) inBlocks(n uint64) (off uint64, first, end int, ok bool) {
	if !a.periodic || !a.even || a.space != ptx.SharedSpace || a.memory.ptr != nil || a.g.team.x.stride < chunk {
		return 0, 0, 0, false
	}
	first, end = a.g.activeRange()
	size := a.g.team.shared[0].size
	off = a.base + uint64(first)*a.step + a.imm - a.shift
	if size < n || off > size-n || off+uint64(end-first)*a.step > size-n || (off|a.step)&(n-1) != 0 {
		return 0, 0, 0, false
	}
	return off, first, end, true
}

// checkAligned faults if a lane's address of a vector is not a multiple of the
// vector's size.
func (g *gang) checkAligned(in *inst, a *access, align uint64) {
	if a.regular && a.step&(align-1) == 0 {
		a.chunks()
		for c := g.lo / chunk; c < g.hi/chunk; c++ {
			if b := g.mask.chunkBits(c); b != 0 && (a.bases[c]+a.imm)&(align-1) != 0 {
				g.fault(in, c*chunk+trailing(b), MisalignedAddress, a.bases[c]+a.imm, "")
			}
		}
		return
	}
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) && a.at(lane)&(align-1) != 0 {
			g.fault(in, lane, MisalignedAddress, a.at(lane), "")
		}
	}
}

// memval is the type of a value in memory; its sign says how it is widened.
type memval interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64
}

// regval is the type of a register.
type regval interface{ uint32 | uint64 }

func runLoad[T memval, D regval](g *gang, in *inst) {
	a := g.access(in)
	if sizeOf[D]() == 8 { // only a 64-bit register can hold the address
		a.keep()
	}
	if a.space == ptx.LocalSpace {
		loadLocal[T, D](g, in, a, sizeOf[T]())
		return
	}
	if a.regular && a.step == 0 && g.whole(in) && a.oneSpace() {
		loadBroadcast[T, D](g, in, a)
		return
	}
	if len(in.List) == 1 {
		loadElement[T, D](g, in, a, fileOf[D](g).partial(g, in, in.List[0]), sizeOf[T]())
		return
	}
	size := sizeOf[T]()
	align := size * uint64(len(in.List))
	for e, slot := range in.List {
		if e == 0 {
			g.checkAligned(in, a, align)
		}
		if slot >= 0 {
			loadElement[T, D](g, in, a, fileOf[D](g).partial(g, in, slot), size)
		}
		a.imm += size
	}
}

func runStore[T memval, D regval](g *gang, in *inst) {
	a := g.access(in)
	size := sizeOf[T]()
	if len(in.List) > 1 {
		g.checkAligned(in, a, size*uint64(len(in.List)))
	}
	if a.space == ptx.ParamSpace {
		g.checkWritable(in, g.first, a.memory, a.at(g.first))
	}
	for _, slot := range in.List {
		s := fileOf[D](g).expand(slot)
		if a.space == ptx.LocalSpace {
			storeLocal[T](g, in, a, s, size)
		} else {
			storeElement[T](g, in, a, s, size)
		}
		a.imm += size
	}
}

// loadBroadcast reads one value for each chunk, or one for the whole gang: all lanes
// of a chunk have the same address.
func loadBroadcast[T memval, D regval](g *gang, in *inst, a *access) {
	size := sizeOf[T]()
	if len(in.List) > 1 {
		g.checkAligned(in, a, size*uint64(len(in.List)))
	}
	if g.team.x.stride < chunk && a.space == ptx.SharedSpace {
		// Lanes of a chunk are of several blocks.
		for _, slot := range in.List {
			if slot >= 0 {
				loadElement[T](g, in, a, fileOf[D](g).partial(g, in, slot), size)
			}
			a.imm += size
		}
		return
	}
	r := fileOf[D](g)
	one := a.linear && (a.space != ptx.SharedSpace || g.team.x.perGang == 1)
	for _, slot := range in.List {
		if slot >= 0 {
			if one {
				lane := g.first
				r.setUniform(slot, D(loadLane[T](g, in, lane, a.at(lane))))
			} else {
				loadBases[T](g, in, a, r.bases[slot], size)
				r.setCompressed(slot, 0)
			}
		}
		a.imm += size
	}
}

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
