package noderuntime

import (
	"fmt"
	"slices"

	"muster/exp/bench"
)

// measured holds all measurements. It can be stored in a file.
type measured struct {
	bench.Record[outcome]
	All     bool   `json:"all"`                // all points of these figures were measured
	Scale   int    `json:"scale"`              // the divisor of the paper's numbers of iterations
	LeftOut string `json:"left_out,omitempty"` // figures that were left out, and why

	Alone    map[string]alone `json:"alone"`    // by a program's name
	Addition float64          `json:"addition"` // seconds for a vector addition on a GTX 480
}

const savedVersion = 1

func newMeasured(seeds []uint64) *measured {
	return &measured{Record: bench.NewRecord[outcome](savedVersion, seeds), Scale: defaultScale, Alone: map[string]alone{}}
}

// chosen are the points of a figure that are measured: some, or all.
func (m *measured) chosen(some, all []int) []int {
	if m.All {
		return all
	}
	return some
}

// check validates what was read from a file, beside the measurements.
func (m *measured) check() error {
	good := func(v float64) bool { return v > 1e-9 && v < 1e9 } // so that ratios are finite; NaN fails both comparisons
	switch {
	case m.Scale < 1 || m.Scale > maxScale:
		return fmt.Errorf("scale %d: it must be from 1 to %d", m.Scale, maxScale)
	case m.Addition != 0 && !good(m.Addition):
		return fmt.Errorf("an addition of %v s", m.Addition)
	}
	for name, a := range m.Alone {
		if !good(a.Seconds) || !good(a.Kernel) || !good(a.Copy) || a.Kernels == 0 {
			return fmt.Errorf("program %s: %+v", name, a)
		}
	}
	for _, f := range figures() {
		if f.mpi && m.Addition == 0 && slices.Contains(m.Figures, f.Name) {
			return fmt.Errorf("figure %s without the time of an addition", f.Name)
		}
	}
	return nil
}
