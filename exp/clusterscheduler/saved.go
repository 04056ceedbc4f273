package clusterscheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/exp"
	"muster/exp/bench"
	"muster/report"
)

// measured is all that was measured. It can be kept in a file.
type measured struct {
	Version int      `json:"version"`
	Machine string   `json:"machine"` // in a few words
	Figures []string `json:"figures"`
	Seeds   []uint64 `json:"seeds"`
	Missing string   `json:"missing,omitempty"` // what an interrupt prevented

	Profile  profile              `json:"profile"`
	Outcomes map[string][]outcome `json:"outcomes"` // one a seed

	// predicted is what the simulator says of the same workloads.
	predicted map[string]outcome
}

const savedVersion = 1

func newMeasured(seeds []uint64) *measured {
	return &measured{Version: savedVersion, Machine: bench.Machine(), Seeds: seeds, Outcomes: map[string][]outcome{}}
}

func (m *measured) save(path string) error { return bench.Save(path, m) }

func load(path string) (*measured, error) {
	m := &measured{}
	return m, bench.Load(path, m, m.check)
}

// decode reads what save wrote, and nothing else.
func decode(text []byte) (*measured, error) {
	m := &measured{}
	return m, bench.Decode(text, m, m.check)
}

// check says what is wrong with numbers that come from a file.
func (m *measured) check() error {
	good := func(v float64) bool { return v > 1e-9 && v < 1e9 } // what is no number is not good either
	switch {
	case m.Version != savedVersion:
		return fmt.Errorf("version %d: this program reads version %d", m.Version, savedVersion)
	case len(m.Seeds) == 0 || len(m.Figures) == 0:
		return errors.New("nothing was measured")
	case !(m.Profile.Start >= 0 && m.Profile.Start < 1e3) || !(m.Profile.EachStarts >= 0 && m.Profile.EachStarts < 1e3):
		return fmt.Errorf("a start of %v s and %v s", m.Profile.Start, m.Profile.EachStarts)
	}
	for _, a := range profiled {
		for _, h := range kinds() {
			if !good(m.Profile.Unit[a.name][h.cards[0].name]) {
				return fmt.Errorf("the profile of %s has nothing for a %s", a.name, h.cards[0].name)
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

// complete says whether all is there that the figures show.
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

// keep drops what an interrupt left incomplete, and notes it in Missing. It says whether
// anything is left: figures of which all workloads were run with the first seed at least.
func (m *measured) keep(chosen []figure) bool {
	runs := len(m.Seeds)
	var complete, missing []string
	for _, f := range chosen {
		least := len(m.Seeds)
		for _, w := range f.plan() {
			least = min(least, len(m.Outcomes[w.key]))
		}
		if least == 0 {
			missing = append(missing, f.name)
			continue
		}
		complete = append(complete, f.name)
		runs = min(runs, least)
	}
	if len(missing) > 0 {
		m.Missing = "figures " + strings.Join(missing, ", ")
		runs = 1 // of the figures that are complete; all begin with the first seed
	}
	if later := len(m.Seeds) - runs; later > 0 && len(complete) > 0 {
		m.Missing = strings.TrimPrefix(m.Missing+"; the last "+exp.Plural(later, "seed"), "; ")
	}
	kept := map[string][]outcome{}
	for _, f := range chosen {
		for _, w := range f.plan() {
			if slices.Contains(complete, f.name) {
				kept[w.key] = m.Outcomes[w.key][:runs]
			}
		}
	}
	m.Figures, m.Outcomes, m.Seeds = complete, kept, m.Seeds[:min(runs, len(m.Seeds))]
	return len(complete) > 0
}

// predictAll asks the simulator for all workloads of some figures.
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

// seconds are the times of a workload, one a seed.
func (m *measured) seconds(key string) []float64 {
	return exp.Values(m.Outcomes[key], func(o *outcome) float64 { return o.Seconds })
}

// median is the one in the middle: of a few times it is not moved by one that was disturbed.
func (m *measured) median(key string) float64 {
	all := slices.Sorted(slices.Values(m.seconds(key)))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// ratios are the times of one workload over those of another, run by run.
func (m *measured) ratios(key, over string) []float64 {
	a, b := m.seconds(key), m.seconds(over)
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return all
}

// ratio is the mean of them.
func (m *measured) ratio(key, over string) float64 {
	return report.IntervalOf(m.ratios(key, over)).Mean
}

func (m *measured) has(key string) bool { return len(m.Outcomes[key]) > 0 }
