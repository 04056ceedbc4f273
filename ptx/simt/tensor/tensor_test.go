package tensor

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The reference works on fractions, and takes a format apart by what it means:
// sign, exponent and fraction as the standards write them.

var shapes = map[Format][3]int{ // exponent bits, fraction bits, bias
	F16: {5, 10, 15}, BF16: {8, 7, 127}, TF32: {8, 10, 127}, E4M3: {4, 3, 7}, E5M2: {5, 2, 15}, F32: {8, 23, 127},
}

// refValue returns the value of an element and its exponent; it is nil if it is a NaN or infinite.
func refValue(f Format, x uint64) (v *big.Rat, exponent int, inf, nan bool) {
	s := shapes[f]
	if f == TF32 {
		x >>= 13
	}
	e, m := int(x>>s[1])&(1<<s[0]-1), int64(x&(1<<s[1]-1))
	negative := x>>(s[0]+s[1])&1 == 1
	if f == E4M3 {
		if x&0x7f == 0x7f {
			return nil, 0, false, true
		}
	} else if e == 1<<s[0]-1 {
		return nil, 0, m == 0, m != 0
	}
	exponent = 1 - s[2]
	if e > 0 {
		exponent, m = e-s[2], m+1<<s[1]
	}
	v = new(big.Rat).Mul(new(big.Rat).SetInt64(m), power(exponent-s[1]))
	if negative {
		v.Neg(v)
	}
	return v, exponent, false, false
}

func power(e int) *big.Rat {
	if e < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), uint(-e)))
	}
	return new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(e)))
}

// chop returns v as a multiple of 2^e, towards zero.
func chop(v *big.Rat, e int) *big.Rat {
	q := new(big.Rat).Quo(v, power(e))
	return new(big.Rat).Mul(new(big.Rat).SetInt(new(big.Int).Quo(q.Num(), q.Denom())), power(e))
}

// refRound finds the element of a format that is nearest to v (f16) or nearest towards zero (f32).
func refRound(f Format, v *big.Rat) uint64 {
	if f == F32 {
		x, _ := new(big.Float).SetMode(big.ToZero).SetPrec(24).SetRat(v).Float64()
		if math.Abs(x) >= 0x1p128 {
			return uint64(math.Float32bits(float32(math.Copysign(math.Inf(1), x))))
		}
		if math.Abs(x) < 0x1p-126 {
			x, _ = chop(v, -149).Float64()
		}
		if x == 0 {
			return 0
		}
		return uint64(math.Float32bits(float32(x)))
	}
	best, distance := uint64(0), (*big.Rat)(nil)
	for _, sign := range []uint64{0, 0x8000} {
		low, high := uint64(0), uint64(0x7c00) // the first above |v|, by halves
		for low < high {
			middle := (low + high) / 2
			if x, _, _, _ := refValue(F16, middle); x.Cmp(new(big.Rat).Abs(v)) > 0 {
				high = middle
			} else {
				low = middle + 1
			}
		}
		for _, c := range []uint64{max(low, 1) - 1, low} {
			x := power(16)
			if c < 0x7c00 {
				x, _, _, _ = refValue(F16, c)
			}
			if sign != 0 {
				x = new(big.Rat).Neg(x)
			}
			gap := new(big.Rat).Sub(x, v)
			gap.Abs(gap)
			if order := 0; distance != nil {
				order = gap.Cmp(distance)
				if order > 0 || order == 0 && c&1 != 0 {
					continue
				}
			}
			best, distance = sign|c, gap
		}
	}
	if best == 0x8000 && v.Sign() >= 0 {
		best = 0
	}
	return best
}

func refDot(p *Product, c uint64, a, b []uint64) uint64 {
	if (p.A == E4M3 || p.A == E5M2) && !p.Short {
		return refConverted(p, c, a, b)
	}
	acc, accFormat := c, p.C
	for k := 0; k < p.K; k += p.Group() {
		acc = refStep(p, accFormat, acc, a[k:][:p.Group()], b[k:][:p.Group()])
		accFormat = p.D
	}
	return acc
}

// refConverted adds products of eight-bit floats that are made halves: the first two of every four, then the others,
// then c.
func refConverted(p *Product, c uint64, a, b []uint64) uint64 {
	sum := uint64(0)
	for half := range 2 {
		var x, y []uint64
		for k := range a {
			if k%4/2 == half {
				x, y = append(x, a[k]), append(y, b[k])
			}
		}
		sum = refStep(p, p.D, sum, x, y)
	}
	inf, one := uint64(0x7f800000), uint64(0x7fffffff)
	if p.D == F16 {
		inf, one = 0x7c00, 0x7fff
	}
	u, _, infU, nanU := refValue(p.D, sum)
	v, _, infV, nanV := refValue(p.D, c)
	switch {
	case nanU || nanV || infU && infV && sum != c:
		return one
	case infU || infV:
		return map[bool]uint64{true: inf, false: inf | (one + 1)}[infU && sum == inf || infV && c == inf]
	}
	total := new(big.Rat).Add(u, v)
	switch {
	case total.Sign() != 0 && p.D == F16:
		return refRound(F16, total)
	case total.Sign() != 0:
		nearest, _ := total.Float32()
		return uint64(math.Float32bits(nearest))
	case u.Sign() == 0 && sum&c&(one+1) != 0:
		return one + 1
	}
	return 0
}

func refStep(p *Product, accFormat Format, acc uint64, a, b []uint64) uint64 {
	type term struct {
		v *big.Rat
		e int
	}
	var terms []term
	nan, infinite := false, 0 // bits: plus, minus
	add := func(v *big.Rat, e int) {
		if v.Sign() != 0 {
			terms = append(terms, term{v, e})
		}
	}
	v, e, isInf, isNaN := refValue(accFormat, acc)
	switch {
	case isNaN:
		nan = true
	case isInf:
		infinite |= 1 << (acc >> (formats[accFormat].bits - 1))
	default:
		add(v, e)
	}
	for k := range a {
		x, ex, infX, nanX := refValue(p.A, a[k])
		y, ey, infY, nanY := refValue(p.B, b[k])
		switch {
		case nanX || nanY || infX && y != nil && y.Sign() == 0 || infY && x != nil && x.Sign() == 0:
			nan = true
		case infX || infY:
			infinite |= 1 << (a[k]>>(formats[p.A].bits-1)&1 ^ b[k]>>(formats[p.B].bits-1)&1)
		default:
			add(new(big.Rat).Mul(x, y), ex+ey)
		}
	}
	inf, one := uint64(0x7f800000), uint64(0x7fffffff)
	if p.D == F16 {
		inf, one = 0x7c00, 0x7fff
	}
	switch {
	case nan || infinite == 3:
		return one
	case infinite == 1:
		return inf
	case infinite == 2:
		return inf | (one + 1)
	case len(terms) == 0:
		return 0
	}
	top := math.MinInt
	for _, t := range terms {
		top = max(top, t.e)
	}
	sum, kept := new(big.Rat), 25
	if p.Short {
		kept = 13
	}
	for _, t := range terms {
		sum.Add(sum, chop(t.v, top-kept))
	}
	if sum.Sign() == 0 {
		return 0
	}
	if p.Short && p.D == F32 {
		return refRound(F32, sum) &^ 0x3ff
	}
	return refRound(p.D, sum)
}

// draw returns an element: any bits, or small numbers of similar size, or few different ones.
func draw(rng *rand.Rand, f Format, how int) uint64 {
	x := rng.Uint64()
	s := shapes[f]
	switch how {
	case 0:
	case 1:
		middle := uint64(s[2]) - 3 + rng.Uint64N(6)
		x = x&1<<(s[0]+s[1]) | middle<<s[1] | x>>8&(1<<s[1]-1)
		if f == TF32 {
			x <<= 13
		}
	case 2:
		x = []uint64{0, 1, 1 << s[1], uint64(s[2]) << s[1], 1 << (s[0] + s[1]), (1<<s[0] - 2) << s[1]}[rng.IntN(6)]
		if f == TF32 {
			x <<= 13
		}
	}
	return x & (1<<formats[f].bits - 1)
}

func TestFloats(t *testing.T) {
	kinds := []Product{
		{K: 8, A: F16, B: F16, C: F16, D: F16}, {K: 16, A: F16, B: F16, C: F16, D: F16}, {K: 16, A: F16, B: F16, C: F32, D: F32},
		{K: 16, A: F16, B: F16, C: F16, D: F32}, {K: 16, A: F16, B: F16, C: F32, D: F16},
		{K: 16, A: BF16, B: BF16, C: F32, D: F32}, {K: 8, A: TF32, B: TF32, C: F32, D: F32}, {K: 4, A: TF32, B: TF32, C: F32, D: F32},
		{K: 8, A: TF32, B: TF32, C: F32, D: F32, Tile: true},
		{K: 32, A: E4M3, B: E4M3, C: F32, D: F32, Short: true}, {K: 32, A: E5M2, B: E4M3, C: F16, D: F16, Short: true},
		{K: 32, A: E4M3, B: E5M2, C: F32, D: F32}, {K: 32, A: E5M2, B: E4M3, C: F16, D: F16}, {K: 16, A: E4M3, B: E4M3, C: F16, D: F16},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range kinds {
		p.M, p.N = 2, 3
		for round := range 60 {
			how := round % 3
			fill := func(f Format, n int) []uint64 {
				all := make([]uint64, n)
				for i := range all {
					all[i] = draw(rng, f, how)
				}
				return all
			}
			a, b, c := fill(p.A, p.M*p.K), fill(p.B, p.N*p.K), fill(p.C, p.M*p.N)
			d := make([]uint64, p.M*p.N)
			new(Unit).Multiply(&p, d, c, a, b)
			for m := range p.M {
				for n := range p.N {
					row, column := a[m*p.K:][:p.K], b[n*p.K:][:p.K]
					if want := refDot(&p, c[m*p.N+n], row, column); d[m*p.N+n] != want {
						t.Fatalf("%+v, seed (1, 2), round %d:\na %x\nb %x\nc %x\ngot %x, want %x", p, round, row, column, c[m*p.N+n], d[m*p.N+n], want)
					}
				}
			}
		}
	}
}

// What the papers found: sums of one sign are cut off, and so is what lies 25
// bits below the largest.
func TestFloatsAsPublished(t *testing.T) {
	p := Product{M: 1, N: 1, K: 16, A: F16, B: F16, C: F32, D: F32}
	one := uint64(0x3c00)
	for _, c := range []struct {
		name string
		acc  float32
		a, b map[int]uint64
		want float32
	}{
		{"cut off, not rounded", 1, map[int]uint64{0: 0x0c00}, map[int]uint64{0: 0x0e00}, 1}, // 1 + 1.5 * 2^-24
		{"two bits more than an f32 has", 1, map[int]uint64{0: 0x0c00, 1: 0x0c00, 2: 0x0800, 3: 0x0800}, map[int]uint64{0: 0x0800, 1: 0x0800, 2: 0x0c00, 3: 0x0c00}, 1 + 0x1p-23},
		{"and no third", 1, map[int]uint64{0: 0x0800, 1: 0x0800}, map[int]uint64{0: 0x0800, 1: 0x0800}, 1},
		{"negative numbers towards zero", -1, map[int]uint64{0: 0x8c00}, map[int]uint64{0: 0x0e00}, -1},
		{"all at once", 0x1p24, map[int]uint64{0: one, 1: one}, map[int]uint64{0: one, 1: one}, 0x1p24 + 2},
	} {
		a, b, d := make([]uint64, 16), make([]uint64, 16), make([]uint64, 1)
		for k, x := range c.a {
			a[k] = x
		}
		for k, x := range c.b {
			b[k] = x
		}
		new(Unit).Multiply(&p, d, []uint64{uint64(math.Float32bits(c.acc))}, a, b)
		if got := math.Float32frombits(uint32(d[0])); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestIntegers(t *testing.T) {
	limit := big.NewInt(math.MaxInt32)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, p := range []Product{
		{A: S8, B: S8}, {A: U8, B: S8}, {A: U8, B: U8, Saturate: true}, {A: S4, B: U4}, {A: U4, B: S4, Saturate: true}, {A: B1, B: B1}, {A: B1, B: B1, And: true},
	} {
		p.M, p.N, p.K, p.C, p.D = 2, 2, 32, S32, S32
		for round := range 200 {
			a, b, c, d := make([]uint64, 64), make([]uint64, 64), make([]uint64, 4), make([]uint64, 4)
			for i := range a {
				a[i], b[i] = rng.Uint64N(1<<p.A.Bits()), rng.Uint64N(1<<p.B.Bits())
			}
			for i := range c {
				c[i] = uint64(rng.Uint32())
				if round%2 == 0 {
					c[i] = uint64(uint32([]int32{math.MaxInt32, math.MinInt32}[rng.IntN(2)]))
				}
			}
			new(Unit).Multiply(&p, d, c, a, b)
			for i := range d {
				sum := big.NewInt(int64(int32(c[i])))
				for k := range p.K {
					x, y := a[i/2*p.K+k], b[i%2*p.K+k]
					product := big.NewInt(refInteger(p.A, x) * refInteger(p.B, y))
					if p.A == B1 && !p.And {
						product = big.NewInt(0)
						if x != y {
							product = big.NewInt(1)
						}
					}
					sum.Add(sum, product)
				}
				if p.Saturate && sum.CmpAbs(limit) > 0 {
					sum = big.NewInt(math.MaxInt32*(int64(sum.Sign()+1)/2) + math.MinInt32*(int64(1-sum.Sign())/2))
				}
				if want := uint64(uint32(sum.Int64())); d[i] != want {
					t.Fatalf("%+v, seed (3, 4), round %d: got %x, want %x", p, round, d[i], want)
				}
			}
		}
	}
}

func refInteger(f Format, x uint64) int64 {
	limit := int64(1) << formats[f].bits
	if v := int64(x); (f == S8 || f == S4) && v >= limit/2 {
		return v - limit
	}
	return int64(x)
}

func TestDoubles(t *testing.T) {
	p := Product{M: 1, N: 1, K: 4, A: F64, B: F64, C: F64, D: F64}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		a, b, d := make([]uint64, 4), make([]uint64, 4), make([]uint64, 1)
		acc := rng.NormFloat64()
		want := new(big.Float).SetPrec(53).SetFloat64(acc)
		for k := range a {
			x, y := rng.NormFloat64(), rng.NormFloat64()
			a[k], b[k] = math.Float64bits(x), math.Float64bits(y)
			product := new(big.Float).SetPrec(200).Mul(big.NewFloat(x), big.NewFloat(y))
			want = new(big.Float).SetPrec(53).Add(want, product)
		}
		new(Unit).Multiply(&p, d, []uint64{math.Float64bits(acc)}, a, b)
		if w, _ := want.Float64(); math.Float64frombits(d[0]) != w {
			t.Fatalf("seed (5, 6): got %v, want %v", math.Float64frombits(d[0]), w)
		}
	}
}

func BenchmarkMultiply(b *testing.B) {
	for _, p := range []Product{{M: 16, N: 8, K: 16, A: F16, B: F16, C: F32, D: F32}, {M: 16, N: 8, K: 32, A: S8, B: S8, C: S32, D: S32}} {
		b.Run(fmt.Sprintf("k%d", p.K), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(7, 8))
			x, y, z := make([]uint64, p.M*p.K), make([]uint64, p.N*p.K), make([]uint64, p.M*p.N)
			for i := range x {
				x[i] = rng.Uint64N(1<<10) + 0x3800
			}
			for i := range y {
				y[i] = rng.Uint64N(1<<10) + 0x3800
			}
			var u Unit
			for b.Loop() {
				u.Multiply(&p, z, z, x, y)
				clear(z)
			}
			b.ReportMetric(float64(2*p.M*p.N*p.K*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
