package workload

import (
	"math/rand/v2"

	"muster/model"
)

// EstimateTraffic fills in the network traffic of jobs where a log does not give it, as Table 1 of
// the TSUBAME paper does: as many bytes as the memory requested on each node, in 100 to 100,000
// transfers drawn from seed. Jobs with traffic, and those without requested memory, stay unchanged.
// It returns a copy, or jobs itself if there is nothing to fill in.
func EstimateTraffic(jobs []model.Job, seed uint64) []model.Job {
	if !anyJob(jobs, lacksTraffic) {
		return jobs
	}
	rng := rand.New(rand.NewPCG(seed, 0x7472616666696321))
	out := make([]model.Job, len(jobs))
	for i := range jobs {
		out[i] = jobs[i]
		net, gpu := 100+rng.Int64N(99_901), 100+rng.Int64N(99_901)
		if lacksTraffic(&out[i]) {
			memory := memoryOnNode(&out[i])
			out[i].Traffic = model.Traffic{NetBytes: memory, NetConns: net, GPUBytes: memory, GPUConns: gpu}
		}
	}
	return out
}

func lacksTraffic(j *model.Job) bool {
	return j.Traffic == (model.Traffic{}) && j.Request.Nodes > 0 && memoryOnNode(j) > 0
}

func memoryOnNode(j *model.Job) int64 { return j.Request.MemoryOnNode(j.Request.CoresOnNode()) }
