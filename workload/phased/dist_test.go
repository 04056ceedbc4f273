package phased

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster/internal/portable"
)

// theory has each distribution with its textbook tail: the probability of a draw above x.
func theory() []struct {
	name  string
	dist  Dist
	above func(x float64) float64
} {
	const ms = time.Millisecond
	m := float64(750 * ms)
	hyper := func(mean, cv float64) func(float64) float64 {
		p := (1 + math.Sqrt((cv*cv-1)/(cv*cv+1))) / 2
		return func(x float64) float64 {
			return p*math.Exp(-x*2*p/mean) + (1-p)*math.Exp(-x*2*(1-p)/mean)
		}
	}
	lognormal := func(mean, cv float64) func(float64) float64 {
		variance := math.Log1p(cv * cv)
		mu := math.Log(mean) - variance/2
		return func(x float64) float64 { return math.Erfc((math.Log(x)-mu)/math.Sqrt(2*variance)) / 2 }
	}
	weibull := func(mean, shape float64) func(float64) float64 {
		scale := mean / math.Gamma(1+1/shape)
		return func(x float64) float64 { return math.Exp(-math.Pow(x/scale, shape)) }
	}
	pareto := func(low, high, shape float64) func(float64) float64 {
		return func(x float64) float64 {
			x = min(max(x, low), high)
			return (math.Pow(low/x, shape) - math.Pow(low/high, shape)) / (1 - math.Pow(low/high, shape))
		}
	}
	erlang := func(mean float64, k int) func(float64) float64 {
		return func(x float64) float64 {
			sum, term := 0.0, math.Exp(-x*float64(k)/mean)
			for i := range k {
				sum += term
				term *= x * float64(k) / mean / float64(i+1)
			}
			return sum
		}
	}
	return []struct {
		name  string
		dist  Dist
		above func(x float64) float64
	}{
		{"exponential", ExponentialOf(750 * ms), func(x float64) float64 { return math.Exp(-x / m) }},
		{"uniform", UniformOf(100*ms, 300*ms), func(x float64) float64 {
			return min(1, max(0, (300e6-x)/200e6))
		}},
		{"uniform from 0", UniformOf[int64](0, 8), func(x float64) float64 { return min(1, max(0, (8-x)/8)) }},
		{"erlang 1", ErlangOf(750*ms, 1), erlang(m, 1)},
		{"erlang 5", ErlangOf(750*ms, 5), erlang(m, 5)},
		{"hyperexponential 1", HyperexponentialOf(750*ms, 1), hyper(m, 1)},
		{"hyperexponential 3", HyperexponentialOf(750*ms, 3), hyper(m, 3)},
		{"lognormal 0.3", LognormalOf(750*ms, 0.3), lognormal(m, 0.3)},
		{"lognormal 1.5", LognormalOf(750*ms, 1.5), lognormal(m, 1.5)},
		{"weibull 0.7", WeibullOf(750*ms, 0.7), weibull(m, 0.7)},
		{"weibull 1", WeibullOf(750*ms, 1), weibull(m, 1)},
		{"weibull 3", WeibullOf(750*ms, 3), weibull(m, 3)},
		{"pareto 0.5", ParetoOf(ms, 10_000*ms, 0.5), pareto(1e6, 1e10, 0.5)},
		{"pareto 1", ParetoOf(ms, 10_000*ms, 1), pareto(1e6, 1e10, 1)},
		{"pareto 1.0000001", ParetoOf(ms, 10_000*ms, 1.0000001), pareto(1e6, 1e10, 1.0000001)},
		{"pareto 1.5", ParetoOf(ms, 10_000*ms, 1.5), pareto(1e6, 1e10, 1.5)},
		{"pareto 2", ParetoOf(ms, 10_000*ms, 2), pareto(1e6, 1e10, 2)},
		{"pareto 3", ParetoOf(ms, 10_000*ms, 3), pareto(1e6, 1e10, 3)},
	}
}

// moments are the means of x, x^2, x^3 and x^4. Each is the integral of the probability
// to be above x, times the derivative of the power.
func moments(above func(float64) float64, mean float64) (m [5]float64) {
	// Simpson's rule over the logarithm of x.
	low, high := math.Log(mean)-40, math.Log(mean)+15
	const steps = 1 << 17
	h := (high - low) / steps
	for i := range steps + 1 {
		weight := 2.0 + 2*float64(i%2)
		if i == 0 || i == steps {
			weight = 1
		}
		x := math.Exp(low + h*float64(i))
		term := above(x) * h / 3 * weight
		for k := 1; k <= 4; k++ {
			term *= x
			m[k] += float64(k) * term
		}
	}
	return m
}

func TestMeansByQuadrature(t *testing.T) {
	for _, c := range theory() {
		// Where the density jumps the rule errs by some 10^-8.
		if mean := moments(c.above, c.dist.Mean)[1]; math.Abs(mean/c.dist.Mean-1) > 1e-7 {
			t.Errorf("%s: the mean is said to be %v, and is %v", c.name, c.dist.Mean, mean)
		}
	}
}

func TestDrawsFollowTheory(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 20_000
	}
	for seed, c := range theory() {
		from := rand.NewPCG(uint64(seed), 1)
		draws := make([]float64, n)
		sum := 0.0
		for i := range draws {
			draws[i] = c.dist.Draw(from)
			sum += draws[i]
		}
		mean := sum / float64(n)
		variance := 0.0
		for _, x := range draws {
			variance += (x - mean) * (x - mean) / float64(n-1)
		}
		m := moments(c.above, c.dist.Mean)
		wantVariance := m[2] - m[1]*m[1]
		fourth := m[4] - 4*m[1]*m[3] + 6*m[1]*m[1]*m[2] - 3*m[1]*m[1]*m[1]*m[1]
		if off, limit := math.Abs(mean-m[1]), 4*math.Sqrt(wantVariance/float64(n)); off > limit {
			t.Errorf("%s: seed %d: the mean is off by %v, at most %v is chance", c.name, seed, off, limit)
		}
		if off, limit := math.Abs(variance-wantVariance), 4*math.Sqrt((fourth-wantVariance*wantVariance)/float64(n)); !(off <= limit) {
			t.Errorf("%s: seed %d: the variance is off by %v, at most %v is chance", c.name, seed, off, limit)
		}
		slices.Sort(draws)
		if draws[0] < 0 {
			t.Errorf("%s: drew %v", c.name, draws[0])
		}
		// Kolmogorov's test; one of a thousand right ones fails it.
		worst := 0.0
		for i, x := range draws {
			below := 1 - c.above(x)
			worst = max(worst, float64(i+1)/float64(n)-below, below-float64(i)/float64(n))
		}
		if limit := 1.95 / math.Sqrt(float64(n)); worst > limit {
			t.Errorf("%s: seed %d: draws are %v from what they should be, at most %v is chance", c.name, seed, worst, limit)
		}
	}
}

// Families that make a draw of one random number turn it around exactly: the
// probability to be above the draw, or below it, is that number.
func TestDrawsAreExactQuantiles(t *testing.T) {
	checked := 0
	for seed, c := range theory() {
		if c.dist.Kind == Hyperexponential || (c.dist.Kind == Erlang && c.dist.a > 1) {
			continue
		}
		checked++
		from, same := rand.NewPCG(uint64(seed), 3), rand.NewPCG(uint64(seed), 3)
		for range 1000 {
			x, u := c.dist.Draw(from), portable.Unit(same.Uint64())
			above := c.above(x)
			if min(math.Abs(above-u), math.Abs(1-above-u)) > 1e-11 {
				t.Fatalf("%s: seed %d: %v drew %v, which has %v above it", c.name, seed, u, x, above)
			}
		}
	}
	if checked < 14 {
		t.Errorf("only %d distributions were looked at", checked)
	}
}

func TestDrawsOfFewValues(t *testing.T) {
	from := rand.NewPCG(1, 2)
	constant := ConstantOf(5 * time.Second)
	if got := constant.Draw(from); got != 5e9 || constant.Mean != 5e9 {
		t.Errorf("constant: %v of %+v", got, constant)
	}
	d := EmpiricalOf[int64](10, 10, 20, 40)
	if d.Mean != 20 {
		t.Errorf("empirical: mean %v", d.Mean)
	}
	counts := map[float64]int{}
	const n = 40_000
	for range n {
		counts[d.Draw(from)]++
	}
	for value, share := range map[float64]float64{10: 0.5, 20: 0.25, 40: 0.25} {
		if got := float64(counts[value]); math.Abs(got-n*share) > 4*math.Sqrt(n*share*(1-share)) {
			t.Errorf("%v was drawn %v times of %d", value, got, n)
		}
	}
	if len(counts) != 3 {
		t.Errorf("drew %v", counts)
	}
}

func TestDistsAreComparable(t *testing.T) {
	if EmpiricalOf[int64](1, 2) != EmpiricalOf[int64](1, 2) || EmpiricalOf[int64](1, 2) == EmpiricalOf[int64](2, 1) {
		t.Error("lists of values are not compared by what they hold")
	}
	if LognormalOf[int64](5, 2) != LognormalOf[int64](5, 2) || LognormalOf[int64](5, 2) == LognormalOf[int64](5, 3) {
		t.Error("distributions are not compared by what they are")
	}
}

func BenchmarkDraw(b *testing.B) {
	for _, c := range theory() {
		b.Run(c.name, func(b *testing.B) {
			from := rand.NewPCG(1, 1)
			sum := 0.0
			for b.Loop() {
				sum += c.dist.Draw(from)
			}
			_ = sum
		})
	}
}
