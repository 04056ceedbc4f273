package sim_test

import (
	"testing"
	"time"

	"muster/model"
	"muster/sim"
)

// Measurements of programs alone replace run times and speeds. Their loads on shared devices slow
// them down like the loads of any jobs.
func TestJobsThatWereMeasuredAlone(t *testing.T) {
	c := &model.Cluster{Name: "two",
		GPUTypes: []model.GPUType{{Name: "slow", Memory: 8 << 30, Speed: 0.5}},
		Nodes:    []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30, GPUs: []int{0, 0}}}}
	share := model.Request{Nodes: 1, Cores: 1, GPUs: 2, GPUMemory: 1 << 30}
	jobs := []model.Job{
		{ID: "a", Run: seconds(1), Request: share},
		{ID: "b", Run: seconds(1), Request: share},
		{ID: "c", Submit: seconds(1000), Run: seconds(1), Request: share},
	}
	alone := func(job int, a *model.Allocation) sim.Alone {
		if len(a.Grants) != 2 {
			t.Errorf("job %d has %d shares", job, len(a.Grants))
		}
		// Job 2 does not say what it needs: then it is all of the time.
		return []sim.Alone{{Time: seconds(100), Load: []float64{0.9, 0.1}}, {Time: seconds(50), Load: []float64{0.6, 0.2}}, {Time: seconds(10)}}[job]
	}
	res := run(t, "fcfs", sim.Config{Cluster: c, Jobs: jobs, Alone: alone})
	// Together the first two need 1.5 of the first device: half as long again, until the second
	// has ended after 75 s, when the first has done half of its work.
	for i, want := range []time.Duration{seconds(125), seconds(75), seconds(1010)} {
		if got := res.Outcomes[i].End; got < want-time.Microsecond || got > want+time.Microsecond {
			t.Errorf("job %s ends at %v, not at %v", jobs[i].ID, got, want)
		}
	}
}

// Data that were measured pass the ports of nodes, and take longer beside those of others.
func TestPortsOfJobsThatWereMeasuredAlone(t *testing.T) {
	link := model.Link{Bandwidth: 1000}
	c := &model.Cluster{Name: "two", Nodes: []model.Node{{Name: "n1", Cores: 2, Memory: 8 << 30, Link: link}, {Name: "n2", Cores: 2, Memory: 8 << 30, Link: link}}}
	jobs := []model.Job{{ID: "a", Run: seconds(1), Request: model.Request{Nodes: 2, CoresPerNode: 1}}, {ID: "b", Run: seconds(1), Request: model.Request{Nodes: 2, CoresPerNode: 1}}}
	alone := func(job int, _ *model.Allocation) sim.Alone {
		// 10 s of computing, and as long for what passes the first port.
		return []sim.Alone{{Time: seconds(20), Net: []int64{10_000, 0}}, {Time: seconds(20), Net: []int64{10_000, 100}}}[job]
	}
	res := run(t, "fcfs", sim.Config{Cluster: c, Jobs: jobs, Alone: alone})
	for i := range jobs {
		if got := res.Outcomes[i].End; got < seconds(30)-time.Millisecond || got > seconds(30)+time.Millisecond {
			t.Errorf("job %s ends at %v, not after 10 s of computing and 20 s on half a port", jobs[i].ID, got)
		}
	}
}
