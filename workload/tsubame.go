package workload

import (
	"math/rand/v2"
	"slices"
	"time"

	"muster/internal/portable"
	"muster/internal/units"
	"muster/model"
)

// A year-like log of TSUBAME2.5's G queue. The log of the paper is not public.
// What the paper publishes is used, and nothing else is fitted to its results:
//
//   - 480 nodes of 8 CPUs, 3 GPUs and 22 GB; jobs of 2013; Table 1's estimates of
//     data sizes and connections.
//   - Mean run time: Table 3 and section 4.2 give a wait 963.60 s shorter, which is
//     25.24%, so the mean wait was about 3,818 s; a life 959.65 s shorter, which
//     is 5.06%, so the mean life was about 18,966 s. The difference is 15,150 s.
//   - The load is the one free parameter that sets the wait. Its default is the
//     one, in steps of 0.01, at which first fit on 480 whole nodes (the G queue)
//     keeps jobs waiting closest to 3,818 s on average over 20 seeds.
//
// The rest is not in the paper. It is taken from public logs of such jobs, or it
// is plausible or neutral:
//
//   - Run times are lognormal with sigma 2 (the logs of the Parallel Workloads
//     Archive that were looked at have 1.8 to 2.8) up to a day, the usual limit
//     of a batch queue.
//   - The paper calls many jobs nearly embarrassingly parallel. Such jobs are small
//     and come in bags. Nodes: 1, 2, 4, 8 and 16 as in the public log of a GPU
//     cluster, Microsoft's Philly, where 95.4% of the jobs ask for at most 2 GPUs and
//     so for one node here, 2.3% for 4 GPUs, 2.0% for 8, 0.2% for 16 and 0.1% for more.
//   - Bursts of alike jobs, 50 on average, so that a job finds itself among a hundred:
//     as in CERIT-WAGAP of 2013, where a job is one of 101 on average (a bag being
//     submissions of one user at most two minutes apart). On machines for parallel programs it
//     is one of 3 to 8 (NASA iPSC, HPC2N), on a grid one of thousands (LCG).
//   - Half of the bursts ask for all that a node has, which a job of the G queue gets
//     in any case. That share is not known: the paper says that most resources
//     were under-utilised, and that not all jobs ask for the most GPUs. The G
//     queue does not care; what an R queue gains depends on it more than on anything else.
//   - The others: GPUs a node: 1, 2 and 3 alike. Cores: 1, 2, 4 or 8 alike, but no
//     fewer than GPUs. Memory: 1, 2, 4, 8, 16 and 22 GB alike.
//   - Submissions follow the working day and week, three times as many by day as
//     by night and twice as many on working days.
var tsubameGenerator = Generator{
	Name:    "tsubame",
	Summary: "a year-like log of TSUBAME2.5's G queue, from what the paper publishes",
	Parameters: []Parameter{
		{"days", "365", "length of the log"},
		{"nodes", "480", "nodes of the queue that the load is relative to"},
		{"load", "0.69", "offered occupancy of whole nodes; the default gives the paper's mean wait under its G queue"},
		{"mean_run", "15150", "mean run time: the paper's mean life less its mean wait"},
		{"sigma", "2", "spread of the lognormal run times, as in other published logs"},
		{"max_run", "24h", "longest run time"},
		{"node_mix", "954:23:20:2:1", "weights of asking for 1, 2, 4, 8, ... nodes, as in the Philly log"},
		{"gpu_mix", "1:1:1", "weights of asking for 1, 2, 3 GPUs a node, where not for all; unknown, so alike"},
		{"cores", "1,2,4,8", "cores a node, each as likely, but no fewer than GPUs"},
		{"memory", "1GB,2GB,4GB,8GB,16GB,22GB", "memory a node, each as likely"},
		{"whole_nodes", "50", "how many in a hundred bursts ask for all that a node has; unknown, so half"},
		{"burst", "50", "mean number of alike jobs submitted together, as in the CERIT-WAGAP log of 2013"},
		{"cycle", "yes", "follow the working day and week; no for a steady rate"},
		{"wall_margin", "1.2", "wall times are the next round time above this many times the run time; 0 for none"},
		{"users", "200", "number of users"},
	},
	generate: generateTSUBAME,
}

// workingWeek: three times as many submissions by day as by night, with mornings
// and evenings between, and twice as many on working days.
var workingWeek = newClock([24]int{
	1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 3, 3,
	3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1,
}, [7]int{1, 2, 2, 2, 2, 2, 1})

// tsubameStart is the midnight that begins the year of the paper's log.
var tsubameStart = time.Date(2013, time.January, 1, 0, 0, 0, 0, time.UTC)

func generateTSUBAME(p *params, rng *rand.Rand) *Workload {
	days := p.count("days", 1, 3650)
	nodes := p.count("nodes", 1, 10_000_000)
	load := p.number("load", 0.0001, 1000)
	meanRun := p.seconds("mean_run", false)
	runs := newRunTimes(p, runLognormal, "mean_run", "max_run", "sigma")
	nodeMix := p.weights("node_mix", 20)
	gpuMix := p.weights("gpu_mix", model.MaxGPUsPerNode)
	coreChoices := list(p, "cores", func(s string) (int, error) { n, err := parseCount(s); return int(n), err })
	memories := list(p, "memory", units.ParseSize)
	burst := p.number("burst", 1, 10_000)
	whole := p.number("whole_nodes", 0, 100) / 100
	margin := p.number("wall_margin", 0, 100)
	users := names("u", p.count("users", 1, 1_000_000))
	when := steady
	if p.flag("cycle") {
		when = workingWeek
	}
	if p.err != nil {
		return nil
	}
	meanNodes := nodeMix.mean(func(i int) int { return 1 << i })
	rate := load * float64(nodes) / (meanNodes * meanRun) // jobs a second
	end := float64(days) * 86400
	expected := rate * end
	if expected > maxJobs {
		p.fail("load", "that is more than %d jobs", maxJobs)
		return nil
	}
	wl := &Workload{Start: tsubameStart, Jobs: make([]model.Job, 0, int(expected)+int(expected)/16+64)}
	var bursts []int // where each begins
	arrive := arrivals{clock: when, weekday: int(tsubameStart.Weekday()), rate: rate / burst}
	for at := arrive.next(rng); at < end; at = arrive.next(rng) {
		first := len(wl.Jobs)
		bursts = append(bursts, first)
		like := tsubameJob(rng, nodeMix, gpuMix, coreChoices, memories)
		like.Submit = time.Duration(at) * time.Second
		like.User = users[rng.IntN(len(users))]
		for len(wl.Jobs) == first || float64(portable.Unit(rng.Uint64())*burst) > 1 { // geometric, with the mean asked for
			j := like
			j.Run = runs.draw(rng)
			if margin > 0 {
				j.WallTime = roundWallTime(j.Run, max(1, margin))
			}
			table1(&j, rng)
			wl.Jobs = append(wl.Jobs, j)
		}
	}
	if whole > 0 {
		// Draw this last, so that the share of whole nodes changes only the requests and nothing
		// else of the log.
		all := model.Request{GPUs: len(gpuMix), CoresPerNode: max(len(gpuMix), slices.Max(coreChoices)), Memory: slices.Max(memories)}
		for i, first := range bursts {
			last := len(wl.Jobs)
			if i+1 < len(bursts) {
				last = bursts[i+1]
			}
			if portable.Unit(rng.Uint64()) < whole {
				askForAll(wl.Jobs[first:last], all)
			}
		}
	}
	return wl
}

func askForAll(jobs []model.Job, all model.Request) {
	for i := range jobs {
		r := &jobs[i].Request
		r.GPUs, r.CoresPerNode, r.Memory = all.GPUs, all.CoresPerNode, all.Memory
		jobs[i].Traffic.NetBytes, jobs[i].Traffic.GPUBytes = all.Memory, all.Memory
	}
}

// tsubameJob draws what a burst of jobs asks for.
func tsubameJob(rng *rand.Rand, nodeMix, gpuMix weights, cores []int, memories []int64) model.Job {
	gpus := 1 + gpuMix.pick(rng)
	return model.Job{
		Queue: "G",
		Request: model.Request{
			Nodes:        1 << nodeMix.pick(rng),
			CoresPerNode: max(gpus, cores[rng.IntN(len(cores))]),
			GPUs:         gpus,
			Memory:       memories[rng.IntN(len(memories))],
		},
	}
}
