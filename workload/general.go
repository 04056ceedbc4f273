package workload

import (
	"fmt"
	"math/rand/v2"
	"time"

	"muster/internal/portable"
	"muster/model"
)

// The general generator has one parameter for each property that schedules depend on. With its
// defaults, jobs of 1 to 16 nodes ask for 1, 2, 4 or 8 cores and 0 to 2 GPUs per node, for clusters
// of nodes with 8 cores and 2 GPUs.
var generalGenerator = Generator{
	Name:    "general",
	Summary: "jobs with a chosen load, arrival pattern, size and run-time distribution and GPU mix",
	Parameters: []Parameter{
		{"jobs", "10000", "number of jobs"},
		{"nodes", "1000", "nodes of the cluster that the load is relative to"},
		{"node_cores", "8", "cores of each of its nodes"},
		{"node_gpus", "2", "GPUs of each of its nodes"},
		{"load", "0.9", "offered load: work that arrives in a time over what the cluster can do in it"},
		{"load_of", "busiest", "what the load is of: cores, gpus, nodes (as if jobs shared none), or the busiest of cores and gpus"},
		{"interarrival", "0", "mean time between submissions; 0 takes it from the load"},
		{"arrival", "poisson", "poisson, or fixed for even distances"},
		{"run", runExponential, "run times: exponential, lognormal, uniform (0 to twice the mean), or fixed"},
		{"mean_run", "1h", "mean run time"},
		{"sigma", "2", "spread of lognormal run times: standard deviation of their logarithm"},
		{"max_run", "0", "longest run time; 0 for no limit; the mean is kept"},
		{"size", "uniform", "nodes of a job: uniform from 1 to max_nodes, or powers of two, each half as likely as the one before"},
		{"max_nodes", "16", "most nodes of a job"},
		{"cores", "1,2,4,8", "cores a node, each as likely"},
		{"gpu_mix", "50:35:15", "weights of asking for 0, 1, 2, ... GPUs a node"},
		{"memory_per_core", "0", "memory for each core"},
		{"wall_margin", "3", "wall times are the run time times a factor drawn from 1 to this; 0 for none"},
		{"contiguous", "0", "percentage of jobs of several nodes that want neighbouring ones"},
		{"traffic", "no", "yes: data sizes are the memory of a node, connections from 100 to 100,000, as in the TSUBAME paper"},
		{"users", "100", "number of users"},
	},
	generate: generateGeneral,
}

func generateGeneral(p *params, rng *rand.Rand) *Workload {
	jobs := p.count("jobs", 1, maxJobs)
	runs := newRunTimes(p, p.choice("run", runExponential, runLognormal, runUniform, runFixed), "mean_run", "max_run", "sigma")
	maxNodes := p.count("max_nodes", 1, 1_000_000)
	size := p.choice("size", "uniform", "powers")
	coreChoices := list(p, "cores", func(s string) (int, error) {
		n, err := parseCount(s)
		if err == nil && (n == 0 || n > 1_000_000) {
			err = fmt.Errorf("%q is no number of cores", s)
		}
		return int(n), err
	})
	gpuMix := p.weights("gpu_mix", 1+model.MaxGPUsPerNode)
	memory := p.size("memory_per_core")
	margin := p.number("wall_margin", 0, 100)
	contiguous := p.count("contiguous", 0, 100)
	traffic := p.flag("traffic")
	users := names("u", p.count("users", 1, 1_000_000))
	poisson := p.choice("arrival", "poisson", "fixed") == "poisson"
	sizes := newSizes(size, maxNodes)
	gap := interarrival(p, sizes.mean(), coreChoices, gpuMix)
	if p.err != nil {
		return nil
	}
	wl := &Workload{Jobs: make([]model.Job, jobs)}
	now := 0.0
	for i := range wl.Jobs {
		j := &wl.Jobs[i]
		j.Submit = time.Duration(now) * time.Second
		j.Run = runs.draw(rng)
		r := &j.Request
		r.Nodes = sizes.draw(rng)
		r.CoresPerNode = coreChoices[rng.IntN(len(coreChoices))]
		r.GPUs = gpuMix.pick(rng)
		r.MemoryPerCore = memory
		if contiguous > 0 && r.Nodes > 1 {
			r.Contiguous = rng.IntN(100) < contiguous
		}
		if margin > 0 {
			factor := 1 + float64(portable.Unit(rng.Uint64())*max(0, margin-1))
			j.WallTime = time.Duration(float64(j.Run/time.Second)*factor) * time.Second
		}
		j.User = users[rng.IntN(len(users))]
		if traffic {
			table1(j, rng)
		}
		if poisson {
			now += float64(gap * -portable.Log(portable.Unit(rng.Uint64())))
		} else {
			now += gap
		}
		if now > maxSeconds {
			p.fail("jobs", "they would arrive over more than %d years: ask for a higher load or fewer jobs", maxSeconds/31_536_000)
			return nil
		}
	}
	return wl
}

// interarrival is the mean time between submissions, in seconds.
func interarrival(p *params, meanNodes float64, cores []int, gpuMix weights) float64 {
	nodes := float64(p.count("nodes", 1, 100_000_000))
	nodeCores := float64(p.count("node_cores", 1, 1_000_000))
	nodeGPUs := float64(p.count("node_gpus", 0, model.MaxGPUsPerNode))
	load := p.number("load", 0.0001, 1000)
	meanRun := p.seconds("mean_run", false)
	of := p.choice("load_of", "busiest", "cores", "gpus", "nodes")
	if gap := p.seconds("interarrival", true); gap > 0 {
		return gap
	}
	sum := 0
	for _, c := range cores {
		sum += c
	}
	// The mean fraction of a node that a job takes.
	ofCores := float64(sum) / float64(len(cores)) / nodeCores
	ofGPUs := 0.0
	if gpus := gpuMix.mean(func(i int) int { return i }); gpus > 0 && nodeGPUs > 0 {
		ofGPUs = gpus / nodeGPUs
	}
	var share float64
	switch of {
	case "cores":
		share = ofCores
	case "gpus":
		share = ofGPUs
	case "nodes":
		share = 1
	default:
		share = max(ofCores, ofGPUs)
	}
	if share == 0 {
		p.fail("load_of", "no job asks for GPUs, or no node has any")
		return 1
	}
	return meanNodes * share * meanRun / (nodes * load)
}

// sizes draws numbers of nodes.
type sizes struct {
	most   int
	powers weights // of 1, 2, 4, ...; nil for uniform
}

func newSizes(kind string, most int) sizes {
	s := sizes{most: most}
	if kind == "powers" {
		classes := 0
		for n := 1; n <= most; n *= 2 {
			classes++
		}
		for i := range classes {
			s.powers = append(s.powers, 1<<(classes-1-i))
		}
	}
	return s
}

func (s *sizes) draw(rng *rand.Rand) int {
	if s.powers == nil {
		return 1 + rng.IntN(s.most)
	}
	return 1 << s.powers.pick(rng)
}

func (s *sizes) mean() float64 {
	if s.powers == nil {
		return float64(s.most+1) / 2
	}
	return s.powers.mean(func(i int) int { return 1 << i })
}
