package mccs_test

import (
	"cmp"
	"fmt"
	"slices"

	"muster/model"
	"muster/policy"
)

// oracle is a second implementation of Listings 4-1 to 4-3, written from the paper and
// from docs/mccs.md. It shares nothing with the library: it keeps jobs in one list, adds up what
// is free from scratch whenever it has to know, and decides for a whole round at once.
type oracle struct {
	cluster *model.Cluster
	weights []int
	listing
	jobs []*oJob
	seq  int64
	low  int64
}

type oJob struct {
	id    policy.JobID
	spec  *model.Job
	rank  int64
	place int64 // among those of its rank
	state oState
	order int64 // of its start
	parts []oPart
	// ours: the policy has suspended it, and not somebody else.
	ours bool
}

type oState uint8

const (
	oWaits oState = iota
	oProposed
	oRuns
	oStops
	oStill
	oOver
)

type oPart struct {
	node, processes int
	cores           int
	memory          int64
	devices         []int
	share           int64
}

// oFree is what is free of a node.
type oFree struct {
	cores  int
	memory int64
	whole  []bool  // devices that nobody has
	share  []int64 // what shares may take of each
}

func (o *oracle) free(n int, without map[*oJob]bool) oFree {
	node := &o.cluster.Nodes[n]
	f := oFree{cores: node.Cores, memory: node.Memory}
	for _, t := range node.GPUs {
		f.whole = append(f.whole, true)
		f.share = append(f.share, o.cluster.GPUTypes[t].Memory)
	}
	for _, j := range o.jobs {
		if j.state == oWaits || j.state == oOver {
			continue
		}
		for _, p := range j.parts {
			if p.node != n {
				continue
			}
			f.memory -= p.memory
			if j.state == oStill || without[j] {
				continue
			}
			f.cores -= p.cores
			for _, d := range p.devices {
				f.whole[d] = false
				if p.share == 0 {
					f.share[d] = 0
				} else {
					f.share[d] -= p.share
				}
			}
		}
	}
	return f
}

// devices are those that a node gives to a job; nil and false if it cannot.
func (f *oFree) devices(r *model.Request) (list []int, ok bool) {
	for d := range f.whole {
		if len(list) == r.GPUs {
			break
		}
		if r.GPUMemory == 0 && f.whole[d] || r.GPUMemory > 0 && f.share[d] >= r.GPUMemory {
			list = append(list, d)
		}
	}
	return list, len(list) == r.GPUs
}

func (j *oJob) processes() (count, unit int) {
	r := &j.spec.Request
	switch {
	case r.Nodes > 0:
		return max(r.Nodes, r.Processes), 0
	case r.CoresPerProcess > 0:
		return r.Cores / r.CoresPerProcess, r.CoresPerProcess
	}
	return r.Cores, 1
}

// counted is how many processes use a node's GPUs.
func (o *oracle) counted(n int) (sum int) {
	for _, j := range o.jobs {
		if j.state == oWaits || j.state == oOver || j.state == oStill {
			continue
		}
		for _, p := range j.parts {
			if p.node == n && j.spec.Request.GPUs > 0 {
				sum += max(p.processes, j.spec.Request.GPUs)
			}
		}
	}
	return sum
}

func (o *oracle) available(j *oJob, n int) int {
	if j.spec.Request.GPUs == 0 {
		return o.free(n, nil).cores
	}
	return o.weights[n] - o.counted(n)
}

// trial is a placement that is being made.
type trial struct {
	o         *oracle
	j         *oJob
	unit      int
	left      int // processes
	processes []int
	nodes     int
}

func (o *oracle) trial(j *oJob) *trial {
	count, unit := j.processes()
	return &trial{o: o, j: j, unit: unit, left: count, processes: make([]int, len(o.cluster.Nodes))}
}

// room is how many more processes a node can have.
func (t *trial) room(n int) int {
	r := &t.j.spec.Request
	f := t.o.free(n, nil)
	if _, ok := f.devices(r); !ok || t.left == 0 {
		return 0
	}
	if t.unit == 0 {
		if t.processes[n] > 0 || t.nodes == r.Nodes || f.cores < r.CoresOnNode() || f.memory < r.MemoryOnNode(r.CoresOnNode()) {
			return 0
		}
		count, _ := t.j.processes()
		each := count / r.Nodes
		if t.nodes < count%r.Nodes {
			each++
		}
		return each
	}
	k := 0
	for k < t.left && t.fits(f, t.processes[n]+k+1) {
		k++
	}
	return k
}

func (t *trial) fits(f oFree, processes int) bool {
	r := &t.j.spec.Request
	cores := processes * t.unit
	return cores <= f.cores && r.Memory+r.MemoryPerCore*int64(cores) <= f.memory
}

func (t *trial) give(n, want int) bool {
	k := t.room(n)
	if want <= 0 || k == 0 {
		return false
	}
	if t.unit > 0 {
		k = min(k, want)
	}
	if t.processes[n] == 0 {
		t.nodes++
	}
	t.processes[n] += k
	t.left -= k
	return true
}

// turns gives nodes a process each, again and again.
func (t *trial) turns(nodes []int) bool {
	for again := true; again && t.left > 0; {
		again = false
		for _, n := range nodes {
			if t.give(n, 1) {
				again = true
			}
		}
	}
	return t.left == 0
}

func (t *trial) roomy(nodes []int) (list []int) {
	for _, n := range nodes {
		if t.room(n) > 0 {
			list = append(list, n)
		}
	}
	return list
}

// byWeight lists the nodes: those with larger weights first.
func (o *oracle) byWeight() []int {
	list := make([]int, len(o.weights))
	for i := range list {
		list[i] = i
	}
	slices.SortStableFunc(list, func(a, b int) int { return o.weights[b] - o.weights[a] })
	return list
}

// find places a job as the listing says; nil if it cannot be now.
func (o *oracle) find(j *oJob) *trial {
	all := o.byWeight()
	if o.number == 1 {
		slices.Sort(all) // as the cluster has them
		t := o.trial(j)
		if t.turns(t.roomy(all)) {
			return t
		}
		return nil
	}
	if slices.Contains(o.apart, j.name()) {
		return o.findApart(j, all)
	}
	bound := max(o.bound, o.least(j))
	for _, measure := range []func(t *trial, n int) int{
		func(t *trial, n int) int { return o.available(j, n) },
		func(t *trial, n int) int { return t.room(n) },
	} {
		t := o.trial(j)
		nodes := slices.DeleteFunc(t.roomy(all), func(n int) bool { return o.available(j, n) <= 0 })
		slices.SortStableFunc(nodes, func(a, b int) int { return measure(t, b) - measure(t, a) })
		nodes = nodes[:min(bound, len(nodes))]
		if !o.even {
			for _, n := range nodes {
				t.give(n, o.available(j, n))
			}
		}
		if t.turns(nodes) {
			return t
		}
	}
	return nil
}

func (o *oracle) findApart(j *oJob, all []int) *trial {
	t := o.trial(j)
	nodes, free := t.roomy(all), false
	for _, n := range nodes {
		if a := o.available(j, n); a > 0 {
			free = true
			t.give(n, a)
		}
	}
	if free && t.turns(nodes) {
		return t
	}
	return nil
}

func (j *oJob) name() string {
	if j.spec.Logged != nil {
		return j.spec.Logged.Executable
	}
	return j.spec.ID
}

// least is how many nodes the job needs at least, when nothing else runs.
func (o *oracle) least(j *oJob) int {
	count, unit := j.processes()
	if unit == 0 {
		return j.spec.Request.Nodes
	}
	r := &j.spec.Request
	var rooms []int
	for n := range o.cluster.Nodes {
		node := &o.cluster.Nodes[n]
		f := oFree{cores: node.Cores, memory: node.Memory}
		for _, other := range o.jobs {
			for _, p := range other.parts {
				if other.state == oStill && p.node == n {
					f.memory -= p.memory
				}
			}
		}
		devices := 0
		for _, t := range node.GPUs {
			if o.cluster.GPUTypes[t].Memory >= r.GPUMemory {
				devices++
			}
		}
		if devices < r.GPUs || r.GPUs > 0 && o.weights[n] == 0 {
			continue
		}
		t := o.trial(j)
		k := 0
		for t.fits(f, k+1) {
			k++
		}
		rooms = append(rooms, k)
	}
	slices.SortFunc(rooms, func(a, b int) int { return b - a })
	for i, k := range rooms {
		if count -= k; count <= 0 {
			return i + 1
		}
	}
	return len(o.cluster.Nodes)
}

// start makes a job run where it was placed.
func (o *oracle) start(j *oJob, t *trial) {
	r := &j.spec.Request
	j.parts = nil
	for n, k := range t.processes {
		if k == 0 {
			continue
		}
		p := oPart{node: n, processes: k, cores: k * t.unit, share: r.GPUMemory}
		if t.unit == 0 {
			p.cores = r.CoresOnNode()
		}
		p.memory = r.MemoryOnNode(p.cores)
		f := o.free(n, nil)
		p.devices, _ = f.devices(r)
		j.parts = append(j.parts, p)
	}
	o.seq++
	j.state, j.order = oProposed, o.seq
}

func (p oPart) text() string {
	return fmt.Sprintf(" n%d:%dc,%db,%v/%d", p.node, p.cores, p.memory, p.devices, p.share)
}

func (o *oracle) long(j *oJob) bool { return j.spec.Estimate() > o.short }

// waiting is the queue.
func (o *oracle) waiting() (list []*oJob) {
	for _, j := range o.jobs {
		if j.state == oWaits {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *oJob) int { return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.place, b.place)) })
	return list
}

// assigned are the jobs that hold something, as they were started.
func (o *oracle) assigned() (list []*oJob) {
	for _, j := range o.jobs {
		if j.state != oWaits && j.state != oOver {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *oJob) int { return cmp.Compare(a.order, b.order) })
	return list
}

// decide is one round. It returns the plan, in words.
func (o *oracle) decide() (lines []string) {
	waits := false
	for _, j := range o.waiting() {
		var t *trial
		if o.number < 3 || !o.long(j) || !slices.ContainsFunc(o.assigned(), func(a *oJob) bool { return a.ours }) {
			t = o.find(j)
		}
		if t != nil {
			o.start(j, t)
			line := fmt.Sprintf("start %d", j.id)
			for _, p := range j.parts {
				line += p.text()
			}
			lines = append(lines, line)
			continue
		}
		if o.number == 1 {
			o.first(j)
			break
		}
		if o.number == 3 && !o.long(j) {
			o.first(j)
			waits = true
			lines = append(lines, o.suspend(j)...)
			break
		}
	}
	if o.number == 3 {
		runs := slices.ContainsFunc(o.assigned(), func(a *oJob) bool { return a.state != oStill })
		if !waits || !runs {
			lines = append(lines, o.resume()...)
		}
	}
	for _, j := range o.jobs {
		if j.state == oProposed {
			j.state = oRuns
		}
	}
	return lines
}

// first puts a job at the head of the queue.
func (o *oracle) first(j *oJob) {
	o.low--
	j.place = o.low
}

// suspend suspends all long jobs, if that lets a short one start.
func (o *oracle) suspend(j *oJob) (lines []string) {
	var long []*oJob
	without := map[*oJob]bool{}
	for _, a := range o.assigned() {
		if o.long(a) && a.state == oRuns {
			long = append(long, a)
			without[a] = true
		}
	}
	if len(long) == 0 || !o.fitsWithout(j, without) {
		return nil
	}
	for _, a := range long {
		a.state, a.ours = oStops, true
		lines = append(lines, fmt.Sprintf("suspend %d", a.id))
	}
	return lines
}

// fitsWithout says whether a job would find room if some jobs were suspended.
func (o *oracle) fitsWithout(j *oJob, without map[*oJob]bool) bool {
	r := &j.spec.Request
	count, unit := j.processes()
	t := o.trial(j)
	rooms := 0
	for n := range o.cluster.Nodes {
		f := o.free(n, without)
		if _, ok := f.devices(r); !ok {
			continue
		}
		if unit == 0 {
			if f.cores >= r.CoresOnNode() && f.memory >= r.MemoryOnNode(r.CoresOnNode()) {
				rooms++
			}
			continue
		}
		for k := 1; t.fits(f, k); k++ {
			rooms++
		}
	}
	if unit == 0 {
		return rooms >= r.Nodes
	}
	return rooms >= count
}

// resume lets jobs go on whose place is free.
func (o *oracle) resume() (lines []string) {
	for _, j := range o.assigned() {
		if !j.ours || j.state != oStill {
			continue
		}
		ok := true
		for _, p := range j.parts {
			f := o.free(p.node, nil)
			ok = ok && f.cores >= p.cores
			for _, d := range p.devices {
				ok = ok && (p.share == 0 && f.whole[d] || p.share > 0 && f.share[d] >= p.share)
			}
		}
		if ok {
			j.state, j.ours = oRuns, false
			lines = append(lines, fmt.Sprintf("resume %d", j.id))
		}
	}
	return lines
}

// ---- what is told ----

func (o *oracle) submit(id policy.JobID, spec *model.Job) {
	o.jobs = append(o.jobs, &oJob{id: id, spec: spec, rank: 0})
	o.last(o.jobs[len(o.jobs)-1])
}

// last puts a job behind the others.
func (o *oracle) last(j *oJob) {
	o.seq++
	j.place, j.state, j.parts, j.ours = o.seq, oWaits, nil, false
}

func (o *oracle) job(id policy.JobID) *oJob {
	for _, j := range o.jobs {
		if j.id == id {
			return j
		}
	}
	panic("no such job")
}
