package exp

import (
	"math"
	"testing"
)

// Between -t and t lie 95 % of Student's distribution: the density, summed up.
func TestStudent(t *testing.T) {
	for _, freedom := range []int{1, 2, 3, 4, 6, 9, 14, 19, 20, 21, 29, 49, 99, 999} {
		n := float64(freedom)
		above, _ := math.Lgamma((n + 1) / 2)
		below, _ := math.Lgamma(n / 2)
		density := func(x float64) float64 {
			return math.Exp(above-below-(n+1)/2*math.Log1p(x*x/n)) / math.Sqrt(n*math.Pi)
		}
		const steps = 10_000 // of Simpson's rule
		end := student95(freedom)
		sum := density(0) + density(end)
		for i := 1; i < steps; i++ {
			sum += float64(2+2*(i%2)) * density(end*float64(i)/steps)
		}
		if got := 2 * sum * end / steps / 3; math.Abs(got-0.95) > 1e-6 {
			t.Errorf("%d degrees of freedom: %v between -%v and %v", freedom, got, end, end)
		}
	}
}

func TestHalfWidth(t *testing.T) {
	// Mean 4, squares 1+9+16 = 26, variance 13.
	if got := *Over("p", "m", "s", []float64{3, 1, 8}).HalfWidth; math.Abs(got-4.302653*math.Sqrt(13.0/3)) > 1e-9 {
		t.Errorf("got %v", got)
	}
	if r := Over("p", "m", "s", []float64{3}); r.HalfWidth != nil {
		t.Errorf("one seed has an interval of %v", *r.HalfWidth)
	}
	if r := Over("p", "m", "s", []float64{7, 7, 7}); *r.HalfWidth != 0 {
		t.Errorf("equal values have an interval of %v", *r.HalfWidth)
	}
}
