package model

import (
	"math"
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	for _, tc := range []struct{ at, span, want time.Duration }{
		{0, 0, 0}, {2, 3, 5}, {5, math.MaxInt64, math.MaxInt64}, {math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64 - 1, 1, math.MaxInt64},
	} {
		if got := After(tc.at, tc.span); got != tc.want {
			t.Errorf("After(%d, %d) = %d, want %d", tc.at, tc.span, got, tc.want)
		}
	}
}
