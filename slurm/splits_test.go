package slurm_test

import (
	"testing"
	"time"

	"muster/policy/catalog"
	"muster/slurm"
)

// Tasks that cannot be divided equally among a job's nodes: what Slurm will not take is free for
// other jobs from the placement on, and nothing else is.
func TestUnevenSplits(t *testing.T) {
	for _, x := range []struct {
		name     string
		balanced bool
		tasks    int
		per      int // processors of each
		nodes    int
		next     []int // jobs of one node that arrive then, by their processors
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

// A job that asks for more processors than a node has, and for no number of nodes, gets them
// wherever they are free: what others leave free is not wasted, and the book has what Slurm takes
// on each node.
func TestCoresAreSpread(t *testing.T) {
	f := newFake(t, 1, 4, 4, 0)
	c := newCore(t, "first-fit", false)
	for range 3 {
		f.submit("muster:req", 1, 3, time.Hour) // a processor of each of three nodes is left
	}
	f.steps(c, 6)
	wide := f.submit("muster:req", 1, 7, time.Hour)
	wide.MinNodes, wide.MaxNodes = 2, 7 // sbatch -n7
	f.steps(c, 3)
	if wide.State != "RUNNING" || len(wide.Uses) != 4 || c.Counts().Uneven != 0 {
		t.Errorf("it is %s on %+v; %+v; %s", wide.State, wide.Uses, c.Counts(), c.Why(wide.ID))
	}
	exact := f.submit("muster:req", 2, 1, time.Hour)
	exact.CPUs, exact.Tasks = 7, 7 // sbatch -N2 -n7
	f.steps(c, 3)
	if exact.State != "PENDING" {
		t.Errorf("a job of two nodes is %s on %+v", exact.State, exact.Uses)
	}
}

// The same if the driver dies after the placement.
func TestSpreadJobsAreFound(t *testing.T) {
	f := newFake(t, 1, 2, 4, 0)
	c := newCore(t, "first-fit", false)
	f.submit("muster:req", 1, 1, time.Hour)
	f.steps(c, 6)
	wide := f.submit("muster:req", 1, 7, time.Hour)
	wide.MinNodes, wide.MaxNodes = 2, 7
	c.Observe(f.now, f.picture())
	c.Step(f.now)
	f.perform(c, c.Take(), false) // Slurm has not started it
	c = newCore(t, "first-fit", false)
	for range 5 {
		c.Observe(f.now, f.picture())
		c.Step(f.now)
		f.now += time.Second
	}
	if s := c.Status(10); s.Placed != 1 || s.Running != 1 || s.Counts.Recalled != 0 {
		t.Errorf("%+v", s)
	}
}

// A job that spreads does not take what is meant for a job that was placed and has not started, nor
// the other way round.
func TestSpreadJobsWaitForOthersToStart(t *testing.T) {
	for _, spreadFirst := range []bool{true, false} {
		f := newFake(t, 1, 2, 4, 0)
		c := newCore(t, "first-fit", false)
		f.steps(c, 6)
		wide := func() *fakeJob {
			j := f.submit("muster:req", 1, 6, time.Hour)
			j.MinNodes, j.MaxNodes = 2, 6
			return j
		}
		small := func() *fakeJob { return f.submit("muster:req", 1, 2, time.Hour) }
		first, second := wide, small
		if !spreadFirst {
			first, second = small, wide
		}
		look := func() int {
			c.Observe(f.now, f.picture())
			c.Step(f.now)
			e := c.Take()
			f.perform(c, e, false)
			f.now += time.Second
			return len(e.Places)
		}
		a := first()
		if look() != 1 {
			t.Fatal("the first is not placed")
		}
		b := second()
		if look() != 0 || look() != 0 {
			t.Errorf("the second is placed before the first has started: %s", c.Why(b.ID))
		}
		f.steps(c, 4)
		if a.State != "RUNNING" || b.State != "RUNNING" || c.Counts().Recalled+c.Counts().Uneven != 0 {
			t.Errorf("they are %s and %s; %+v; %s", a.State, b.State, c.Counts(), c.Why(b.ID))
		}
	}
}
