package tensor

// Format is the format of a matrix's elements.
type Format uint8

// The formats. Those of fewer than 32 bits are the low bits of an element; a
// TF32 has 32, of which the lowest 13 do not count.
const (
	F16 Format = iota
	BF16
	TF32
	E4M3
	E5M2
	F32
	F64
	S8
	U8
	S4
	U4
	B1
	S32
)

var formats = [...]struct {
	bits     int
	exponent int // bits; 0 for an integer
	fraction int // bits
	signed   bool
	finite   bool // there is no infinity: only all bits set are a NaN
}{
	F16:  {bits: 16, exponent: 5, fraction: 10},
	BF16: {bits: 16, exponent: 8, fraction: 7},
	TF32: {bits: 32, exponent: 8, fraction: 10},
	E4M3: {bits: 8, exponent: 4, fraction: 3, finite: true},
	E5M2: {bits: 8, exponent: 5, fraction: 2},
	F32:  {bits: 32, exponent: 8, fraction: 23},
	F64:  {bits: 64, exponent: 11, fraction: 52},
	S8:   {bits: 8, signed: true}, U8: {bits: 8}, S4: {bits: 4, signed: true}, U4: {bits: 4}, B1: {bits: 1}, S32: {bits: 32, signed: true},
}

// Bits returns how many bits an element takes in a register or in memory.
func (f Format) Bits() int { return formats[f].bits }

// Float says whether the elements are floating-point numbers.
func (f Format) Float() bool { return formats[f].exponent > 0 }

// integer returns the value of an element that is a whole number.
func (f Format) integer(x uint64) int64 {
	shift := 64 - formats[f].bits
	if formats[f].signed {
		return int64(x<<shift) >> shift
	}
	return int64(x << shift >> shift)
}

// special is what an element is that is no number.
type special uint8

const (
	finite special = iota
	infinite
	invalid // a NaN
)

// number is an element taken apart: significand * 2^(exponent-fraction bits).
// Subnormals keep the exponent of the smallest normal number. Of what is not
// finite the significand is 1 or -1.
type number struct {
	significand int32
	exponent    int32
	kind        special
}

// decode takes an element apart.
func (f Format) decode(x uint64) number {
	d := &formats[f]
	x >>= uint(d.bits - 1 - d.exponent - d.fraction) // TF32 has bits that do not count
	fraction := int32(x & (1<<d.fraction - 1))
	biased := int32(x >> d.fraction & (1<<d.exponent - 1))
	negative := x>>(d.fraction+d.exponent)&1 != 0
	n := number{significand: fraction, exponent: 1}
	top := int32(1)<<d.exponent - 1
	switch {
	case biased == top && d.finite && fraction == 1<<d.fraction-1, biased == top && !d.finite && fraction != 0:
		n.significand, n.kind = 1, invalid
	case biased == top && !d.finite:
		n.significand, n.kind = 1, infinite
	case biased != 0:
		n.significand, n.exponent = fraction|1<<d.fraction, biased
	}
	n.exponent -= 1<<(d.exponent-1) - 1
	if negative {
		n.significand = -n.significand
	}
	return n
}
