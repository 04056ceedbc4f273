package workload

import (
	"math/rand/v2"
	"time"

	"muster/model"
)

// The simulated congested queue of the TSUBAME paper (abstract and section 3):
// a set of GPU jobs that are all there at once, none asking for more than a node
// has. The paper gives no numbers for it. It is there to show how GPUs are
// fragmented "provided that other resources are enough", so by default three
// jobs of one GPU fit a node of 8 cores and 22 GB in every other respect. Each
// number of GPUs from 1 to 3 is equally likely, for want of anything better
// known, and run times are bounded, so that the end of the schedule is not the
// one longest job.
var congestedGenerator = Generator{
	Name:    "congested",
	Summary: "a queue of GPU jobs that are all there at the start, as in the TSUBAME paper",
	Parameters: []Parameter{
		{"jobs", "500", "number of jobs"},
		{"max_nodes", "4", "jobs ask for 1 to this many nodes, each as likely"},
		{"gpu_mix", "1:1:1", "weights of asking for 1, 2, 3, ... GPUs a node; the paper has none, so all are alike"},
		{"cores_per_gpu", "1", "cores for each GPU; with 1, cores never keep two jobs apart on a TSUBAME node"},
		{"memory_per_gpu", "7GB", "largest memory for each GPU, drawn in whole GB; 7 GB is a third of a TSUBAME node"},
		{"min_run", "10m", "shortest run time"},
		{"max_run", "2h", "longest run time; all between are equally likely"},
		{"wall_margin", "2", "wall times are the next round time above this many times the run time; 0 for none"},
		{"spread", "0", "jobs arrive evenly over this time instead of all at once"},
		{"users", "20", "number of users"},
	},
	generate: generateCongested,
}

func generateCongested(p *params, rng *rand.Rand) *Workload {
	jobs := p.count("jobs", 1, maxJobs)
	maxNodes := p.count("max_nodes", 1, 1_000_000)
	gpuMix := p.weights("gpu_mix", model.MaxGPUsPerNode)
	coresPerGPU := p.count("cores_per_gpu", 1, 1024)
	gigabytes := p.size("memory_per_gpu") / 1e9
	minRun, maxRun := int64(p.seconds("min_run", false)), int64(p.seconds("max_run", false))
	if maxRun < minRun {
		p.fail("max_run", "it must not be below min_run")
	}
	margin := p.number("wall_margin", 0, 100)
	spread := int64(p.seconds("spread", true))
	users := names("u", p.count("users", 1, 1_000_000))
	if p.err != nil {
		return nil
	}
	wl := &Workload{Jobs: make([]model.Job, jobs)}
	for i := range wl.Jobs {
		j := &wl.Jobs[i]
		gpus := 1 + gpuMix.pick(rng)
		j.Request = model.Request{
			Nodes: 1 + rng.IntN(maxNodes), CoresPerNode: gpus * coresPerGPU, GPUs: gpus,
		}
		if gigabytes > 0 {
			j.Request.Memory = (1 + rng.Int64N(gigabytes)) * int64(gpus) * 1e9
		}
		j.Run = time.Duration(minRun+rng.Int64N(maxRun-minRun+1)) * time.Second
		if margin > 0 {
			j.WallTime = roundWallTime(j.Run, max(1, margin))
		}
		if spread > 0 {
			j.Submit = time.Duration(rng.Int64N(spread)) * time.Second
		}
		j.User = users[rng.IntN(len(users))]
		j.Queue = "G"
		table1(j, rng)
	}
	return wl
}
