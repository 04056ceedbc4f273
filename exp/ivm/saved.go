package ivm

import (
	"errors"
	"fmt"
	"slices"

	"muster/exp"
	"muster/exp/bench"
)

// measured holds all measurements. It can be stored in a file.
type measured struct {
	bench.Record[outcome]
	Scale int `json:"scale"`
}

const savedVersion = 1

func newMeasured(seeds []uint64) *measured {
	return &measured{Record: bench.NewRecord[outcome](savedVersion, seeds), Scale: defaultScale}
}

// check validates what was read from a file, beside the measurements.
func (m *measured) check() error {
	if m.Scale < 1 || m.Scale > maxScale {
		return fmt.Errorf("scale %d: it must be from 1 to %d", m.Scale, maxScale)
	}
	return nil
}

// good says whether an outcome that was read from a file can be.
func (o *outcome) good() bool {
	perHost := func(n []int64) bool { return len(n) == 0 || len(n) == len(hosts) }
	return o.Created >= 0 && o.Created < 1e3 && perHost(o.Work) && perHost(o.Hosts) && !slices.ContainsFunc(o.Work, func(n int64) bool { return n < 0 })
}

// fits says what outcomes lack that the program must have reported.
func (one *measurement) fits(list []outcome) error {
	if one.mpi == 0 && slices.ContainsFunc(list, func(o outcome) bool { return o.Work == nil || o.Hosts == nil }) {
		return errors.New("does not say who did the work")
	}
	if one.program == "ivm-himeno" && slices.ContainsFunc(list, func(o outcome) bool { return len(o.Deviations) != iterations }) {
		return fmt.Errorf("does not have the deviations of %d iterations", iterations)
	}
	return nil
}

// speedups are the times of over divided by those of key, run by run.
func (m *measured) speedups(key, over string) []float64 {
	return m.Ratios(over, key)
}

// speedup is the median of speedups.
func (m *measured) speedup(key, over string) float64 { return exp.Median(m.speedups(key, over)) }
