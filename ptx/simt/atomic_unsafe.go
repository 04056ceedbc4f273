package simt

import (
	"sync/atomic"
	"unsafe"

	"muster/ptx/simt/program"
)

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
