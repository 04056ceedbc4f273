package vec

import (
	"math"
	"unsafe"
)

// What floating point means here, where PTX or IEEE 754 leaves room:
//
// Any NaN that f32 arithmetic produces is nan32, as on the GPUs; f16 and bf16
// have one NaN likewise. In f64 the first operand that is a NaN comes out,
// made quiet, and an invalid operation gives nan64.
//
// Flushing (.ftz) replaces subnormal inputs, and results that are subnormal
// after rounding, by the zero of the same sign. Saturation (.sat) clamps to
// the range from +0 to 1 and turns a NaN into +0.
//
// Products that are to be rounded before they are added to are converted
// explicitly, so that no compiler fuses them.
const (
	nan32 = 0x7fffffff
	nan64 = 0xfff8000000000000

	sign32 = 1 << 31
	sign64 = 1 << 63
	inf32  = 0x7f800000
	inf64  = 0x7ff0000000000000

	quiet64 = 1 << 51 // what makes a NaN of 64 bits quiet

	one32 = 0x3f800000
)

// flush32 is what .ftz does to a value, without a branch: the exponent less
// one is negative only where it is zero.
func flush32(x uint32) uint32 {
	return x &^ (uint32(int32(x&inf32-1)>>31) >> 1)
}

// flushFloat is flush32 of a value that is a float already.
func flushFloat(x float32) float32 {
	if -0x1p-126 < x && x < 0x1p-126 {
		x *= 0
	}
	return x
}

// canon32 is the bits of an arithmetic result.
func canon32(x float32) uint32 {
	if x != x {
		return nan32
	}
	return math.Float32bits(x)
}

// sat32 is what .sat does to the bits of a result.
func sat32(x uint32) uint32 {
	f := math.Float32frombits(x)
	switch {
	case f >= 1:
		return one32
	case f > 0:
		return x
	}
	return 0
}

func isNaN32(x uint32) bool { return x&^uint32(sign32) > inf32 }
func isNaN64(x uint64) bool { return x&^uint64(sign64) > inf64 }

// nanOf64 is the NaN that arithmetic on operands gives.
func nanOf64(operands ...uint64) uint64 {
	for _, x := range operands {
		if isNaN64(x) {
			return x | quiet64
		}
	}
	return nan64
}

// floats32 is the same lanes as floats, which spares hot loops the way of each
// value through an integer register.
func floats32(a []uint32) []float32 { return *(*[]float32)(unsafe.Pointer(&a)) }
func floats64(a []uint64) []float64 { return *(*[]float64)(unsafe.Pointer(&a)) }

// The adapters below make kernels of functions on one lane, for operations
// that are too rare to be worth a loop of their own.

func eachUnary32(f func(a uint32) uint32) Unary32           { return each1(f) }
func eachBinary32(f func(a, b uint32) uint32) Binary32      { return each2(f) }
func eachTernary32(f func(a, b, c uint32) uint32) Ternary32 { return each3(f) }
func eachUnary64(f func(a uint64) uint64) Unary64           { return each1(f) }
func eachBinary64(f func(a, b uint64) uint64) Binary64      { return each2(f) }
func eachTernary64(f func(a, b, c uint64) uint64) Ternary64 { return each3(f) }
func eachWiden(f func(a uint32) uint64) Widen               { return each1(f) }
func eachNarrow(f func(a uint64) uint32) Narrow             { return each1(f) }
