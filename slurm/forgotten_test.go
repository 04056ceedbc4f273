package slurm_test

import (
	"testing"
	"time"

	"muster/slurm"
)

// round is one of the driver's, five seconds after the one before.
func (f *fake) round(c *slurm.Core) {
	c.Observe(f.now, f.picture())
	c.Step(f.now)
	f.perform(c, c.Take(), false)
	f.tick(5 * time.Second)
	f.check()
}

// A requeued job that waits for the policy, and that somebody or a slurmctld without memory releases, is held
// again and waits on.
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
