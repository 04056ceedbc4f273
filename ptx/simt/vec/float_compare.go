package vec

// The comparisons of floats. Five have loops of their own: eq, ne, lt and le,
// which are false for a NaN, and num, that neither operand is one. The others
// are these with the operands exchanged, or their opposites, as "not less" is
// the same as "greater or equal or unordered".
func init() {
	define(comparisons(".f32",
		Compare32(func(d []uint64, a, b []uint32) { equalFloats(d, floats32(a), floats32(b)) }),
		func(d []uint64, a, b []uint32) { unequalFloats(d, floats32(a), floats32(b)) },
		func(d []uint64, a, b []uint32) { lessFloats(d, floats32(a), floats32(b)) },
		func(d []uint64, a, b []uint32) { lessOrEqualFloats(d, floats32(a), floats32(b)) },
		numF32))
	define(comparisons(".ftz.f32", Compare32(eqFtzF32), neFtzF32, ltFtzF32, leFtzF32, numF32))
	define(comparisons(".f64",
		Compare64(func(d []uint64, a, b []uint64) { equalFloats(d, floats64(a), floats64(b)) }),
		func(d []uint64, a, b []uint64) { unequalFloats(d, floats64(a), floats64(b)) },
		func(d []uint64, a, b []uint64) { lessFloats(d, floats64(a), floats64(b)) },
		func(d []uint64, a, b []uint64) { lessOrEqualFloats(d, floats64(a), floats64(b)) },
		func(d []uint64, a, b []uint64) { numbers(d, floats64(a), floats64(b)) }))
}

func comparisons[L lane, K ~func(d []uint64, a, b []L)](suffix string, eq, ne, lt, le, num K) map[string]any {
	gt := func(d []uint64, a, b []L) { lt(d, b, a) }
	ge := func(d []uint64, a, b []L) { le(d, b, a) }
	not := func(k K) K {
		return func(d []uint64, a, b []L) {
			k(d, a, b)
			complement(d, len(a))
		}
	}
	return map[string]any{
		"setp.eq" + suffix:  eq,
		"setp.ne" + suffix:  ne,
		"setp.lt" + suffix:  lt,
		"setp.le" + suffix:  le,
		"setp.gt" + suffix:  K(gt),
		"setp.ge" + suffix:  K(ge),
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

// complement inverts the bits of lanes; those past the last lane become zero.
func complement(d []uint64, lanes int) {
	for i := range d {
		d[i] = ^d[i]
	}
	if rest := lanes % 64; rest != 0 {
		d[lanes/64] &= 1<<rest - 1
	}
}

func equalFloats[F float32 | float64](d []uint64, a, b []F) {
	compare(d, a, b, func(a, b []F) uint64 {
		return which(a, b, func(x, y F) bool { return x == y })
	})
}

func unequalFloats[F float32 | float64](d []uint64, a, b []F) {
	compare(d, a, b, func(a, b []F) uint64 {
		return which(a, b, func(x, y F) bool { return x < y || x > y })
	})
}

func lessFloats[F float32 | float64](d []uint64, a, b []F) {
	compare(d, a, b, func(a, b []F) uint64 {
		return which(a, b, func(x, y F) bool { return x < y })
	})
}

func lessOrEqualFloats[F float32 | float64](d []uint64, a, b []F) {
	compare(d, a, b, func(a, b []F) uint64 {
		return which(a, b, func(x, y F) bool { return x <= y })
	})
}

func numbers[F float32 | float64](d []uint64, a, b []F) {
	compare(d, a, b, func(a, b []F) uint64 {
		return which(a, b, func(x, y F) bool { return x == x && y == y })
	})
}

func numF32(d []uint64, a, b []uint32) { numbers(d, floats32(a), floats32(b)) }

func eqFtzF32(d []uint64, a, b []uint32) {
	compare(d, floats32(a), floats32(b), func(a, b []float32) uint64 {
		return which(a, b, func(x, y float32) bool { return flushFloat(x) == flushFloat(y) })
	})
}

func neFtzF32(d []uint64, a, b []uint32) {
	compare(d, floats32(a), floats32(b), func(a, b []float32) uint64 {
		return which(a, b, func(x, y float32) bool { return flushFloat(x) < flushFloat(y) || flushFloat(x) > flushFloat(y) })
	})
}

func ltFtzF32(d []uint64, a, b []uint32) {
	compare(d, floats32(a), floats32(b), func(a, b []float32) uint64 {
		return which(a, b, func(x, y float32) bool { return flushFloat(x) < flushFloat(y) })
	})
}

func leFtzF32(d []uint64, a, b []uint32) {
	compare(d, floats32(a), floats32(b), func(a, b []float32) uint64 {
		return which(a, b, func(x, y float32) bool { return flushFloat(x) <= flushFloat(y) })
	})
}
