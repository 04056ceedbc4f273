package rgpu

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/live"
	"muster/internal/misuse"
	"muster/internal/need"
	"muster/model"
	"muster/model/clusterfile"
	"muster/slurm"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/words"
)

// A real run in small: CUDA programs in jobs of a real Slurm of 8 nodes, on GPUs of their nodes and
// on shares of borrowed ones, through the plug-in and the driver; and a burst. The other mode, and
// the profile of starts, are covered only by the full experiment.
func TestLive(t *testing.T) {
	emulatetest.Need(t, nil)
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	// What make has built: to build it once more would take longer than the test.
	tools, err := bench.ToolsIn(filepath.Join(bin, "muster"), []string{filepath.Join(bin, "lib")}, filepath.Join(bin, "examples"), gpuProgram)
	if err == nil {
		_, err = os.Stat(tools.Muster)
	}
	if err != nil {
		need.Missing(t, need.Examples, "run make build examples first:", err)
	}
	l, err := newLiveLab(exp.Options{Seed: 1, Flags: map[string]string{"live": exp.On, "jobs": "4", "gpus": "4", "burst": "10", "speed": "100"}})
	if err != nil {
		t.Fatal(err)
	}
	l.tools, l.folder = tools, t.TempDir()
	for _, borrowed := range []bool{false, true} {
		l.start[borrowed] = time.Second
		for app := range profiled {
			l.alone[alone{app, borrowed}] = l.job(app).own
		}
	}
	for _, m := range []liveMode{liveModes[0], liveModes[2]} {
		trial := liveTrial{2, m.key, 4}
		jobs, err := l.workload(trial, 1)
		if err != nil {
			t.Fatal(err)
		}
		found, err := l.one(t.Context(), m, trial, jobs, func(int) {})
		if err != nil {
			t.Fatalf("%v: %v", trial, err)
		}
		if found.real.seconds <= 0 || exp.Mean(found.real.allocated) <= 0 || found.predicted.seconds <= 0 || found.out.Counts.Wrong != 0 {
			t.Errorf("%v: %+v, %+v", trial, found.real, found.out.Counts)
		}
		l.found[trial] = append(l.found[trial], found)
	}
	if err := l.burstOf(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	r := l.result(nil)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	for _, row := range r.Rows {
		if row.Metric == "claim_burst" && row.Ours != 1 {
			t.Error(row.Note)
		}
	}
}

// Launch lines are the paper's, and in the exclusive mode ask for the same number of whole GPUs.
func TestLiveLaunchLines(t *testing.T) {
	for _, c := range []struct {
		trial liveTrial
		app   int
		want  string
	}{
		{liveTrial{2, cuda, 8}, 2, "-N4 -n4 -c1 --gres=gpu:1"},
		{liveTrial{2, rcuda, 8}, 1, "-n5 -c1 --gres=rgpu:5:3275M"},
		{liveTrial{2, rcuda, 4}, 1, "-n5 -c1 --gres=rgpu:4:3275M"},
		{liveTrial{2, exclusive, 4}, 1, "-n5 -c1 --rcuda-mode=excl --gres=rgpu:4"},
		{liveTrial{2, exclusive, 8}, 3, "-N2 -n2 -c12"},
	} {
		if got := launchLine(c.trial, c.app); got != c.want {
			t.Errorf("%v, %s: %q, want %q", c.trial, applications[c.app].name, got, c.want)
		}
	}
}

// A part of a workload has the proportions of Table II, and the same jobs in every mode.
func TestLiveWorkload(t *testing.T) {
	l, err := newLiveLab(exp.Options{Seed: 1, Flags: map[string]string{"live": exp.On, "jobs": "18", "speed": "10"}})
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	for _, mode := range []string{cuda, exclusive, rcuda} {
		jobs, err := l.workload(liveTrial{2, mode, 4}, 7)
		if err != nil {
			t.Fatal(err)
		}
		counts := make([]int, len(applications))
		var apps []int
		for _, j := range jobs {
			counts[j.app]++
			apps = append(apps, j.app)
			if want := time.Duration(applications[j.app].seconds / 10 * float64(time.Second)); j.own != want {
				t.Errorf("%s takes %s, want %s", applications[j.app].name, j.own, want)
			}
		}
		if counts[0] != 3 || counts[1] != 5 || counts[2] != 5 || counts[3] != 6 {
			t.Errorf("%s: %v", mode, counts)
		}
		if order == nil {
			order = apps
		}
		for i := range apps {
			if apps[i] != order[i] {
				t.Fatalf("%s: another order: %v, %v", mode, apps, order)
			}
		}
	}
}

// The numbers of a run, computed by hand: a job with a local GPU, then one with a share of it.
func TestLiveNumbers(t *testing.T) {
	paper, err := clusterfile.Preset("rgpu")
	if err != nil {
		t.Fatal(err)
	}
	c, err := variant(paper, likePaper, 4)
	if err != nil {
		t.Fatal(err)
	}
	l := &liveLab{speed: 2}
	jobs := make([]liveJob, 2)
	for i := range jobs {
		jobs[i].Request.Nodes, jobs[i].Request.CoresPerNode = 1, 12
	}
	jobs[0].Request.GPUs = 1
	out := &live.Outcome{Jobs: []live.Ended{
		{Start: 0, End: 10 * time.Second, Nodes: []int32{0}},
		{Start: 10 * time.Second, End: 20 * time.Second, Nodes: []int32{5}, Borrows: []slurm.Borrow{{Device: words.Device{Node: "n1"}, Memory: 1 << 30}}},
	}}
	n := l.numbers(c, jobs, out.Outcomes(), func(i int) *model.Allocation { return allocation(&jobs[i], &out.Jobs[i], 4) })
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s %v, want %v", what, got, want)
		}
	}
	near("time", n.seconds, 40)
	near("jobs a minute", n.perMinute, 3)
	near("wait", n.wait, 10)
	near("slowdown", n.slowdown, 1.5)
	near("allocated", n.allocated[0], 100)
	near("the others", n.allocated[1], 0)
	near("cores", n.cores, 100.0/8)
}

// An interrupt keeps what is complete.
func TestLiveInterrupted(t *testing.T) {
	l, err := newLiveLab(exp.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := liveNumbers{seconds: 100, perMinute: 1, wait: 1, slowdown: 1, fragmentation: 1, spread: 1, cores: 1, allocated: []float64{50}}
	l.found[liveTrial{2, cuda, 8}] = []liveFound{{real: n, predicted: n, out: &live.Outcome{Jobs: make([]live.Ended, 3)}}}
	if r := l.result([]string{"the rest"}); r.Check() != nil || r.Partial != "the rest" || len(r.Tables) == 0 {
		t.Errorf("%v, %q", r.Check(), r.Partial)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.found = map[liveTrial][]liveFound{}
	if _, err := l.run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Statements are judged by the runs.
func TestLiveClaims(t *testing.T) {
	l, err := newLiveLab(exp.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	add := func(mode string, gpus int, seconds, allocated float64) {
		n := liveNumbers{seconds: seconds, perMinute: 1000 / seconds, allocated: []float64{allocated}}
		l.found[liveTrial{2, mode, gpus}] = []liveFound{{real: n, predicted: n, out: &live.Outcome{}}}
	}
	add(cuda, 8, 100, 50)
	add(cuda, 4, 200, 90)
	add(rcuda, 8, 70, 60)
	add(rcuda, 4, 90, 98)
	l.bursts[true] = &burstFound{jobs: 10, refused: 1, out: &live.Outcome{}}
	want := map[string]float64{"claim_twice_on_four_2h": 1, "claim_kept_2h": 0.5, "claim_allocated_2h": 1, "claim_burst": 0}
	rows := l.claimRows()
	if len(rows) != len(want) {
		t.Errorf("%d verdicts, want %d", len(rows), len(want))
	}
	for _, row := range rows {
		if row.Ours != want[row.Metric] {
			t.Errorf("%s is %v, want %v: %s", row.Metric, row.Ours, want[row.Metric], row.Note)
		}
	}
}

func TestLiveUsage(t *testing.T) {
	for _, flags := range []map[string]string{
		{"speed": "2"}, {"live": exp.On, "speed": "none"}, {"live": exp.On, "jobs": "0"}, {"live": exp.On, "burst": "-1"}, {"live": exp.On, "slurm": "19.05"},
	} {
		if _, err := Experiment.Run(t.Context(), exp.Options{Flags: flags}); !misuse.Is(err) {
			t.Errorf("%v: %v", flags, err)
		}
	}
	if _, err := Experiment.Run(t.Context(), exp.Options{Flags: map[string]string{"live": exp.On, "programs": t.TempDir()}}); err == nil || !strings.Contains(err.Error(), "make") {
		t.Errorf("without programs: %v", err)
	}
}
