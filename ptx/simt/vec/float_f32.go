package vec

import "math"

// The common kernels of f32: rounding to nearest, with and without .ftz.
func init() {
	define(map[string]any{
		"add.rn.f32":     Binary32(addF32),
		"sub.rn.f32":     Binary32(subF32),
		"mul.rn.f32":     Binary32(mulF32),
		"div.rn.f32":     Binary32(divF32),
		"fma.rn.f32":     Ternary32(fmaF32),
		"add.rn.ftz.f32": Binary32(addFtzF32),
		"sub.rn.ftz.f32": Binary32(subFtzF32),
		"mul.rn.ftz.f32": Binary32(mulFtzF32),
		"div.rn.ftz.f32": Binary32(divFtzF32),
		"fma.rn.ftz.f32": Ternary32(fmaFtzF32),

		"min.f32":     Binary32(minF32),
		"max.f32":     Binary32(maxF32),
		"min.ftz.f32": Binary32(minFtzF32),
		"max.ftz.f32": Binary32(maxFtzF32),

		"neg.f32":      Unary32(negF32),
		"abs.f32":      Unary32(absF32),
		"neg.ftz.f32":  Unary32(negFtzF32),
		"abs.ftz.f32":  Unary32(absFtzF32),
		"copysign.f32": Binary32(copysignF32),

		"rcp.rn.f32":      Unary32(rcpF32),
		"sqrt.rn.f32":     Unary32(sqrtF32),
		"rcp.rn.ftz.f32":  Unary32(rcpFtzF32),
		"sqrt.rn.ftz.f32": Unary32(sqrtFtzF32),

		"slct.b32.f32":     Ternary32(slct[uint32]),
		"slct.ftz.b32.f32": Ternary32(slctFtz[uint32]),
		"slct.b64.f32":     Choose64(slct[uint64]),
		"slct.ftz.b64.f32": Choose64(slctFtz[uint64]),
	})
}

// addF32 and its like store the float and mend NaNs, which is quicker than
// moving every result through an integer register.
func addF32(d, a, b []uint32) {
	x, y, z := floats32(a)[:len(d)], floats32(b)[:len(d)], floats32(d)
	for i := range z {
		v := x[i] + y[i]
		z[i] = v
		if v != v {
			d[i] = nan32
		}
	}
}

func subF32(d, a, b []uint32) {
	x, y, z := floats32(a)[:len(d)], floats32(b)[:len(d)], floats32(d)
	for i := range z {
		v := x[i] - y[i]
		z[i] = v
		if v != v {
			d[i] = nan32
		}
	}
}

func mulF32(d, a, b []uint32) {
	x, y, z := floats32(a)[:len(d)], floats32(b)[:len(d)], floats32(d)
	for i := range z {
		v := x[i] * y[i]
		z[i] = v
		if v != v {
			d[i] = nan32
		}
	}
}

func divF32(d, a, b []uint32) {
	loop2(d, floats32(a), floats32(b), func(x, y float32) uint32 { return canon32(x / y) })
}

// The product of two float32 is exact in float64, and so the sum is the first
// rounding; where rounding it again could go wrong, the sum is rounded to odd.
func fmaF32(d, a, b, c []uint32) {
	loop3(d, floats32(a), floats32(b), floats32(c), func(x, y, z float32) uint32 {
		p := float64(x) * float64(y)
		s := p + float64(z)
		if doubtful32(s) {
			s = oddSum(p, float64(z))
		}
		return canon32(float32(s))
	})
}

func addFtzF32(d, a, b []uint32) {
	loop2(d, floats32(a), floats32(b), func(x, y float32) uint32 { return flush32(canon32(flushFloat(x) + flushFloat(y))) })
}

func subFtzF32(d, a, b []uint32) {
	loop2(d, floats32(a), floats32(b), func(x, y float32) uint32 { return flush32(canon32(flushFloat(x) - flushFloat(y))) })
}

func mulFtzF32(d, a, b []uint32) {
	loop2(d, floats32(a), floats32(b), func(x, y float32) uint32 { return flush32(canon32(flushFloat(x) * flushFloat(y))) })
}

func divFtzF32(d, a, b []uint32) {
	loop2(d, floats32(a), floats32(b), func(x, y float32) uint32 { return flush32(canon32(flushFloat(x) / flushFloat(y))) })
}

func fmaFtzF32(d, a, b, c []uint32) {
	a, b, c = a[:len(d)], b[:len(d)], c[:len(d)]
	x, y, z := floats32(a)[:len(d)], floats32(b)[:len(d)], floats32(c)[:len(d)]
	for i := range d {
		if a[i]&inf32 == 0 || b[i]&inf32 == 0 || c[i]&inf32 == 0 {
			d[i] = fmaFlushed(x[i], y[i], z[i])
			continue
		}
		p := float64(x[i]) * float64(y[i])
		s := p + float64(z[i])
		if doubtful32(s) {
			s = oddSum(p, float64(z[i]))
		}
		d[i] = flush32(canon32(float32(s)))
	}
}

// fmaFlushed is fma.rn.ftz where operands may have to be flushed.
func fmaFlushed(a, b, c float32) uint32 {
	p := float64(flushFloat(a)) * float64(flushFloat(b))
	return flush32(canon32(float32(oddSum(p, float64(flushFloat(c))))))
}

// A rounding of a float64 to f32 hits a tie if the bits that do not fit are a
// one and zeros.
const (
	lost32 = 1<<29 - 1
	tie32  = 1 << 28
)

// normal32 is the least normal float32, as the bits of a float64 less the sign.
const normal32 = (1023 - 126) << 53

// doubtful32 says whether rounding s to f32 may be wrong if s is itself the
// rounding of a sum to float64. It is only where the first rounding arrived at
// a tie of the second; results that are subnormal, whose ties have other bits,
// are all taken as doubtful.
func doubtful32(s float64) bool {
	bits := math.Float64bits(s)
	return bits&lost32 == tie32 || bits<<1-1 < normal32-1
}

// oddSum is p + c, of which the last bit is set if it is not exact. Rounding
// it to a format at least two bits shorter is the same as rounding the exact
// sum, in any mode.
func oddSum(p, c float64) float64 {
	s := p + c
	// What the rounding left out, by Knuth.
	v := s - p
	rest := (p - (s - v)) + (c - v)
	bits := math.Float64bits(s)
	if rest == 0 || rest != rest || bits&1 != 0 {
		return s
	}
	if (rest > 0) == (s > 0) {
		return math.Float64frombits(bits + 1)
	}
	return math.Float64frombits(bits - 1)
}

func minF32(d, a, b []uint32) { loop2(d, a, b, func(a, b uint32) uint32 { return min32(a, b) }) }

func maxF32(d, a, b []uint32) { loop2(d, a, b, func(a, b uint32) uint32 { return max32(a, b) }) }

func minFtzF32(d, a, b []uint32) {
	loop2(d, a, b, func(a, b uint32) uint32 { return min32(flush32(a), flush32(b)) })
}

func maxFtzF32(d, a, b []uint32) {
	loop2(d, a, b, func(a, b uint32) uint32 { return max32(flush32(a), flush32(b)) })
}

// min32 takes the operand that is a number, and -0 before +0.
func min32(a, b uint32) uint32 {
	x, y := math.Float32frombits(a), math.Float32frombits(b)
	switch {
	case x < y:
		return a
	case y < x:
		return b
	case x == y:
		return a | b
	}
	return number32(a, b)
}

func max32(a, b uint32) uint32 {
	x, y := math.Float32frombits(a), math.Float32frombits(b)
	switch {
	case x > y:
		return a
	case y > x:
		return b
	case x == y:
		return a & b
	}
	return number32(a, b)
}

// number32 is the one of two operands that is not a NaN, where at least one is.
func number32(a, b uint32) uint32 {
	switch {
	case !isNaN32(a):
		return a
	case !isNaN32(b):
		return b
	}
	return nan32
}

func negF32(d, a []uint32) { loop1(d, a, func(a uint32) uint32 { return a ^ sign32 }) }

func absF32(d, a []uint32) { loop1(d, a, func(a uint32) uint32 { return a &^ sign32 }) }

func negFtzF32(d, a []uint32) { loop1(d, a, func(a uint32) uint32 { return flush32(a) ^ sign32 }) }

func absFtzF32(d, a []uint32) { loop1(d, a, func(a uint32) uint32 { return flush32(a) &^ sign32 }) }

// copysignF32 gives b the sign of a, which is the order PTX has them in.
func copysignF32(d, a, b []uint32) {
	loop2(d, a, b, func(a, b uint32) uint32 { return b&^sign32 | a&sign32 })
}

func rcpF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return canon32(1 / math.Float32frombits(a)) })
}

func rcpFtzF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return flush32(canon32(1 / math.Float32frombits(flush32(a)))) })
}

// A float32 square root by way of float64 is rounded rightly, as float64 has
// more than twice the bits; the compiler makes one instruction of it.
func sqrtF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return canon32(float32(math.Sqrt(float64(math.Float32frombits(a))))) })
}

func sqrtFtzF32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return canon32(float32(math.Sqrt(float64(math.Float32frombits(flush32(a)))))) })
}

// slct takes a where c is not negative; -0 is not, a NaN counts as negative.
func slct[L lane](d, a, b []L, c []uint32) {
	loop3(d, a, b, c, func(a, b L, c uint32) L {
		x := b
		if math.Float32frombits(c) >= 0 {
			x = a
		}
		return x
	})
}

func slctFtz[L lane](d, a, b []L, c []uint32) {
	loop3(d, a, b, c, func(a, b L, c uint32) L {
		x := b
		if math.Float32frombits(flush32(c)) >= 0 {
			x = a
		}
		return x
	})
}
