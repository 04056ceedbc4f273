package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/model"
	"muster/policy/catalog"
	"muster/sim"
)

// mixedLog is 300 jobs, of which a third ask for GPUs.
func mixedLog() []model.Job {
	g := rand.New(rand.NewPCG(8, 9))
	jobs := make([]model.Job, 300)
	for i := range jobs {
		r := model.Request{Nodes: 1, CoresPerNode: 1 + g.IntN(8)}
		if i%3 == 0 {
			r = model.Request{Nodes: 1, CoresPerNode: 6, GPUs: 1 + g.IntN(2)}
		}
		run := time.Duration(60+g.IntN(3600)) * time.Second
		jobs[i] = model.Job{ID: fmt.Sprint(i), Submit: time.Duration(i*200) * time.Second, Run: run, WallTime: 2 * run, Request: r}
	}
	return jobs
}

// listed is four nodes with GPUs and four without, in one order or the other, with their weights.
func listed(gpusFirst bool, withGPUs, without int) *model.Cluster {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}}
	for i := range 4 {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("g", i), Cores: 8, GPUs: []int{0, 0}, Weight: withGPUs})
	}
	plain := []model.Node{}
	for i := range 4 {
		plain = append(plain, model.Node{Name: fmt.Sprint("c", i), Cores: 8, Weight: without})
	}
	if gpusFirst {
		c.Nodes = append(c.Nodes, plain...)
	} else {
		c.Nodes = append(plain, c.Nodes...)
	}
	return c
}

// The order in which nodes are listed makes no difference to how long jobs wait, since jobs that ask for no GPU get nodes
// with GPUs last. Weights say otherwise where an administrator wants it: then the same log waits longer.
func TestJobsKeepAwayFromGPUs(t *testing.T) {
	jobs := mixedLog()
	wait := func(policy string, c *model.Cluster) time.Duration {
		p, err := catalog.New(policy)
		if err != nil {
			t.Fatal(err)
		}
		result, err := sim.Run(t.Context(), sim.Config{Cluster: c, Jobs: jobs, Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		sum := time.Duration(0)
		for i, o := range result.Outcomes {
			sum += o.Start - jobs[i].Submit
		}
		return (sum / time.Duration(len(jobs))).Round(time.Second)
	}
	for _, policy := range []string{"fcfs", "sjf", "first-fit", "easy", "conservative", "slurm", "rgpu"} {
		first, last := wait(policy, listed(true, 0, 0)), wait(policy, listed(false, 0, 0))
		weighed := wait(policy, listed(false, 1, 2))
		t.Logf("%s: mean wait %v with nodes with GPUs listed first, %v with them last; %v if weights have them taken first", policy, first, last, weighed)
		if first != last {
			t.Errorf("%s: a mean wait of %v or %v, by the order of nodes", policy, first, last)
		}
		if weighed <= first {
			t.Errorf("%s: the weights of nodes make no difference: a mean wait of %v", policy, weighed)
		}
	}
}
