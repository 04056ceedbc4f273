package ivm

import (
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

// check validates numbers that were read from a file.
func (m *measured) check() error {
	if err := m.CheckVersion(savedVersion); err != nil {
		return err
	}
	if m.Scale < 1 || m.Scale > maxScale {
		return fmt.Errorf("scale %d: it must be from 1 to %d", m.Scale, maxScale)
	}
	for key, list := range m.Outcomes {
		for _, o := range list {
			switch {
			case !(o.Seconds > 1e-9 && o.Seconds < 1e6) || !(o.Late >= 0 && o.Late < 1e3) || !(o.Created >= 0 && o.Created < 1e3):
				return fmt.Errorf("%s: %+v", key, o)
			case len(o.Work) != 0 && len(o.Work) != len(hosts) || len(o.Hosts) != 0 && len(o.Hosts) != len(hosts) || slices.ContainsFunc(o.Work, func(n int64) bool { return n < 0 }):
				return fmt.Errorf("%s: work %v, hosts %v", key, o.Work, o.Hosts)
			}
		}
	}
	for _, name := range m.Figures {
		at := slices.IndexFunc(figures(), func(f figure) bool { return f.name == name })
		if at < 0 {
			return fmt.Errorf("there is no figure %q", name)
		}
		for _, one := range figures()[at].plan() {
			list := m.Outcomes[one.key]
			if len(list) != len(m.Seeds) {
				return fmt.Errorf("%s was measured %d times, with %d seeds", one.key, len(list), len(m.Seeds))
			}
			if one.mpi == 0 && slices.ContainsFunc(list, func(o outcome) bool { return o.Work == nil || o.Hosts == nil }) {
				return fmt.Errorf("%s does not say who did the work", one.key)
			}
			if one.program == "ivm-himeno" && slices.ContainsFunc(list, func(o outcome) bool { return len(o.Deviations) != iterations }) {
				return fmt.Errorf("%s does not have the deviations of %d iterations", one.key, iterations)
			}
		}
	}
	return nil
}

func (m *measured) seconds(key string) []float64 {
	return m.Values(key, func(o *outcome) float64 { return o.Seconds })
}

// speedups are the times of over divided by those of key, run by run.
func (m *measured) speedups(key, over string) []float64 {
	return exp.Ratios(m.seconds(over), m.seconds(key))
}

// speedup is the median of speedups.
func (m *measured) speedup(key, over string) float64 { return exp.Median(m.speedups(key, over)) }
