package portable

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestAgainstMath(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		x := math.Exp(rng.Float64()*100 - 50)
		if got, want := Log(x), math.Log(x); math.Abs(got-want) > 1e-13*max(1, math.Abs(want)) {
			t.Fatalf("Log(%v) = %v, want %v", x, got, want)
		}
		y := rng.Float64()*100 - 50
		if got, want := Exp(y), math.Exp(y); math.Abs(got-want) > 1e-13*want {
			t.Fatalf("Exp(%v) = %v, want %v", y, got, want)
		}
		u := Unit(rng.Uint64())
		if got := 0.5 * math.Erfc(-NormalQuantile(u)/math.Sqrt2); math.Abs(got-u) > 1e-13 {
			t.Fatalf("NormalQuantile(%v) has probability %v", u, got)
		}
		g := 1 + 30*rng.Float64()
		if got, want := Gamma(g), math.Gamma(g); math.Abs(got-want) > 1e-12*want {
			t.Fatalf("Gamma(%v) = %v, want %v", g, got, want)
		}
	}
	for _, u := range []float64{1e-300, 1e-15, 0.0749, 0.5, 0.9251} {
		if got := 0.5 * math.Erfc(-NormalQuantile(u)/math.Sqrt2); math.Abs(got-u) > 1e-11*u {
			t.Errorf("NormalQuantile(%v) has probability %v", u, got)
		}
	}
}

func TestUnitKeepsOffTheEnds(t *testing.T) {
	if low, high := Unit(0), Unit(math.MaxUint64); low <= 0 || high >= 1 {
		t.Errorf("from %v to %v", low, high)
	}
}

func TestExponential(t *testing.T) {
	check := func(bits uint64) {
		if got, want := Exponential(bits), -math.Log(Unit(bits)); math.Abs(got-want) > 5e-16*max(1, want) || got < 0 {
			t.Fatalf("Exponential(%#x) = %v, want %v", bits, got, want)
		}
	}
	check(0)
	check(math.MaxUint64)
	rng := rand.New(rand.NewPCG(2, 2))
	for range 100_000 {
		bits := rng.Uint64()
		check(bits)
		check(bits >> rng.IntN(52))    // small numbers
		check(^(bits >> rng.IntN(52))) // and those close to 1
	}
}

// The bits themselves: they must be these wherever the test runs.
func TestBits(t *testing.T) {
	sum := uint64(0)
	add := func(x float64) { sum = sum*0x9e3779b97f4a7c15 + math.Float64bits(x) }
	rng := rand.New(rand.NewPCG(3, 3))
	for range 10_000 {
		bits := rng.Uint64()
		u := Unit(bits)
		add(u)
		add(Exponential(bits))
		add(Log(u))
		add(Exp(float64(100*u) - 50))
		add(NormalQuantile(u))
		add(Gamma(1 + float64(20*u)))
	}
	if want := uint64(0xa5644f264dd22766); sum != want {
		t.Errorf("got %#x, want %#x", sum, want)
	}
}

func BenchmarkExponential(b *testing.B) {
	rng := rand.NewPCG(1, 1)
	sum := 0.0
	for b.Loop() {
		sum += Exponential(rng.Uint64())
	}
	_ = sum
}

func BenchmarkLog(b *testing.B) {
	rng := rand.NewPCG(1, 1)
	sum := 0.0
	for b.Loop() {
		sum -= Log(Unit(rng.Uint64()))
	}
	_ = sum
}
