package aucsched

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster/exp"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy"
	"muster/policy/catalog"
	"muster/sim"
	"muster/sim/bound"
	"muster/workload"
)

// numbers are the columns of the paper's tables. Times are hours.
type numbers struct {
	theoretical      float64
	utilization      float64 // per cent
	runtime          float64
	wait             float64
	waitSTD          float64
	fragmentation    float64
	fragmentationSTD float64
	slowdown         float64
	spread           float64
	spreadSTD        float64
	// favour is the mean wait of the half of the jobs with fewer cores divided by that of the other
	// half. Below 1, small jobs go first. The paper does not print it.
	favour float64
}

// column is a column of the tables, with its name in metrics and its title for people.
type column struct {
	metric, title, unit string
	of                  func(*numbers) float64
	// digits after the decimal point, as in the paper.
	digits int
	// std, if set, is the standard deviation that the paper prints beside the number.
	std func(*numbers) float64
	// less says that smaller numbers are better.
	less bool
}

// columns of the tables, in their order.
var columns = []column{
	{"utilization_pct", "util, %", "%", utilization, 0, nil, false},
	{"runtime_h", "runtime, h", "h", func(n *numbers) float64 { return n.runtime }, 2, nil, true},
	{"wait_h", "wait, h", "h", func(n *numbers) float64 { return n.wait }, 2, func(n *numbers) float64 { return n.waitSTD }, true},
	{"fragmentation", "fragm.", "blocks", func(n *numbers) float64 { return n.fragmentation }, 2, func(n *numbers) float64 { return n.fragmentationSTD }, true},
	{"slowdown", "slowdown", "", func(n *numbers) float64 { return n.slowdown }, 2, nil, true},
	{"spread", "spread", "", func(n *numbers) float64 { return n.spread }, 2, func(n *numbers) float64 { return n.spreadSTD }, true},
}

func utilization(n *numbers) float64 { return n.utilization }

// scenario is a configuration that is run once for each instance of a workload.
type scenario struct {
	machine string // S, M or L
	version string // of the workload: I.1 to V.3
	jobs    string // settings of the generator beyond the version's, as key=value with spaces between
	policy  string // as the catalogue spells it; boundPolicy for the proven bound
}

func (s scenario) String() string {
	return fmt.Sprintf("machine %s, workload %s, %s", s.machine, strings.TrimSpace(s.version+" "+s.jobs), s.policy)
}

// boundPolicy stands for the best result that any policy can reach.
const boundPolicy = "bound"

// lab runs scenarios, each once per seed.
type lab struct {
	options  exp.Options
	seeds    []uint64
	clusters map[string]*model.Cluster
	// Sources of policies, jobs and bounds; tests replace them.
	policies func(spec string) (policy.Policy, error)
	generate func(settings map[string]string, seed uint64) ([]model.Job, error)
	bound    func(*model.Cluster, []model.Job) (time.Duration, error)

	exp.Trials[scenario, numbers]
}

func newLab(o exp.Options) (*lab, error) {
	count := instances
	if len(o.Figures) == 0 && o.Flags["table"] == "" && o.Flags["machine"] == "" {
		count = instancesOfAll
	}
	l := &lab{
		options: o, seeds: o.Seeds(count), clusters: map[string]*model.Cluster{},
		policies: catalog.New, generate: generate, bound: provenBound,
	}
	for _, m := range machines {
		c, err := clusterfile.Preset(m.preset)
		if err != nil {
			return nil, err
		}
		l.clusters[m.name] = c
	}
	return l, nil
}

// Simulate runs all registered scenarios, and returns those that are missing because the context ended.
func (l *lab) Simulate(ctx context.Context) (missing []scenario, err error) {
	weight := func(s scenario) int64 { return int64(len(l.clusters[s.machine].Nodes)) }
	return l.Run(ctx, l.options, l.seeds, weight, l.one)
}

// one simulates a scenario, or proves its bound, and computes its numbers.
func (l *lab) one(ctx context.Context, s scenario, seed uint64) (numbers, error) {
	if s.policy == boundPolicy {
		return l.least(s, seed)
	}
	r, err := l.simulate(ctx, s, seed, nil)
	if err != nil {
		return numbers{}, err
	}
	return measure(r)
}

func (l *lab) simulate(ctx context.Context, s scenario, seed uint64, watch sim.Observer) (*sim.Result, error) {
	jobs, err := l.workload(s, seed)
	if err != nil {
		return nil, err
	}
	p, err := l.policies(s.policy)
	if err != nil {
		return nil, err
	}
	return sim.Run(ctx, sim.Config{Cluster: l.clusters[s.machine], Jobs: jobs, Policy: p, Observe: watch})
}

// least has the shortest makespan and the highest utilisation that any schedule can reach.
func (l *lab) least(s scenario, seed uint64) (numbers, error) {
	cluster := l.clusters[s.machine]
	jobs, err := l.workload(s, seed)
	if err != nil {
		return numbers{}, err
	}
	time, err := l.bound(cluster, jobs)
	n := numbers{theoretical: theoretical(cluster, jobs).Hours(), runtime: time.Hours()}
	n.utilization = 100 * n.theoretical / n.runtime
	return n, err
}

// workload generates the jobs of an instance.
func (l *lab) workload(s scenario, seed uint64) ([]model.Job, error) {
	v := versionOf(s.version)
	settings := map[string]string{
		"workload": v.workload, "contiguous": fmt.Sprint(v.contiguous), "nodes": fmt.Sprint(len(l.clusters[s.machine].Nodes)),
	}
	if hours, given := l.options.Flags["hours"]; given {
		settings["hours"] = hours
	}
	for _, kv := range strings.Fields(s.jobs) {
		key, value, _ := strings.Cut(kv, "=")
		settings[key] = value
	}
	return l.generate(settings, seed)
}

func generate(settings map[string]string, seed uint64) ([]model.Job, error) {
	wl, err := workload.Generate("aucsched", settings, seed)
	if err != nil {
		return nil, err
	}
	return wl.Jobs, nil
}

// theoretical is the paper's theoretical run time: the sum of run time times cores over all jobs,
// divided by the cores of the cluster. Each job is divided by itself and the remainders are summed
// separately, because the sum over all jobs could overflow.
func theoretical(c *model.Cluster, jobs []model.Job) time.Duration {
	total := time.Duration(c.TotalCores())
	var sum, rest time.Duration
	for i := range jobs {
		work := jobs[i].Run * time.Duration(jobs[i].Request.TotalCores())
		sum += work / total
		rest += work % total
	}
	return sum + rest/total
}

// measure computes the columns of a run.
func measure(r *sim.Result) (numbers, error) {
	var wait, fragmentation, slowdown, spread series
	end := time.Duration(0)
	for i := range r.Outcomes {
		o, j := &r.Outcomes[i], &r.Jobs[i]
		if o.State != sim.Finished {
			return numbers{}, fmt.Errorf("job %s is %v: %s", j.ID, o.State, r.Reasons[i])
		}
		end = max(end, o.End)
		wait.add((o.Start - j.Submit).Hours())
		fragmentation.add(o.Fragmentation())
		spread.add(o.Spread())
		slowdown.add(float64(o.End-j.Submit) / float64(o.End-o.Start))
	}
	n := numbers{theoretical: theoretical(r.Cluster, r.Jobs).Hours(), runtime: end.Hours()}
	n.utilization = 100 * n.theoretical / n.runtime
	n.wait, n.waitSTD = wait.describe()
	n.fragmentation, n.fragmentationSTD = fragmentation.describe()
	n.slowdown, _ = slowdown.describe()
	n.spread, n.spreadSTD = spread.describe()
	n.favour = favour(r.Jobs, wait)
	return n, nil
}

// favour compares the waits of small and large jobs. Jobs of the median size count as both.
func favour(jobs []model.Job, wait series) float64 {
	sizes := make([]int, len(jobs))
	for i := range jobs {
		sizes[i] = jobs[i].Request.TotalCores()
	}
	middle := slices.Sorted(slices.Values(sizes))[len(sizes)/2]
	var small, large series
	for i, w := range wait {
		if sizes[i] <= middle {
			small.add(w)
		}
		if sizes[i] >= middle {
			large.add(w)
		}
	}
	a, _ := small.describe()
	b, _ := large.describe()
	if b == 0 {
		return 1 // no job waits
	}
	return a / b
}

// series has a value for each job of a run.
type series []float64

func (s *series) add(v float64) { *s = append(*s, v) }

// describe computes mean and standard deviation.
func (s series) describe() (mean, std float64) {
	for _, v := range s {
		mean += v
	}
	mean /= float64(len(s))
	for _, v := range s {
		std += float64((v - mean) * (v - mean))
	}
	return mean, math.Sqrt(std / float64(len(s)))
}

// meanOf averages over the instances, as the paper does.
func meanOf(list []numbers) numbers {
	var sum numbers
	fields := func(n *numbers) []*float64 {
		return []*float64{&n.theoretical, &n.utilization, &n.runtime, &n.wait, &n.waitSTD, &n.fragmentation, &n.fragmentationSTD, &n.slowdown, &n.spread, &n.spreadSTD, &n.favour}
	}
	for i := range list {
		for k, f := range fields(&list[i]) {
			*fields(&sum)[k] += *f / float64(len(list))
		}
	}
	return sum
}

// provenBound is a makespan below which no schedule can be.
func provenBound(c *model.Cluster, jobs []model.Job) (time.Duration, error) {
	b := bound.Makespan(c, jobs)
	if b.Jobs != len(jobs) {
		return 0, fmt.Errorf("%d of %d jobs fit the machine", b.Jobs, len(jobs))
	}
	return b.Makespan, nil
}
