package vec

import "math/bits"

// The carry flag is the one of NVIDIA's GPUs, which subtract by adding the
// complement: a - b is a + ^b + 1. So the flag after sub.cc and subc.cc is set
// where nothing was borrowed, and subc takes off 1 less the flag. PTX speaks of
// a borrow and does not say how it is kept; the difference shows only where
// additions and subtractions are mixed in one chain.
func init() {
	defineCarry("b32", "s32", "u32",
		func(k kernelWithCarry[uint32]) any { return Carry32(k) },
		func(a, b, in uint32) (uint32, uint32) { return bits.Add32(a, b, in) },
		func(a, b, in uint32) (uint32, uint32) { return bits.Add32(a, ^b, in) },
		func(a, b uint32) uint32 { return a * b },
		func(a, b uint32) uint32 { return uint32(int64(int32(a)) * int64(int32(b)) >> 32) },
		func(a, b uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) })
	defineCarry("b64", "s64", "u64",
		func(k kernelWithCarry[uint64]) any { return Carry64(k) },
		func(a, b, in uint64) (uint64, uint64) { return bits.Add64(a, b, in) },
		func(a, b, in uint64) (uint64, uint64) { return bits.Add64(a, ^b, in) },
		func(a, b uint64) uint64 { return a * b },
		highS64, highU64)
}

// kernelWithCarry is Carry32 or Carry64.
type kernelWithCarry[L lane] func(d, a, b, c []L, in, out []uint64)

// addStep is an addition or a subtraction of one lane with the carry flag.
type addStep[L lane] func(a, b, in L) (sum, out L)

func defineCarry[L lane](b, s, u string, shape func(kernelWithCarry[L]) any, plus, minus addStep[L], lo, hiS, hiU func(a, b L) L) {
	minusAlone := func(a, b, _ L) (L, L) { return minus(a, b, 1) } // nothing is borrowed yet
	define(map[string]any{
		"add.cc." + b:     shape(sumWithCarry(plus, false, true)),
		"addc." + b:       shape(sumWithCarry(plus, true, false)),
		"addc.cc." + b:    shape(sumWithCarry(plus, true, true)),
		"sub.cc." + b:     shape(sumWithCarry(minusAlone, false, true)),
		"subc." + b:       shape(sumWithCarry(minus, true, false)),
		"subc.cc." + b:    shape(sumWithCarry(minus, true, true)),
		"mad.lo.cc." + b:  shape(productWithCarry(lo, plus, false, true)),
		"madc.lo." + b:    shape(productWithCarry(lo, plus, true, false)),
		"madc.lo.cc." + b: shape(productWithCarry(lo, plus, true, true)),
		"mad.hi.cc." + s:  shape(productWithCarry(hiS, plus, false, true)),
		"madc.hi." + s:    shape(productWithCarry(hiS, plus, true, false)),
		"madc.hi.cc." + s: shape(productWithCarry(hiS, plus, true, true)),
		"mad.hi.cc." + u:  shape(productWithCarry(hiU, plus, false, true)),
		"madc.hi." + u:    shape(productWithCarry(hiU, plus, true, false)),
		"madc.hi.cc." + u: shape(productWithCarry(hiU, plus, true, true)),
	})
}

func sumWithCarry[L lane](step addStep[L], takes, gives bool) kernelWithCarry[L] {
	return func(d, a, b, _ []L, in, out []uint64) {
		a, b = a[:len(d)], b[:len(d)]
		throughCarries(len(d), takes, gives, in, out, func(i int, carry uint64) uint64 {
			sum, c := step(a[i], b[i], L(carry))
			d[i] = sum
			return uint64(c)
		})
	}
}

func productWithCarry[L lane](mul func(a, b L) L, step addStep[L], takes, gives bool) kernelWithCarry[L] {
	return func(d, a, b, c []L, in, out []uint64) {
		a, b, c = a[:len(d)], b[:len(d)], c[:len(d)]
		throughCarries(len(d), takes, gives, in, out, func(i int, carry uint64) uint64 {
			sum, next := step(mul(a[i], b[i]), c[i], L(carry))
			d[i] = sum
			return uint64(next)
		})
	}
}

// throughCarries does a step for each of n lanes with the lane's bit of in,
// and puts the carries into out. A word of in is read before that of out is
// written, since they may be the same. Unless carries are taken, in may be
// nil; unless they are given, out may be.
func throughCarries(n int, takes, gives bool, in, out []uint64, step func(i int, carry uint64) uint64) {
	for first := 0; first < n; first += 64 {
		var before, after uint64
		if takes {
			before = in[first/64]
		}
		for i := first; i < min(first+64, n); i++ {
			after |= step(i, before&1) << (i - first)
			before >>= 1
		}
		if gives {
			out[first/64] = after
		}
	}
}
