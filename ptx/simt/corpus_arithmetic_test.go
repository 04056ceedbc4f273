package simt_test

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// b2u is 1 for true.
func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// awkward returns random words with few or many bits set, and small ones.
func (g *gpu) awkward(n int) []uint32 {
	return random(n, func() uint32 {
		switch g.rng.IntN(5) {
		case 0:
			return g.rng.Uint32N(65)
		case 1:
			return -g.rng.Uint32N(65)
		case 2:
			return 1 << g.rng.IntN(32)
		}
		return g.rng.Uint32()
	})
}

// longs returns random 64-bit words, small ones among them.
func (g *gpu) longs(n int) []uint64 {
	return random(n, func() uint64 { return g.rng.Uint64() >> g.rng.IntN(64) })
}

// singles returns random floats, special values among them.
func (g *gpu) singles(n int) []float32 {
	return random(n, func() float32 { return math.Float32frombits(uint32(single.interesting(g.rng))) })
}

// doubles returns random doubles, special values among them.
func (g *gpu) doubles(n int) []float64 {
	return random(n, func() float64 { return math.Float64frombits(double.interesting(g.rng)) })
}

// narrow returns random bits of a 16-bit format, special values among them.
func (g *gpu) narrow(n int, f format) []uint16 {
	return random(n, func() uint16 { return uint16(f.interesting(g.rng)) })
}

// pairs puts two 16-bit values into each word, low half first.
func pairs(halves []uint16) []uint32 {
	words := make([]uint32, len(halves)/2)
	for i := range words {
		words[i] = uint32(halves[2*i]) | uint32(halves[2*i+1])<<16
	}
	return words
}

// halves looks at an array of words as 16-bit values.
func halves(a array[uint32]) array[uint16] { return array[uint16]{a.addr, 2 * a.n} }

func bits32(x float32) uint64 { return uint64(math.Float32bits(x)) }

func float(bits uint64) float32 { return math.Float32frombits(uint32(bits)) }

// modes are PTX's rn, rz, rm and rp.
var modes = []big.RoundingMode{nearest, toZero, down, up}

// Arithmetic: one row of results an element.
var arithmetic = []entry{
	{"integers", "integer_bits", func(g *gpu) {
		n := g.size(2000)
		a, w := g.awkward(n), g.longs(n)
		var want []uint32
		for i, x := range a {
			lowest := func(zeros, width int) uint32 { return uint32((zeros + 1) % (width + 1)) }
			highest, shift, folded := ^uint32(0), ^uint32(0), x^uint32(int32(x)>>31)
			if x != 0 {
				highest = uint32(bits.Len32(x) - 1)
			}
			if folded != 0 {
				shift = uint32(32 - bits.Len32(folded))
			}
			reversed := bits.Reverse64(w[i])
			want = append(want,
				uint32(bits.OnesCount32(x)), uint32(bits.LeadingZeros32(x)), bits.Reverse32(x), lowest(bits.TrailingZeros32(x), 32),
				uint32(bits.OnesCount64(w[i])), uint32(bits.LeadingZeros64(w[i])), uint32(reversed), lowest(bits.TrailingZeros64(w[i]), 64),
				highest, shift, uint32(reversed>>32), b2u(x == 0))
		}
		out := alloc[uint32](g, 12*n)
		g.launch(g.cover(n), "integer_bits", put(g, a), put(g, w), out, n)
		same(g, "out", out, want)
	}},
	{"integers", "integer_ops", func(g *gpu) {
		n := g.size(2000)
		a, b, c := g.awkward(n), g.awkward(n), g.awkward(n)
		var want []uint32
		for i := range n {
			row := integerOps(a[i], b[i], c[i])
			if strings.HasPrefix(g.variant, "nvcc") { // its __byte_perm drops the sign bits of the selector
				row[0] = integerOps(a[i], b[i], c[i]&0x7777)[0]
			}
			want = append(want, row...)
		}
		out := alloc[uint32](g, 16*n)
		g.launch(g.cover(n), "integer_ops", put(g, a), put(g, b), put(g, c), out, n)
		same(g, "out", out, want)
	}},
	{"integers", "integer_ptx", func(g *gpu) {
		n := g.size(2000)
		a, b, c := g.awkward(n), g.awkward(n), g.awkward(n)
		var want []uint32
		for i := range n {
			x, y, z := a[i], b[i], c[i]
			chosen := y
			if int32(z) >= 0 {
				chosen = x
			}
			_, carry := bits.Add32(y, x, 0)
			high, _ := bits.Add32(x, z, carry)
			want = append(want, x&y|y&z|z&x, x^y^z, x&y|^x&z, chosen,
				x<<y, x>>y, uint32(int32(x)>>y),
				uint32(int64(int32(x))*int64(int32(y))>>32)+z,
				(x&0xffffff)*(y&0xffffff)+z,
				uint32(min(int32(x), int32(y))), uint32(max(int32(x), int32(y))), high)
		}
		out := alloc[uint32](g, 12*n)
		g.launch(g.cover(n), "integer_ptx", put(g, a), put(g, b), put(g, c), out, n)
		same(g, "out", out, want)
	}},
	{"integers", "integer_divide", func(g *gpu) {
		n := g.size(1000)
		x, y, v, w := make([]int32, n), make([]int32, n), make([]int64, n), make([]int64, n)
		var want32 []int32
		var want64 []int64
		for i := range n {
			x[i], y[i] = int32(g.rng.Uint32()), int32(g.rng.Uint32())>>g.rng.IntN(32)
			v[i], w[i] = int64(g.rng.Uint64()), int64(g.rng.Uint64())>>g.rng.IntN(64)
			if y[i] == 0 || x[i] == math.MinInt32 && y[i] == -1 {
				y[i] = 7
			}
			if w[i] == 0 || v[i] == math.MinInt64 && w[i] == -1 {
				w[i] = 7
			}
			want32 = append(want32, x[i]/y[i], x[i]%y[i], int32(uint32(x[i])/uint32(y[i])), int32(uint32(x[i])%uint32(y[i])))
			want64 = append(want64, v[i]/w[i], v[i]%w[i], int64(uint64(v[i])/uint64(w[i])), int64(uint64(v[i])%uint64(w[i])))
		}
		out32, out64 := alloc[int32](g, 4*n), alloc[int64](g, 4*n)
		g.launch(g.cover(n), "integer_divide", put(g, x), put(g, y), put(g, v), put(g, w), out32, out64, n)
		same(g, "out32", out32, want32)
		same(g, "out64", out64, want64)
	}},
	{"integers", "integer_wide", func(g *gpu) {
		n := g.size(2000)
		x, y, w := make([]int32, n), make([]int32, n), make([]int64, n)
		var want []int64
		for i := range n {
			x[i], y[i], w[i] = int32(g.rng.Uint32()), int32(g.rng.Uint32()), int64(g.rng.Uint64())>>g.rng.IntN(64)
			product := int64(x[i]) * int64(y[i])
			high, _ := bits.Mul64(uint64(w[i]), uint64(w[i]))
			if w[i] < 0 {
				high -= 2 * uint64(w[i])
			}
			want = append(want, product, int64(uint64(uint32(x[i]))*uint64(uint32(y[i]))), product+w[i],
				int64(high), w[i]>>(x[i]&63), w[i]/10)
		}
		out := alloc[int64](g, 6*n)
		g.launch(g.cover(n), "integer_wide", put(g, x), put(g, y), put(g, w), out, n)
		same(g, "out", out, want)
	}},

	{"hash64", "hash_fnv1a", func(g *gpu) {
		n, length := g.size(1000), g.rng.IntN(30)
		data := random(n*length+1, func() uint8 { return uint8(g.rng.Uint32()) })
		want := make([]uint64, n)
		for i := range want {
			want[i] = 14695981039346656037
			for _, b := range data[i*length : i*length+length] {
				want[i] = (want[i] ^ uint64(b)) * 1099511628211
			}
		}
		out := alloc[uint64](g, n)
		g.launch(g.cover(n), "hash_fnv1a", put(g, data), out, length, n)
		same(g, "out", out, want)
	}},
	{"hash64", "hash_mix", func(g *gpu) {
		n := g.size(4000)
		in := g.longs(n)
		want := make([]uint64, n)
		for i := range want {
			z := in[i] + 0x9e3779b97f4a7c15
			z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
			z = (z ^ z>>27) * 0x94d049bb133111eb
			want[i] = z ^ z>>31
		}
		out := alloc[uint64](g, n)
		g.launch(g.cover(n), "hash_mix", put(g, in), out, n)
		same(g, "out", out, want)
	}},
	{"hash64", "hash_xorshift", func(g *gpu) {
		n, steps := g.size(1000), g.rng.IntN(20)
		state := g.longs(n)
		devState, out := put(g, state), alloc[uint64](g, n)
		want := make([]uint64, n)
		for i := range state {
			for range steps {
				state[i] ^= state[i] >> 12
				state[i] ^= state[i] << 25
				state[i] ^= state[i] >> 27
			}
			want[i] = state[i] * 0x2545f4914f6cdd1d
		}
		g.launch(g.cover(n), "hash_xorshift", devState, out, steps, n)
		same(g, "state", devState, state)
		same(g, "out", out, want)
	}},
	{"hash64", "hash_fold", func(g *gpu) {
		n := g.size(2000)
		a, b := g.longs(n), g.longs(n)
		want := make([]uint64, n)
		for i := range want {
			if g.variant == "clang14" { // it rotates by the whole low word and forgets to mask it
				a[i] &^= 0xffffffc0
			}
			high, low := bits.Mul64(a[i], b[i])
			h := bits.RotateLeft64(high^low, int(a[i]&63))
			d := b[i]>>40 | 1
			want[i] = h/d ^ h%d
		}
		out := alloc[uint64](g, n)
		g.launch(g.cover(n), "hash_fold", put(g, a), put(g, b), out, n)
		same(g, "out", out, want)
	}},

	{"doubles", "dot_double", func(g *gpu) {
		n, blocks := g.size(3000), g.times(5)
		x, y := random(n, g.rng.NormFloat64), random(n, g.rng.NormFloat64)
		want := make([]float64, blocks)
		for b := range want {
			var s [128]float64
			for t := range s {
				for i := 128*b + t; i < n; i += 128 * blocks {
					s[t] = math.FMA(x[i], y[i], s[t])
				}
			}
			want[b] = treeSum(s[:])
		}
		out := alloc[float64](g, blocks)
		g.launch(line(blocks, 128), "dot_double", put(g, x), put(g, y), out, n)
		same(g, "out", out, want)
	}},
	{"doubles", "kahan_sum", func(g *gpu) {
		s, length := line(g.times(3), g.block(256)), g.rng.IntN(40)
		threads := int(s.grid.X * s.block.X)
		in := random(threads*length+1, func() float64 { return math.Ldexp(g.rng.NormFloat64(), g.rng.IntN(60)) })
		want := make([]float64, threads)
		for t := range want {
			var sum, c float64
			for _, x := range in[t*length : t*length+length] {
				y := x - c
				next := sum + y
				c = (next - sum) - y
				sum = next
			}
			want[t] = sum
		}
		out := alloc[float64](g, threads)
		g.launch(s, "kahan_sum", put(g, in), out, length)
		same(g, "out", out, want)
	}},
	{"doubles", "quadratic_roots", func(g *gpu) {
		n := g.size(2000)
		b, c := random(n, g.rng.NormFloat64), random(n, g.rng.NormFloat64)
		b[0], c[0] = 0, 0
		want := make([]uint64, 2*n)
		for i := range n {
			low, high := uint64(0x7ff8000000000000), uint64(0x7ff8000000000000)
			if disc := math.FMA(b[i], b[i], -4*c[i]); disc >= 0 {
				root := math.Sqrt(disc)
				if b[i] < 0 {
					root = -root
				}
				q := -0.5 * (b[i] + root)
				r := 0.0
				if q != 0 {
					r = c[i] / q
				}
				if !(q < r) {
					q, r = r, q
				}
				low, high = math.Float64bits(q), math.Float64bits(r)
			}
			want[2*i], want[2*i+1] = low, high
		}
		out := alloc[uint64](g, 2*n)
		g.launch(g.cover(n), "quadratic_roots", put(g, b), put(g, c), out, n)
		same(g, "out", out, want)
	}},
	{"doubles", "convert_double", func(g *gpu) {
		n := g.size(2000)
		in := random(n, func() float64 { return math.Ldexp(2*g.rng.Float64()-1, g.rng.IntN(40)-8) })
		f32, i32, i64 := make([]float32, n), make([]int32, n), make([]int64, n)
		back, raw := make([]float64, n), make([]int64, n)
		for i, x := range in {
			f32[i], i32[i], i64[i] = float32(x), int32(x), int64(x*1024)
			back[i] = float64(i64[i]) + float64(f32[i])
			raw[i] = int64(math.Float64bits(x))
		}
		d32, dInt, d64 := alloc[float32](g, n), alloc[int32](g, n), alloc[int64](g, n)
		dBack, dRaw := alloc[float64](g, n), alloc[int64](g, n)
		g.launch(g.cover(n), "convert_double", put(g, in), d32, dInt, d64, dBack, dRaw, n)
		same(g, "f32", d32, f32)
		same(g, "i32", dInt, i32)
		same(g, "i64", d64, i64)
		same(g, "back", dBack, back)
		same(g, "bits", dRaw, raw)
	}},

	{"half", "half_ops", func(g *gpu) {
		n := g.size(1000)
		a, b, c := g.narrow(n, half), g.narrow(n, half), g.narrow(n, half)
		a[0], b[0] = 0x8000, 0x8000 // -0 saturates to 0
		var want []uint16
		for i := range n {
			x, y, z := uint64(a[i]), uint64(b[i]), uint64(c[i])
			sum, less := half.add(x, y, nearest), uint64(0)
			if half.less(x, y) {
				less = 0x3c00
			}
			for _, r := range []uint64{sum, half.add(x, y^0x8000, nearest), half.mul(x, y, nearest), half.fma(x, y, z, nearest),
				half.saturate(sum), x ^ 0x8000, x &^ 0x8000, less} {
				want = append(want, uint16(r))
			}
		}
		out := alloc[uint16](g, 8*n)
		g.launch(g.cover(n), "half_ops", put(g, a), put(g, b), put(g, c), out, n)
		sameBits(g, "out", half, out, want)
	}},
	{"half", "half_pairs", func(g *gpu) {
		n := g.size(600)
		a, b, c := g.narrow(2*n, half), g.narrow(2*n, half), g.narrow(2*n, half)
		want := make([]uint16, 8*n)
		for i := range 2 * n {
			x, y, z, row := uint64(a[i]), uint64(b[i]), uint64(c[i]), want[i/2*8+i%2:]
			row[0] = uint16(half.add(x, y, nearest))
			row[2] = uint16(half.mul(x, y, nearest))
			row[4] = uint16(half.fma(x, y, z, nearest))
			row[6] = uint16(half.add(x, y^0x8000, nearest))
		}
		out := alloc[uint32](g, 4*n)
		g.launch(g.cover(n), "half_pairs", put(g, pairs(a)), put(g, pairs(b)), put(g, pairs(c)), out, n)
		sameBits(g, "out", half, halves(out), want)
	}},
	{"half", "half_convert", func(g *gpu) {
		n := g.size(1000)
		f32, f64, s32, f16 := g.singles(n), g.doubles(n), make([]int32, n), g.narrow(n, half)
		narrow, widened, ints := make([]uint16, 0, 4*n), make([]float32, n), make([]int32, n)
		for i := range n {
			s32[i] = int32(g.rng.Uint32()) >> g.rng.IntN(32)
			if g.rng.IntN(2) == 0 { // near what a half can hold
				f32[i], f64[i] = g.between(-70000, 70000), math.Ldexp(g.rng.NormFloat64(), -g.rng.IntN(26))
			}
			narrow = append(narrow,
				uint16(convert(single, half, bits32(f32[i]), nearest)), uint16(convert(single, half, bits32(f32[i]), toZero)),
				uint16(convert(double, half, math.Float64bits(f64[i]), nearest)),
				uint16(half.round(new(big.Float).SetPrec(wide).SetInt64(int64(s32[i])), nearest)))
			widened[i] = float(convert(half, single, uint64(f16[i]), nearest))
			ints[i] = int32(half.integer(uint64(f16[i]), nearest, math.MinInt32, math.MaxInt32))
		}
		outNarrow, outWide, outInts := alloc[uint16](g, 4*n), alloc[float32](g, n), alloc[int32](g, n)
		g.launch(g.cover(n), "half_convert", put(g, f32), put(g, f64), put(g, s32), put(g, f16), outNarrow, outWide, outInts, n)
		sameBits(g, "narrow", half, outNarrow, narrow)
		same(g, "wide", outWide, widened)
		same(g, "ints", outInts, ints)
	}},

	{"sm80", "bf16_ops", func(g *gpu) {
		n := g.size(1000)
		a, b, c := g.narrow(n, brain), g.narrow(n, brain), g.narrow(n, brain)
		var want []uint16
		for i := range n {
			x, y, z := uint64(a[i]), uint64(b[i]), uint64(c[i])
			want = append(want, uint16(brain.fma(x, y, z, nearest)), uint16(brain.smaller(x, y)), uint16(brain.larger(x, y)), uint16(x^0x8000))
		}
		out := alloc[uint16](g, 4*n)
		g.launch(g.cover(n), "bf16_ops", put(g, a), put(g, b), put(g, c), out, n)
		sameBits(g, "out", brain, out, want)
	}},
	{"sm80", "bf16_pairs", func(g *gpu) {
		n := g.size(600)
		a, b, c := g.narrow(2*n, brain), g.narrow(2*n, brain), g.narrow(2*n, brain)
		u, v := g.singles(n), g.singles(n)
		fused, packed, packedHalf := make([]uint16, 2*n), make([]uint16, 2*n), make([]uint16, 2*n)
		for i := range 2 * n {
			fused[i] = uint16(brain.fma(uint64(a[i]), uint64(b[i]), uint64(c[i]), nearest))
			x := u[i/2]
			if i%2 == 1 {
				x = v[i/2]
			}
			packed[i] = uint16(convert(single, brain, bits32(x), nearest))
			packedHalf[i] = uint16(convert(single, half, bits32(x), nearest))
		}
		out := alloc[uint32](g, 3*n)
		g.launch(g.cover(n), "bf16_pairs", put(g, pairs(a)), put(g, pairs(b)), put(g, pairs(c)), put(g, u), put(g, v), out, n)
		for i := range n {
			sameBits(g, "fused", brain, part(halves(out), 6*i, 2), fused[2*i:])
			sameBits(g, "bf16 pair", brain, part(halves(out), 6*i+2, 2), packed[2*i:])
			sameBits(g, "f16 pair", half, part(halves(out), 6*i+4, 2), packedHalf[2*i:])
		}
	}},
	{"sm80", "bf16_convert", func(g *gpu) {
		n := g.size(1000)
		f, h := g.singles(n), g.narrow(n, brain)
		narrow, widened := make([]uint16, 0, 2*n), make([]float32, n)
		for i := range n {
			narrow = append(narrow, uint16(convert(single, brain, bits32(f[i]), nearest)), uint16(convert(single, brain, bits32(f[i]), toZero)))
			widened[i] = float(uint64(h[i]) << 16)
		}
		outNarrow, outWide := alloc[uint16](g, 2*n), alloc[float32](g, n)
		g.launch(g.cover(n), "bf16_convert", put(g, f), put(g, h), outNarrow, outWide, n)
		sameBits(g, "narrow", brain, outNarrow, narrow)
		same(g, "wide", outWide, widened)
	}},
	{"sm80", "warp_redux", func(g *gpu) {
		s := line(g.times(4), g.warps(512))
		in := random(int(s.grid.X*s.block.X), func() int32 { return int32(g.rng.Uint32()) >> g.rng.IntN(32) })
		var want []int32
		for i := range in {
			warp := in[i/32*32 : i/32*32+32]
			row := []int32{0, warp[0], warp[0], -1, 0, 0}
			for _, v := range warp {
				row = []int32{row[0] + v, min(row[1], v), max(row[2], v), row[3] & v, row[4] | v, row[5] ^ v}
			}
			want = append(want, row...)
		}
		out := alloc[int32](g, 6*len(in))
		g.launch(s, "warp_redux", put(g, in), out)
		same(g, "out", out, want)
	}},
	{"sm80", "tanh_approximate", func(g *gpu) {
		n := g.size(1000)
		in := g.floats(n, -5, 5)
		want := make([]float64, n)
		for i, x := range in {
			want[i] = math.Tanh(float64(x))
		}
		out := alloc[float32](g, n)
		g.launch(g.cover(n), "tanh_approximate", put(g, in), out, n)
		near(g, "out", out, want, func(i int) float64 { return math.Abs(want[i]) * 0x1p-11 })
	}},

	{"rounding", "rounding_f32", func(g *gpu) {
		n := g.size(600)
		a, b, c := g.singles(n), g.singles(n), g.singles(n)
		var want []float32
		for i := range n {
			x, y, z := bits32(a[i]), bits32(b[i]), bits32(c[i])
			for _, m := range modes {
				want = append(want, float(single.add(x, y, m)))
			}
			for _, m := range modes {
				want = append(want, float(single.mul(x, y, m)))
			}
			for _, m := range modes {
				want = append(want, float(single.fma(x, y, z, m)))
			}
			magnitude := x &^ single.sign()
			want = append(want, float(single.div(x, y, toZero)), float(single.div(x, y, up)),
				float(single.sqrt(magnitude, toZero)), float(single.sqrt(magnitude, down)))
		}
		out := alloc[float32](g, 16*n)
		g.launch(g.cover(n), "rounding_f32", put(g, a), put(g, b), put(g, c), out, n)
		same(g, "out", out, want)
	}},
	{"rounding", "rounding_f64", func(g *gpu) {
		n := g.size(600)
		a, b, c := g.doubles(n), g.doubles(n), g.doubles(n)
		var want []float64
		for i := range n {
			x, y, z := math.Float64bits(a[i]), math.Float64bits(b[i]), math.Float64bits(c[i])
			for _, m := range modes[1:] {
				want = append(want, math.Float64frombits(double.add(x, y, m)))
			}
			for _, m := range modes[1:] {
				want = append(want, math.Float64frombits(double.mul(x, y, m)))
			}
			for _, m := range modes[1:] {
				want = append(want, math.Float64frombits(double.fma(x, y, z, m)))
			}
			want = append(want, 1/a[i])
		}
		out := alloc[float64](g, 10*n)
		g.launch(g.cover(n), "rounding_f64", put(g, a), put(g, b), put(g, c), out, n)
		same(g, "out", out, want)
	}},
	{"rounding", "rounding_convert", func(g *gpu) {
		n := g.size(1000)
		a, k := g.singles(n), make([]int32, n)
		var floats, back []float32
		var ints []int32
		for i := range n {
			k[i] = int32(g.rng.Uint32()) >> g.rng.IntN(32)
			if g.rng.IntN(2) == 0 { // halves and small numbers
				a[i] = float32(g.small(600)) / 2
			}
			x := bits32(a[i])
			for _, m := range modes {
				floats = append(floats, wholeFloat(a[i], m))
				ints = append(ints, int32(single.integer(x, m, math.MinInt32, math.MaxInt32)))
				back = append(back, float(single.round(new(big.Float).SetPrec(wide).SetInt64(int64(k[i])), m)))
			}
			long := single.integer(x, toZero, math.MinInt64, math.MaxInt64)
			if single.isNaN(x) {
				long = math.MinInt64
			}
			ints = append(ints, int32(uint32(single.integer(x, toZero, 0, math.MaxUint32))), int32(single.integer(x, nearest, 0, 255)),
				int32(long), int32(long>>32))
		}
		outFloats, outInts, outBack := alloc[float32](g, 4*n), alloc[int32](g, 8*n), alloc[float32](g, 4*n)
		g.launch(g.cover(n), "rounding_convert", put(g, a), put(g, k), outFloats, outInts, outBack, n)
		same(g, "floats", outFloats, floats)
		same(g, "ints", outInts, ints)
		same(g, "back", outBack, back)
	}},
	{"rounding", "float_modes", func(g *gpu) {
		n := g.size(1000)
		a, b, c := g.singles(n), g.singles(n), g.singles(n)
		a[0], b[0] = float(single.sign()), float(single.sign()) // -0 saturates to 0
		var want []float32
		for i := range n {
			x, y, z := bits32(a[i]), bits32(b[i]), bits32(c[i])
			fx, fy, fz := single.flush(x), single.flush(y), single.flush(z)
			for _, r := range []uint64{
				single.flush(single.add(fx, fy, nearest)), single.flush(single.mul(fx, fy, nearest)), single.flush(single.fma(fx, fy, fz, nearest)),
				single.saturate(single.add(x, y, nearest)), single.saturate(single.mul(x, y, nearest)),
				single.smaller(x, y), single.larger(x, y), x&single.sign() | y&^single.sign(),
			} {
				want = append(want, float(r))
			}
		}
		out := alloc[float32](g, 8*n)
		g.launch(g.cover(n), "float_modes", put(g, a), put(g, b), put(g, c), out, n)
		same(g, "out", out, want)
	}},
	{"rounding", "float_approximate", func(g *gpu) {
		n := g.size(1000)
		a, b := random(n, func() float32 { return float32(math.Ldexp(1+g.rng.Float64(), g.rng.IntN(200)-100)) }), g.floats(n, -20, 20)
		var want, bound []float64
		for i := range n {
			x, y := float64(a[i]), float64(b[i])
			lg := math.Log2(x)
			logBound := math.Abs(lg) * 0x1p-22
			if x > 0.5 && x < 2 {
				logBound = 0x1p-22
			}
			angle := 0x1p-20
			if math.Abs(y) > 2*math.Pi {
				angle = 0x1p-14
			}
			// The bounds of the ISA, rounded up to powers of two.
			row := []float64{math.Exp2(y), lg, math.Sin(y), math.Cos(y), 1 / x, 1 / math.Sqrt(x), math.Sqrt(x), x / y}
			want = append(want, row...)
			bound = append(bound, row[0]*0x1p-22, logBound, angle, angle, row[4]*0x1p-23, row[5]*0x1p-22, row[6]*0x1p-22, math.Abs(row[7])*0x1p-22)
		}
		out := alloc[float32](g, 8*n)
		g.launch(g.cover(n), "float_approximate", put(g, a), put(g, b), out, n)
		near(g, "out", out, want, func(i int) float64 { return bound[i] })
	}},
	{"rounding", "float_compare", func(g *gpu) {
		n := g.size(2000)
		a, b := g.singles(n), g.singles(n)
		want := make([]uint32, n)
		for i := range want {
			x, y := a[i], b[i]
			if g.rng.IntN(4) == 0 {
				b[i], y = x, x
			}
			nan := x != x
			want[i] = b2u(x < y) | b2u(x <= y)<<1 | b2u(x == y)<<2 | b2u(x != y)<<3 | b2u(!(x >= y))<<4 | b2u(nan)<<5 |
				b2u(nan || y != y)<<6 | b2u(!nan && !math.IsInf(float64(x), 0))<<7 |
				b2u(single.isSubnormal(bits32(x)))<<8 | b2u(math.IsInf(float64(x), 0))<<9
		}
		out := alloc[uint32](g, n)
		g.launch(g.cover(n), "float_compare", put(g, a), put(g, b), out, n)
		same(g, "out", out, want)
	}},

	{"mathlib", "math_f32", func(g *gpu) {
		n := g.size(1000)
		a, b := g.floats(n, -30, 30), g.floats(n, -8, 8)
		for i := range a {
			if g.rng.IntN(8) == 0 { // beyond the quick reduction of angles, and exp overflows
				a[i] = g.between(-1e7, 1e7)
			}
		}
		var want, bound []float64
		for i := range n {
			x, y := float64(a[i]), float64(b[i])
			for _, f := range []float64{math.Exp(x), math.Log(float64(float32(math.Abs(x)) + 1)), math.Sin(x), math.Cos(x),
				math.Pow(math.Abs(x), y), math.Tanh(x), math.Erf(x), math.Atan2(x, y)} {
				want = append(want, asSingle(f))
				bound = append(bound, math.Max(math.Abs(f)*0x1p-20, 0x1p-149))
			}
		}
		out := alloc[float32](g, 8*n)
		g.launch(g.cover(n), "math_f32", put(g, a), put(g, b), out, n)
		near(g, "out", out, want, func(i int) float64 { return bound[i] })
	}},
	{"mathlib", "math_f64", func(g *gpu) {
		n := g.size(600)
		a, b := random(n, func() float64 { return 30 * g.rng.NormFloat64() }), random(n, g.rng.NormFloat64)
		var want, bound []float64
		for i := range n {
			x, y := a[i], b[i]
			for column, f := range []float64{math.Exp(x), math.Log(math.Abs(x) + 1), math.Sin(x), math.Cos(x), math.Cbrt(x), math.Mod(x, y)} {
				tolerance := math.Abs(f) * 0x1p-50
				switch column {
				case 2, 3:
					tolerance += 0x1p-51 // near their zeros the reference is not better
				case 5:
					tolerance = 0
				}
				want, bound = append(want, f), append(bound, tolerance)
			}
		}
		out := alloc[float64](g, 6*n)
		g.launch(g.cover(n), "math_f64", put(g, a), put(g, b), out, n)
		near(g, "out", out, want, func(i int) float64 { return bound[i] })
	}},
	{"mathlib", "math_gather", func(g *gpu) {
		n, m := g.size(4000), g.size(1000)
		in, scale := g.floats(m, -10, 10), g.between(-2, 2)
		index := random(n, func() int32 { return g.rng.Int32N(int32(m)) })
		want := make([]float32, n)
		for i := range want {
			want[i] = in[index[i]] * scale
		}
		out := alloc[float32](g, n)
		g.launch(g.cover(n), "math_gather", put(g, in), put(g, index), put(g, []float32{scale}), out, n)
		same(g, "out", out, want)
	}},
}

// part is a piece of an array.
func part[T number](a array[T], from, n int) array[T] {
	return array[T]{a.addr + uint64(from*sizeOf[T]()), n}
}

// convert rounds a value of one format to another.
func convert(from, to format, bits uint64, mode big.RoundingMode) uint64 {
	if from.isNaN(bits) {
		return to.nan()
	}
	return to.round(from.value(bits), mode)
}

// asSingle is the value itself, or infinity where a float overflows.
func asSingle(x float64) float64 {
	if math.Abs(x) > math.MaxFloat32*(1+0x1p-25) {
		return math.Copysign(math.Inf(1), x)
	}
	return x
}

// wholeFloat rounds to an integer and keeps the sign of a zero.
func wholeFloat(x float32, mode big.RoundingMode) float32 {
	if x != x {
		return float(single.nan())
	}
	v := float64(x)
	switch mode {
	case toZero:
		v = math.Trunc(v)
	case down:
		v = math.Floor(v)
	case up:
		v = math.Ceil(v)
	default:
		v = math.RoundToEven(v)
	}
	return float32(v)
}

// integerOps is the row of integer_ops.
func integerOps(x, y, z uint32) []uint32 {
	both := uint64(y)<<32 | uint64(x)
	var permuted uint32
	for i := range 4 {
		nibble := z >> (4 * i) & 15
		b := uint32(both >> (8 * (nibble & 7)) & 255)
		if nibble&8 != 0 {
			b = uint32(int32(int8(b))>>7) & 255
		}
		permuted |= b << (8 * i)
	}
	clamped := min(z, 32)
	signed24 := func(v uint32) int64 { return int64(int32(v<<8) >> 8) }
	distance := func(less bool) uint32 {
		if less {
			return y - x
		}
		return x - y
	}
	dotSigned, dotUnsigned := z, z
	for i := 0; i < 32; i += 8 {
		dotSigned += uint32(int32(int8(x>>i)) * int32(int8(y>>i)))
		dotUnsigned += (x >> i & 255) * (y >> i & 255)
	}
	return []uint32{
		permuted,
		uint32(both << (z & 31) >> 32), uint32(both >> (z & 31)),
		uint32(both << clamped >> 32), uint32(both >> clamped),
		uint32(signed24(x) * signed24(y)), (x & 0xffffff) * (y & 0xffffff),
		uint32(int64(int32(x)) * int64(int32(y)) >> 32), uint32(uint64(x) * uint64(y) >> 32),
		z + distance(int32(x) < int32(y)), z + distance(x < y),
		dotSigned, dotUnsigned,
		extract(x, y&255, z&255, false), extract(x, y&255, z&255, true),
		insert(x, y, z&31, 7),
	}
}

// extract is bfe, bit by bit.
func extract(x, at, n uint32, signed bool) uint32 {
	if n == 0 {
		return 0
	}
	var fill, out uint32
	if signed {
		fill = x >> min(at+n-1, 31) & 1
	}
	for i := range uint32(32) {
		bit := fill
		if i < n && at+i <= 31 {
			bit = x >> (at + i) & 1
		}
		out |= bit << i
	}
	return out
}

// insert is bfi, bit by bit.
func insert(x, into, at, n uint32) uint32 {
	for i := uint32(0); i < n && at+i <= 31; i++ {
		into = into&^(1<<(at+i)) | x>>i&1<<(at+i)
	}
	return into
}
