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

// predictAll simulates all workloads of the figures. Those of Fig. 4-5 have their programs' starts from what the
// programs took alone on the same cluster meanwhile, if that was measured: the profile has the shortest start
// that was seen, and a machine that is busy lengthens each.
func (m *measured) predictAll() error {
	m.predicted = map[string]outcome{}
	plan := study().Plan(m)
	if err := m.predictBy(&m.Profile, plan); err != nil {
		return err
	}
	for _, c := range clusters {
		own := slices.DeleteFunc(slices.Clone(plan), func(w workload) bool {
			return !slices.ContainsFunc(schemes, func(s *scheme) bool { return w.key == mixKey(c, s) || w.key == lateKey(c, s) })
		})
		p := m.Profile
		p.Start += m.startedLater(c)
		if err := m.predictBy(&p, own); err != nil {
			return err
		}
	}
	return nil
}

func (m *measured) predictBy(p *profile, list []workload) error {
	for _, w := range list {
		out, err := p.predict(w.setting, w.jobs)
		if err != nil {
			return fmt.Errorf("%s: %w", w.key, err)
		}
		m.predicted[w.key] = out
	}
	return nil
}

// startedLater is how much longer programs took alone on a cluster than the profile says, in seconds; 0 if that
// was not measured.
func (m *measured) startedLater(c *cluster) float64 {
	var more []float64
	for _, a := range []*app{&mm, &nw, &adfa} {
		if key := dedicatedKey(c, a.name); m.Has(key) {
			more = append(more, m.Median(key)-m.predicted[key].Seconds)
		}
	}
	if len(more) == 0 {
		return 0
	}
	return max(0, exp.Median(more))
}
