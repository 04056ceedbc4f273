package vec

import "math"

// The conversions that have no loop of their own: every pair of types, mode
// and modifier, made from a function on one value.
func init() {
	for _, src := range floatTypes {
		for _, dst := range intTypes {
			defineToInt(dst, src)
		}
		for _, dst := range floatTypes {
			defineToFloat(dst, src)
		}
		defineIntegral(src)
	}
	for _, src := range intTypes {
		for _, dst := range floatTypes {
			defineFromInt(dst, src)
		}
	}
	definePacked()
	defineTensorFloat()
}

type intType struct {
	name   string
	width  int
	signed bool
}

var intTypes = []intType{
	{"u8", 8, false}, {"u16", 16, false}, {"u32", 32, false}, {"u64", 64, false},
	{"s8", 8, true}, {"s16", 16, true}, {"s32", 32, true}, {"s64", 64, true},
}

type floatType struct {
	format
	name  string
	width int
	value func(x uint64) float64
}

var floatTypes = []floatType{
	{f16, "f16", 16, func(x uint64) float64 { return float64(halfValue(uint32(x))) }},
	{bf16, "bf16", 16, func(x uint64) float64 { return float64(brainValue(uint32(x))) }},
	{f32, "f32", 32, func(x uint64) float64 { return value32(uint32(x)) }},
	{f64, "f64", 64, math.Float64frombits},
}

// integralModes round to an integer.
var integralModes = map[string]func(float64) float64{
	"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil,
}

// defineUnary adds a kernel, in the shape that the widths of its result and its
// operand ask for, unless there is one with a loop of its own.
func defineUnary(name string, dst, src int, f func(uint64) uint64) {
	if _, ok := cvtLoops[name]; ok {
		return
	}
	var k any
	switch {
	case dst < 64 && src < 64:
		k = eachUnary32(func(a uint32) uint32 { return uint32(f(uint64(a))) })
	case dst < 64:
		k = eachNarrow(func(a uint64) uint32 { return uint32(f(a)) })
	case src < 64:
		k = eachWiden(func(a uint32) uint64 { return f(uint64(a)) })
	default:
		k = eachUnary64(f)
	}
	defineOne(name, k)
}

// ftzOf is the ways to write .ftz where f32 is among the types.
func ftzOf(types ...floatType) []string {
	for _, t := range types {
		if t.name == "f32" {
			return []string{"", ".ftz"}
		}
	}
	return []string{""}
}

// flushed treats an operand or result of a type as .ftz does: f32 alone is
// flushed.
func (t floatType) flushed(ftz string, x uint64) uint64 {
	if ftz != "" && t.name == "f32" {
		return uint64(flush32(uint32(x)))
	}
	return x
}

// saturated clamps from +0 to 1.
func (t floatType) saturated(x uint64) uint64 {
	v := t.value(x)
	switch {
	case v >= 1:
		return t.from(nearest, 1)
	case v > 0:
		return x
	}
	return 0
}

// relu is zero in place of what is negative.
func (t floatType) relu(x uint64) uint64 {
	if t.value(x) < 0 || x == t.sign(true) {
		return 0
	}
	return x
}

// clamped applies what a modifier of a result asks for.
func (t floatType) clamped(clamp string, x uint64) uint64 {
	switch clamp {
	case ".sat":
		return t.saturated(x)
	case ".relu":
		return t.relu(x)
	}
	return x
}

func defineToInt(dst intType, src floatType) {
	for mode, integral := range integralModes {
		for _, ftz := range ftzOf(src) {
			f := func(a uint64) uint64 {
				return dst.clamp(integral(src.value(src.flushed(ftz, a))), src.width)
			}
			suffix := "." + dst.name + "." + src.name
			defineUnary("cvt."+mode+ftz+suffix, dst.width, src.width, f)
			defineUnary("cvt."+mode+ftz+".sat"+suffix, dst.width, src.width, f)
		}
	}
}

// clamp is the value nearest to an integral x, extended to a lane. For a NaN
// it is zero where nothing has 64 bits, else the highest bit.
func (t intType) clamp(x float64, from int) uint64 {
	low, high := 0.0, math.Ldexp(1, t.width)
	if t.signed {
		high /= 2
		low = -high
	}
	top := uint64(1) << (t.width - 1)
	var n uint64
	switch {
	case x != x && t.width < 64 && from < 64:
		n = 0
	case x != x:
		n = top
	case x >= high && t.signed:
		n = top - 1
	case x >= high:
		n = top<<1 - 1
	case x <= low && t.signed:
		n = top
	case x <= low:
		n = 0
	case t.signed:
		n = uint64(int64(x))
	default:
		n = uint64(x)
	}
	return t.extended(n)
}

// extended is the low bits of n as a value of the type.
func (t intType) extended(n uint64) uint64 {
	n <<= 64 - t.width
	if t.signed {
		return uint64(int64(n) >> (64 - t.width))
	}
	return n >> (64 - t.width)
}

func defineFromInt(dst floatType, src intType) {
	for mode, r := range roundings {
		f := func(a uint64) uint64 {
			n := src.extended(a)
			negative := src.signed && int64(n) < 0
			if negative {
				n = -n
			}
			if n == 0 {
				return 0
			}
			return dst.round(r, normalised(negative, n, 0))
		}
		sat := func(a uint64) uint64 { return dst.saturated(f(a)) }
		suffix := "." + dst.name + "." + src.name
		defineUnary("cvt."+mode+suffix, dst.width, src.width, f)
		defineUnary("cvt."+mode+".sat"+suffix, dst.width, src.width, sat)
	}
}

// defineToFloat defines conversions between floats.
func defineToFloat(dst, src floatType) {
	switch {
	case dst.name == src.name:
		defineSame(dst)
	case dst.width > src.width:
		defineLonger(dst, src)
	default:
		defineRounded(dst, src)
	}
}

// defineSame defines conversions of a type to itself.
func defineSame(t floatType) {
	for _, ftz := range ftzOf(t) {
		suffix := "." + t.name + "." + t.name
		same := func(a uint64) uint64 { return t.extended(a) }
		if ftz != "" {
			same = func(a uint64) uint64 { return uint64(canon32(math.Float32frombits(flush32(uint32(a))))) }
		}
		defineUnary("cvt"+ftz+suffix, t.width, t.width, same)
		defineUnary("cvt"+ftz+".sat"+suffix, t.width, t.width, func(a uint64) uint64 { return t.saturated(same(a)) })
	}
}

// extended is the low bits of x, as many as the type has.
func (t floatType) extended(x uint64) uint64 { return x << (64 - t.width) >> (64 - t.width) }

// defineLonger defines conversions to a longer type, which need no rounding.
func defineLonger(dst, src floatType) {
	convert := func(a uint64) uint64 {
		if dst.width == 64 {
			return math.Float64bits(src.value(a))
		}
		return dst.from(nearest, src.value(a))
	}
	for _, ftz := range ftzOf(dst, src) {
		for _, sat := range []string{"", ".sat"} {
			name := "cvt" + ftz + sat + "." + dst.name + "." + src.name
			defineUnary(name, dst.width, src.width, func(a uint64) uint64 {
				return dst.clamped(sat, dst.flushed(ftz, convert(src.flushed(ftz, a))))
			})
		}
	}
}

// defineRounded defines conversions to a shorter type, or from one of 16 bits to
// the other.
func defineRounded(dst, src floatType) {
	for mode, r := range roundings {
		for _, ftz := range ftzOf(dst, src) {
			for _, clamp := range []string{"", ".sat", ".relu"} {
				if clamp == ".relu" && src.name != "f32" {
					continue
				}
				name := "cvt." + mode + ftz + clamp + "." + dst.name + "." + src.name
				defineUnary(name, dst.width, src.width, func(a uint64) uint64 {
					d := dst.from(r, src.value(src.flushed(ftz, a)))
					return dst.clamped(clamp, dst.flushed(ftz, d))
				})
			}
		}
	}
}

// defineIntegral defines roundings to a whole number of the same type.
func defineIntegral(t floatType) {
	for mode, integral := range integralModes {
		for _, ftz := range ftzOf(t) {
			for _, sat := range []string{"", ".sat"} {
				name := "cvt." + mode + ftz + sat + "." + t.name + "." + t.name
				defineUnary(name, t.width, t.width, func(a uint64) uint64 {
					if t.width == 64 && isNaN64(a) {
						return t.clamped(sat, nanOf64(a))
					}
					return t.clamped(sat, t.from(nearest, integral(t.value(t.flushed(ftz, a)))))
				})
			}
		}
	}
}

// definePacked defines conversions of two values of f32 to a pair, the first
// of which becomes its upper half.
func definePacked() {
	for _, dst := range floatTypes[:2] {
		for mode, r := range roundings {
			for _, relu := range []string{"", ".relu"} {
				to := func(a uint32) uint32 { return uint32(dst.clamped(relu, dst.from(r, value32(a)))) }
				define(map[string]any{
					"cvt." + mode + relu + "." + dst.name + "x2.f32": eachBinary32(func(a, b uint32) uint32 {
						return to(a)<<16 | to(b)
					}),
				})
			}
		}
	}
}

// defineTensorFloat defines conversions to tf32, which is f32 with a fraction
// of 10 bits.
func defineTensorFloat() {
	for mode, r := range map[string]rounding{"rna": away, "rn": nearest, "rz": toZero} {
		for _, relu := range []string{"", ".relu"} {
			if r == away && relu != "" {
				continue // there is none
			}
			define(map[string]any{
				"cvt." + mode + relu + ".tf32.f32": eachUnary32(func(a uint32) uint32 {
					switch {
					case isNaN32(a):
						return nan32
					case relu != "" && a&sign32 != 0:
						return 0
					}
					return uint32(tf32.from(r, value32(a)) << 13)
				}),
			})
		}
	}
}
