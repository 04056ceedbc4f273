package phased

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"muster/internal/portable"
)

// Kind is a family of distributions.
type Kind uint8

// The families.
const (
	Constant Kind = iota
	Exponential
	Uniform
	Erlang
	Hyperexponential
	Lognormal
	Weibull
	Pareto
	Empirical
)

// Dist is a distribution of non-negative numbers: nanoseconds or bytes. Equal distributions compare
// equal with ==.
type Dist struct {
	Kind Kind
	// Mean is always the mean of the draws. Families with no other parameter may be written as
	// literals; functions make the others.
	Mean float64
	// a and b are the family's other parameters; c and d are derived from them.
	a, b, c, d float64
	// values are those of an empirical distribution, eight bytes each. It is a string because
	// strings are immutable and compare by content.
	values string
}

// Limits of the parameters.
const (
	maxMean      = 1e15 // 11 days or a petabyte: leaves room for tails
	maxPerSecond = 1e15
	maxCV        = 100
	minShape     = 0.1
	maxShape     = 100
	maxStages    = 1000
	maxValues    = 1_000_000
)

// Number is the type of the values: time.Duration, or bytes.
type Number interface{ ~int64 }

// ConstantOf always draws the same value.
func ConstantOf[N Number](value N) Dist { return Dist{Kind: Constant, Mean: float64(value)} }

// ExponentialOf is the exponential distribution.
func ExponentialOf[N Number](mean N) Dist { return Dist{Kind: Exponential, Mean: float64(mean)} }

// UniformOf is the uniform distribution from low to high.
func UniformOf[N Number](low, high N) Dist {
	l, h := float64(low), float64(high)
	return Dist{Kind: Uniform, Mean: l + (h-l)/2, a: l, b: h}
}

// ErlangOf is the sum of several exponential stages. More stages give less variation.
func ErlangOf[N Number](mean N, stages int) Dist {
	return Dist{Kind: Erlang, Mean: float64(mean), a: float64(stages)}
}

// HyperexponentialOf draws from one of two exponential distributions, with a short and a long mean
// that each contribute half of the total (balanced means). The standard deviation is cv times the
// mean; cv is at least 1.
func HyperexponentialOf[N Number](mean N, cv float64) Dist {
	d := Dist{Kind: Hyperexponential, Mean: float64(mean), a: cv}
	square := float64(cv * cv)
	d.c = 0.5 + math.Sqrt((square-1)/(square+1))/2 // probability of the short one
	return d
}

// LognormalOf is the lognormal distribution. The standard deviation is cv times the mean.
func LognormalOf[N Number](mean N, cv float64) Dist {
	d := Dist{Kind: Lognormal, Mean: float64(mean), a: cv}
	variance := portable.Log(1 + float64(cv*cv))
	d.c, d.d = math.Sqrt(variance), variance/2
	return d
}

// WeibullOf is the Weibull distribution. Its tail is longer than the exponential one for a shape
// below 1, and shorter above 1.
func WeibullOf[N Number](mean N, shape float64) Dist {
	d := Dist{Kind: Weibull, Mean: float64(mean), a: shape}
	d.c, d.d = d.Mean/portable.Gamma(1+1/shape), 1/shape
	return d
}

// ParetoOf is the Pareto distribution bounded to low and high: the density falls with the power
// shape+1.
func ParetoOf[N Number](low, high N, shape float64) Dist {
	l, h := float64(low), float64(high)
	d := Dist{Kind: Pareto, a: l, b: h}
	if !(0 < l && l < h) { // validate reports it
		d.c = shape
		return d
	}
	ratio := portable.Log(l / h)
	d.c, d.d = shape, 1-portable.Exp(float64(shape*ratio))
	// The integral of the density times x, over that of the density.
	d.Mean = float64(l*shape) * oneLessPower(ratio, shape-1) / d.d
	return d
}

// oneLessPower is (1 - e^(x y)) / y, or its limit if y is 0.
func oneLessPower(x, y float64) float64 {
	z := float64(x * y)
	if math.Abs(z) < 1e-5 {
		return -x * (1 + z/2 + float64(z*z)/6)
	}
	return (1 - portable.Exp(z)) / y
}

// EmpiricalOf draws one of the values with equal probability.
func EmpiricalOf[N Number](values ...N) Dist {
	text := make([]byte, 0, 8*len(values))
	sum := 0.0
	for _, v := range values {
		text = binary.LittleEndian.AppendUint64(text, math.Float64bits(float64(v)))
		sum += float64(v)
	}
	return Dist{Kind: Empirical, Mean: sum / float64(len(values)), values: string(text)}
}

// value is the i-th value of an empirical distribution.
func (d *Dist) value(i int) float64 {
	v := d.values[8*i : 8*i+8]
	return math.Float64frombits(uint64(v[0]) | uint64(v[1])<<8 | uint64(v[2])<<16 | uint64(v[3])<<24 |
		uint64(v[4])<<32 | uint64(v[5])<<40 | uint64(v[6])<<48 | uint64(v[7])<<56)
}

// Draw draws a number from the distribution.
func (d *Dist) Draw(from *rand.PCG) float64 {
	switch d.Kind {
	case Exponential:
		return float64(d.Mean * portable.Exponential(from.Uint64()))
	case Uniform:
		return d.a + float64((d.b-d.a)*portable.Unit(from.Uint64()))
	case Erlang:
		sum := 0.0
		for range int(d.a) {
			sum += portable.Exponential(from.Uint64())
		}
		return float64(d.Mean*sum) / d.a
	case Hyperexponential:
		share := d.c
		if portable.Unit(from.Uint64()) > share {
			share = 1 - share
		}
		return float64(d.Mean*portable.Exponential(from.Uint64())) / float64(2*share)
	case Lognormal:
		return float64(d.Mean * portable.Exp(float64(d.c*portable.NormalQuantile(portable.Unit(from.Uint64())))-d.d))
	case Weibull:
		// Avoid the logarithm of 0.
		draw := max(1e-17, portable.Exponential(from.Uint64()))
		return float64(d.c * portable.Exp(float64(d.d*portable.Log(draw))))
	case Pareto:
		rest := 1 - float64(d.d*portable.Unit(from.Uint64()))
		return float64(d.a * portable.Exp(-portable.Log(rest)/d.c))
	case Empirical:
		i, _ := bits.Mul64(from.Uint64(), uint64(len(d.values)/8))
		return d.value(int(i))
	}
	return d.Mean
}

// validate says what is wrong with a distribution.
func (d *Dist) validate() error {
	inRange := func(x float64) bool { return x >= 0 && x <= maxMean && x == math.Trunc(x) }
	switch d.Kind {
	case Uniform:
		if !inRange(d.a) || !inRange(d.b) || d.a >= d.b {
			return errors.New("a uniform distribution goes from a lower to a higher value")
		}
	case Pareto:
		if !inRange(d.a) || !inRange(d.b) || d.a <= 0 || d.a >= d.b {
			return errors.New("a pareto distribution goes from a low value above 0 to a higher one")
		}
		if !(d.c >= minShape && d.c <= maxShape) {
			return fmt.Errorf("shape must be from %v to %v, not %v", minShape, maxShape, d.c)
		}
	case Empirical:
		if n := len(d.values) / 8; n < 1 || n > maxValues {
			return fmt.Errorf("an empirical distribution has from 1 to %d values, not %d", maxValues, n)
		}
		for i := range len(d.values) / 8 {
			if !inRange(d.value(i)) {
				return errTooLong
			}
		}
	case Constant, Exponential, Erlang, Hyperexponential, Lognormal, Weibull:
		if !inRange(d.Mean) {
			return errTooLong
		}
	default:
		return fmt.Errorf("there is no distribution %d", d.Kind)
	}
	switch d.Kind {
	case Erlang:
		if !(d.a >= 1 && d.a <= maxStages && d.a == math.Trunc(d.a)) {
			return fmt.Errorf("stages must be a whole number from 1 to %d, not %v", maxStages, d.a)
		}
	case Hyperexponential:
		if !(d.a >= 1 && d.a <= maxCV) {
			return fmt.Errorf("cv must be from 1 to %d, not %v: below 1 take erlang or lognormal", maxCV, d.a)
		}
	case Lognormal:
		if !(d.a > 0 && d.a <= maxCV) {
			return fmt.Errorf("cv must be above 0 and at most %d, not %v", maxCV, d.a)
		}
	case Weibull:
		if !(d.a >= minShape && d.a <= maxShape) {
			return fmt.Errorf("shape must be from %v to %v, not %v", minShape, maxShape, d.a)
		}
	}
	return nil
}

var errTooLong = errors.New("values are whole nanoseconds or bytes, from 0 to 10^15 (11 days, a petabyte)")
