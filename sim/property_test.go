package sim_test

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sort"
	"testing"
	"time"

	"muster/model"
	"muster/policy/catalog"
	"muster/sim"
)

// watcher observes a run and keeps its own books. It complains about the first
// thing that must not happen.
type watcher struct {
	policy string
	s      *scenario
	rng    *rand.Rand // says at which instants the costly checks are made

	err     error
	now     time.Duration
	submits []time.Duration // instants at which jobs are submitted, not yet passed
	allocs  []*model.Allocation
	started []time.Duration
	ended   []bool
	log     []string
	nodes   []usedNode
	// impossible jobs never wait.
	impossible []bool

	head     int           // easy: the first waiting job, -1 for none
	promised time.Duration // when it was to start at the latest
}

type usedNode struct {
	cores     int64
	memory    int64
	jobs      int
	lent      int
	exclusive bool
	devices   []usedDevice
}

type usedDevice struct {
	whole  int
	shares int
	memory int64
}

func watch(policy string, s *scenario, seed uint64) *watcher {
	w := &watcher{policy: policy, s: s, rng: rand.New(rand.NewPCG(seed, 9)), now: -1, head: -1,
		allocs: make([]*model.Allocation, len(s.Jobs)), ended: make([]bool, len(s.Jobs)),
		started: make([]time.Duration, len(s.Jobs)), nodes: make([]usedNode, len(s.Cluster.Nodes))}
	for i, n := range s.Cluster.Nodes {
		w.nodes[i].devices = make([]usedDevice, len(n.GPUs))
	}
	for _, j := range s.Jobs {
		w.submits = append(w.submits, j.Submit)
	}
	o := &oracleRun{c: s.Cluster, jobs: s.Jobs, policy: policy}
	for j := range s.Jobs {
		_, ok := o.place(o.free(nil), j)
		w.impossible = append(w.impossible, !ok)
	}
	slices.Sort(w.submits)
	w.submits = slices.Compact(w.submits)
	return w
}

func (w *watcher) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %v: %w", w.now, fmt.Errorf(format, args...))
	}
}

func (w *watcher) Started(now time.Duration, job int, alloc *model.Allocation) {
	w.advance(now)
	w.log = append(w.log, fmt.Sprint("start ", now, job, *alloc))
	if w.allocs[job] != nil {
		w.failf("job %d started twice", job)
	}
	if now < w.s.Jobs[job].Submit {
		w.failf("job %d started before it was submitted", job)
	}
	switch {
	case job == w.head && now > w.promised:
		w.failf("job %d was promised %v", job, w.promised)
	case w.head >= 0 && w.s.Jobs[job].Priority > w.s.Jobs[w.head].Priority:
		w.head = -1 // this one came later and went before it by right
	}
	a := &model.Allocation{Parts: slices.Clone(alloc.Parts), Grants: slices.Clone(alloc.Grants)}
	w.allocs[job], w.started[job] = a, now
	w.satisfied(job, a)
	w.book(job, a, 1)
	w.fits(a)
}

func (w *watcher) Ended(now time.Duration, job int) {
	w.advance(now)
	w.log = append(w.log, fmt.Sprint("end ", now, job))
	if w.allocs[job] == nil || w.ended[job] {
		w.failf("job %d ended without having run, or twice", job)
		return
	}
	w.ended[job] = true
	w.book(job, w.allocs[job], -1)
}

// book adds what the job holds to the books, or takes it out.
func (w *watcher) book(job int, a *model.Allocation, sign int) {
	for _, p := range a.Parts {
		n := &w.nodes[p.Node]
		n.cores += int64(sign) * int64(p.Cores)
		n.memory += int64(sign) * p.Memory
		n.jobs += sign
		if w.s.Jobs[job].Request.Exclusive {
			n.exclusive = sign > 0
		}
		for d := range n.devices {
			if p.GPUs>>d&1 == 1 {
				n.devices[d].whole += sign
			}
		}
	}
	for _, g := range a.Grants {
		d := &w.nodes[g.Node].devices[g.Device]
		if g.Memory == 0 {
			d.whole += sign
		} else {
			d.shares += sign
			d.memory += int64(sign) * g.Memory
		}
		if a.Parts[g.For].Node != g.Node {
			w.nodes[g.Node].lent += sign
		}
	}
}

// fits checks that none of the nodes of a is oversubscribed.
func (w *watcher) fits(a *model.Allocation) {
	var touched []int32
	for _, p := range a.Parts {
		touched = append(touched, p.Node)
	}
	for _, g := range a.Grants {
		touched = append(touched, g.Node)
	}
	for _, i := range touched {
		n, has := &w.nodes[i], &w.s.Cluster.Nodes[i]
		if n.cores > int64(has.Cores) || n.memory > has.Memory {
			w.failf("node %d gives %d of %d cores and %d of %d bytes", i, n.cores, has.Cores, n.memory, has.Memory)
		}
		if n.jobs > 1 && (n.exclusive || w.policy == "g-queue") {
			w.failf("node %d hosts %d jobs", i, n.jobs)
		}
		for d, t := range has.GPUs {
			u := n.devices[d]
			if u.whole > 1 || u.whole == 1 && u.shares > 0 || u.memory > w.s.Cluster.GPUTypes[t].Memory {
				w.failf("device %d of node %d has %+v", d, i, u)
			}
		}
	}
}

// satisfied checks that the job got all it asked for, and where it asked for it.
func (w *watcher) satisfied(job int, a *model.Allocation) {
	r := &w.s.Jobs[job].Request
	cores := 0
	for i, p := range a.Parts {
		n := &w.s.Cluster.Nodes[p.Node]
		cores += int(p.Cores)
		want := int(p.Cores)
		if r.Nodes > 0 {
			want = r.CoresOnNode()
		}
		switch {
		case i > 0 && a.Parts[i-1].Node >= p.Node:
			w.failf("job %d: parts are not in node order", job)
		case len(r.NodeList) > 0 && !slices.Contains(r.NodeList, n.Name):
			w.failf("job %d: node %s is not in its list", job, n.Name)
		case r.Contiguous && i > 0 && a.Parts[i-1].Node+1 != p.Node:
			w.failf("job %d: nodes are not contiguous", job)
		case p.Memory < r.Memory+r.MemoryPerCore*int64(want):
			w.failf("job %d: %d bytes on node %s", job, p.Memory, n.Name)
		case r.Exclusive && (int(p.Cores) != n.Cores || w.nodes[p.Node].jobs > 0 || w.nodes[p.Node].lent > 0):
			w.failf("job %d: has node %s not to itself", job, n.Name)
		case !r.Exclusive && int(p.Cores) != want:
			w.failf("job %d: %d cores on node %s", job, p.Cores, n.Name)
		case p.GPUs>>len(n.GPUs) != 0:
			w.failf("job %d: has devices that node %s has not", job, n.Name)
		}
	}
	for _, g := range a.Grants {
		if name := w.s.Cluster.Nodes[g.Node].Name; len(r.Lenders) > 0 && !slices.Contains(r.Lenders, name) {
			w.failf("job %d: has a GPU of node %s, which does not lend it one", job, name)
		}
	}
	together := max(1, r.CoresPerProcess)
	torn := func(p model.Part) bool { return int(p.Cores)%together != 0 }
	if r.Nodes > 0 && len(a.Parts) != r.Nodes || r.Nodes == 0 && (cores != r.Cores || slices.ContainsFunc(a.Parts, torn)) {
		w.failf("job %d: is no whole gang: %+v", job, a)
	}
	w.devicesSatisfied(job, a)
}

func (w *watcher) devicesSatisfied(job int, a *model.Allocation) {
	r := &w.s.Jobs[job].Request
	serving := make([]int, len(a.Parts))
	total, borrowed := 0, 0
	checkType := func(node, device int32, atLeast int64) {
		t := w.s.Cluster.GPUTypes[w.s.Cluster.Nodes[node].GPUs[device]]
		if r.GPUType != "" && t.Name != r.GPUType || t.Memory < atLeast {
			w.failf("job %d: has a device of type %s", job, t.Name)
		}
	}
	for i, p := range a.Parts {
		serving[i] = bits.OnesCount64(p.GPUs)
		total += serving[i]
		for d := range int32(model.MaxGPUsPerNode) {
			if p.GPUs>>d&1 == 1 {
				checkType(p.Node, d, 0)
			}
		}
	}
	for _, g := range a.Grants {
		checkType(g.Node, g.Device, g.Memory)
		serving[g.For]++
		total++
		if a.Borrowed(g) {
			borrowed++
		}
		if g.Memory != 0 && g.Memory != r.GPUMemory && (r.Remote == nil || g.Memory != r.Remote.Memory) {
			w.failf("job %d: has a share of %d bytes", job, g.Memory)
		}
	}
	want := len(a.Parts) * r.GPUs
	if r.Remote != nil {
		want += r.Remote.Count
	}
	if total != want || slices.ContainsFunc(serving, func(n int) bool { return n < r.GPUs }) {
		w.failf("job %d: got other devices than it asked for: %+v", job, a)
	}
	mayBorrow := 0
	if r.Remote != nil && w.policy != "g-queue" {
		mayBorrow = r.Remote.Count
	}
	if borrowed > mayBorrow && w.policy != "r-queue" && w.policy != anyPolicy {
		w.failf("job %d: borrows %d devices", job, borrowed)
	}
}

// advance ends the instant that was, and those between at which jobs only came.
func (w *watcher) advance(now time.Duration) {
	switch {
	case now < w.now:
		w.failf("time went back to %v", now)
	case now == w.now:
		return
	}
	if w.now >= 0 {
		w.instantOver()
	}
	for len(w.submits) > 0 && w.submits[0] <= now {
		if w.submits[0] > w.now && w.submits[0] < now {
			w.now = w.submits[0]
			w.instantOver()
		}
		w.submits = w.submits[1:]
	}
	w.now = now
}

// anyPolicy is one of which a watcher knows nothing but that it must keep the rules.
const anyPolicy = "any"

// instantOver checks what must hold when the policy has made its last step of an instant.
func (w *watcher) instantOver() {
	if w.policy == anyPolicy {
		return
	}
	if w.policy == "easy" && w.s.Tame {
		o := w.state()
		w.promiseKept(o, o.queue())
	}
	if w.policy == "easy" || w.policy == "conservative" || w.rng.IntN(10) > 0 {
		return
	}
	o := w.state()
	q := o.queue()
	if w.policy == "fcfs" || w.policy == "sjf" {
		q = q[:min(len(q), 1)]
	}
	var held []model.Allocation
	for _, r := range o.running {
		held = append(held, r.alloc)
	}
	free := o.free(held)
	for _, j := range q {
		if r := &w.s.Jobs[j].Request; r.Remote != nil && (r.GPUs > 0 || w.policy == "g-queue") {
			continue // first fit looks for such a job's nodes before its devices, and may miss nodes that had done
		}
		if a, ok := o.place(free, j); ok {
			w.failf("job %d waits but fits: %+v", j, a)
		}
	}
}

// promiseKept checks that the first waiting job's time never grows.
func (w *watcher) promiseKept(o *oracleRun, q []int) {
	if len(q) == 0 {
		w.head = -1
		return
	}
	if q[0] != w.head {
		w.head, w.promised = q[0], 1<<62
	} else if w.rng.IntN(5) > 0 {
		return
	}
	r := o.earliest(w.head, o.holdings(-1))
	if r == nil || r.from > w.promised {
		w.failf("job %d was promised %v, and now %+v", w.head, w.promised, r)
		return
	}
	w.promised = r.from
}

// state is what the oracle would know now.
func (w *watcher) state() *oracleRun {
	o := &oracleRun{c: w.s.Cluster, jobs: w.s.Jobs, policy: w.policy, opt: w.s.Options, now: w.now}
	for j, a := range w.allocs {
		switch {
		case a != nil && !w.ended[j]:
			o.running = append(o.running, &runningJob{job: j, start: w.started[j], alloc: *a})
		case a == nil && w.s.Jobs[j].Submit <= w.now && !w.impossible[j]:
			o.waiting = append(o.waiting, j)
		}
	}
	sort.SliceStable(o.waiting, func(a, b int) bool {
		return w.s.Jobs[o.waiting[a]].Submit < w.s.Jobs[o.waiting[b]].Submit
	})
	return o
}

// over checks the whole run.
func (w *watcher) over(res *sim.Result) {
	if w.now >= 0 {
		w.instantOver()
	}
	for j, out := range res.Outcomes {
		ran := w.allocs[j] != nil
		switch {
		case ran && !w.ended[j]:
			w.failf("job %d never ended", j)
		case ran != (out.State != sim.Impossible):
			w.failf("job %d: ran is %v, its state is %v", j, ran, out.State)
		case !ran && !w.impossible[j]:
			w.failf("job %d was lost", j)
		case ran && out.Start != w.started[j]:
			w.failf("job %d started at %v, not %v", j, w.started[j], out.Start)
		}
	}
}

// observed runs the simulator under the eyes of a watcher.
func observed(policy string, s *scenario, seed uint64) (*watcher, *sim.Result, error) {
	p, err := catalog.New(spec(policy, s.Options))
	if err != nil {
		return nil, nil, err
	}
	w := watch(policy, s, seed)
	res, err := sim.Run(context.Background(), sim.Config{Cluster: s.Cluster, Jobs: s.Jobs, Policy: p,
		NoKill: !s.Options.Kill, Observe: w})
	if err != nil {
		return nil, nil, err
	}
	w.over(res)
	return w, res, w.err
}

// crowd is a large scenario: the cluster is now full and now nearly empty.
func crowd(g *generator, nodes, jobs int) *scenario {
	s := &scenario{Cluster: g.cluster(nodes), Options: oracleOptions{Kill: true, Depth: 20}, Tame: g.tame}
	for i := range jobs {
		s.Jobs = append(s.Jobs, g.job(i, s.Cluster, jobs/g.between(5, 12)))
	}
	sortJobs(s.Jobs)
	return s
}

func TestNothingGoesWrongInACrowd(t *testing.T) {
	nodes, jobs := 20, int(howMany(300, 600, 2000))
	if soak {
		nodes = 50
	}
	for _, policy := range allPolicies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			seed := uint64(1)
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 3)), traffic: policy != "easy", tame: policy == "easy"}
			if _, _, err := observed(policy, crowd(g, nodes, jobs), seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
}

// TestEasyKeepsItsPromise does the same on many small clusters, where it is
// easier to get in the way of the first job.
func TestEasyKeepsItsPromise(t *testing.T) {
	cases := howMany(30, 150, 300)
	for seed := range cases {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 4)), tame: true}
		s := crowd(g, g.between(1, 8), 40)
		s.Options.Depth = g.IntN(4)
		if _, _, err := observed("easy", s, seed); err != nil {
			small := shrink(s, func(s *scenario) bool { _, _, err := observed("easy", s, seed); return err != nil })
			_, _, err := observed("easy", small, seed)
			t.Fatalf("seed %d: %v\n%s", seed, err, small)
		}
	}
}

// TestConservativeKeepsItsPromises checks that no job starts later than it was first promised,
// whatever arrives later.
func TestConservativeKeepsItsPromises(t *testing.T) {
	cases := howMany(20, 70, 200)
	for seed := range cases {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 5)), tame: true}
		s := crowd(g, g.between(1, 8), 30)
		s.Options.Depth = 0 // so that no job drops out of the queue's window and loses its promise
		if brokenPromise(t, s) != "" {
			small := shrink(s, func(s *scenario) bool { return brokenPromise(t, s) != "" })
			t.Fatalf("seed %d: %s\n%s", seed, brokenPromise(t, small), small)
		}
	}
}

func brokenPromise(t *testing.T, s *scenario) string {
	o := &oracleRun{c: s.Cluster, jobs: s.Jobs, policy: "conservative", opt: s.Options,
		out: make([]oracleOutcome, len(s.Jobs)), reserved: make([]*holding, len(s.Jobs)),
		promised: make([]time.Duration, len(s.Jobs))}
	o.run()
	got, err := simulate("conservative", s)
	if err != nil {
		t.Fatal(err)
	}
	for j, promise := range o.promised {
		if promise > 0 && got[j].Start > promise {
			return fmt.Sprintf("job %d was promised %v and started at %v", j, promise, got[j].Start)
		}
	}
	return ""
}

// TestEveryPolicyKeepsTheRules runs every policy of the catalogue on jobs with alternatives, twice.
// Both runs make the same decisions; nothing is refused, given out twice or forgotten, and every
// job gets all that its granted request asks for.
func TestEveryPolicyKeepsTheRules(t *testing.T) {
	cases := howMany(12, 40, 120)
	for _, e := range catalog.Entries {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range cases {
				g := &generator{Rand: rand.New(rand.NewPCG(seed, 8)), traffic: seed%2 == 0}
				s := g.scenario(8, 30)
				for i := range s.Jobs {
					s.Jobs[i].Alternatives = nil
					for range g.IntN(3) {
						s.Jobs[i].Alternatives = append(s.Jobs[i].Alternatives, g.request(s.Cluster))
					}
				}
				if err := keepsRules(e.Name, s); err != nil {
					small := shrink(s, func(s *scenario) bool { return keepsRules(e.Name, s) != nil })
					t.Fatalf("seed %d: %v\n%s", seed, keepsRules(e.Name, small), small)
				}
			}
		})
	}
}

func keepsRules(name string, s *scenario) error {
	var first *eventLog
	for range 2 {
		p, err := catalog.New(name)
		if err != nil {
			return err
		}
		seen := &eventLog{}
		res, err := sim.Run(context.Background(), sim.Config{Cluster: s.Cluster, Jobs: s.Jobs, Policy: p, NoKill: !s.Options.Kill, Observe: seen})
		switch {
		case err != nil:
			return err
		case res.Refused > 0:
			return fmt.Errorf("%d starts were refused", res.Refused)
		case first != nil && !reflect.DeepEqual(first, seen):
			return fmt.Errorf("it decided in two ways")
		}
		first = seen
		// The watcher gets jobs whose request is the granted one.
		granted := *s
		granted.Jobs = slices.Clone(s.Jobs)
		for i, o := range res.Outcomes {
			granted.Jobs[i] = *s.Jobs[i].As(int(o.Alternative))
		}
		w := watch(anyPolicy, &granted, 1)
		for _, e := range seen.events {
			if e.alloc != nil {
				w.Started(e.at, e.job, e.alloc)
			} else {
				w.Ended(e.at, e.job)
			}
		}
		for i, o := range res.Outcomes {
			if o.State == sim.Impossible {
				w.impossible[i] = true // whether it is, the policy's mode says
			}
		}
		w.over(res)
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// eventLog is an observer that keeps all events.
type eventLog struct{ events []loggedEvent }

type loggedEvent struct {
	at    time.Duration
	job   int
	alloc *model.Allocation // nil where the job ended
}

func (l *eventLog) Started(now time.Duration, job int, a *model.Allocation) {
	own := &model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
	l.events = append(l.events, loggedEvent{now, job, own})
}

func (l *eventLog) Ended(now time.Duration, job int) {
	l.events = append(l.events, loggedEvent{now, job, nil})
}

// TestSameTwice runs the same workload under every policy again and again, on one
// processor and on two. Where a decision hung on the order of a map, this would
// show it. Policies that search get fewer jobs and shorter searches.
func TestSameTwice(t *testing.T) {
	many := crowd(&generator{Rand: rand.New(rand.NewPCG(1, 6)), traffic: true}, 20, int(howMany(40, 200, 400)))
	few := crowd(&generator{Rand: rand.New(rand.NewPCG(1, 7)), traffic: true}, 20, 40)
	searching := map[string]string{"auction": "auction:iterations=2000:tree_nodes=200", "mosaic": "mosaic:effort=20"}
	processors := []int{1, 2, 1, 2}
	if !soak {
		processors = processors[:2]
	}
	for _, e := range catalog.Entries {
		policy, s := e.Name, many
		if short := searching[e.Name]; short != "" {
			policy, s = short, few
		}
		var first *watcher
		for _, procs := range processors {
			before := runtime.GOMAXPROCS(procs)
			w, _, err := observed(policy, s, 1)
			runtime.GOMAXPROCS(before)
			if w == nil {
				t.Fatal(err)
			}
			if first == nil {
				first = w
			}
			if !reflect.DeepEqual(w.log, first.log) {
				t.Errorf("%s: the same workload ran in two ways", policy)
			}
		}
		if len(first.log) < len(s.Jobs) {
			t.Errorf("%s: %d lines of %d jobs: nothing was tested", policy, len(first.log), len(s.Jobs))
		}
	}
}
