package vec

import (
	"math"
	"math/big"
	"sync"
	"testing"
)

// The approximate kernels against series in math/big, within the errors that
// the PTX manual allows.

// seriesBits is enough for the sine of 100 pi, whose terms reach 2^450.
const seriesBits = 600

func series(x float64) *big.Float { return new(big.Float).SetPrec(seriesBits).SetFloat64(x) }

// taylor is the sum of x^n/n! times a factor, for n from first by step.
func taylor(x *big.Float, first, step int, alternating bool) *big.Float {
	term := series(1)
	sum := series(0)
	for n := 0; n <= first || term.MantExp(nil) > -120; n++ {
		if n > 0 {
			term.Mul(term, x).Quo(term, series(float64(n)))
		}
		if term.Sign() == 0 {
			break
		}
		if n >= first && (n-first)%step == 0 {
			if alternating && (n-first)/step%2 == 1 {
				sum.Sub(sum, term)
			} else {
				sum.Add(sum, term)
			}
		}
	}
	return sum
}

func bigExp(x *big.Float) *big.Float {
	// Halved until it is small, and squared as often.
	small := new(big.Float).Copy(x)
	halvings := max(0, x.MantExp(nil)+2)
	small.SetMantExp(small, -halvings)
	y := taylor(small, 0, 1, false)
	for range halvings {
		y.Mul(y, y)
	}
	return y
}

// ln2 solves exp(y) = 2 by Newton.
var ln2 = sync.OnceValue(func() *big.Float {
	y := series(math.Ln2)
	for range 5 {
		e := bigExp(y)
		y.Sub(y, series(1)).Add(y, new(big.Float).Quo(series(2), e))
	}
	return y
})

func bigExp2(x float64) *big.Float { return bigExp(new(big.Float).Mul(series(x), ln2())) }

func bigTanh(x float64) *big.Float {
	e := bigExp(series(2 * x))
	return new(big.Float).Quo(new(big.Float).Sub(e, series(1)), new(big.Float).Add(e, series(1)))
}

func bigSin(x float64) *big.Float { return taylor(series(x), 1, 2, true) }
func bigCos(x float64) *big.Float { return taylor(series(x), 0, 2, true) }

// errorOf is |got - want|, as a multiple of unit.
func errorOf(got float64, want *big.Float, unit float64) float64 {
	diff := new(big.Float).Sub(series(got), want)
	f, _ := diff.Abs(diff).Float64()
	return f / unit
}

// relative is a unit for errors relative to what is wanted.
func relative(want *big.Float) float64 {
	f, _ := want.Float64()
	return math.Abs(f)
}

// ulp is one unit in the last place of f32.
func ulp(want *big.Float) float64 {
	return math.Ldexp(1, max(want.MantExp(nil)-24, -149))
}

func always(unit float64) func(*big.Float) float64 {
	return func(*big.Float) float64 { return unit }
}

// TestApproximations checks errors on samples spread over a range.
func TestApproximations(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high float64
		want      func(float64) *big.Float
		unit      func(*big.Float) float64
		most      float64
	}{
		{"ex2.approx.f32", -149, 127.99, bigExp2, ulp, 2},
		{"ex2.approx.f32", -1, 1, bigExp2, ulp, 1},
		{"ex2.approx.ftz.f32", -126, 127.99, bigExp2, ulp, 2},
		{"sin.approx.f32", -2 * math.Pi, 2 * math.Pi, bigSin, always(1), math.Exp2(-20.5)},
		{"sin.approx.f32", 2 * math.Pi, 100 * math.Pi, bigSin, always(1), math.Exp2(-14.7)},
		{"cos.approx.f32", -2 * math.Pi, 2 * math.Pi, bigCos, always(1), math.Exp2(-20.5)},
		{"cos.approx.ftz.f32", -100 * math.Pi, -2 * math.Pi, bigCos, always(1), math.Exp2(-14.7)},
		{"tanh.approx.f32", -10, 10, bigTanh, relative, math.Exp2(-11)},
	} {
		const samples = 200
		var a []uint64
		for i := range samples {
			a = append(a, bits32(float32(c.low+(c.high-c.low)*(float64(i)+0.3)/samples)))
		}
		d, _ := trial{Kernel(c.name), samples, [][]uint64{a}, nil, -1}.mustRun(t, c.name)
		for i := range a {
			x := float64(math.Float32frombits(uint32(a[i])))
			got := float64(math.Float32frombits(uint32(d[i])))
			want := c.want(x)
			if e := errorOf(got, want, c.unit(want)); !(e <= c.most) {
				t.Errorf("%s of %g: %g, off by %g, may be %g", c.name, x, got, e, c.most)
				break
			}
		}
	}
}

// TestLogarithm has 2 to the power of the result plus or minus the error
// enclose the operand.
func TestLogarithm(t *testing.T) {
	r := seeded(t)
	var a []uint64
	for i := range 300 {
		x := float32(math.Ldexp(1+r.Float64(), r.IntN(277)-149))
		if i%3 == 0 { // where the logarithm is small
			x = 1 + float32(r.NormFloat64()/100)
		}
		a = append(a, bits32(x))
	}
	d, _ := trial{Kernel("lg2.approx.f32"), len(a), [][]uint64{a}, nil, -1}.mustRun(t, "lg2.approx.f32")
	for i := range a {
		x := float64(math.Float32frombits(uint32(a[i])))
		got := float64(math.Float32frombits(uint32(d[i])))
		most := math.Exp2(-22)
		if x < 0.5 || x > 2 {
			most *= math.Abs(got)
		}
		if bigExp2(got-most).Cmp(series(x)) > 0 || bigExp2(got+most).Cmp(series(x)) < 0 {
			t.Errorf("lg2.approx.f32 of %g: %g, off by more than %g", x, got, most)
		}
	}
}

// TestQuotientsAndRoots bounds the approximate forms of exact operations.
func TestQuotientsAndRoots(t *testing.T) {
	r := seeded(t)
	const n = 2000
	var a, b []uint64
	for range n {
		a = append(a, bits32(float32(math.Ldexp(1+r.Float64(), r.IntN(120)-60))))
		b = append(b, bits32(float32(math.Ldexp(1+r.Float64(), r.IntN(120)-60))))
	}
	for _, c := range []struct {
		name string
		want func(x, y *big.Float) *big.Float
		most float64
	}{
		{"div.approx.f32", func(x, y *big.Float) *big.Float { return new(big.Float).Quo(x, y) }, math.Exp2(-22)},
		{"div.approx.ftz.f32", func(x, y *big.Float) *big.Float { return new(big.Float).Quo(x, y) }, math.Exp2(-22)},
		{"div.full.f32", func(x, y *big.Float) *big.Float { return new(big.Float).Quo(x, y) }, math.Exp2(-22)},
		{"rcp.approx.f32", func(x, y *big.Float) *big.Float { return new(big.Float).Quo(series(1), x) }, math.Exp2(-23)},
		{"rcp.approx.ftz.f32", func(x, y *big.Float) *big.Float { return new(big.Float).Quo(series(1), x) }, math.Exp2(-23)},
		{"sqrt.approx.f32", func(x, y *big.Float) *big.Float { return new(big.Float).Sqrt(x) }, math.Exp2(-23)},
		{"rsqrt.approx.f32", func(x, y *big.Float) *big.Float {
			return new(big.Float).Quo(series(1), new(big.Float).Sqrt(x))
		}, math.Exp2(-22.9)},
	} {
		sources := [][]uint64{a, b}
		if _, from := widths(Kernel(c.name)); len(from) == 1 {
			sources = sources[:1]
		}
		d, _ := trial{Kernel(c.name), n, sources, nil, -1}.mustRun(t, c.name)
		for i := range d {
			x, y := math.Float32frombits(uint32(a[i])), math.Float32frombits(uint32(b[i]))
			want := c.want(series(float64(x)), series(float64(y)))
			if e := errorOf(float64(math.Float32frombits(uint32(d[i]))), want, relative(want)); e > c.most {
				t.Errorf("%s of %g, %g: off by %g, may be %g", c.name, x, y, e, c.most)
				break
			}
		}
	}
}

// TestGrossApproximations of f64 have 32 zeros at the end and are right to
// some 20 bits.
func TestGrossApproximations(t *testing.T) {
	r := seeded(t)
	var a []uint64
	for range 500 {
		a = append(a, math.Float64bits(math.Ldexp(1+r.Float64(), r.IntN(2000)-1000)))
	}
	for _, name := range []string{"rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", "rsqrt.approx.f64"} {
		d, _ := trial{Kernel(name), len(a), [][]uint64{a}, nil, -1}.mustRun(t, name)
		for i := range a {
			x := series(math.Float64frombits(a[i]))
			most := math.Exp2(-19)
			if name != "rcp.approx.ftz.f64" {
				x.Sqrt(x)
			}
			if name == "rsqrt.approx.f64" {
				most = math.Exp2(-51)
			} else if uint32(d[i]) != 0 {
				t.Errorf("%s of %#x: %#x, the lower half must be zero", name, a[i], d[i])
			}
			want := new(big.Float).Quo(series(1), x)
			if e := errorOf(math.Float64frombits(d[i]), want, relative(want)); e > most {
				t.Errorf("%s of %#x: %#x, off by %g, may be %g", name, a[i], d[i], e, most)
			}
		}
	}
}

// TestShortApproximations goes through values of 16 bits. A unit in the
// last place is more exact than PTX asks for.
func TestShortApproximations(t *testing.T) {
	for _, name := range []string{"ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16"} {
		in := readInstruction(name)
		k := kindsOfFloat[in.types[0]]
		var a []uint64
		for x := uint64(0); x < 1<<16; x += 7 {
			a = append(a, x)
		}
		d, _ := trial{Kernel(name), len(a), [][]uint64{a}, nil, -1}.mustRun(t, name)
		for i := range a {
			x := k.decode(in.flush(in.types[0], a[i]))
			if x.x == nil {
				continue // below
			}
			f, _ := x.x.Float64()
			if math.Abs(f) > 200 {
				continue // too long for the series; the ends are below
			}
			want := quantity{x: bigExp2(f)}
			if in.op == "tanh" {
				want = quantity{x: bigTanh(f), negative: x.negative}
			}
			if bits := in.flush(in.types[0], k.encode(want, big.ToNearestEven)); d[i] != bits {
				t.Errorf("%s of %#x: %#x, want %#x", name, a[i], d[i], bits)
				break
			}
		}
	}
}

// TestApproximateSpecials pins the tables of the PTX manual.
func TestApproximateSpecials(t *testing.T) {
	const (
		inf, minf = 0x7f800000, 0xff800000
		zero, neg = 0, 0x80000000
		tiny      = 1 // subnormal
		mtiny     = 0x80000001
		one       = 0x3f800000
		mone      = 0xbf800000
		nan       = 0x7fffffff
		sNaN      = 0xff800001
	)
	in := []uint64{minf, mone, mtiny, neg, zero, tiny, inf, sNaN}
	for _, c := range []struct {
		name string
		want []uint64
	}{
		{"rcp.approx.ftz.f32", []uint64{neg, mone, minf, minf, inf, inf, zero, nan}},
		{"rcp.approx.f32", []uint64{neg, mone, minf, minf, inf, inf, zero, nan}},
		{"sqrt.approx.ftz.f32", []uint64{nan, nan, neg, neg, zero, zero, inf, nan}},
		{"sqrt.approx.f32", []uint64{nan, nan, nan, neg, zero, 0x1a3504f3, inf, nan}},
		{"rsqrt.approx.ftz.f32", []uint64{nan, nan, minf, minf, inf, inf, zero, nan}},
		{"rsqrt.approx.f32", []uint64{nan, nan, nan, minf, inf, 0x64b504f3, zero, nan}},
		{"sin.approx.ftz.f32", []uint64{nan, 0xbf576aa4, neg, neg, zero, zero, nan, nan}},
		{"sin.approx.f32", []uint64{nan, 0xbf576aa4, mtiny, neg, zero, tiny, nan, nan}},
		{"cos.approx.ftz.f32", []uint64{nan, 0x3f0a5140, one, one, one, one, nan, nan}},
		{"lg2.approx.ftz.f32", []uint64{nan, nan, minf, minf, minf, minf, inf, nan}},
		{"lg2.approx.f32", []uint64{nan, nan, nan, minf, minf, 0xc3150000, inf, nan}},
		{"ex2.approx.ftz.f32", []uint64{zero, 0x3f000000, one, one, one, one, inf, nan}},
		{"ex2.approx.f32", []uint64{zero, 0x3f000000, one, one, one, one, inf, nan}},
		{"tanh.approx.f32", []uint64{mone, 0xbf42f7d6, mtiny, neg, zero, tiny, one, nan}},
	} {
		got, _ := trial{Kernel(c.name), len(in), [][]uint64{in}, nil, -1}.mustRun(t, c.name)
		for i := range in {
			if got[i] != c.want[i] {
				t.Errorf("%s of %#x: %#x, want %#x", c.name, in[i], got[i], c.want[i])
			}
		}
	}

	const large = 0x7e800001 // just past 2^126
	for _, c := range [][3]uint64{{one, large, zero}, {mone, large, neg}, {one, large - 1, 0x00800000}, {inf, large, nan}, {inf, one, inf}, {one, inf, zero}} {
		got, _ := trial{Kernel("div.approx.f32"), 1, [][]uint64{{c[0]}, {c[1]}}, nil, -1}.mustRun(t, "div.approx.f32")
		if got[0] != c[2] {
			t.Errorf("div.approx.f32 of %#x, %#x: %#x, want %#x", c[0], c[1], got[0], c[2])
		}
	}

	short := []uint64{0xfc00, 0x8000, 0, 0x7c00, 0x7c01}
	for name, want := range map[string][]uint64{
		"ex2.approx.f16":  {0, 0x3c00, 0x3c00, 0x7c00, 0x7fff},
		"tanh.approx.f16": {0xbc00, 0x8000, 0, 0x3c00, 0x7fff},
	} {
		got, _ := trial{Kernel(name), len(short), [][]uint64{short}, nil, -1}.mustRun(t, name)
		for i := range short {
			if got[i] != want[i] {
				t.Errorf("%s of %#x: %#x, want %#x", name, short[i], got[i], want[i])
			}
		}
	}
}
