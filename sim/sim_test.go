package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/sim"
)

func twoNodes() *model.Cluster {
	return &model.Cluster{
		GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}},
		Nodes: []model.Node{
			{Name: "a", Cores: 4, GPUs: []int{0, 0}}, {Name: "b", Cores: 4, GPUs: []int{0, 0}},
		},
	}
}

func run(t *testing.T, spec string, cfg sim.Config) *sim.Result {
	t.Helper()
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Policy = p
	r, err := sim.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWhy asks why jobs wait, under every policy, and expects an answer each
// time something changes.
func TestWhy(t *testing.T) {
	job := func(id string, run int, r model.Request) model.Job {
		return model.Job{ID: id, Run: time.Duration(run) * time.Second, Request: r}
	}
	jobs := []model.Job{
		job("first", 10, model.Request{Nodes: 1, CoresPerNode: 3, GPUs: 1}),
		job("wide", 5, model.Request{Nodes: 2, CoresPerNode: 2, GPUs: 2}),
		job("long", 30, model.Request{Nodes: 1, CoresPerNode: 4}),
	}
	for _, tc := range []struct{ policy, want string }{
		{"fcfs", `
0s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; only 1 node has that free now
0s long: waits: 1 ahead in the queue, and nothing overtakes; the first, job wide, needs 2 nodes with 2 cores, 2 GPUs; only 1 node has that free now
10s wide: started: it was its turn
10s long: waits: needs 1 node with 4 cores; no node has that free now (too few cores)
15s long: started: it was its turn`},
		{"sjf", `
0s wide: started: it was its turn
0s long: waits: 1 ahead in the queue, and nothing overtakes; the first, job first, needs 1 node with 3 cores, 1 GPU; no node has that free now
5s long: started: it was its turn`},
		{"first-fit", `
0s long: started: it fits now, and jobs may overtake
0s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; no node has that free now
10s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; only 1 node has that free now (too few cores)
30s wide: started: it fits now, and jobs may overtake`},
		{"g-queue", `
0s long: started: it fits now, and jobs may overtake
0s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; no node without a job has that free now
10s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; only 1 node without a job has that free now
30s wide: started: it fits now, and jobs may overtake`},
		{"r-queue", `
0s long: started: it fits now, and jobs may overtake
0s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; no node has the cores and the memory free now (too few cores)
10s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; only 1 node has the cores and the memory free now (too few cores)
30s wide: started: it fits now, and jobs may overtake`},
		{"easy", `
0s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; only 1 node has that free now; reserved for 00:00:10 at the latest
0s long: waits: it fits, but would delay job wide, reserved for 00:00:10
10s wide: started: it was its turn
10s long: waits: needs 1 node with 4 cores; no node has that free now (too few cores); reserved for 00:00:15 at the latest
15s long: started: it was its turn`},
		{"conservative", `
0s wide: waits: needs 2 nodes with 2 cores, 2 GPUs; only 1 node has that free now; reserved for 00:00:10 at the latest
0s long: waits: it fits now, but would delay the reservations of others; reserved for 00:00:15 at the latest
10s wide: started: its reservation has come
10s long: waits: needs 1 node with 4 cores; no node has that free now (too few cores); reserved for 00:00:15 at the latest
15s long: started: its reservation has come`},
	} {
		r := run(t, tc.policy, sim.Config{Cluster: twoNodes(), Jobs: jobs, Watch: []int{1, 2}})
		got := ""
		for _, w := range r.Watched {
			got += fmt.Sprintf("\n%v %s: %s", w.At, jobs[w.Job].ID, w.Text)
		}
		if got != tc.want {
			t.Errorf("%s:%s\nwant:%s", tc.policy, got, tc.want)
		}
	}
}

// TestWhyBorrowersWait: neighbours that could host a job are not what it lacks.
func TestWhyBorrowersWait(t *testing.T) {
	jobs := []model.Job{
		{ID: "first", Run: 1, Request: model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 2}},
		{ID: "pair", Run: 1, Request: model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 2, Contiguous: true}},
	}
	r := run(t, "r-queue", sim.Config{Cluster: twoNodes(), Jobs: jobs, Watch: []int{1}})
	const want = "waits: needs 2 nodes with 1 core, 2 GPUs, contiguous; 2 whole GPUs are free now, on 1 of 2 nodes"
	if got := r.Watched[0].Text; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	p, err := catalog.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	late := []model.Job{{ID: "x", Submit: 2, Request: model.Request{Cores: 1}}, {ID: "y", Submit: 1, Request: model.Request{Cores: 1}}}
	for name, tc := range map[string]struct {
		cfg  sim.Config
		want string
	}{
		"unsorted": {sim.Config{Cluster: twoNodes(), Jobs: late, Policy: p}, "job y is submitted before job x"},
		"no nodes": {sim.Config{Cluster: &model.Cluster{}, Policy: p}, "no nodes"},
		"idle":     {sim.Config{Cluster: twoNodes(), Jobs: late[:1], Policy: lazy{}}, "left 1 jobs waiting for ever"},
	} {
		if _, err := sim.Run(context.Background(), tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := sim.Run(ctx, sim.Config{Cluster: twoNodes(), Jobs: late[:1], Policy: p}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// quitter starts what it can, one job a step, and is interrupted in its second step.
type quitter struct {
	policy.Policy
	cancel context.CancelFunc
	steps  *int
}

func (q quitter) Step(v *policy.View, p *policy.Plan) {
	if *q.steps++; *q.steps == 2 {
		q.cancel()
	}
	q.Policy.Step(v, p)
}

// TestInterrupt: a run ends at the step in which it is interrupted, since there
// are policies of which a thousand steps take minutes.
func TestInterrupt(t *testing.T) {
	fcfs, err := catalog.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	var jobs []model.Job
	for i := range 100 {
		jobs = append(jobs, model.Job{ID: strconv.Itoa(i), Submit: time.Duration(i), Run: 1, Request: model.Request{Cores: 1}})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	steps := 0
	if _, err := sim.Run(ctx, sim.Config{Cluster: twoNodes(), Jobs: jobs, Policy: quitter{fcfs, cancel, &steps}}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if steps != 2 {
		t.Errorf("%d steps were made, want 2", steps)
	}
}

// lazy starts nothing.
type lazy struct{}

func (lazy) Traits() policy.Traits                 { return policy.Traits{} }
func (lazy) Step(*policy.View, *policy.Plan)       {}
func (lazy) Why(*policy.View, policy.JobID) string { return "nobody cares" }

// restless starts what it can, and wants to be asked again at once.
type restless struct{ policy.Policy }

func (r restless) Step(v *policy.View, p *policy.Plan) {
	r.Policy.Step(v, p)
	p.Wake = v.Now() + 1
}

// A policy that asks for step after step while nothing happens ends the run, with what to do.
func TestRestlessPolicy(t *testing.T) {
	fcfs, err := catalog.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	jobs := []model.Job{{ID: "long", Run: time.Hour, Request: model.Request{Cores: 1}}}
	if _, err := sim.Run(t.Context(), sim.Config{Cluster: twoNodes(), Jobs: jobs, Policy: restless{fcfs}}); err == nil || !strings.Contains(err.Error(), "steps in a row while nothing happened") || !strings.Contains(err.Error(), "plan.wake") {
		t.Errorf("%v", err)
	}
}

func TestOddJobs(t *testing.T) {
	s := time.Second
	jobs := []model.Job{
		{ID: "huge", Run: s, Request: model.Request{Nodes: 3}},
		{ID: "none", Run: 0, Request: model.Request{Cores: 8}},
		{ID: "then", Run: s, Request: model.Request{Cores: 8}},
		{ID: "over", Run: 5 * s, WallTime: 2 * s, Request: model.Request{Cores: 8}},
		{ID: "just", Run: 2 * s, WallTime: 2 * s, Request: model.Request{Cores: 8}},
	}
	want := []sim.Outcome{
		{State: sim.Impossible}, // and so nowhere; the others have both nodes, next to each other
		{State: sim.Finished, Nodes: 2, Blocks: 1, Span: 2},
		{Start: 0, End: s, State: sim.Finished, Nodes: 2, Blocks: 1, Span: 2},
		{Start: s, End: 3 * s, State: sim.Killed, Nodes: 2, Blocks: 1, Span: 2},
		{Start: 3 * s, End: 5 * s, State: sim.Finished, Nodes: 2, Blocks: 1, Span: 2},
	}
	r := run(t, "fcfs", sim.Config{Cluster: twoNodes(), Jobs: jobs})
	for i := range want {
		if r.Outcomes[i] != want[i] {
			t.Errorf("%s: %+v, want %+v", jobs[i].ID, r.Outcomes[i], want[i])
		}
	}
	if why := r.Reasons[0]; !strings.Contains(why, "needs 3 nodes with 1 core; only 2 nodes of the cluster have that") {
		t.Errorf("reason: %s", why)
	}
	if r := run(t, "fcfs", sim.Config{Cluster: twoNodes(), Jobs: jobs, NoKill: true}); r.Outcomes[3].End != 6*s {
		t.Errorf("not killed, it ends at %v", r.Outcomes[3].End)
	}
}

// TestHugeTimes runs jobs whose ends would overflow: an estimate may be that long, a run may not.
func TestHugeTimes(t *testing.T) {
	s := time.Second
	wide := model.Request{Nodes: 2, CoresPerNode: 4}
	one := model.Request{Nodes: 1, CoresPerNode: 4}
	for _, policy := range allPolicies {
		r := run(t, policy, sim.Config{Cluster: twoNodes(), Jobs: []model.Job{
			{ID: "x", Submit: 1, Run: 2 * s, WallTime: math.MaxInt64, Request: wide},
			{ID: "y", Submit: 2, Run: 2 * s, WallTime: math.MaxInt64, Request: wide},
			{ID: "z", Submit: 3, Run: 2 * s, WallTime: math.MaxInt64, Request: wide},
		}})
		for i, o := range r.Outcomes {
			if want := 1 + time.Duration(i+1)*2*s; o.State != sim.Finished || o.End != want {
				t.Errorf("%s: job %d is %v at %v, want %v", policy, i, o.State, o.End, want)
			}
		}
		for _, j := range []model.Job{{ID: "late", Submit: math.MaxInt64, Request: one}, {ID: "long", Submit: s, Run: math.MaxInt64, Request: one}} {
			p, err := catalog.New(policy)
			if err != nil {
				t.Fatal(err)
			}
			_, err = sim.Run(context.Background(), sim.Config{Cluster: twoNodes(), Jobs: []model.Job{j}, Policy: p})
			if err == nil || !strings.Contains(err.Error(), "not over after 146 years") {
				t.Errorf("%s, %s: %v", policy, j.ID, err)
			}
		}
	}
	r := run(t, "easy", sim.Config{Cluster: twoNodes(), Jobs: []model.Job{
		{ID: "runs", Run: 10 * s, Request: one},
		{ID: "head", Submit: s, Run: s, Request: wide},
		{ID: "huge", Submit: 2 * s, Run: s, WallTime: math.MaxInt64, Request: one},
	}})
	if r.Outcomes[2].Start != 11*s {
		t.Errorf("the job with the endless estimate starts at %v, before the reservation is over", r.Outcomes[2].Start)
	}
}

// TestPortsWithoutBandwidth moves a gigabyte from another node's GPU: the port
// that has a bandwidth counts.
func TestPortsWithoutBandwidth(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		user, lender int64
		want         time.Duration
	}{{1e9, 1e9, 2 * s}, {1e9, 0, 2 * s}, {0, 1e9, 2 * s}, {0, 0, s}} {
		c := twoNodes()
		c.Nodes[0].GPUs = nil
		c.Nodes[0].Link.Bandwidth, c.Nodes[1].Link.Bandwidth = tc.user, tc.lender
		r := run(t, "first-fit", sim.Config{Cluster: c, Jobs: []model.Job{{ID: "x", Run: s, Traffic: model.Traffic{GPUBytes: 1e9},
			Request: model.Request{Nodes: 1, Remote: &model.RemoteGPUs{Count: 1}}}}})
		if got := r.Outcomes[0].End; got != tc.want {
			t.Errorf("%+v: it ends at %v", tc, got)
		}
	}
}

// TestSharedGPUsAsMeasured: the paper on remote GPUs under Slurm ran 12 instances
// of MCUDA-MEME at once on the same 4 GPUs. One alone took 165 s, all took
// about 1,884 s: 1,884 / (12 x 165) is the load that one of them is.
func TestSharedGPUsAsMeasured(t *testing.T) {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "k20", Memory: 5e9, Speed: 1}}}
	for _, name := range []string{"a", "b", "c", "d"} {
		c.Nodes = append(c.Nodes, model.Node{Name: name, Cores: 12, GPUs: []int{0}})
	}
	jobs := make([]model.Job, 12)
	for i := range jobs {
		jobs[i] = model.Job{ID: fmt.Sprint(i), Run: 165 * time.Second, Intensity: 0.9515,
			Request: model.Request{Nodes: 4, Cores: 4, Remote: &model.RemoteGPUs{Count: 4, Memory: 163e6, Shared: true}}}
	}
	if alone := run(t, "fcfs", sim.Config{Cluster: c, Jobs: jobs[:1]}); alone.Outcomes[0].End != 165*time.Second {
		t.Errorf("one alone takes %v", alone.Outcomes[0].End)
	}
	for i, o := range run(t, "fcfs", sim.Config{Cluster: c, Jobs: jobs}).Outcomes {
		if o.Start != 0 || o.End.Round(time.Second) != 1884*time.Second {
			t.Errorf("instance %d ran from %v to %v", i, o.Start, o.End)
		}
	}
}

func TestSummaryAndComparison(t *testing.T) {
	s := time.Second
	jobs := []model.Job{
		{ID: "a", Run: 100 * s, Request: model.Request{Nodes: 2, CoresPerNode: 4, GPUs: 1}},
		{ID: "b", Run: 20 * s, Request: model.Request{Nodes: 1, CoresPerNode: 2}},
		{ID: "c", Submit: 50 * s, Run: 5 * s, Request: model.Request{Nodes: 5}},
	}
	r := run(t, "fcfs", sim.Config{Cluster: twoNodes(), Jobs: jobs})
	got := r.Summarize()
	want := sim.Summary{
		Jobs: 3, Finished: 2, Impossible: 1, Makespan: 120,
		CoreUtilization: (100*8 + 20*2) / (120.0 * 8), GPUUtilization: 200 / (120.0 * 4),
		Wait:     sim.Stats{Mean: 50, Median: 0, P95: 100, Max: 100},
		Run:      sim.Stats{Mean: 60, Median: 20, P95: 100, Max: 100},
		Life:     sim.Stats{Mean: 110, Median: 100, P95: 120, Max: 120},
		Slowdown: sim.Stats{Mean: 3.5, Median: 1, P95: 6, Max: 6},
		// a has both nodes, which are neighbours, and b has one.
		Fragmentation: sim.Stats{Mean: 1, Median: 1, P95: 1, Max: 1},
		Spread:        sim.Stats{Mean: 1, Median: 1, P95: 1, Max: 1},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	c := sim.Compare(r, run(t, "sjf", sim.Config{Cluster: twoNodes(), Jobs: jobs}))
	if c.Jobs != 2 || c.WaitChange != -80 || c.RunChange != 0 || math.Abs(c.LifeChange - -36.3636) > 0.001 ||
		c.WaitLonger != (sim.Losers{Percent: 50, Mean: 20, Max: 20}) || c.EndLater != (sim.Losers{Percent: 50, Mean: 20, Max: 20}) {
		t.Errorf("comparison: %+v", c)
	}
}

// TestSweepIsTheSameInParallel runs a sweep with one worker and with several.
func TestSweepIsTheSameInParallel(t *testing.T) {
	jobs := int(howMany(20, 30, 60))
	sweep := func(workers int) string {
		s := sim.Sweep{
			Cluster: benchCluster(20), Nodes: []int{16, 20, 24}, Seeds: []uint64{1, 2}, Workers: workers,
			Workload: func(seed uint64) ([]model.Job, error) {
				return benchJobs(jobs+int(seed), 20, 1.1, true), nil
			},
		}
		for _, e := range catalog.Entries {
			s.Policies = append(s.Policies, sim.NamedPolicy{Name: e.Name, New: func() (policy.Policy, error) { return catalog.New(e.Name) }})
		}
		runs, err := s.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, r := range runs {
			out += fmt.Sprintf("%v %v %+v\n", r.Point, r.Outcomes, r.Summarize())
		}
		return out
	}
	one := sweep(1)
	if sweep(4) != one {
		t.Fatal("four workers gave another result than one")
	}
}

func TestSweepStops(t *testing.T) {
	broken := errors.New("no such log")
	s := sim.Sweep{
		Cluster: twoNodes(), Seeds: []uint64{1, 2}, Workers: 2,
		Policies: []sim.NamedPolicy{{Name: "fcfs", New: func() (policy.Policy, error) { return catalog.New("fcfs") }}},
		Workload: func(seed uint64) ([]model.Job, error) { return nil, broken },
	}
	if _, err := s.Run(context.Background()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	s.Nodes = []int{0}
	if _, err := s.Run(context.Background()); err == nil {
		t.Error("a cluster of no nodes was simulated")
	}
}
