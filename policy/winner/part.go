package winner

import "slices"

// The three kinds of bids, as the search sees them.
const (
	rigid    = uint8(iota) // the cores it takes on each of its nodes are known
	flexible               // it takes all its nodes, but can spread its cores over them in several ways
	slack                  // it takes any count nodes of its class
)

// part is a piece of a problem that shares no scarce node with the rest, with
// its own numbers for jobs, bids and nodes. It is stored as columns, indexed by
// bid unless a comment says otherwise. The bids of a job have consecutive
// numbers.
type part struct {
	cores, gpus []int32 // free, by node
	outside     []int32 // by node: its number in the problem

	jobFirst []int32 // by job: its first bid; one more entry has the number of bids
	jobOf    []int32
	value    []int64
	origin   []int32 // the bid's number in the problem
	kind     []uint8
	per      []int32
	total    []int32
	count    []int32
	ngpu     []int32
	// The nodes of bid b are spot[first[b]:first[b+1]], ascending. An index
	// into spot is called a position: it stands for one bid on one node. low
	// has, for each position, the least cores that the bid takes there (0 for
	// slack bids), and bidOf the bid.
	first []int32
	spot  []int32
	low   []int32
	bidOf []int32
	// The positions on node n are at[atFirst[n]:atFirst[n+1]], ascending.
	atFirst []int32
	at      []int32
	loose   bool // some bid is not rigid
}

func (t *part) jobs() int  { return len(t.jobFirst) - 1 }
func (t *part) bids() int  { return len(t.value) }
func (t *part) nodes() int { return len(t.cores) }

// bestSum is the sum of the best values of all jobs: the bound if nodes had no
// limits.
func (t *part) bestSum() (s int64) {
	for j := range t.jobs() {
		var best int64
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			best = max(best, t.value[b])
		}
		s += best
	}
	return s
}

func (t *part) reset() {
	t.cores, t.gpus, t.outside = t.cores[:0], t.gpus[:0], t.outside[:0]
	t.jobFirst, t.jobOf = append(t.jobFirst[:0], 0), t.jobOf[:0]
	t.value, t.origin, t.kind = t.value[:0], t.origin[:0], t.kind[:0]
	t.per, t.total, t.count, t.ngpu = t.per[:0], t.total[:0], t.count[:0], t.ngpu[:0]
	t.first = append(t.first[:0], 0)
	t.spot, t.low, t.bidOf = t.spot[:0], t.low[:0], t.bidOf[:0]
	t.loose = false
}

// index computes bidOf, atFirst and at from first and spot.
func (t *part) index() {
	t.bidOf = t.bidOf[:0]
	for b := range t.bids() {
		for range t.first[b+1] - t.first[b] {
			t.bidOf = append(t.bidOf, int32(b))
		}
	}
	t.atFirst = zeroed(t.atFirst, t.nodes()+1)
	for _, n := range t.spot {
		t.atFirst[n+1]++
	}
	for n := range t.nodes() {
		t.atFirst[n+1] += t.atFirst[n]
	}
	t.at = zeroed(t.at, len(t.spot))
	for e := len(t.spot) - 1; e >= 0; e-- {
		// A counting sort. atFirst[n+1] begins as the end of node n's range and
		// moves down with each position stored; at the end it is the start of
		// the range, one index too high, which the copy below corrects.
		n := t.spot[e]
		t.atFirst[n+1]--
		t.at[t.atFirst[n+1]] = int32(e)
	}
	copy(t.atFirst, t.atFirst[1:])
	t.atFirst[t.nodes()] = int32(len(t.spot))
}

// zeroed is a slice of n zeros. It reuses the memory of s if that is large
// enough.
func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	s = s[:n]
	clear(s)
	return s
}

// reducer removes from a problem what cannot matter, and cuts the rest into
// parts.
type reducer struct {
	p *Problem
	t part // all bids that fit alone, on the nodes of the problem

	alive    []bool  // by bid: no other bid dominates it
	sumCores []int64 // by node: the cores that all jobs could want at the same time
	sumGPUs  []int64
	maxCores []int32 // by node: the most that a bid of the job at hand wants; cut uses it as scratch memory
	maxGPUs  []int32
	touched  []int32  // nodes whose entries the current step has changed
	scarce   []bool   // by node: not all jobs fit there at the same time
	boss     []int32  // by job: its parent in the union-find forest
	partOf   []int32  // by job: the part it belongs to
	nodeMap  []int32  // by node, in cut: its number in the part, -1 if it is not there
	hash     []uint64 // by node, in cut: a hash of the bids on it and what they want
	order    []int32
}

// load takes the bids that fit on the empty cluster, each with its class cut to
// the nodes that have enough for it.
func (r *reducer) load(p *Problem) {
	r.p = p
	t := &r.t
	t.reset()
	t.cores = append(t.cores, p.Cores...)
	t.gpus = append(t.gpus, p.GPUs...)
	for n := range p.Cores {
		t.outside = append(t.outside, int32(n))
	}
	byJob := zeroed(r.order, p.Jobs+1)
	for i := range p.Bids {
		byJob[p.Bids[i].Job+1]++
	}
	for j := range p.Jobs {
		byJob[j+1] += byJob[j]
	}
	list := make([]int32, len(p.Bids))
	for i := range p.Bids {
		j := p.Bids[i].Job
		list[byJob[j]] = int32(i)
		byJob[j]++
	}
	r.order = byJob
	from := int32(0)
	for j := range p.Jobs {
		for _, i := range list[from:byJob[j]] {
			t.take(p, i)
		}
		from = byJob[j]
		t.jobFirst = append(t.jobFirst, int32(t.bids()))
	}
	t.index()
}

// take adds the bid if it fits on its nodes when it is alone there. It finds
// its kind, and the least cores that it takes on each node: what the other
// nodes, all taken whole, could not give.
func (t *part) take(p *Problem, i int32) {
	b := &p.Bids[i]
	need := max(b.PerNode, 1)
	start := len(t.spot)
	var sum int64
	for _, n := range b.Nodes {
		if p.Cores[n] >= need && p.GPUs[n] >= b.GPUs {
			t.spot = append(t.spot, n)
			sum += int64(p.Cores[n])
		}
	}
	nodes := t.spot[start:]
	ok := len(nodes) >= int(b.Count)
	kind, total := rigid, b.Total
	if b.PerNode > 0 {
		total = 0
	}
	switch {
	case !ok:
	case len(nodes) > int(b.Count):
		kind = slack
		if b.PerNode == 0 {
			ok = largest(p.Cores, nodes, int(b.Count)) >= int64(b.Total)
		}
	case b.PerNode == 0:
		kind = flexible
		ok = sum >= int64(b.Total)
	}
	if !ok {
		t.spot = t.spot[:start]
		return
	}
	var lowSum int64
	for _, n := range nodes {
		var low int32
		switch {
		case kind == slack:
		case b.PerNode > 0:
			low = b.PerNode
		default:
			low = int32(max(1, int64(b.Total)-(sum-int64(p.Cores[n]))))
		}
		lowSum += int64(low)
		t.low = append(t.low, low)
	}
	if kind == flexible && lowSum == int64(b.Total) {
		// There is only one way to spread the cores.
		kind = rigid
	}
	if kind != rigid {
		t.loose = true
	}
	t.jobOf = append(t.jobOf, b.Job)
	t.value = append(t.value, b.Value)
	t.origin = append(t.origin, i)
	t.kind = append(t.kind, kind)
	t.per = append(t.per, b.PerNode)
	t.total = append(t.total, total)
	t.count = append(t.count, b.Count)
	t.ngpu = append(t.ngpu, b.GPUs)
	t.first = append(t.first, int32(len(t.spot)))
}

// largest is the sum of the count largest numbers of cores.
func largest(cores, nodes []int32, count int) int64 {
	all := make([]int32, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, cores[n])
	}
	slices.Sort(all)
	var sum int64
	for _, c := range all[len(all)-count:] {
		sum += int64(c)
	}
	return sum
}

// most is the most cores that the bid could want at position e. With a total to
// spread, each other node must get at least one core.
func (t *part) most(b, e int32) int32 {
	switch {
	case t.kind[b] == rigid:
		return t.low[e]
	case t.per[b] > 0:
		return t.per[b]
	default:
		return min(t.cores[t.spot[e]], t.total[b]-t.count[b]+1)
	}
}

// findScarce finds the nodes that are scarce: those on which the jobs do not
// all fit at the same time. It counts for each job the most that any of its
// bids wants, as only one can win. A node that is not scarce constrains
// nothing.
func (r *reducer) findScarce() {
	t := &r.t
	n := t.nodes()
	r.sumCores, r.sumGPUs = zeroed(r.sumCores, n), zeroed(r.sumGPUs, n)
	r.maxCores, r.maxGPUs = zeroed(r.maxCores, n), zeroed(r.maxGPUs, n)
	r.scarce = zeroed(r.scarce, n)
	for j := range t.jobs() {
		r.touched = r.touched[:0]
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if !r.alive[b] {
				continue
			}
			for e := t.first[b]; e < t.first[b+1]; e++ {
				n := t.spot[e]
				if r.maxCores[n] == 0 {
					r.touched = append(r.touched, n)
				}
				r.maxCores[n] = max(r.maxCores[n], t.most(b, e))
				r.maxGPUs[n] = max(r.maxGPUs[n], t.ngpu[b])
			}
		}
		for _, n := range r.touched {
			r.sumCores[n] += int64(r.maxCores[n])
			r.sumGPUs[n] += int64(r.maxGPUs[n])
			r.maxCores[n], r.maxGPUs[n] = 0, 0
		}
	}
	for n := range r.scarce {
		r.scarce[n] = r.sumCores[n] > int64(t.cores[n]) || r.sumGPUs[n] > int64(t.gpus[n])
	}
}

// dominates says that bid a can replace bid b of the same job in any set of
// winners: it is worth at least as much, and takes no more than b of any scarce
// node. Of two equal bids the one with the lower number stays. Bid a must be
// rigid, so that what it takes is known; for b its lower limits count, which no
// placement undercuts.
func (r *reducer) dominates(a, b int32) bool {
	t := &r.t
	if t.value[a] < t.value[b] || t.value[a] == t.value[b] && a > b || t.kind[a] != rigid {
		return false
	}
	f, end := t.first[b], t.first[b+1]
	for e := t.first[a]; e < t.first[a+1]; e++ {
		n := t.spot[e]
		if !r.scarce[n] {
			continue
		}
		if t.kind[b] == slack || t.ngpu[a] > t.ngpu[b] {
			return false
		}
		for f < end && t.spot[f] < n {
			f++
		}
		if f == end || t.spot[f] != n || t.low[f] < t.low[e] {
			return false
		}
	}
	return true
}

// dominancePairs is the largest number of bids of a job for which all pairs are
// compared.
const dominancePairs = 64

// dropDominated marks bids that another living bid dominates as not alive.
func (r *reducer) dropDominated() (dropped bool) {
	t := &r.t
	for j := range t.jobs() {
		from, to := t.jobFirst[j], t.jobFirst[j+1]
		if to-from > dominancePairs {
			continue
		}
		for b := from; b < to; b++ {
			for a := from; a < to && r.alive[b]; a++ {
				if a != b && r.alive[a] && r.dominates(a, b) {
					r.alive[b] = false
					dropped = true
				}
			}
		}
	}
	return dropped
}

// dominanceRounds bounds the alternation of findScarce and dropDominated: fewer
// bids make fewer nodes scarce, which lets more bids dominate others.
const dominanceRounds = 4

// reduce finds the bids that matter, and the parts: jobs with bids on the same
// scarce node are in the same part. It returns the number of parts.
func (r *reducer) reduce() int {
	t := &r.t
	r.alive = zeroed(r.alive, t.bids())
	for b := range r.alive {
		r.alive[b] = true
	}
	r.findScarce()
	for range dominanceRounds {
		if !r.dropDominated() {
			break
		}
		r.findScarce()
	}
	r.boss = zeroed(r.boss, t.jobs())
	for j := range r.boss {
		r.boss[j] = int32(j)
	}
	for n := range t.nodes() {
		if !r.scarce[n] {
			continue
		}
		before := int32(-1)
		for _, e := range t.at[t.atFirst[n]:t.atFirst[n+1]] {
			b := t.bidOf[e]
			if !r.alive[b] {
				continue
			}
			if before >= 0 {
				r.join(before, t.jobOf[b])
			}
			before = t.jobOf[b]
		}
	}
	r.partOf = zeroed(r.partOf, t.jobs())
	parts := int32(0)
	for j := range t.jobs() {
		if r.find(int32(j)) == int32(j) {
			r.partOf[j] = parts
			parts++
		}
	}
	for j := range t.jobs() {
		r.partOf[j] = r.partOf[r.find(int32(j))]
	}
	return int(parts)
}

// find is the job that leads j's set. It halves the path on its way.
func (r *reducer) find(j int32) int32 {
	for r.boss[j] != j {
		r.boss[j] = r.boss[r.boss[j]]
		j = r.boss[j]
	}
	return j
}

// join unites the sets of two jobs. The smaller number leads, so that parts are
// numbered in the order of their first jobs.
func (r *reducer) join(a, b int32) {
	a, b = r.find(a), r.find(b)
	r.boss[max(a, b)] = min(a, b)
}

// cut makes the part of these jobs. Rigid bids keep only their scarce nodes,
// and of several nodes with the same rigid bids only the one with the least
// room remains: they constrain the same bids in the same way.
func (r *reducer) cut(out *part, jobs []int32) {
	t := &r.t
	out.reset()
	r.nodeMap = zeroed(r.nodeMap, t.nodes())
	for n := range r.nodeMap {
		r.nodeMap[n] = -1
	}
	r.hash = zeroed(r.hash, t.nodes())
	r.touched = r.touched[:0]
	pinned := zeroed(r.maxCores, t.nodes()) // 1: a bid that is not rigid stands on the node, so it must not be merged
	for _, j := range jobs {
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if !r.alive[b] {
				continue
			}
			for e := t.first[b]; e < t.first[b+1]; e++ {
				n := t.spot[e]
				if t.kind[b] == rigid && !r.scarce[n] {
					continue
				}
				if r.nodeMap[n] < 0 {
					r.nodeMap[n] = 0
					r.touched = append(r.touched, n)
				}
				if t.kind[b] != rigid {
					pinned[n] = 1
				}
				r.hash[n] += mix(uint64(b)<<32 | uint64(uint32(t.low[e])))
			}
		}
	}
	slices.Sort(r.touched)
	r.mergeNodes(out, jobs, pinned)
	clear(pinned)
	for _, j := range jobs {
		for b := t.jobFirst[j]; b < t.jobFirst[j+1]; b++ {
			if !r.alive[b] {
				continue
			}
			for e := t.first[b]; e < t.first[b+1]; e++ {
				if n := r.nodeMap[t.spot[e]]; n >= 0 && (t.kind[b] != rigid || r.scarce[t.spot[e]]) {
					out.spot = append(out.spot, n)
					out.low = append(out.low, t.low[e])
				}
			}
			out.jobOf = append(out.jobOf, int32(out.jobs()))
			out.value = append(out.value, t.value[b])
			out.origin = append(out.origin, t.origin[b])
			out.kind = append(out.kind, t.kind[b])
			out.per = append(out.per, t.per[b])
			out.total = append(out.total, t.total[b])
			out.count = append(out.count, t.count[b])
			out.ngpu = append(out.ngpu, t.ngpu[b])
			out.first = append(out.first, int32(len(out.spot)))
			out.loose = out.loose || t.kind[b] != rigid
		}
		out.jobFirst = append(out.jobFirst, int32(out.bids()))
	}
	out.index()
}

// mergeNodes numbers the touched nodes for the part. Of nodes that have the
// same rigid bids, the first stands for all, with the least cores and GPUs that
// any of them has. Meanwhile r.nodeMap[n] is -2-leader for a node that a leader
// stands for.
func (r *reducer) mergeNodes(out *part, jobs []int32, pinned []int32) {
	t := &r.t
	r.order = append(r.order[:0], r.touched...)
	slices.SortFunc(r.order, func(a, b int32) int {
		switch {
		case r.hash[a] < r.hash[b]:
			return -1
		case r.hash[a] > r.hash[b]:
			return 1
		}
		return int(a - b)
	})
	leader := int32(-1)
	for _, n := range r.order {
		if leader >= 0 && pinned[n] == 0 && r.hash[n] == r.hash[leader] && r.sameBids(n, leader) {
			r.nodeMap[n] = -2 - leader
			continue
		}
		if pinned[n] == 0 {
			leader = n
		}
	}
	for _, n := range r.touched {
		if r.nodeMap[n] == 0 {
			r.nodeMap[n] = int32(out.nodes())
			out.cores = append(out.cores, t.cores[n])
			out.gpus = append(out.gpus, t.gpus[n])
			out.outside = append(out.outside, t.outside[n])
		}
	}
	for _, n := range r.touched {
		if r.nodeMap[n] <= -2 {
			l := r.nodeMap[-2-r.nodeMap[n]]
			out.cores[l] = min(out.cores[l], t.cores[n])
			out.gpus[l] = min(out.gpus[l], t.gpus[n])
			r.nodeMap[n] = -1
		}
	}
}

// sameBids says that the same living bids want the same of both nodes. Equal
// hashes are not enough, since the bound would be wrong if two different nodes
// were merged.
func (r *reducer) sameBids(m, n int32) bool {
	t := &r.t
	x, y := t.at[t.atFirst[m]:t.atFirst[m+1]], t.at[t.atFirst[n]:t.atFirst[n+1]]
	for {
		for len(x) > 0 && !r.alive[t.bidOf[x[0]]] {
			x = x[1:]
		}
		for len(y) > 0 && !r.alive[t.bidOf[y[0]]] {
			y = y[1:]
		}
		if len(x) == 0 || len(y) == 0 {
			return len(x) == len(y)
		}
		if t.bidOf[x[0]] != t.bidOf[y[0]] || t.low[x[0]] != t.low[y[0]] {
			return false
		}
		x, y = x[1:], y[1:]
	}
}

// mix is a hash of x (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
