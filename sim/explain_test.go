package sim

import (
	"testing"
	"time"
)

// A moment that a run does not reach is named, with what the run had instead.
func TestUnexplained(t *testing.T) {
	run := func(steps int, explained ...Explained) RunOf {
		return RunOf{Point{Policy: "fcfs"}, &Result{Steps: steps, LastStep: 90 * time.Second, Explained: explained}}
	}
	moments := []Moment{{Step: 1}, {Step: 7}}
	for _, c := range []struct {
		run  RunOf
		at   int
		want string
	}{
		{run(7, Explained{Step: 1}, Explained{Step: 7}), -1, ""},
		{run(6, Explained{Step: 1}), 1, "the run of fcfs had 6 steps, the last at 00:01:30"},
		{run(0), 0, "the run of fcfs had no step"},
	} {
		if at, why := Unexplained([]RunOf{c.run}, moments); at != c.at || why != c.want {
			t.Errorf("%d %q, want %d %q", at, why, c.at, c.want)
		}
	}
}
