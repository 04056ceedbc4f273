package consres_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/consres"
	"muster/sim"
)

// generator draws small clusters and jobs with everything that a request can have.
type generator struct {
	*rand.Rand
	tame bool // no job outlives its estimate
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) between(low, high int) int { return low + g.IntN(high-low+1) }

func (g *generator) seconds(low, high int) time.Duration {
	return time.Duration(g.between(low, high)) * time.Second
}

func (g *generator) cluster(most int) *model.Cluster {
	c := &model.Cluster{
		Name: "random",
		GPUTypes: []model.GPUType{
			{Name: "small", Memory: 4, Speed: 1, PeerBandwidth: 12e9},
			{Name: "large", Memory: 10, Speed: 2, PeerBandwidth: 12e9},
			{Name: "slow", Memory: 10, Speed: 0.5},
		},
		Remote: model.Remote{Latency: g.seconds(0, 2) / 2, Overhead: 1.125},
	}
	if g.chance(50) {
		c.Remote.Far = 2
	}
	types := g.between(1, 3)
	if g.tame {
		types = min(types, 2)
		c.Remote.Latency = 0
	}
	for i := range g.between(1, most) {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: g.between(2, 5), Memory: int64(g.between(5, 14))}
		n.Switch = fmt.Sprint("s", g.IntN(2))
		n.Weight = g.IntN(3)
		if !g.tame {
			n.Link = model.Link{Bandwidth: int64(g.between(1, 4)) * 1e9}
		}
		if g.chance(70) {
			for range g.between(1, 3) {
				n.GPUs = append(n.GPUs, g.IntN(types))
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func (g *generator) request(c *model.Cluster) model.Request {
	var r model.Request
	if g.chance(30) {
		r.CoresPerProcess = g.IntN(3)
		r.Cores = max(1, r.CoresPerProcess) * g.between(1, 4)
	} else {
		r.Nodes = g.between(1, min(len(c.Nodes), 4))
		r.CoresPerNode = g.between(1, 3)
		r.Exclusive = g.chance(10)
	}
	if g.chance(25) {
		r.Memory = int64(g.between(1, 5))
	}
	if g.chance(20) {
		r.MemoryPerCore = int64(g.between(1, 3))
	}
	r.Contiguous = g.chance(25)
	if g.chance(40) {
		r.GPUs = g.between(1, 2)
		if g.chance(30) {
			r.GPUMemory = int64(g.between(1, 6))
		}
	}
	if g.chance(10) {
		r.GPUType = c.GPUTypes[g.IntN(len(c.GPUTypes))].Name
	}
	if g.chance(40) {
		if g.chance(80) {
			r.GPUs, r.GPUMemory = 0, 0
		}
		r.Remote = &model.RemoteGPUs{Count: g.between(1, 4)}
		if g.chance(70) {
			r.Remote.Memory = int64(g.between(1, 6))
			r.Remote.Shared = !g.tame && g.chance(75)
		}
	}
	if g.chance(12) {
		for _, n := range c.Nodes {
			if g.chance(75) {
				r.NodeList = append(r.NodeList, n.Name)
			}
		}
	}
	return r
}

// jobs draws jobs; often all want much the same, and differ in how much of it.
func (g *generator) jobs(c *model.Cluster, most int) []model.Job {
	var out []model.Job
	var likes []model.Request
	if g.chance(40) {
		likes = []model.Request{g.request(c), g.request(c)}
		most *= 2
	}
	for range g.between(1, most) {
		j := model.Job{Submit: g.seconds(0, most/2), Run: g.seconds(0, 8)}
		if likes == nil {
			j.Request = g.request(c)
		} else {
			j.Request = likes[g.IntN(2)]
			if j.Request.Nodes > 0 {
				j.Request.Nodes = g.between(1, len(c.Nodes))
			} else {
				j.Request.Cores = max(1, j.Request.CoresPerProcess) * g.between(1, 8)
			}
			j.Request.Contiguous = g.chance(30)
		}
		switch {
		case g.chance(30):
			j.WallTime = j.Run + g.seconds(0, 4)
		case !g.tame && g.chance(20):
			j.WallTime = g.seconds(1, 8)
		}
		if g.chance(30) {
			j.Priority = int64(g.between(-1, 2))
		}
		if g.chance(60) {
			j.Intensity = []float64{0.25, 0.5, 0.75, 1}[g.IntN(4)]
		}
		if !g.tame && g.chance(50) {
			j.Traffic = model.Traffic{GPUConns: int64(g.IntN(3)), GPUBytes: g.Int64N(4e9)}
		}
		out = append(out, j)
	}
	slices.SortStableFunc(out, func(a, b model.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	for i := range out {
		out[i].ID = fmt.Sprint(i)
	}
	return out
}

// oracle draws settings, for the policy and for its oracle.
func (g *generator) oracle() (*policy.Entry, string, *oracle) {
	o := &oracle{depth: 500, interval: 30 * time.Second, window: 24 * time.Hour, resolution: time.Minute, ends: 30 * time.Second, by: "memory"}
	var spec []string
	say := func(format string, args ...any) { spec = append(spec, fmt.Sprintf(format, args...)) }
	if g.chance(80) {
		o.interval = g.seconds(0, 3)
		say("bf_interval=%v", o.interval)
	}
	if g.chance(30) {
		o.depth = g.IntN(4)
		say("depth=%d", o.depth)
	}
	if g.chance(20) {
		o.window = g.seconds(0, 12)
		say("bf_window=%v", o.window)
	}
	if g.chance(80) { // jobs run for seconds here
		o.resolution = g.seconds(0, 3)
		say("bf_resolution=%v", o.resolution)
	}
	if g.chance(80) {
		o.ends = g.seconds(0, 3)
		say("bf_ends=%v", o.ends)
	}
	if g.chance(40) {
		return &consres.Slurm, strings.Join(spec, ":"), o
	}
	o.prefer = true
	if g.chance(70) {
		o.by = []string{"memory", "intensity", "speed", "distance", "all"}[g.IntN(5)]
		say("select=%s", o.by)
	}
	return &consres.RGPU, strings.Join(spec, ":"), o
}

// starts are the outcomes and placements of a run, in order.
func starts(c *model.Cluster, jobs []model.Job, p policy.Policy, kill bool) (*sim.Result, string, error) {
	seen := &events{cluster: c, jobs: jobs}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p, NoKill: !kill, Observe: seen})
	return r, strings.Join(seen.lines, "\n"), err
}

func describe(c *model.Cluster, jobs []model.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "remote %+v\n", c.Remote)
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "%+v\n", n)
	}
	for _, j := range jobs {
		text, err := json.Marshal(j.Request)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "job %s submit %v run %v wall %v priority %d load %v traffic %+v %s\n",
			j.ID, j.Submit, j.Run, j.WallTime, j.Priority, j.GPULoad(), j.Traffic, text)
	}
	return b.String()
}

// The real policies agree with the naive ones, start by start.
func TestAgreesWithOracle(t *testing.T) {
	cases := 1500
	switch {
	case testing.Short():
		cases = 1200
	case soak:
		cases = 12000
	}
	met := map[string]int{}
	for seed := range uint64(cases) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 7))}
		c := g.cluster(8)
		jobs := g.jobs(c, g.between(2, 14))
		entry, spec, o := g.oracle()
		kill := g.chance(50)
		got, text, err := starts(c, jobs, made(t, entry, spec), kill)
		if err != nil {
			t.Fatalf("seed %d, %s %s: %v\n%s", seed, entry.Name, spec, err, describe(c, jobs))
		}
		want, oracleText, err := starts(c, jobs, o, kill)
		if err != nil {
			t.Fatalf("seed %d, the oracle of %s %s: %v\n%s", seed, entry.Name, spec, err, describe(c, jobs))
		}
		if got.Refused+want.Refused > 0 {
			t.Fatalf("seed %d, %s %s: %d and %d lines refused\n%s", seed, entry.Name, spec, got.Refused, want.Refused, describe(c, jobs))
		}
		if text != oracleText {
			t.Fatalf("seed %d, %s %s (%v)\ngot\n%s\nwant\n%s\n%s", seed, entry.Name, spec, o, text, oracleText, describe(c, jobs))
		}
		for i := range got.Outcomes {
			met[got.Outcomes[i].State.String()]++
			if got.Outcomes[i].Borrowed {
				met["borrowed"]++
			}
			if got.Outcomes[i].Start > jobs[i].Submit {
				met["waited"]++
			}
		}
	}
	for _, what := range []string{"finished", "killed", "impossible", "borrowed", "waited"} {
		if met[what] < cases/10 {
			t.Errorf("too few jobs %s: the cases are too tame (%v)", what, met)
		}
	}
}

// soak: make soak runs more cases than make test.
var soak = os.Getenv("MUSTER_SOAK") != ""

// Long queues of jobs that want much the same: what a pass remembers must not
// change what it does.
func TestAgreesOnLongQueues(t *testing.T) {
	first, last := uint64(15), uint64(16) // 15 and others need every rule
	if soak {
		last = 40
	}
	for seed := first; seed <= last; seed++ {
		const nodes = 24
		c := mixedMachine(nodes)
		jobs := mixedJobs(nodes, int(seed%3)*20, 1, seed)[:150]
		for i := range jobs {
			jobs[i].Run = jobs[i].Run / time.Minute * time.Second // so that much happens at once
			jobs[i].Priority *= int64(seed % 2)
		}
		ends := time.Duration(seed%4) * time.Second
		_, got, err := starts(c, jobs, made(t, &consres.Slurm, fmt.Sprintf("bf_interval=2s:bf_resolution=0:bf_ends=%v", ends)), false)
		if err != nil {
			t.Fatal(err)
		}
		_, want, err := starts(c, jobs, &oracle{depth: 500, interval: 2 * time.Second, ends: ends, by: "memory"}, false)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, got, want)
		}
	}
}

// Select on a caller's table takes what the rule takes.
func TestSelectAgreesWithRule(t *testing.T) {
	g := &generator{Rand: rand.New(rand.NewPCG(1, 2))}
	fits := 0
	var s consres.Selector
	var out model.Allocation
	for range 3000 {
		var text []string
		for range g.between(1, 20) {
			text = append(text, fmt.Sprintf("%d/%d", g.IntN(9)*g.IntN(2), g.IntN(3)))
		}
		free := rowOf(strings.Join(text, " "))
		r := model.Request{GPUs: g.IntN(3), Contiguous: g.chance(20)}
		if g.chance(50) {
			r.Nodes, r.CoresPerNode = g.between(1, 6), g.between(1, 8)
		} else {
			r.CoresPerProcess = g.between(1, 4)
			r.Cores = r.CoresPerProcess * g.between(1, 10)
		}
		offers := make([]int, len(text))
		for n := range offers {
			switch cores := int(free.cores[n]); {
			case bits.OnesCount64(free.gpus[n]) < r.GPUs:
			case r.Nodes == 0:
				offers[n] = cores / r.CoresPerProcess * r.CoresPerProcess
			case cores >= r.CoresPerNode:
				offers[n] = 1
			}
		}
		want := pickInTurn(free.Cluster(), offers, &r, false)
		if ok := s.Select(free, &policy.Shape{Request: r}, &out); ok != (want != nil) {
			t.Fatalf("%+v on %v: fits %v", r, text, ok)
		} else if !ok {
			continue
		}
		fits++
		for i, p := range out.Parts {
			k, chosen := want[int(p.Node)]
			if r.Nodes > 0 {
				k = r.CoresPerNode
			}
			if !chosen || k != int(p.Cores) || len(want) != len(out.Parts) || i > 0 && p.Node <= out.Parts[i-1].Node {
				t.Fatalf("%+v on %v: got %+v, want %v", r, text, out.Parts, want)
			}
		}
	}
	if fits < 500 {
		t.Errorf("only %d fit", fits)
	}
}
