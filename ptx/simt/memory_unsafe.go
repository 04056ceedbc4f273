package simt

import (
	"math/bits"
	"unsafe"

	"muster/ptx"
)

// All of the engine's unsafe code is in files named *_unsafe.go. Kernels reach
// memory through views, and every access checks the bounds of its view: one
// comparison for a lane, or two for a chunk of lanes that walks through memory in
// equal steps (its first and its last lane).
//
// Each instruction tries fast paths for whole gangs and chunks first. None of them
// faults: an access that one cannot prove to be in bounds and aligned falls back to
// loadLane or storeLane, which resolve the address of one lane from the beginning
// and report the fault of the right lane.
//
// Offsets are computed modulo 2^64: addr - base is larger than any size if addr
// lies below base, so one unsigned comparison checks both ends.

// view is a stretch of memory as a state space addresses it.
type view struct {
	base, size uint64
	ptr        unsafe.Pointer
}

// span returns where n bytes at an address lie, or nil if not all of them are
// in the view.
func (v *view) span(addr, n uint64) unsafe.Pointer {
	if off := addr - v.base; off < v.size && v.size-off >= n {
		return unsafe.Add(v.ptr, off)
	}
	return nil
}

func viewOf(base uint64, b []byte) view {
	return view{base: base, size: uint64(len(b)), ptr: unsafe.Pointer(unsafe.SliceData(b))}
}

// aligned returns n bytes that begin at a multiple of 16.
func aligned(n int) []byte {
	words := make([][2]uint64, n/16+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*16)[:n]
}

// globalView returns the view around an address of global memory; ok is false if
// nothing is mapped there. It remembers the last view, since most accesses of a
// gang are to the same stretch.
func (g *gang) globalView(addr uint64) (view, bool) {
	if addr-g.region.base < g.region.size {
		return g.region, true
	}
	r, ok := g.team.x.memory.Find(addr)
	if !ok || addr >= GlobalEnd {
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
	space := in.space
	if space == ptx.NoSpace {
		space, addr = window(addr)
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

// stretch returns n bytes of memory for a lane of a bulk copy. It stops the kernel
// with a fault if the address is not a multiple of 16 or in local memory.
func (g *gang) stretch(in *inst, lane int, space ptx.Space, addr, n uint64) []byte {
	at := *in
	at.space = space
	v, within, local := g.place(&at, lane, addr)
	switch p := v.span(within, max(n, 1)); {
	case local || p == nil:
		g.fault(in, lane, IllegalAddress, addr, "")
	case within%bulkUnit != 0:
		g.fault(in, lane, MisalignedAddress, addr, "")
	default:
		g.checkWritable(in, lane, v, addr)
		return unsafe.Slice((*byte)(p), n)
	}
	return nil
}

// window returns the state space of a generic address, and the address in that
// space; NoSpace if it is in none.
func window(addr uint64) (ptx.Space, uint64) {
	if addr < GlobalEnd {
		return ptx.GlobalSpace, addr
	}
	switch addr >> 32 {
	case sharedWindow >> 32:
		return ptx.SharedSpace, addr & (1<<32 - 1)
	case localWindow >> 32:
		return ptx.LocalSpace, addr & (1<<32 - 1)
	case paramWindow >> 32:
		return ptx.ParamSpace, addr & (1<<32 - 1)
	}
	return ptx.NoSpace, addr
}

// pointer returns where a lane's n bytes lie in a view, or stops the kernel with a
// fault. n is a power of two, and the address must be a multiple of it.
func (g *gang) pointer(in *inst, lane int, v view, addr, n uint64) unsafe.Pointer {
	p := v.span(addr, n)
	if p == nil {
		g.fault(in, lane, IllegalAddress, addr, "")
	}
	if addr&(n-1) != 0 {
		g.fault(in, lane, MisalignedAddress, addr, "")
	}
	return p
}

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

// memval is the type of a value in memory; its sign says how it is widened.
type memval interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64
}

// regval is the type of a register.
type regval interface{ uint32 | uint64 }

// loadLane reads one value for one lane, from any state space.
func loadLane[T memval](g *gang, in *inst, lane int, addr uint64) T {
	n := uint64(unsafe.Sizeof(T(0)))
	v, at, local := g.place(in, lane, addr)
	if local {
		return T(g.readLocal(in, lane, at, n))
	}
	return *(*T)(g.pointer(in, lane, v, at, n))
}

func storeLane[T memval](g *gang, in *inst, lane int, addr uint64, value T) {
	n := uint64(unsafe.Sizeof(T(0)))
	v, at, local := g.place(in, lane, addr)
	if local {
		g.writeLocal(in, lane, at, n, uint64(value))
		return
	}
	p := g.pointer(in, lane, v, at, n)
	g.checkWritable(in, lane, v, at)
	*(*T)(p) = value
}

// checkWritable stops a kernel that writes to its parameters.
func (g *gang) checkWritable(in *inst, lane int, v view, addr uint64) {
	if v.ptr == g.team.x.params.ptr {
		g.fault(in, lane, WriteToReadOnly, addr, "parameters of a kernel cannot be written")
	}
}

// fileOf returns the registers of a Go type.
func fileOf[D regval](g *gang) *file[D] {
	if unsafe.Sizeof(D(0)) == 4 {
		return (*file[D])(unsafe.Pointer(&g.r32))
	}
	return (*file[D])(unsafe.Pointer(&g.r64))
}

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
	if in.sync {
		g.sync = true
	}
	a := &g.reach
	a.g, a.in, a.imm, a.space = g, in, uint64(in.imm), in.space
	a.regular, a.linear, a.periodic, a.bases, a.shift, a.memory = false, false, false, nil, 0, view{}
	if g.r64.regular(in.a) {
		f := &g.r64.form[in.a]
		a.regular, a.linear = true, f.bits&linear != 0
		a.step, a.base = f.stride, f.base
		a.periodic = f.bits&periodic != 0
		if f.bits&scalar == 0 {
			a.bases = g.r64.chunks(in.a)
		}
	} else {
		a.lanes = g.r64.expand(in.a)
	}
	addr := a.at(g.first)
	if a.space == ptx.NoSpace {
		// Most generic accesses of a gang are to one space. Lanes with another space
		// are out of the bounds of the view, and fall back to loadLane or storeLane.
		var within uint64
		a.space, within = window(addr)
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
	for _, slot := range a.in.list {
		if slot != a.in.a {
			continue
		}
		a.chunks()
		if a.regular {
			a.bases = append([]uint64(nil), a.bases...)
		} else if len(a.in.list) > 1 {
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
		a.bases = a.g.r64.chunks(a.in.a)
	}
}

// complete says whether all lanes of the gang take part.
func (g *gang) complete() bool { return g.count == g.width }

// oneSpace says whether an address means the same place for all lanes of a chunk.
// Generic addresses of local memory do not: each lane has its own. Linear and
// periodic accesses have one address, whose space is known.
func (a *access) oneSpace() bool {
	if a.in.space != ptx.NoSpace || a.linear || a.periodic {
		return true
	}
	for _, base := range a.bases {
		if space, _ := window(base + a.imm); space != a.space {
			return false
		}
	}
	return true
}

// line returns the memory of the active lanes if these use n bytes each, one behind
// the other, without gaps; else nil.
func (a *access) line(n uint64) unsafe.Pointer {
	if !a.linear || a.step != n || a.memory.ptr == nil || !a.g.solid() || (a.base+a.imm)&(n-1) != 0 {
		return nil
	}
	return a.memory.span(a.base+a.imm+uint64(a.g.first)*n, n*uint64(a.g.count))
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

// move copies a chunk of 4-byte or 8-byte values.
func move[D regval](to, from unsafe.Pointer) {
	d, s := (*[8]uint64)(to), (*[8]uint64)(from)
	if unsafe.Sizeof(D(0)) == 8 {
		d2, s2 := (*[8]uint64)(unsafe.Add(to, 64)), (*[8]uint64)(unsafe.Add(from, 64))
		d2[0], d2[1], d2[2], d2[3] = s2[0], s2[1], s2[2], s2[3]
		d2[4], d2[5], d2[6], d2[7] = s2[4], s2[5], s2[6], s2[7]
	}
	d[0], d[1], d[2], d[3] = s[0], s[1], s[2], s[3]
	d[4], d[5], d[6], d[7] = s[4], s[5], s[6], s[7]
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

// walk returns the memory of the first active lane of chunk c, whose lanes use n
// bytes each in equal steps, if that lane and the last active one, and so all
// between, are in bounds and aligned; else nil.
func (a *access) walk(v *view, c int, active, n uint64) unsafe.Pointer {
	if !a.even || v.size < n {
		return nil
	}
	first := trailing(active)
	from := a.bases[c] + uint64(first)*a.step + a.imm - v.base
	end := from + uint64(bits.Len64(active)-1-first)*a.step
	if limit := v.size - n; from > limit || end > limit || (from|a.step)&(n-1) != 0 {
		return nil
	}
	return unsafe.Add(v.ptr, from)
}

func runLoad[T memval, D regval](g *gang, in *inst) {
	a := g.access(in)
	if unsafe.Sizeof(D(0)) == 8 { // only a 64-bit register can hold the address
		a.keep()
	}
	if a.space == ptx.LocalSpace {
		loadLocal[T, D](g, in, a)
		return
	}
	if a.regular && a.step == 0 && g.whole(in) && a.oneSpace() {
		loadBroadcast[T, D](g, in, a)
		return
	}
	if len(in.list) == 1 {
		if a.periodic && a.memory.ptr != nil && g.complete() && loadTile[T, D](a, in.list[0]) {
			return
		}
		loadElement[T, D](g, in, a, fileOf[D](g).partial(g, in, in.list[0]), uint64(unsafe.Sizeof(T(0))))
		return
	}
	size := uint64(unsafe.Sizeof(T(0)))
	align := size * uint64(len(in.list))
	for e, slot := range in.list {
		if e == 0 {
			g.checkAligned(in, a, align)
		}
		if slot >= 0 {
			loadElement[T, D](g, in, a, fileOf[D](g).partial(g, in, slot), size)
		}
		a.imm += size
	}
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

// loadBroadcast reads one value for each chunk, or one for the whole gang: all lanes
// of a chunk have the same address.
func loadBroadcast[T memval, D regval](g *gang, in *inst, a *access) {
	size := uint64(unsafe.Sizeof(T(0)))
	if len(in.list) > 1 {
		g.checkAligned(in, a, size*uint64(len(in.list)))
	}
	if g.team.x.stride < chunk && a.space == ptx.SharedSpace {
		// Lanes of a chunk are of several blocks.
		for _, slot := range in.list {
			if slot >= 0 {
				loadElement[T](g, in, a, fileOf[D](g).partial(g, in, slot), size)
			}
			a.imm += size
		}
		return
	}
	r := fileOf[D](g)
	one := a.linear && (a.space != ptx.SharedSpace || g.team.x.perGang == 1)
	for _, slot := range in.list {
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

// loadBases reads one value for each chunk with active lanes.
func loadBases[T memval, D regval](g *gang, in *inst, a *access, d []D, size uint64) {
	a.chunks()
	v := a.memory
	if v.ptr != nil && v.size >= size && g.complete() {
		shift, limit := v.base-a.imm, v.size-size
		done := 0
		for c, base := range a.bases[:len(d)] {
			off := base - shift
			if off > limit || off&(size-1) != 0 {
				break
			}
			d[c] = D(*(*T)(unsafe.Add(v.ptr, off)))
			done++
		}
		if done == len(d) {
			return
		}
	}
	for c := g.lo / chunk; c < g.hi/chunk; c++ {
		if a.memory.ptr == nil {
			a.next(&v, c)
		}
		off := a.bases[c] + a.imm - v.base
		active := g.mask.chunkBits(c)
		switch {
		case active == 0:
		case off < v.size && v.size-off >= size && off&(size-1) == 0:
			d[c] = D(*(*T)(unsafe.Add(v.ptr, off)))
		default:
			lane := c*chunk + trailing(active)
			d[c] = D(loadLane[T](g, in, lane, a.at(lane)))
		}
	}
}

// loadTile reads 16 values that are the same for every chunk, and makes the register
// tiled; false if not all of them are in bounds.
func loadTile[T memval, D regval](a *access, slot int32) bool {
	size := uint64(unsafe.Sizeof(T(0)))
	if a.memory.size < size || !a.even {
		return false
	}
	off := a.base + a.imm - a.memory.base
	if limit := a.memory.size - size; off > limit || off+last*a.step > limit || (off|a.step)&(size-1) != 0 {
		return false
	}
	r := fileOf[D](a.g)
	p := unsafe.Add(a.memory.ptr, off)
	if a.step == size && unsafe.Sizeof(T(0)) == unsafe.Sizeof(D(0)) {
		move[D](unsafe.Pointer(&r.tiles[slot][0]), p)
	} else {
		for l := range r.tiles[slot] {
			r.tiles[slot][l] = D(*(*T)(unsafe.Add(p, uint64(l)*a.step)))
		}
	}
	r.form[slot] = form[D]{bits: tiled}
	return true
}

// loadElement reads one value for each active lane into d. It tries, in this order:
// one copy for all lanes, one copy for each chunk, the same places in several shared
// memories, equal steps chunk by chunk, and lane by lane.
func loadElement[T memval, D regval](g *gang, in *inst, a *access, d []D, size uint64) {
	if unsafe.Sizeof(T(0)) == unsafe.Sizeof(D(0)) {
		if p := a.line(size); p != nil {
			copy(d[g.first:g.end], unsafe.Slice((*D)(p), g.count))
			return
		}
	}
	if unsafe.Sizeof(T(0)) == unsafe.Sizeof(D(0)) && g.complete() {
		if shift, ok := a.rows(size); ok {
			for c, base := range a.bases {
				move[D](unsafe.Pointer(&d[c*chunk]), unsafe.Add(a.memory.ptr, base-shift))
			}
			return
		}
	}
	whole := g.whole(in)
	if off, first, end, ok := a.inBlocks(size); ok && whole {
		for c := g.lo; c < g.hi; c += chunk {
			p := unsafe.Add(g.team.shared[g.blockOf[c]].ptr, off)
			step := uint64(0)
			out := d[c+first : c+end+1]
			for l := range out {
				out[l] = D(*(*T)(unsafe.Add(p, step)))
				step += a.step
			}
		}
		return
	}
	a.chunks()
	v := a.memory
	for c := g.lo / chunk; c < g.hi/chunk; c++ {
		active := g.mask.chunkBits(c)
		if active == 0 {
			continue
		}
		if a.memory.ptr == nil {
			a.next(&v, c)
		}
		out := (*[chunk]D)(d[c*chunk:])
		if a.regular {
			p := a.walk(&v, c, active, size)
			first, behind := trailing(active), bits.Len64(active)
			switch {
			case p == nil:
				for ; active != 0; active &= active - 1 {
					l := trailing(active)
					out[l] = D(loadLane[T](g, in, c*chunk+l, a.at(c*chunk+l)))
				}
			case active == 1<<chunk-1 && a.step == size && unsafe.Sizeof(T(0)) == unsafe.Sizeof(D(0)):
				move[D](unsafe.Pointer(out), p)
			case whole || active == 1<<chunk-1: // inactive lanes between may be overwritten
				off := uint64(0)
				for l := range out[first:behind] {
					out[first+l] = D(*(*T)(unsafe.Add(p, off)))
					off += a.step
				}
			default:
				for ; active != 0; active &= active - 1 {
					l := trailing(active)
					out[l] = D(*(*T)(unsafe.Add(p, uint64(l-first)*a.step)))
				}
			}
			continue
		}
		from := (*[chunk]uint64)(a.lanes[c*chunk:])
		if v.size < size {
			for ; active != 0; active &= active - 1 {
				l := trailing(active)
				out[l] = D(loadLane[T](g, in, c*chunk+l, from[l]+a.imm))
			}
			continue
		}
		shift, limit := v.base-a.imm, v.size-size
		if active == 1<<chunk-1 {
			for l := range out {
				off := from[l] - shift
				if off > limit || off&(size-1) != 0 {
					out[l] = D(loadLane[T](g, in, c*chunk+l, from[l]+a.imm))
					continue
				}
				out[l] = D(*(*T)(unsafe.Add(v.ptr, off)))
			}
			continue
		}
		for ; active != 0; active &= active - 1 {
			l := trailing(active) & (chunk - 1)
			off := from[l] - shift
			if off > limit || off&(size-1) != 0 {
				out[l] = D(loadLane[T](g, in, c*chunk+l, from[l]+a.imm))
				continue
			}
			out[l] = D(*(*T)(unsafe.Add(v.ptr, off)))
		}
	}
}

func loadLocal[T memval, D regval](g *gang, in *inst, a *access) {
	size := uint64(unsafe.Sizeof(T(0)))
	if len(in.list) > 1 {
		g.checkAligned(in, a, size*uint64(len(in.list)))
	}
	for e, slot := range in.list {
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

func runStore[T memval, D regval](g *gang, in *inst) {
	a := g.access(in)
	size := uint64(unsafe.Sizeof(T(0)))
	if len(in.list) > 1 {
		g.checkAligned(in, a, size*uint64(len(in.list)))
	}
	if a.space == ptx.ParamSpace {
		g.checkWritable(in, g.first, a.memory, a.at(g.first))
	}
	for _, slot := range in.list {
		s := fileOf[D](g).expand(slot)
		if a.space == ptx.LocalSpace {
			storeLocal[T](g, in, a, s, size)
		} else {
			storeElement[T](g, in, a, s, size)
		}
		a.imm += size
	}
}

func storeElement[T memval, D regval](g *gang, in *inst, a *access, s []D, size uint64) {
	if unsafe.Sizeof(T(0)) == unsafe.Sizeof(D(0)) {
		if p := a.line(size); p != nil {
			copy(unsafe.Slice((*D)(p), g.count), s[g.first:g.end])
			return
		}
	}
	if unsafe.Sizeof(T(0)) == unsafe.Sizeof(D(0)) && g.complete() {
		if shift, ok := a.rows(size); ok {
			for c, base := range a.bases {
				move[D](unsafe.Add(a.memory.ptr, base-shift), unsafe.Pointer(&s[c*chunk]))
			}
			return
		}
	}
	if off, first, _, ok := a.inBlocks(size); ok {
		for c := g.lo; c < g.hi; c += chunk {
			p := unsafe.Add(g.team.shared[g.blockOf[c]].ptr, off)
			src := (*[chunk]D)(s[c:])
			for active := g.mask.chunkBits(c / chunk); active != 0; active &= active - 1 {
				l := trailing(active) & (chunk - 1)
				*(*T)(unsafe.Add(p, uint64(l-first)*a.step)) = T(src[l])
			}
		}
		return
	}
	a.chunks()
	v := a.memory
	for c := g.lo / chunk; c < g.hi/chunk; c++ {
		active := g.mask.chunkBits(c)
		if active == 0 {
			continue
		}
		if a.memory.ptr == nil {
			a.next(&v, c)
		}
		src := (*[chunk]D)(s[c*chunk:])
		if a.regular {
			p := a.walk(&v, c, active, size)
			first := trailing(active)
			switch {
			case p == nil:
				for ; active != 0; active &= active - 1 {
					l := trailing(active)
					storeLane(g, in, c*chunk+l, a.at(c*chunk+l), T(src[l]))
				}
			case active == 1<<chunk-1 && a.step == size && unsafe.Sizeof(T(0)) == unsafe.Sizeof(D(0)):
				move[D](p, unsafe.Pointer(src))
			case active == 1<<chunk-1:
				for l := range src {
					*(*T)(unsafe.Add(p, uint64(l)*a.step)) = T(src[l])
				}
			default:
				for ; active != 0; active &= active - 1 {
					l := trailing(active) & (chunk - 1)
					*(*T)(unsafe.Add(p, uint64(l-first)*a.step)) = T(src[l])
				}
			}
			continue
		}
		from := (*[chunk]uint64)(a.lanes[c*chunk:])
		for ; active != 0; active &= active - 1 {
			l := trailing(active) & (chunk - 1)
			off := from[l] + a.imm - v.base
			if off >= v.size || v.size-off < size || off&(size-1) != 0 {
				storeLane(g, in, c*chunk+l, from[l]+a.imm, T(src[l]))
				continue
			}
			*(*T)(unsafe.Add(v.ptr, off)) = T(src[l])
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

// loadShort is runLoad of s16. A 32-bit register gets the sign extended; a 16-bit
// one has zeros above its bits. in.size is 2 for the latter.
func loadShort(g *gang, in *inst) {
	if in.size == 2 {
		runLoad[uint16, uint32](g, in)
		return
	}
	runLoad[int16, uint32](g, in)
}

// runCopyAsync: a: global address, b: shared address, c: bytes to read (or
// -1: all), the rest of size is zero.
func runCopyAsync(g *gang, in *inst) {
	a := g.access(in)
	n := uint64(in.size)
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		read := n
		if in.c >= 0 {
			read = min(n, uint64(g.r32.lane(in.c, lane)))
		}
		var buffer [16]byte
		if read > 0 {
			v, at, _ := g.place(in, lane, a.at(lane))
			p := g.pointer(in, lane, v, at, n)
			copy(buffer[:read], unsafe.Slice((*byte)(p), read))
		}
		p := g.pointer(in, lane, g.sharedView(lane), g.r64.lane(in.b, lane), n)
		copy(unsafe.Slice((*byte)(p), n), buffer[:n])
	}
}
