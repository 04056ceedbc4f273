package driver_test

import (
	"strings"
	"testing"

	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
)

// tiers is a site where jobs of one partition preempt those of another.
const tiers = `PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
`

// Slurm preempts jobs for the driver, on each release: they are suspended and resumed, also if the
// driver is restarted in between, or are requeued. A job that Slurm itself stops for a job of its
// own waits for the driver again.
func TestPreempts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Slurm")
	}
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			c := emulatetest.Start(t, emulate.Options{Release: r, Nodes: 1, JobSubmit: holdAll, Extra: tiers})
			suspends(t, c)
			requeues(t, c)
			slurmRequeues(t, c)
		})
	}
}

// state is the state of a job in Slurm.
func state(t *testing.T, c *emulate.Cluster, id string) string {
	return output(t, c.Command("squeue", "-h", "-o", "%T %r", "-j", id))
}

func suspends(t *testing.T, c *emulate.Cluster) {
	w := newWhere(t, c)
	cfg := driver.Config{Spec: "easy:preempt=suspend:qos=main<high"}
	d := drive(t, connect(t, c), cfg)
	low := w.submit(3, "-n8", "-t1")
	eventually(t, "the first job runs", func() bool { return w.ran()[low] == 1 })
	high := w.submit(3, "-n8", "-p", "high", "-t1")
	eventually(t, "the first job makes way", func() bool {
		return w.ran()[high] == 1 && strings.HasPrefix(state(t, c, low), "SUSPENDED")
	})
	d.stop()
	d = drive(t, connect(t, c), cfg)
	defer d.stop()
	eventually(t, "both ended", func() bool { return d.Status().Counts.Ended >= 2 })
	if ran := w.ran(); ran[low] != 1 || ran[high] != 1 {
		t.Errorf("they ran %d and %d times", ran[low], ran[high])
	}
	checkIdle(t, d.Status())
}

func requeues(t *testing.T, c *emulate.Cluster) {
	w := newWhere(t, c)
	d := drive(t, connect(t, c), driver.Config{Spec: "easy:preempt=requeue:qos=main<high"})
	defer d.stop()
	low := w.submit(0.5, "-n8", "-t1")
	slow := w.submit(100, "-n8", "-t1")
	eventually(t, "the second job runs", func() bool { return w.ran()[low] == 1 && w.ran()[slow] == 1 })
	high := w.submit(0.1, "-n8", "-p", "high", "-t1")
	eventually(t, "it makes way", func() bool { return w.ran()[high] == 1 })
	if got := state(t, c, slow); !strings.HasPrefix(got, "PENDING") && !strings.HasPrefix(got, "COMPLETING") {
		t.Errorf("it is %s", got)
	}
	eventually(t, "it waits for the driver", func() bool {
		for _, j := range d.Status().Jobs {
			return j.State == "aside" && strings.Contains(j.Why, "must not start before")
		}
		return false
	})
	output(t, c.Command("scontrol", "update", "jobid="+slow, "StartTime=now"))
	eventually(t, "it runs again", func() bool { return w.ran()[slow] == 2 })
	output(t, c.Command("scancel", slow))
	eventually(t, "it is gone", func() bool { s := d.Status(); return s.Waiting+s.Placed+s.Running == 0 })
}

func slurmRequeues(t *testing.T, c *emulate.Cluster) {
	w := newWhere(t, c)
	d := drive(t, connect(t, c), driver.Config{})
	defer d.stop()
	low := w.submit(100, "-n8", "-t1")
	eventually(t, "the job runs", func() bool { return w.ran()[low] == 1 })
	own := w.submit(1, "-J", "slurms", "-n8", "-p", "high", "-t1")
	eventually(t, "a job of Slurm's takes its place", func() bool { return w.ran()[own] == 1 })
	eventually(t, "the driver holds it again", func() bool {
		return strings.Contains(output(t, c.Command("scontrol", "show", "job", low)), "Priority=0") && d.Status().Waiting == 1
	})
	output(t, c.Command("scancel", low))
	eventually(t, "all is over", func() bool { s := d.Status(); return s.Waiting+s.Placed+s.Running == 0 })
}
