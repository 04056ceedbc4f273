package workload

import (
	"math/rand/v2"
	"slices"
	"time"

	"muster/model"
)

// The synthetic workloads of the AUCSCHED paper (section 6.1 and Table 4), for
// machines of nodes with 8 cores and 2 GPUs: run times uniform between 60 and
// 600 s, cores in multiples of a node's 8, jobs added until the sum of run time
// x cores over all cores reaches about four hours, all submitted at once.
//
// The paper does not publish the most cores that a job may ask for, nor the
// priorities, nor whether jobs were really submitted at once. A sixteenth of the
// machine, in the order of submission, gives utilisations nearest to the paper's
// over all its workloads, and waits of its auction; with an eighth workload V
// comes nearer on large machines and workload IV much further away, and with
// larger jobs first waits and slowdowns are far from the paper's. The waits of its
// Slurm, and fragmentation and spread, were not fitted.
//
// What is beyond the paper is drawn last or not at all, so that the same seed
// gives the same jobs with it and without: contiguous requests, remote GPUs,
// alternatives.
var aucschedGenerator = Generator{
	Name:    "aucsched",
	Summary: "the synthetic workloads I to V of the AUCSCHED paper",
	Parameters: []Parameter{
		{"workload", "V", "I, II, III, IV or V of Table 4: which kinds of jobs there are"},
		{"contiguous", "0", "how many in a hundred jobs want neighbouring nodes: 0, 50 and 100 in the paper"},
		{"nodes", "128", "nodes of the machine, of 8 cores and 2 GPUs each: 128, 256 and 1024 in the paper"},
		{"hours", "4", "theoretical run time: run times x cores of all jobs over the cores of the machine"},
		{"max_cores", "0", "most cores of a job; not published: 0 is a sixteenth of the machine"},
		{"min_run", "60", "shortest run time"},
		{"max_run", "600", "longest run time; all whole seconds between are equally likely"},
		{"cores_per_node", "4,8", "cores a node of jobs with a node request, each as likely"},
		{"cores_per_gpu", "1,2", "cores for each GPU of jobs with GPUs, each as likely"},
		{"priority", "fifo", "fifo: all alike; size: jobs with more cores first"},
		{"remote", "no", "yes: GPUs may be anywhere; spread: the cores of GPU jobs may be, too"},
		{"alternatives", "0", "how many in a hundred GPU jobs would do with cores alone"},
		{"cores_slowdown", "4", "how many times longer such a job then takes; an assumption"},
		{"estimates", "exact", "exact: the scheduler knows run times; a number: wall times are so many times the run time"},
	},
	generate: generateAUCSCHED,
}

const (
	aucschedNodeCores = 8
	aucschedNodeGPUs  = 2
)

// table4 has the weights of jobs that ask for cores only, for nodes, for nodes with one GPU, and
// for nodes with two.
var table4 = map[string]weights{
	"I": {1, 0, 0, 0}, "II": {0, 1, 0, 0}, "III": {1, 1, 0, 0}, "IV": {2, 2, 1, 0}, "V": {2, 2, 1, 1},
}

func generateAUCSCHED(p *params, rng *rand.Rand) *Workload {
	kinds := table4[p.choice("workload", "I", "II", "III", "IV", "V")]
	contiguous := p.count("contiguous", 0, 100)
	nodes := p.count("nodes", 1, 1_000_000)
	hours := p.number("hours", 0.001, 100_000)
	machine := nodes * aucschedNodeCores
	maxCores := p.count("max_cores", 0, machine)
	minRun, maxRun := int64(p.seconds("min_run", false)), int64(p.seconds("max_run", false))
	if minRun < 1 || maxRun < minRun {
		p.fail("max_run", "it must not be below min_run, and that must be a second at least")
	}
	count := func(s string) (int, error) { n, err := parseCount(s); return int(n), err }
	perNode, perGPU := list(p, "cores_per_node", count), list(p, "cores_per_gpu", count)
	for _, n := range perNode {
		if n < 1 || aucschedNodeCores%n != 0 {
			p.fail("cores_per_node", "give divisors of %d", aucschedNodeCores)
		}
	}
	for _, n := range perGPU {
		if n < 1 || aucschedNodeCores%(n*aucschedNodeGPUs) != 0 {
			p.fail("cores_per_gpu", "two times each must divide %d", aucschedNodeCores)
		}
	}
	if maxCores > 0 && maxCores < aucschedNodeCores {
		p.fail("max_cores", "jobs ask for multiples of %d cores", aucschedNodeCores)
	}
	bySize := p.choice("priority", "size", "fifo") == "size"
	remote := p.choice("remote", "no", "yes", "spread")
	alternatives := p.count("alternatives", 0, 100)
	slowdown := p.number("cores_slowdown", 1, 1000)
	estimate := p.estimates("estimates")
	if p.err != nil {
		return nil
	}
	if maxCores == 0 {
		maxCores = max(machine/16, aucschedNodeCores)
	}
	sizes := max(1, maxCores/aucschedNodeCores)
	if least := leastNodes(kinds, perNode, perGPU); least > nodes {
		p.fail("nodes", "the smallest jobs ask for up to %d nodes", least)
		return nil
	}
	want := int64(float64(hours*3600) * float64(machine)) // core seconds
	wl := new(Workload)
	for sum := int64(0); sum < want; {
		if len(wl.Jobs) == maxJobs {
			p.fail("hours", "that is more than %d jobs", maxJobs)
			return nil
		}
		var j model.Job
		kind := kinds.pick(rng)
		for {
			cores := aucschedNodeCores * (1 + rng.IntN(sizes))
			j.Request = aucschedRequest(kind, cores, perNode, perGPU, rng)
			if j.Request.Nodes <= nodes { // otherwise it needs more nodes than there are, and is drawn again
				break
			}
		}
		j.Request.Contiguous = rng.IntN(100) < contiguous
		j.Run = time.Duration(minRun+rng.Int64N(maxRun-minRun+1)) * time.Second
		j.WallTime = estimate(j.Run)
		cores := j.Request.TotalCores()
		if bySize {
			j.Priority = int64(cores)
		}
		sum += int64(j.Run/time.Second) * int64(cores)
		wl.Jobs = append(wl.Jobs, j)
	}
	for i := range wl.Jobs {
		j := &wl.Jobs[i]
		if j.Request.GPUs > 0 && rng.IntN(100) < alternatives {
			run := time.Duration(ceilSeconds(float64(float64(j.Run/time.Second)*slowdown))) * time.Second
			j.Alternatives = []model.Request{{
				Cores: j.Request.TotalCores(), Contiguous: j.Request.Contiguous, Run: run, WallTime: estimate(run),
			}}
		}
	}
	if remote != "no" {
		for i := range wl.Jobs {
			decouple(&wl.Jobs[i].Request, remote == "spread")
		}
	}
	return wl
}

// leastNodes is the number of nodes that the smallest job of the widest kind needs.
func leastNodes(kinds weights, perNode, perGPU []int) int {
	least := 1
	for kind, weight := range kinds {
		if weight > 0 && kind > 0 {
			onNode := slices.Max(perNode)
			if gpus := kind - 1; gpus > 0 {
				onNode = gpus * slices.Max(perGPU)
			}
			least = max(least, aucschedNodeCores/onNode)
		}
	}
	return least
}

// aucschedRequest makes a request of one of the four kinds of Table 4, with the given total number
// of cores.
func aucschedRequest(kind, cores int, perNode, perGPU []int, rng *rand.Rand) model.Request {
	if kind == 0 {
		return model.Request{Cores: cores}
	}
	gpus := kind - 1
	onNode := 0
	if gpus == 0 {
		onNode = perNode[rng.IntN(len(perNode))]
	} else {
		onNode = gpus * perGPU[rng.IntN(len(perGPU))]
	}
	return model.Request{Nodes: cores / onNode, CoresPerNode: onNode, GPUs: gpus}
}

// decouple lets the GPUs of a request be on any node and, with spread, its cores, too.
func decouple(r *model.Request, spread bool) {
	if r.GPUs == 0 {
		return
	}
	r.Remote = &model.RemoteGPUs{Count: r.Nodes * r.GPUs}
	r.GPUs = 0
	if spread {
		r.Cores, r.Nodes, r.CoresPerNode = r.TotalCores(), 0, 0
	}
}
