// Package tensormap reads and writes tensor maps: the 128 bytes that tell the copy engine
// of a GPU where a tensor lies in memory and which box of it to copy.
//
// It knows descriptions and their bytes only: no memory, no copy.
//
// NVIDIA does not document the bytes. Here they are those that the driver of an H200
// writes, found by varying one argument of cuTensorMapEncodeTiled after the other.
// scripts/gpu-tensormap repeats that on a GPU, and a test compares with the 2588
// descriptions that it recorded, 800 of them for im2col mode. So a program keeps its tensor
// maps when it moves between a software GPU and a real one.
package tensormap

import (
	"encoding/binary"
	"fmt"
)

// Size is how many bytes a tensor map has, and Alignment what its address must be a
// multiple of.
const (
	Size      = 128
	Alignment = 64
	MaxRank   = 5
)

// Type is the type of a tensor's elements, as CUDA's CUtensorMapDataType numbers them.
type Type uint32

const (
	U8 Type = iota
	U16
	U32
	S32
	U64
	S64
	F16
	F32
	F64
	BF16
	F32FTZ
	TF32
	TF32FTZ
	typeCount
)

// types has of each type its bytes and its number in a tensor map. TF32 is stored as F32
// with a flag.
var types = [typeCount]struct {
	size, number uint32
	tf32, float  bool
}{
	U8: {size: 1, number: 0}, U16: {size: 2, number: 1}, U32: {size: 4, number: 2}, S32: {size: 4, number: 3}, U64: {size: 8, number: 4}, S64: {size: 8, number: 5},
	F16: {size: 2, number: 6, float: true}, F32: {size: 4, number: 7, float: true}, F32FTZ: {size: 4, number: 8, float: true}, F64: {size: 8, number: 9, float: true},
	BF16: {size: 2, number: 10, float: true}, TF32: {size: 4, number: 7, tf32: true, float: true}, TF32FTZ: {size: 4, number: 8, tf32: true, float: true},
}

// Bytes returns the bytes of an element.
func (t Type) Bytes() uint64 { return uint64(types[t].size) }

// Swizzle says how chunks of 16 bytes change places in shared memory.
type Swizzle uint32

const (
	NoSwizzle Swizzle = iota
	Swizzle32
	Swizzle64
	Swizzle128
	swizzleCount
)

// Span returns how many bytes the chunks that change places have together; 16 if none do.
func (s Swizzle) Span() uint64 { return 16 << s }

// Map is a tensor map. The first dimension is the innermost: its elements lie one behind
// the other.
type Map struct {
	Type       Type
	Rank       int
	Address    uint64
	Sizes      [MaxRank]uint64     // elements
	Strides    [MaxRank - 1]uint64 // bytes from one element of the second dimension, and so on, to the next
	Box        [MaxRank]uint32     // elements that a copy passes
	Steps      [MaxRank]uint32     // of which it takes every so many-th
	Interleave uint32              // 0: none
	Swizzle    Swizzle
	Promotion  uint32 // what is fetched into the L2 cache; it has no effect on what is copied
	NaN        bool   // what lies outside of the tensor is NaN, else 0

	// In im2col mode the tensor is a batch of images: the first dimension has the channels
	// of a pixel, the last one the images, those between width, height and depth. A copy
	// takes Box[0] channels of Pixels pixels, one behind the other in a bounding box. It goes
	// on in the next row, and in the next image, when it comes to the end of the box. The rest
	// of Box is not used.
	Im2col bool
	Pixels uint32
	Lower  [MaxRank - 2]int32 // first pixel of the bounding box, relative to the first one of an image
	Upper  [MaxRank - 2]int32 // last pixel of the bounding box, relative to the last one of an image
}

// The limits of the driver.
const (
	addressLimit = 1 << 57
	sizeLimit    = 1 << 32 // may be reached
	strideLimit  = 1 << 40
	boxLimit     = 256 // may be reached
	stepLimit    = 8   // may be reached
	byteLimit    = 227 << 10
	pixelLimit   = 1024 // may be reached
)

// cornerBits returns how many bits each number of a corner of a bounding box has.
func cornerBits(rank int) int { return [...]int{3: 16, 4: 8, 5: 5}[rank] }

// Check returns why a GPU's driver refuses a description, or nil.
func (m *Map) Check() error {
	switch {
	case m.Rank < 1 || m.Rank > MaxRank:
		return fmt.Errorf("a tensor of %d dimensions: it has 1 to %d", m.Rank, MaxRank)
	case m.Type >= typeCount:
		return fmt.Errorf("tensors of type %d are not known", m.Type)
	case m.Address%16 != 0 || m.Address >= addressLimit:
		return fmt.Errorf("address %#x of a tensor is not a multiple of 16 below 2^57", m.Address)
	case m.Im2col && m.Rank < 3:
		return fmt.Errorf("a tensor of %d dimensions: in im2col mode it has 3 to %d", m.Rank, MaxRank)
	case m.Interleave > 2 || m.Interleave > 0 && m.Rank < 3:
		return fmt.Errorf("interleaving %d of a tensor of %d dimensions is not known", m.Interleave, m.Rank)
	case m.Swizzle >= swizzleCount:
		return fmt.Errorf("swizzle %d is not known", m.Swizzle)
	case m.Promotion > 3:
		return fmt.Errorf("promotion %d to the L2 cache is not known", m.Promotion)
	case m.NaN && !types[m.Type].float:
		return fmt.Errorf("integers cannot be NaN outside of the tensor")
	}
	for i := range m.Rank {
		switch {
		case m.Sizes[i] == 0 || m.Sizes[i] > sizeLimit:
			return fmt.Errorf("size %d of dimension %d is not from 1 to 2^32", m.Sizes[i], i)
		case i > 0 && (m.Strides[i-1]%16 != 0 || m.Strides[i-1] >= strideLimit):
			return fmt.Errorf("stride %d of dimension %d is not a multiple of 16 below 2^40", m.Strides[i-1], i)
		case (m.Box[i] == 0 || m.Box[i] > boxLimit) && (i == 0 || !m.Im2col):
			return fmt.Errorf("the box is %d wide in dimension %d: that is not from 1 to %d", m.Box[i], i, boxLimit)
		case m.Steps[i] == 0 || m.Steps[i] > stepLimit:
			return fmt.Errorf("step %d in dimension %d is not from 1 to %d", m.Steps[i], i, stepLimit)
		}
	}
	if err := m.checkColumns(); err != nil {
		return err
	}
	if row := uint64(m.Box[0]) * m.Type.Bytes(); m.Interleave == 0 && (row%16 != 0 || m.Swizzle != NoSwizzle && row > m.Swizzle.Span()) {
		return fmt.Errorf("rows of a box of %d bytes are no multiple of 16, or too long for the swizzle", row)
	}
	if n := m.bytes(); n > byteLimit {
		return fmt.Errorf("a box of %d bytes does not fit into shared memory", n)
	}
	return nil
}

// checkColumns is the part of Check for im2col mode.
func (m *Map) checkColumns() error {
	if !m.Im2col {
		return nil
	}
	if m.Pixels == 0 || m.Pixels > pixelLimit {
		return fmt.Errorf("a column of %d pixels: it has 1 to %d", m.Pixels, pixelLimit)
	}
	for i := range m.Rank - 2 {
		limit := int32(1) << (cornerBits(m.Rank) - 1)
		if low, high := m.Lower[i], m.Upper[i]; min(low, high) < -limit || max(low, high) >= limit {
			return fmt.Errorf("corners %d and %d of the bounding box are not from %d to %d", low, high, -limit, limit-1)
		}
		if begin, end := m.Bounds(i + 1); begin >= end {
			return fmt.Errorf("the bounding box has no pixels in dimension %d", i+1)
		}
	}
	return nil
}

// Bounds returns where the bounding box of im2col mode begins in a dimension of the
// images, and the first place behind it.
func (m *Map) Bounds(dimension int) (begin, end int64) {
	return int64(m.Lower[dimension-1]), int64(m.Sizes[dimension]) + int64(m.Upper[dimension-1])
}

// bytes returns how large the driver takes a box to be.
func (m *Map) bytes() uint64 {
	n := m.Type.Bytes()
	if m.Im2col {
		return n * uint64(m.Box[0]) * uint64(m.Pixels)
	}
	for i := range m.Rank {
		n *= uint64(m.Box[i] / m.Steps[i])
	}
	return n
}

// Where the parts of a tensor map begin: words of 32 bits, and bits of the word with the
// flags and of that with the steps.
const (
	wordFlags   = 2
	wordStrides = 3 // in units of 16 bytes, bits 0 to 31
	wordHigh    = 7 // bits 32 to 35 of each
	wordSizes   = 8 // less one
	wordSteps   = 13
	wordBox     = 14 // dimensions from the second on, 8 bits each, less one; in im2col mode the corners
	wordPixels  = 15 // of a column, less one
	wordBytes   = 16
	wordRepeat  = 18 // bytes of shared memory after which the swizzle repeats

	flagIm2col     = 0
	flagRank       = 4 // less one, 3 bits
	flagType       = 7 // 4 bits
	flagInterleave = 11
	flagSwizzle    = 13
	flagNaN        = 15
	flagTF32       = 16
	flagPromotion  = 17

	stepBits = 3  // of each step, less one
	boxShift = 24 // of the first dimension, beside the steps

	upperShift = 16 // of the upper corner, beside the lower one
)

// Encode returns the bytes of a tensor map that Check takes.
func (m *Map) Encode() [Size]byte {
	var w [Size / 4]uint32
	w[0], w[1] = uint32(m.Address), uint32(m.Address>>32)
	t := &types[m.Type]
	w[wordFlags] = uint32(m.Rank-1)<<flagRank | t.number<<flagType | m.Interleave<<flagInterleave | uint32(m.Swizzle)<<flagSwizzle |
		bit(m.NaN)<<flagNaN | bit(t.tf32)<<flagTF32 | m.Promotion<<flagPromotion | bit(m.Im2col)<<flagIm2col
	w[wordSteps] = (m.Box[0] - 1) << boxShift
	for i := range m.Rank {
		w[wordSizes+i] = uint32(m.Sizes[i] - 1)
		w[wordSteps] |= (m.Steps[i] - 1) << (stepBits * i)
		if i > 0 {
			w[wordStrides+i-1] = uint32(m.Strides[i-1] >> 4)
			w[wordHigh] |= uint32(m.Strides[i-1]>>36) << (4 * (i - 1))
			if !m.Im2col {
				w[wordBox] |= (m.Box[i] - 1) << (8 * (i - 1))
			}
		}
	}
	if m.Im2col {
		w[wordPixels] = m.Pixels - 1
		for i, bits := 0, cornerBits(m.Rank); i < m.Rank-2; i++ {
			mask := uint32(1)<<bits - 1
			w[wordBox] |= uint32(m.Lower[i])&mask<<(bits*i) | uint32(m.Upper[i])&mask<<(upperShift+bits*i)
		}
	}
	n := m.bytes()
	w[wordBytes], w[wordBytes+1] = uint32(n), uint32(n>>32)
	if w[wordRepeat] = 16; m.Swizzle != NoSwizzle {
		w[wordRepeat] = 8 * uint32(m.Swizzle.Span())
	}
	var b [Size]byte
	for i, x := range w {
		binary.LittleEndian.PutUint32(b[4*i:], x)
	}
	return b
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Decode returns what a tensor map says. It returns an error if the bytes cannot be one:
// every part of what it returns without an error is in its bounds.
func Decode(b *[Size]byte) (Map, error) {
	var w [Size / 4]uint32
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	flags := w[wordFlags]
	m := Map{
		Rank: int(flags>>flagRank&7) + 1, Address: uint64(w[0]) | uint64(w[1])<<32, Interleave: flags >> flagInterleave & 3,
		Swizzle: Swizzle(flags >> flagSwizzle & 3), NaN: flags>>flagNaN&1 != 0, Promotion: flags >> flagPromotion & 3, Type: typeCount,
		Im2col: flags>>flagIm2col&1 != 0,
	}
	for t := range typeCount {
		if types[t].number == flags>>flagType&15 && types[t].tf32 == (flags>>flagTF32&1 != 0) {
			m.Type = t
		}
	}
	if m.Rank > MaxRank || m.Type == typeCount || m.Address%16 != 0 || m.Im2col && m.Rank < 3 {
		return Map{}, fmt.Errorf("these bytes are no tensor map: make it with cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col")
	}
	for i := range m.Rank {
		m.Sizes[i] = uint64(w[wordSizes+i]) + 1
		m.Steps[i] = w[wordSteps]>>(stepBits*i)&(1<<stepBits-1) + 1
		if i == 0 {
			m.Box[0] = w[wordSteps]>>boxShift + 1
			continue
		}
		m.Strides[i-1] = uint64(w[wordStrides+i-1])<<4 | uint64(w[wordHigh]>>(4*(i-1))&15)<<36
		if !m.Im2col {
			m.Box[i] = w[wordBox]>>(8*(i-1))&255 + 1
		}
	}
	if m.Im2col {
		m.Pixels = w[wordPixels]&(pixelLimit-1) + 1
		for i, bits := 0, cornerBits(m.Rank); i < m.Rank-2; i++ {
			m.Lower[i], m.Upper[i] = signed(w[wordBox]>>(bits*i), bits), signed(w[wordBox]>>(upperShift+bits*i), bits)
		}
	}
	if err := m.Check(); err != nil { // a kernel may have written them
		return Map{}, fmt.Errorf("these bytes are no tensor map that a driver makes: %w", err)
	}
	return m, nil
}

// signed returns the number in the lowest bits of a word.
func signed(w uint32, bits int) int32 { return int32(w<<(32-bits)) >> (32 - bits) }

// Replace changes the address in a tensor map.
func Replace(b *[Size]byte, address uint64) error {
	if address%16 != 0 || address >= addressLimit {
		return fmt.Errorf("address %#x of a tensor is not a multiple of 16 below 2^57", address)
	}
	binary.LittleEndian.PutUint64(b[:], address)
	return nil
}

// Field is a part of a tensor map that a kernel can replace.
type Field uint8

// The fields. Some are lists, with an element for each dimension.
const (
	FieldAddress Field = iota
	FieldRank          // less one
	FieldBox           // a list
	FieldSize          // a list
	FieldStride        // a list, from the second dimension on; in bytes, as was recorded on an H200 (the manual says little)
	FieldStep          // a list
	FieldType          // as PTX numbers the types
	FieldInterleave
	FieldSwizzle
	FieldFill // 1: NaN
)

// Set replaces a field, or an element of it, in any bytes: a kernel may fill in a map field
// by field. It cuts off bits that the field has no room for. Decode tells whether the
// whole is a tensor map.
func (f Field) Set(b *[Size]byte, element int, value uint64) {
	v := uint32(value)
	switch f {
	case FieldAddress:
		binary.LittleEndian.PutUint64(b[:], value)
	case FieldRank:
		put(b, wordFlags, flagRank, 3, v)
	case FieldBox:
		if element == 0 {
			put(b, wordSteps, boxShift, 8, v-1)
			return
		}
		put(b, wordBox, 8*(element-1), 8, v-1)
	case FieldSize:
		put(b, wordSizes+element, 0, 32, v-1)
	case FieldStride:
		put(b, wordStrides+element, 0, 32, uint32(value>>4))
		put(b, wordHigh, 4*element, 4, uint32(value>>36))
	case FieldStep:
		put(b, wordSteps, stepBits*element, stepBits, v-1)
	case FieldType:
		// PTX numbers types as maps do, but for the last two, which are flags in a map.
		number, tf32 := v, uint32(0)
		if t := TF32; v > types[BF16].number {
			t += Type(v - types[BF16].number - 1)
			number, tf32 = types[t].number, 1
		}
		put(b, wordFlags, flagType, 4, number)
		put(b, wordFlags, flagTF32, 1, tf32)
	case FieldInterleave:
		put(b, wordFlags, flagInterleave, 2, v)
	case FieldSwizzle:
		put(b, wordFlags, flagSwizzle, 2, v)
	case FieldFill:
		put(b, wordFlags, flagNaN, 1, v)
	}
}

// Elements returns how many elements a field has.
func (f Field) Elements() int {
	switch f {
	case FieldBox, FieldSize, FieldStep:
		return MaxRank
	case FieldStride:
		return MaxRank - 1
	}
	return 1
}

// Values returns how many values a field has that a kernel can name only by a constant;
// 0 for other fields.
func (f Field) Values() uint64 {
	return [...]uint64{FieldType: uint64(typeCount), FieldInterleave: 3, FieldSwizzle: uint64(swizzleCount), FieldFill: 2}[f]
}

// put replaces some bits of a word.
func put(b *[Size]byte, word, shift, bits int, v uint32) {
	mask := (uint32(1)<<bits - 1) << shift
	at := b[4*word:]
	binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)&^mask|v<<shift&mask)
}
