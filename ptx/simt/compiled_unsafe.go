package simt

import (
	"unsafe"

	"muster/ptx/simt/native"
)

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
