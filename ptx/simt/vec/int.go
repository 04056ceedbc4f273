package vec

import "math/bits"

// The integer kernels are generic over three types where the width allows:
// the lane L that a value lives in, the unsigned type V as wide as the
// operation, and T, as wide as V, whose sign is the sign of the operation.
// Going from L to T drops what is above the operation's width, and going from
// V to L fills with zeros, so one loop serves 16, 32 and 64 bits.
type (
	lane     interface{ uint32 | uint64 }
	unsigned interface {
		uint8 | uint16 | uint32 | uint64
	}
	signed interface {
		int8 | int16 | int32 | int64
	}
	integer interface{ unsigned | signed }
)

func init() {
	define(map[string]any{
		"add.b16":      Binary32(add[uint32, uint16]),
		"add.b32":      Binary32(add[uint32, uint32]),
		"add.b64":      Binary64(add[uint64, uint64]),
		"sub.b16":      Binary32(sub[uint32, uint16]),
		"sub.b32":      Binary32(sub[uint32, uint32]),
		"sub.b64":      Binary64(sub[uint64, uint64]),
		"mul.lo.b16":   Binary32(mulLo[uint32, uint16]),
		"mul.lo.b32":   Binary32(mulLo[uint32, uint32]),
		"mul.lo.b64":   Binary64(mulLo[uint64, uint64]),
		"mul.hi.s16":   Binary32(each2(mulHi16[int16, int32])),
		"mul.hi.u16":   Binary32(each2(mulHi16[uint16, uint32])),
		"mul.hi.s32":   Binary32(mulHi32[int32, int64]),
		"mul.hi.u32":   Binary32(mulHi32[uint32, uint64]),
		"mul.hi.s64":   Binary64(mulHiS64),
		"mul.hi.u64":   Binary64(mulHiU64),
		"mul.wide.s16": Binary32(mulWide[uint32, uint32, int16, int32]),
		"mul.wide.u16": Binary32(mulWide[uint32, uint32, uint16, uint32]),
		"mul.wide.s32": WidenBinary(mulWide[uint64, uint32, int32, int64]),
		"mul.wide.u32": WidenBinary(mulWide[uint64, uint32, uint32, uint64]),

		"mad.lo.b16":   Ternary32(madLo[uint32, uint16]),
		"mad.lo.b32":   Ternary32(madLo[uint32, uint32]),
		"mad.lo.b64":   Ternary64(madLo[uint64, uint64]),
		"mad.hi.s16":   Ternary32(each3(madHi16[int16, int32])),
		"mad.hi.u16":   Ternary32(each3(madHi16[uint16, uint32])),
		"mad.hi.s32":   Ternary32(madHi32[int32, int64]),
		"mad.hi.u32":   Ternary32(madHi32[uint32, uint64]),
		"mad.hi.s64":   Ternary64(madHiS64),
		"mad.hi.u64":   Ternary64(madHiU64),
		"mad.wide.s16": Ternary32(madWide[uint32, uint32, int16, int32]),
		"mad.wide.u16": Ternary32(madWide[uint32, uint32, uint16, uint32]),
		"mad.wide.s32": WidenAdd(madWide[uint64, uint32, int32, int64]),
		"mad.wide.u32": WidenAdd(madWide[uint64, uint32, uint32, uint64]),

		"div.s16": Binary32(div[uint32, uint16, int16]),
		"div.u16": Binary32(div[uint32, uint16, uint16]),
		"div.s32": Binary32(div[uint32, uint32, int32]),
		"div.u32": Binary32(div[uint32, uint32, uint32]),
		"div.s64": Binary64(div[uint64, uint64, int64]),
		"div.u64": Binary64(div[uint64, uint64, uint64]),
		"rem.s16": Binary32(rem[uint32, uint16, int16]),
		"rem.u16": Binary32(rem[uint32, uint16, uint16]),
		"rem.s32": Binary32(rem[uint32, uint32, int32]),
		"rem.u32": Binary32(rem[uint32, uint32, uint32]),
		"rem.s64": Binary64(rem[uint64, uint64, int64]),
		"rem.u64": Binary64(rem[uint64, uint64, uint64]),
		"min.s16": Binary32(minimum[uint32, uint16, int16]),
		"min.u16": Binary32(minimum[uint32, uint16, uint16]),
		"min.s32": Binary32(minimum[uint32, uint32, int32]),
		"min.u32": Binary32(minimum[uint32, uint32, uint32]),
		"min.s64": Binary64(minimum[uint64, uint64, int64]),
		"min.u64": Binary64(minimum[uint64, uint64, uint64]),
		"max.s16": Binary32(maximum[uint32, uint16, int16]),
		"max.u16": Binary32(maximum[uint32, uint16, uint16]),
		"max.s32": Binary32(maximum[uint32, uint32, int32]),
		"max.u32": Binary32(maximum[uint32, uint32, uint32]),
		"max.s64": Binary64(maximum[uint64, uint64, int64]),
		"max.u64": Binary64(maximum[uint64, uint64, uint64]),
		"sad.s16": Ternary32(sad[uint32, uint16, int16]),
		"sad.u16": Ternary32(sad[uint32, uint16, uint16]),
		"sad.s32": Ternary32(sad[uint32, uint32, int32]),
		"sad.u32": Ternary32(sad[uint32, uint32, uint32]),
		"sad.s64": Ternary64(sad[uint64, uint64, int64]),
		"sad.u64": Ternary64(sad[uint64, uint64, uint64]),

		"neg.s16": Unary32(neg[uint32, uint16]),
		"neg.s32": Unary32(neg[uint32, uint32]),
		"neg.s64": Unary64(neg[uint64, uint64]),
		"abs.s16": Unary32(abs[uint32, uint16, int16]),
		"abs.s32": Unary32(abs[uint32, uint32, int32]),
		"abs.s64": Unary64(abs[uint64, uint64, int64]),

		"add.sat.s32":    Binary32(each2(addSat)),
		"sub.sat.s32":    Binary32(each2(subSat)),
		"mad.hi.sat.s32": Ternary32(each3(madHiSat)),
		"min.relu.s32":   Binary32(each2(minRelu[int32])),
		"max.relu.s32":   Binary32(each2(maxRelu[int32])),

		"mul24.lo.s32":     Binary32(each2(mul24LoS)),
		"mul24.lo.u32":     Binary32(each2(mul24LoU)),
		"mul24.hi.s32":     Binary32(each2(mul24HiS)),
		"mul24.hi.u32":     Binary32(each2(mul24HiU)),
		"mad24.lo.s32":     Ternary32(each3(thenAdd(mul24LoS))),
		"mad24.lo.u32":     Ternary32(each3(thenAdd(mul24LoU))),
		"mad24.hi.s32":     Ternary32(each3(thenAdd(mul24HiS))),
		"mad24.hi.u32":     Ternary32(each3(thenAdd(mul24HiU))),
		"mad24.hi.sat.s32": Ternary32(each3(mad24HiSat)),
	})
}

// each1 makes a kernel of an operation on one lane, for what is rarely run: it is called for each.
func each1[D, A lane](f func(A) D) func(d []D, a []A) {
	return func(d []D, a []A) { loop1(d, a, f) }
}

func each2[D, A, B lane](f func(A, B) D) func(d []D, a []A, b []B) {
	return func(d []D, a []A, b []B) { loop2(d, a, b, f) }
}

func each3[D, A, B, C lane](f func(A, B, C) D) func(d []D, a []A, b []B, c []C) {
	return func(d []D, a []A, b []B, c []C) { loop3(d, a, b, c, f) }
}

func add[L lane, V unsigned](d, a, b []L) { loop2(d, a, b, func(a, b L) L { return L(V(a) + V(b)) }) }

func sub[L lane, V unsigned](d, a, b []L) { loop2(d, a, b, func(a, b L) L { return L(V(a) - V(b)) }) }

func mulLo[L lane, V unsigned](d, a, b []L) { loop2(d, a, b, func(a, b L) L { return L(V(a) * V(b)) }) }

func madLo[L lane, V unsigned](d, a, b, c []L) {
	loop3(d, a, b, c, func(a, b, c L) L { return L(V(a)*V(b) + V(c)) })
}

// mulWide multiplies values of type T into the type W, twice as wide.
func mulWide[D, A lane, T, W integer](d []D, a, b []A) {
	loop2(d, a, b, func(a, b A) D { return D(W(T(a)) * W(T(b))) })
}

func madWide[D, A lane, T, W integer](d []D, a, b []A, c []D) {
	loop3(d, a, b, c, func(a, b A, c D) D { return D(W(T(a))*W(T(b))) + c })
}

func mulHi16[T int16 | uint16, W int32 | uint32](a, b uint32) uint32 {
	return uint32(uint16(W(T(a)) * W(T(b)) >> 16))
}

func madHi16[T int16 | uint16, W int32 | uint32](a, b, c uint32) uint32 {
	return uint32(uint16(mulHi16[T, W](a, b) + c))
}

func mulHi32[T int32 | uint32, W int64 | uint64](d, a, b []uint32) {
	loop2(d, a, b, func(a, b uint32) uint32 { return uint32(W(T(a)) * W(T(b)) >> 32) })
}

func madHi32[T int32 | uint32, W int64 | uint64](d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		return uint32(W(T(a))*W(T(b))>>32) + c
	})
}

func highU64(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	return hi
}

// highS64 corrects the unsigned product: a negative factor counts as 2^64 too
// much there, which adds the other factor to the high half.
func highS64(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	return hi - uint64(int64(a)>>63)&b - uint64(int64(b)>>63)&a
}

func mulHiU64(d, a, b []uint64) { loop2(d, a, b, func(a, b uint64) uint64 { return highU64(a, b) }) }

func mulHiS64(d, a, b []uint64) { loop2(d, a, b, func(a, b uint64) uint64 { return highS64(a, b) }) }

func madHiU64(d, a, b, c []uint64) {
	loop3(d, a, b, c, func(a, b, c uint64) uint64 { return highU64(a, b) + c })
}

func madHiS64(d, a, b, c []uint64) {
	loop3(d, a, b, c, func(a, b, c uint64) uint64 { return highS64(a, b) + c })
}

// div gives all ones for a division by zero, as GPUs do. The smallest value
// by minus one is itself, in Go as in PTX.
func div[L lane, V unsigned, T integer](d, a, b []L) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		if y := T(b[i]); y != 0 {
			d[i] = L(V(T(a[i]) / y))
		} else {
			d[i] = L(^V(0))
		}
	}
}

// rem gives all ones for a division by zero, as GPUs do.
func rem[L lane, V unsigned, T integer](d, a, b []L) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		if y := T(b[i]); y != 0 {
			d[i] = L(V(T(a[i]) % y))
		} else {
			d[i] = L(^V(0))
		}
	}
}

func minimum[L lane, V unsigned, T integer](d, a, b []L) {
	loop2(d, a, b, func(a, b L) L {
		x, y := T(a), T(b)
		if y < x {
			x = y
		}
		return L(V(x))
	})
}

func maximum[L lane, V unsigned, T integer](d, a, b []L) {
	loop2(d, a, b, func(a, b L) L {
		x, y := T(a), T(b)
		if y > x {
			x = y
		}
		return L(V(x))
	})
}

func sad[L lane, V unsigned, T integer](d, a, b, c []L) {
	loop3(d, a, b, c, func(a, b, c L) L {
		x, y := T(a), T(b)
		if x < y {
			x, y = y, x
		}
		return L(V(c) + V(x) - V(y))
	})
}

func neg[L lane, V unsigned](d, a []L) { loop1(d, a, func(a L) L { return L(-V(a)) }) }

// abs leaves the smallest value as it is.
func abs[L lane, V unsigned, T signed](d, a []L) {
	loop1(d, a, func(a L) L {
		x := T(a)
		if x < 0 {
			x = -x
		}
		return L(V(x))
	})
}

// clampS32 limits a sum to the range of 32 bits with sign.
func clampS32(x int64) uint32 {
	return uint32(int32(max(-1<<31, min(x, 1<<31-1))))
}

func addSat(a, b uint32) uint32 { return clampS32(int64(int32(a)) + int64(int32(b))) }
func subSat(a, b uint32) uint32 { return clampS32(int64(int32(a)) - int64(int32(b))) }

func madHiSat(a, b, c uint32) uint32 {
	return clampS32(int64(int32(a))*int64(int32(b))>>32 + int64(int32(c)))
}

func minRelu[T int16 | int32](a, b uint32) uint32 { return uint32(max(0, min(T(a), T(b)))) }
func maxRelu[T int16 | int32](a, b uint32) uint32 { return uint32(max(0, T(a), T(b))) }

// The products of 24-bit values have 48 bits, of which "lo" is the lower 32
// and "hi" the upper 32.
func product24S(a, b uint32) int64  { return int64(int32(a<<8)>>8) * int64(int32(b<<8)>>8) }
func product24U(a, b uint32) uint64 { return uint64(a&0xffffff) * uint64(b&0xffffff) }

func mul24LoS(a, b uint32) uint32 { return uint32(product24S(a, b)) }
func mul24LoU(a, b uint32) uint32 { return uint32(product24U(a, b)) }
func mul24HiS(a, b uint32) uint32 { return uint32(product24S(a, b) >> 16) }
func mul24HiU(a, b uint32) uint32 { return uint32(product24U(a, b) >> 16) }

func mad24HiSat(a, b, c uint32) uint32 {
	return clampS32(product24S(a, b)>>16 + int64(int32(c)))
}

func thenAdd(mul func(a, b uint32) uint32) func(a, b, c uint32) uint32 {
	return func(a, b, c uint32) uint32 { return mul(a, b) + c }
}
