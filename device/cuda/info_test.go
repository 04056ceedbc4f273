package cuda

import (
	"math"
	"testing"

	"muster/device"
)

func TestSpeedOrdersDevices(t *testing.T) {
	kinds := []struct {
		name                   string
		major, minor           int
		multiprocessors, clock int
	}{
		{"T4", 7, 5, 40, 1_590_000},
		{"V100", 7, 0, 80, 1_530_000},
		{"A100", 8, 0, 108, 1_410_000},
		{"L4", 8, 9, 58, 2_040_000},
		{"H200", 9, 0, 132, 1_980_000},
	}
	before := 0.0
	for _, k := range kinds {
		s := speed(device.Compute{Major: k.major, Minor: k.minor}, k.multiprocessors, k.clock)
		if s <= before {
			t.Errorf("%s has speed %g, no more than the one before it (%g)", k.name, s, before)
		}
		before = s
	}
	if math.Abs(before-1) > 1e-9 {
		t.Errorf("the reference has speed %g", before)
	}
	if s := speed(device.Compute{}, 0, 0); !(s > 0) {
		t.Errorf("a device that tells nothing has speed %g", s)
	}
}
