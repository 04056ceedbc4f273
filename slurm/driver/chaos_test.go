package driver_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
	"muster/internal/seeds"
	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
)

// forgetfulness is how long Slurm may take to find out what a killed slurmctld has forgotten: it
// believes that jobs run which have ended, until their nodes report next (after a third of
// SlurmdTimeout, and not before BatchStartTimeout) or their time limit is reached. The driver
// counts them until Slurm says that they have ended.
const forgetfulness = 3 * time.Minute

// slurmctld, slurmrestd, slurmds and the driver are killed at random while jobs arrive and run. No
// job is lost, none runs on a wrong node, none twice unless slurmctld forgot it, and no node ever
// has more than it has room for.
func TestKilled(t *testing.T) {
	if os.Getenv("MUSTER_SOAK") == "" {
		need.Missing(t, need.Soak, "MUSTER_SOAK=1 runs it, and so does make soak")
	}
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) { killAll(t, r) })
	}
}

func killAll(t *testing.T, r *release.Release) {
	emulatetest.Need(t, r)
	seed, _ := seeds.First(t)
	random := rand.New(rand.NewPCG(seed, 1))
	c := emulatetest.Start(t, emulate.Options{Release: r, JobSubmit: holdAll, CPUs: 4, Extra: "SlurmdTimeout=30\nBatchStartTimeout=5\n"})
	w := newWhere(t, c)
	d := drive(t, connect(t, c), driver.Config{})
	var jobs []string
	wrong, forgetful := 0, 0
	for round := range 8 {
		for range 8 {
			jobs = append(jobs, w.submit(0.1+random.Float64(), "--requeue", "-t1", fmt.Sprintf("-N%d", 1+random.IntN(2)), fmt.Sprintf("-n%d", 2+random.IntN(3))))
		}
		checkUse(t, c)
		// The request may be at any stage when this happens.
		time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond)
		switch victim := []string{"slurmctld", "slurmrestd", "driver", c.Nodes[random.IntN(len(c.Nodes))]}[(round+int(seed%4))%4]; victim {
		case "driver":
			d.stop()
			wrong += d.Status().Counts.Wrong
			d = drive(t, connect(t, c), driver.Config{})
		default:
			if victim == "slurmctld" {
				// Slurm forgets jobs that it has not saved, which it does every few seconds.
				forgetful++
				submitted := time.Now()
				eventually(t, "Slurm has saved its jobs", func() bool {
					info, err := os.Stat(filepath.Join(c.Folder, "state", "job_state"))
					return err == nil && info.ModTime().After(submitted)
				})
			}
			if err := c.Kill(victim); err != nil {
				t.Fatal(err)
			}
			if err := c.Restart(victim); err != nil {
				t.Fatal(err)
			}
		}
	}
	within(t, forgetfulness, "all jobs ran", func() bool {
		checkUse(t, c)
		hurry(c)
		ran := w.ran()
		return !slices.ContainsFunc(jobs, func(id string) bool { return ran[id] == 0 })
	})
	within(t, forgetfulness, "all is over", func() bool {
		hurry(c)
		s := d.Status()
		return s.Nodes > 0 && s.Waiting+s.Placed+s.Running == 0
	})
	for id, n := range w.ran() {
		// A slurmctld that is killed forgets what it started since it last saved its state, and
		// starts it again.
		if n > 1+forgetful {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
	if wrong += d.Status().Counts.Wrong; wrong > 0 {
		t.Errorf("%d jobs ran on wrong nodes", wrong)
	}
}

// hurry makes jobs that Slurm has requeued eligible at once: Slurm would wait two minutes.
func hurry(c *emulate.Cluster) {
	out, err := c.Command("squeue", "-h", "-t", "PENDING", "-o", "%i %S").Output()
	if err != nil {
		return // slurmctld is away
	}
	for line := range strings.Lines(string(out)) {
		if id, start, _ := strings.Cut(strings.TrimSpace(line), " "); start != "N/A" {
			_ = c.Command("scontrol", "update", "JobId="+id, "StartTime=now").Run()
		}
	}
}

// checkUse asks Slurm whether a node runs more than it has room for.
func checkUse(t *testing.T, c *emulate.Cluster) {
	t.Helper()
	out, err := c.Command("sinfo", "-h", "-N", "-o", "%n %C").Output()
	if err != nil {
		return // slurmctld is away
	}
	for line := range strings.Lines(string(out)) {
		name, counts, _ := strings.Cut(strings.TrimSpace(line), " ")
		f := strings.Split(counts, "/")
		used, err1 := strconv.Atoi(f[0])
		all, err2 := strconv.Atoi(f[len(f)-1])
		if err1 != nil || err2 != nil || used > all {
			t.Errorf("node %s has %s", name, counts)
		}
	}
}
