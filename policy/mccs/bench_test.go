package mccs_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/script"
)

// BenchmarkStep is one step on a full cluster with a queue: a job has ended, and another
// has come. The listings' policies stand beside built-in ones.
func BenchmarkStep(b *testing.B) {
	for _, nodes := range []int{250, 1000} {
		for _, name := range []string{"first-fit", "easy", "conservative", "mccs-roundrobin", "mccs-colocation", "mccs-latency"} {
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) { stepOn(b, name, nodes) })
		}
	}
}

func stepOn(b *testing.B, name string, nodes int) {
	p, err := catalog.New(name)
	if err != nil {
		b.Fatal(err)
	}
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 16 << 30, Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 32, Memory: 256 << 30, GPUs: make([]int, 4)})
	}
	s := policy.NewState(c, p)
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Duration(0)
	var running []policy.JobID
	submit := func() {
		r := model.Request{Nodes: 1 + rng.IntN(2), CoresPerNode: 1 + rng.IntN(8), GPUs: 1 + rng.IntN(2)}
		if rng.IntN(3) == 0 {
			r.GPUMemory = 4 << 30
		}
		if _, err := s.Submit(&model.Job{ID: "j", Run: time.Duration(1+rng.IntN(600)) * time.Minute, Request: r}); err != nil {
			b.Fatal(err)
		}
	}
	step := func() {
		now += time.Second
		plan := s.Step(now)
		for _, st := range plan.Starts {
			running = append(running, st.Job)
		}
		for _, r := range plan.Resumes {
			_ = s.Resumed(r.Job)
		}
		for _, st := range plan.Stops {
			_ = s.Suspended(st.Job)
		}
	}
	end := func() {
		i := rng.IntN(len(running))
		id := running[i]
		running[i] = running[len(running)-1]
		running = running[:len(running)-1]
		if err := s.End(id); err != nil {
			b.Fatal(err)
		}
	}
	for range nodes * 4 {
		submit()
	}
	for range 20 {
		step()
	}
	b.ResetTimer()
	for range b.N {
		end()
		submit()
		step()
	}
	b.ReportMetric(float64(s.Waiting()), "waiting")
	b.ReportMetric(float64(len(running)), "running")
	if sp, ok := p.(*script.Policy); ok && sp.Trouble().Failures > 0 {
		b.Fatal(sp.Trouble().Last)
	}
}
