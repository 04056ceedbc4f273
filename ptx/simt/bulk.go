package simt

import (
	"encoding/binary"

	"muster/ptx"
)

// Bulk copies: the copy engine of a GPU copies many bytes for one thread and
// tells an mbarrier when it is done. Here it is done at once, so that groups of
// copies are always complete.

// bulkCopy is what cp.async.bulk, cp.reduce.async.bulk, st.async and st.bulk do.
type bulkCopy struct {
	to, from ptx.Space // NoSpace: generic
	reduce   atomicOp  // nil: it copies
	size     uint64    // of an element, if it reduces
}

// sharedOr returns the space of an address that instructions take as one of shared
// memory, and that may be a generic one.
func sharedOr(addr uint64) ptx.Space {
	if addr < 1<<32 {
		return ptx.SharedSpace
	}
	return ptx.NoSpace
}

// bulkUnit is what addresses and sizes of bulk copies are multiples of.
const bulkUnit = 16

// runBulkCopy: a + imm: from, b: to, c: bytes, e: mbarrier (or -1).
func runBulkCopy(g *gang, in *inst) {
	k := in.k.(*bulkCopy)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		from, to := g.r64.lane(in.a, lane)+uint64(in.imm), g.r64.lane(in.b, lane)
		n := uint64(g.r32.lane(in.c, lane))
		if n%bulkUnit != 0 {
			g.fault(in, lane, MisalignedAddress, from, "the size of a bulk copy is a multiple of 16")
		}
		source := g.stretch(in, lane, k.from, from, n)
		target := g.stretch(in, lane, k.to, to, n)
		if k.reduce == nil {
			copy(target, source)
		} else {
			g.reduceStretch(in, lane, k, to, source)
		}
		if in.e >= 0 {
			g.bytesCame(in, lane, g.r64.lane(in.e, lane), n)
		}
	}
}

// runBulkZero zeroes memory: a + imm is where it begins, b its size in bytes.
func runBulkZero(g *gang, in *inst) {
	for lane := g.first; lane < g.end; lane++ {
		if g.mask.has(lane) {
			clear(g.stretch(in, lane, in.space, g.r64.lane(in.a, lane)+uint64(in.imm), g.r64.lane(in.b, lane)))
		}
	}
}

// runStoreAsync: a + imm: where, b: mbarrier, list: values of size bytes each.
func runStoreAsync[T memval, D regval](g *gang, in *inst) {
	r := fileOf[D](g)
	size := uint64(in.size)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr := g.r64.lane(in.a, lane) + uint64(in.imm)
		if whole := size * uint64(len(in.list)); addr%whole != 0 {
			g.fault(in, lane, MisalignedAddress, addr, "")
		}
		for i, slot := range in.list {
			storeLane(g, in, lane, addr+uint64(i)*size, T(r.lane(slot, lane)))
		}
		g.bytesCame(in, lane, g.r64.lane(in.b, lane), size*uint64(len(in.list)))
	}
}

// reduceStretch combines elements with those at an address, each as an atomic.
func (g *gang) reduceStretch(in *inst, lane int, k *bulkCopy, to uint64, from []byte) {
	at := *in
	at.space = k.to
	for i := uint64(0); i < uint64(len(from)); i += k.size {
		var b [8]byte
		copy(b[:k.size], from[i:])
		g.atomic(&at, lane, to+i, k.size, k.reduce, binary.LittleEndian.Uint64(b[:]), 0)
	}
}
