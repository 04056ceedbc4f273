package report

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

func TestIntervalOf(t *testing.T) {
	for _, c := range []struct {
		values     []float64
		mean, half float64
	}{
		{[]float64{5}, 5, math.NaN()},
		{[]float64{1, 3}, 2, 12.706205},
		{[]float64{1, 2, 3}, 2, 4.302653 / math.Sqrt(3)},
		{[]float64{4, 4, 4, 4}, 4, 0},
	} {
		got := IntervalOf(c.values)
		if got.Mean != c.mean || math.Abs(got.Half-c.half) > 1e-9 || math.IsNaN(got.Half) != math.IsNaN(c.half) {
			t.Errorf("%v: %v, want %v ± %v", c.values, got, c.mean, c.half)
		}
	}
}
