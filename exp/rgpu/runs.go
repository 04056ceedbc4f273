package rgpu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/exp"
	"muster/model"
	"muster/model/clusterfile"
	"muster/policy"
	"muster/policy/catalog"
	"muster/sim"
	"muster/workload"
)

// scenario is a configuration that is run once per seed.
type scenario struct {
	hours   int
	setting setting
	mode    string // cuda, rcuda or exclusive
	policy  string
	cluster string // a variant of the paper's; empty for its own
	jobs    string // more settings of the generator, as key=value with spaces between
	only    string // an application, of which onlyCount jobs are run; empty for all
	traffic bool   // jobs move data to and from their GPUs
}

// The ways to use GPUs, in the generator's words.
const (
	cuda      = "cuda"
	rcuda     = "rcuda"
	exclusive = "exclusive"
)

func (s scenario) String() string {
	words := []string{fmt.Sprintf("%d hours", s.hours), s.setting.title, s.policy}
	if s.mode == exclusive { // the names of the policies distinguish the other modes
		words = append(words, s.mode)
	}
	for _, more := range []string{s.cluster, s.jobs, s.only} {
		if more != "" {
			words = append(words, more)
		}
	}
	return strings.Join(words, ", ")
}

// with is a workload in one of the modes; the paper ran CUDA and shared rCUDA.
func with(mode string, s setting, hours int) scenario {
	policy := "rgpu"
	if mode == cuda {
		policy = "slurm"
	}
	return scenario{hours: hours, setting: s, mode: mode, policy: policy}
}

// reading is an assumption about how busy MCUDA-MEME keeps its GPUs. The paper's numbers allow more
// than one.
type reading struct{ key, jobs, name, meaning string }

var readings = []reading{
	{"", "", "rCUDA", "MCUDA-MEME keeps a GPU busy 95 % of its time, as 1,884 s for twelve at once say"},
	{"_meme50", "meme_intensity=0.5", "rCUDA, MEME at 50 %", "MCUDA-MEME keeps a GPU busy half of its time, which fits Table V with the options of Table IV better"},
	{"_meme25", "meme_intensity=0.25", "rCUDA, MEME at 25 %", "MCUDA-MEME keeps a GPU busy a quarter of its time, as Figs. 2 right and 3 need"},
}

// as is the scenario under a reading. The reading does not matter for CUDA, which does not share
// GPUs.
func (r reading) as(s scenario) scenario {
	s.jobs = r.jobs
	return s
}

// outcome is the result of a run.
type outcome struct {
	seconds   float64 // until all jobs were done
	perMinute float64 // jobs
	wait, run float64 // means, in seconds
	allocated []float64
	counts    []int // of jobs, by application
}

// lab runs scenarios, each once per seed.
type lab struct {
	options exp.Options
	seeds   []uint64
	paper   *model.Cluster
	// policies makes a policy; tests replace it.
	policies func(spec string) (policy.Policy, error)

	exp.Trials[scenario, outcome]
}

func newLab(o exp.Options) (*lab, error) {
	c, err := clusterfile.Preset("rgpu")
	if err != nil {
		return nil, err
	}
	return &lab{options: o, seeds: o.Seeds(seedsTried), paper: c, policies: catalog.New}, nil
}

// Simulate runs all registered scenarios, and returns those that are missing because the context ended.
func (l *lab) Simulate(ctx context.Context) (missing []scenario, err error) {
	weight := func(s scenario) int64 { return int64(s.hours) }
	return l.Run(ctx, l.options, l.seeds, weight, func(ctx context.Context, s scenario, seed uint64) (outcome, error) {
		r, seen, err := l.one(ctx, s, seed)
		if err != nil {
			return outcome{}, err
		}
		return measure(r, seen)
	})
}

// one simulates a scenario with a seed.
func (l *lab) one(ctx context.Context, s scenario, seed uint64) (*sim.Result, *devices, error) {
	cluster, err := variant(l.paper, s.cluster, s.setting.gpus)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := jobsOf(s, seed)
	if err != nil {
		return nil, nil, err
	}
	p, err := l.policies(s.policy)
	if err != nil {
		return nil, nil, err
	}
	seen := watch(cluster)
	r, err := sim.Run(ctx, sim.Config{Cluster: cluster, Jobs: jobs, Policy: p, NoKill: true, Observe: seen})
	return r, seen, err
}

func jobsOf(s scenario, seed uint64) ([]model.Job, error) {
	given := map[string]string{
		"hours": fmt.Sprint(s.hours), "launch": s.setting.launch, "gpus": s.mode, "cluster_gpus": fmt.Sprint(s.setting.gpus),
	}
	for _, kv := range strings.Fields(s.jobs) {
		key, value, _ := strings.Cut(kv, "=")
		given[key] = value
	}
	wl, err := workload.Generate("rgpu", given, seed)
	if err != nil {
		return nil, err
	}
	jobs := wl.Jobs
	if s.only != "" {
		jobs = slices.DeleteFunc(jobs, func(j model.Job) bool { return j.Logged.Executable != s.only })
		jobs = jobs[:min(onlyCount, len(jobs))]
	}
	if s.traffic {
		for i := range jobs {
			move(&jobs[i])
		}
	}
	return jobs, nil
}

// Data that jobs move to and from their GPUs per second of run time, in scenarios with traffic. The
// paper says nothing about it. With these numbers a GPU of another node costs a few per cent, as
// its authors report of rCUDA elsewhere.
const (
	transfersPerSecond = 10
	bytesPerSecond     = 100 << 20
)

func move(j *model.Job) {
	if j.Request.TotalGPUs() > 0 {
		s := int64(j.Run / time.Second)
		j.Traffic = model.Traffic{GPUBytes: s * bytesPerSecond, GPUConns: s * transfersPerSecond}
	}
}

// countApplications counts jobs, in the order of applications.
func countApplications(jobs []model.Job) []int {
	counts := make([]int, len(applications))
	for i := range jobs {
		counts[applicationOf(&jobs[i])]++
	}
	return counts
}

func applicationOf(j *model.Job) int {
	return slices.IndexFunc(applications, func(a application) bool { return a.name == j.Logged.Executable })
}

// Variants of the paper's cluster.
const (
	likePaper = ""
	// twoSpeeds: every other GPU is twice as fast.
	twoSpeeds = "two speeds"
	// twoSwitches: the nodes are on two switches, and a GPU on the other switch is far.
	twoSwitches = "two switches"
	// both of them.
	bothVaried = "two speeds, two switches"
)

// farFactor is how many times more a transfer to a GPU on the other switch costs.
const farFactor = 4

// variant is the paper's cluster with GPUs on the first nodes only, and with the changes of its
// kind. Nodes that lose their GPUs keep everything else.
func variant(c *model.Cluster, kind string, gpus int) (*model.Cluster, error) {
	out := *c
	out.Nodes = slices.Clone(c.Nodes)
	out.GPUTypes = slices.Clone(c.GPUTypes)
	if kind == twoSpeeds || kind == bothVaried {
		fast := out.GPUTypes[0]
		fast.Name, fast.Speed = fast.Name+"-fast", 2*fast.Speed
		out.GPUTypes = append(out.GPUTypes, fast)
		for i := range out.Nodes {
			if i%2 == 1 {
				out.Nodes[i].GPUs = []int{len(out.GPUTypes) - 1}
			}
		}
	}
	if kind == twoSwitches || kind == bothVaried {
		out.Remote.Far = farFactor
		for i := range out.Nodes {
			out.Nodes[i].Switch = [2]string{"left", "right"}[i/2%2]
		}
	}
	for i := gpus; i < len(out.Nodes); i++ {
		out.Nodes[i].GPUs = nil
	}
	return &out, out.Validate()
}

// measure computes the outcome of a run.
func measure(r *sim.Result, seen *devices) (outcome, error) {
	var o outcome
	end := time.Duration(0)
	for i := range r.Outcomes {
		if r.Outcomes[i].State != sim.Finished {
			return o, fmt.Errorf("job %s is %v: %s", r.Jobs[i].ID, r.Outcomes[i].State, r.Reasons[i])
		}
		end = max(end, r.Outcomes[i].End)
	}
	sum := r.Summarize()
	o.seconds = end.Seconds()
	o.perMinute = float64(len(r.Jobs)) / end.Minutes()
	o.wait, o.run = sum.Wait.Mean, sum.Run.Mean
	o.allocated = seen.allocated(end)
	o.counts = countApplications(r.Jobs)
	return o, nil
}

// ratios divides a number of two scenarios, seed by seed.
func ratios(a, b []outcome, of func(*outcome) float64) []float64 {
	return exp.Ratios(exp.Values(a, of), exp.Values(b, of))
}

func seconds(o *outcome) float64   { return o.seconds }
func perMinute(o *outcome) float64 { return o.perMinute }
