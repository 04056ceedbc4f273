package exp

import (
	"context"
	"fmt"
	"slices"

	"muster/report"
)

// Trials are the scenarios of an experiment. Each is run once per seed, however many parts of the
// experiment ask for it. The zero value has no scenarios.
type Trials[Scenario comparable, Outcome any] struct {
	// Wanted lists the scenarios to run, in the order in which they were first asked for.
	Wanted []Scenario
	// Found has the outcomes of each scenario, one per seed. A scenario that was not run with all
	// seeds has no entry.
	Found map[Scenario][]Outcome
}

// Want asks for scenarios to be run.
func (t *Trials[Scenario, Outcome]) Want(list ...Scenario) {
	if t.Found == nil {
		t.Found = map[Scenario][]Outcome{}
	}
	for _, s := range list {
		if _, known := t.Found[s]; !known {
			t.Found[s] = nil
			t.Wanted = append(t.Wanted, s)
		}
	}
}

// Run runs all wanted scenarios with all seeds, and returns those that were incomplete when the
// context ended. weight is the amount of work of one run, for the progress bar.
func (t *Trials[Scenario, Outcome]) Run(ctx context.Context, o Options, seeds []uint64, weight func(Scenario) int64,
	one func(context.Context, Scenario, uint64) (Outcome, error)) (missing []Scenario, err error) {
	results := make([][]Outcome, len(t.Wanted))
	var tasks []Task
	for i, s := range t.Wanted {
		results[i] = make([]Outcome, len(seeds))
		for k, seed := range seeds {
			tasks = append(tasks, Task{Weight: weight(s), Do: func(ctx context.Context) (err error) {
				if results[i][k], err = one(ctx, s, seed); err != nil {
					return fmt.Errorf("%v, seed %d: %w", s, seed, err)
				}
				return nil
			}})
		}
	}
	done, err := o.Each(ctx, tasks)
	if err != nil {
		return nil, err
	}
	for i, s := range t.Wanted {
		if slices.Contains(done[i*len(seeds):(i+1)*len(seeds)], false) {
			delete(t.Found, s)
			missing = append(missing, s)
		} else {
			t.Found[s] = results[i]
		}
	}
	return missing, nil
}

// Values extracts a number from each outcome.
func Values[Outcome any](list []Outcome, of func(*Outcome) float64) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		out[i] = of(&list[i])
	}
	return out
}

// Ratios divides two lists of values, run by run.
func Ratios(values, over []float64) []float64 {
	out := make([]float64, len(values))
	for i := range values {
		out[i] = values[i] / over[i]
	}
	return out
}

// Mean is the sum over the number.
func Mean(values []float64) float64 { return report.IntervalOf(values).Mean }

// Median is the value in the middle. That of a few times is not moved by one that was disturbed.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// OverMedian is Over with the median in place of the mean, because measured times have outliers.
// The row has no confidence interval, since ours is for means.
func OverMedian(part, metric, unit string, values []float64) Row {
	r := Over(part, metric, unit, values)
	r.Ours, r.HalfWidth = Median(values), nil
	return r
}
