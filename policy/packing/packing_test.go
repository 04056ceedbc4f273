package packing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"muster/model"
	"muster/policy"
)

// one is a cluster of nodes with 8 cores and so many devices of 1000 units each.
func one(gpus ...int) *model.Cluster {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "A", Memory: 1000, Speed: 1}}}
	for i, k := range gpus {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 8, GPUs: make([]int, k)})
	}
	return c
}

func share(cores int, memory int64) *model.Job {
	return &model.Job{ID: "share", Run: 1, Request: model.Request{Nodes: 1, Cores: cores, GPUs: 1, GPUMemory: memory}}
}

func whole(cores, gpus int) *model.Job {
	return &model.Job{ID: "whole", Run: 1, Request: model.Request{Nodes: 1, Cores: cores, GPUs: gpus}}
}

// on pins a job to a node.
func on(n int, j *model.Job) *model.Job {
	j.Request.NodeList = []string{fmt.Sprint("n", n)}
	return j
}

// The scores of the authors' program, worked out by hand.
func TestScores(t *testing.T) {
	for _, c := range []struct {
		name   string
		rule   rule
		before []*model.Job
		job    *model.Job
		want   int32
	}{
		{"dot product, idle", dotProduct{}, nil, whole(4, 1), 62},                                                         // 1 - (1*.5 + 1*.25)/2
		{"dot product, cores", dotProduct{}, nil, cores(8), 50},                                                           // 1 - 1/2
		{"best fit, idle", bestFit{}, nil, whole(4, 1), 37},                                                               // 1 - (.25 + .375)
		{"best fit, full", bestFit{}, nil, whole(8, 4), 100},                                                              // nothing left
		{"clustering, idle", clustering{}, nil, share(1, 500), 25},                                                        // no tags
		{"clustering, cores", clustering{}, nil, cores(1), 0},                                                             // no GPU
		{"clustering, same", clustering{}, jobs(share(1, 500)), share(1, 100), 78},                                        // 75 + 25*500/4000
		{"clustering, both", clustering{}, jobs(share(1, 500), whole(1, 1)), whole(1, 1), 59},                             // 50 + 25*1500/4000
		{"clustering, others", clustering{}, jobs(whole(1, 2)), whole(1, 1), 12},                                          // 25*2000/4000
		{"clustering, beside cores", clustering{}, jobs(cores(1)), whole(1, 1), 25},                                       // tasks without GPUs have no tag
		{"packing, idle", gpuPacking{}, nil, share(1, 500), 29},                                                           // 33 - 4
		{"packing, opens", gpuPacking{}, jobs(whole(1, 1)), whole(1, 2), 48},                                              // 50 - 2
		{"packing, opens for a share", gpuPacking{}, jobs(share(1, 600)), share(1, 500), 49},                              // 50 - 1
		{"packing, fills", gpuPacking{}, jobs(share(1, 300)), share(1, 500), 93},                                          // 100 - 70/10
		{"packing, fills the tightest", gpuPacking{}, jobs(share(1, 300), whole(1, 1), share(1, 800)), share(1, 100), 98}, // 100 - 20/10
	} {
		var got int32
		inspect(t, one(4), c.before, func(s *nodes) {
			q := s.compile(&c.job.Request)
			got, _ = c.rule.score(s, 0, &q, s.fit(0, &q))
		})
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func jobs(list ...*model.Job) []*model.Job { return list }

func cores(n int) *model.Job {
	return &model.Job{ID: "cores", Run: 1, Request: model.Request{Nodes: 1, Cores: n}}
}

// inspect starts jobs by gpu-clustering, which counts tags, and shows its nodes.
func inspect(t *testing.T, c *model.Cluster, before []*model.Job, look func(*nodes)) {
	t.Helper()
	p, err := New("gpu-clustering", Config{})
	if err != nil {
		t.Fatal(err)
	}
	state := policy.NewState(c, p)
	for _, j := range before {
		start(t, state, j)
	}
	state.Step(0)
	look(p.(*packing).nodes)
}

// start submits a job that must start at once.
func start(t *testing.T, state *policy.State, j *model.Job) (policy.JobID, *model.Allocation) {
	t.Helper()
	id, err := state.Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	plan := state.Step(0)
	if len(plan.Starts) != 1 || plan.Starts[0].Err != nil {
		t.Fatalf("%+v does not start: %+v", j.Request, plan.Starts)
	}
	return id, plan.Starts[0].Alloc
}

// The score of FGD is 100 sigmoid of the fragments that go, in devices.
func TestSigmoidSteps(t *testing.T) {
	for _, weight := range []int64{1, 7, 8152, 1e9} {
		target := &Target{weight: weight}
		for k := range target.steps {
			target.steps[k] = target.scoring(k)
		}
		for loss := int64(-9000); loss <= 9000; loss += 7 {
			x := float64(loss) / 1000
			want := int32(100 / (1 + math.Exp(-x)))
			if got := target.score(loss * weight); got != want && math.Abs(100/(1+math.Exp(-x))-math.Round(100/(1+math.Exp(-x)))) > 1e-6 {
				t.Fatalf("weight %d, loss %d: %d, want %d", weight, loss, got, want)
			}
		}
		if got := target.score(0); got != 50 {
			t.Errorf("nothing lost scores %d", got)
		}
	}
}

// Fragments by the definition of the paper, on nodes drawn at random.
func TestFragments(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		c := tinyCluster(r)
		var census Census
		var list []*model.Job
		for i := range 40 {
			j := tinyJob(r, c, i)
			census.Add(j)
			list = append(list, j)
		}
		target, expected := census.Target(c), expectedOf(list)
		b := newBook(c)
		for n := range c.Nodes {
			left := make([]int, len(c.Nodes[n].GPUs))
			var levels []Level
			for d := range left {
				left[d] = r.IntN(1001)
				levels = addLevel(levels, int32(c.Nodes[n].GPUs[d]), int32(left[d]), 1)
			}
			free := r.IntN(c.Nodes[n].Cores + 1)
			got, want := target.Fragments(int32(free), levels), b.fragments(n, free, left, expected)
			if math.Abs(got-want) > 1e-6 {
				t.Fatalf("seed %d, node %d: %v, want %v", seed, n, got, want)
			}
		}
	}
}

// The order of nodes decides ties, the seed the order, and nothing else does.
func TestTies(t *testing.T) {
	c := one(2, 2, 2, 2, 2, 2, 2, 2)
	first := func(spec string) int32 {
		p, err := BestFit.Make(spec)
		if err != nil {
			t.Fatal(err)
		}
		_, a := start(t, policy.NewState(c, p), whole(1, 1))
		return a.Parts[0].Node
	}
	if n := first(""); n != 0 {
		t.Errorf("without a seed node %d comes first", n)
	}
	seen := map[int32]bool{}
	for seed := 1; seed <= 60; seed++ {
		spec := fmt.Sprint("seed=", seed)
		if first(spec) != first(spec) {
			t.Errorf("%s: two runs differ", spec)
		}
		seen[first(spec)] = true
		seen[8+first(spec+":ties=random")] = true
	}
	if len(seen) != 16 {
		t.Errorf("of 8 nodes in an order, and 8 drawn, only %d were ever first", len(seen))
	}
}

// With random ties the second job need not follow the first.
func TestRandomTiesAreDrawnEachTime(t *testing.T) {
	for _, c := range []struct {
		spec string
		want int
	}{{"seed=3", 1}, {"seed=3:ties=random", 8}} {
		p, err := GPUClustering.Make(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		state := policy.NewState(one(2, 2, 2, 2, 2, 2, 2, 2), p)
		seen := map[int32]bool{}
		for range 200 {
			id, a := start(t, state, whole(1, 2))
			seen[a.Parts[0].Node] = true
			state.End(id)
		}
		if len(seen) != c.want {
			t.Errorf("%s: %d nodes were taken, want %d", c.spec, len(seen), c.want)
		}
	}
}

// random-fit draws nodes and the devices of shares, all as likely.
func TestRandomFitIsEven(t *testing.T) {
	p, err := RandomFit.Make("seed=5")
	if err != nil {
		t.Fatal(err)
	}
	state := policy.NewState(one(3, 3, 3), p)
	count := map[model.Grant]int{}
	const draws = 4500
	for range draws {
		id, a := start(t, state, share(1, 400))
		count[a.Grants[0]]++
		state.End(id)
	}
	if len(count) != 9 {
		t.Fatalf("%d of 9 devices were drawn", len(count))
	}
	for g, n := range count {
		if math.Abs(float64(n)-draws/9) > 5*math.Sqrt(draws/9) {
			t.Errorf("device %d of node %d was drawn %d times of %d", g.Device, g.Node, n, draws)
		}
	}
}

// Requests that scores are not for are placed by first fit, and tried again at each step.
func TestOtherRequests(t *testing.T) {
	for _, e := range Entries {
		p, err := e.Make("")
		if err != nil {
			t.Fatal(err)
		}
		state := policy.NewState(one(2, 0, 1, 2), p)
		spread := &model.Job{ID: "spread", Run: 1, Request: model.Request{Cores: 20}}
		id, a := start(t, state, spread)
		if len(a.Parts) != 3 {
			t.Errorf("%s: 20 cores are on %d nodes", e.Name, len(a.Parts))
		}
		remote := &model.Job{ID: "remote", Run: 1, Request: model.Request{Nodes: 1, Cores: 5, Remote: &model.RemoteGPUs{Count: 4}}}
		if _, err := state.Submit(remote); err != nil {
			t.Fatal(err)
		}
		if plan := state.Step(0); len(plan.Starts) != 1 || len(plan.Starts[0].Alloc.Grants) != 2 {
			t.Errorf("%s: four GPUs anywhere: %+v", e.Name, plan.Starts)
		}
		row := &model.Job{ID: "row", Run: 1, Request: model.Request{Nodes: 4, CoresPerNode: 2, Contiguous: true}}
		if _, err := state.Submit(row); err != nil {
			t.Fatal(err)
		}
		if plan := state.Step(0); len(plan.Starts) != 0 {
			t.Errorf("%s: four nodes in a row beside 25 cores: %+v", e.Name, plan.Starts)
		}
		state.End(id)
		if plan := state.Step(0); len(plan.Starts) != 1 {
			t.Errorf("%s: there is room for four nodes in a row, and nothing starts", e.Name)
		}
	}
}

// Whatever was started or ended before, the same steps give the same plan.
func TestDeterministic(t *testing.T) {
	for _, e := range Entries {
		for _, spec := range []string{"", "seed=9"} {
			var texts [2]strings.Builder
			for i := range texts {
				r := rand.New(rand.NewPCG(4, 4))
				c := tinyCluster(r)
				p, err := e.Make(spec)
				if err != nil {
					t.Fatal(err)
				}
				state := policy.NewState(c, p)
				var running []policy.JobID
				for k := range 60 {
					if len(running) > 0 && r.IntN(2) == 0 {
						state.End(running[0])
						running = running[1:]
					}
					if _, err := state.Submit(tinyJob(r, c, k)); err != nil {
						continue
					}
					for _, s := range state.Step(0).Starts {
						running = append(running, s.Job)
						fmt.Fprintln(&texts[i], s.Job, allocText(s.Alloc, s.Alternative))
					}
				}
			}
			if texts[0].String() != texts[1].String() || texts[0].Len() == 0 {
				t.Errorf("%s %s: two runs differ, or nothing was started", e.Name, spec)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		entry policy.Entry
		spec  string
		ok    bool
	}{
		{FGD, "seed=1:decoupled=on", true}, {FGD, "ties=random", true}, {PricedFit, "seed=2", true},
		{FGD, "ties=random:decoupled=on", false}, {BestFit, "decoupled=yes", false}, {BestFit, "seed=-1", false}, {BestFit, "seed=x", false}, {FGD, "ties=first", false},
		{RandomFit, "decoupled=on", false}, {RandomFit, "ties=random", false}, {DotProduct, "decoupled=on", false},
	} {
		if _, err := c.entry.Make(c.spec); (err == nil) != c.ok {
			t.Errorf("%s:%s: %v", c.entry.Name, c.spec, err)
		}
	}
	if _, err := New("best", Config{}); err == nil {
		t.Error("there is no policy best")
	}
	if _, err := New("gpu-packing", Config{Decoupled: true}); err == nil {
		t.Error("gpu-packing knows nothing of decoupled GPUs")
	}
	seen := map[string]bool{}
	for _, e := range Entries {
		if e.Name == "" || e.Summary == "" || seen[e.Name] {
			t.Errorf("entry %q is not described, or stands twice", e.Name)
		}
		seen[e.Name] = true
	}
}

// A census counts tasks: a job on two nodes is two, and alternatives that differ
// in type alone are one.
func TestCensus(t *testing.T) {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "A", Memory: 1000, Speed: 1}, {Name: "B", Memory: 2000, Speed: 1}}}
	var census Census
	add := func(n int, r model.Request, others ...model.Request) {
		for range n {
			census.Add(&model.Job{Request: r, Alternatives: others})
		}
	}
	add(50, model.Request{Nodes: 1, Cores: 2})
	add(10, model.Request{Nodes: 2, CoresPerNode: 3, GPUs: 1, GPUType: "A"}, model.Request{Nodes: 2, CoresPerNode: 3, GPUs: 1, GPUType: "B"})
	add(26, model.Request{Nodes: 1, Cores: 1, GPUs: 1, GPUMemory: 500, GPUType: "B"})
	add(4, model.Request{Nodes: 1, Cores: 1, GPUs: 4})
	add(1000, model.Request{Cores: 5}) // on any nodes
	target := census.Target(c)
	if target.weight != 50+26+20 {
		t.Errorf("the popular 95 of 100 are %d of %d", target.weight, 100)
	}
	want := []task{
		{cores: 1, gpus: 1, weight: 26, need: []int32{never, 250}},
		{cores: 3, gpus: 1, weight: 20, need: []int32{1000, 1000}},
	}
	if fmt.Sprint(target.tasks) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", target.tasks, want)
	}
}

// Prices are those of the best packing: no filling is worth more than a device,
// and all shares together are worth as many devices as the packing takes.
func TestPricesAreOptimal(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 8))
		var sizes []size
		for range 1 + r.IntN(6) {
			sizes = addSize(sizes, int32(90+r.IntN(910)), float64(1+r.IntN(50)))
		}
		w := newCutting(sizes)
		w.solve()
		worth, devices := 0.0, 0.0
		for i, s := range sizes {
			if w.price[i] < -1e-7 {
				t.Fatalf("a share of %d has the price %v", s.need, w.price[i])
			}
			worth += w.price[i] * s.count
			devices += w.cost[i] * w.value[i]
		}
		if math.Abs(worth-devices) > 1e-6*devices {
			t.Fatalf("seed %d: the shares are worth %v devices, and take %v", seed, worth, devices)
		}
		var try func(i int, left int32, price float64)
		try = func(i int, left int32, price float64) {
			if price > 1+1e-6 {
				t.Fatalf("seed %d: a filling of %v is worth %v", seed, sizes, price)
			}
			for k := i; k < len(sizes); k++ {
				if sizes[k].need <= left {
					try(k, left-sizes[k].need, price+w.price[k])
				}
			}
		}
		try(0, 1000, 0)
	}
}

// Half of the shares need a device each, the others fill them two by two: known by hand.
func TestPricesByHand(t *testing.T) {
	var census Census
	for range 10 {
		census.Add(share(1, 810))
		census.Add(share(1, 500))
		census.Add(share(1, 500))
		census.Add(whole(1, 2))
	}
	if got, want := census.Densest(1000), (20+8.1+10)/(20+10+10); math.Abs(got-want) > 1e-9 {
		t.Errorf("the densest packing fills %v, want %v", got, want)
	}
	value := census.Target(one(1)).prices(0)
	for _, c := range []struct {
		left int
		want int64
	}{{0, 0}, {499, 0}, {500, priceUnit / 2}, {809, priceUnit / 2}, {810, priceUnit}, {1000, priceUnit}} {
		if value[c.left] != c.want {
			t.Errorf("%d thousandths are worth %d, want %d", c.left, value[c.left], c.want)
		}
	}
}

// ---- decoupled ----

// The oracle for one task with at most one device: the rules 1 and 2 of the page.
func (b *book) borrow(j *model.Job, cost func(kind, left, takes int) float64) string {
	requests := append([]model.Request{j.Request}, j.Alternatives...)
	r := &requests[0]
	C, G := b.largest()
	// A share that fits no node while all are idle is impossible by the engine's rule.
	idle, possible := newBook(b.c), make([]bool, len(requests))
	for k := range requests {
		for n := range idle.nodes {
			possible[k] = possible[k] || requests[k].GPUMemory == 0 || idle.suits(&requests[k], n)
		}
	}
	host := func(r *model.Request) int {
		best := -1
		for n := range b.nodes {
			if b.canHost(r, n) && (best < 0 || b.nodes[n].cores < b.nodes[best].cores) {
				best = n
			}
		}
		return best
	}
	fit := func(r *model.Request, n int) int {
		if !b.suits(r, n) {
			return -1
		}
		g, rg := 0.0, 0.0
		for d := range b.nodes[n].bytes {
			g += float64(b.milli(n, d))
		}
		for _, d := range b.tightest(r, n) {
			rg += float64(b.takes(r, n, d))
		}
		return int((1 - (float64((float64(b.nodes[n].cores)-float64(r.CoresOnNode()))/C*0.5) + float64((g-rg)/G*0.5))) * 100)
	}
	if r.GPUs == 0 {
		if h := host(r); h >= 0 {
			return fmt.Sprintf("as 0: node %d[]", h)
		}
		return ""
	}
	type option struct {
		cost          float64
		left, fit     int
		n, d, request int
	}
	var best *option
	for n := range b.nodes {
		for k := range requests {
			if !possible[k] {
				continue
			}
			for _, d := range b.devices(&requests[k], n) {
				kind := b.c.Nodes[n].GPUs[d]
				o := option{cost(kind, b.milli(n, d), min(b.milli(n, d), b.takes(&requests[k], n, d))), b.milli(n, d), fit(&requests[k], n), n, d, k}
				better := best == nil || o.cost < best.cost-1e-9
				if best != nil && math.Abs(o.cost-best.cost) <= 1e-9 {
					better = o.left < best.left || o.left == best.left && o.fit > best.fit
				}
				if better {
					best = &o
				}
			}
		}
	}
	if best == nil {
		return ""
	}
	h := best.n
	if best.fit < 0 {
		if h = host(&requests[best.request]); h < 0 {
			return ""
		}
	}
	return fmt.Sprintf("as %d: node %d[%d/%d]", best.request, h, best.n, best.d)
}

// plainJob asks for one node and at most one GPU, of any or one of two types.
func plainJob(r *rand.Rand) *model.Job {
	j := cores(1 + r.IntN(5))
	j.Request.Memory = int64(r.IntN(4))
	switch r.IntN(5) {
	case 0:
	case 1:
		j.Request.GPUs = 1
	default:
		j.Request.GPUs, j.Request.GPUMemory = 1, int64(1+r.IntN(9))
	}
	if j.Request.GPUs > 0 && r.IntN(4) == 0 {
		j.Request.GPUType = "A"
		if r.IntN(2) == 0 {
			b := j.Request
			b.GPUType = "B"
			j.Alternatives = []model.Request{b}
		}
	}
	return j
}

func TestDecoupledOracle(t *testing.T) {
	for _, name := range []string{"best-fit", "fgd"} {
		for seed := range cases(t) {
			r := rand.New(rand.NewPCG(seed, 21))
			c := tinyCluster(r)
			var census Census
			var list []*model.Job
			for range 30 {
				j := plainJob(r)
				census.Add(j)
				list = append(list, j)
			}
			expected := expectedOf(list)
			cost := func(kind, left, takes int) float64 { return 0 }
			if name == "fgd" {
				b := newBook(&model.Cluster{GPUTypes: c.GPUTypes, Nodes: []model.Node{{GPUs: []int{0}}, {GPUs: []int{1}}}})
				lone := func(kind, left int) float64 { return b.fragments(kind, math.MaxInt32, []int{left}, expected) }
				cost = func(kind, left, takes int) float64 { return lone(kind, left-takes) - lone(kind, left) }
			}
			p, err := New(name, Config{Decoupled: true, Target: census.Target(c)})
			if err != nil {
				t.Fatal(err)
			}
			state, b := policy.NewState(c, p), newBook(c)
			type run struct {
				id policy.JobID
				r  *model.Request
			}
			var running []run
			for range 60 {
				if len(running) > 0 && r.IntN(3) == 0 {
					k := r.IntN(len(running))
					b.enter(state.Allocation(running[k].id), running[k].r, -1)
					state.End(running[k].id)
					running = slices.Delete(running, k, k+1)
				}
				j := plainJob(r)
				id, err := state.Submit(j)
				if err != nil {
					continue
				}
				want, got := b.borrow(j, cost), ""
				plan := state.Step(0)
				if len(plan.Starts) == 0 {
					if err := state.Cancel(id); err != nil {
						t.Fatal(err)
					}
				} else {
					s := plan.Starts[0]
					if s.Err != nil {
						t.Fatal(s.Err)
					}
					got = allocText(s.Alloc, s.Alternative)
					b.enter(s.Alloc, requestOf(j, s.Alternative), 1)
					running = append(running, run{id, requestOf(j, s.Alternative)})
				}
				if got != want {
					t.Fatalf("%s, seed %d, %+v %+v\ngot  %q\nwant %q\n%+v", name, seed, j.Request, j.Alternatives, got, want, b.nodes)
				}
			}
		}
	}
}

// A job of any shape gets decoupled GPUs exactly if there are enough hosts and
// enough devices; nothing is refused.
func TestDecoupledPlacesWhatFits(t *testing.T) {
	for _, e := range []string{"best-fit", "fgd", "priced-fit"} {
		for seed := range cases(t) {
			r := rand.New(rand.NewPCG(seed, 31))
			c := tinyCluster(r)
			p, err := New(e, Config{Decoupled: true})
			if err != nil {
				t.Fatal(err)
			}
			state, b := policy.NewState(c, p), newBook(c)
			for i := range 30 {
				j := tinyJob(r, c, i)
				j.Alternatives = nil
				id, err := state.Submit(j)
				if err != nil {
					continue
				}
				q := &j.Request
				hosts, devices := 0, 0
				for n := range b.nodes {
					if b.canHost(q, n) {
						hosts++
					}
					devices += len(b.devices(q, n))
				}
				want := hosts >= q.Nodes && devices >= q.Nodes*q.GPUs
				plan := state.Step(0)
				if got := len(plan.Starts) == 1; got != want {
					t.Fatalf("%s, seed %d, %+v: started %v; %d hosts, %d devices\n%+v", e, seed, q, got, hosts, devices, b.nodes)
				}
				if !want {
					if err := state.Cancel(id); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if plan.Starts[0].Err != nil {
					t.Fatal(plan.Starts[0].Err)
				}
				b.enter(plan.Starts[0].Alloc, q, 1)
			}
		}
	}
}

// A small share costs nothing where no larger one fits beside it, and half a
// device where it takes the room of a larger one.
func TestPricedCost(t *testing.T) {
	var census Census
	for range 10 {
		census.Add(share(1, 810))
		census.Add(share(1, 500))
		census.Add(share(1, 120))
	}
	c := one(1, 1, 1)
	r := newPriced(census.Target(c), c)
	for _, k := range []struct {
		left, takes int32
		want        float64
	}{{190, 120, 0}, {630, 120, 0}, {500, 120, 0.5}, {1000, 500, 0.5}, {500, 500, 0.5}, {1000, 810, 1}, {1000, 1000, 1}, {900, 500, 1}} {
		if got := float64(r.cost(0, k.left, k.takes)) / priceUnit / priceUnit; math.Abs(got-k.want) > 1e-9 {
			t.Errorf("%d of %d cost %v, want %v", k.takes, k.left, got, k.want)
		}
	}
}

// Types that are asked for by name are spared.
func TestPricedFitSparesTypes(t *testing.T) {
	c := one(1, 1)
	c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: "B", Memory: 1000, Speed: 1})
	c.Nodes[1].GPUs[0] = 1
	var census Census
	census.Add(whole(1, 1))
	named := whole(1, 1)
	named.Request.GPUType = "A"
	census.Add(named)
	p, err := New("priced-fit", Config{Target: census.Target(c)})
	if err != nil {
		t.Fatal(err)
	}
	if _, a := start(t, policy.NewState(c, p), whole(1, 1)); a.Parts[0].Node != 1 {
		t.Errorf("a job that takes any type took node %d", a.Parts[0].Node)
	}
}

// What is borrowed comes from nodes that have least to give, for the nodes of the
// job in turn.
func TestDecoupledBorrowsFromTheEmptiest(t *testing.T) {
	c := one(0, 4, 1, 2, 0)
	p, err := BestFit.Make("decoupled=on")
	if err != nil {
		t.Fatal(err)
	}
	j := whole(0, 1)
	j.Request = model.Request{Nodes: 2, CoresPerNode: 2, GPUs: 2, NodeList: []string{"n0", "n4"}}
	_, a := start(t, policy.NewState(c, p), j)
	want := []model.Grant{{For: 0, Node: 2, Device: 0}, {For: 0, Node: 3, Device: 0}, {For: 1, Node: 3, Device: 1}, {For: 1, Node: 1, Device: 0}}
	if !slices.Equal(a.Grants, want) {
		t.Errorf("%+v, want %+v", a.Grants, want)
	}
}

// GPUs stay where their jobs are while they can.
func TestDecoupledPrefersLocal(t *testing.T) {
	c := one(1, 1)
	p, err := BestFit.Make("decoupled=on")
	if err != nil {
		t.Fatal(err)
	}
	state := policy.NewState(c, p)
	start(t, state, on(0, cores(8)))
	if _, a := start(t, state, whole(2, 1)); a.UsesBorrowed() || a.Parts[0].Node != 1 {
		t.Errorf("node 1 has both: %+v", a)
	}
	if _, a := start(t, state, whole(2, 1)); !a.UsesBorrowed() || a.Parts[0].Node != 1 || a.Grants[0].Node != 0 {
		t.Errorf("node 0 has the GPU and node 1 the cores: %+v", a)
	}
}
