package driver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
)

// Everything that is not a plain job, on one real Slurm: arrays, dependencies, heterogeneous jobs,
// drained and reserved nodes, holds of users, jobs of Slurm's own, and a restarted driver.
func TestManyKinds(t *testing.T) {
	emulatetest.Need(t, nil)
	t.Parallel()
	c := emulatetest.Start(t, emulate.Options{JobSubmit: holdAll})
	w := newWhere(t, c)
	e := connect(t, c)
	comment := func(id string) string {
		return output(t, c.Command("sh", "-c", "scontrol -o show job "+id+" | sed -n 's/.*AdminComment=//p'"))
	}
	ran := func(id string) func() bool { return func() bool { return w.ran()[id] > 0 } }

	output(t, c.Command("scontrol", "update", "nodename=n8", "state=drain", "reason=test"))
	output(t, c.Command("scontrol", "create", "reservation", "reservationname=kept", "starttime=now", "duration=60", "nodes=n7", "accounts=others"))
	w.submit(2, "-J", "slurms", "-N2", "--exclusive", "-w", "n[1-2]")
	d := drive(t, e, driver.Config{})
	first := w.submit(0.5, "-n1", "-t1")
	after := w.submit(0.1, "-n1", "-t1", "-d", "afterok:"+first)
	array := w.submit(0.3, "-n1", "-t1", "--array=1-6%2")
	held := w.submit(0.1, "-H", "-n1", "-t1")
	het := w.submit(0.1, "-n1", "-t1", ":", "-n2")
	drained := w.submit(0.1, "-w", "n8", "-t1")
	reserved := w.submit(0.1, "-w", "n7", "-t1")

	eventually(t, "the job that is first ran", ran(first))
	eventually(t, "the heterogeneous job ran", ran(het))
	tasks := map[string]bool{} // jobs that ran, and whether they are of the array
	eventually(t, "the array ran", func() bool {
		n := 0
		for id := range w.ran() {
			of, asked := tasks[id]
			if !asked {
				of = strings.HasPrefix(output(t, c.Command("scontrol", "-o", "show", "job", id)), "JobId="+id+" ArrayJobId="+array+" ")
				tasks[id] = of
			}
			if of {
				n++
			}
		}
		return n == 6
	})
	eventually(t, "the job that depends on the first ran", ran(after))
	eventually(t, "the comment says why", func() bool { return strings.Contains(comment(drained), "muster:wait why=") })
	t.Log(comment(drained), "|", comment(reserved), "|", comment(held), "|", comment(het))

	// The next driver finds everything as it is.
	d.stop()
	d = drive(t, e, driver.Config{})
	for id, what := range map[string]string{held: "held", drained: "for a drained node", reserved: "for a reserved node"} {
		if w.ran()[id] > 0 {
			t.Errorf("a job ran that is %s", what)
		}
	}
	output(t, c.Command("scontrol", "update", "nodename=n8", "state=resume"))
	output(t, c.Command("scontrol", "delete", "reservationname=kept"))
	output(t, c.Command("scontrol", "release", held))
	for _, id := range []string{held, drained, reserved} {
		eventually(t, fmt.Sprintf("job %s ran", id), ran(id))
	}
	eventually(t, "all is over", func() bool { s := d.Status(); return s.Waiting+s.Placed+s.Running == 0 && s.Nodes == 8 })
	for id, n := range w.ran() {
		if n != 1 {
			t.Errorf("job %s ran %d times", id, n)
		}
		text, _ := os.ReadFile(filepath.Join(w.folder, id))
		if on := strings.Fields(string(text))[0]; (id == drained && on != "n8") || (id == reserved && on != "n7") {
			t.Errorf("job %s ran on %s", id, on)
		}
	}
	if n := d.Status().Counts; n.Wrong != 0 {
		t.Errorf("%+v", n)
	}
}
