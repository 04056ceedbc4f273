package driver_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/seeds"
	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
)

// slurmctld, slurmrestd and the driver are killed at random while jobs come and run. No job is lost,
// none runs on a wrong node, none twice unless slurmctld forgot it, and no node ever has more than it has room for.
func TestKilled(t *testing.T) {
	if os.Getenv("MUSTER_SLURM_ALL") == "" {
		t.Skip("MUSTER_SLURM_ALL=1 runs it, and so does make soak")
	}
	emulatetest.Need(t, nil)
	t.Parallel()
	seed, _ := seeds.First(t)
	random := rand.New(rand.NewPCG(seed, 1))
	c := emulatetest.Start(t, emulate.Options{JobSubmit: holdAll, CPUs: 4})
	w := newWhere(t, c)
	d := drive(t, connect(t, c), driver.Config{})
	var jobs []string
	wrong, forgetful := 0, 0
	for round := range 6 {
		for range 8 {
			jobs = append(jobs, w.submit(0.1+random.Float64(), "--requeue", "-t1", fmt.Sprintf("-N%d", 1+random.IntN(2)), fmt.Sprintf("-n%d", 2+random.IntN(3))))
		}
		checkUse(t, c)
		// The request may be anywhere when it happens.
		time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond)
		switch victim := []string{"slurmctld", "slurmrestd", "driver"}[(round+int(seed%3))%3]; victim {
		case "driver":
			d.stop()
			wrong += d.Status().Counts.Wrong
			d = drive(t, connect(t, c), driver.Config{})
		default:
			if victim == "slurmctld" {
				// Slurm forgets jobs that it has not written down, which it does every few seconds.
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
	eventually(t, "all jobs ran", func() bool {
		checkUse(t, c)
		ran := w.ran()
		for _, id := range jobs {
			if ran[id] == 0 {
				return false
			}
		}
		return true
	})
	eventually(t, "all is over", func() bool { s := d.Status(); return s.Nodes > 0 && s.Waiting+s.Placed+s.Running == 0 })
	for id, n := range w.ran() {
		// A slurmctld that is killed forgets what it started since it last wrote its state down, and
		// starts it again.
		if n > 1+forgetful {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
	if wrong += d.Status().Counts.Wrong; wrong > 0 {
		t.Errorf("%d jobs ran on wrong nodes", wrong)
	}
}

// checkUse asks Slurm whether some node runs more than it can.
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
