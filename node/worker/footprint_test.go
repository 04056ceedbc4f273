package worker

import (
	"math"
	"testing"
)

func TestFootprint(t *testing.T) {
	for _, c := range []struct {
		f    footprint
		want uint64
	}{
		{footprint{}, 0},
		{footprint{memory: 64 * mib}, 64 * mib},
		{footprint{memory: 64 * mib, images: 16 * mib}, 64 * mib}, // what every program may have
		{footprint{memory: 64 * mib, images: 16*mib + 1}, 64*mib + 1},
		{footprint{images: 10 * mib, variables: 5 * mib, waiting: 4 * mib}, 3 * mib},
		{footprint{images: 4096 * mib}, 4080 * mib},
		{footprint{memory: 1, images: math.MaxUint64, waiting: 2}, math.MaxUint64 - freeFootprint + 1},
		{footprint{memory: math.MaxUint64, images: 32 * mib}, math.MaxUint64},
	} {
		if got := c.f.bytes(); got != c.want {
			t.Errorf("%+v: %d bytes, want %d", c.f, got, c.want)
		}
	}
}
