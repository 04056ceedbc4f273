package tsubame

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/live"
	"muster/model"
	"muster/policy/catalog"
	"muster/report"
	"muster/sim"
	"muster/wire/api"
	"muster/workload"
)

// The two queues, live: the same congested queue on a cluster of software GPUs under the policies g-queue and
// r-queue. What a job borrows under the latter are grants of GPUs of other nodes, as everywhere in Muster.

// The cluster is TSUBAME's nodes, few of them, with GPUs of equal speed.
const (
	queueNodes = 4
	queueGPUs  = 3
	queueCores = 8
	// queueRate is how many operations a second a GPU executes, and matrices the rows of those that jobs
	// multiply: a product takes unit seconds, so that programs wait for GPUs and not for this machine's processors.
	queueRate = 5e6
	matrices  = 32
	unit      = 0.0323
	// queueScale is by how much jobs are shorter than generated.
	queueScale = 10

	pairs = "pairs"
)

// queueSettings are those of the generator: jobs of one node and 1 to 3 GPUs, all there at the start.
var queueSettings = map[string]string{"max_nodes": "1", "min_run": "10s", "max_run": "40s"}

// ranQueue is a run of the jobs under one policy.
type ranQueue struct {
	Policy  string    `json:"policy"`
	Seed    uint64    `json:"seed"`
	Seconds float64   `json:"seconds"` // until all jobs had ended
	Waits   []float64 `json:"waits"`   // of each job, in seconds
	Lives   []float64 `json:"lives"`   // from submission to end
	Lent    int       `json:"lent"`    // jobs that had a GPU of another node
}

func (q *ranQueue) good() bool {
	bad := func(v float64) bool { return !(v >= -1 && v < 1e6) }
	return (q.Policy == gQueue || q.Policy == rQueue) && q.Seconds > 1e-3 && q.Seconds < 1e6 && len(q.Lives) > 0 && len(q.Waits) == len(q.Lives) &&
		!slices.ContainsFunc(q.Lives, bad) && !slices.ContainsFunc(q.Waits, bad)
}

// queueSteps lists the runs, both queues for each seed in turn.
func (l *liveLab) queueSteps() (list []live.Step) {
	for _, seed := range l.options.Seeds(triesOfApp) {
		for _, policy := range []string{gQueue, rQueue} {
			list = append(list, live.Step{Name: fmt.Sprintf("the congested queue under %s, seed %d", policy, seed), Work: 8, Do: func(ctx context.Context, _ func(int)) error {
				q, err := l.runQueue(ctx, policy, seed)
				if err == nil {
					l.m.Queues = append(l.m.Queues, *q)
				}
				return err
			}})
		}
	}
	return list
}

// queueJobs are so many generated jobs.
func queueJobs(count int, seed uint64) ([]model.Job, error) {
	settings := with(queueSettings, "jobs", fmt.Sprint(count))
	w, err := workload.Generate("congested", settings, seed)
	if err != nil {
		return nil, err
	}
	return w.Jobs, nil
}

func (l *liveLab) runQueue(ctx context.Context, policy string, seed uint64) (*ranQueue, error) {
	jobs, err := queueJobs(l.size.queueJobs, seed)
	if err != nil {
		return nil, err
	}
	up, err := bench.StartCluster(ctx, l.tools, name, queueCluster(policy))
	if err != nil {
		return nil, err
	}
	defer up.Stop()
	var list []*api.Submission
	for i := range jobs {
		s, err := l.queueJob(up.Dir, i, &jobs[i], seed)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	ended, err := up.Run(ctx, list)
	if err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("%w\n%s", err, up.Logs()))
	}
	q := &ranQueue{Policy: policy, Seed: seed}
	for i := range ended {
		e := &ended[i]
		if text := up.Output(e.ID); e.State != api.Completed || strings.Count(text, " right, ") != jobs[i].Request.GPUs {
			return nil, fmt.Errorf("job %d ended as %s: %s\n%s", e.ID, e.State, e.Why, text)
		}
		q.Waits, q.Lives = append(q.Waits, e.Start-e.Submit), append(q.Lives, e.End-e.Submit)
		q.Seconds = max(q.Seconds, e.End-ended[0].Submit)
		if slices.ContainsFunc(e.Devices, func(d api.Device) bool { return d.Borrowed }) {
			q.Lent++
		}
	}
	return q, nil
}

func queueCluster(policy string) bench.ClusterSpec {
	spec := bench.ClusterSpec{Policy: policy, Memory: 22 << 30, Lend: true}
	for i := range queueNodes {
		gpu := fmt.Sprintf("soft:memory=%d,rate=%.0f,workers=1,name=gpu", 64<<20, float64(queueRate))
		var gpus []string
		for k := range queueGPUs {
			gpus = append(gpus, gpu+fmt.Sprint(k))
		}
		spec.Hosts = append(spec.Hosts, bench.Host{Name: fmt.Sprintf("node%d", i+1), Cores: queueCores, Devices: strings.Join(gpus, ";")})
	}
	return spec
}

// queueJob is a generated job as a program: a process for each GPU, and as much to do for each as takes the job's
// time.
func (l *liveLab) queueJob(dir string, number int, j *model.Job, seed uint64) (*api.Submission, error) {
	team := filepath.Join(dir, fmt.Sprint("team", number))
	if err := os.Mkdir(team, 0o777); err != nil {
		return nil, err
	}
	r, products := &j.Request, j.Run.Seconds()/queueScale/unit
	return &api.Submission{
		Options: []string{"-N1", "-n", fmt.Sprint(r.GPUs), fmt.Sprintf("--gres=gpu:%d", r.GPUs), fmt.Sprintf("--mem=%dM", r.Memory/1e6), "--time=10"},
		Arguments: []string{filepath.Join(l.tools.Programs, pairs), "--size", fmt.Sprint(matrices), "--repeat", "1", "--pairs", fmt.Sprint(r.GPUs * max(1, int(products))),
			"--seed", fmt.Sprint(seed), "--team", team},
	}, nil
}

// besides is what a job took besides its kernels, as the median of all jobs of all runs: it starts processes, and
// copies.
func (m *liveMeasured) besides() time.Duration {
	var all []float64
	for _, q := range m.Queues {
		jobs, err := queueJobs(len(q.Lives), q.Seed)
		for i := 0; err == nil && i < len(jobs); i++ {
			all = append(all, q.Lives[i]-q.Waits[i]-jobs[i].Run.Seconds()/queueScale)
		}
	}
	return time.Duration(max(0, exp.Median(all)) * float64(time.Second))
}

// predicted is what the simulator says of a run: when jobs start and end. It is told what they take besides their
// kernels.
func (q *ranQueue) predicted(besides time.Duration) (*ranQueue, error) {
	jobs, err := queueJobs(len(q.Lives), q.Seed)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		jobs[i].Run = jobs[i].Run/queueScale + besides
	}
	cluster := &model.Cluster{GPUTypes: []model.GPUType{{Name: "gpu", Memory: 64 << 20, Speed: 1}}}
	for i := range queueNodes {
		cluster.Nodes = append(cluster.Nodes, model.Node{Name: fmt.Sprint("node", i+1), Cores: queueCores, Memory: 22 << 30, GPUs: make([]int, queueGPUs)})
	}
	p, err := catalog.New(q.Policy)
	if err != nil {
		return nil, err
	}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: cluster, Jobs: jobs, Policy: p, NoKill: true})
	if err != nil {
		return nil, err
	}
	out := &ranQueue{Policy: q.Policy, Seed: q.Seed}
	for _, o := range r.Outcomes {
		out.Waits, out.Lives = append(out.Waits, o.Start.Seconds()), append(out.Lives, o.End.Seconds())
		out.Seconds = max(out.Seconds, o.End.Seconds())
	}
	return out, nil
}

// said is the mean of what the simulator says of a number in the runs under a policy; NaN if it says nothing.
func (m *liveMeasured) said(policy string, of func(*ranQueue) float64) float64 {
	besides := m.besides()
	return exp.Mean(exp.Values(m.of(policy), func(q *ranQueue) float64 {
		p, err := q.predicted(besides)
		if err != nil {
			return math.NaN()
		}
		return of(p)
	}))
}

// of are the runs under a policy, by seed.
func (m *liveMeasured) of(policy string) (list []ranQueue) {
	for _, q := range m.Queues {
		if q.Policy == policy {
			list = append(list, q)
		}
	}
	return list
}

// changes are those from the G queue to the R queue in per cent, a number for each seed that both have run.
func (m *liveMeasured) changes(of func(*ranQueue) float64) (list []float64) {
	for _, g := range m.of(gQueue) {
		for _, r := range m.of(rQueue) {
			if g.Seed == r.Seed {
				list = append(list, percent(of(&g), of(&r)))
			}
		}
	}
	return list
}

const partQueues = "The congested queue, live (abstract, section 3)"

// queueRows are what the two queues took, and the picture of that.
func (m *liveMeasured) queueRows() ([]exp.Row, *report.Bars) {
	if len(m.Queues) == 0 {
		return nil, nil
	}
	b := &report.Bars{Title: partQueues, YLabel: "seconds", Groups: []string{"until all have ended", "a job's wait", "a job's life"}}
	var rows []exp.Row
	for _, policy := range []string{gQueue, rQueue} {
		var values [][]float64
		for _, x := range queueTimes {
			values = append(values, exp.Values(m.of(policy), x.of))
			r := exp.Over(partQueues, "queues_"+policy[:1]+"_"+x.key+"_s", "s", values[len(values)-1]).Noting("the simulator says %.2f s", m.said(policy, x.of))
			rows = append(rows, r)
		}
		b.Series = append(b.Series, exp.MeanBars(policy, values))
	}
	for _, x := range queueTimes {
		r := exp.Over(partQueues, "queues_"+x.key+"_change_pct", "%", m.changes(x.of)).Noting("%s, R queue against G queue", x.says)
		if x.key == "all" {
			r = r.AgainstRange(-30, -15)
		}
		rows = append(rows, r)
	}
	lent := exp.Values(m.of(rQueue), func(q *ranQueue) float64 { return float64(q.Lent) })
	return append(rows, exp.Over(partQueues, "queues_lent_jobs", "jobs", lent).Noting("jobs with a GPU of another node, of %d", len(m.Queues[0].Lives))), b
}

// queueTimes are what of a run is compared.
var queueTimes = []struct {
	key, says string
	of        func(*ranQueue) float64
}{
	{"all", "time until all jobs are finished", func(q *ranQueue) float64 { return q.Seconds }},
	{"wait", "mean wait of a job", func(q *ranQueue) float64 { return exp.Mean(q.Waits) }},
	{"life", "mean time from submission to end", func(q *ranQueue) float64 { return exp.Mean(q.Lives) }},
}
