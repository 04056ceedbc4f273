package clusterscheduler

import (
	"fmt"
	"slices"

	"muster/exp/bench"
)

// measured holds all measurements. It can be stored in a file.
type measured struct {
	bench.Record[outcome]
	Profile profile `json:"profile"`

	// predicted has the simulator's predictions for the same workloads.
	predicted map[string]outcome
}

const savedVersion = 1

func newMeasured(seeds []uint64) *measured {
	return &measured{Record: bench.NewRecord[outcome](savedVersion, seeds)}
}

// good says whether a number that was read from a file can be a time.
func good(v float64) bool { return v > 1e-9 && v < 1e9 } // NaN fails both comparisons

// check validates what was read from a file, beside the measurements.
func (m *measured) check() error {
	if !(m.Profile.Start >= 0 && m.Profile.Start < 1e3) || !(m.Profile.EachStarts >= 0 && m.Profile.EachStarts < 1e3) {
		return fmt.Errorf("a start of %v s and %v s", m.Profile.Start, m.Profile.EachStarts)
	}
	for _, a := range profiled {
		for _, c := range cards {
			if !good(m.Profile.Unit[a.name][c.Name]) {
				return fmt.Errorf("the profile of %s has nothing for a %s", a.name, c.Name)
			}
		}
	}
	return nil
}

// good says whether an outcome that was read from a file can be.
func (o *outcome) good() bool {
	return !slices.ContainsFunc(o.Jobs, func(j jobOutcome) bool { return !good(j.Run) || !(j.Wait >= -1 && j.Wait < 1e9) })
}

// fits says what is wrong with outcomes that are not of this workload.
func (w *workload) fits(list []outcome) error {
	for i := range list {
		if len(list[i].Jobs) != len(w.jobs) {
			return fmt.Errorf("has %d jobs, not %d", len(list[i].Jobs), len(w.jobs))
		}
	}
	return nil
}

// predictAll simulates all workloads of the figures.
func (m *measured) predictAll() error {
	m.predicted = map[string]outcome{}
	for _, w := range study().Plan(m) {
		out, err := m.Profile.predict(w.setting, w.jobs)
		if err != nil {
			return fmt.Errorf("%s: %w", w.key, err)
		}
		m.predicted[w.key] = out
	}
	return nil
}
