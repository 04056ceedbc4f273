package mosaic_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/policy/mosaic"
	"muster/sim"
)

func make1(t testing.TB, spec string) policy.Policy {
	t.Helper()
	p, err := mosaic.Entry.Make(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// anything draws clusters and jobs with every feature that a request can have.
type anything struct {
	*rand.Rand
	// tame jobs end as they were estimated.
	tame bool
}

func (g *anything) chance(percent int) bool { return g.IntN(100) < percent }

func (g *anything) cluster(nodes int) *model.Cluster {
	c := &model.Cluster{Name: "any", GPUTypes: []model.GPUType{
		{Name: "small", Memory: 4, Speed: 1}, {Name: "large", Memory: 10, Speed: 2},
	}}
	types, alike := 1+g.IntN(2), g.chance(40)
	if g.tame {
		types = 1
	}
	for i := range nodes {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: 2 + g.IntN(7), Memory: int64(5 + g.IntN(10))}
		if g.chance(75) {
			for range 1 + g.IntN(3) {
				n.GPUs = append(n.GPUs, g.IntN(types))
			}
		}
		if alike && i > 0 {
			n.Cores, n.Memory, n.GPUs = c.Nodes[0].Cores, c.Nodes[0].Memory, c.Nodes[0].GPUs
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func (g *anything) request(c *model.Cluster) model.Request {
	var r model.Request
	if g.chance(30) {
		r.CoresPerProcess = g.IntN(3)
		r.Cores = max(1, r.CoresPerProcess) * (1 + g.IntN(6))
		r.MemoryPerCore = int64(g.IntN(2))
		if g.chance(10) {
			r.GPUs = 1
		}
	} else {
		r.Nodes = 1 + g.IntN(min(len(c.Nodes)+1, 4))
		r.CoresPerNode = g.IntN(4)
		if g.chance(60) {
			r.GPUs = g.IntN(3)
			if r.GPUs > 0 && g.chance(20) {
				r.GPUMemory = int64(1 + g.IntN(4))
			}
		}
		r.Exclusive = g.chance(10)
		if g.chance(20) {
			r.Memory = int64(1 + g.IntN(5))
		}
	}
	r.Contiguous = g.chance(20)
	if g.chance(8) {
		r.GPUType = "small"
	}
	if g.chance(15) {
		r.Remote = &model.RemoteGPUs{Count: 1 + g.IntN(4)}
		if g.chance(30) {
			r.Remote.Memory = int64(1 + g.IntN(5))
			r.Remote.Shared = g.chance(50)
		}
	}
	if g.chance(8) {
		for _, n := range c.Nodes {
			if g.chance(70) {
				r.NodeList = append(r.NodeList, n.Name)
			}
		}
	}
	return r
}

func (g *anything) jobs(c *model.Cluster, count int) []model.Job {
	var jobs []model.Job
	for i := range count {
		j := model.Job{ID: fmt.Sprint(i), Submit: seconds(g.IntN(count)), Run: seconds(g.IntN(12)), Request: g.request(c)}
		if !g.tame && g.chance(50) {
			j.WallTime = seconds(1 + g.IntN(15))
		}
		if j.Request.Validate() == nil {
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b model.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	return jobs
}

// TestAnyRequest: whatever jobs ask for, nothing is refused, every job that can
// run ends, and the same run comes out twice.
func TestAnyRequest(t *testing.T) {
	cases := need.Rounds(120, 300)
	specs := []string{"effort=0", "effort=20", "effort=5:depth=3", "effort=5:age=5s", "effort=3:balance=0:age=1s:depth=2", "effort=10:balance=100", "effort=5:patience=0", "effort=1:depth=1", "effort=1:depth=1:age=3s:patience=10", "effort=5:patience=50:age=4s"}
	for seed := range uint64(cases) {
		g := &anything{Rand: rand.New(rand.NewPCG(seed, 1)), tame: seed%2 == 0}
		c := g.cluster(1 + g.IntN(9))
		jobs := g.jobs(c, 1+g.IntN(40))
		spec := specs[seed%uint64(len(specs))]
		var first *sim.Result
		for range 2 {
			res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, spec), NoKill: seed%3 == 0})
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, spec, err)
			}
			if res.Refused > 0 {
				t.Fatalf("seed %d, %s: %d starts were refused", seed, spec, res.Refused)
			}
			if first != nil && !reflect.DeepEqual(first.Outcomes, res.Outcomes) {
				t.Fatalf("seed %d, %s: two runs differ", seed, spec)
			}
			first = res
		}
	}
}

// TestNobodyWaitsForEver: once a job is older than the age, only what runs and jobs
// that are older still can keep it waiting. Small jobs that keep coming do not.
func TestNobodyWaitsForEver(t *testing.T) {
	const age = 20 * time.Second
	for seed := range uint64(60) {
		g := &anything{Rand: rand.New(rand.NewPCG(seed, 2)), tame: true}
		c := g.cluster(1 + g.IntN(6))
		jobs := g.jobs(c, 60)
		for i := range jobs {
			jobs[i].Request.Remote = nil // their networks may let them outlive their estimates
		}
		res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, "effort=5:age=20s")})
		if err != nil {
			t.Fatal(err)
		}
		longest, older := time.Duration(0), time.Duration(0)
		for i := range jobs {
			longest = max(longest, jobs[i].Run)
		}
		for i, o := range res.Outcomes {
			if o.State == sim.Impossible {
				continue
			}
			// It is noticed at the next end of a job; then what runs ends, and the
			// older ones run one after the other at worst.
			if latest := jobs[i].Submit + age + 2*longest + older; o.Start > latest {
				t.Errorf("seed %d: job %s of %v, submitted at %v, started at %v, not by %v", seed, jobs[i].ID, jobs[i].Run, jobs[i].Submit, o.Start, latest)
			}
			older += jobs[i].Run
		}
	}
}

// TestAgeMatters: without the rule a wide job starves among small ones; with it
// it does not. It is what the test above would miss if the age did nothing.
func TestAgeMatters(t *testing.T) {
	c := machine(2)
	jobs := []model.Job{{ID: "small", Run: seconds(10), Request: model.Request{Nodes: 1, CoresPerNode: 8}}}
	jobs = append(jobs, model.Job{ID: "wide", Submit: 1, Run: seconds(100), Request: model.Request{Nodes: 2, CoresPerNode: 8}})
	for i := range 200 {
		jobs = append(jobs, model.Job{ID: fmt.Sprint(i), Submit: seconds(1 + 5*i), Run: seconds(9), Request: model.Request{Nodes: 1, CoresPerNode: 8}})
	}
	wait := func(spec string) time.Duration {
		res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, spec)})
		if err != nil {
			t.Fatal(err)
		}
		return res.Outcomes[1].Start
	}
	if with, without := wait("age=1m"), wait("age=0"); with > 2*time.Minute || without < 10*time.Minute {
		t.Errorf("the wide job started at %v with an age of one minute, at %v without", with, without)
	}
}

// TestOneBlock: jobs that would take any nodes get neighbours.
func TestOneBlock(t *testing.T) {
	for seed := range uint64(5) {
		jobs := paperV(t, 32, 0, seed, "no")
		res, err := sim.Run(context.Background(), sim.Config{Cluster: machine(32), Jobs: jobs, Policy: make1(t, "effort=20")})
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range res.Outcomes {
			if o.Blocks != 1 || o.Span != o.Nodes {
				t.Fatalf("seed %d: job %s has %d nodes in %d blocks over %d", seed, jobs[i].ID, o.Nodes, o.Blocks, o.Span)
			}
		}
	}
}

// TestPatience: a job that may be split is, where one block is long in coming and
// its patience is short; a job that wants neighbours never is.
func TestPatience(t *testing.T) {
	for _, x := range []struct {
		spec       string
		contiguous bool
		want       int
	}{{"", false, 100}, {"patience=0", false, 0}, {"patience=50", false, 0}, {"patience=250", false, 100}, {"patience=0", true, 100}} {
		c := machine(3)
		whole := model.Request{Nodes: 1, CoresPerNode: 8}
		middle := whole
		middle.NodeList = []string{"n001"}
		jobs := []model.Job{
			job("middle", 100, middle),
			job("two", 50, model.Request{Nodes: 2, CoresPerNode: 8, Contiguous: x.contiguous}),
		}
		jobs[1].Submit = 1 // the first is not planned, and must be there already
		got := where(t, c, jobs, x.spec)
		if got[1].at != x.want {
			t.Errorf("%q, contiguous %v: started at %d s, want %d: %+v", x.spec, x.contiguous, got[1].at, x.want, got)
		}
	}
}

// TestMoreEffortFindsBetterPlans checks that looking for better plans finds some.
func TestMoreEffortFindsBetterPlans(t *testing.T) {
	sum := map[string]time.Duration{}
	for seed := range uint64(6) {
		jobs := paperV(t, 32, 0, seed, "no")
		for _, spec := range []string{"effort=0", "effort=100"} {
			res, err := sim.Run(context.Background(), sim.Config{Cluster: machine(32), Jobs: jobs, Policy: make1(t, spec)})
			if err != nil {
				t.Fatal(err)
			}
			sum[spec] += seconds(int(res.Summarize().Makespan))
		}
	}
	if sum["effort=100"] >= sum["effort=0"] {
		t.Errorf("makespans add up to %v without a search and %v with one", sum["effort=0"], sum["effort=100"])
	}
}
