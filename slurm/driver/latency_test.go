package driver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/engine"
)

// stamp is a job that writes when it started, in seconds since 1970.
func stamp(t testing.TB, c *emulate.Cluster, folder string, i int) (id, file string) {
	file = filepath.Join(folder, strconv.Itoa(i))
	return output(t, c.Command("sbatch", "--parsable", "-n1", "-o", "/dev/null", "--wrap", "date +%s.%N > "+file+".new; mv "+file+".new "+file)), file
}

func started(t testing.TB, file string) time.Time {
	t.Helper()
	var at float64
	eventually(t, "the job has started", func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		at, err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		return err == nil
	})
	return time.Unix(0, int64(at*1e9))
}

func report(b *testing.B, what string, list []time.Duration) {
	slices.Sort(list)
	sum := time.Duration(0)
	for _, d := range list {
		sum += d
	}
	b.ReportMetric(float64((sum / time.Duration(len(list))).Milliseconds()), what+"-mean-ms")
	b.ReportMetric(float64(list[len(list)-1].Milliseconds()), what+"-worst-ms")
}

// watched is a Slurm that notes when jobs are released.
type watched struct {
	*engine.Engine
	mu     sync.Mutex
	placed map[uint64]time.Time
}

func (w *watched) Place(ctx context.Context, p slurm.Place) error {
	w.mu.Lock()
	w.placed[p.Job.ID] = time.Now()
	w.mu.Unlock()
	return w.Engine.Place(ctx, p)
}

func (w *watched) at(job uint64) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.placed[job]
}

// BenchmarkReleaseToStart measures how long a job takes from its release to its first instruction:
// without decisions (slurm), and with the driver (driver), which must not take longer; and from its
// submission, with the driver's poll of 200 ms (submit).
func BenchmarkReleaseToStart(b *testing.B) {
	const jobs = 20
	c := emulatetest.Start(b, emulate.Options{Nodes: 8, JobSubmit: holdAll})
	e := connect(b, c)
	folder := b.TempDir()
	os.Chmod(folder, 0o777)
	for range b.N {
		var alone, driven, whole []time.Duration
		for i := range jobs {
			id, file := stamp(b, c, folder, i)
			n, _ := strconv.ParseUint(id, 10, 64)
			released := time.Now()
			if err := e.Place(context.Background(), slurm.Place{Job: slurm.Ref{ID: n}, Nodes: []string{fmt.Sprintf("n%d", i%8+1)}, CPUsPerNode: 1, Comment: "muster:req"}); err != nil {
				b.Fatal(err)
			}
			alone = append(alone, started(b, file).Sub(released))
			os.Remove(file)
		}
		w := &watched{Engine: e, placed: map[uint64]time.Time{}}
		stop := drive(b, w, driver.Config{}).stop
		for i := range jobs {
			submitted := time.Now()
			id, file := stamp(b, c, folder, jobs+i)
			at := started(b, file)
			n, _ := strconv.ParseUint(id, 10, 64)
			driven, whole = append(driven, at.Sub(w.at(n))), append(whole, at.Sub(submitted))
			os.Remove(file)
		}
		stop()
		report(b, "slurm", alone)
		report(b, "driver", driven)
		report(b, "submit", whole)
	}
}
