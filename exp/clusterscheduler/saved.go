package clusterscheduler

import (
	"fmt"
	"slices"

	"muster/exp"
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

// check validates numbers that were read from a file.
func (m *measured) check() error {
	good := func(v float64) bool { return v > 1e-9 && v < 1e9 } // NaN fails both comparisons
	if err := m.CheckVersion(savedVersion); err != nil {
		return err
	}
	if !(m.Profile.Start >= 0 && m.Profile.Start < 1e3) || !(m.Profile.EachStarts >= 0 && m.Profile.EachStarts < 1e3) {
		return fmt.Errorf("a start of %v s and %v s", m.Profile.Start, m.Profile.EachStarts)
	}
	for _, a := range profiled {
		for _, h := range kinds() {
			if !good(m.Profile.Unit[a.name][h.cards[0].Name]) {
				return fmt.Errorf("the profile of %s has nothing for a %s", a.name, h.cards[0].Name)
			}
		}
	}
	for key, list := range m.Outcomes {
		for _, o := range list {
			if !good(o.Seconds) || !(o.Late >= 0 && o.Late < 1e3) {
				return fmt.Errorf("%s: %+v", key, o)
			}
			for _, j := range o.Jobs {
				if !good(j.Run) || !(j.Wait >= -1 && j.Wait < 1e9) {
					return fmt.Errorf("%s: %+v", key, j)
				}
			}
		}
	}
	return m.complete()
}

// complete says whether all workloads of the figures are present.
func (m *measured) complete() error {
	for _, name := range m.Figures {
		at := slices.IndexFunc(figures(), func(f figure) bool { return f.name == name })
		if at < 0 {
			return fmt.Errorf("there is no figure %q", name)
		}
		for _, w := range figures()[at].plan() {
			list := m.Outcomes[w.key]
			if len(list) != len(m.Seeds) {
				return fmt.Errorf("%s was measured %d times, with %d seeds", w.key, len(list), len(m.Seeds))
			}
			for i := range list {
				if len(list[i].Jobs) != len(w.jobs) {
					return fmt.Errorf("%s has %d jobs, not %d", w.key, len(list[i].Jobs), len(w.jobs))
				}
			}
		}
	}
	return nil
}

// predictAll simulates all workloads of the figures.
func (m *measured) predictAll(chosen []figure) error {
	m.predicted = map[string]outcome{}
	for _, f := range chosen {
		for _, w := range f.plan() {
			out, err := m.Profile.predict(w.setting, w.jobs)
			if err != nil {
				return fmt.Errorf("%s: %w", w.key, err)
			}
			m.predicted[w.key] = out
		}
	}
	return nil
}

// seconds are the times of a workload, one per seed.
func (m *measured) seconds(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return o.Seconds })
}

// median is the median time of a workload.
func (m *measured) median(key string) float64 { return exp.Median(m.seconds(key)) }

// ratios divides the times of two workloads, run by run.
func (m *measured) ratios(key, over string) []float64 {
	return exp.Ratios(m.seconds(key), m.seconds(over))
}

// ratio is the mean of ratios.
func (m *measured) ratio(key, over string) float64 {
	return exp.Mean(m.ratios(key, over))
}
