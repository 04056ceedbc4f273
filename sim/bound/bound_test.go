package bound_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/conservative"
	"muster/policy/easy"
	"muster/policy/firstfit"
	"muster/policy/inorder"
	"muster/policy/mosaic"
	"muster/sim"
	"muster/sim/bound"
	"muster/workload"
)

var policies = []*policy.Entry{
	&inorder.FCFS, &inorder.SJF, &firstfit.FirstFit, &firstfit.GQueue, &firstfit.RQueue, &easy.Entry, &conservative.Entry, &mosaic.Entry,
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func machine(nodes int) *model.Cluster {
	c := &model.Cluster{Name: "paper", GPUTypes: []model.GPUType{{Name: "gpu", Memory: 1 << 30, Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprintf("n%03d", i), Cores: 8, Memory: 1 << 36, GPUs: []int{0, 0}})
	}
	return c
}

// drawer makes clusters and jobs with every feature that a request can have.
type drawer struct{ *rand.Rand }

func (d drawer) chance(percent int) bool { return d.IntN(100) < percent }

func (d drawer) cluster() *model.Cluster {
	c := &model.Cluster{Name: "any", GPUTypes: []model.GPUType{{Name: "slow", Memory: 4, Speed: 0.5}, {Name: "fast", Memory: 10, Speed: 1.7}, {Name: "plain", Memory: 6, Speed: 1}}}
	alike := d.chance(40)
	for i := range 1 + d.IntN(7) {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: 1 + d.IntN(8), Memory: int64(4 + d.IntN(10))}
		for range d.IntN(4) {
			n.GPUs = append(n.GPUs, d.IntN(3))
		}
		if alike && i > 0 {
			n.Cores, n.Memory, n.GPUs = c.Nodes[0].Cores, c.Nodes[0].Memory, c.Nodes[0].GPUs
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func (d drawer) request(c *model.Cluster) model.Request {
	var r model.Request
	if d.chance(30) {
		r.CoresPerProcess = d.IntN(3)
		r.Cores = max(1, r.CoresPerProcess) * (1 + d.IntN(8))
		r.MemoryPerCore = int64(d.IntN(3))
		r.GPUs = d.IntN(8) / 7
	} else {
		r.Nodes = 1 + d.IntN(len(c.Nodes))
		r.CoresPerNode = d.IntN(6)
		r.GPUs = d.IntN(3)
		if r.GPUs > 0 && d.chance(20) {
			r.GPUMemory = int64(1 + d.IntN(6))
		}
		r.Memory = int64(d.IntN(5))
		r.Exclusive = d.chance(15)
	}
	r.Contiguous = d.chance(20)
	if d.chance(10) {
		r.GPUType = c.GPUTypes[d.IntN(3)].Name
	}
	if d.chance(15) {
		r.Remote = &model.RemoteGPUs{Count: 1 + d.IntN(3), Memory: int64(d.IntN(6))}
		r.Remote.Shared = r.Remote.Memory > 0 && d.chance(50)
	}
	if d.chance(8) {
		for _, n := range c.Nodes {
			if d.chance(70) {
				r.NodeList = append(r.NodeList, n.Name)
			}
		}
	}
	return r
}

func (d drawer) jobs(c *model.Cluster, count int, spread int) []model.Job {
	var jobs []model.Job
	for i := range count {
		j := model.Job{ID: fmt.Sprint(i), Submit: seconds(3 + d.IntN(spread+1)), Run: seconds(d.IntN(12)), Request: d.request(c)}
		if d.chance(30) {
			j.WallTime = seconds(1 + d.IntN(12))
		}
		if d.chance(15) {
			j.Alternatives = append(j.Alternatives, d.request(c))
			j.Alternatives[0].Run = seconds(d.IntN(6))
		}
		if j.Validate() == nil {
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b model.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	return jobs
}

// TestNoScheduleIsShorter: no policy ends before the bound, whatever jobs ask for.
func TestNoScheduleIsShorter(t *testing.T) {
	cases := uint64(1500)
	if testing.Short() {
		cases = 200
	}
	tight := 0
	for seed := range cases {
		d := drawer{rand.New(rand.NewPCG(seed, 1))}
		c := d.cluster()
		jobs := d.jobs(c, 1+d.IntN(20), d.IntN(2)*d.IntN(20))
		for i, e := range policies {
			if (uint64(i)+seed)%3 > 0 {
				continue
			}
			p, err := e.Make("")
			if err != nil {
				t.Fatal(err)
			}
			res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p})
			if err != nil {
				t.Fatal(err)
			}
			// What a policy cannot run, another may: the bound is for those that ran.
			var ran []model.Job
			first, last := time.Duration(-1), time.Duration(0)
			for k, o := range res.Outcomes {
				if o.Ran() {
					ran = append(ran, jobs[k])
					last = max(last, o.End)
					if first < 0 {
						first = jobs[k].Submit
					}
				}
			}
			if e == &firstfit.RQueue {
				ran = bound.Decoupled(ran) // it borrows
			}
			b := bound.Makespan(c, ran)
			if b.Makespan > last-first {
				t.Fatalf("seed %d: %s took %v, and %v was proven by %s: %s\n%+v\n%+v", seed, e.Name, last-first, b.Makespan, b.By, b.Why, c, ran)
			}
			if b.Makespan == last-first && b.Jobs > 1 {
				tight++
			}
		}
	}
	if tight == 0 {
		t.Error("the bound was never reached: it proves nothing")
	}
}

// optimum tries every order of starts of jobs on alike nodes, all submitted at
// once, jobs of whole-node parts only: at each instant where something ends,
// any set of jobs may start. It returns the least makespan.
func optimum(nodes, cores, gpus int, jobs []model.Job) time.Duration {
	best := time.Duration(1 << 62)
	type running struct {
		end   time.Duration
		job   int
		nodes []int
	}
	freeC, freeG := make([]int, nodes), make([]int, nodes)
	for i := range nodes {
		freeC[i], freeG[i] = cores, gpus
	}
	var rec func(now time.Duration, waiting []int, run []running, last time.Duration)
	// place tries every choice of nodes for the jobs of waiting[k:], or none.
	var place func(now time.Duration, waiting []int, k int, run []running, last time.Duration, left []int)
	rec = func(now time.Duration, waiting []int, run []running, last time.Duration) {
		if last >= best {
			return
		}
		if len(waiting) == 0 {
			best = last
			return
		}
		place(now, waiting, 0, run, last, nil)
	}
	place = func(now time.Duration, waiting []int, k int, run []running, last time.Duration, left []int) {
		if k == len(waiting) {
			if len(left) == 0 {
				best = min(best, last)
				return
			}
			if len(run) == 0 {
				return
			}
			next := run[0].end
			for _, r := range run {
				next = min(next, r.end)
			}
			var still []running
			var ended []running
			for _, r := range run {
				if r.end == next {
					ended = append(ended, r)
				} else {
					still = append(still, r)
				}
			}
			change := func(sign int) {
				for _, r := range ended {
					q := &jobs[r.job].Request
					for _, n := range r.nodes {
						freeC[n] += sign * q.CoresPerNode
						freeG[n] += sign * q.GPUs
					}
				}
			}
			change(1)
			rec(next, left, still, last)
			change(-1)
			return
		}
		j := waiting[k]
		place(now, waiting, k+1, run, last, append(slices.Clone(left), j)) // it waits
		q := &jobs[j].Request
		var fits []int
		for n := range nodes {
			if freeC[n] >= q.CoresPerNode && freeG[n] >= q.GPUs {
				fits = append(fits, n)
			}
		}
		choose(fits, q.Nodes, func(on []int) {
			for _, n := range on {
				freeC[n] -= q.CoresPerNode
				freeG[n] -= q.GPUs
			}
			end := now + jobs[j].Run
			place(now, waiting, k+1, append(slices.Clone(run), running{end, j, slices.Clone(on)}), max(last, end), left)
			for _, n := range on {
				freeC[n] += q.CoresPerNode
				freeG[n] += q.GPUs
			}
		})
	}
	all := make([]int, len(jobs))
	for i := range all {
		all[i] = i
	}
	rec(0, all, nil, 0)
	return best
}

func choose(from []int, k int, do func([]int)) {
	var rec func(i int, chosen []int)
	rec = func(i int, chosen []int) {
		if len(chosen) == k {
			do(chosen)
			return
		}
		for ; i < len(from); i++ {
			rec(i+1, append(slices.Clone(chosen), from[i]))
		}
	}
	rec(0, nil)
}

// TestAgainstTheOptimum: on tiny cases the bound is at most the best of all
// schedules, and often it is just that.
func TestAgainstTheOptimum(t *testing.T) {
	cases := uint64(150)
	if testing.Short() {
		cases = 40
	}
	met, byWide := 0, 0
	for seed := range cases {
		d := drawer{rand.New(rand.NewPCG(seed, 2))}
		c := machine(3)
		var jobs []model.Job
		for i := range 5 {
			kinds := [][2]int{{4, 0}, {8, 0}, {1, 1}, {2, 2}, {5, 1}}
			k := kinds[d.IntN(len(kinds))]
			jobs = append(jobs, model.Job{ID: fmt.Sprint(i), Run: seconds(1 + d.IntN(4)), Request: model.Request{Nodes: 1 + d.IntN(3), CoresPerNode: k[0], GPUs: k[1]}})
		}
		best := optimum(3, 8, 2, jobs)
		b := bound.Makespan(c, jobs)
		if b.Makespan > best {
			t.Fatalf("seed %d: the best schedule takes %v, %v was proven by %s: %s\n%+v", seed, best, b.Makespan, b.By, b.Why, jobs)
		}
		if b.Makespan == best {
			met++
			if b.By == "wide jobs" {
				byWide++
			}
		}
	}
	t.Logf("met in %d of %d cases, %d by wide jobs", met, cases, byWide)
	if met < int(cases)/2 || byWide == 0 {
		t.Errorf("the bound was met in %d of %d cases only, in %d by wide jobs", met, cases, byWide)
	}
}

// TestMoreWorkIsNoShorter: another job, or a longer one, never lowers what areas
// and the longest job prove, nor, but for the rounding of prices, the program.
func TestMoreWorkIsNoShorter(t *testing.T) {
	for seed := range uint64(150) {
		d := drawer{rand.New(rand.NewPCG(seed, 3))}
		c := d.cluster()
		jobs := d.jobs(c, 12, 0)
		if len(jobs) < 2 {
			continue
		}
		of := func(jobs []model.Job) map[string]time.Duration {
			out := map[string]time.Duration{}
			for _, a := range bound.Makespan(c, jobs).Arguments {
				name := a.Name
				if name != "longest job" && name != "configurations" && name != "wide jobs" {
					name = "area"
				}
				out[name] = a.Makespan
			}
			return out
		}
		some, all := of(jobs[:len(jobs)-1]), of(jobs)
		for _, name := range []string{"longest job", "area", "configurations"} {
			if less := some[name] - all[name]; less > some[name]/200 || less > 0 && name != "configurations" {
				t.Errorf("seed %d: %s: %v with a job less, %v with it", seed, name, some[name], all[name])
			}
		}
	}
}

// TestByHand: each argument where it is the one that counts.
func TestByHand(t *testing.T) {
	node := func(id string, run, nodes, cores, gpus int) model.Job {
		return model.Job{ID: id, Run: seconds(run), Request: model.Request{Nodes: nodes, CoresPerNode: cores, GPUs: gpus}}
	}
	late := node("late", 10, 1, 1, 0)
	late.Submit = seconds(100)
	for _, x := range []struct {
		name string
		jobs []model.Job
		want int
		by   string
	}{
		{"one job", []model.Job{node("a", 50, 1, 1, 0)}, 50, "longest job"},
		{"a late job", []model.Job{node("a", 50, 1, 1, 0), late}, 110, "longest job"},
		{"cores", []model.Job{node("a", 50, 4, 6, 0), node("b", 50, 4, 6, 0), node("c", 50, 4, 4, 0)}, 150, "wide jobs"},
		{"only cores", []model.Job{{ID: "a", Run: seconds(30), Request: model.Request{Cores: 32}}, {ID: "b", Run: seconds(30), Request: model.Request{Cores: 32}}}, 60, "cores"},
		// 4 x 8 cores and 4 x 2 GPUs need 8 node times; cores alone only 5.
		{"no room beside", []model.Job{node("a", 60, 2, 8, 0), node("b", 60, 2, 8, 0), node("c", 60, 2, 2, 2), node("d", 60, 2, 2, 2)}, 120, "configurations"},
		// Three of the four nodes each: two do not fit, whatever is left of the machine.
		{"wide", []model.Job{node("a", 60, 3, 8, 0), node("b", 70, 3, 2, 2)}, 130, "wide jobs"},
		// The last two take a quarter of the machine each, and beside the first two there
		// is more free than that, but not on two nodes.
		{"excluded", []model.Job{node("a", 60, 3, 8, 0), node("b", 70, 3, 2, 2), node("c", 80, 2, 1, 1), node("d", 80, 2, 1, 1)}, 130 + 80, "wide jobs"},
	} {
		b := bound.Makespan(machine(4), x.jobs)
		if b.Makespan != seconds(x.want) || b.By != x.by || b.Why == "" {
			t.Errorf("%s: %v by %s (%s), want %ds by %s", x.name, b.Makespan, b.By, b.Why, x.want, x.by)
		}
	}
}

// TestUtilisation: on the paper's workload V no schedule can use all cores, and the bound says so
// for each instance. A bound above 1 would be wrong.
func TestUtilisation(t *testing.T) {
	for seed := range uint64(5) {
		w, err := workload.Generate("aucsched", map[string]string{"nodes": "64", "hours": "1"}, seed)
		if err != nil {
			t.Fatal(err)
		}
		b := bound.Makespan(machine(64), w.Jobs)
		theory := 0.0
		for i := range w.Jobs {
			theory += w.Jobs[i].Run.Seconds() * float64(w.Jobs[i].Request.TotalCores()) / (64 * 8)
		}
		if d := b.Theoretical().Seconds() - theory; d > 1e-6 || d < -1e-6 {
			t.Errorf("seed %d: theoretical run time %v, want %v s", seed, b.Theoretical(), theory)
		}
		if u := b.Utilisation(); u > 1 || u < 0.6 || b.Jobs != len(w.Jobs) {
			t.Errorf("seed %d: utilisation at most %v", seed, u)
		}
	}
}

// TestImpossibleJobsAreLeftOut: a job that no schedule runs makes none longer.
func TestImpossibleJobsAreLeftOut(t *testing.T) {
	for _, r := range []model.Request{
		{Nodes: 5, CoresPerNode: 1}, {Nodes: 1, CoresPerNode: 9}, {Cores: 33}, {Nodes: 1, GPUs: 3}, {Nodes: 1, GPUs: 1, GPUType: "none"},
		{Nodes: 1, Memory: 1 << 40}, {Nodes: 1, NodeList: []string{"nowhere"}}, {Nodes: 2, NodeList: []string{"n000"}},
		{Nodes: 1, Remote: &model.RemoteGPUs{Count: 9}}, {Nodes: 2, Contiguous: true, NodeList: []string{"n000", "n002"}},
	} {
		jobs := []model.Job{{ID: "a", Run: seconds(10), Request: model.Request{Nodes: 1}}, {ID: "b", Run: seconds(1000), Request: r}}
		if b := bound.Makespan(machine(4), jobs); b.Jobs != 1 || b.Makespan != seconds(10) {
			t.Errorf("%+v: %d jobs, %v", r, b.Jobs, b.Makespan)
		}
	}
	if b := bound.Makespan(machine(4), nil); b.Makespan != 0 || b.Utilisation() != 0 || strings.Contains(b.Why, "%") {
		t.Errorf("no jobs: %+v", b)
	}
}
