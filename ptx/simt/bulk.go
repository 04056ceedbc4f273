package simt

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"muster/ptx"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensorbox"
	"muster/ptx/simt/tensormap"
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

// Copies of tensors: cp.async.bulk.tensor moves a box of a tensor between global and shared
// memory. A tensor map says where the tensor lies and how large the box is, the
// instruction where in the tensor the box begins. Elements of the box that lie outside of
// the tensor are filled, and not stored, but that a store writes whole chunks of 16 bytes:
// where a row of the tensor ends within one, what lies behind it is written too, as GPUs do.
// As with other bulk copies, the thread's lane
// copies the bytes itself, before its next instruction.
//
// In im2col mode a column of pixels takes the place of the box: a row of it has channels of
// one pixel. With gather4 and scatter4 the box has four rows of a matrix, each of which the
// instruction names.

// boxOf reads the tensor map at address a + imm of a lane, and where the box begins.
func (g *gang) boxOf(in *inst, lane int) tensorbox.Box {
	k := in.K.(*program.TensorCopy)
	addr := g.r64.lane(in.A, lane) + uint64(in.Imm)
	if addr%tensormap.Alignment != 0 {
		g.fault(in, lane, MisalignedAddress, addr, "tensor maps are aligned to 64 bytes")
	}
	m, err := tensormap.Decode((*[tensormap.Size]byte)(g.bytesOf(in, lane, ptx.NoSpace, addr, tensormap.Size)))
	switch {
	case err != nil:
		g.fault(in, lane, IllegalInstruction, addr, err.Error())
	case m.Rank != k.Rank:
		g.fault(in, lane, IllegalInstruction, addr, fmt.Sprintf("the tensor map is that of a tensor of %d dimensions", m.Rank))
	case m.Interleave != 0:
		g.fault(in, lane, IllegalInstruction, addr, "interleaved tensors are not supported")
	case m.Im2col != (k.Mode == tensorbox.Im2col):
		g.fault(in, lane, IllegalInstruction, addr, fmt.Sprintf("the tensor map is for %s mode", map[bool]string{true: "im2col", false: "tile"}[m.Im2col]))
	case k.Mode == tensorbox.Rows && m.Box[1] != 1:
		g.fault(in, lane, IllegalInstruction, addr, fmt.Sprintf("the box of the tensor map has %d rows: gather4 and scatter4 want 1", m.Box[1]))
	}
	b := tensorbox.Box{Map: m, Mode: k.Mode, Shared: g.r64.lane(in.B, lane)}
	switch {
	case b.Shared%tensorbox.Alignment != 0:
		g.fault(in, lane, MisalignedAddress, b.Shared, "boxes are aligned to 128 bytes in shared memory")
	case b.Bytes() > shape.MaxShared: // also what bounds the loops over rows, if a kernel made the map up
		g.fault(in, lane, IllegalAddress, b.Shared, fmt.Sprintf("a box of %d bytes does not fit into shared memory", b.Bytes()))
	}
	coordinates := k.Coordinates()
	for i, slot := range in.Sources[:coordinates] {
		b.Corner[i] = int64(int32(g.r32.lane(slot, lane)))
	}
	for i, slot := range in.Sources[coordinates:] {
		b.Offsets[1+i] = int64(uint16(g.r32.lane(slot, lane)))
	}
	if problem := b.Misplaced(k.ToShared); problem != "" {
		g.fault(in, lane, IllegalInstruction, addr, problem)
	}
	return b
}

// runTensorCopy copies a box, or combines it with what is there. a + imm: address of the
// tensor map; b: address in shared memory; sources: the coordinates,
// and the offsets of a load in im2col mode; e: address of the mbarrier that is told (or -1); c: the blocks of the cluster, a bit each, that get the
// box and whose mbarriers are told (or -1: the own one alone).
func runTensorCopy(g *gang, in *inst) {
	k := in.K.(*program.TensorCopy)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		b := g.boxOf(in, lane)
		switch {
		case !k.ToShared && k.Reduce == "":
			g.did(b.Bytes())
			g.storeBox(in, lane, &b)
		case !k.ToShared:
			g.did(b.Bytes() * reduceWork)
			g.reduceBox(in, lane, &b, k.Reduce)
		default:
			g.loadBox(in, lane, &b)
		}
	}
}

func (g *gang) loadBox(in *inst, lane int, b *tensorbox.Box) {
	var room [tensorbox.MaxRow]byte
	for r := range b.Rows() {
		row := room[:b.Row()]
		b.Fill(row)
		if r.Inside > 0 {
			n := copy(row[r.Before:], g.bytesOf(in, lane, ptx.GlobalSpace, r.Global, r.Inside))
			b.Convert(row[r.Before:][:n])
		}
		g.eachTarget(in.C, lane, func(target func(uint64) uint64) {
			g.did(b.Row())
			for i := uint64(0); i < b.Row(); i += bulkUnit {
				copy(g.bytesOf(in, lane, ptx.SharedSpace, target(b.Swizzled(r.Shared+i)), bulkUnit), row[i:])
			}
		})
	}
	if in.E >= 0 {
		g.eachTarget(in.C, lane, func(target func(uint64) uint64) {
			g.bytesCame(in, lane, target(g.r64.lane(in.E, lane)), b.Bytes())
		})
	}
}

func (g *gang) storeBox(in *inst, lane int, b *tensorbox.Box) {
	var room [tensorbox.MaxRow]byte
	for r := range b.Rows() {
		row := g.boxRow(in, lane, b, r, room[:])
		if r.Inside > 0 {
			copy(g.wholeStretch(in, lane, ptx.GlobalSpace, r.Global, r.Inside), row[r.Before:])
		}
	}
}

// boxRow reads a row of a box from shared memory.
func (g *gang) boxRow(in *inst, lane int, b *tensorbox.Box, r tensorbox.Row, room []byte) []byte {
	for i := uint64(0); i < b.Row(); i += bulkUnit {
		copy(room[i:], g.bytesOf(in, lane, ptx.SharedSpace, b.Swizzled(r.Shared+i), bulkUnit))
	}
	return room[:b.Row()]
}

// reduceBox combines the elements of a box with those of the tensor, each as one atomic
// operation.
func (g *gang) reduceBox(in *inst, lane int, b *tensorbox.Box, operation string) {
	op, ok := tensorReduction(operation, b.Type)
	if !ok {
		g.fault(in, lane, IllegalInstruction, b.Address, fmt.Sprintf("operation .%s is not supported with the type of the tensor", operation))
	}
	at := *in
	at.Space = ptx.GlobalSpace
	var room [tensorbox.MaxRow]byte
	size := b.Type.Bytes()
	for r := range b.Rows() {
		row := g.boxRow(in, lane, b, r, room[:])
		// Whole chunks, as storeBox does.
		end := uint64(0)
		if r.Inside > 0 {
			end = uint64(len(g.wholeStretch(in, lane, ptx.GlobalSpace, r.Global, r.Inside)))
		}
		for i := uint64(0); i < end; i += size {
			var word [8]byte
			copy(word[:size], row[r.Before+i:])
			g.atomic(&at, lane, r.Global+i, size, op, binary.LittleEndian.Uint64(word[:]), 0)
		}
	}
}

// tensorReduction returns an operation on the elements of a tensor, if GPUs have it for
// their type.
func tensorReduction(operation string, t tensormap.Type) (program.AtomicOp, bool) {
	r := tensorReductions[t]
	name := r.name
	switch operation {
	case "and", "or", "xor":
		name = fmt.Sprintf("b%d", 8*t.Bytes())
	}
	if !slices.Contains(strings.Fields(r.operations), operation) {
		return nil, false
	}
	op, ok := program.AtomicOps[operation+"."+name]
	return op, ok
}

// tensorReductions has for each type of a tensor its name among the atomic operations, and
// the operations with which an H200 reduces it. All others are illegal instructions there.
var tensorReductions = map[tensormap.Type]struct{ name, operations string }{
	tensormap.U32:  {"u32", "add min max inc dec and or xor"},
	tensormap.S32:  {"s32", "add min max and or xor"},
	tensormap.U64:  {"u64", "add min max and or xor"},
	tensormap.S64:  {"s64", "min max"},
	tensormap.F16:  {"f16", "add min max"},
	tensormap.BF16: {"bf16", "add min max"},
	tensormap.F32:  {"f32", "add"}, tensormap.F64: {"f64", "add"},
	tensormap.F32FTZ: {"ftz.f32", "add"}, tensormap.TF32: {"f32", "add"}, tensormap.TF32FTZ: {"ftz.f32", "add"},
}

// runReplaceMap replaces a part of the tensor map at address a + imm by b.
func runReplaceMap(g *gang, in *inst) {
	k := in.K.(*program.MapPart)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		value := uint64(0)
		if k.Field == tensormap.FieldAddress || k.Field == tensormap.FieldStride {
			value = g.r64.lane(in.B, lane)
		} else {
			value = uint64(g.r32.lane(in.B, lane))
		}
		k.Field.Set(g.mapAt(in, lane, in.Space, g.r64.lane(in.A, lane)+uint64(in.Imm)), k.Element, value)
	}
}

// mapAt returns the bytes of a tensor map that is to be written.
func (g *gang) mapAt(in *inst, lane int, space ptx.Space, addr uint64) *[tensormap.Size]byte {
	if addr%tensormap.Alignment != 0 {
		g.fault(in, lane, MisalignedAddress, addr, "tensor maps are aligned to 64 bytes")
	}
	return (*[tensormap.Size]byte)(g.stretch(in, lane, space, addr, tensormap.Size))
}

// runCopyMap copies the tensor map at address a + imm of shared memory to address b of
// global memory, once for each warp.
func runCopyMap(g *gang, in *inst) {
	g.eachWarp(func(base int, active uint32) {
		lane := base + trailing(uint64(active))
		from := g.mapAt(in, lane, in.Space, g.r64.lane(in.A, lane)+uint64(in.Imm))
		*g.mapAt(in, lane, ptx.GlobalSpace, g.r64.lane(in.B, lane)) = *from
	})
}
