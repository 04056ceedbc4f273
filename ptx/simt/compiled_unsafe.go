package simt

import (
	"unsafe"

	"muster/ptx/simt/native"
)

// The layout of registers that compiled code knows.
const (
	_ = uint(native.Pitch - maxWidth)
	_ = uint(maxWidth - native.Pitch)
	_ = uint(unsafe.Sizeof(form[uint32]{}) - 12)
	_ = uint(12 - unsafe.Sizeof(form[uint32]{}))
	_ = uint(unsafe.Sizeof(form[uint64]{}) - 24)
	_ = uint(24 - unsafe.Sizeof(form[uint64]{}))
)

// newFrame shows compiled code where the registers of a gang are.
func (g *gang) newFrame() *native.Frame {
	f := &native.Frame{Chunks: uint64(g.chunks+1) &^ 1}
	f.Values32, f.Bases32, f.Forms32 = arrays(&g.r32)
	f.Values64, f.Bases64, f.Forms64 = arrays(&g.r64)
	f.Predicates = unsafe.Pointer(unsafe.SliceData(g.p))
	t := g.team
	f.Shared, f.SharedSize = t.shared[0].ptr, t.shared[0].size
	for c := range g.chunks {
		f.SharedOffset[c] = uint64(uintptr(t.shared[g.blockOf[c*chunk]].ptr) - uintptr(f.Shared))
	}
	return f
}

func arrays[T regval](r *file[T]) (values, bases, forms unsafe.Pointer) {
	if len(r.form) == 0 {
		return nil, nil, nil
	}
	return unsafe.Pointer(&r.values[0][0]), unsafe.Pointer(&r.bases[0][0]), unsafe.Pointer(&r.form[0])
}

// viewsOf returns the worker's views for compiled code, which become those of
// the code that it runs.
func (w *worker) viewsOf(c *native.Code) *native.View {
	if w.last == c {
		return &w.seen[0]
	}
	v := w.views[c]
	if v == nil {
		if w.views == nil {
			w.views = map[*native.Code][]native.View{}
		}
		v = make([]native.View, c.Views()+1)
		w.views[c] = v
	}
	w.last, w.seen = c, v
	return &v[0]
}
