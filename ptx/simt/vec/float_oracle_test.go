package vec

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

// This file is a second, slow implementation of the float kernels, which
// shares nothing with the first: values are exact numbers of math/big, and the
// instruction is read from the name of the kernel.

// quantity is an exact value. An infinity and a NaN have no x.
type quantity struct {
	nan, inf, negative bool
	x                  *big.Float
}

// kindOfFloat is a format as its standard describes it.
type kindOfFloat struct {
	width     int
	precision int // with the leading bit
	least     int // 2^least is the least normal number
	most      int // 2^most is the first number too large
}

var kindsOfFloat = map[string]kindOfFloat{
	"f16":  {16, 11, -14, 16},
	"bf16": {16, 8, -126, 128},
	"tf32": {32, 11, -126, 128},
	"f32":  {32, 24, -126, 128},
	"f64":  {64, 53, -1022, 1024},
}

var modes = map[string]big.RoundingMode{
	"rn": big.ToNearestEven, "rz": big.ToZero, "rm": big.ToNegativeInf, "rp": big.ToPositiveInf, "rna": big.ToNearestAway,
	"rni": big.ToNearestEven, "rzi": big.ToZero, "rmi": big.ToNegativeInf, "rpi": big.ToPositiveInf,
}

func exactly(x float64) *big.Float { return new(big.Float).SetPrec(5000).SetFloat64(x) }

func (k kindOfFloat) decode(bits uint64) quantity {
	var f float64
	switch {
	case k.width == 64:
		f = math.Float64frombits(bits)
	case k.width == 32:
		f = float64(math.Float32frombits(uint32(bits)))
	case k.precision == 8:
		f = float64(math.Float32frombits(uint32(bits) << 16))
	default:
		fraction, exponent := bits&0x3ff, bits>>10&0x1f
		switch exponent {
		case 31:
			f = math.Inf(1)
			if fraction != 0 {
				f = math.NaN()
			}
		case 0:
			f = math.Ldexp(float64(fraction), -24)
		default:
			f = math.Ldexp(float64(fraction+1024), int(exponent)-25)
		}
		if bits&0x8000 != 0 {
			f = -f
		}
	}
	r := quantity{nan: f != f, inf: math.IsInf(f, 0), negative: math.Signbit(f)}
	if !r.nan && !r.inf {
		r.x = exactly(f)
	}
	return r
}

// encode rounds once.
func (k kindOfFloat) encode(r quantity, mode big.RoundingMode) uint64 {
	switch {
	case r.nan && k.precision == 53:
		return 0xfff8000000000000
	case r.nan:
		return 1<<(k.width-1) - 1
	case r.inf:
		return k.bits(math.Inf(1), r.negative)
	case r.x.Sign() == 0:
		return k.bits(0, r.negative)
	}
	// In units of the last place the number is to become whole.
	unit := max(r.x.MantExp(nil)-k.precision, k.least-k.precision+1)
	whole := integral(new(big.Float).SetMantExp(r.x, -unit), mode)
	x := new(big.Float).SetPrec(5000).SetInt(whole)
	x.SetMantExp(x, unit).Abs(x)
	if x.Cmp(exactly(1).SetMantExp(exactly(1), k.most)) < 0 {
		f, _ := x.Float64()
		return k.bits(f, r.negative)
	}
	if mode == big.ToZero || mode == big.ToNegativeInf && !r.negative || mode == big.ToPositiveInf && r.negative {
		top := math.Ldexp(float64(uint64(1)<<k.precision-1), k.most-k.precision)
		return k.bits(top, r.negative)
	}
	return k.bits(math.Inf(1), r.negative)
}

// integral rounds to a whole number.
func integral(x *big.Float, mode big.RoundingMode) *big.Int {
	whole, _ := x.Int(nil) // toward zero
	rest := new(big.Float).SetPrec(6000).Sub(x, new(big.Float).SetPrec(6000).SetInt(whole))
	if rest.Sign() == 0 {
		return whole
	}
	step := false
	half := rest.Abs(rest).Cmp(big.NewFloat(0.5))
	switch mode {
	case big.ToNearestEven:
		step = half > 0 || half == 0 && whole.Bit(0) == 1
	case big.ToNearestAway:
		step = half >= 0
	case big.ToNegativeInf:
		step = x.Sign() < 0
	case big.ToPositiveInf:
		step = x.Sign() > 0
	}
	if step {
		whole.Add(whole, big.NewInt(int64(x.Sign())))
	}
	return whole
}

// bits is the pattern of a number of the format, given without its sign.
func (k kindOfFloat) bits(f float64, negative bool) uint64 {
	var b uint64
	switch {
	case k.precision == 53:
		b = math.Float64bits(f)
	case k.width == 32:
		b = uint64(math.Float32bits(float32(f)))
	case k.precision == 8:
		b = uint64(math.Float32bits(float32(f)) >> 16)
	case math.IsInf(f, 0):
		b = 31 << 10
	case f < 0x1p-14:
		b = uint64(math.Ldexp(f, 24))
	default:
		fraction, exponent := math.Frexp(f)
		b = uint64(exponent+13)<<10 + uint64(math.Ldexp(fraction, 11))
	}
	if negative {
		b |= 1 << (k.width - 1)
	}
	return b
}

// instruction is the name of a kernel, taken apart.
type instruction struct {
	op    string
	mods  map[string]bool
	types []string
	mode  big.RoundingMode
}

// readBefore is an instruction and its name: the oracle is asked for one lane after the other.
var readBefore struct {
	name string
	instruction
}

func readInstruction(name string) instruction {
	if readBefore.name != name {
		readBefore.name, readBefore.instruction = name, parseInstruction(name)
	}
	in := readBefore.instruction
	in.types = slices.Clone(in.types)
	return in
}

func parseInstruction(name string) instruction {
	in := instruction{mods: map[string]bool{}}
	for i, part := range strings.Split(name, ".") {
		_, float := kindsOfFloat[strings.TrimSuffix(part, "x2")]
		_, integer := kindOf(part)
		mode, rounds := modes[part]
		switch {
		case i == 0:
			in.op = part
		case float || integer:
			in.types = append(in.types, part)
		case rounds:
			in.mode = mode
			in.mods["integral"] = strings.HasSuffix(part, "i")
		default:
			in.mods[part] = true
		}
	}
	return in
}

// floatOracle is what a kernel gives for one lane; bits of compares are 0 or 1.
func floatOracle(name string, lane []uint64) uint64 {
	in := readInstruction(name)
	last := in.types[len(in.types)-1]
	switch {
	case in.op == "cvt" && strings.HasSuffix(in.types[0], "x2"):
		in.types[0] = strings.TrimSuffix(in.types[0], "x2")
		return in.convert(lane[0])<<16 | in.convert(lane[1])
	case in.op == "cvt":
		return in.convert(lane[0])
	case strings.HasSuffix(last, "x2"):
		in.types[0] = strings.TrimSuffix(last, "x2")
		low, high := make([]uint64, len(lane)), make([]uint64, len(lane))
		for i, x := range lane {
			low[i], high[i] = x&0xffff, x>>16&0xffff
		}
		return in.compute(high)<<16 | in.compute(low)
	case in.op == "slct":
		k := kindsOfFloat["f32"]
		c := k.decode(in.flush("f32", lane[2]))
		if !c.nan && (!c.negative || !c.inf && c.x.Sign() == 0) {
			return lane[0]
		}
		return lane[1]
	}
	return in.compute(lane)
}

// flush is .ftz.
func (in instruction) flush(kind string, bits uint64) uint64 {
	k := kindsOfFloat[kind]
	r := k.decode(bits)
	if in.mods["ftz"] && r.x != nil && r.x.MantExp(nil) <= k.least {
		return k.bits(0, r.negative)
	}
	return bits
}

// clamp is .sat and .relu.
func (in instruction) clamp(kind string, bits uint64) uint64 {
	k := kindsOfFloat[kind]
	r := k.decode(bits)
	one := k.bits(1, false)
	switch {
	case in.mods["relu"] && !r.nan && r.negative:
		return 0
	case in.mods["sat"] && (r.nan || r.negative):
		return 0
	case in.mods["sat"] && (r.inf || r.x.Cmp(exactly(1)) > 0):
		return one
	}
	return bits
}

func (in instruction) compute(lane []uint64) uint64 {
	kind := in.types[0]
	k := kindsOfFloat[kind]
	operands := make([]quantity, len(lane))
	bits := make([]uint64, len(lane))
	quiet, anyNaN := uint64(0), false
	for i := range lane {
		bits[i] = in.flush(kind, lane[i]<<(64-k.width)>>(64-k.width))
		operands[i] = k.decode(bits[i])
		if operands[i].nan && !anyNaN {
			quiet, anyNaN = bits[i]|1<<51, true
		}
	}
	sign := uint64(1) << (k.width - 1)
	switch in.op {
	case "neg":
		return bits[0] ^ sign
	case "abs":
		return bits[0] &^ sign
	case "copysign":
		return bits[1]&^sign | bits[0]&sign
	case "setp":
		return bit(in.holds(operands[0], operands[1]))
	case "testp":
		return bit(in.is(k, operands[0]))
	case "min", "max":
		d := in.extreme(k, bits, operands)
		if k.width == 64 && operands[0].nan && operands[1].nan {
			return quiet
		}
		return d
	}
	result := in.arithmetic(operands)
	if result.nan && anyNaN && k.width == 64 {
		return quiet
	}
	return in.clamp(kind, in.flush(kind, k.encode(result, in.mode)))
}

func (in instruction) arithmetic(v []quantity) quantity {
	one := quantity{x: exactly(1)}
	zero := func(a, b quantity) quantity { return quantity{negative: a.negative != b.negative, x: exactly(0)} }
	switch in.op {
	case "add":
		return in.sum(v[0], v[1])
	case "sub":
		return in.sum(v[0], opposite(v[1]))
	case "mul":
		return in.sum(product(v[0], v[1]), zero(v[0], v[1]))
	case "fma":
		return in.sum(product(v[0], v[1]), v[2])
	case "div":
		return quotient(v[0], v[1])
	case "rcp":
		return quotient(one, v[0])
	case "sqrt":
		return root(v[0])
	}
	panic("no oracle for " + in.op)
}

func opposite(a quantity) quantity {
	a.negative = !a.negative
	if a.x != nil {
		a.x = new(big.Float).Neg(a.x)
	}
	return a
}

func (in instruction) sum(a, b quantity) quantity {
	switch {
	case a.nan || b.nan || a.inf && b.inf && a.negative != b.negative:
		return quantity{nan: true}
	case a.inf:
		return a
	case b.inf:
		return b
	}
	x := new(big.Float).SetPrec(5000).Add(a.x, b.x)
	negative := x.Sign() < 0
	if x.Sign() == 0 {
		negative = a.negative && b.negative || in.mode == big.ToNegativeInf && (a.negative || b.negative)
	}
	return quantity{negative: negative, x: x}
}

func product(a, b quantity) quantity {
	negative := a.negative != b.negative
	switch {
	case a.nan || b.nan || a.inf && !b.inf && b.x.Sign() == 0 || b.inf && !a.inf && a.x.Sign() == 0:
		return quantity{nan: true}
	case a.inf || b.inf:
		return quantity{inf: true, negative: negative}
	}
	return quantity{negative: negative, x: new(big.Float).SetPrec(5000).Mul(a.x, b.x)}
}

// Quotients and roots that do not end are cut after so many bits that no
// rounding can tell.

func quotient(a, b quantity) quantity {
	negative := a.negative != b.negative
	switch {
	case a.nan || b.nan || a.inf && b.inf || !a.inf && !b.inf && a.x.Sign() == 0 && b.x.Sign() == 0:
		return quantity{nan: true}
	case a.inf || !b.inf && b.x.Sign() == 0:
		return quantity{inf: true, negative: negative}
	case b.inf:
		return quantity{negative: negative, x: exactly(0)}
	}
	return quantity{negative: negative, x: new(big.Float).SetPrec(400).Quo(a.x, b.x)}
}

func root(a quantity) quantity {
	switch {
	case a.nan:
		return a
	case !a.inf && a.x.Sign() == 0:
		return a
	case a.negative:
		return quantity{nan: true}
	case a.inf:
		return a
	}
	return quantity{x: new(big.Float).SetPrec(400).Sqrt(a.x)}
}

func (in instruction) extreme(k kindOfFloat, bits []uint64, v []quantity) uint64 {
	a, b := v[0], v[1]
	negative := a.negative != b.negative
	if in.mods["xorsign"] {
		for _, r := range []*quantity{&a, &b} {
			if r.negative {
				*r = opposite(*r)
			}
		}
	}
	nan := uint64(1)<<(k.width-1) - 1
	var d quantity
	switch {
	case a.nan && b.nan, in.mods["NaN"] && (a.nan || b.nan):
		return nan
	case a.nan:
		d = b
	case b.nan:
		d = a
	default:
		order := a.order(b)
		if order == 0 && a.negative != b.negative { // of zeros
			order = 1
			if a.negative {
				order = -1
			}
		}
		d = a
		if (order < 0) != (in.op == "min") {
			d = b
		}
	}
	if in.mods["xorsign"] && d.negative != negative {
		d = opposite(d)
	}
	return k.encode(d, big.ToNearestEven)
}

// order compares numbers.
func (a quantity) order(b quantity) int {
	value := func(r quantity) *big.Float {
		if r.inf {
			return new(big.Float).SetInf(r.negative)
		}
		return r.x
	}
	return value(a).Cmp(value(b))
}

// holds is a comparison.
func (in instruction) holds(a, b quantity) bool {
	unordered := a.nan || b.nan
	relation := ""
	for _, name := range []string{"eq", "ne", "lt", "le", "gt", "ge", "num", "nan"} {
		for _, u := range []string{"", "u"} {
			if in.mods[name+u] {
				if unordered {
					return u == "u" || name == "nan"
				}
				relation = name
			}
		}
	}
	if relation == "num" || relation == "nan" {
		return relation == "num"
	}
	order := a.order(b)
	return map[string]bool{
		"eq": order == 0, "ne": order != 0, "lt": order < 0, "le": order <= 0, "gt": order > 0, "ge": order >= 0,
	}[relation]
}

// is is testp.
func (in instruction) is(k kindOfFloat, a quantity) bool {
	small := a.x != nil && a.x.Sign() != 0 && a.x.MantExp(nil) <= k.least
	switch {
	case in.mods["finite"]:
		return a.x != nil
	case in.mods["infinite"]:
		return a.inf
	case in.mods["number"]:
		return !a.nan
	case in.mods["notanumber"]:
		return a.nan
	case in.mods["subnormal"]:
		return small
	}
	return a.x != nil && !small // normal, and zero
}

// convert is cvt.
func (in instruction) convert(lane uint64) uint64 {
	to, from := in.types[0], in.types[1]
	result, toFloat := kindsOfFloat[to]
	k, fromFloat := kindsOfFloat[from]
	if !fromFloat {
		i, _ := kindOf(from)
		x := new(big.Float).SetPrec(5000).SetInt(i.of(lane))
		return in.clamp(to, result.encode(quantity{negative: x.Sign() < 0, x: x}, in.mode))
	}
	bits := lane << (64 - k.width) >> (64 - k.width)
	if from == "f32" {
		bits = in.flush(from, bits)
	}
	r := k.decode(bits)
	if !toFloat {
		return in.toInteger(to, k, r)
	}
	if to == from && !in.mods["integral"] {
		if r.nan && in.mods["ftz"] {
			bits = nan32
		}
		return in.clamp(to, bits)
	}
	if r.x != nil && in.mods["integral"] {
		r.x = new(big.Float).SetPrec(5000).SetInt(integral(r.x, in.mode))
	}
	d := result.encode(r, in.mode)
	if r.nan && to == "f64" {
		switch from {
		case "f64":
			d = bits | 1<<51
		case "f32":
			d = bits&(1<<31)<<32 | 0x7ff8000000000000 | bits&(1<<23-1)<<29
		default:
			d = 0x7fffffffe0000000 // the only NaN of f32
		}
	}
	if to == "f32" {
		d = in.flush(to, d)
	}
	return in.clamp(to, d)
}

func (in instruction) toInteger(to string, from kindOfFloat, r quantity) uint64 {
	i, _ := kindOf(to)
	lowest, highest := i.limits()
	var n *big.Int
	switch {
	case r.nan && from.width < 64 && i.bits < 64:
		n = new(big.Int)
	case r.nan:
		n = i.of(1 << (i.bits - 1))
	case r.inf && r.negative:
		n = lowest
	case r.inf:
		n = highest
	default:
		n = i.clamp(integral(r.x, in.mode))
	}
	return kind{bits: max(i.bits, 32)}.wrap(n)
}
