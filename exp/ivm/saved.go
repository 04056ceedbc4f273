package ivm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/exp/bench"
)

// measured is all that was measured. It can be kept in a file.
type measured struct {
	Version int      `json:"version"`
	Machine string   `json:"machine"` // in a few words
	Scale   int      `json:"scale"`
	Figures []string `json:"figures"`
	Seeds   []uint64 `json:"seeds"`
	Missing string   `json:"missing,omitempty"` // what an interrupt prevented

	Outcomes map[string][]outcome `json:"outcomes"` // one a seed
}

const savedVersion = 1

func newMeasured(seeds []uint64) *measured {
	return &measured{Version: savedVersion, Machine: bench.Machine(), Scale: defaultScale, Seeds: seeds, Outcomes: map[string][]outcome{}}
}

func load(path string) (*measured, error) {
	m := &measured{}
	return m, bench.Load(path, m, m.check)
}

// check says what is wrong with numbers that come from a file.
func (m *measured) check() error {
	switch {
	case m.Version != savedVersion:
		return fmt.Errorf("version %d: this program reads version %d", m.Version, savedVersion)
	case len(m.Seeds) == 0 || len(m.Figures) == 0 || m.Scale < 1 || m.Scale > maxScale:
		return errors.New("nothing was measured")
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

// keep drops what an interrupt left incomplete, and notes it in Missing. It says whether anything is left.
func (m *measured) keep(chosen []figure) bool {
	var complete, missing []string
	runs := len(m.Seeds)
	for _, f := range chosen {
		least := len(m.Seeds)
		for _, one := range f.plan() {
			least = min(least, len(m.Outcomes[one.key]))
		}
		if least == 0 {
			missing = append(missing, f.name)
			continue
		}
		complete, runs = append(complete, f.name), min(runs, least)
	}
	var notes []string
	if len(missing) > 0 {
		notes = append(notes, "figures "+strings.Join(missing, ", "))
	}
	if later := len(m.Seeds) - runs; later > 0 {
		notes = append(notes, "the last "+exp.Plural(later, "seed"))
	}
	kept := map[string][]outcome{}
	for _, f := range chosen {
		for _, one := range f.plan() {
			if slices.Contains(complete, f.name) {
				kept[one.key] = m.Outcomes[one.key][:runs]
			}
		}
	}
	m.Figures, m.Outcomes, m.Seeds, m.Missing = complete, kept, m.Seeds[:runs], strings.Join(notes, "; ")
	return len(complete) > 0
}

func (m *measured) has(keys ...string) bool {
	for _, k := range keys {
		if len(m.Outcomes[k]) == 0 {
			return false
		}
	}
	return true
}

// values are something of all runs of a measurement.
func (m *measured) values(key string, of func(*outcome) float64) []float64 {
	return exp.Values(m.Outcomes[key], of)
}

func (m *measured) seconds(key string) []float64 {
	return m.values(key, func(o *outcome) float64 { return o.Seconds })
}

// speedups are how many times as fast one measurement is as another, run by run.
func (m *measured) speedups(key, over string) []float64 {
	a, b := m.seconds(key), m.seconds(over)
	all := make([]float64, len(a))
	for i := range a {
		all[i] = b[i] / a[i]
	}
	return all
}

// speedup is the median of them.
func (m *measured) speedup(key, over string) float64 { return median(m.speedups(key, over)) }

// median of a few times is not moved by one that was disturbed.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// row is of the median.
func row(part, metric, unit string, values []float64) exp.Row {
	r := exp.Over(part, metric, unit, values)
	r.Ours, r.HalfWidth = median(values), nil // the interval would be that of the mean
	return r
}
