package vec

import "math"

// cvtLoops are the common conversions, which have loops of their own: rounding
// as C does between f32, f64 and integers of 32 bits, and to nearest between
// f32 and what has 16 bits.
var cvtLoops = map[string]any{
	"cvt.rn.f32.s32": Unary32(f32FromS32),
	"cvt.rn.f32.u32": Unary32(f32FromU32),
	"cvt.rn.f64.s32": Widen(f64FromS32),
	"cvt.rn.f64.u32": Widen(f64FromU32),

	"cvt.rzi.s32.f32": Unary32(s32FromF32),
	"cvt.rzi.u32.f32": Unary32(u32FromF32),
	"cvt.rzi.s32.f64": Narrow(s32FromF64),
	"cvt.rzi.u32.f64": Narrow(u32FromF64),

	"cvt.f64.f32":    Widen(f64FromF32),
	"cvt.rn.f32.f64": Narrow(f32FromF64),

	"cvt.f32.f16":     Unary32(f32FromF16),
	"cvt.f32.bf16":    Unary32(f32FromBF16),
	"cvt.rn.f16.f32":  Unary32(f16FromF32),
	"cvt.rn.bf16.f32": Unary32(bf16FromF32),
}

func init() { define(cvtLoops) }

func f32FromS32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return math.Float32bits(float32(int32(a))) })
}

func f32FromU32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return math.Float32bits(float32(int64(a))) })
}

func f64FromS32(d []uint64, a []uint32) {
	loop1(d, a, func(a uint32) uint64 { return math.Float64bits(float64(int32(a))) })
}

func f64FromU32(d []uint64, a []uint32) {
	loop1(d, a, func(a uint32) uint64 { return math.Float64bits(float64(int64(a))) })
}

// Floats that an integer has no room for become its nearest value. A NaN
// becomes zero if it is not of 64 bits and does not become 64 bits; otherwise
// only the highest bit is set.

func s32FromF32(d, a []uint32) {
	a = a[:len(d)]
	for i := range d {
		x := math.Float32frombits(a[i])
		switch {
		case x >= 1<<31:
			d[i] = math.MaxInt32
		case x >= -1<<31:
			d[i] = uint32(int32(x))
		case x < 0:
			d[i] = 1 << 31
		default:
			d[i] = 0
		}
	}
}

func u32FromF32(d, a []uint32) {
	a = a[:len(d)]
	for i := range d {
		x := math.Float32frombits(a[i])
		switch {
		case x >= 1<<32:
			d[i] = math.MaxUint32
		case x >= 0:
			d[i] = uint32(int64(x))
		default:
			d[i] = 0
		}
	}
}

func s32FromF64(d []uint32, a []uint64) {
	a = a[:len(d)]
	for i := range d {
		x := math.Float64frombits(a[i])
		switch {
		case x >= 1<<31:
			d[i] = math.MaxInt32
		case x > -1<<31-1:
			d[i] = uint32(int32(x))
		default:
			d[i] = 1 << 31
		}
	}
}

func u32FromF64(d []uint32, a []uint64) {
	a = a[:len(d)]
	for i := range d {
		x := math.Float64frombits(a[i])
		switch {
		case x >= 1<<32:
			d[i] = math.MaxUint32
		case x >= 0:
			d[i] = uint32(int64(x))
		case x < 0:
			d[i] = 0
		default:
			d[i] = 1 << 31
		}
	}
}

// A NaN keeps its sign and the bits after it, and becomes quiet.
func f64FromF32(d []uint64, a []uint32) {
	loop1(d, a, func(a uint32) uint64 { return math.Float64bits(float64(math.Float32frombits(a))) })
}

func f32FromF64(d []uint32, a []uint64) {
	loop1(d, a, func(a uint64) uint32 { return canon32(float32(math.Float64frombits(a))) })
}

func f32FromF16(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return math.Float32bits(halfValue(a)) })
}

func f32FromBF16(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return math.Float32bits(brainValue(a)) })
}

func f16FromF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return halfBits(math.Float32frombits(a)) })
}

func bf16FromF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return brainBits(math.Float32frombits(a)) })
}
