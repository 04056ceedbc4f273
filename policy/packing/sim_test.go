package packing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	needs "muster/internal/need"
	"muster/model"
	"muster/policy/packing"
	"muster/sim"
)

// A busy day: jobs of all sorts come and go, wait and overtake. Each policy runs
// all of them, and twice the same way.
func TestEveryJobRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "A", Memory: 16 << 30, Speed: 1}, {Name: "B", Memory: 24 << 30, Speed: 2}}}
	for i := range 24 {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: 8 << (i % 3), Memory: 64 << 30}
		for range i % 5 {
			n.GPUs = append(n.GPUs, i%2)
		}
		c.Nodes = append(c.Nodes, n)
	}
	var jobs []model.Job
	at := time.Duration(0)
	count := needs.Rounds(400, 1500)
	for i := range count {
		at += time.Duration(r.IntN(20)) * time.Second
		j := model.Job{ID: fmt.Sprint(i), Submit: at, Run: time.Duration(1+r.IntN(1200)) * time.Second,
			Request: model.Request{Nodes: 1 + r.IntN(4)/3, CoresPerNode: 1 + r.IntN(6), Memory: int64(r.IntN(8)) << 30}}
		switch q := &j.Request; r.IntN(4) {
		case 0:
			q.GPUs = 1 + r.IntN(2)
		case 1, 2:
			q.GPUs, q.GPUMemory = 1, int64(1+r.IntN(14))<<30
		}
		if r.IntN(10) == 0 && j.Request.GPUs > 0 {
			b := j.Request
			j.Request.GPUType, b.GPUType = "A", "B"
			j.Alternatives = []model.Request{b}
		}
		jobs = append(jobs, j)
	}
	for _, e := range packing.Entries {
		for _, spec := range []string{"", "seed=7", "decoupled=on"} {
			var outcomes [2][]sim.Outcome
			for i := range outcomes {
				p, err := e.Make(spec)
				if err != nil {
					outcomes[i] = nil // it has no such option
					continue
				}
				result, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p})
				if err != nil {
					t.Fatal(err)
				}
				outcomes[i] = result.Outcomes
				for k := range result.Outcomes {
					if result.Outcomes[k].State != sim.Finished {
						t.Fatalf("%s:%s: job %d is %v: %s", e.Name, spec, k, result.Outcomes[k].State, result.Reasons[k])
					}
				}
			}
			if !reflect.DeepEqual(outcomes[0], outcomes[1]) {
				t.Errorf("%s:%s: two runs differ", e.Name, spec)
			}
		}
	}
}
