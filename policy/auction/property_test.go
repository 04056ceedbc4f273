package auction

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/sim"
)

// drawJobs makes a workload with everything that a request can be.
func drawJobs(rng *rand.Rand, c *model.Cluster, jobs int) []model.Job {
	out := make([]model.Job, 0, jobs)
	submit := time.Duration(0)
	for i := range jobs {
		if rng.IntN(3) == 0 {
			submit += time.Duration(rng.IntN(20_000)) * time.Millisecond
		}
		j := model.Job{
			ID: fmt.Sprint("j", i), Submit: submit, Priority: int64(rng.IntN(5)) - 1,
			Run: time.Duration(rng.IntN(90_000)) * time.Millisecond, Request: drawAny(rng, c),
		}
		if rng.IntN(5) == 0 {
			other := drawAny(rng, c)
			other.Run = time.Duration(1+rng.IntN(90)) * time.Second
			j.Alternatives = append(j.Alternatives, other)
		}
		if err := j.Validate(); err != nil {
			panic(err)
		}
		out = append(out, j)
	}
	return out
}

func drawAny(rng *rand.Rand, c *model.Cluster) model.Request {
	n := len(c.Nodes)
	r := model.Request{Contiguous: rng.IntN(4) == 0}
	if rng.IntN(3) == 0 {
		r.Cores = 1 + rng.IntN(12)
		if rng.IntN(4) == 0 {
			r.CoresPerProcess = 2
			r.Cores += r.Cores % 2
		}
		if rng.IntN(4) == 0 {
			r.MemoryPerCore = int64(1+rng.IntN(4)) << 30
		}
	} else {
		r.Nodes = 1 + rng.IntN((n+1)/2)
		r.CoresPerNode = 1 + rng.IntN(4)
		r.Exclusive = rng.IntN(6) == 0
	}
	if rng.IntN(4) == 0 {
		r.Memory = int64(1+rng.IntN(8)) << 30
	}
	switch rng.IntN(6) {
	case 0, 1:
		r.GPUs = 1 + rng.IntN(2)
	case 2:
		r.GPUs, r.GPUMemory = 1, int64(1+rng.IntN(3))<<30
	case 3:
		r.Remote = &model.RemoteGPUs{Count: 1 + rng.IntN(2)}
		if rng.IntN(2) == 0 {
			r.Remote.Shared, r.Remote.Memory = true, 1<<30
		}
	}
	if r.GPUs > 0 && rng.IntN(3) == 0 {
		r.GPUType = c.GPUTypes[rng.IntN(len(c.GPUTypes))].Name
	}
	if rng.IntN(8) == 0 {
		for i := range c.Nodes {
			if rng.IntN(2) == 0 {
				r.NodeList = append(r.NodeList, c.Nodes[i].Name)
			}
		}
	}
	return r
}

func drawCluster(rng *rand.Rand) *model.Cluster {
	c := row(2+rng.IntN(9), 4, 0)
	c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: "c2070", Memory: 6 << 30, Speed: 1})
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.Cores, n.Memory = 2+rng.IntN(5), int64(8+rng.IntN(8))<<30
		for range rng.IntN(3) {
			n.GPUs = append(n.GPUs, rng.IntN(2))
		}
	}
	return c
}

var variants = []string{
	"", "slurm_bids=off", "interval=0", "classes=AB:slurm_bids=off", "form=ipsched", "bids=7:bids_per_job=3:window=5:cut=on",
	"avoid=ABC:bids=0:window=0", outOfTime,
}

// outOfTime gives the solver no steps at all.
const outOfTime = "iterations=0:bound_iterations=0:tree_nodes=0"

// On any workload: nothing is refused, every job ends that can run at all, the
// contiguous ones in one block, and a second run is the same.
func TestAnyWorkload(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 12
	}
	alternatives, odd := 0, 0
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 3))
		c := drawCluster(rng)
		jobs := drawJobs(rng, c, 5+rng.IntN(40))
		spec := variants[round%len(variants)]
		if spec != outOfTime {
			spec += quick
		}
		run := func() *sim.Result {
			res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, spec), NoKill: true})
			if err != nil {
				t.Fatalf("round %d, %q: %v", round, spec, err)
			}
			return res
		}
		res := run()
		if res.Refused != 0 {
			t.Errorf("round %d, %q: %d starts were refused", round, spec, res.Refused)
		}
		for i := range res.Outcomes {
			o := &res.Outcomes[i]
			if o.State == sim.Impossible {
				continue
			}
			if o.State != sim.Finished {
				t.Errorf("round %d, %q: job %d is %v", round, spec, i, o.State)
			}
			if r := jobs[i].As(int(o.Alternative)).Request; r.Contiguous && o.Blocks != 1 {
				t.Errorf("round %d, %q: job %d is in %d blocks", round, spec, i, o.Blocks)
			} else if r.Remote != nil || r.GPUMemory > 0 || r.Exclusive {
				odd++
			}
			if o.Alternative > 0 {
				alternatives++
			}
		}
		if again := run(); !reflect.DeepEqual(res.Outcomes, again.Outcomes) || res.Steps != again.Steps {
			t.Errorf("round %d, %q: a second run is different", round, spec)
		}
	}
	if alternatives == 0 || odd == 0 {
		t.Errorf("%d alternatives and %d special requests: nothing was tested", alternatives, odd)
	}
}

// forgetful holds an auction whenever anything happens.
type forgetful struct{ *auction }

func (f forgetful) Step(v *policy.View, plan *policy.Plan) {
	f.held = f.held[:0]
	f.auction.Step(v, plan)
}

// The auctions that are left out because nothing could come of them would have
// come to nothing.
func TestAuctionsLeftOut(t *testing.T) {
	fewer := 0
	for round := range 10 {
		rng := rand.New(rand.NewPCG(uint64(round), 4))
		c := drawCluster(rng)
		jobs := drawJobs(rng, c, 60)
		run := func(p policy.Policy) *sim.Result {
			res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p, NoKill: true})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		spec := "interval=0:window=4" + quick
		some, all := run(make1(t, spec)), run(forgetful{make1(t, spec)})
		if !reflect.DeepEqual(some.Outcomes, all.Outcomes) {
			t.Errorf("round %d: the outcomes differ", round)
		}
		fewer += all.Steps - some.Steps
	}
	if fewer <= 0 {
		t.Error("no auction was left out: nothing was tested")
	}
}

// quick keeps the solver short where its proofs do not matter.
const quick = ":iterations=2000:tree_nodes=200"

// With classes A and B alone, every job is in one block that could be at all.
func TestBlocksOnly(t *testing.T) {
	c := row(16, 8, 2)
	rng := rand.New(rand.NewPCG(5, 5))
	var jobs []model.Job
	for i := range 50 {
		r := model.Request{Nodes: 1 + rng.IntN(8), CoresPerNode: 1 + rng.IntN(8), GPUs: rng.IntN(3)}
		if rng.IntN(2) == 0 {
			r = model.Request{Cores: 1 + rng.IntN(64)}
		}
		jobs = append(jobs, model.Job{ID: fmt.Sprint(i), Run: time.Duration(30+rng.IntN(90)) * time.Second, Request: r, Priority: int64(r.TotalCores())})
	}
	for _, spec := range []string{"classes=AB", "classes=AB:slurm_bids=off", "classes=A:slurm_bids=off"} {
		res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, spec+quick)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range res.Outcomes {
			if o := &res.Outcomes[i]; o.Blocks != 1 {
				t.Errorf("%s: job %d is in %d blocks", spec, i, o.Blocks)
			}
		}
	}
}

// The limits are kept, whatever happens.
func TestLimitsOnBids(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	c := drawCluster(rng)
	s := newSettingIn(c, "window=9:bids_per_job=3:bids=10"+quick)
	for _, j := range drawJobs(rng, c, 60) {
		if _, err := s.Submit(&j); err != nil {
			continue
		}
	}
	made := 0
	for i := range 30 {
		plan := s.Step(time.Duration(i) * 5 * time.Second)
		for _, r := range s.p.held {
			if len(r.jobs) > 9 || len(r.bids) > 10 {
				t.Errorf("step %d: %d jobs made %d bids", i, len(r.jobs), len(r.bids))
			}
			for _, j := range r.jobs {
				of := map[int]int{}
				for _, b := range r.bids[j.first:j.end] {
					of[b.request]++
				}
				for request, n := range of {
					if made++; n > 3 {
						t.Errorf("step %d: request %d of a job made %d bids", i, request, n)
					}
				}
			}
		}
		for k := 0; k < len(plan.Starts); k += 2 {
			s.End(plan.Starts[k].Job)
		}
	}
	if made == 0 {
		t.Error("nobody bid")
	}
}
