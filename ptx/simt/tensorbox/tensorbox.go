// Package tensorbox says where the elements of a box of a tensor lie, in the tensor and in shared
// memory. It knows tensor maps and bytes, but no instruction and no lane.
package tensorbox

import (
	"encoding/binary"
	"fmt"
	"iter"

	"muster/ptx/simt/tensormap"
)

// unit is the bytes of which rows in a tensor begin at a multiple.
const unit = 16

// Box is a box of a tensor at its place, or what takes its place in other modes.
type Box struct {
	tensormap.Map
	Mode    Mode
	Corner  [tensormap.MaxRank]int64 // the element that it begins with; in Rows the first column, then the rows
	Offsets [tensormap.MaxRank]int64 // that are added to the places of pixels in Im2col
	Shared  uint64                   // where it begins in shared memory
}

// Row is a row of a box: elements that lie one behind the other in both memories. All
// numbers are bytes.
type Row struct {
	Shared         uint64 // address in shared memory, before the swizzle
	Global         uint64 // address of what lies in the tensor
	Before, Inside uint64 // of the tensor; behind that the row goes on outside of it
}

// MaxRow is the bytes of the longest row that a tensor map can describe.
const MaxRow = 256 * 8

// boxAlignment is what the address of a box in shared memory must be a multiple of.
const Alignment = 128

// outsideNaN is what fills elements outside of the tensor if the map asks for NaNs, in
// every 16 bits: a NaN in all formats.
const outsideNaN = 0x7ff7

// count returns how many elements a box has in a dimension. In the first one, steps are
// not supported, by GPUs either.
func (b *Box) count(i int) uint64 {
	switch {
	case i >= b.Rank:
		return 1
	case i == 0:
		return uint64(b.Box[0])
	}
	return uint64((b.Box[i] + b.Steps[i] - 1) / b.Steps[i])
}

// Row returns the bytes of a row.
func (b *Box) Row() uint64 { return b.count(0) * b.Type.Bytes() }

// pitch returns the bytes of shared memory from one row to the next: with a swizzle a row
// has as many as change places, also if it is shorter.
func (b *Box) pitch() uint64 {
	if b.Swizzle == tensormap.NoSwizzle {
		return b.Row()
	}
	return max(b.Row(), b.Swizzle.Span())
}

// Bytes returns the bytes of the box, without what lies between rows: that is what an
// mbarrier is told.
func (b *Box) Bytes() uint64 {
	n := b.Row()
	switch b.Mode {
	case Im2col:
		return n * uint64(b.Pixels)
	case Rows:
		return n * NamedRows
	}
	for i := 1; i < b.Rank; i++ {
		n *= b.count(i)
	}
	return n
}

// Rows goes through the rows of a box, in the order in which shared memory has them.
func (b *Box) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		shared := b.Shared
		for at := range b.places() {
			r := b.place(at)
			r.Shared = shared
			if !yield(r) {
				return
			}
			shared += b.pitch()
		}
	}
}

// places goes through the places in the tensor at which the rows of a box begin.
func (b *Box) places() iter.Seq[*[tensormap.MaxRank]int64] {
	switch b.Mode {
	case Im2col:
		return b.pixels
	case Rows:
		return func(yield func(*[tensormap.MaxRank]int64) bool) {
			for _, row := range b.Corner[1 : 1+NamedRows] {
				if !yield(&[tensormap.MaxRank]int64{b.Corner[0], row}) {
					return
				}
			}
		}
	}
	return b.tile
}

// tile is places for a box.
func (b *Box) tile(yield func(*[tensormap.MaxRank]int64) bool) {
	at := b.Corner
	for yield(&at) {
		i := 1
		for ; i < b.Rank; i++ {
			if at[i] += int64(b.Steps[i]); at[i] < b.Corner[i]+int64(b.Box[i]) {
				break
			}
			at[i] = b.Corner[i]
		}
		if i >= b.Rank {
			return
		}
	}
}

// pixels is places for a column of pixels. It begins at the corner, and goes through the
// bounding box of that image and of those behind it, all of them moved by the offsets.
func (b *Box) pixels(yield func(*[tensormap.MaxRank]int64) bool) {
	at := b.Corner
	for range b.Pixels {
		there := at
		for i, offset := range b.Offsets {
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
func (b *Box) place(at *[tensormap.MaxRank]int64) Row {
	r := Row{Global: b.Address, Before: b.Row()}
	for i := 1; i < b.Rank; i++ {
		c := at[i]
		if c < 0 || uint64(c) >= b.Sizes[i] {
			return r
		}
		r.Global += uint64(c) * b.Strides[i-1]
	}
	first := max(at[0], 0)
	end := min(at[0]+int64(b.count(0)), int64(b.Sizes[0]))
	if first < end {
		size := b.Type.Bytes()
		r.Before, r.Inside = uint64(first-at[0])*size, uint64(end-first)*size
		r.Global += uint64(first) * size
	}
	return r
}

// Swizzled returns the address in shared memory that a chunk of 16 bytes has in truth. It
// depends on the address alone, not on where the box begins.
func (b *Box) Swizzled(addr uint64) uint64 {
	return addr ^ addr>>7&(b.Swizzle.Span()/16-1)<<4
}

// Misplaced says why a GPU takes it for an illegal instruction to copy a box from where it
// is, or to it; "" if it does not.
func (b *Box) Misplaced(toShared bool) string {
	if c := b.Corner[0]; c*int64(b.Type.Bytes())%unit != 0 {
		return fmt.Sprintf("the first coordinate, %d, is not at a multiple of 16 bytes in the tensor's rows", c)
	}
	for i := range b.Rank {
		c := b.Corner[i]
		if c < 0 && !toShared && b.Mode != Rows {
			return fmt.Sprintf("coordinate %d in dimension %d is negative, which only loads may have", c, i)
		}
		if i > 0 && i < b.Rank-1 && b.Mode == Im2col {
			if begin, end := b.Bounds(i); c < begin || c >= end {
				return fmt.Sprintf("coordinate %d in dimension %d is not within the bounding box, from %d to %d", c, i, begin, end-1)
			}
		}
	}
	return ""
}

// Fill writes to a row what elements outside of the tensor are.
func (b *Box) Fill(row []byte) {
	if !b.NaN {
		clear(row)
		return
	}
	for i := 0; i < len(row); i += 2 {
		binary.LittleEndian.PutUint16(row[i:], outsideNaN)
	}
}

// Convert rounds elements of TF32, as the copy engine does on the way to shared memory:
// to the nearest number with 10 bits of fraction, and to one NaN. Others stay as they are,
// subnormal numbers too.
func (b *Box) Convert(row []byte) {
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
