package slurm_test

import (
	"testing"
	"time"

	"muster/policy/catalog"
	"muster/slurm"
)

// Tasks that cannot be divided equally among a job's nodes: what Slurm will not take is free for others
// from the placement on, and nothing more is.
func TestUnevenSplits(t *testing.T) {
	for _, x := range []struct {
		name     string
		balanced bool
		tasks    int
		per      int // processors of each
		nodes    int
		next     []int // jobs of one node that come then, by their processors
		want     int   // how many of them are placed
	}{
		{"5 on 2 are 3 and 2", true, 5, 1, 2, []int{2, 1}, 2},
		{"not 2 and 2", true, 5, 1, 2, []int{2, 2}, 1},
		{"5 on 2 are 3 and 3", false, 5, 1, 2, []int{2, 1}, 1},
		{"7 on 3 are 3, 2 and 2", true, 7, 1, 3, []int{2, 2, 1}, 3},
		{"3 with 2 each on 2 are 4 and 2", true, 3, 2, 2, []int{2}, 1},
		{"4 on 2", true, 4, 1, 2, []int{2, 2}, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := newFake(t, 1, x.nodes, 4, 0)
			p, err := catalog.New("first-fit")
			if err != nil {
				t.Fatal(err)
			}
			c := slurm.New(slurm.Config{Settle: time.Nanosecond, Balanced: x.balanced}, p)
			replays := record(t, c, "first-fit")
			step := func() (placed int) {
				f.now += time.Second
				c.Observe(f.now, f.picture())
				c.Step(f.now)
				e := c.Take()
				f.perform(c, e, false) // and nothing starts
				return len(e.Places)
			}
			step()
			j := f.submit("muster:req", x.nodes, 1, time.Hour)
			j.Tasks, j.CPUsPerTask, j.CPUs = x.tasks, x.per, x.tasks*x.per
			if step() != 1 {
				t.Fatal("it was not placed")
			}
			for _, cpus := range x.next {
				f.submit("muster:req", 1, cpus, time.Hour)
			}
			if got := step(); got != x.want {
				t.Errorf("%d of %v have room beside it, want %d", got, x.next, x.want)
			}
			replays()
		})
	}
}
