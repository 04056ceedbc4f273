package vec

import (
	"math"
	"math/bits"
)

// This file is arithmetic with one rounding, in any mode and to any format.
// Operands are float64, as every format here is a part of it. It serves the
// operations that the processor has no instruction for.

type rounding uint8

const (
	nearest rounding = iota // ties to even
	away                    // to nearest, ties away from zero
	toZero
	down
	up
)

// roundings are the modes by their names in PTX.
var roundings = map[string]rounding{"rn": nearest, "rz": toZero, "rm": down, "rp": up}

// format is a binary format of IEEE 754, its sign bit apart.
type format struct {
	fraction uint // bits of the fraction
	exponent uint // bits of the exponent
	nan      uint64
}

var (
	f16  = format{10, 5, 0x7fff}
	bf16 = format{7, 8, 0x7fff}
	tf32 = format{10, 8, nan32 >> 13}
	f32  = format{23, 8, nan32}
	f64  = format{52, 11, nan64}
)

func (f format) sign(negative bool) uint64 {
	if negative {
		return 1 << (f.fraction + f.exponent)
	}
	return 0
}

func (f format) infinity() uint64 { return (1<<f.exponent - 1) << f.fraction }

// exact is a number other than zero: significand * 2^exponent. The highest bit
// of the significand is set. The last bit is set too if there is more to the
// number than its bits: no format is so long that it would matter what.
type exact struct {
	negative    bool
	significand uint64
	exponent    int
}

// exactOf is a float64 that is finite and not zero.
func exactOf(x float64) exact {
	b := math.Float64bits(x)
	e, m := int(b>>52&0x7ff), b&(1<<52-1)
	if e == 0 {
		e = 1
	} else {
		m |= 1 << 52
	}
	return normalised(b>>63 != 0, m, e-1075)
}

func finite(x float64) bool { return x-x == 0 }

func normalised(negative bool, significand uint64, exponent int) exact {
	n := bits.LeadingZeros64(significand)
	return exact{negative, significand << n, exponent - n}
}

// round makes bits of a format of a number.
func (f format) round(r rounding, x exact) uint64 {
	bias := 1<<(f.exponent-1) - 1
	e := x.exponent + 63 + bias // as the format has it, if it is not below 1
	lost := 63 - f.fraction     // bits that do not fit
	if e < 1 {
		lost += uint(min(1-e, 64))
		e = 1
	}
	// The leading bit of a normal number adds one to the exponent.
	kept := x.significand >> lost
	result := uint64(e-1)<<f.fraction + kept
	// The rest, against a half.
	var half, more bool
	if lost <= 64 {
		half = x.significand>>(lost-1)&1 != 0
		more = x.significand<<(65-lost) != 0
	} else {
		more = true
	}
	switch r {
	case nearest:
		if half && (more || kept&1 != 0) {
			result++
		}
	case away:
		if half {
			result++
		}
	case down:
		if x.negative && (half || more) {
			result++
		}
	case up:
		if !x.negative && (half || more) {
			result++
		}
	}
	if result >= f.infinity() {
		result = f.infinity()
		if r == toZero || r == down && !x.negative || r == up && x.negative {
			result-- // the greatest number
		}
	}
	return result | f.sign(x.negative)
}

// from rounds a float64.
func (f format) from(r rounding, x float64) uint64 {
	switch {
	case x != x:
		return f.nan
	case x == 0:
		return f.sign(math.Signbit(x))
	case math.IsInf(x, 0):
		return f.infinity() | f.sign(x < 0)
	}
	return f.round(r, exactOf(x))
}

// zero is the sum of two zeros, or of a number and its opposite.
func (f format) zero(r rounding, a, b bool) uint64 {
	return f.sign(a && b || r == down && (a || b))
}

// fma is a * b + c.
func (f format) fma(r rounding, a, b, c float64) uint64 {
	switch {
	case !finite(a) || !finite(b):
		return f.from(r, float64(a*b)+c)
	case !finite(c):
		return f.from(r, c)
	}
	negative := math.Signbit(a) != math.Signbit(b)
	if a == 0 || b == 0 {
		if c == 0 {
			return f.zero(r, negative, math.Signbit(c))
		}
		return f.from(r, c)
	}
	x, y := exactOf(a), exactOf(b)
	// The product in 128 bits, of which the highest stays free for a carry.
	hi, lo := bits.Mul64(x.significand>>1, y.significand)
	e := x.exponent + y.exponent + 1
	if c == 0 {
		return f.round(r, shortened(negative, hi, lo, e))
	}
	z := exactOf(c)
	zhi, zlo, ze := z.significand>>1, z.significand<<63, z.exponent-63
	znegative := z.negative
	if hi>>62 == 0 {
		hi, lo, e = hi<<1|lo>>63, lo<<1, e-1
	}
	if ze > e || ze == e && (zhi > hi || zhi == hi && zlo > lo) {
		hi, lo, e, negative, zhi, zlo, ze, znegative = zhi, zlo, ze, znegative, hi, lo, e, negative
	}
	zhi, zlo = shiftedRight(zhi, zlo, e-ze)
	if negative == znegative {
		var carry uint64
		lo, carry = bits.Add64(lo, zlo, 0)
		hi, _ = bits.Add64(hi, zhi, carry)
	} else {
		var borrow uint64
		lo, borrow = bits.Sub64(lo, zlo, 0)
		hi, _ = bits.Sub64(hi, zhi, borrow)
	}
	if hi|lo == 0 {
		return f.zero(r, negative, znegative)
	}
	return f.round(r, shortened(negative, hi, lo, e))
}

// shiftedRight shifts 128 bits; the last bit remembers what fell off.
func shiftedRight(hi, lo uint64, n int) (uint64, uint64) {
	switch {
	case n == 0:
		return hi, lo
	case n < 64:
		return hi >> n, hi<<(64-n) | lo>>n | sticky(lo<<(64-n))
	case n < 128:
		return 0, hi>>(n-64) | sticky(hi<<(128-n)|lo)
	}
	return 0, sticky(hi | lo)
}

func sticky(lost uint64) uint64 {
	if lost != 0 {
		return 1
	}
	return 0
}

// shortened is a number of 128 bits, not all zero.
func shortened(negative bool, hi, lo uint64, exponent int) exact {
	if hi == 0 {
		return normalised(negative, lo, exponent)
	}
	n := bits.LeadingZeros64(hi)
	hi = hi<<n | lo>>(64-n)
	return exact{negative, hi | sticky(lo<<n), exponent + 64 - n}
}

// div is a / b.
func (f format) div(r rounding, a, b float64) uint64 {
	if a == 0 || b == 0 || !finite(a) || !finite(b) {
		return f.from(r, a/b)
	}
	x, y := exactOf(a), exactOf(b)
	quotient, rest := bits.Div64(x.significand>>1, x.significand<<63, y.significand)
	z := normalised(x.negative != y.negative, quotient, x.exponent-y.exponent-63)
	z.significand |= sticky(rest)
	return f.round(r, z)
}

// sqrt is the square root of a.
func (f format) sqrt(r rounding, a float64) uint64 {
	if !(a > 0) || !finite(a) {
		return f.from(r, math.Sqrt(a))
	}
	x := exactOf(a)
	// The root of 128 bits has 64; the exponent is made even first.
	hi, lo, e := x.significand, uint64(0), x.exponent-64
	if e&1 != 0 {
		hi, lo, e = hi>>1, hi<<63, e+1
	}
	root := uint64(0)
	for bit := uint64(1) << 63; bit != 0; bit >>= 1 {
		try := root | bit
		if h, l := bits.Mul64(try, try); h < hi || h == hi && l <= lo {
			root = try
		}
	}
	h, l := bits.Mul64(root, root)
	z := normalised(false, root, e/2)
	z.significand |= sticky(h ^ hi | l ^ lo)
	return f.round(r, z)
}

// The other operations are fma with a part missing.

func (f format) add(r rounding, a, b float64) uint64 { return f.fma(r, a, 1, b) }
func (f format) sub(r rounding, a, b float64) uint64 { return f.fma(r, a, 1, -b) }

func (f format) mul(r rounding, a, b float64) uint64 {
	zero := math.Copysign(0, math.Copysign(1, a)*math.Copysign(1, b))
	return f.fma(r, a, b, zero)
}
