package vec

import "math"

// The formats of 4 to 8 bits. Values of them come in pairs, one in the lower and
// one in the upper half of 16 bits, those of four bits of eight. What is too large
// becomes the largest number of its sign.
func init() {
	for _, s := range smallTypes {
		s.defineTo()
		s.defineFrom()
	}
	defineScale()
	defineFinite()
}

type small struct {
	name               string
	exponent, fraction int
	top                uint32 // the largest number
	nan                uint32 // what a NaN becomes: the largest number where there is none
	half               int    // bits from one of a pair to the other
}

var smallTypes = []small{
	{"e4m3", 4, 3, 0x7e, 0x7f, 8}, {"e5m2", 5, 2, 0x7b, 0x7f, 8},
	{"e2m3", 2, 3, 0x1f, 0x1f, 8}, {"e3m2", 3, 2, 0x1f, 0x1f, 8}, {"e2m1", 2, 1, 0x7, 0x7, 4},
}

// lowest is the exponent of the smallest normal number.
func (s *small) lowest() int { return 2 - 1<<(s.exponent-1) }

// bits rounds to nearest.
func (s *small) bits(v float64, relu bool) uint32 {
	if v != v {
		return s.nan
	}
	sign := uint32(0)
	if math.Signbit(v) {
		if relu {
			return 0
		}
		sign, v = 1<<(s.exponent+s.fraction), -v
	}
	switch {
	case v == 0:
		return sign
	case v >= s.value(s.top):
		return sign | s.top
	}
	_, e := math.Frexp(v)
	e = max(e-1, s.lowest())
	n := uint32(math.RoundToEven(math.Ldexp(v, s.fraction-e)))
	// The leading bit of a normal number adds one to the exponent.
	return sign | min(uint32(e-s.lowest())<<s.fraction+n, s.top)
}

func (s *small) value(x uint32) float64 {
	size := x & (1<<(s.exponent+s.fraction) - 1)
	v := 0.0
	switch e := int(size >> s.fraction); {
	case size > s.top && s.name == "e5m2" && size == s.top+1:
		v = math.Inf(1)
	case size > s.top:
		return math.NaN()
	case e == 0:
		v = math.Ldexp(float64(size), s.lowest()-s.fraction)
	default:
		v = math.Ldexp(float64(size&(1<<s.fraction-1)|1<<s.fraction), s.lowest()+e-1-s.fraction)
	}
	if x>>(s.exponent+s.fraction)&1 != 0 {
		v = -v
	}
	return v
}

// defineTo defines conversions of two f32, of which the first becomes the upper
// half, and of pairs of 16 bits.
func (s small) defineTo() {
	for _, relu := range []string{"", ".relu"} {
		to := func(v float64) uint32 { return s.bits(v, relu != "") }
		name := "cvt.rn.satfinite" + relu + "." + s.name + "x2."
		define(map[string]any{
			name + "f32":   eachBinary32(func(a, b uint32) uint32 { return to(value32(a))<<s.half | to(value32(b)) }),
			name + "f16x2": eachUnary32(func(a uint32) uint32 { return to(float64(halfValue(a>>16)))<<s.half | to(float64(halfValue(a&0xffff))) }),
			name + "bf16x2": eachUnary32(func(a uint32) uint32 {
				return to(float64(brainValue(a>>16)))<<s.half | to(float64(brainValue(a&0xffff)))
			}),
		})
	}
}

// defineFrom defines conversions to pairs of f16, which has all these numbers.
func (s small) defineFrom() {
	for _, relu := range []string{"", ".relu"} {
		from := func(x uint32) uint32 {
			h := halfBits(float32(s.value(x)))
			if relu != "" && h != 0x7fff && h&sign16 != 0 {
				return 0
			}
			return h
		}
		define(map[string]any{
			"cvt.rn" + relu + ".f16x2." + s.name + "x2": eachUnary32(func(a uint32) uint32 { return from(a>>s.half)<<16 | from(a) }),
		})
	}
}

// defineScale defines conversions of ue8m0, a power of two without sign, for which
// the sign of what is converted does not count.
func defineScale() {
	const nan, top = 0xff, 0xfe
	to := func(a uint32, up bool) uint32 {
		size := a &^ sign32
		e := size >> 23
		switch {
		case size > inf32:
			return nan
		case e > 0 && up && size&(1<<23-1) != 0, e == 0 && up && size > 1<<22:
			e++
		}
		return min(e, top)
	}
	from := func(x uint32) uint32 {
		switch x &= 0xff; x {
		case nan:
			return 0x7fff
		case 0:
			return 0x40 // 2^-127 is subnormal
		}
		return x << 7
	}
	for mode, up := range map[string]bool{"rz": false, "rp": true} {
		name := "cvt." + mode + ".satfinite.ue8m0x2."
		define(map[string]any{
			name + "f32":    eachBinary32(func(a, b uint32) uint32 { return to(a, up)<<8 | to(b, up) }),
			name + "bf16x2": eachUnary32(func(a uint32) uint32 { return to(a&0xffff0000, up)<<8 | to(a<<16, up) }),
		})
	}
	define(map[string]any{
		"cvt.rn.bf16x2.ue8m0x2": eachUnary32(func(a uint32) uint32 { return from(a>>8)<<16 | from(a) }),
	})
}

// defineFinite defines conversions of f32 to formats that have infinities, but
// where the largest number takes their place.
func defineFinite() {
	for _, relu := range []string{"", ".relu"} {
		for _, mode := range []string{"rn", "rz"} {
			for _, t := range floatTypes[:2] {
				to := func(a uint32) uint32 {
					x := uint32(t.clamped(relu, t.from(roundings[mode], value32(a))))
					if x&0x7fff == uint32(t.infinity()) {
						x--
					}
					return x
				}
				name := "cvt." + mode + ".satfinite" + relu + "." + t.name
				define(map[string]any{
					name + ".f32":   eachUnary32(to),
					name + "x2.f32": eachBinary32(func(a, b uint32) uint32 { return to(a)<<16 | to(b) }),
				})
			}
		}
		for _, mode := range []string{"rn", "rz", "rna"} {
			plainName := "cvt." + mode + relu + ".tf32.f32"
			if mode == "rna" && relu != "" {
				continue
			}
			rounded := kernels[plainName].(Unary32)
			define(map[string]any{
				"cvt." + mode + ".satfinite" + relu + ".tf32.f32": Unary32(func(d, a []uint32) {
					rounded(d, a)
					for i, x := range d {
						if x&^sign32 == inf32 {
							d[i] = x - 1<<13
						}
					}
				}),
			})
		}
	}
}
