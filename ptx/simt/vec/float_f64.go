package vec

import "math"

// The common kernels of f64: rounding to nearest.
func init() {
	define(map[string]any{
		"add.rn.f64": Binary64(addF64),
		"sub.rn.f64": Binary64(subF64),
		"mul.rn.f64": Binary64(mulF64),
		"div.rn.f64": Binary64(divF64),
		"fma.rn.f64": Ternary64(fmaF64),

		"min.f64": Binary64(minF64),
		"max.f64": Binary64(maxF64),

		"neg.f64":      Unary64(negF64),
		"abs.f64":      Unary64(absF64),
		"copysign.f64": Binary64(copysignF64),

		"rcp.rn.f64":  Unary64(rcpF64),
		"sqrt.rn.f64": Unary64(sqrtF64),
	})
}

func addF64(d, a, b []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		x := math.Float64frombits(a[i]) + math.Float64frombits(b[i])
		if x != x {
			d[i] = nanOf64(a[i], b[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}

func subF64(d, a, b []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		x := math.Float64frombits(a[i]) - math.Float64frombits(b[i])
		if x != x {
			d[i] = nanOf64(a[i], b[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}

func mulF64(d, a, b []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		x := math.Float64frombits(a[i]) * math.Float64frombits(b[i])
		if x != x {
			d[i] = nanOf64(a[i], b[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}

func divF64(d, a, b []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		x := math.Float64frombits(a[i]) / math.Float64frombits(b[i])
		if x != x {
			d[i] = nanOf64(a[i], b[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}

func fmaF64(d, a, b, c []uint64) {
	a, b, c = a[:len(d)], b[:len(d)], c[:len(d)]
	for i := range d {
		x := math.FMA(math.Float64frombits(a[i]), math.Float64frombits(b[i]), math.Float64frombits(c[i]))
		if x != x {
			d[i] = nanOf64(a[i], b[i], c[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}

// min takes the operand that is a number, and -0 before +0.
func minF64(d, a, b []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		x, y := math.Float64frombits(a[i]), math.Float64frombits(b[i])
		switch {
		case x < y:
			d[i] = a[i]
		case y < x:
			d[i] = b[i]
		case x == y:
			d[i] = a[i] | b[i]
		default:
			d[i] = number64(a[i], b[i])
		}
	}
}

func maxF64(d, a, b []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		x, y := math.Float64frombits(a[i]), math.Float64frombits(b[i])
		switch {
		case x > y:
			d[i] = a[i]
		case y > x:
			d[i] = b[i]
		case x == y:
			d[i] = a[i] & b[i]
		default:
			d[i] = number64(a[i], b[i])
		}
	}
}

// number64 is the one of two operands that is not a NaN, where at least one is.
func number64(a, b uint64) uint64 {
	switch {
	case !isNaN64(a):
		return a
	case !isNaN64(b):
		return b
	}
	return a | quiet64
}

func negF64(d, a []uint64) { loop1(d, a, func(a uint64) uint64 { return a ^ sign64 }) }

func absF64(d, a []uint64) { loop1(d, a, func(a uint64) uint64 { return a &^ sign64 }) }

// copysignF64 gives b the sign of a, which is the order PTX has them in.
func copysignF64(d, a, b []uint64) {
	loop2(d, a, b, func(a, b uint64) uint64 { return b&^sign64 | a&sign64 })
}

func rcpF64(d, a []uint64) {
	a = a[:len(d)]
	for i := range d {
		x := 1 / math.Float64frombits(a[i])
		if x != x {
			d[i] = nanOf64(a[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}

func sqrtF64(d, a []uint64) {
	a = a[:len(d)]
	for i := range d {
		x := math.Sqrt(math.Float64frombits(a[i]))
		if x != x {
			d[i] = nanOf64(a[i])
			continue
		}
		d[i] = math.Float64bits(x)
	}
}
