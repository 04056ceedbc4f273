package simt

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"muster/ptx"
	"muster/ptx/simt/native"
	"muster/ptx/simt/program"
)

// All of the engine's unsafe code is in files named *_unsafe.go. Kernels reach
// memory through views, and every access checks the bounds of its view: one
// comparison for a lane, or two for a chunk of lanes that walks through memory in
// equal steps (its first and its last lane).
// access.go says how an instruction comes to its addresses.
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

// stretch returns n bytes of memory for a lane of a bulk copy. It stops the kernel
// with a fault if the address is not a multiple of 16 or in local memory.
func (g *gang) stretch(in *inst, lane int, space ptx.Space, addr, n uint64) []byte {
	b := g.bytesOf(in, lane, space, addr, n)
	if addr%bulkUnit != 0 {
		g.fault(in, lane, MisalignedAddress, addr, "")
	}
	at := *in
	at.Space = space
	v, _, _ := g.place(&at, lane, addr)
	g.checkWritable(in, lane, v, addr)
	return b
}

// wholeStretch is stretch for a copy that writes whole chunks of 16 bytes: it returns the rest of
// the last one too, if there is memory.
func (g *gang) wholeStretch(in *inst, lane int, space ptx.Space, addr, n uint64) []byte {
	b := g.stretch(in, lane, space, addr, n)
	at := *in
	at.Space = space
	v, within, _ := g.place(&at, lane, addr)
	whole := (n + bulkUnit - 1) &^ (bulkUnit - 1)
	if p := v.span(within, whole); p != nil {
		return unsafe.Slice((*byte)(p), whole)
	}
	return b
}

// bytesOf returns n bytes of memory at any address, for a lane. It stops the kernel with a
// fault if they are not all in one memory, or in local memory.
func (g *gang) bytesOf(in *inst, lane int, space ptx.Space, addr, n uint64) []byte {
	at := *in
	at.Space = space
	v, within, local := g.place(&at, lane, addr)
	p := v.span(within, max(n, 1))
	if local || p == nil {
		g.fault(in, lane, IllegalAddress, addr, "")
	}
	return unsafe.Slice((*byte)(p), n)
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

// bytesAt is pointer for a caller that wants the bytes.
func (g *gang) bytesAt(in *inst, lane int, v view, addr, n uint64) []byte {
	return unsafe.Slice((*byte)(g.pointer(in, lane, v, addr, n)), n)
}

// sizeOf returns the bytes of a value in memory or of a register.
func sizeOf[T memval]() uint64 { return uint64(unsafe.Sizeof(T(0))) }

// loadLane reads one value for one lane, from any state space.
func loadLane[T memval](g *gang, in *inst, lane int, addr uint64) T {
	n := sizeOf[T]()
	v, at, local := g.place(in, lane, addr)
	if local {
		return T(g.readLocal(in, lane, at, n))
	}
	return *(*T)(g.pointer(in, lane, v, at, n))
}

func storeLane[T memval](g *gang, in *inst, lane int, addr uint64, value T) {
	n := sizeOf[T]()
	v, at, local := g.place(in, lane, addr)
	if local {
		g.writeLocal(in, lane, at, n, uint64(value))
		return
	}
	p := g.pointer(in, lane, v, at, n)
	g.checkWritable(in, lane, v, at)
	*(*T)(p) = value
}

// fileOf returns the registers of a Go type.
func fileOf[D regval](g *gang) *file[D] {
	if unsafe.Sizeof(D(0)) == 4 {
		return (*file[D])(unsafe.Pointer(&g.r32))
	}
	return (*file[D])(unsafe.Pointer(&g.r64))
}

// line returns the memory of the active lanes if these use n bytes each, one behind
// the other, without gaps; else nil.
func (a *access) line(n uint64) unsafe.Pointer {
	if !a.linear || a.step != n || a.memory.ptr == nil || !a.g.solid() || (a.base+a.imm)&(n-1) != 0 {
		return nil
	}
	return a.memory.span(a.base+a.imm+uint64(a.g.first)*n, n*uint64(a.g.count))
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

// storeElement writes one value for each active lane from s. It takes the same ways to
// memory as loadElement, in the same order, but must leave the memory of inactive lanes
// as it is, where a load may overwrite inactive lanes of a private register.
//
// The two are not one walk with a direction. Go does not inline the function value that
// such a walk would call for each element: the loop over 256 elements in equal steps then
// took about three times as long. A test of the direction in each loop took up to half as
// long again, and would have to be in each of the eight loops, so that nothing is shared
// but the questions that access.go answers for both already.
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

// globalBytes returns n bytes of global memory, or stops the kernel with a fault.
func (g *gang) globalBytes(in *inst, lane int, addr, n uint64) []byte {
	v, _ := g.globalView(addr)
	p := v.span(addr, n)
	if p == nil {
		g.fault(in, lane, IllegalAddress, addr, "memory of a texture or surface")
	}
	return unsafe.Slice((*byte)(p), n)
}

// atomic does one operation of one lane and returns the old value.
func (g *gang) atomic(in *inst, lane int, addr, n uint64, op program.AtomicOp, b, c uint64) uint64 {
	v, at, local := g.place(in, lane, addr)
	if local {
		old := g.readLocal(in, lane, at, n)
		g.writeLocal(in, lane, at, n, op(old, b, c))
		return old
	}
	p := g.pointer(in, lane, v, at, n)
	g.checkWritable(in, lane, v, at)
	switch n {
	case 8:
		w := (*uint64)(p)
		for {
			old := atomic.LoadUint64(w)
			if atomic.CompareAndSwapUint64(w, old, op(old, b, c)) {
				return old
			}
		}
	case 4:
		w := (*uint32)(p)
		for {
			old := atomic.LoadUint32(w)
			if atomic.CompareAndSwapUint32(w, old, uint32(op(uint64(old), b, c))) {
				return uint64(old)
			}
		}
	}
	// Two bytes: change them in the word that holds them. Regions begin at
	// multiples of 16 and are that long, so the word is in bounds.
	shift := at & 2 * 8
	w := (*uint32)(unsafe.Add(p, -int(at&2)))
	for {
		old := atomic.LoadUint32(w)
		was := uint64(old >> shift & 0xffff)
		word := old&^(0xffff<<shift) | uint32(op(was, b, c)&0xffff)<<shift
		if atomic.CompareAndSwapUint32(w, old, word) {
			return was
		}
	}
}

// peek reads n bytes of shared or global memory for a checker; false if they are not mapped or the
// address is not a multiple of n.
func (g *gang) peek(lane int, space ptx.Space, addr, n uint64) (uint64, bool) {
	v := g.sharedView(lane)
	if space == ptx.GlobalSpace {
		found := false
		if v, found = g.globalView(addr); !found {
			return 0, false
		}
	}
	p := v.span(addr, n)
	if p == nil || addr%n != 0 {
		return 0, false
	}
	switch n {
	case 1:
		return uint64(*(*uint8)(p)), true
	case 2:
		return uint64(*(*uint16)(p)), true
	case 4:
		return uint64(*(*uint32)(p)), true
	}
	return *(*uint64)(p), true
}

// Compiled code has the layout of registers built in. Each pair of constants
// compiles only if the two sides are equal, since a uint cannot be negative.
const (
	_ = uint(native.Pitch - maxWidth)
	_ = uint(maxWidth - native.Pitch)
	_ = uint(unsafe.Sizeof(form[uint32]{}) - 12)
	_ = uint(12 - unsafe.Sizeof(form[uint32]{}))
	_ = uint(unsafe.Sizeof(form[uint64]{}) - 24)
	_ = uint(24 - unsafe.Sizeof(form[uint64]{}))
)

// newFrame makes the frame of a gang: where its registers and the shared memories
// of its blocks lie. None of them moves while the gang exists.
func (g *gang) newFrame() *native.Frame {
	f := &native.Frame{Lanes: native.Lanes{Chunks: uint64(g.chunks+1) &^ 1}}
	f.Values32, f.Bases32, f.Forms32 = arrays(&g.r32)
	f.Values64, f.Bases64, f.Forms64 = arrays(&g.r64)
	f.Predicates = unsafe.Pointer(unsafe.SliceData(g.p))
	t := g.team
	f.Shared, f.SharedSize = t.shared[0].ptr, t.shared[0].size
	for c := range g.chunks {
		f.SharedOffset[c] = uint64(uintptr(t.shared[g.blockOf[c*chunk]].ptr) - uintptr(f.Shared))
	}
	if len(t.shared) == 1 { // the gang has one block, all of it or a part
		f.SharedWords = uint64(len(t.bytes)) / 8
		f.TurnMask = g.lanesOf[0]
		f.TurnChunks, f.TurnLanes = g.lanesOf[0].chunks(), uint64(g.lanesOf[0].count())
	}
	return f
}

func arrays[T regval](r *file[T]) (values, bases, forms unsafe.Pointer) {
	if len(r.form) == 0 {
		return nil, nil, nil
	}
	return unsafe.Pointer(&r.values[0][0]), unsafe.Pointer(&r.bases[0][0]), unsafe.Pointer(&r.form[0])
}
