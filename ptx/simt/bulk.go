package simt

import (
	"encoding/binary"

	"muster/ptx"
	"muster/ptx/simt/program"
)

// Bulk copies: on a GPU a thread hands a copy to the copy engine, which tells an mbarrier
// when the bytes have arrived. Here the thread's lane copies the bytes itself, before its
// next instruction, and then tells the mbarrier. A group of copies is therefore complete
// whenever a thread waits for it, and wait instructions have nothing to do.

// sharedOr returns the state space of the address of an mbarrier. Programs give it as an
// address of shared memory, which is below 2^32, or as a generic address, which is above
// that for all of shared memory.
func sharedOr(addr uint64) ptx.Space {
	if addr < 1<<32 {
		return ptx.SharedSpace
	}
	return ptx.NoSpace
}

// reduceWork is how much longer a byte takes that is combined than one that is copied.
const reduceWork = 16

// bulkUnit is the bytes of which addresses and sizes of bulk copies must be multiples.
const bulkUnit = 16

// runBulkCopy copies, or combines, c bytes from address a + imm to address b, and tells the
// mbarrier at address e, if there is one (e is -1 otherwise). A source says which blocks of
// the cluster get the bytes and are told, a bit each; without it the own one alone. Source
// and destination are checked whole before a byte is written.
func runBulkCopy(g *gang, in *inst) {
	k := in.K.(*program.BulkCopy)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		from, to := g.r64.lane(in.A, lane)+uint64(in.Imm), g.r64.lane(in.B, lane)
		n := uint64(g.r32.lane(in.C, lane))
		if n%bulkUnit != 0 {
			g.fault(in, lane, MisalignedAddress, from, "the size of a bulk copy is a multiple of 16")
		}
		source := g.stretch(in, lane, k.From, from, n)
		blocks := int32(-1)
		if len(in.Sources) > 0 {
			blocks = in.Sources[0]
		}
		g.eachTarget(blocks, lane, func(target func(uint64) uint64) {
			if there := g.stretch(in, lane, k.To, target(to), n); k.Reduce == nil {
				copy(there, source)
				g.did(n)
			} else {
				g.did(n * reduceWork)
				g.reduceStretch(in, lane, k, target(to), source)
			}
			if in.E >= 0 {
				g.bytesCame(in, lane, target(g.r64.lane(in.E, lane)), n)
			}
		})
	}
}

// eachTarget calls f for every block that gets what a lane copies: target makes of an
// address in shared memory that of the same place in that block. The register in slot
// blocks has a bit for each block; without it (-1) the address is the right one already.
func (g *gang) eachTarget(blocks int32, lane int, f func(target func(addr uint64) uint64)) {
	if blocks < 0 {
		f(func(addr uint64) uint64 { return addr })
		return
	}
	for rank, bits := 0, g.r32.lane(blocks, lane)&0xffff; bits != 0; rank, bits = rank+1, bits>>1 {
		if bits&1 != 0 {
			f(func(addr uint64) uint64 { return inBlock(addr, uint32(rank)) })
		}
	}
}

// runBulkZero zeroes memory: a + imm is where it begins, b its size in bytes.
func runBulkZero(g *gang, in *inst) {
	for lane := g.first; lane < g.end; lane++ {
		if g.mask.has(lane) {
			n := g.r64.lane(in.B, lane)
			clear(g.stretch(in, lane, in.Space, g.r64.lane(in.A, lane)+uint64(in.Imm), n))
			g.did(n)
		}
	}
}

// runStoreAsync stores the registers of the list, size bytes each, at address a + imm, and
// tells the mbarrier at address b.
func runStoreAsync[T memval, D regval](g *gang, in *inst) {
	r := fileOf[D](g)
	size := uint64(in.Size)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr := g.r64.lane(in.A, lane) + uint64(in.Imm)
		if whole := size * uint64(len(in.List)); addr%whole != 0 {
			g.fault(in, lane, MisalignedAddress, addr, "")
		}
		for i, slot := range in.List {
			storeLane(g, in, lane, addr+uint64(i)*size, T(r.lane(slot, lane)))
		}
		g.bytesCame(in, lane, g.r64.lane(in.B, lane), size*uint64(len(in.List)))
	}
}

// reduceStretch combines the elements in from with those at an address. Each element is
// one atomic operation, as on a GPU; the stretch as a whole is not atomic.
func (g *gang) reduceStretch(in *inst, lane int, k *program.BulkCopy, to uint64, from []byte) {
	at := *in
	at.Space = k.To
	for i := uint64(0); i < uint64(len(from)); i += k.Size {
		var b [8]byte
		copy(b[:k.Size], from[i:])
		g.atomic(&at, lane, to+i, k.Size, k.Reduce, binary.LittleEndian.Uint64(b[:]), 0)
	}
}

// runCopyAsync runs cp.async: it copies size bytes from global address a + imm to address b
// of shared memory. If c is not -1, it reads only that many and writes zeros for the rest;
// a lane that reads none needs no valid source.
func runCopyAsync(g *gang, in *inst) {
	a := g.access(in)
	n := uint64(in.Size)
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		read := n
		if in.C >= 0 {
			read = min(n, uint64(g.r32.lane(in.C, lane)))
		}
		var buffer [16]byte
		if read > 0 {
			v, at, _ := g.place(in, lane, a.at(lane))
			copy(buffer[:read], g.bytesAt(in, lane, v, at, n))
		}
		copy(g.bytesAt(in, lane, g.sharedView(lane), g.r64.lane(in.B, lane), n), buffer[:n])
	}
}
