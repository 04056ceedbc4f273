package consres

import (
	"math/bits"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// table is what is free on each node at some time: now, or in the future as far
// as it is known.
type table struct {
	cluster *model.Cluster
	cores   []int32
	memory  []int64
	gpus    []uint64
	users   []int32 // the number of parts and grants on the node
	closed  []bool
	// device d of node n is at first[n]+d.
	first  []int32
	shared []int64 // memory given out as shares
	idle   []nodeCapacity
}

// nodeCapacity is what a node has for jobs: nothing if it is not up.
type nodeCapacity struct {
	cores   int32
	memory  int64
	devices uint64
}

// capacities is what each node of a view has.
func capacities(v *policy.View) []nodeCapacity {
	idle := make([]nodeCapacity, len(v.Cluster().Nodes))
	for i := range idle {
		w := &idle[i]
		w.cores, w.memory, w.devices = v.Capacity(int32(i))
	}
	return idle
}

func newTable(c *model.Cluster, idle []nodeCapacity) *table {
	n := len(c.Nodes)
	t := &table{
		cluster: c, idle: idle, cores: make([]int32, n), memory: make([]int64, n), gpus: make([]uint64, n),
		users: make([]int32, n), closed: make([]bool, n), first: firstDevices(c),
	}
	t.shared = make([]int64, t.first[n])
	t.clear()
	return t
}

// firstDevices numbers the devices of a cluster: those of node n begin at
// firstDevices(c)[n].
func firstDevices(c *model.Cluster) []int32 {
	first := make([]int32, len(c.Nodes)+1)
	for i := range c.Nodes {
		first[i+1] = first[i] + int32(len(c.Nodes[i].GPUs))
	}
	return first
}

// clear makes it the table of the idle cluster.
func (t *table) clear() {
	for i := range t.idle {
		w := &t.idle[i]
		t.cores[i], t.memory[i], t.gpus[i] = w.cores, w.memory, w.devices
	}
	clear(t.users)
	clear(t.closed)
	clear(t.shared)
}

// set makes t a copy of from.
func (t *table) set(from *table) {
	copy(t.cores, from.cores)
	copy(t.memory, from.memory)
	copy(t.gpus, from.gpus)
	copy(t.users, from.users)
	copy(t.closed, from.closed)
	copy(t.shared, from.shared)
}

func (t *table) Cluster() *model.Cluster  { return t.cluster }
func (t *table) FreeCores(n int32) int32  { return t.cores[n] }
func (t *table) FreeMemory(n int32) int64 { return t.memory[n] }
func (t *table) FreeGPUs(n int32) uint64  { return t.gpus[n] }
func (t *table) Closed(n int32) bool      { return t.closed[n] }
func (t *table) Untouched(n int32) bool   { return t.users[n] == 0 }
func (t *table) FreeShare(n, device int32) int64 {
	out := t.shared[t.first[n]+device]
	if t.idle[n].devices>>device&1 == 0 {
		return 0 // out of order
	}
	if out == 0 && t.gpus[n]>>device&1 == 0 {
		return 0 // a job has the whole device
	}
	return t.cluster.GPUTypes[t.cluster.Nodes[n].GPUs[device]].Memory - out
}

var _ FreeView = (*table)(nil)

func (t *table) take(a *model.Allocation) {
	for i := range a.Parts {
		p := &a.Parts[i]
		n := p.Node
		t.cores[n] -= p.Cores
		t.memory[n] -= p.Memory
		t.gpus[n] &^= p.GPUs
		t.users[n]++
		t.closed[n] = p.Exclusive
	}
	for _, g := range a.Grants {
		t.gpus[g.Node] &^= 1 << g.Device
		t.shared[t.first[g.Node]+g.Device] += g.Memory
		t.users[g.Node]++
	}
}

// release is what a running job will give back of one node.
type release struct {
	at     time.Duration
	node   int32
	cores  int32
	memory int64
	gpus   uint64 // whole devices
	device int32  // the device of a share
	share  int64
	opens  bool // the node was closed, and is not any more
	job    policy.JobID
}

func (t *table) give(r *release) {
	n := r.node
	t.cores[n] += r.cores
	t.memory[n] += r.memory
	t.gpus[n] |= r.gpus & t.idle[n].devices
	t.users[n]--
	if r.opens {
		t.closed[n] = false
	}
	if r.share > 0 {
		d := t.first[n] + r.device
		if t.shared[d] -= r.share; t.shared[d] == 0 {
			t.gpus[n] |= 1 << r.device & t.idle[n].devices
		}
	}
}

// future is what is free now, and what running jobs will give back, and when.
type future struct {
	now      *table
	releases []release // in order of time, then of jobs
	version  uint64    // grows whenever it changes
	then     *table    // scratch
	applied  int       // the number of releases that are in then
}

func newFuture(c *model.Cluster, idle []nodeCapacity) future {
	return future{now: newTable(c, idle), then: newTable(c, idle)}
}

// clear makes it an idle cluster without releases.
func (f *future) clear() {
	f.now.clear()
	f.releases = f.releases[:0]
	f.version++
}

// runs adds a job that holds a until end. Jobs may come in any order; it is an
// insertion sort, so the order of ends is the cheapest.
func (f *future) runs(job policy.JobID, a *model.Allocation, end time.Duration) {
	f.now.take(a)
	f.version++
	at := len(f.releases)
	for at > 0 && (f.releases[at-1].at > end || f.releases[at-1].at == end && f.releases[at-1].job > job) {
		at--
	}
	k := len(a.Parts) + len(a.Grants)
	f.releases = slices.Grow(f.releases, k)[:len(f.releases)+k]
	copy(f.releases[at+k:], f.releases[at:])
	for i := range a.Parts {
		p := &a.Parts[i]
		f.releases[at] = release{job: job, at: end, node: p.Node, cores: p.Cores, memory: p.Memory, gpus: p.GPUs, opens: p.Exclusive}
		at++
	}
	for _, g := range a.Grants {
		r := release{job: job, at: end, node: g.Node, device: g.Device, share: g.Memory}
		if g.Memory == 0 {
			r.gpus = 1 << g.Device
		}
		f.releases[at] = r
		at++
	}
}

// restart sets then to now.
func (f *future) restart() {
	f.then.set(f.now)
	f.applied = 0
}

// forward applies the releases up to an instant to then.
func (f *future) forward(to time.Duration) {
	for ; f.applied < len(f.releases) && f.releases[f.applied].at <= to; f.applied++ {
		f.then.give(&f.releases[f.applied])
	}
}

// next is the instant of the next release, if there is one.
func (f *future) next() (time.Duration, bool) {
	if f.applied == len(f.releases) {
		return 0, false
	}
	return f.releases[f.applied].at, true
}

// curve is what all nodes offer for one need as time passes. Offers only grow,
// as running jobs end.
type curve struct {
	version uint64
	unit    int32    // the size of a level: a node, or a multiple of cores
	offers  []int32  // now, by node
	levels  []bitmap // levels[l]: the nodes that offer more than l units now
	steps   []step
}

// step says that a node offers more from an instant on.
type step struct {
	at             time.Duration
	node, from, to int32 // in units
}

// build computes the curve of a need, unless it has it for this version of the
// future.
func (c *curve) build(f *future, nd *need) {
	if c.version == f.version {
		return
	}
	c.version = f.version
	c.unit = 1
	if nd.spread {
		c.unit = nd.cores
	}
	n := len(f.now.cores)
	c.offers = slices.Grow(c.offers[:0], n)[:n]
	c.steps = c.steps[:0]
	f.restart()
	most := int32(0)
	for i := range int32(n) {
		c.offers[i] = nd.offer(f.now, i) / c.unit
		most = max(most, c.offers[i])
	}
	for ; f.applied < len(f.releases); f.applied++ {
		r := &f.releases[f.applied]
		f.then.give(r)
		before := c.offers[r.node]
		if after := nd.offer(f.then, r.node) / c.unit; after > before {
			c.steps = append(c.steps, step{r.at, r.node, before, after})
			c.offers[r.node] = after
			most = max(most, after)
		}
	}
	// Undo the steps: offers must be those of now.
	for i := len(c.steps) - 1; i >= 0; i-- {
		c.offers[c.steps[i].node] = c.steps[i].from
	}
	for len(c.levels) < int(most) {
		c.levels = append(c.levels, newBitmap(n))
	}
	c.levels = c.levels[:most]
	for l := range c.levels {
		clear(c.levels[l])
	}
	for i, o := range c.offers {
		for l := range o {
			c.levels[l].set(int32(i))
		}
	}
}

// walk is a position on a curve, which moves forward in time.
type walk struct {
	curve  *curve
	levels []bitmap // as those of the curve, at the instant reached
	next   int      // step
}

// begin puts a walk at the start of a curve.
func (w *walk) begin(c *curve) {
	w.curve, w.next = c, 0
	for len(w.levels) < len(c.levels) {
		w.levels = append(w.levels, nil)
	}
	w.levels = w.levels[:len(c.levels)]
	for l := range c.levels {
		w.levels[l] = append(w.levels[l][:0], c.levels[l]...)
	}
}

// forward moves the walk to an instant.
func (w *walk) forward(to time.Duration) {
	for ; w.next < len(w.curve.steps) && w.curve.steps[w.next].at <= to; w.next++ {
		s := &w.curve.steps[w.next]
		for l := s.from; l < s.to; l++ {
			w.levels[l].set(s.node)
		}
	}
}

// suffices says whether the nodes that are not hidden offer want units, in one
// row if contiguous.
func (w *walk) suffices(hidden bitmap, want int32, contiguous bool) bool {
	sum := int32(0)
	for _, level := range w.levels {
		hidden := hidden[:len(level)]
		for i, word := range level {
			sum += int32(bits.OnesCount64(word &^ hidden[i]))
		}
		if sum >= want {
			return !contiguous || w.row(hidden, want)
		}
	}
	return false
}

// row says whether neighbouring nodes offer want units. It examines 64 nodes at
// a time: runs of ones in the lowest level are runs of nodes that offer
// something, and the higher levels add what they offer beyond one unit.
func (w *walk) row(hidden bitmap, want int32) bool {
	if len(w.levels) == 0 {
		return false
	}
	sum := int32(0)
	rest := w.levels[1:]
	for i, word := range w.levels[0] {
		word &^= hidden[i]
		switch {
		case word == 0:
			sum = 0
			continue
		case word == ^uint64(0) && len(rest) == 0:
			if sum += 64; sum >= want {
				return true
			}
			continue
		}
		for b := 0; b < 64; {
			if skip := bits.TrailingZeros64(word >> b); skip > 0 {
				sum = 0
				b += skip
				if b >= 64 {
					break
				}
			}
			run := bits.TrailingZeros64(^(word >> b))
			if len(rest) == 0 {
				sum += int32(run)
			} else {
				mask := (uint64(1)<<run - 1) << b
				sum += int32(run)
				for _, level := range rest {
					sum += int32(bits.OnesCount64(level[i] & mask))
				}
			}
			if sum >= want {
				return true
			}
			b += run
		}
	}
	return false
}

// earliest is the first instant, not after limit, at which the nodes that are
// not hidden offer want units. start is the instant at which the curve begins.
func (c *curve) earliest(rows *rows, hidden bitmap, want int32, contiguous bool, start, limit time.Duration) (time.Duration, bool) {
	if contiguous {
		return c.earliestRow(rows, hidden, want, start, limit)
	}
	sum := int32(0)
	for _, level := range c.levels {
		for i, word := range level {
			sum += int32(bits.OnesCount64(word &^ hidden[i]))
		}
	}
	if sum >= want {
		return start, true
	}
	for i := range c.steps {
		s := &c.steps[i]
		if s.at > limit {
			break
		}
		if !hidden.has(s.node) {
			if sum += s.to - s.from; sum >= want {
				return s.at, true
			}
		}
	}
	return 0, false
}

func (c *curve) earliestRow(rows *rows, hidden bitmap, want int32, start, limit time.Duration) (time.Duration, bool) {
	rows.begin(len(c.offers))
	for n, o := range c.offers {
		if o > 0 && !hidden.has(int32(n)) && rows.add(int32(n), o) >= want {
			return start, true
		}
	}
	for i := range c.steps {
		s := &c.steps[i]
		if s.at > limit {
			break
		}
		if !hidden.has(s.node) && rows.add(s.node, s.to-s.from) >= want {
			return s.at, true
		}
	}
	return 0, false
}

// rows keeps runs of neighbouring nodes and what each run offers, while nodes
// join: a union-find forest.
type rows struct {
	parent []int32 // -1: the node is in no row
	sum    []int32
}

func (r *rows) begin(n int) {
	if len(r.parent) != n {
		r.parent, r.sum = make([]int32, n), make([]int32, n)
	}
	for i := range r.parent {
		r.parent[i] = -1
	}
}

func (r *rows) root(n int32) int32 {
	for r.parent[n] != n {
		r.parent[n] = r.parent[r.parent[n]]
		n = r.parent[n]
	}
	return n
}

// add raises what a node offers, and returns what its run then offers.
func (r *rows) add(n, more int32) int32 {
	if r.parent[n] < 0 {
		r.parent[n], r.sum[n] = n, 0
		for _, beside := range [2]int32{n - 1, n + 1} {
			if beside >= 0 && int(beside) < len(r.parent) && r.parent[beside] >= 0 {
				from := r.root(beside)
				r.parent[from] = n
				r.sum[n] += r.sum[from]
			}
		}
	}
	root := r.root(n)
	r.sum[root] += more
	return r.sum[root]
}
