package packing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	needs "muster/internal/need"
	"muster/model"
	"muster/policy"
)

// The oracle is a second implementation of docs/packing.md, written to be read:
// plain loops over everything, no cache, its own book of what is free.

type bookNode struct {
	cores  int
	memory int64
	bytes  []int64 // left of each device
	tasks  []string
	jobs   int // that have anything here
	closed bool
}

type book struct {
	c     *model.Cluster
	nodes []bookNode
}

func newBook(c *model.Cluster) *book {
	b := &book{c: c}
	for _, n := range c.Nodes {
		x := bookNode{cores: n.Cores, memory: n.Memory}
		for _, t := range n.GPUs {
			x.bytes = append(x.bytes, c.GPUTypes[t].Memory)
		}
		b.nodes = append(b.nodes, x)
	}
	return b
}

func (b *book) size(n, d int) int64 { return b.c.GPUTypes[b.c.Nodes[n].GPUs[d]].Memory }
func (b *book) milli(n, d int) int  { return int(b.nodes[n].bytes[d] * 1000 / b.size(n, d)) }
func (b *book) isWhole(n, d int) bool {
	return !b.nodes[n].closed && b.nodes[n].bytes[d] == b.size(n, d)
}
func (b *book) takes(r *model.Request, n, d int) int {
	if r.GPUMemory == 0 {
		return 1000
	}
	return int(math.Ceil(float64(r.GPUMemory) * 1000 / float64(b.size(n, d))))
}

func tagOf(r *model.Request) string {
	switch {
	case r.GPUs == 0:
		return ""
	case r.GPUMemory > 0:
		return "share"
	}
	return fmt.Sprint(r.GPUs)
}

// devices lists those of node n that have room for one GPU of the request.
func (b *book) devices(r *model.Request, n int) []int {
	var list []int
	if r.GPUs == 0 || b.nodes[n].closed {
		return nil
	}
	for d := range b.nodes[n].bytes {
		if r.GPUType != "" && b.c.GPUTypes[b.c.Nodes[n].GPUs[d]].Name != r.GPUType {
			continue
		}
		if r.GPUMemory == 0 && b.isWhole(n, d) || r.GPUMemory > 0 && b.nodes[n].bytes[d] >= r.GPUMemory {
			list = append(list, d)
		}
	}
	return list
}

func (b *book) canHost(r *model.Request, n int) bool {
	x := &b.nodes[n]
	if x.closed || x.cores < r.CoresOnNode() || x.memory < r.MemoryOnNode(r.CoresOnNode()) || r.Exclusive && x.jobs > 0 {
		return false
	}
	return len(r.NodeList) == 0 || slices.Contains(r.NodeList, b.c.Nodes[n].Name)
}

func (b *book) suits(r *model.Request, n int) bool {
	return b.canHost(r, n) && len(b.devices(r, n)) >= r.GPUs
}

// tightest of the devices that have room.
func (b *book) tightest(r *model.Request, n int) []int {
	list := b.devices(r, n)
	sort.SliceStable(list, func(i, j int) bool { return b.milli(n, list[i]) < b.milli(n, list[j]) })
	if len(list) > r.GPUs {
		list = list[:r.GPUs]
	}
	return list
}

func (b *book) largest() (C, G float64) {
	for _, n := range b.c.Nodes {
		C, G = max(C, float64(n.Cores)), max(G, 1000*float64(len(n.GPUs)))
	}
	return C, G
}

// score of a node, with the devices to take.
func (b *book) score(policyName string, r *model.Request, n int, expected []oracleTask) (int, []int) {
	x := &b.nodes[n]
	devices := b.tightest(r, n)
	C, G := b.largest()
	g, rg := 0.0, 0.0
	if !x.closed {
		for d := range x.bytes {
			g += float64(b.milli(n, d))
		}
	}
	for _, d := range devices {
		rg += float64(b.takes(r, n, d))
	}
	c, rc := float64(x.cores), float64(r.CoresOnNode())
	over := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	switch policyName {
	case "dot-product":
		return int(100 * (1 - (float64(c/C*(rc/C))+float64(over(g, G)*over(rg, G)))/2)), devices
	case "best-fit":
		return int((1 - (float64((c-rc)/C*0.5) + float64(over(g-rg, G)*0.5))) * 100), devices
	case "gpu-clustering":
		if r.GPUs == 0 {
			return 0, devices
		}
		kinds := map[string]bool{}
		for _, t := range x.tasks {
			if t != "" {
				kinds[t] = true
			}
		}
		base := 25 * (int(G) - int(g)) / int(G)
		switch {
		case kinds[tagOf(r)] && len(kinds) == 1:
			return base + 75, devices
		case kinds[tagOf(r)]:
			return base + 50, devices
		case len(kinds) == 0:
			return base + 25, devices
		}
		return base, devices
	case "gpu-packing":
		if r.GPUs == 0 {
			return 0, devices
		}
		untouched := 0
		for d := range x.bytes {
			if b.isWhole(n, d) {
				untouched++
			}
		}
		if untouched == len(x.bytes) {
			return max(33-untouched, untouched), devices
		}
		u, s := 0, 0
		for _, d := range devices {
			if b.isWhole(n, d) {
				u++
			}
			s += b.milli(n, d) * 100 / 1000
		}
		if u > 0 {
			return max(50-u, 33), devices
		}
		return max(100-s/10, 50), devices
	case "fgd":
		gain := func(devices []int) int {
			left := make([]int, len(x.bytes))
			for d := range left {
				left[d] = b.milli(n, d)
			}
			before := b.fragments(n, x.cores, left, expected)
			for _, d := range devices {
				left[d] = max(0, left[d]-b.takes(r, n, d))
			}
			after := b.fragments(n, x.cores-r.CoresOnNode(), left, expected)
			return sigmoidScore(before-after, 1000)
		}
		if r.GPUs != 1 || r.GPUMemory == 0 {
			return gain(devices), devices
		}
		best, at := -1, -1
		for _, d := range b.devices(r, n) {
			if s := gain([]int{d}); s > best {
				best, at = s, d
			}
		}
		return best, []int{at}
	}
	panic(policyName)
}

// sigmoidScore is 100 sigmoid(x/unit), cut off. What rounding makes of a
// difference of nothing must not count.
func sigmoidScore(x, unit float64) int {
	if math.Abs(x) < 1e-6 {
		x = 0
	}
	return int(100 / (1 + math.Exp(-x/unit)))
}

type oracleTask struct {
	cores, gpus int
	share       int64
	types       []string
	weight      float64
}

// expectedOf is the workload in the words of the page: shapes until they make up 95 of 100 jobs.
func expectedOf(jobs []*model.Job) []oracleTask {
	var shapes []oracleTask
	total := 0.0
	for _, j := range jobs {
		r := &j.Request
		if r.Nodes == 0 {
			continue
		}
		t := oracleTask{cores: r.CoresOnNode(), gpus: r.GPUs, share: r.GPUMemory}
		if r.GPUs > 0 && r.GPUType != "" {
			t.types = []string{r.GPUType}
			for _, a := range j.Alternatives {
				if a.GPUs == r.GPUs && a.GPUMemory == r.GPUMemory && a.CoresOnNode() == r.CoresOnNode() && a.Memory == r.Memory && a.Nodes == r.Nodes {
					t.types = append(t.types, a.GPUType)
				}
			}
			sort.Strings(t.types)
		}
		total += float64(r.Nodes)
		at := slices.IndexFunc(shapes, func(o oracleTask) bool {
			return o.cores == t.cores && o.gpus == t.gpus && o.share == t.share && slices.Equal(o.types, t.types)
		})
		if at < 0 {
			at = len(shapes)
			shapes = append(shapes, t)
		}
		shapes[at].weight += float64(r.Nodes)
	}
	sort.SliceStable(shapes, func(i, j int) bool {
		a, b := &shapes[i], &shapes[j]
		switch {
		case a.weight != b.weight:
			return a.weight > b.weight
		case a.cores != b.cores:
			return a.cores > b.cores
		case a.share != b.share:
			return a.share > b.share
		case a.gpus != b.gpus:
			return a.gpus > b.gpus
		}
		return strings.Join(a.types, "|") > strings.Join(b.types, "|")
	})
	sum := 0.0
	for i := range shapes {
		if sum += shapes[i].weight; sum >= 0.95*total {
			return shapes[:i+1]
		}
	}
	return shapes
}

// fragments by the definition, in thousandths.
func (b *book) fragments(n, cores int, left []int, expected []oracleTask) float64 {
	f, weights := 0.0, 0.0
	for _, t := range expected {
		weights += t.weight
		all, small, room := 0, 0, 0
		for d, l := range left {
			r := model.Request{GPUMemory: t.share}
			typed := t.types == nil || slices.Contains(t.types, b.c.GPUTypes[b.c.Nodes[n].GPUs[d]].Name)
			all += l
			if typed && t.gpus > 0 && l > 0 && l >= b.takes(&r, n, d) {
				room++
			} else {
				small += l
			}
		}
		if t.gpus == 0 || cores < t.cores || room < t.gpus {
			f += t.weight * float64(all)
		} else {
			f += t.weight * float64(small)
		}
	}
	return f / weights
}

// give is what the oracle grants a job: devices by node, whole or shares.
type give struct {
	request int
	nodes   []int
	devices [][]int
}

// choose places a job with GPUs in its nodes.
func (b *book) choose(policyName string, j *model.Job, expected []oracleTask) *give {
	requests := append([]model.Request{j.Request}, j.Alternatives...)
	used := make([]bool, len(requests))
	for i := range requests {
		if used[i] {
			continue
		}
		group := []int{i}
		for k := i + 1; k < len(requests); k++ {
			a, c := requests[i], requests[k]
			a.GPUType, c.GPUType = "", ""
			if fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", c) && a.GPUs > 0 {
				group = append(group, k)
				used[k] = true
			}
		}
		type scored struct {
			n, score, request int
			devices           []int
		}
		collect := func(list []int) []scored {
			var out []scored
			for n := range b.nodes {
				for _, k := range list {
					if b.suits(&requests[k], n) {
						s, d := b.score(policyName, &requests[k], n, expected)
						out = append(out, scored{n, s, k, d})
					}
				}
			}
			sort.SliceStable(out, func(a, b int) bool { return out[a].score > out[b].score })
			return out
		}
		if requests[i].Nodes == 1 {
			if out := collect(group); len(out) > 0 {
				return &give{out[0].request, []int{out[0].n}, [][]int{out[0].devices}}
			}
			continue
		}
		for _, k := range group {
			out := collect([]int{k})
			if len(out) < requests[k].Nodes {
				continue
			}
			out = out[:requests[k].Nodes]
			sort.Slice(out, func(a, b int) bool { return out[a].n < out[b].n })
			g := &give{request: k}
			for _, s := range out {
				g.nodes, g.devices = append(g.nodes, s.n), append(g.devices, s.devices)
			}
			return g
		}
	}
	return nil
}

// book enters (by 1) or strikes (by -1) what an allocation takes.
func (b *book) enter(a *model.Allocation, r *model.Request, by int) {
	touched := map[int]bool{}
	for i := range a.Parts {
		p := &a.Parts[i]
		x := &b.nodes[p.Node]
		x.cores -= by * int(p.Cores)
		x.memory -= int64(by) * p.Memory
		x.closed = p.Exclusive && by > 0
		for d := range x.bytes {
			if p.GPUs>>d&1 != 0 {
				x.bytes[d] -= int64(by) * b.size(int(p.Node), d)
			}
		}
		if tag := tagOf(r); by > 0 {
			x.tasks = append(x.tasks, tag)
		} else {
			at := slices.Index(x.tasks, tag)
			x.tasks = slices.Delete(x.tasks, at, at+1)
		}
		touched[int(p.Node)] = true
	}
	for _, g := range a.Grants {
		bytes := g.Memory
		if bytes == 0 {
			bytes = b.size(int(g.Node), int(g.Device))
		}
		b.nodes[g.Node].bytes[g.Device] -= int64(by) * bytes
		touched[int(g.Node)] = true
	}
	for n := range touched {
		b.nodes[n].jobs += by
	}
}

// text writes an allocation the same way as a give.
func allocText(a *model.Allocation, alternative int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "as %d:", alternative)
	for i := range a.Parts {
		fmt.Fprintf(&s, " node %d[", a.Parts[i].Node)
		var list []string
		for d := range 64 {
			if a.Parts[i].GPUs>>d&1 != 0 {
				list = append(list, fmt.Sprintf("%d/%d", a.Parts[i].Node, d))
			}
		}
		for _, g := range a.Grants {
			if int(g.For) == i {
				list = append(list, fmt.Sprintf("%d/%d", g.Node, g.Device))
			}
		}
		sort.Strings(list)
		fmt.Fprintf(&s, "%s]", strings.Join(list, " "))
	}
	return s.String()
}

func (g *give) text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "as %d:", g.request)
	for i, n := range g.nodes {
		var list []string
		for _, d := range g.devices[i] {
			list = append(list, fmt.Sprintf("%d/%d", n, d))
		}
		sort.Strings(list)
		fmt.Fprintf(&s, " node %d[%s]", n, strings.Join(list, " "))
	}
	return s.String()
}

// A tiny world: a few nodes of all sorts, and jobs with every feature.
func tinyCluster(r *rand.Rand) *model.Cluster {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "A", Memory: 10, Speed: 1}, {Name: "B", Memory: 16, Speed: 1}}}
	for i := range 1 + r.IntN(6) {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: 2 + r.IntN(7), Memory: int64(4 + r.IntN(12))}
		t := r.IntN(2)
		for range r.IntN(5) {
			if r.IntN(8) == 0 {
				t = 1 - t // nodes with two types are rare
			}
			n.GPUs = append(n.GPUs, t)
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func tinyJob(r *rand.Rand, c *model.Cluster, id int) *model.Job {
	q := model.Request{Nodes: 1, Cores: 1 + r.IntN(4), Memory: int64(r.IntN(4))}
	if r.IntN(6) == 0 {
		q.Nodes = 2
		q.Cores, q.CoresPerNode = 0, 1+r.IntN(3)
	}
	switch r.IntN(4) {
	case 0:
	case 1:
		q.GPUs = 1 + r.IntN(3)
	default:
		q.GPUs, q.GPUMemory = 1, int64(1+r.IntN(9))
		if r.IntN(6) == 0 {
			q.GPUs = 2
		}
	}
	j := &model.Job{ID: fmt.Sprint(id), Run: 1, Request: q}
	switch r.IntN(10) {
	case 0:
		j.Request.Exclusive = true
	case 1:
		j.Request.NodeList = []string{c.Nodes[r.IntN(len(c.Nodes))].Name, c.Nodes[0].Name}
	case 2, 3:
		if q.GPUs > 0 {
			j.Request.GPUType = "A"
			b := j.Request
			b.GPUType = "B"
			if r.IntN(2) == 0 {
				j.Alternatives = []model.Request{b}
			}
		}
	case 4:
		if q.GPUs > 0 { // on cores alone it would run as well
			j.Alternatives = []model.Request{{Nodes: 1, Cores: q.CoresOnNode() + 1}}
		}
	}
	return j
}

// play drives a policy and the oracle side by side.
func play(t *testing.T, r *rand.Rand, c *model.Cluster, p policy.Policy, decide func(b *book, j *model.Job) string, seen func(*model.Job)) {
	t.Helper()
	state := policy.NewState(c, p)
	b := newBook(c)
	type run struct {
		id  policy.JobID
		job *model.Job
		as  int
	}
	var running []run
	var queue []run
	for i := range 30 {
		for range r.IntN(3) {
			if len(running) > 0 {
				k := r.IntN(len(running))
				b.enter(state.Allocation(running[k].id), requestOf(running[k].job, running[k].as), -1)
				state.End(running[k].id)
				running = slices.Delete(running, k, k+1)
			}
		}
		if len(queue) > 0 && r.IntN(5) == 0 {
			k := r.IntN(len(queue))
			if err := state.Cancel(queue[k].id); err != nil {
				t.Fatal(err)
			}
			queue = slices.Delete(queue, k, k+1)
		}
		for range r.IntN(4) {
			j := tinyJob(r, c, i)
			if err := j.Validate(); err != nil {
				t.Fatal(err)
			}
			if id, err := state.Submit(j); err == nil {
				queue = append(queue, run{id: id, job: j})
				if seen != nil {
					seen(j)
				}
			}
		}
		plan := state.Step(0)
		started := map[policy.JobID]*policy.Start{}
		for k := range plan.Starts {
			if plan.Starts[k].Err != nil {
				t.Fatalf("refused: %v", plan.Starts[k].Err)
			}
			started[plan.Starts[k].Job] = &plan.Starts[k]
		}
		var rest []run
		for _, q := range queue {
			want := decide(b, q.job)
			got := ""
			if s := started[q.id]; s != nil {
				got = allocText(s.Alloc, s.Alternative)
				b.enter(s.Alloc, requestOf(q.job, s.Alternative), 1)
				running = append(running, run{q.id, q.job, s.Alternative})
			} else {
				rest = append(rest, q)
				if why := state.Why(q.id); why == "" {
					t.Errorf("a job waits, and nobody says why")
				}
			}
			if want != "?" && got != want {
				t.Fatalf("job %+v (others %+v)\ngot  %q\nwant %q\nfree %+v", q.job.Request, q.job.Alternatives, got, want, b.nodes)
			}
		}
		queue = rest
	}
}

func requestOf(j *model.Job, alternative int) *model.Request {
	if alternative == 0 {
		return &j.Request
	}
	return &j.Alternatives[alternative-1]
}

func cases(t *testing.T) uint64 {
	return uint64(needs.Rounds(100, 800))
}

// Each policy agrees with the oracle, job by job.
func TestOracle(t *testing.T) {
	for _, name := range []string{"dot-product", "best-fit", "gpu-clustering", "gpu-packing", "fgd"} {
		t.Run(name, func(t *testing.T) {
			for seed := range cases(t) {
				r := rand.New(rand.NewPCG(seed, 7))
				c := tinyCluster(r)
				config := Config{}
				var expected []oracleTask
				if name == "fgd" {
					var census Census
					var jobs []*model.Job
					for i := range 25 {
						j := tinyJob(r, c, i)
						census.Add(j)
						jobs = append(jobs, j)
					}
					config.Target = census.Target(c)
					expected = expectedOf(jobs)
				}
				p, err := New(name, config)
				if err != nil {
					t.Fatal(err)
				}
				play(t, r, c, p, func(b *book, j *model.Job) string {
					if g := b.choose(name, j, expected); g != nil {
						return g.text()
					}
					return ""
				}, nil)
			}
		})
	}
}

// What fgd learns is what was submitted: while it looks again at every job, it
// agrees with an oracle that is told.
func TestFGDLearns(t *testing.T) {
	for seed := range cases(t) / 4 {
		r := rand.New(rand.NewPCG(seed, 11))
		c := tinyCluster(r)
		p, err := FGD.Make("")
		if err != nil {
			t.Fatal(err)
		}
		var jobs []*model.Job
		again, known := 0, 0
		play(t, r, c, p, func(b *book, j *model.Job) string {
			if len(jobs) >= again {
				known, again = len(jobs), len(jobs)+max(1, len(jobs)/4)
			}
			if g := b.choose("fgd", j, expectedOf(jobs[:known])); g != nil {
				return g.text()
			}
			return ""
		}, func(j *model.Job) { jobs = append(jobs, j) })
	}
}

// random-fit places whatever fits, on something that suits.
func TestRandomFitPlacesWhatFits(t *testing.T) {
	for seed := range cases(t) / 2 {
		r := rand.New(rand.NewPCG(seed, 3))
		c := tinyCluster(r)
		p, err := RandomFit.Make(fmt.Sprint("seed=", seed))
		if err != nil {
			t.Fatal(err)
		}
		state := policy.NewState(c, p)
		b := newBook(c)
		for i := range 25 {
			j := tinyJob(r, c, i)
			id, err := state.Submit(j)
			if err != nil {
				continue
			}
			g := b.choose("best-fit", j, nil) // where it fits does not depend on the policy
			plan := state.Step(0)
			if (g != nil) != (len(plan.Starts) == 1) {
				t.Fatalf("job %+v: the oracle says %v, %d started", j.Request, g, len(plan.Starts))
			}
			if g == nil {
				if err := state.Cancel(id); err != nil {
					t.Fatal(err)
				}
				continue
			}
			s := plan.Starts[0]
			if s.Err != nil {
				t.Fatal(s.Err)
			}
			req := requestOf(j, s.Alternative)
			for k := range s.Alloc.Parts {
				if !b.suits(req, int(s.Alloc.Parts[k].Node)) {
					t.Fatalf("node %d does not suit %+v", s.Alloc.Parts[k].Node, req)
				}
			}
			b.enter(s.Alloc, req, 1)
		}
	}
}
