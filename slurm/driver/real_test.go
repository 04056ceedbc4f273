package driver_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/await"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/engine"
	"muster/slurm/release"
)

// holdAll is a job_submit.lua that gives all jobs to Muster, except those called slurms. One called
// borrower asks for two GPUs on any nodes.
const holdAll = `
function slurm_job_submit(job, partitions, uid)
  if job.name == "slurms" then return slurm.SUCCESS end
  if job.priority == 0 then job.admin_comment = "muster:req hold=user" else job.admin_comment = "muster:req" end
  if job.name == "borrower" then job.admin_comment = "muster:req rgpu=2" end
  job.priority = 0
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
`

func output(t testing.TB, c *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s%s", c.Args, err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

var eventually = await.Until

// within waits as eventually does, but as long as the test says.
func within(t testing.TB, patience time.Duration, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// connect makes a client of a cluster.
func connect(t testing.TB, c *emulate.Cluster) *engine.Engine {
	t.Helper()
	address, token := c.REST()
	e, err := engine.New(context.Background(), engine.Options{
		Command: c.CommandContext, Address: address, User: c.User, Token: func(context.Context) (string, error) { return token, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// driven is a running driver.
type driven struct {
	*driver.Driver
	stop func()
}

// drive starts a driver. It is stopped, and waited for, by stop or the end of the test.
func drive(t testing.TB, e driver.Engine, cfg driver.Config) *driven {
	t.Helper()
	if cfg.Spec == "" {
		cfg.Spec = "easy"
	}
	if cfg.Policy == nil {
		cfg.Policy = catalog.New
	}
	if real, ok := e.(*engine.Engine); ok {
		cfg.Core.Follow(real.Site(), real.Release())
	}
	cfg.Core.Settle = 300 * time.Millisecond // no driver ran here before
	cfg.Poll = 200 * time.Millisecond
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(testLog{t}, nil))
	}
	d, err := driver.New(e, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &driven{d, stop}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// where is a folder to which a test's jobs write the nodes that they ran on, a file for each job.
type where struct {
	t      testing.TB
	c      *emulate.Cluster
	folder string
}

func newWhere(t testing.TB, c *emulate.Cluster) *where {
	folder := t.TempDir()
	os.Chmod(folder, 0o777)
	return &where{t, c, folder}
}

// submit submits a job that writes where it runs.
func (w *where) submit(seconds float64, args ...string) string {
	w.t.Helper()
	script := fmt.Sprintf(`echo "$SLURMD_NODENAME $SLURM_JOB_NODELIST" >> %s/$SLURM_JOB_ID; sleep %g`, w.folder, seconds)
	args = append([]string{"--parsable", "-o", "/dev/null", "-e", "/dev/null"}, args...)
	return output(w.t, w.c.Command("sbatch", append(args, "--wrap", script)...))
}

// ran lists the jobs that ran, and how often each did.
func (w *where) ran() map[string]int {
	all := map[string]int{}
	files, _ := os.ReadDir(w.folder)
	for _, f := range files {
		text, _ := os.ReadFile(filepath.Join(w.folder, f.Name()))
		all[f.Name()] = strings.Count(string(text), "\n")
	}
	return all
}

// The policy places jobs, and they run where it says, on each release, with policies of the
// catalogue and a script; and the recording can be replayed.
func TestPlaces(t *testing.T) {
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			c := emulatetest.Start(t, emulate.Options{Release: r, GPUs: 2, GPUNodes: 4, JobSubmit: holdAll})
			for _, spec := range []string{"easy", "mosaic", "easy.star"} {
				placeAll(t, c, spec)
			}
		})
	}
}

func placeAll(t *testing.T, c *emulate.Cluster, spec string) {
	w := newWhere(t, c)
	var record bytes.Buffer
	cfg := driver.Config{Spec: spec, Record: &record}
	if strings.HasSuffix(spec, ".star") {
		cfg.Policy = bundled
	}
	d := drive(t, connect(t, c), cfg)
	defer d.stop()
	var jobs []string
	for i := range 10 {
		jobs = append(jobs, w.submit(0.2, fmt.Sprintf("-n%d", 1+i%4), "-t1"))
	}
	jobs = append(jobs, w.submit(0.2, "-N3", "-n6", "-t1"), w.submit(0.2, "-N2", "--gres=gpu:1", "-t1"), w.submit(0.2, "--exclusive", "-t1"), w.submit(0.2, "-w", "n3", "-t1"), w.submit(0.2, "-x", "n1", "-t1"), w.submit(0.2, "-J", "borrower", "-x", "n[1-4]", "-t1"))
	eventually(t, "all jobs ran", func() bool { return d.Status().Counts.Ended >= len(jobs) })
	d.stop()
	ran := w.ran()
	for _, id := range jobs {
		if ran[id] != 1 {
			t.Errorf("%s: job %s ran %d times", spec, id, ran[id])
		}
	}
	if n := d.Status().Counts; n.Wrong != 0 || n.Refused != 0 || n.Started < len(jobs) {
		t.Errorf("%s: %+v", spec, n)
	}
	if text, _ := os.ReadFile(filepath.Join(w.folder, jobs[13])); !strings.HasPrefix(string(text), "n3 ") {
		t.Errorf("%s: a job for n3 ran on %s", spec, text)
	}
	shown := output(t, c.Command("scontrol", "show", "job", jobs[len(jobs)-1]))
	if !regexp.MustCompile(`muster:got 0 ` + jobs[len(jobs)-1] + ` nodes=n[5-8] rgpu=n[1-4]:[01],n[1-4]:[01] grant=- why=`).MatchString(shown) {
		t.Errorf("%s: the job that borrows GPUs: %s", spec, shown)
	}
	if spec == "easy" {
		if result, err := history.Replay(&record, catalog.New); err != nil || result.Difference != nil || result.Steps == 0 {
			t.Errorf("playing the record again: %+v, %v", result, err)
		}
	}
	checkIdle(t, d.Status())
}

func checkIdle(t *testing.T, s slurm.Status) {
	t.Helper()
	if s.Waiting+s.Placed+s.Running != 0 {
		t.Errorf("left: %+v", s)
	}
}
