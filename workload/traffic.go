package workload

import (
	"math/rand/v2"

	"muster/model"
)

// EstimateTraffic fills in what a job moves over the network where a log does
// not say, as Table 1 of the TSUBAME paper does: as many bytes as the memory it
// asked for on each node, in 100 to 100,000 transfers drawn from seed. It
// returns a copy; jobs that say something, or asked for no memory, stay as they are.
func EstimateTraffic(jobs []model.Job, seed uint64) []model.Job {
	rng := rand.New(rand.NewPCG(seed, 0x7472616666696321))
	out := make([]model.Job, len(jobs))
	for i := range jobs {
		out[i] = jobs[i]
		net, gpu := 100+rng.Int64N(99_901), 100+rng.Int64N(99_901)
		r := &out[i].Request
		memory := r.MemoryOnNode(r.CoresOnNode())
		if out[i].Traffic != (model.Traffic{}) || memory == 0 || r.Nodes == 0 {
			continue
		}
		out[i].Traffic = model.Traffic{NetBytes: memory, NetConns: net, GPUBytes: memory, GPUConns: gpu}
	}
	return out
}
