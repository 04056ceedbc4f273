package vec

import "math"

// The operations that PTX calls approximate. It bounds their errors and fixes
// their special values; the bits are not those of any GPU. Most are rounded
// rightly or nearly so, which is well within the bounds.
func init() {
	define(map[string]any{
		"div.approx.f32":     Binary32(divApproxF32),
		"div.approx.ftz.f32": Binary32(divApproxFtzF32),
		"div.full.f32":       Binary32(divF32),
		"div.full.ftz.f32":   Binary32(divFtzF32),

		"rcp.approx.f32":       Unary32(rcpF32),
		"rcp.approx.ftz.f32":   Unary32(rcpFtzF32),
		"sqrt.approx.f32":      Unary32(sqrtF32),
		"sqrt.approx.ftz.f32":  Unary32(sqrtFtzF32),
		"rsqrt.approx.f32":     Unary32(rsqrtF32),
		"rsqrt.approx.ftz.f32": Unary32(rsqrtFtzF32),
		"ex2.approx.f32":       Unary32(ex2F32),
		"ex2.approx.ftz.f32":   Unary32(ex2FtzF32),

		"sin.approx.f32":     sinF32,
		"sin.approx.ftz.f32": sinFtzF32,
		"cos.approx.f32":     cosF32,
		"cos.approx.ftz.f32": cosFtzF32,
		"lg2.approx.f32":     lg2F32,
		"lg2.approx.ftz.f32": lg2FtzF32,
		"tanh.approx.f32":    eachUnary32(tanh32),

		"rcp.approx.ftz.f64":   eachUnary64(upper64(func(x float64) float64 { return 1 / x })),
		"rsqrt.approx.ftz.f64": eachUnary64(upper64(func(x float64) float64 { return 1 / math.Sqrt(x) })),
		"rsqrt.approx.f64":     Unary64(rsqrtF64),
	})
}

var (
	sinF32    = eachUnary32(sin32)
	cosF32    = eachUnary32(cos32)
	lg2F32    = eachUnary32(lg2of32)
	sinFtzF32 = eachUnary32(flushed(sin32))
	cosFtzF32 = eachUnary32(flushed(cos32))
	lg2FtzF32 = eachUnary32(flushed(lg2of32))
)

func flushed(f func(uint32) uint32) func(uint32) uint32 {
	return func(a uint32) uint32 { return flush32(f(flush32(a))) }
}

func tanh32(a uint32) uint32 { return canon32(float32(math.Tanh(value32(a)))) }

// divApprox32 is a times the reciprocal of b. For b past 2^126 that is zero,
// as PTX says, since the reciprocal is subnormal there.
func divApprox32(a, b uint32) uint32 {
	x, y := math.Float32frombits(a), math.Float32frombits(b)
	if size := b &^ sign32; size > 0x7e800000 && size < inf32 {
		return canon32(x * math.Float32frombits(b&sign32))
	}
	return canon32(x / y)
}

func divApproxF32(d, a, b []uint32) {
	loop2(d, a, b, func(a, b uint32) uint32 { return divApprox32(a, b) })
}

func divApproxFtzF32(d, a, b []uint32) {
	loop2(d, a, b, func(a, b uint32) uint32 { return flush32(divApprox32(flush32(a), flush32(b))) })
}

// The root and the quotient are each rounded to f32.
func rsqrtF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return canon32(1 / float32(math.Sqrt(float64(math.Float32frombits(a))))) })
}

func rsqrtFtzF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 {
		return canon32(1 / float32(math.Sqrt(float64(math.Float32frombits(flush32(a))))))
	})
}

func rsqrtF64(d, a []uint64) {
	a = a[:len(d)]
	for i := range d {
		x := 1 / math.Sqrt(math.Float64frombits(a[i]))
		if x != x {
			d[i] = nanOf64(a[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}

// upper64 is the gross approximations of f64: only the upper 32 bits of the
// operand count, and only those of the result are not zero. Subnormals are
// flushed.
func upper64(f func(float64) float64) func(uint64) uint64 {
	const upper = 0xffffffff00000000
	flush := func(x uint64) uint64 {
		if x&inf64 == 0 {
			return x & sign64
		}
		return x
	}
	return func(a uint64) uint64 {
		if isNaN64(a) {
			return nanOf64(a) & upper
		}
		x := f(math.Float64frombits(flush(a & upper)))
		if x != x {
			return nan64
		}
		d := math.Float64bits(x)
		if finite(x) {
			d += 1 << 31 // to nearest
		}
		return flush(d & upper)
	}
}

// 2^x is 2^n * 2^f, with n the nearest integer, and 2^f is 1 + f*p(f). The
// coefficients interpolate at the Chebyshev points; the error of the whole is
// below one unit of the last place. Rounding to an integer is done by adding a
// number so large that no bits of a fraction remain.
const (
	ex2Round = 0x1.8p23
	ex2Least = -160 // below, the result is zero
	ex2Most  = 130  // above, it is infinite

	ex2P0 = 0x1.62e43p-1
	ex2P1 = 0x1.ebfbep-3
	ex2P2 = 0x1.c6af6cp-5
	ex2P3 = 0x1.3b2a54p-7
	ex2P4 = 0x1.5f089p-10
	ex2P5 = 0x1.44138ap-13
)

// exp2 is the bits of 2^x.
func exp2(x float32) uint32 {
	if x != x {
		return nan32
	}
	x = min(max(x, ex2Least), ex2Most)
	shifted := x + ex2Round
	f := x - (shifted - ex2Round)
	p := float32(ex2P5)
	p = float32(p*f) + ex2P4
	p = float32(p*f) + ex2P3
	p = float32(p*f) + ex2P2
	p = float32(p*f) + ex2P1
	p = float32(p*f) + ex2P0
	p = float32(p*f) + 1
	// The scale may be too large or too small for one float32, so there are
	// two; only the second multiplication rounds.
	n := int32(math.Float32bits(shifted)) - int32(math.Float32bits(ex2Round))
	half := n >> 1
	scale := math.Float32frombits(uint32(half+127) << 23)
	rest := math.Float32frombits(uint32(n-half+127) << 23)
	return math.Float32bits(p * scale * rest)
}

func ex2F32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return exp2(math.Float32frombits(a)) })
}

func ex2FtzF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return flush32(exp2(math.Float32frombits(flush32(a)))) })
}

// The logarithm of m * 2^e is e plus that of m, with m from the root of a half
// to twice that, and log2(1+f) is f*p(f). The error is below 2^-23.
const (
	lg2Half = 0x3f3504f3 // the root of a half, as bits

	lg2P0 = 0x1.715476p+0
	lg2P1 = -0x1.715474p-1
	lg2P2 = 0x1.ec73dep-2
	lg2P3 = -0x1.715994p-2
	lg2P4 = 0x1.26d01cp-2
	lg2P5 = -0x1.e9d1e6p-3
	lg2P6 = 0x1.ba8738p-3
	lg2P7 = -0x1.a59aeap-3
	lg2P8 = 0x1.f841dcp-4
)

// lg2of32 is the logarithm of a value by its bits.
func lg2of32(x uint32) uint32 {
	var e int32
	switch {
	case x&^sign32 == 0:
		return sign32 | inf32
	case x > inf32: // a NaN, or negative
		return nan32
	case x == inf32:
		return x
	case x&inf32 == 0:
		x, e = math.Float32bits(math.Float32frombits(x)*0x1p24), -24
	}
	x -= lg2Half
	e += int32(x) >> 23
	f := math.Float32frombits(x&(1<<23-1)+lg2Half) - 1
	p := float32(lg2P8)
	p = float32(p*f) + lg2P7
	p = float32(p*f) + lg2P6
	p = float32(p*f) + lg2P5
	p = float32(p*f) + lg2P4
	p = float32(p*f) + lg2P3
	p = float32(p*f) + lg2P2
	p = float32(p*f) + lg2P1
	p = float32(p*f) + lg2P0
	return math.Float32bits(float32(p*f) + float32(e))
}

// The sine is computed in float64, of what is left of x after whole multiples
// of pi, as r*(1+u*p(u)) with u the square of r. Pi is taken in two parts, so
// that multiples of the first are exact up to the limit; larger angles are
// left to package math.
const (
	sineLimit = 1 << 20
	sineRound = 0x1.8p52
	sineTurns = 0x1.45f306dc9c883p-2 // 1/pi
	sinePi    = 0x1.921fb544p+1
	sinePiLow = 0x1.0b4611a626331p-33

	sineP0 = -0x1.555555545f1aap-3
	sineP1 = 0x1.11110fd9738cp-7
	sineP2 = -0x1.a01904fa690dap-13
	sineP3 = 0x1.71966d40f5096p-19
	sineP4 = -0x1.9dad9aaf55915p-26
)

// sine is the sine of x, which is within the limit.
func sine(x float64) float64 {
	shifted := float64(x*sineTurns) + sineRound
	n := shifted - sineRound
	r := x - float64(n*sinePi)
	r -= float64(n * sinePiLow)
	u := float64(r * r)
	p := float64(sineP4)
	p = float64(p*u) + sineP3
	p = float64(p*u) + sineP2
	p = float64(p*u) + sineP1
	p = float64(p*u) + sineP0
	p = float64(p*u) + 1
	odd := math.Float64bits(shifted) << 63
	return math.Float64frombits(math.Float64bits(r*p) ^ odd)
}

func sin32(a uint32) uint32 {
	x := value32(a)
	if math.Abs(x) < sineLimit {
		return math.Float32bits(float32(sine(x)))
	}
	return canon32(float32(math.Sin(x)))
}

// cos32 is the sine of an angle a quarter of a turn away.
func cos32(a uint32) uint32 {
	x := value32(a)
	if math.Abs(x) < sineLimit {
		return math.Float32bits(float32(-sine(x - math.Pi/2)))
	}
	return canon32(float32(math.Cos(x)))
}
