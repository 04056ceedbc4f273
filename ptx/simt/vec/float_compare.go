package vec

import "math"

// The comparisons of floats. Five have loops of their own: eq, ne, lt and le,
// which are false for a NaN, and num, that neither operand is one. The others
// are these with the operands exchanged, or their opposites, as "not less" is
// the same as "greater or equal or unordered".
func init() {
	define(comparisons32(".f32", eqF32, neF32, ltF32, leF32, numF32))
	define(comparisons32(".ftz.f32", eqFtzF32, neFtzF32, ltFtzF32, leFtzF32, numF32))
	define(comparisons64(eqF64, neF64, ltF64, leF64, numF64))
}

func comparisons32(suffix string, eq, ne, lt, le, num Compare32) map[string]any {
	gt := func(d []uint64, a, b []uint32) { lt(d, b, a) }
	ge := func(d []uint64, a, b []uint32) { le(d, b, a) }
	not := func(k Compare32) Compare32 {
		return func(d []uint64, a, b []uint32) {
			k(d, a, b)
			complement(d, len(a))
		}
	}
	return map[string]any{
		"setp.eq" + suffix:  eq,
		"setp.ne" + suffix:  ne,
		"setp.lt" + suffix:  lt,
		"setp.le" + suffix:  le,
		"setp.gt" + suffix:  Compare32(gt),
		"setp.ge" + suffix:  Compare32(ge),
		"setp.equ" + suffix: not(ne),
		"setp.neu" + suffix: not(eq),
		"setp.ltu" + suffix: not(ge),
		"setp.leu" + suffix: not(gt),
		"setp.gtu" + suffix: not(le),
		"setp.geu" + suffix: not(lt),
		"setp.num" + suffix: num,
		"setp.nan" + suffix: not(num),
	}
}

func comparisons64(eq, ne, lt, le, num Compare64) map[string]any {
	gt := func(d []uint64, a, b []uint64) { lt(d, b, a) }
	ge := func(d []uint64, a, b []uint64) { le(d, b, a) }
	not := func(k Compare64) Compare64 {
		return func(d []uint64, a, b []uint64) {
			k(d, a, b)
			complement(d, len(a))
		}
	}
	return map[string]any{
		"setp.eq.f64":  eq,
		"setp.ne.f64":  ne,
		"setp.lt.f64":  lt,
		"setp.le.f64":  le,
		"setp.gt.f64":  Compare64(gt),
		"setp.ge.f64":  Compare64(ge),
		"setp.equ.f64": not(ne),
		"setp.neu.f64": not(eq),
		"setp.ltu.f64": not(ge),
		"setp.leu.f64": not(gt),
		"setp.gtu.f64": not(le),
		"setp.geu.f64": not(lt),
		"setp.num.f64": num,
		"setp.nan.f64": not(num),
	}
}

// complement inverts the bits of lanes; those past the last lane become zero.
func complement(d []uint64, lanes int) {
	for i := range d {
		d[i] = ^d[i]
	}
	if rest := lanes % 64; rest != 0 {
		d[lanes/64] &= 1<<rest - 1
	}
}

func eqF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats32(a)[:n], floats32(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] == y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func neF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats32(a)[:n], floats32(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] < y[i] || x[i] > y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func ltF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats32(a)[:n], floats32(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] < y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func leF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats32(a)[:n], floats32(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] <= y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func numF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats32(a)[:n], floats32(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] == x[i] && y[i] == y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func eqFtzF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := a[:n], b[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if math.Float32frombits(flush32(x[i])) == math.Float32frombits(flush32(y[i])) {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func neFtzF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := a[:n], b[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if f, g := math.Float32frombits(flush32(x[i])), math.Float32frombits(flush32(y[i])); f < g || f > g {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func ltFtzF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := a[:n], b[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if math.Float32frombits(flush32(x[i])) < math.Float32frombits(flush32(y[i])) {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func leFtzF32(d []uint64, a, b []uint32) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := a[:n], b[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if math.Float32frombits(flush32(x[i])) <= math.Float32frombits(flush32(y[i])) {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func eqF64(d []uint64, a, b []uint64) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats64(a)[:n], floats64(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] == y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func neF64(d []uint64, a, b []uint64) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats64(a)[:n], floats64(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] < y[i] || x[i] > y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func ltF64(d []uint64, a, b []uint64) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats64(a)[:n], floats64(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] < y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func leF64(d []uint64, a, b []uint64) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats64(a)[:n], floats64(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] <= y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}

func numF64(d []uint64, a, b []uint64) {
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		x, y := floats64(a)[:n], floats64(b)[:n]
		var bits uint64
		for i := range x {
			var bit uint64
			if x[i] == x[i] && y[i] == y[i] {
				bit = 1
			}
			bits |= bit << (i & 63)
		}
		d[w] = bits
		a, b = a[n:], b[n:]
	}
}
