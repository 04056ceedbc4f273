package exp

import (
	"math"
	"testing"
)

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
