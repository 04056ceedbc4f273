package vec

import "math"

// The formats of 16 bits, f16 and bf16, alone and in pairs. A lane of a pair
// has the first value in its lower half. Arithmetic is done in float32, which
// has more than twice the bits, so that rounding its results again is the same
// as rounding once; fma, where that is not so, goes by float64 and is rounded
// to odd.
func init() {
	for _, ftz := range []string{"", ".ftz"} {
		defineHalf(half, ftz)
	}
	defineHalf(brain, "")
	for _, h := range []short{half, brain} {
		h.define(".approx."+h.name, "tanh", h.unary(math.Tanh, h.keep, h.keep))
	}
	half.define(".approx.f16", "ex2", half.unary(math.Exp2, half.keep, half.keep))
	brain.define(".approx.ftz.bf16", "ex2", brain.unary(math.Exp2, brain.flush, brain.flush))
}

// short is a format of 16 bits.
type short struct {
	format
	name  string
	value func(x uint32) float32 // of the low 16 bits, with nan32 for any NaN
	bits  func(x float32) uint32 // rounds to nearest
}

var (
	half  = short{f16, "f16", halfValue, halfBits}
	brain = short{bf16, "bf16", brainValue, brainBits}
)

const sign16 = 1 << 15

func halfValue(x uint32) float32 {
	sign, rest := x<<16&sign32, x&0x7fff
	switch {
	case rest > 0x7c00:
		return math.Float32frombits(nan32)
	case rest == 0x7c00:
		return math.Float32frombits(sign | inf32)
	}
	// As the bits of a float32 the exponent is 112 too small, and subnormals
	// come out right as well.
	f := math.Float32frombits(rest<<13) * 0x1p112
	return math.Float32frombits(sign | math.Float32bits(f))
}

// halfBits rounds in the integers: a half of the last place is added, less a
// little if the last bit is even. A carry into the exponent is what it should
// be. Subnormals are rounded by an addition, in whose sum they end at the last
// bit.
func halfBits(f float32) uint32 {
	x := math.Float32bits(f)
	size := x &^ sign32
	sign := x >> 16 & sign16
	switch {
	case size > inf32:
		return 0x7fff
	case size >= 143<<23: // 2^16
		return sign | 0x7c00
	case size < 113<<23: // 2^-14
		return sign | (math.Float32bits(math.Float32frombits(size)+0.5) - math.Float32bits(0.5))
	}
	return sign | (size-112<<23+0xfff+size>>13&1)>>13
}

func brainBits(f float32) uint32 {
	if f != f {
		return 0x7fff
	}
	x := math.Float32bits(f)
	return (x + 0x7fff + x>>16&1) >> 16
}

// odd32 is x rounded to odd: its last bit is set if it is not exact.
func odd32(x float64) float32 {
	f := float32(x)
	bits := math.Float32bits(f)
	if float64(f) == x || x != x || bits&1 != 0 {
		return f
	}
	if math.Abs(float64(f)) < math.Abs(x) {
		return math.Float32frombits(bits + 1)
	}
	return math.Float32frombits(bits - 1)
}

func brainValue(x uint32) float32 {
	return math.Float32frombits(canon32(math.Float32frombits(x << 16)))
}

// Ways to treat an operand or a result.

func (h short) keep(x uint32) uint32 { return x & 0xffff }

func (h short) flush(x uint32) uint32 {
	if x&uint32(h.infinity()) == 0 {
		return x & sign16
	}
	return x & 0xffff
}

func (h short) sat(x uint32) uint32 {
	one := h.bits(1)
	switch {
	case x&sign16 != 0 || x > uint32(h.infinity()):
		return 0
	case x > one:
		return one
	}
	return x
}

// relu is zero in place of what is negative.
func (h short) relu(x uint32) uint32 {
	if x&sign16 != 0 {
		return 0
	}
	return x
}

func (h short) unary(f func(float64) float64, in, out func(uint32) uint32) func(a uint32) uint32 {
	return func(a uint32) uint32 { return out(h.bits(odd32(f(float64(h.value(in(a))))))) }
}

func (h short) binary(f func(a, b float32) float32, in, out func(uint32) uint32) func(a, b uint32) uint32 {
	return func(a, b uint32) uint32 { return out(h.bits(f(h.value(in(a)), h.value(in(b))))) }
}

func (h short) fma(in, out func(uint32) uint32) func(a, b, c uint32) uint32 {
	return func(a, b, c uint32) uint32 {
		p := float64(h.value(in(a))) * float64(h.value(in(b)))
		return out(h.bits(odd32(oddSum(p, float64(h.value(in(c)))))))
	}
}

// extreme is a minimum or maximum, by way of f32, which holds every value. The
// sign of a NaN may count, and is kept.
func (h short) extreme(pick func(a, b uint32) uint32, in func(uint32) uint32) func(a, b uint32) uint32 {
	long := func(x uint32) uint32 { return math.Float32bits(h.value(in(x))) | x<<16&sign32 }
	return func(a, b uint32) uint32 { return h.bits(math.Float32frombits(pick(long(a), long(b)))) }
}

// define adds the kernels of a function on 16 bits, one for single values and
// one for pairs, whose type is written with x2.
func (h short) define(suffix, op string, f any) {
	kernels := map[string]any{}
	switch f := f.(type) {
	case func(a uint32) uint32:
		kernels[op+suffix] = eachUnary32(f)
		kernels[op+suffix+"x2"] = eachUnary32(func(a uint32) uint32 {
			return f(a&0xffff) | f(a>>16)<<16
		})
	case func(a, b uint32) uint32:
		kernels[op+suffix] = eachBinary32(f)
		kernels[op+suffix+"x2"] = eachBinary32(func(a, b uint32) uint32 {
			return f(a&0xffff, b&0xffff) | f(a>>16, b>>16)<<16
		})
	case func(a, b, c uint32) uint32:
		kernels[op+suffix] = eachTernary32(f)
		kernels[op+suffix+"x2"] = eachTernary32(func(a, b, c uint32) uint32 {
			return f(a&0xffff, b&0xffff, c&0xffff) | f(a>>16, b>>16, c>>16)<<16
		})
	}
	define(kernels)
}

// defineHalf defines what f16 has with and without .ftz, and bf16 without.
func defineHalf(h short, ftz string) {
	in := h.keep
	if ftz != "" {
		in = h.flush
	}
	out := in

	h.define(ftz+"."+h.name, "neg", func(a uint32) uint32 { return in(a) ^ sign16 })
	h.define(ftz+"."+h.name, "abs", func(a uint32) uint32 { return in(a) &^ sign16 })

	clamps := []struct {
		name string
		on   func(uint32) uint32
	}{{"", h.keep}, {".sat", h.sat}, {".relu", h.relu}}
	for _, clamp := range clamps {
		if h.name == "bf16" && clamp.name == ".sat" {
			continue // there is none
		}
		result := func(x uint32) uint32 { return clamp.on(out(x)) }
		suffix := ".rn" + ftz + clamp.name + "." + h.name
		h.define(suffix, "fma", h.fma(in, result))
		if clamp.name == ".relu" {
			continue // fma alone has it
		}
		h.define(suffix, "add", h.binary(func(a, b float32) float32 { return a + b }, in, result))
		h.define(suffix, "sub", h.binary(func(a, b float32) float32 { return a - b }, in, result))
		h.define(suffix, "mul", h.binary(func(a, b float32) float32 { return a * b }, in, result))
	}

	for _, nan := range []string{"", ".NaN"} {
		for _, xorsign := range []string{"", ".xorsign.abs"} {
			mods := extremeMods{nan: nan != "", xorsign: xorsign != ""}
			suffix := ftz + nan + xorsign + "." + h.name
			h.define(suffix, "min", h.extreme(mods.on(min32), in))
			h.define(suffix, "max", h.extreme(mods.on(max32), in))
		}
	}

	compare := func(f func(a, b float32) bool) Compare32 {
		return func(d []uint64, a, b []uint32) {
			b = b[:len(a)]
			clear(d[:(len(a)+63)/64])
			for i := range a {
				if f(h.value(in(a[i])), h.value(in(b[i]))) {
					d[i/64] |= 1 << (i % 64)
				}
			}
		}
	}
	define(comparisons(ftz+"."+h.name,
		compare(func(a, b float32) bool { return a == b }),
		compare(func(a, b float32) bool { return a < b || a > b }),
		compare(func(a, b float32) bool { return a < b }),
		compare(func(a, b float32) bool { return a <= b }),
		compare(func(a, b float32) bool { return a == a && b == b }),
	))
}
