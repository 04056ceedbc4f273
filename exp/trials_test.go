package exp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/report"
)

// Scenarios run once for each seed, however often they are asked for.
func TestTrials(t *testing.T) {
	var trials Trials[string, float64]
	trials.Want("b", "a")
	trials.Want("a", "c", "b")
	if !slices.Equal(trials.Wanted, []string{"b", "a", "c"}) {
		t.Errorf("wanted: %v", trials.Wanted)
	}
	runs := 0
	one := func(_ context.Context, s string, seed uint64) (float64, error) {
		runs++
		return float64(len(s)) + float64(seed), nil
	}
	missing, err := trials.Run(t.Context(), Options{Workers: 1}, []uint64{4, 5}, func(string) int64 { return 1 }, one)
	if err != nil || missing != nil || runs != 6 {
		t.Errorf("%d runs, missing %v, %v", runs, missing, err)
	}
	if got := Values(trials.Found["c"], func(v *float64) float64 { return 2 * *v }); !slices.Equal(got, []float64{10, 12}) {
		t.Errorf("found: %v", got)
	}
}

// A scenario that was not run with all seeds when the context ended is reported missing and has no
// entry in Found.
func TestTrialsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var trials Trials[string, int]
	trials.Want("a", "b", "c")
	one := func(ctx context.Context, s string, seed uint64) (int, error) {
		if s == "b" && seed == 2 {
			cancel()
		}
		return int(seed), ctx.Err()
	}
	missing, err := trials.Run(ctx, Options{Workers: 1}, []uint64{1, 2}, func(string) int64 { return 1 }, one)
	if err != nil || !slices.Equal(missing, []string{"b", "c"}) {
		t.Errorf("missing %v, %v", missing, err)
	}
	if _, known := trials.Found["b"]; known || !slices.Equal(trials.Found["a"], []int{1, 2}) {
		t.Errorf("found: %v", trials.Found)
	}
}

// An error names the scenario and the seed that failed.
func TestTrialsFail(t *testing.T) {
	var trials Trials[string, int]
	trials.Want("good", "bad")
	broken := errors.New("broken")
	_, err := trials.Run(t.Context(), Options{Workers: 1}, []uint64{7}, func(string) int64 { return 1 }, func(_ context.Context, s string, _ uint64) (int, error) {
		if s == "bad" {
			return 0, broken
		}
		return 1, nil
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad, seed 7") {
		t.Errorf("%v", err)
	}
}

// A bar stands at the middle of its runs, between the least and the most.
func TestBars(t *testing.T) {
	points := [][]float64{{1, 2, 9}, {4}}
	for name, c := range map[string]struct {
		got  report.BarSeries
		want []float64
	}{"median": {MedianBars("a", points), []float64{2, 4}}, "mean": {MeanBars("a", points), []float64{4, 4}}} {
		if s := c.got; s.Name != "a" || !slices.Equal(s.Values, c.want) || !slices.Equal(s.Lo, []float64{1, 4}) || !slices.Equal(s.Hi, []float64{9, 4}) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
