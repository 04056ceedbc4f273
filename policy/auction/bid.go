package auction

import (
	"math/bits"
	"slices"

	"muster/model"
	"muster/policy"
)

// bid is one way in which a job would run.
type bid struct {
	job     int32 // index in the window
	request int   // 0 is the main one
	class   Class
	nodes   []int32 // ascending
	count   int32   // how many of the nodes are wanted: all, except for AnyOfThem
	sets    int32   // the number of nodesets that its nodes come from; of blocks for Placed bids
	perNode int32   // cores on each node; 0 if total is spread
	total   int32   // cores in all
	gpus    int32   // whole local devices on each node
	// preference is eq. 12 in units of preferences.whole.
	preference int64
	value      int64
	won        bool
	// exact is the placement itself, for bids that nodes and numbers do not
	// describe fully.
	exact *model.Allocation
}

// need is what a shape asks for, in the terms of the paper.
type need struct {
	nodes      int32 // Rnode; 0 for jobs of type 1
	cores      int32 // Rcpn; Rcpu for jobs of type 1
	gpus       int32 // Rgpu
	memory     int64 // of each node
	perCore    int64 // memory of each core, for jobs of type 1
	gpuType    int   // -1 for any
	allowed    []bool
	contiguous bool
	// odd: the classes do not cover the request; it bids with one placement.
	odd bool
}

func needOf(sh *policy.Shape, c *model.Cluster) *need {
	r := &sh.Request
	nd := &need{
		nodes: int32(r.Nodes), cores: int32(r.Cores), memory: r.Memory, perCore: r.MemoryPerCore,
		gpus: int32(r.GPUs), gpuType: -1, contiguous: r.Contiguous,
		odd: r.Exclusive || r.GPUMemory > 0 || r.Remote != nil || r.Nodes == 0 && r.CoresPerProcess > 1,
	}
	if r.Nodes > 0 {
		nd.cores = int32(r.CoresOnNode())
		nd.memory, nd.perCore = r.MemoryOnNode(r.CoresOnNode()), 0
	}
	if r.GPUType != "" && r.GPUs > 0 {
		nd.gpuType = c.GPUType(r.GPUType)
	}
	if len(r.NodeList) > 0 {
		named := make(map[string]bool, len(r.NodeList))
		for _, name := range r.NodeList {
			named[name] = true
		}
		nd.allowed = make([]bool, len(c.Nodes))
		for n := range c.Nodes {
			nd.allowed[n] = named[c.Nodes[n].Name]
		}
	}
	return nd
}

func (nd *need) spread() bool { return nd.nodes == 0 }

// market is what is free, divided into nodesets, and the bids for it.
type market struct {
	cluster *model.Cluster
	cores   []int32
	gpus    []int32 // whole devices
	masks   []uint64
	memory  []int64

	sets   []Nodeset
	begins []int // the sets of g GPUs are sets[begins[g]:begins[g+1]]
	prefer preferences

	// contested is the number of bids so far, by node.
	contested []int32
	bids      []bid

	// For the current request: the suitable nodes of all nodesets with its
	// number of GPUs, in node order.
	list  []int32
	sum   []int64 // sum[i]: the free cores of list[:i]
	rival []int64 // rival[i]: the number of bids on list[:i]
	runs  []run
	ord   []int32 // by index in list: the index in runs

	found []window
	arena []int32 // memory for the nodes of bids
}

// run is the suitable nodes of one nodeset: list[from:to].
type run struct {
	set      *Nodeset
	from, to int
}

// window is a possible bid: list[from:to].
type window struct {
	from, to   int
	sets       int
	preference int64
}

// open reads what is free in the view, and starts without bids.
func (m *market) open(v *policy.View) {
	m.renew()
	m.cluster = v.Cluster()
	n := len(m.cluster.Nodes)
	m.cores, m.gpus = resized(m.cores, n), resized(m.gpus, n)
	m.masks, m.memory = resized(m.masks, n), resized(m.memory, n)
	m.contested = resized(m.contested, n)
	clear(m.contested)
	for i := range int32(n) {
		m.cores[i], m.memory[i], m.masks[i] = v.FreeCores(i), v.FreeMemory(i), v.FreeGPUs(i)
		if v.Closed(i) {
			m.cores[i], m.masks[i] = 0, 0
		}
		m.gpus[i] = int32(bits.OnesCount64(m.masks[i]))
	}
	m.sets, m.begins = appendNodesets(m.sets, m.begins[:0], m.cores, m.gpus)
	m.prefer = preferencesOf(n, len(m.sets))
}

// renew allocates new memory for bids and nodesets instead of reusing the old:
// Explain may still read those of the last auction.
func (m *market) renew() {
	m.sets, m.bids = make([]Nodeset, 0, len(m.sets)), make([]bid, 0, len(m.bids))
	m.arena = make([]int32, 0, len(m.arena))
}

func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// suits says whether a bid may use a node.
func (m *market) suits(nd *need, n int32) bool {
	if nd.allowed != nil && !nd.allowed[n] {
		return false
	}
	if nd.gpuType >= 0 && int32(bits.OnesCount64(m.masks[n]&typeMask(m.cluster, n, nd.gpuType))) < nd.gpus {
		return false
	}
	if nd.spread() {
		// The solver may take any number of the node's cores, so the memory
		// must suffice for all of them.
		return m.memory[n] >= nd.memory && (nd.perCore == 0 || (m.memory[n]-nd.memory)/nd.perCore >= int64(m.cores[n]))
	}
	return m.cores[n] >= nd.cores && m.memory[n] >= nd.memory
}

// typeMask is the set of the node's devices of one type.
func typeMask(c *model.Cluster, n int32, gpuType int) uint64 {
	mask := uint64(0)
	for d, t := range c.Nodes[n].GPUs {
		if t == gpuType {
			mask |= 1 << d
		}
	}
	return mask
}

// gather lists the nodes that suit a request.
func (m *market) gather(nd *need) {
	m.list, m.runs, m.ord, m.sum = m.list[:0], m.runs[:0], m.ord[:0], append(m.sum[:0], 0)
	if int(nd.gpus) >= len(m.begins)-1 {
		return
	}
	sets := m.sets[m.begins[nd.gpus]:m.begins[nd.gpus+1]]
	for i := range sets {
		from := len(m.list)
		for n := sets[i].First; n <= sets[i].Last; n++ {
			if m.suits(nd, n) {
				m.list = append(m.list, n)
				m.sum = append(m.sum, m.sum[len(m.sum)-1]+int64(m.cores[n]))
				m.ord = append(m.ord, int32(len(m.runs)))
			}
		}
		if len(m.list) > from {
			m.runs = append(m.runs, run{&sets[i], from, len(m.list)})
		}
	}
}

// recount updates rival to the current numbers of bids.
func (m *market) recount() {
	m.rival = append(m.rival[:0], 0)
	for _, n := range m.list {
		m.rival = append(m.rival, m.rival[len(m.rival)-1]+int64(m.contested[n]))
	}
}

// oneBlock says whether list[from:to] are neighbours.
func (m *market) oneBlock(from, to int) bool {
	return int(m.list[to-1]-m.list[from]) == to-1-from
}

// until is the end of the shortest window of list that begins at from and
// suffices; 0 if there is none. For spread cores the search starts at to, the
// result for an earlier from.
func (m *market) until(nd *need, from, to int) int {
	if !nd.spread() {
		if to = from + int(nd.nodes); to > len(m.list) {
			return 0
		}
		return to
	}
	for to = max(to, from+1); to <= len(m.list); to++ {
		if m.sum[to]-m.sum[from] >= int64(nd.cores) {
			return to
		}
	}
	return 0
}

// since is the beginning of the shortest window of list that ends at to and
// suffices; -1 if it would begin before least.
func (m *market) since(nd *need, least, to int) int {
	from := to - int(nd.nodes)
	if nd.spread() {
		for from = to - 1; from >= least && m.sum[to]-m.sum[from] < int64(nd.cores); from-- {
		}
	}
	if from < least {
		return -1
	}
	return from
}

// enough says whether a nodeset has what a job asks for, in one block or not.
func (m *market) enough(nd *need, r run) bool {
	if nd.spread() {
		return m.sum[r.to]-m.sum[r.from] >= int64(nd.cores)
	}
	return r.to-r.from >= int(nd.nodes)
}

func (m *market) add(nd *need, c Class, from, to int) {
	sets := int(m.ord[to-1]-m.ord[from]) + 1
	m.found = append(m.found, window{from, to, sets, m.prefer.of(c, nd.spread(), to-from, sets)})
}

// aligned finds the bids of class A: at the beginning and at the end of each
// nodeset, on the fewest nodes that suffice.
func (m *market) aligned(nd *need) {
	m.found = m.found[:0]
	for _, r := range m.runs {
		if !m.enough(nd, r) {
			continue
		}
		first, last := -1, -1
		if m.list[r.from] == r.set.First {
			if to := m.until(nd, r.from, 0); m.oneBlock(r.from, to) {
				first, last = r.from, to
				m.add(nd, Aligned, r.from, to)
			}
		}
		if m.list[r.to-1] == r.set.Last {
			if from := m.since(nd, r.from, r.to); from >= 0 && (from != first || r.to != last) && m.oneBlock(from, r.to) {
				m.add(nd, Aligned, from, r.to)
			}
		}
	}
}

// inside finds the bids of class B: blocks that touch neither end of their
// nodeset.
func (m *market) inside(nd *need) {
	m.found = m.found[:0]
	for _, r := range m.runs {
		if !m.enough(nd, r) {
			continue
		}
		to := 0
		for from := r.from; from < r.to; from++ {
			if to = m.until(nd, from, to); to == 0 || to > r.to {
				break
			}
			if m.list[from] != r.set.First && m.list[to-1] != r.set.Last && m.oneBlock(from, to) {
				m.add(nd, Inside, from, to)
			}
		}
	}
}

// joined finds the bids of class C: those that are not one block.
func (m *market) joined(nd *need) {
	m.found = m.found[:0]
	if nd.spread() {
		m.joinedCores(nd)
		return
	}
	for from := range m.list {
		to := m.until(nd, from, 0)
		if to == 0 {
			return
		}
		if !m.oneBlock(from, to) {
			m.add(nd, Joined, from, to)
		}
	}
}

// joinedCores joins nodesets for jobs that ask for cores only. From consecutive
// nodesets it takes the fewest nodes that suffice, from the beginning of the
// first or from the end of the last; and also all their nodes, so that the job
// can take a few cores of each.
func (m *market) joinedCores(nd *need) {
	upTo, last := 0, 0
	for i, r := range m.runs {
		if i == 0 || upTo > 0 { // once nothing suffices from one nodeset on, nothing does from a later one
			upTo = m.until(nd, r.from, upTo)
		}
		if upTo > 0 && !m.oneBlock(r.from, upTo) {
			m.add(nd, Joined, r.from, upTo)
		}
		if from := m.since(nd, 0, r.to); from >= 0 && !m.oneBlock(from, r.to) {
			begins := m.runs[m.ord[from]].from == from
			if !begins || m.until(nd, from, 0) != r.to {
				m.add(nd, Joined, from, r.to)
			}
		}
		// The fewest consecutive nodesets with enough cores, at least two.
		for last = max(last, i+1); last < len(m.runs) && m.sum[m.runs[last].to]-m.sum[r.from] < int64(nd.cores); last++ {
		}
		if upTo == 0 || last == len(m.runs) {
			continue
		}
		to := m.runs[last].to
		if to-r.from <= int(nd.cores) && to != upTo && m.since(nd, 0, to) != r.from && !m.oneBlock(r.from, to) {
			m.add(nd, Joined, r.from, to)
		}
	}
}

// take makes bids of the windows found, at most most: the most preferred first,
// among equals the least contested if avoid is set, then in the order found.
// Without avoid, those of class A are taken in the order found. It skips the
// nodes in not, for which a bid was made before.
func (m *market) take(from bid, nd *need, most int, avoid bool, not []int32) {
	for most > 0 && len(m.found) > 0 {
		at := 0
		if from.class != Aligned || avoid {
			if avoid {
				m.recount()
			}
			for i := 1; i < len(m.found); i++ {
				if m.better(i, at, avoid) {
					at = i
				}
			}
		}
		w := m.found[at]
		m.found = slices.Delete(m.found, at, at+1)
		nodes := m.list[w.from:w.to]
		if slices.Equal(nodes, not) {
			continue
		}
		b := from
		b.nodes, b.sets, b.preference = m.keep(nodes), int32(w.sets), w.preference
		m.put(b, nd)
		most--
	}
}

func (m *market) better(i, j int, avoid bool) bool {
	a, b := &m.found[i], &m.found[j]
	if a.preference != b.preference {
		return a.preference > b.preference
	}
	return avoid && m.rival[a.to]-m.rival[a.from] < m.rival[b.to]-m.rival[b.from]
}

// keep copies nodes into the arena, where they stay until the market opens
// again.
func (m *market) keep(nodes []int32) []int32 {
	at := len(m.arena)
	m.arena = append(m.arena, nodes...)
	return m.arena[at:len(m.arena):len(m.arena)]
}

// put enters a bid of a request that the classes cover.
func (m *market) put(b bid, nd *need) {
	if b.count == 0 {
		b.count = int32(len(b.nodes))
	}
	b.gpus = nd.gpus
	if nd.spread() {
		b.total = nd.cores
	} else {
		b.perNode, b.total = nd.cores, nd.cores*b.count
	}
	m.enter(b)
}

func (m *market) enter(b bid) {
	m.bids = append(m.bids, b)
	for _, n := range b.nodes {
		m.contested[n]++
	}
}

// any bids for any of the suitable nodes: the form of IPSCHED. For spread cores
// it bids for the fewest nodes that have enough, for twice as many, and so on
// up to all.
func (m *market) any(b bid, nd *need, most int) {
	b.class = AnyOfThem
	count, all := nd.nodes, int32(len(m.list))
	if nd.spread() {
		count, all = m.fewest(nd), min(all, nd.cores)
	}
	if count == 0 || count > all {
		return
	}
	b.nodes, b.sets = m.keep(m.list), int32(len(m.runs))
	for ; most > 0; most-- {
		b.count, b.preference = count, m.prefer.of(AnyOfThem, nd.spread(), int(count), 0)
		m.put(b, nd)
		if !nd.spread() || count == all {
			return
		}
		count = min(2*count, all)
	}
}

// fewest is the smallest number of nodes of the list that have enough cores; 0
// if all together have too few.
func (m *market) fewest(nd *need) int32 {
	sizes := make([]int32, len(m.list))
	for i, n := range m.list {
		sizes[i] = m.cores[n]
	}
	slices.Sort(sizes)
	sum := int64(0)
	for i := len(sizes) - 1; i >= 0; i-- {
		if sum += int64(sizes[i]); sum >= int64(nd.cores) {
			return int32(len(sizes) - i)
		}
	}
	return 0
}

// placed enters a placement that was found by other means.
func (m *market) placed(b bid, nd *need, a *model.Allocation) {
	nodes := make([]int32, 0, len(a.Parts))
	blocks, total, least := int32(0), int32(0), int32(-1)
	for i := range a.Parts {
		p := &a.Parts[i]
		if i == 0 || p.Node != a.Parts[i-1].Node+1 {
			blocks++
		}
		if total += p.Cores; i == 0 || p.Cores == least {
			least = p.Cores
		} else {
			least = 0 // parts differ
		}
		nodes = append(nodes, p.Node)
	}
	b.nodes, b.count, b.sets = nodes, int32(len(nodes)), blocks
	if b.total = total; !nd.spread() {
		b.perNode = max(0, least)
	}
	if !nd.odd || nd.gpus > 0 && len(a.Grants) == 0 {
		b.gpus = nd.gpus
	}
	b.preference = m.prefer.of(b.class, nd.spread(), len(nodes), int(blocks))
	b.exact = &model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
	m.enter(b)
}
