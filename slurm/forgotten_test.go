package slurm_test

import (
	"errors"
	"testing"
	"time"

	"muster/slurm"
)

// round is one round of the driver, five seconds after the last one.
func (f *fake) round(c *slurm.Core) {
	c.Observe(f.now, f.picture())
	c.Step(f.now)
	f.perform(c, c.Take(), false)
	f.tick(5 * time.Second)
	f.check()
}

// A requeued job that waits for the policy, and that a user or a slurmctld without memory releases,
// is held again and continues to wait.
func TestReleasedWhileItWaits(t *testing.T) {
	f := newFake(t, 1, 1, 4, 0)
	f.nodes[0].States = []string{"IDLE", "DRAIN"}
	c := newCore(t, "easy", false)
	j := f.submit("muster:req was=- muster:got 0 1 nodes=n1 rgpu=- grant=- why=it was its turn", 1, 1, time.Second)
	j.Restarts = 1
	f.round(c)
	f.round(c)
	j.Held, j.Reason = false, "None"
	f.round(c)
	if !j.Held {
		t.Error("it is not held")
	}
	f.nodes[0].States = []string{"IDLE"}
	for range 10 {
		f.round(c)
	}
	if f.ended[j.ID] != 1 {
		t.Errorf("it is %+v: %s", j, c.Why(j.ID))
	}
}

// A job that Slurm starts just when it is to be recalled, and that ends before the next listing, has run.
func TestRecalledTooLate(t *testing.T) {
	f := newFake(t, 1, 1, 4, 0)
	c := newCore(t, "easy", true)
	j := f.submit("muster:req", 1, 1, time.Hour)
	f.round(c)
	f.round(c)
	if j.Held {
		t.Fatalf("the job is not placed: %s", c.Why(j.ID))
	}
	f.now += 2 * time.Second
	j.State, j.Nodes, j.Reason = "PENDING", "", "ReqNodeNotAvail"
	c.Observe(f.now, f.picture())
	if e := c.Take(); len(e.Recalls) != 1 {
		t.Fatalf("it is not recalled: %+v", e)
	}
	c.Told(f.now, j.ID, slurm.Refused, errors.New("Job has already finished"))
	f.now += time.Second
	j.State, j.Nodes, j.Reason = "COMPLETED", "n1", "None"
	c.Observe(f.now, f.picture())
	if n := c.Counts(); n.Ended != 1 {
		t.Errorf("%+v", n)
	}
}

// A job that another driver placed, and whose place another job has taken meanwhile, is recalled.
// Its GPU is given to no other job until Slurm says that it is held: Slurm may start it before.
func TestRecalledJobKeepsItsGPU(t *testing.T) {
	f := newFake(t, 1, 2, 4, 0)
	f.lends = map[string]bool{"n2": true}
	c := newCore(t, "easy", true)
	slurms := f.submit("", 1, 4, time.Hour)
	placed := f.submit("muster:req rgpu=1 was=- muster:got 0 2 nodes=n1 rgpu=n2:0 grant=- why=it was its turn", 1, 4, time.Hour)
	waits := f.submit("muster:req rgpu=2", 1, 1, time.Hour)
	f.tick(time.Second)
	placed.Held, placed.Required, placed.Reason = false, "n1", "Resources"
	recalls := 0
	for range 4 {
		c.Observe(f.now, f.picture())
		c.Step(f.now)
		e := c.Take()
		for _, p := range e.Places {
			t.Errorf("job %d is placed: %s", p.Job.ID, p.Comment)
		}
		for _, r := range e.Recalls { // their outcome is unknown, and they were not carried out
			recalls++
			c.Told(f.now, r.ID, slurm.Unknown, errors.New("made up"))
		}
		f.now += 5 * time.Second
	}
	if recalls == 0 || slurms.State != "RUNNING" {
		t.Errorf("%d recalls; the other job is %s", recalls, slurms.State)
	}
	placed.Held = true
	for range 3 {
		f.round(c)
	}
	if waits.State != "RUNNING" {
		t.Errorf("the job that waits is %s: %s", waits.State, c.Why(waits.ID))
	}
}

// slurmctld forgets that a job was recalled and placed elsewhere, and shows it where it was placed
// first. There it has no GPU, so it is recalled.
func TestForgottenPlacementIsRecalled(t *testing.T) {
	f := newFake(t, 1, 2, 4, 0)
	f.lends = map[string]bool{"n1": true}
	c := newCore(t, "easy", true)
	j := f.submit("muster:req rgpu=1", 1, 1, time.Hour)
	f.nodes[1].States = []string{"IDLE", "DRAIN"}
	f.round(c)
	c.Observe(f.now, f.picture())
	c.Step(f.now)
	e := c.Take()
	if len(e.Places) != 1 {
		t.Fatalf("the job is not placed: %s", c.Why(j.ID))
	}
	c.Told(f.now, j.ID, slurm.Done, nil)
	j.AdminComment, j.Required, j.Held, j.Reason = "muster:req rgpu=1 was=- muster:got 0 1 nodes=n2 rgpu=n1:0 grant=- why=it was its turn", "n2", false, "None"
	f.now += time.Second
	c.Observe(f.now, f.picture())
	if e := c.Take(); len(e.Recalls) != 1 {
		t.Errorf("it is not recalled: %+v", e)
	}
}
