package vec

import "math"

// The rarer kernels of f32 and f64: directed rounding, saturation, and the
// modifiers of min and max.
func init() {
	for rnd, r := range roundings {
		defineRounded32(rnd, r)
		if r != nearest {
			defineRounded64(rnd, r)
		}
	}
	for _, ftz := range []string{"", ".ftz"} {
		for _, nan := range []string{"", ".NaN"} {
			for _, xorsign := range []string{"", ".xorsign.abs"} {
				if nan+xorsign == "" {
					continue // they have loops of their own
				}
				mods := extremeMods{ftz != "", nan != "", xorsign != ""}
				suffix := ftz + nan + xorsign + ".f32"
				define(map[string]any{
					"min" + suffix: eachBinary32(mods.on(min32)),
					"max" + suffix: eachBinary32(mods.on(max32)),
				})
			}
		}
	}
}

func value32(x uint32) float64 { return float64(math.Float32frombits(x)) }

// defineRounded32 defines the arithmetic of f32 in one rounding mode, less what
// has a loop of its own.
func defineRounded32(rnd string, r rounding) {
	add := func(a, b uint32) uint32 { return uint32(f32.add(r, value32(a), value32(b))) }
	sub := func(a, b uint32) uint32 { return uint32(f32.sub(r, value32(a), value32(b))) }
	mul := func(a, b uint32) uint32 { return uint32(f32.mul(r, value32(a), value32(b))) }
	div := func(a, b uint32) uint32 { return uint32(f32.div(r, value32(a), value32(b))) }
	fma := func(a, b, c uint32) uint32 { return uint32(f32.fma(r, value32(a), value32(b), value32(c))) }
	rcp := func(a uint32) uint32 { return uint32(f32.div(r, 1, value32(a))) }
	sqrt := func(a uint32) uint32 { return uint32(f32.sqrt(r, value32(a))) }

	for _, ftz := range []bool{false, true} {
		for _, sat := range []bool{false, true} {
			suffix := "." + rnd
			out := func(x uint32) uint32 { return x }
			in := out
			if ftz {
				suffix += ".ftz"
				in, out = flush32, flush32
			}
			if sat {
				suffix += ".sat"
				flushed := out
				out = func(x uint32) uint32 { return sat32(flushed(x)) }
			}
			suffix += ".f32"
			if r == nearest && !sat {
				continue
			}
			binary := func(f func(a, b uint32) uint32) Binary32 {
				return eachBinary32(func(a, b uint32) uint32 { return out(f(in(a), in(b))) })
			}
			unary := func(f func(a uint32) uint32) Unary32 {
				return eachUnary32(func(a uint32) uint32 { return out(f(in(a))) })
			}
			define(map[string]any{
				"add" + suffix: binary(add),
				"sub" + suffix: binary(sub),
				"mul" + suffix: binary(mul),
				"fma" + suffix: eachTernary32(func(a, b, c uint32) uint32 { return out(fma(in(a), in(b), in(c))) }),
			})
			if !sat {
				define(map[string]any{
					"div" + suffix:  binary(div),
					"rcp" + suffix:  unary(rcp),
					"sqrt" + suffix: unary(sqrt),
				})
			}
		}
	}
}

// defineRounded64 defines the arithmetic of f64 in one rounding mode.
func defineRounded64(rnd string, r rounding) {
	suffix := "." + rnd + ".f64"
	value := math.Float64frombits
	binary := func(f func(r rounding, a, b float64) uint64) Binary64 {
		return eachBinary64(func(a, b uint64) uint64 {
			if isNaN64(a) || isNaN64(b) {
				return nanOf64(a, b)
			}
			return f(r, value(a), value(b))
		})
	}
	unary := func(f func(a float64) uint64) Unary64 {
		return eachUnary64(func(a uint64) uint64 {
			if isNaN64(a) {
				return nanOf64(a)
			}
			return f(value(a))
		})
	}
	define(map[string]any{
		"add" + suffix: binary(f64.add),
		"sub" + suffix: binary(f64.sub),
		"mul" + suffix: binary(f64.mul),
		"div" + suffix: binary(f64.div),
		"fma" + suffix: eachTernary64(func(a, b, c uint64) uint64 {
			if isNaN64(a) || isNaN64(b) || isNaN64(c) {
				return nanOf64(a, b, c)
			}
			return f64.fma(r, value(a), value(b), value(c))
		}),
		"rcp" + suffix:  unary(func(a float64) uint64 { return f64.div(r, 1, a) }),
		"sqrt" + suffix: unary(func(a float64) uint64 { return f64.sqrt(r, a) }),
	})
}

// extremeMods are the modifiers of min and max.
type extremeMods struct{ ftz, nan, xorsign bool }

// on applies the modifiers to a minimum or maximum of f32.
func (m extremeMods) on(pick func(a, b uint32) uint32) func(a, b uint32) uint32 {
	return func(a, b uint32) uint32 {
		if m.ftz {
			a, b = flush32(a), flush32(b)
		}
		if m.nan && (isNaN32(a) || isNaN32(b)) {
			return nan32
		}
		if !m.xorsign {
			return pick(a, b)
		}
		d := pick(a&^sign32, b&^sign32)
		if isNaN32(d) {
			return d
		}
		return d | (a^b)&sign32
	}
}
