package sim_test

import (
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"muster/model"
)

// This file is docs/policies.md written a second time, as plainly as it can
// be. It keeps no state that it could compute: what is free at an instant is
// the cluster less what every holder holds then. It is slow, and shares no code
// with the simulator and the policies that it judges.

type oracleOptions struct {
	Depth  int           // 0 means all
	Window time.Duration // 0 means any
	Kill   bool
}

type oracleOutcome struct {
	Start, End              time.Duration
	Killed, Impossible, Ran bool
	Alloc                   model.Allocation
}

// oracle runs the jobs on the cluster under the named policy.
func oracle(c *model.Cluster, jobs []model.Job, policy string, opt oracleOptions) []oracleOutcome {
	o := &oracleRun{c: c, jobs: jobs, policy: policy, opt: opt,
		out: make([]oracleOutcome, len(jobs)), reserved: make([]*holding, len(jobs))}
	o.run()
	return o.out
}

// holding is an allocation held during [from, to).
type holding struct {
	alloc    model.Allocation
	from, to time.Duration
}

type runningJob struct {
	job   int
	start time.Duration
	alloc model.Allocation

	// Since anchor the job has progressed at the pace of one whole in pace nanoseconds; at anchor,
	// left of it remained.
	anchor time.Duration
	left   float64
	pace   float64
}

type oracleRun struct {
	c      *model.Cluster
	jobs   []model.Job
	policy string
	opt    oracleOptions

	now      time.Duration
	waiting  []int
	running  []*runningJob
	reserved []*holding      // conservative: by job, nil where it has none
	promised []time.Duration // where wanted: the first start that each job was promised
	out      []oracleOutcome
}

func (o *oracleRun) run() {
	var coming []int
	for j := range o.jobs {
		if _, ok := o.place(o.free(nil), j); ok {
			coming = append(coming, j)
		} else {
			o.out[j].Impossible = true
		}
	}
	sort.SliceStable(coming, func(a, b int) bool { return o.jobs[coming[a]].Submit < o.jobs[coming[b]].Submit })

	for len(coming) > 0 || len(o.running) > 0 {
		o.now = math.MaxInt64
		if len(coming) > 0 {
			o.now = o.jobs[coming[0]].Submit
		}
		for _, r := range o.running {
			o.now = min(o.now, o.end(r))
		}
		for again := true; again; {
			o.endJobs()
			for len(coming) > 0 && o.jobs[coming[0]].Submit == o.now {
				o.waiting = append(o.waiting, coming[0])
				coming = coming[1:]
			}
			o.step()
			o.reshare()
			again = slices.ContainsFunc(o.running, func(r *runningJob) bool { return o.end(r) <= o.now })
		}
	}
}

func (o *oracleRun) endJobs() {
	var still []*runningJob
	for _, r := range o.running {
		if o.end(r) > o.now {
			still = append(still, r)
			continue
		}
		out := &o.out[r.job]
		out.End = o.now
		out.Killed = o.end(r) < o.workDone(r)
	}
	o.running = still
}

// workDone is when the job would have done its work, left alone.
func (o *oracleRun) workDone(r *runningJob) time.Duration {
	return r.anchor + time.Duration(math.Ceil(r.left*r.pace))
}

func (o *oracleRun) end(r *runningJob) time.Duration {
	end := o.workDone(r)
	if wall := wallTime(&o.jobs[r.job]); o.opt.Kill && wall > 0 {
		end = min(end, r.start+wall)
	}
	return end
}

// ---- The policies ----

func (o *oracleRun) step() {
	switch o.policy {
	case "fcfs", "sjf":
		o.inOrder()
	case "first-fit", "g-queue", "r-queue":
		for _, j := range o.queue() {
			o.startIfFits(j)
		}
	case "easy":
		o.easy()
	case "conservative":
		o.conservative()
	default:
		panic("the oracle knows no policy " + o.policy)
	}
}

// queue is the waiting jobs in the order of the policy.
func (o *oracleRun) queue() []int {
	q := slices.Clone(o.waiting) // by submission, then log, already
	sort.SliceStable(q, func(a, b int) bool {
		x, y := &o.jobs[q[a]], &o.jobs[q[b]]
		switch o.policy {
		case "sjf":
			return estimate(x) < estimate(y)
		case "easy", "conservative":
			return x.Priority > y.Priority
		}
		return false
	})
	return q
}

func (o *oracleRun) inOrderUntilOneWaits() (waiting []int) {
	q := o.queue()
	for i, j := range q {
		if !o.startIfFits(j) {
			return q[i:]
		}
	}
	return nil
}

// inOrder starts a job unless one waits before it that may use some node which it may use, too.
func (o *oracleRun) inOrder() {
	q := o.queue()
	waits := map[int]bool{}
	for i, j := range q {
		for _, k := range q[:i] {
			waits[j] = waits[j] || waits[k] && o.meet(j, k)
		}
		waits[j] = waits[j] || !o.startIfFits(j)
	}
}

// meet says whether two jobs may use the same node.
func (o *oracleRun) meet(j, k int) bool {
	x, y := o.jobs[j].Request.Lenders, o.jobs[k].Request.Lenders
	return len(x) == 0 || len(y) == 0 || slices.ContainsFunc(x, func(name string) bool { return slices.Contains(y, name) })
}

func (o *oracleRun) easy() {
	q := o.inOrderUntilOneWaits()
	if len(q) == 0 {
		return
	}
	head, behind := q[0], q[1:]
	if o.opt.Depth > 0 && len(behind) > o.opt.Depth {
		behind = behind[:o.opt.Depth]
	}
	reservation := o.earliest(head, o.holdings(-1))
	reserved := reservation != nil && o.inWindow(reservation.from)

	for _, j := range behind {
		alloc, ok := o.placeNow(j)
		if ok && reserved && o.now+estimate(&o.jobs[j]) > reservation.from {
			held := o.holdings(-1)
			atS := o.free(at(append(held, *reservation), reservation.from))
			alloc, ok = o.place(lesser(o.free(at(held, o.now)), atS), j)
		}
		if ok {
			o.start(j, alloc)
		}
	}
}

func (o *oracleRun) conservative() {
	for j, h := range o.reserved {
		if h != nil && h.from < o.now {
			o.reserved[j] = nil // its time came while a job outlived its estimate
		}
	}
	q := o.queue()
	if o.opt.Depth > 0 && len(q) > o.opt.Depth {
		for _, j := range q[o.opt.Depth:] {
			o.reserved[j] = nil
		}
		q = q[:o.opt.Depth]
	}
	for _, j := range q {
		own := o.reserved[j]
		if own != nil && own.from == o.now {
			if o.isFree(own.alloc) {
				o.start(j, own.alloc)
				continue
			}
			own = nil // a job outlived its estimate
		}
		o.reserved[j] = nil
		h := o.earliest(j, o.holdings(j))
		switch {
		case own != nil && (h == nil || h.from >= own.from):
			o.reserved[j] = own
		case h == nil || !o.inWindow(h.from):
		case h.from == o.now:
			o.start(j, h.alloc)
		default:
			o.reserved[j] = h
			if o.promised != nil && o.promised[j] == 0 {
				o.promised[j] = h.from
			}
		}
	}
}

// isFree says whether no running job holds anything of the allocation.
func (o *oracleRun) isFree(a model.Allocation) bool {
	var held []model.Allocation
	for _, r := range o.running {
		held = append(held, r.alloc)
	}
	nodes := o.free(held)
	for _, p := range a.Parts {
		for d := range nodes[p.Node].devices {
			if p.GPUs&(1<<d) != 0 && !nodes[p.Node].devices[d].whole {
				return false
			}
		}
		if p.Exclusive && (nodes[p.Node].hosting || nodes[p.Node].lending) {
			return false
		}
	}
	for _, g := range a.Grants {
		d := nodes[g.Node].devices[g.Device]
		if nodes[g.Node].closed || g.Memory == 0 && !d.whole || g.Memory > 0 && d.taken {
			return false
		}
	}
	take(nodes, &a)
	for _, p := range a.Parts {
		if nodes[p.Node].cores < 0 || nodes[p.Node].memory < 0 {
			return false
		}
	}
	for _, g := range a.Grants {
		if nodes[g.Node].devices[g.Device].memory < 0 {
			return false
		}
	}
	return true
}

func (o *oracleRun) inWindow(t time.Duration) bool {
	return o.opt.Window == 0 || t-o.now <= o.opt.Window
}

// holdings is what is held now and in the future, as far as is known now: by the running jobs, and
// by the reservations of all jobs but except.
func (o *oracleRun) holdings(except int) []holding {
	var hs []holding
	for _, r := range o.running {
		to := max(r.start+estimate(&o.jobs[r.job]), o.now+1)
		hs = append(hs, holding{r.alloc, r.start, to})
	}
	for j, h := range o.reserved {
		if h != nil && j != except {
			hs = append(hs, *h)
		}
	}
	return hs
}

// earliest is the earliest reservation for the job beside what others hold.
func (o *oracleRun) earliest(j int, held []holding) *holding {
	times := []time.Duration{o.now}
	for _, h := range held {
		if h.to > o.now {
			times = append(times, h.to)
		}
	}
	slices.Sort(times)
	length := max(estimate(&o.jobs[j]), 1) // even a job of no length must fit where it starts
	for _, t := range times {
		if alloc, ok := o.place(o.freeDuring(held, t, t+length), j); ok {
			return &holding{alloc, t, t + length}
		}
	}
	return nil
}

func estimate(j *model.Job) time.Duration {
	if wall := wallTime(j); wall > 0 {
		return wall
	}
	return runTime(j)
}

// wallTime and runTime are the job's own, unless its request has others.
func wallTime(j *model.Job) time.Duration {
	if j.Request.WallTime > 0 {
		return j.Request.WallTime
	}
	return j.WallTime
}

func runTime(j *model.Job) time.Duration {
	if j.Request.Run > 0 {
		return j.Request.Run
	}
	return j.Run
}

func (o *oracleRun) startIfFits(j int) bool {
	alloc, ok := o.placeNow(j)
	if ok {
		o.start(j, alloc)
	}
	return ok
}

func (o *oracleRun) start(j int, alloc model.Allocation) {
	o.waiting = slices.DeleteFunc(o.waiting, func(w int) bool { return w == j })
	o.reserved[j] = nil
	o.running = append(o.running, &runningJob{job: j, start: o.now, alloc: alloc, anchor: o.now, left: 1})
	o.out[j].Start, o.out[j].Alloc, o.out[j].Ran = o.now, alloc, true
}

func (o *oracleRun) placeNow(j int) (model.Allocation, bool) {
	var held []model.Allocation
	for _, r := range o.running {
		held = append(held, r.alloc)
	}
	return o.place(o.free(held), j)
}

// ---- What is free ----

// freeNode is the part of a node that no job holds.
type freeNode struct {
	cores   int
	memory  int64
	hosting bool // some job has processes here
	lending bool // some job elsewhere has a device here
	closed  bool // some job has the node to itself
	devices []freeDevice
}

type freeDevice struct {
	memory int64
	whole  bool // no job has any of it
	taken  bool // a job has all of it
}

func (o *oracleRun) free(held []model.Allocation) []freeNode {
	nodes := make([]freeNode, len(o.c.Nodes))
	for i, n := range o.c.Nodes {
		nodes[i] = freeNode{cores: n.Cores, memory: n.Memory}
		for _, t := range n.GPUs {
			nodes[i].devices = append(nodes[i].devices, freeDevice{memory: o.c.GPUTypes[t].Memory, whole: true})
		}
	}
	for i := range held {
		take(nodes, &held[i])
	}
	return nodes
}

func take(nodes []freeNode, a *model.Allocation) {
	for _, p := range a.Parts {
		n := &nodes[p.Node]
		n.cores -= int(p.Cores)
		n.memory -= p.Memory
		n.hosting = true
		n.closed = n.closed || p.Exclusive
		for d := range n.devices {
			if p.GPUs&(1<<d) != 0 {
				n.devices[d].whole, n.devices[d].taken = false, true
			}
		}
	}
	for _, g := range a.Grants {
		n := &nodes[g.Node]
		d := &n.devices[g.Device]
		d.whole = false
		d.memory -= g.Memory
		d.taken = d.taken || g.Memory == 0
		n.lending = n.lending || a.Parts[g.For].Node != g.Node
	}
}

// at is what is held at t.
func at(hs []holding, t time.Duration) []model.Allocation {
	var held []model.Allocation
	for _, h := range hs {
		if h.from <= t && t < h.to {
			held = append(held, h.alloc)
		}
	}
	return held
}

// freeDuring is what is free during the whole of [from, to).
func (o *oracleRun) freeDuring(hs []holding, from, to time.Duration) []freeNode {
	nodes := o.free(at(hs, from))
	for _, h := range hs { // less becomes free only where a holding begins
		if from < h.from && h.from < to {
			nodes = lesser(nodes, o.free(at(hs, h.from)))
		}
	}
	return nodes
}

// lesser is what is free in both.
func lesser(a, b []freeNode) []freeNode {
	nodes := make([]freeNode, len(a))
	for i := range nodes {
		x, y := a[i], b[i]
		n := freeNode{
			cores: min(x.cores, y.cores), memory: min(x.memory, y.memory),
			hosting: x.hosting || y.hosting, lending: x.lending || y.lending, closed: x.closed || y.closed,
		}
		for d := range x.devices {
			n.devices = append(n.devices, freeDevice{
				memory: min(x.devices[d].memory, y.devices[d].memory),
				whole:  x.devices[d].whole && y.devices[d].whole,
				taken:  x.devices[d].taken || y.devices[d].taken,
			})
		}
		nodes[i] = n
	}
	return nodes
}

// ---- Where a job goes ----

// placement is a job being placed: it takes from nodes as it goes.
type placement struct {
	c     *model.Cluster
	nodes []freeNode
	req   *model.Request
	alloc model.Allocation
	paper bool // the order of the cluster file counts alone
}

// place finds what the policy would give the job of what is free.
func (o *oracleRun) place(free []freeNode, j int) (model.Allocation, bool) {
	p := &placement{c: o.c, nodes: lesser(free, free), req: &o.jobs[j].Request, paper: o.policy == "g-queue" || o.policy == "r-queue"}
	hostsNobody := func(i int) bool { return !free[i].hosting }
	anyNode := func(int) bool { return true }

	var ok bool
	switch {
	case o.policy == "g-queue":
		ok = p.firstFit(hostsNobody) && p.takeRemote(false)
	case o.policy == "r-queue" && p.req.Nodes > 0 && p.req.GPUMemory == 0:
		ok = p.rQueue(hostsNobody) && p.takeRemote(true)
	default:
		ok = p.firstFit(anyNode) && p.takeRemote(true)
	}
	return p.alloc, ok
}

func (p *placement) firstFit(allowed func(int) bool) bool {
	if p.req.Nodes == 0 {
		return p.spread(allowed)
	}
	suitable := func(i int) bool { return allowed(i) && p.hasCores(i) && p.hasGPUs(i) }
	nodes := p.choose(suitable)
	if len(nodes) < p.req.Nodes {
		return false
	}
	p.occupy(nodes)
	return true
}

// rQueue is the four steps of r-queue.
func (p *placement) rQueue(hostsNobody func(int) bool) bool {
	nodes := p.choose(func(i int) bool { return hostsNobody(i) && p.hasCores(i) && p.hasGPUs(i) })
	if len(nodes) < p.req.Nodes && p.req.Contiguous {
		nodes = p.choose(p.hasCores)
	}
	for i := range p.nodes {
		if len(nodes) < p.req.Nodes && !p.req.Contiguous && !slices.Contains(nodes, i) && p.hasCores(i) {
			nodes = append(nodes, i)
		}
	}
	if len(nodes) < p.req.Nodes {
		return false
	}
	slices.Sort(nodes)
	p.occupy(nodes)
	for part := range p.alloc.Parts {
		for p.wholeOf(part) < p.req.GPUs {
			if !p.borrowWhole(part) {
				return false
			}
		}
	}
	return true
}

func (p *placement) borrowWhole(part int) bool {
	for i := range p.nodes {
		for d := range p.nodes[i].devices {
			if p.usable(i, d, 0) {
				p.grant(part, i, d, 0)
				return true
			}
		}
	}
	return false
}

// rank says how late a node is taken: by its weight and, for jobs that ask for no GPU, how many GPUs it has.
func (p *placement) rank(i int) int {
	switch n := &p.c.Nodes[i]; {
	case p.paper:
		return 0
	case p.req.GPUs > 0 || p.req.Remote != nil:
		return max(1, n.Weight) * 100
	default:
		return max(1, n.Weight)*100 + len(n.GPUs)
	}
}

// inTurn is the nodes in the order in which they are taken.
func (p *placement) inTurn() []int {
	order := make([]int, len(p.nodes))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return p.rank(order[a]) < p.rank(order[b]) })
	return order
}

// choose finds the first nodes that suit, at most as many as asked, in node order; of a
// contiguous job the first run of nodes that are not taken later than need be, or none.
func (p *placement) choose(suitable func(int) bool) []int {
	if p.req.Contiguous {
		for _, last := range p.inTurn() {
			if run := p.run(func(i int) bool { return suitable(i) && p.rank(i) <= p.rank(last) }); run != nil {
				return run
			}
		}
		return nil
	}
	var nodes []int
	for _, i := range p.inTurn() {
		if suitable(i) && len(nodes) < p.req.Nodes {
			nodes = append(nodes, i)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// run is the first run of suitable nodes.
func (p *placement) run(suitable func(int) bool) []int {
	var nodes []int
	for i := range p.nodes {
		if len(nodes) == p.req.Nodes {
			break
		}
		if suitable(i) {
			nodes = append(nodes, i)
		} else {
			nodes = nil
		}
	}
	if len(nodes) < p.req.Nodes {
		return nil
	}
	return nodes
}

// spread takes cores wherever they are, in node order; of a contiguous job it
// tries every node as the first.
func (p *placement) spread(allowed func(int) bool) bool {
	if !p.req.Contiguous {
		return p.spreadOver(p.inTurn(), allowed)
	}
	everywhere := p.inTurn()
	for _, last := range everywhere {
		for first := range p.nodes {
			inTime := func(i int) bool { return allowed(i) && p.rank(i) <= p.rank(last) }
			if p.spreadOver(slices.Sorted(slices.Values(everywhere))[first:], inTime) {
				return true
			}
		}
	}
	return false
}

func (p *placement) spreadOver(order []int, allowed func(int) bool) bool {
	p.alloc = model.Allocation{}
	missing := p.req.Cores
	gives := map[int]int{}
	for _, i := range order {
		if missing == 0 {
			break
		}
		give := 0
		if allowed(i) && p.listed(i) && p.hasGPUs(i) {
			give = p.gives(i, missing)
		}
		if give == 0 && p.req.Contiguous {
			return false
		}
		if give > 0 {
			gives[i] = give
			missing -= give
		}
	}
	if missing > 0 {
		return false
	}
	for part, i := range slices.Sorted(maps.Keys(gives)) {
		p.host(i, gives[i], p.req.Memory+p.req.MemoryPerCore*int64(gives[i]))
		for range p.req.GPUs {
			p.grantOn(i, part, p.req.GPUMemory, 0)
		}
	}
	return true
}

// gives is how many of the missing cores a node gives: whole processes.
func (p *placement) gives(i, missing int) int {
	together := max(1, p.req.CoresPerProcess)
	give := 0
	for more := together; more <= missing && more <= p.nodes[i].cores; more += together {
		if p.req.Memory+p.req.MemoryPerCore*int64(more) <= p.nodes[i].memory {
			give = more
		}
	}
	return give
}

func (p *placement) listed(i int) bool {
	return len(p.req.NodeList) == 0 || slices.Contains(p.req.NodeList, p.c.Nodes[i].Name)
}

func (p *placement) coresPerNode() int {
	if p.req.CoresPerNode > 0 {
		return p.req.CoresPerNode
	}
	return max(1, int(math.Ceil(float64(p.req.Cores)/float64(p.req.Nodes))))
}

func (p *placement) memoryPerNode() int64 {
	return p.req.Memory + p.req.MemoryPerCore*int64(p.coresPerNode())
}

// hasCores says whether the node could host the job, but for its GPUs.
func (p *placement) hasCores(i int) bool {
	n := &p.nodes[i]
	if !p.listed(i) || p.req.Exclusive && (n.hosting || n.lending) {
		return false
	}
	return n.cores >= p.coresPerNode() && n.memory >= p.memoryPerNode()
}

func (p *placement) hasGPUs(i int) bool {
	count := 0
	for d := range p.nodes[i].devices {
		if p.usable(i, d, p.req.GPUMemory) {
			count++
		}
	}
	return count >= p.req.GPUs
}

// occupy makes the nodes the job's own, with as many of their GPUs as it asks for and they have.
func (p *placement) occupy(nodes []int) {
	for part, i := range nodes {
		cores := p.coresPerNode()
		if p.req.Exclusive {
			cores = p.c.Nodes[i].Cores
		}
		p.host(i, cores, p.memoryPerNode())
		for range p.req.GPUs {
			p.grantOn(i, part, p.req.GPUMemory, 0)
		}
	}
}

func (p *placement) host(i, cores int, memory int64) {
	p.alloc.Parts = append(p.alloc.Parts, model.Part{Node: int32(i), Cores: int32(cores), Memory: memory, Exclusive: p.req.Exclusive})
}

// wholeOf counts the whole devices that serve a part.
func (p *placement) wholeOf(part int) int {
	count := 0
	for d := range model.MaxGPUsPerNode {
		if p.alloc.Parts[part].GPUs&(1<<d) != 0 {
			count++
		}
	}
	for _, g := range p.alloc.Grants {
		if int(g.For) == part && g.Memory == 0 {
			count++
		}
	}
	return count
}

// takeRemote takes the devices that may be anywhere: on the job's own nodes,
// each serving its node, then elsewhere, serving the nodes in turn.
func (p *placement) takeRemote(elsewhere bool) bool {
	remote := p.req.Remote
	if remote == nil {
		return true
	}
	share, atLeast := int64(0), remote.Memory
	if remote.Shared {
		share = remote.Memory
	}
	for k := range remote.Count {
		found := false
		for part, own := range p.alloc.Parts {
			found = found || p.grantOn(int(own.Node), part, share, atLeast)
		}
		for i := range p.nodes {
			found = found || elsewhere && p.grantOn(i, k%len(p.alloc.Parts), share, atLeast)
		}
		if !found {
			return false
		}
	}
	return true
}

// grantOn gives the part the first suitable device of the node.
func (p *placement) grantOn(i, part int, share, atLeast int64) bool {
	for d, t := range p.c.Nodes[i].GPUs {
		if p.usable(i, d, share) && p.c.GPUTypes[t].Memory >= atLeast {
			p.grant(part, i, d, share)
			return true
		}
	}
	return false
}

// usable says whether a share of the device, or all of it (0), can be taken.
func (p *placement) usable(i, d int, share int64) bool {
	if p.req.GPUType != "" && p.c.GPUTypes[p.c.Nodes[i].GPUs[d]].Name != p.req.GPUType {
		return false
	}
	dev := p.nodes[i].devices[d]
	if p.nodes[i].closed || len(p.req.Lenders) > 0 && !slices.Contains(p.req.Lenders, p.c.Nodes[i].Name) {
		return false
	}
	if share == 0 {
		return dev.whole
	}
	return !dev.taken && dev.memory >= share && !p.has(i, d)
}

// has says whether the job has the device already: n devices are n different ones.
func (p *placement) has(i, d int) bool {
	return slices.ContainsFunc(p.alloc.Grants, func(g model.Grant) bool { return int(g.Node) == i && int(g.Device) == d })
}

func (p *placement) grant(part, i, d int, share int64) {
	dev := &p.nodes[i].devices[d]
	dev.whole = false
	dev.memory -= share
	dev.taken = share == 0
	if own := &p.alloc.Parts[part]; share == 0 && int(own.Node) == i {
		own.GPUs |= 1 << d
		return
	}
	p.alloc.Grants = append(p.alloc.Grants, model.Grant{For: int32(part), Node: int32(i), Device: int32(d), Memory: share})
}

// ---- How long a job takes ----

// portUser is one flow: it passes the ports of one node or two.
type portUser struct {
	run    *runningJob
	part   int
	lender int // -1 for the traffic between the job's own nodes
	ports  []int
	rate   float64
}

// reshare gives every running job the pace that follows from the set of running jobs.
func (o *oracleRun) reshare() {
	users := o.portUsers()
	o.shareFairly(users)
	for _, r := range o.running {
		pace := o.wholeTime(r, users)
		if pace == r.pace {
			continue
		}
		if r.pace > 0 {
			r.left -= float64(o.now-r.anchor) / r.pace
		}
		r.left = max(r.left, 0)
		r.anchor, r.pace = o.now, pace
	}
}

func (o *oracleRun) portUsers() []*portUser {
	var users []*portUser
	for _, r := range o.running {
		traffic := o.jobs[r.job].Traffic
		for part, own := range r.alloc.Parts {
			if len(r.alloc.Parts) > 1 && traffic.NetBytes > 0 {
				users = append(users, &portUser{r, part, -1, []int{int(own.Node)}, 0})
			}
			if traffic.GPUBytes == 0 {
				continue
			}
			for _, lender := range lenders(&r.alloc, part) {
				users = append(users, &portUser{r, part, lender, []int{int(own.Node), lender}, 0})
			}
		}
	}
	return users
}

// lenders are the nodes that a part of a job borrows from, each once.
func lenders(a *model.Allocation, part int) []int {
	var nodes []int
	for _, g := range a.Grants {
		if int(g.For) == part && g.Node != a.Parts[part].Node && !slices.Contains(nodes, int(g.Node)) {
			nodes = append(nodes, int(g.Node))
		}
	}
	return nodes
}

// shareFairly raises the rates of all users equally until a port is full. The users of that port
// keep their rates, and the others continue to rise.
func (o *oracleRun) shareFairly(users []*portUser) {
	left := make([]float64, len(o.c.Nodes))
	for i, n := range o.c.Nodes {
		left[i] = float64(n.Link.Bandwidth)
	}
	growing := slices.Clone(users)
	for len(growing) > 0 {
		count := make([]int, len(left))
		for _, u := range growing {
			for _, port := range u.ports {
				count[port]++
			}
		}
		tightest := -1
		for port := range left {
			if count[port] > 0 && (tightest < 0 || left[port]/float64(count[port]) < left[tightest]/float64(count[tightest])) {
				tightest = port
			}
		}
		more := left[tightest] / float64(count[tightest])
		for _, u := range growing {
			u.rate += more
		}
		for port := range left {
			left[port] -= more * float64(count[port])
		}
		growing = slices.DeleteFunc(growing, func(u *portUser) bool { return slices.Contains(u.ports, tightest) })
	}
}

// wholeTime is how many nanoseconds the whole job would take at these rates.
func (o *oracleRun) wholeTime(r *runningJob, users []*portUser) float64 {
	job := &o.jobs[r.job]
	slowest, peer := o.slowestDevice(&r.alloc)
	fixed := math.Ceil(float64(runTime(job))/slowest) * o.crowding(r)
	worst, farthest := 0.0, 0.0
	for part, own := range r.alloc.Parts {
		link := o.c.Nodes[own.Node].Link
		from := lenders(&r.alloc, part)
		net, gpu := 0.0, 0.0
		for _, u := range users {
			switch {
			case u.run != r || u.part != part:
			case u.lender < 0:
				net = float64(job.Traffic.NetBytes) * (1/u.rate - 1/float64(link.Bandwidth))
			default: // the parts of several lenders move side by side
				bytes := float64(job.Traffic.GPUBytes)
				more := o.c.Remote.Overhead * o.far(int(own.Node), u.lender)
				gpu = max(gpu, bytes/float64(len(from))*more/u.rate-bytes/peer)
			}
		}
		worst = max(worst, net+gpu)
		for _, lender := range from {
			farthest = max(farthest, float64(o.c.Remote.Latency+link.Latency)*o.far(int(own.Node), lender))
		}
	}
	return fixed + float64(job.Traffic.GPUConns)*farthest + worst*float64(time.Second)
}

// far is how many times more it costs to use a device there from here.
func (o *oracleRun) far(here, there int) float64 {
	if o.c.Nodes[here].Switch == o.c.Nodes[there].Switch || o.c.Remote.Far == 0 {
		return 1
	}
	return o.c.Remote.Far
}

// crowding is how many times longer the job computes for those that share its devices.
func (o *oracleRun) crowding(r *runningJob) float64 {
	worst := 1.0
	for _, own := range r.alloc.Grants {
		if own.Memory == 0 {
			continue
		}
		sum := 0.0
		for _, other := range o.running {
			for _, g := range other.alloc.Grants {
				if g.Memory > 0 && g.Node == own.Node && g.Device == own.Device {
					sum += intensity(&o.jobs[other.job])
				}
			}
		}
		worst = max(worst, sum)
	}
	return worst
}

func intensity(j *model.Job) float64 {
	if j.Intensity == 0 {
		return 1
	}
	return j.Intensity
}

// slowestDevice is the least speed of a job's devices (1 where it has none),
// and the least bandwidth between them.
func (o *oracleRun) slowestDevice(a *model.Allocation) (speed, peer float64) {
	var types []int
	for _, p := range a.Parts {
		for d, t := range o.c.Nodes[p.Node].GPUs {
			if p.GPUs&(1<<d) != 0 {
				types = append(types, t)
			}
		}
	}
	for _, g := range a.Grants {
		types = append(types, o.c.Nodes[g.Node].GPUs[g.Device])
	}
	if len(types) == 0 {
		return 1, math.Inf(1)
	}
	speed, peer = math.Inf(1), math.Inf(1)
	for _, t := range types {
		speed = min(speed, o.c.GPUTypes[t].Speed)
		peer = min(peer, float64(o.c.GPUTypes[t].PeerBandwidth))
	}
	return speed, peer
}
