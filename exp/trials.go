package exp

import (
	"context"
	"fmt"
	"slices"

	"muster/report"
)

// Trials are scenarios of an experiment, each of which is run once for every seed,
// whatever number of parts ask for it. The zero value has none.
type Trials[Scenario comparable, Outcome any] struct {
	// Wanted are those to run, in the order in which they were first asked for.
	Wanted []Scenario
	// Found has the outcome of each seed; of scenarios that were not run to the end
	// there is nothing.
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

// Run makes all runs that are wanted, and says which scenarios are missing when
// the context ended before. Weight is how much work a run of a scenario is.
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

// Values are a number of each outcome.
func Values[Outcome any](list []Outcome, of func(*Outcome) float64) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		out[i] = of(&list[i])
	}
	return out
}

// Ratios are values over others, run by run.
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

// OverMedian is Over with the median in place of the mean: measured times have outliers. It has no
// confidence interval, which would be that of the mean.
func OverMedian(part, metric, unit string, values []float64) Row {
	r := Over(part, metric, unit, values)
	r.Ours, r.HalfWidth = Median(values), nil
	return r
}
