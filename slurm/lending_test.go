package slurm_test

import (
	"strings"
	"testing"
	"time"

	"muster/slurm"
)

// A node with several GPUs some of which Slurm allocates does not lend others at the same time:
// Slurm would choose by itself which ones it gives.
func TestGPUsOfSlurmAndLentOnesDoNotMix(t *testing.T) {
	for _, lentFirst := range []bool{true, false} {
		f := newFake(t, 1, 2, 4, 0)
		f.nodes[0].GPUs = 2
		f.lends = map[string]bool{"n1": true}
		c := newCore(t, "easy", true)
		borrower := f.submit("muster:req rgpu=1", 1, 1, time.Hour)
		own := f.submit("muster:req", 1, 1, time.Hour)
		own.TRESPerNode = "gres/gpu:1"
		first, second := borrower, own
		if !lentFirst {
			first, second = own, borrower
		}
		second.Eligible = f.now + time.Minute
		round := func() {
			c.Observe(f.now, f.picture())
			c.Step(f.now)
			f.perform(c, c.Take(), false)
			f.tick(5 * time.Second)
			if own.State == "RUNNING" {
				own.Uses[0].GPUs = 1
			}
		}
		for range 15 {
			round()
		}
		if first.State != "RUNNING" || !second.Held || !strings.Contains(c.Why(second.ID), "node n1 lends some of its GPUs, and Slurm gives out others") {
			t.Errorf("the first is %s, the second waits: %q", first.State, c.Why(second.ID))
		}
		first.end = f.now
		for range 15 {
			round()
		}
		if second.State != "RUNNING" {
			t.Errorf("the second waits: %q", c.Why(second.ID))
		}
	}
}

// A job that asks for GPUs in both ways, or for more than a program can have, waits and says what
// to change.
func TestBorrowersThatMakeNoSense(t *testing.T) {
	f := newFake(t, 1, 2, 4, 0)
	f.lends = map[string]bool{"n1": true, "n2": true}
	c := newCore(t, "easy", true)
	both := f.submit("muster:req rgpu=1", 1, 1, time.Hour)
	both.TRESPerNode = "gres/gpu:1"
	many := f.submit("muster:req rgpu=17", 1, 1, time.Hour)
	for range 3 {
		c.Observe(f.now, f.picture())
		c.Step(f.now)
		f.perform(c, c.Take(), false)
		f.tick(5 * time.Second)
	}
	for j, want := range map[*fakeJob]string{
		both: "it asks for borrowed GPUs, and GPUs of its own nodes (--gres=gpu) besides: change it with scontrol update, or cancel it",
		many: "it asks for borrowed GPUs, and a program has at most 16 of them, not 17: change it with scontrol update, or cancel it",
	} {
		if got := c.Why(j.ID); got != want || !j.Held {
			t.Errorf("it waits: %q", got)
		}
	}
}

// A job becomes the alternative that was chosen, in Slurm's own terms.
func TestAlternativeIsChosen(t *testing.T) {
	f := newFake(t, 1, 2, 4, 0)
	f.lends = map[string]bool{}
	c := newCore(t, "auction", true)
	j := f.submit("muster:req rgpu=1 or=-n%20three or=-N%202%20-n%206%20-t%205", 1, 1, time.Hour)
	j.Licences = "matlab:1,rgpu:1"
	var placed *slurm.Place
	for range 4 {
		c.Observe(f.now, f.picture())
		c.Step(f.now)
		e := c.Take()
		for i := range e.Places {
			placed = &e.Places[i]
		}
		f.now += 5 * time.Second
	}
	if placed == nil || placed.As == nil || placed.As.Tasks != 6 || placed.As.CPUs != 6 || placed.As.TimeLimit != 5*time.Minute || *placed.As.Licences != "matlab:1" ||
		len(placed.Nodes) != 2 || placed.CPUsPerNode != 3 || !strings.HasPrefix(placed.Comment, "muster:req as=2 was=- muster:got ") || placed.Borrows != nil {
		t.Fatalf("placed: %+v", placed)
	}
	// Slurm refuses: the job asks again for what it asked for before.
	c.Told(f.now, j.ID, slurm.Refused, slurm.ErrNotLent)
	c.Explain(f.now+time.Minute, 10, 0)
	if e := c.Take(); len(e.Comments) != 1 || !strings.HasPrefix(e.Comments[0].Comment, "muster:req rgpu=1 or=-n%20three or=") {
		t.Errorf("the comment is %+v", e.Comments)
	}
}

// A job that Muster does not place has a GPU of a node that lends: it counts as taken, and the
// node's others are not lent either, since Slurm chooses which it gives next. If Slurm gives one
// that is lent, the driver says so, and places nothing more there.
func TestGPUsOfJobsThatMusterDoesNotPlace(t *testing.T) {
	for _, uneven := range []bool{false, true} { // such a job is in the book node by node
		f := newFake(t, 1, 3, 4, 0)
		f.nodes[0].GPUs, f.nodes[1].GPUs = 2, 1
		f.lends = map[string]bool{"n1": true, "n2": true}
		c := newCore(t, "easy", true)
		own := f.submit("", 2, 1, time.Hour)
		f.tick(time.Second)
		own.Uses = []slurm.Use{{Node: "n1", CPUs: 1, GPUs: 2}, {Node: "n2", CPUs: 1, GPUs: 1}}
		if uneven {
			own.Uses[1].Memory, own.Uses[0].CPUs, own.Uses[1].GPUs = 5<<20, 2, 0
			own.Uses[1] = slurm.Use{Node: "n3", CPUs: 1}
			f.lends = map[string]bool{"n1": true}
		}
		borrower := f.submit("muster:req rgpu=1", 1, 1, time.Hour)
		f.steps(c, 20)
		if borrower.State != "PENDING" {
			t.Errorf("uneven %t: it borrows a GPU: %s", uneven, borrower.AdminComment)
		}
		own.State, own.end = "COMPLETED", f.now
		f.stop(own)
		f.steps(c, 40)
		if borrower.State != "RUNNING" {
			t.Errorf("uneven %t: it waits: %s", uneven, c.Why(borrower.ID))
		}
	}
}

func TestSlurmGivesALentGPU(t *testing.T) {
	f := newFake(t, 1, 1, 4, 0)
	f.nodes[0].GPUs = 2
	f.lends = map[string]bool{"n1": true}
	c := newCore(t, "easy", true)
	borrower := f.submit("muster:req rgpu=1", 1, 1, time.Hour)
	f.steps(c, 8)
	if borrower.State != "RUNNING" {
		t.Fatal(c.Why(borrower.ID))
	}
	own := f.submit("", 1, 1, time.Hour)
	f.tick(time.Second)
	own.Uses = []slurm.Use{{Node: "n1", CPUs: 1, GPUs: 3}}
	c.Observe(f.now, f.picture())
	if notes := strings.Join(c.Take().Notes, "\n"); c.Counts().Clashes != 1 || !strings.Contains(notes, "Slurm has given job 2 GPU n1:0, which is lent to job 1") {
		t.Errorf("%+v: %s", c.Counts(), notes)
	}
}

// If nodes lend GPUs that Slurm knows, a job that asks for Slurm's is not left to Slurm's
// scheduler, neither because it is not understood nor when the driver ends.
func TestJobsWithGPUsAreNotLeftToSlurm(t *testing.T) {
	for _, lends := range []bool{true, false} {
		f := newFake(t, 1, 1, 4, 0)
		f.nodes[0].GPUs = 1
		f.lends = map[string]bool{"n1": lends}
		c := newCore(t, "easy", true)
		j := f.submit("muster:req", 1, 1, time.Hour)
		j.TRESPerNode, j.Features = "gres/gpu:1", "big"
		plain := f.submit("muster:req", 1, 1, time.Hour)
		plain.TRESPerNode, plain.Eligible = "gres/gpu:1", f.now+time.Hour
		f.steps(c, 5)
		if j.Held != lends || len(c.Held("")) == 1 == lends {
			t.Errorf("lends %t: held %t, handed over at the end: %v; %s", lends, j.Held, c.Held(""), c.Why(j.ID))
		}
	}
}
