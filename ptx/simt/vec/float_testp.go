package vec

import "math"

// testp asks what a float is, by its bits: the exponent is all ones for what
// is not finite, and zero for zero and subnormals. PTX counts zero as normal.
func init() {
	define(map[string]any{
		"testp.finite.f32":     test32(func(x uint32) bool { return x < inf32 }),
		"testp.infinite.f32":   test32(func(x uint32) bool { return x == inf32 }),
		"testp.number.f32":     test32(func(x uint32) bool { return x <= inf32 }),
		"testp.notanumber.f32": test32(func(x uint32) bool { return x > inf32 }),
		"testp.normal.f32":     test32(func(x uint32) bool { return x < inf32 && x >= 1<<23 || x == 0 }),
		"testp.subnormal.f32":  test32(func(x uint32) bool { return x != 0 && x < 1<<23 }),

		"testp.finite.f64":     test64(func(x uint64) bool { return x < inf64 }),
		"testp.infinite.f64":   test64(func(x uint64) bool { return x == inf64 }),
		"testp.number.f64":     test64(func(x uint64) bool { return x <= inf64 }),
		"testp.notanumber.f64": test64(func(x uint64) bool { return x > inf64 }),
		"testp.normal.f64":     test64(func(x uint64) bool { return x < inf64 && x >= 1<<52 || x == 0 }),
		"testp.subnormal.f64":  test64(func(x uint64) bool { return x != 0 && x < 1<<52 }),
	})
}

// test32 asks of the bits less the sign.
func test32(f func(x uint32) bool) Test32 {
	return func(d []uint64, a []uint32) {
		clear(d[:(len(a)+63)/64])
		for i, x := range a {
			if f(x & math.MaxInt32) {
				d[i/64] |= 1 << (i % 64)
			}
		}
	}
}

func test64(f func(x uint64) bool) Test64 {
	return func(d []uint64, a []uint64) {
		clear(d[:(len(a)+63)/64])
		for i, x := range a {
			if f(x & math.MaxInt64) {
				d[i/64] |= 1 << (i % 64)
			}
		}
	}
}
