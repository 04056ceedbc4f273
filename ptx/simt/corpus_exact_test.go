package simt_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// format is a binary floating-point format of IEEE 754's kind. Its operations
// take and return bits, and round once, from exact values.
type format struct{ size, fraction int }

var (
	half    = format{16, 10}
	brain   = format{16, 7} // bf16
	single  = format{32, 23}
	double  = format{64, 52}
	nearest = big.ToNearestEven
	toZero  = big.ToZero
	down    = big.ToNegativeInf
	up      = big.ToPositiveInf
)

// wide is enough precision for exact sums of products of doubles.
const wide = 5000

func (f format) bias() int        { return 1<<(f.size-f.fraction-2) - 1 }
func (f format) infinity() uint64 { return (1<<(f.size-f.fraction-1) - 1) << f.fraction }
func (f format) sign() uint64     { return 1 << (f.size - 1) }
func (f format) nan() uint64      { return f.sign() - 1 } // the one that PTX makes
func (f format) isNaN(bits uint64) bool {
	return bits&^f.sign() > f.infinity()
}
func (f format) isSubnormal(bits uint64) bool {
	magnitude := bits &^ f.sign()
	return magnitude != 0 && magnitude < 1<<f.fraction
}

// value returns what bits that are no NaN stand for.
func (f format) value(bits uint64) *big.Float {
	v := new(big.Float).SetPrec(wide)
	magnitude := bits &^ f.sign()
	exponent := int(magnitude >> f.fraction)
	mantissa := magnitude & (1<<f.fraction - 1)
	switch {
	case magnitude == f.infinity():
		v.SetInf(false)
	case exponent == 0:
		v.SetMantExp(v.SetUint64(mantissa), 1-f.bias()-f.fraction)
	default:
		v.SetMantExp(v.SetUint64(mantissa|1<<f.fraction), exponent-f.bias()-f.fraction)
	}
	if bits&f.sign() != 0 {
		v.Neg(v)
	}
	return v
}

// round returns the bits of a value, rounded.
func (f format) round(v *big.Float, mode big.RoundingMode) uint64 {
	var sign uint64
	if v.Signbit() {
		sign = f.sign()
	}
	if v.IsInf() {
		return sign | f.infinity()
	}
	if v.Sign() == 0 {
		return sign
	}
	exponent := max(v.MantExp(nil)-1, 1-f.bias())
	scaled := new(big.Float).SetMantExp(v, f.fraction-exponent) // to units in the last place
	scaled.Abs(scaled)
	whole, _ := scaled.Uint64()
	if !scaled.IsInt() {
		rest := new(big.Float).Sub(scaled, new(big.Float).SetUint64(whole))
		tie := rest.Cmp(big.NewFloat(0.5))
		switch mode {
		case nearest:
			if tie > 0 || tie == 0 && whole&1 == 1 {
				whole++
			}
		case up:
			if sign == 0 {
				whole++
			}
		case down:
			if sign != 0 {
				whole++
			}
		}
	}
	bits := uint64(exponent+f.bias()-1)<<f.fraction + whole
	if bits >= f.infinity() {
		bits = f.infinity()
		if mode == toZero || mode == up && sign != 0 || mode == down && sign == 0 {
			bits--
		}
	}
	return sign | bits
}

// compute decodes operands, applies an operation on exact values and rounds.
func (f format) compute(mode big.RoundingMode, op func(x []*big.Float) *big.Float, operands ...uint64) (bits uint64) {
	defer func() {
		if r := recover(); r != nil {
			if _, undefined := r.(big.ErrNaN); !undefined {
				panic(r)
			}
			bits = f.nan()
		}
	}()
	values := make([]*big.Float, len(operands))
	for i, o := range operands {
		if f.isNaN(o) {
			return f.nan()
		}
		values[i] = f.value(o)
	}
	return f.round(op(values), mode)
}

// exactSum adds; the mode decides the sign of a zero only.
func exactSum(x, y *big.Float, mode big.RoundingMode) *big.Float {
	z := new(big.Float).SetPrec(wide).SetMode(mode).Add(x, y)
	if z.Sign() == 0 && mode == down && x.Signbit() != y.Signbit() && !z.Signbit() {
		z.Neg(z)
	}
	return z
}

func (f format) add(x, y uint64, mode big.RoundingMode) uint64 {
	return f.compute(mode, func(v []*big.Float) *big.Float { return exactSum(v[0], v[1], mode) }, x, y)
}

func (f format) mul(x, y uint64, mode big.RoundingMode) uint64 {
	return f.compute(mode, func(v []*big.Float) *big.Float { return new(big.Float).SetPrec(wide).Mul(v[0], v[1]) }, x, y)
}

func (f format) fma(x, y, z uint64, mode big.RoundingMode) uint64 {
	return f.compute(mode, func(v []*big.Float) *big.Float {
		return exactSum(new(big.Float).SetPrec(wide).Mul(v[0], v[1]), v[2], mode)
	}, x, y, z)
}

// div and sqrt work to 400 bits, which no quotient or root of the formats
// here needs to fall on the right side of a rounding boundary.
func (f format) div(x, y uint64, mode big.RoundingMode) uint64 {
	return f.compute(mode, func(v []*big.Float) *big.Float { return new(big.Float).SetPrec(400).Quo(v[0], v[1]) }, x, y)
}

func (f format) sqrt(x uint64, mode big.RoundingMode) uint64 {
	return f.compute(mode, func(v []*big.Float) *big.Float { return new(big.Float).SetPrec(400).Sqrt(v[0]) }, x)
}

// flush replaces a subnormal by a zero of its sign.
func (f format) flush(bits uint64) uint64 {
	if f.isSubnormal(bits) {
		return bits & f.sign()
	}
	return bits
}

// saturate clamps to 0 .. 1; NaN gives 0.
func (f format) saturate(bits uint64) uint64 {
	one := uint64(f.bias()) << f.fraction
	switch {
	case f.isNaN(bits), bits&f.sign() != 0:
		return 0
	case bits > one:
		return one
	}
	return bits
}

// smaller is PTX's min: of a NaN and a number the number, and -0 below 0.
func (f format) smaller(x, y uint64) uint64 {
	switch {
	case f.isNaN(x) && f.isNaN(y):
		return f.nan()
	case f.isNaN(x):
		return y
	case f.isNaN(y):
		return x
	case f.rank(x) < f.rank(y):
		return x
	}
	return y
}

// larger is PTX's max.
func (f format) larger(x, y uint64) uint64 {
	switch {
	case f.isNaN(x) && f.isNaN(y):
		return f.nan()
	case f.isNaN(x):
		return y
	case f.isNaN(y):
		return x
	case f.rank(x) > f.rank(y):
		return x
	}
	return y
}

// rank orders bits that are no NaN as their values.
func (f format) rank(bits uint64) int64 {
	if bits&f.sign() != 0 {
		return -int64(bits&^f.sign()) - 1
	}
	return int64(bits)
}

// less says whether x < y; false with a NaN.
func (f format) less(x, y uint64) bool {
	return !f.isNaN(x) && !f.isNaN(y) && f.value(x).Cmp(f.value(y)) < 0
}

// integer converts to a whole number from low to high; NaN gives 0.
func (f format) integer(bits uint64, mode big.RoundingMode, low, high int64) int64 {
	if f.isNaN(bits) {
		return 0
	}
	v := f.value(bits)
	if v.IsInf() {
		if v.Signbit() {
			return low
		}
		return high
	}
	i := wholeOf(v, mode)
	switch {
	case i.Cmp(big.NewInt(low)) < 0:
		return low
	case i.Cmp(big.NewInt(high)) > 0:
		return high
	}
	return i.Int64()
}

// wholeOf rounds to an integer.
func wholeOf(v *big.Float, mode big.RoundingMode) *big.Int {
	i, _ := v.Int(nil)
	rest := new(big.Float).SetPrec(wide).Sub(v, new(big.Float).SetPrec(wide).SetInt(i))
	sign := int64(rest.Sign())
	if sign == 0 {
		return i
	}
	tie := rest.Abs(rest).Cmp(big.NewFloat(0.5))
	away := mode == up && sign > 0 || mode == down && sign < 0 ||
		mode == nearest && (tie > 0 || tie == 0 && i.Bit(0) == 1)
	if away {
		i.Add(i, big.NewInt(sign))
	}
	return i
}

// interesting returns random bits of a format: any, or near a special value.
func (f format) interesting(rng *rand.Rand) uint64 {
	all := f.sign()<<1 - 1
	specials := []uint64{0, 1, 1<<f.fraction - 1, 1 << f.fraction, f.infinity() - 1, f.infinity(), f.nan(),
		uint64(f.bias()) << f.fraction, uint64(f.bias()+f.fraction) << f.fraction}
	switch rng.IntN(4) {
	case 0:
		return (specials[rng.IntN(len(specials))] | rng.Uint64()&f.sign()) & all
	case 1:
		return rng.Uint64() & all
	}
	// Around 1, where sums and products neither vanish nor overflow.
	exponent := uint64(f.bias() - f.fraction + rng.IntN(2*f.fraction))
	return (exponent<<f.fraction | rng.Uint64()&(1<<f.fraction-1) | rng.Uint64()&f.sign()) & all
}

// fma32 is x*y + z with one rounding. The product is exact in doubles; the sum
// is rounded to odd there, so that rounding again to a float is right.
func fma32(x, y, z float32) float32 {
	product := float64(x) * float64(y)
	sum := product + float64(z)
	if math.IsInf(sum, 0) || math.IsNaN(sum) {
		return float32(sum)
	}
	back := sum - product
	lost := float64(product-float64(sum-back)) + float64(float64(z)-back)
	bits := math.Float64bits(sum)
	if lost != 0 && bits&1 == 0 {
		if (lost > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
	}
	return float32(math.Float64frombits(bits))
}

// The references are themselves held against the processor's arithmetic.
func TestExactReferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(what string, got, want uint64, f format, operands ...uint64) {
		t.Helper()
		if got != want && !(f.isNaN(got) && f.isNaN(want)) {
			t.Fatalf("%s of %#x = %#x, the processor says %#x", what, operands, got, want)
		}
	}
	for range 2000 {
		x, y, z := single.interesting(rng), single.interesting(rng), single.interesting(rng)
		a, b, c := math.Float32frombits(uint32(x)), math.Float32frombits(uint32(y)), math.Float32frombits(uint32(z))
		check("single sum", single.add(x, y, nearest), uint64(math.Float32bits(a+b)), single, x, y)
		check("single product", single.mul(x, y, nearest), uint64(math.Float32bits(a*b)), single, x, y)
		check("single quotient", single.div(x, y, nearest), uint64(math.Float32bits(a/b)), single, x, y)
		check("fma32", single.fma(x, y, z, nearest), uint64(math.Float32bits(fma32(a, b, c))), single, x, y, z)

		x, y, z = double.interesting(rng), double.interesting(rng), double.interesting(rng)
		d, e, f := math.Float64frombits(x), math.Float64frombits(y), math.Float64frombits(z)
		check("double sum", double.add(x, y, nearest), math.Float64bits(d+e), double, x, y)
		check("double fma", double.fma(x, y, z, nearest), math.Float64bits(math.FMA(d, e, f)), double, x, y, z)
		check("double root", double.sqrt(x, nearest), math.Float64bits(math.Sqrt(d)), double, x)
		check("double to single", single.round(double.value(x&^(1<<62)), nearest),
			uint64(math.Float32bits(float32(math.Float64frombits(x&^(1<<62))))), single, x)
	}
}
