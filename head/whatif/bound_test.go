package whatif_test

import (
	"testing"
	"time"

	"muster/head"
	"muster/head/whatif"
	"muster/model"
	"muster/wire/api"
)

// A job that ran for 100 s on a slow device, and asks for a fast one: it takes half of that there if its programs
// were on the slow one all the time, and as long if nodes may have bound them to others.
func TestRunTimesOfSharesBoundLate(t *testing.T) {
	const t0 = 1_000_000
	for _, c := range []struct {
		name, reach string
		memory      int64
		makespan    float64
	}{
		{"it stayed", "", 1 << 30, 50},
		{"a whole device", "cluster", 0, 50},
		{"the node has devices of one speed", "node", 1 << 30, 50},
		{"the cluster has others", "cluster", 1 << 30, 100},
	} {
		h := whatif.Header{
			Name: "day", Began: t0 * time.Second, From: t0 * time.Second, To: (t0 + 1000) * time.Second,
			Cluster: &model.Cluster{
				GPUTypes: []model.GPUType{{Name: "slow", Memory: 8 << 30, Speed: 0.5}, {Name: "fast", Memory: 8 << 30, Speed: 1}},
				Nodes:    []model.Node{{Name: "n1", Cores: 2, Memory: 1 << 30, GPUs: []int{0, 0}}, {Name: "n2", Cores: 2, Memory: 1 << 30, GPUs: []int{1}}},
			},
			Machines: []head.Machine{{Name: "n1", Is: "up"}, {Name: "n2", Is: "up"}},
		}
		options := "-n1 --gres=gpu:1 -w n2"
		if c.memory > 0 {
			options = "-n1 --gres=gpu:1:1G -w n2"
		}
		job := api.Job{
			ID: 1, User: "user", State: api.Completed, Options: options, Submit: t0, Eligible: t0, Start: t0, End: t0 + 100, Elapsed: 100, Cores: 1, GPUs: 1,
			Parts: []api.Part{{Node: "n1", Cores: 1}}, Devices: []api.Device{{For: "n1", Node: "n1", Device: 0, Memory: c.memory, Reach: c.reach}},
		}
		if got := try(t, workloadOf(t, h, []api.Job{job}), "fcfs").Figures.Makespan; got != c.makespan {
			t.Errorf("%s: it takes %v s, not %v", c.name, got, c.makespan)
		}
	}
}
