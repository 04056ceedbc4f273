package simt

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"muster/ptx"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensormap"
)

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

// box is a box of a tensor at its place, or what takes its place in other modes.
type box struct {
	tensormap.Map
	mode    program.CopyMode
	corner  [tensormap.MaxRank]int64 // the element that it begins with; in copyRows the first column, then the rows
	offsets [tensormap.MaxRank]int64 // that are added to the places of pixels in copyIm2col
	shared  uint64                   // where it begins in shared memory
}

// boxRow is a row of a box: elements that lie one behind the other in both memories. All
// numbers are bytes.
type boxRow struct {
	shared         uint64 // address in shared memory, before the swizzle
	global         uint64 // address of what lies in the tensor
	before, inside uint64 // of the tensor; behind that the row goes on outside of it
}

// maxRow is the bytes of the longest row that a tensor map can describe.
const maxRow = 256 * 8

// boxAlignment is what the address of a box in shared memory must be a multiple of.
const boxAlignment = 128

// count returns how many elements a box has in a dimension. In the first one, steps are
// not supported, by GPUs either.
func (b *box) count(i int) uint64 {
	switch {
	case i >= b.Rank:
		return 1
	case i == 0:
		return uint64(b.Box[0])
	}
	return uint64((b.Box[i] + b.Steps[i] - 1) / b.Steps[i])
}

// row returns the bytes of a row.
func (b *box) row() uint64 { return b.count(0) * b.Type.Bytes() }

// pitch returns the bytes of shared memory from one row to the next: with a swizzle a row
// has as many as change places, also if it is shorter.
func (b *box) pitch() uint64 {
	if b.Swizzle == tensormap.NoSwizzle {
		return b.row()
	}
	return max(b.row(), b.Swizzle.Span())
}

// bytes returns the bytes of the box, without what lies between rows: that is what an
// mbarrier is told.
func (b *box) bytes() uint64 {
	n := b.row()
	switch b.mode {
	case program.CopyIm2col:
		return n * uint64(b.Pixels)
	case program.CopyRows:
		return n * program.NamedRows
	}
	for i := 1; i < b.Rank; i++ {
		n *= b.count(i)
	}
	return n
}

// rows goes through the rows of a box, in the order in which shared memory has them.
func (b *box) rows() iter.Seq[boxRow] {
	return func(yield func(boxRow) bool) {
		shared := b.shared
		for at := range b.places() {
			r := b.place(at)
			r.shared = shared
			if !yield(r) {
				return
			}
			shared += b.pitch()
		}
	}
}

// places goes through the places in the tensor at which the rows of a box begin.
func (b *box) places() iter.Seq[*[tensormap.MaxRank]int64] {
	switch b.mode {
	case program.CopyIm2col:
		return b.pixels
	case program.CopyRows:
		return func(yield func(*[tensormap.MaxRank]int64) bool) {
			for _, row := range b.corner[1 : 1+program.NamedRows] {
				if !yield(&[tensormap.MaxRank]int64{b.corner[0], row}) {
					return
				}
			}
		}
	}
	return b.tile
}

// tile is places for a box.
func (b *box) tile(yield func(*[tensormap.MaxRank]int64) bool) {
	at := b.corner
	for yield(&at) {
		i := 1
		for ; i < b.Rank; i++ {
			if at[i] += int64(b.Steps[i]); at[i] < b.corner[i]+int64(b.Box[i]) {
				break
			}
			at[i] = b.corner[i]
		}
		if i >= b.Rank {
			return
		}
	}
}

// pixels is places for a column of pixels. It begins at the corner, and goes through the
// bounding box of that image and of those behind it, all of them moved by the offsets.
func (b *box) pixels(yield func(*[tensormap.MaxRank]int64) bool) {
	at := b.corner
	for range b.Pixels {
		there := at
		for i, offset := range b.offsets {
			there[i] += offset
		}
		if !yield(&there) {
			return
		}
		i := 1
		for ; i < b.Rank-1; i++ {
			begin, end := b.Bounds(i)
			if at[i] += int64(b.Steps[i]); at[i] < end {
				break
			}
			at[i] = begin
		}
		if i == b.Rank-1 {
			at[i] += int64(b.Steps[i])
		}
	}
}

// place finds out where a row that begins at a place in the tensor lies in global memory.
func (b *box) place(at *[tensormap.MaxRank]int64) boxRow {
	r := boxRow{global: b.Address, before: b.row()}
	for i := 1; i < b.Rank; i++ {
		c := at[i]
		if c < 0 || uint64(c) >= b.Sizes[i] {
			return r
		}
		r.global += uint64(c) * b.Strides[i-1]
	}
	first := max(at[0], 0)
	end := min(at[0]+int64(b.count(0)), int64(b.Sizes[0]))
	if first < end {
		size := b.Type.Bytes()
		r.before, r.inside = uint64(first-at[0])*size, uint64(end-first)*size
		r.global += uint64(first) * size
	}
	return r
}

// swizzled returns the address in shared memory that a chunk of 16 bytes has in truth. It
// depends on the address alone, not on where the box begins.
func (b *box) swizzled(addr uint64) uint64 {
	return addr ^ addr>>7&(b.Swizzle.Span()/16-1)<<4
}

// boxOf reads the tensor map at address a + imm of a lane, and where the box begins.
func (g *gang) boxOf(in *inst, lane int) box {
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
	case m.Im2col != (k.Mode == program.CopyIm2col):
		g.fault(in, lane, IllegalInstruction, addr, fmt.Sprintf("the tensor map is for %s mode", map[bool]string{true: "im2col", false: "tile"}[m.Im2col]))
	case k.Mode == program.CopyRows && m.Box[1] != 1:
		g.fault(in, lane, IllegalInstruction, addr, fmt.Sprintf("the box of the tensor map has %d rows: gather4 and scatter4 want 1", m.Box[1]))
	}
	b := box{Map: m, mode: k.Mode, shared: g.r64.lane(in.B, lane)}
	switch {
	case b.shared%boxAlignment != 0:
		g.fault(in, lane, MisalignedAddress, b.shared, "boxes are aligned to 128 bytes in shared memory")
	case b.bytes() > shape.MaxShared: // also what bounds the loops over rows, if a kernel made the map up
		g.fault(in, lane, IllegalAddress, b.shared, fmt.Sprintf("a box of %d bytes does not fit into shared memory", b.bytes()))
	}
	coordinates := k.Coordinates()
	for i, slot := range in.Sources[:coordinates] {
		b.corner[i] = int64(int32(g.r32.lane(slot, lane)))
	}
	for i, slot := range in.Sources[coordinates:] {
		b.offsets[1+i] = int64(uint16(g.r32.lane(slot, lane)))
	}
	if problem := b.misplaced(k.ToShared); problem != "" {
		g.fault(in, lane, IllegalInstruction, addr, problem)
	}
	return b
}

// misplaced says why a GPU takes it for an illegal instruction to copy a box from where it
// is, or to it; "" if it does not.
func (b *box) misplaced(toShared bool) string {
	if c := b.corner[0]; c*int64(b.Type.Bytes())%bulkUnit != 0 {
		return fmt.Sprintf("the first coordinate, %d, is not at a multiple of 16 bytes in the tensor's rows", c)
	}
	for i := range b.Rank {
		c := b.corner[i]
		if c < 0 && !toShared && b.mode != program.CopyRows {
			return fmt.Sprintf("coordinate %d in dimension %d is negative, which only loads may have", c, i)
		}
		if i > 0 && i < b.Rank-1 && b.mode == program.CopyIm2col {
			if begin, end := b.Bounds(i); c < begin || c >= end {
				return fmt.Sprintf("coordinate %d in dimension %d is not within the bounding box, from %d to %d", c, i, begin, end-1)
			}
		}
	}
	return ""
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
			g.did(b.bytes())
			g.storeBox(in, lane, &b)
		case !k.ToShared:
			g.did(b.bytes() * reduceWork)
			g.reduceBox(in, lane, &b, k.Reduce)
		default:
			g.loadBox(in, lane, &b)
		}
	}
}

func (g *gang) loadBox(in *inst, lane int, b *box) {
	var room [maxRow]byte
	for r := range b.rows() {
		row := room[:b.row()]
		b.fill(row)
		if r.inside > 0 {
			n := copy(row[r.before:], g.bytesOf(in, lane, ptx.GlobalSpace, r.global, r.inside))
			b.convert(row[r.before:][:n])
		}
		g.eachTarget(in.C, lane, func(target func(uint64) uint64) {
			g.did(b.row())
			for i := uint64(0); i < b.row(); i += bulkUnit {
				copy(g.bytesOf(in, lane, ptx.SharedSpace, target(b.swizzled(r.shared+i)), bulkUnit), row[i:])
			}
		})
	}
	if in.E >= 0 {
		g.eachTarget(in.C, lane, func(target func(uint64) uint64) {
			g.bytesCame(in, lane, target(g.r64.lane(in.E, lane)), b.bytes())
		})
	}
}

// outsideNaN is what fills elements outside of the tensor if the map asks for NaNs, in
// every 16 bits: a NaN in all formats.
const outsideNaN = 0x7ff7

// fill writes to a row what elements outside of the tensor are.
func (b *box) fill(row []byte) {
	if !b.NaN {
		clear(row)
		return
	}
	for i := 0; i < len(row); i += 2 {
		binary.LittleEndian.PutUint16(row[i:], outsideNaN)
	}
}

// convert rounds elements of TF32, as the copy engine does on the way to shared memory:
// to the nearest number with 10 bits of fraction, and to one NaN. Others stay as they are,
// subnormal numbers too.
func (b *box) convert(row []byte) {
	if b.Type != tensormap.TF32 && b.Type != tensormap.TF32FTZ {
		return
	}
	const infinity, dropped = 0x7f800000, 1<<13 - 1
	for i := 0; i < len(row); i += 4 {
		x := binary.LittleEndian.Uint32(row[i:])
		switch magnitude := x &^ (1 << 31); {
		case magnitude > infinity:
			x = 0x7fffe000
		case magnitude < infinity:
			x += dropped>>1 + x>>13&1
		}
		binary.LittleEndian.PutUint32(row[i:], x&^dropped)
	}
}

func (g *gang) storeBox(in *inst, lane int, b *box) {
	var room [maxRow]byte
	for r := range b.rows() {
		row := g.boxRow(in, lane, b, r, room[:])
		if r.inside > 0 {
			copy(g.wholeStretch(in, lane, ptx.GlobalSpace, r.global, r.inside), row[r.before:])
		}
	}
}

// boxRow reads a row of a box from shared memory.
func (g *gang) boxRow(in *inst, lane int, b *box, r boxRow, room []byte) []byte {
	for i := uint64(0); i < b.row(); i += bulkUnit {
		copy(room[i:], g.bytesOf(in, lane, ptx.SharedSpace, b.swizzled(r.shared+i), bulkUnit))
	}
	return room[:b.row()]
}

// reduceBox combines the elements of a box with those of the tensor, each as one atomic
// operation.
func (g *gang) reduceBox(in *inst, lane int, b *box, operation string) {
	op, ok := tensorReduction(operation, b.Type)
	if !ok {
		g.fault(in, lane, IllegalInstruction, b.Address, fmt.Sprintf("operation .%s is not supported with the type of the tensor", operation))
	}
	at := *in
	at.Space = ptx.GlobalSpace
	var room [maxRow]byte
	size := b.Type.Bytes()
	for r := range b.rows() {
		row := g.boxRow(in, lane, b, r, room[:])
		// Whole chunks, as storeBox does.
		end := uint64(0)
		if r.inside > 0 {
			end = uint64(len(g.wholeStretch(in, lane, ptx.GlobalSpace, r.global, r.inside)))
		}
		for i := uint64(0); i < end; i += size {
			var word [8]byte
			copy(word[:size], row[r.before+i:])
			g.atomic(&at, lane, r.global+i, size, op, binary.LittleEndian.Uint64(word[:]), 0)
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
