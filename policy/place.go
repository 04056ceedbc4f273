package policy

import (
	"math/bits"
	"slices"

	"muster/model"
)

// Mode says which nodes and devices a placement may use.
type Mode uint8

const (
	// Sharing places a job beside others: whatever is free may be used.
	Sharing Mode = iota
	// Alone takes only nodes that host no job.
	Alone
	// Borrowing takes nodes as Alone does, then any with enough cores and
	// memory, and borrows the missing GPUs from other nodes.
	Borrowing
)

// limits restricts what placement may use on some nodes to what a reservation
// leaves free there. A stamp that differs from gen marks a node without limit,
// so that begin need not clear the arrays.
type limits struct {
	active bool
	gen    uint32
	stamp  []uint32
	at     []int32 // index into left, valid if the node's stamp is gen
	left   []nodeLeft
}

type nodeLeft struct {
	cores  int32
	memory int64
	gpus   uint64
	shares []int64
	// touched: the node is not empty at the time of the reservation.
	touched bool
}

// begin forgets all limits.
func (l *limits) begin() {
	l.gen++
	l.left = l.left[:0]
}

// add limits a node to what is free there now; the caller then narrows the
// limit.
func (l *limits) add(p *pool, n int32) *nodeLeft {
	if l.stamp[n] == l.gen {
		return &l.left[l.at[n]]
	}
	i := len(l.left)
	l.stamp[n], l.at[n] = l.gen, int32(i)
	l.left = slices.Grow(l.left, 1)[:i+1]
	left := &l.left[i]
	node := &p.nodes[n]
	*left = nodeLeft{cores: node.cores, memory: node.memory, gpus: node.gpus, touched: true, shares: left.shares[:0]}
	if p.sharing {
		for d := range p.cluster.Nodes[n].GPUs {
			left.shares = append(left.shares, p.shareLeft(n, int32(d)))
		}
	}
	return left
}

// of is the limit that placement must respect on a node now, or nil.
func (l *limits) of(n int32) *nodeLeft {
	if !l.active {
		return nil
	}
	return l.find(n)
}

func (l *limits) find(n int32) *nodeLeft {
	if l.stamp[n] != l.gen {
		return nil
	}
	return &l.left[l.at[n]]
}

// placer finds first fits in a pool. What it has counted per class of shapes
// (rooms) stays an upper bound while capacity is only taken, and is dropped
// when something is given back (epoch).
type placer struct {
	*pool
	lim   limits
	out   model.Allocation // the placement found last
	base  bitmap           // scratch: nodes chosen
	epoch uint64           // grows whenever something is given back
	rooms [3][]room        // by mode and class
	fresh bool             // out was found, and the pool has not changed since
	alike tiers            // all nodes in one tier
}

// room is an upper bound of the number of nodes that have what a class of
// shapes asks of each, in one epoch.
type room struct {
	epoch uint64
	count int32
}

// room returns what is known about a class in this epoch, or nil.
func (pl *placer) room(class int32, mode Mode) *room {
	if int(class) >= len(pl.rooms[mode]) {
		return nil
	}
	if r := &pl.rooms[mode][class]; r.epoch == pl.epoch {
		return r
	}
	return nil
}

func (pl *placer) setRoom(class int32, mode Mode, count int32) {
	for int(class) >= len(pl.rooms[mode]) {
		pl.rooms[mode] = append(pl.rooms[mode], room{})
	}
	pl.rooms[mode][class] = room{pl.epoch, count}
}

func (pl *placer) take(a *model.Allocation) {
	pl.fresh = false
	pl.pool.take(a)
}

func (pl *placer) give(a *model.Allocation) {
	pl.fresh = false
	pl.pool.give(a)
}

func (pl *placer) rollback() {
	pl.fresh = false
	pl.pool.rollback()
}

// justPlaced says that a is the latest placement and the pool has not changed
// since. Then a need not be checked again.
func (pl *placer) justPlaced(a *model.Allocation) bool { return pl.fresh && a == &pl.out }

func newPlacer(p *pool) *placer {
	n := len(p.nodes)
	return &placer{
		pool: p, base: newBitmap(n), epoch: 1,
		lim: limits{stamp: make([]uint32, n), at: make([]int32, n)},
	}
}

// place returns a first fit for sh, valid until the next call, or nil.
func (pl *placer) place(sh *Shape, mode Mode) *model.Allocation {
	pl.fresh = false
	pl.out.Parts, pl.out.Grants = pl.out.Parts[:0], pl.out.Grants[:0]
	if sh.totalCores > pl.freeCores || sh.wholeGPUs > pl.freeGPUs || int(sh.nodes) > len(pl.nodes) {
		return nil
	}
	ok := false
	switch {
	case sh.nodes == 0:
		ok = pl.spread(sh, mode)
	case mode == Borrowing && sh.gpuMemory == 0:
		ok = pl.borrow(sh)
	case sh.Request.Contiguous:
		ok = pl.neighbours(sh, mode)
	default:
		ok = pl.first(sh, mode)
	}
	if !ok || sh.Request.Remote != nil && !pl.remote(sh, mode) {
		return nil
	}
	pl.fresh = true
	return &pl.out
}

// candidates returns four sets of nodes; the nodes that suit sh are in all
// four. Some nodes in all four may not suit: suits decides.
func (pl *placer) candidates(sh *Shape, mode Mode, gpus bool) (core, memory, gpu, unhosted bitmap) {
	core = pl.coreSteps.atLeast(int64(sh.cores))
	memory = pl.memorySteps.atLeast(sh.memory)
	gpu = pl.gpuSteps.all
	if gpus && sh.gpus > 0 && sh.gpuMemory == 0 {
		gpu = pl.gpuSteps.atLeast(int64(sh.gpus))
	}
	unhosted = pl.gpuSteps.all
	if mode == Alone {
		unhosted = pl.unhosted
	}
	if sh.allowed != nil {
		memory = intersect(memory, sh.allowed) // rare: a node list
	}
	n := len(core) // all have the same length; slicing them tells the compiler so
	return core, memory[:n], gpu[:n], unhosted[:n]
}

func intersect(a, b bitmap) bitmap {
	out := make(bitmap, len(a))
	for i := range a {
		out[i] = a[i] & b[i]
	}
	return out
}

// upper is an upper bound of the number of nodes that suit sh now.
func (pl *placer) upper(sh *Shape, mode Mode) int32 {
	if r := pl.room(sh.class, mode); r != nil {
		return r.count
	}
	core, memory, gpu, unhosted := pl.candidates(sh, mode, mode != Borrowing)
	sum := 0
	for w := range core {
		sum += bits.OnesCount64(core[w] & memory[w] & gpu[w] & unhosted[w])
	}
	pl.setRoom(sh.class, mode, int32(sum))
	return int32(sum)
}

// mayFit is a quick test. If it is false, place would find nothing.
func (pl *placer) mayFit(sh *Shape, mode Mode) bool {
	if sh.totalCores > pl.freeCores || sh.wholeGPUs > pl.freeGPUs {
		return false
	}
	return sh.nodes == 0 || pl.upper(sh, mode) >= sh.nodes
}

// suits checks one node exactly, and returns the part it would give.
func (pl *placer) suits(sh *Shape, n int32, part *model.Part) bool {
	cores, memory, gpus := pl.nodes[n].cores, pl.nodes[n].memory, pl.nodes[n].gpus
	if left := pl.lim.of(n); left != nil {
		cores, memory, gpus = min(cores, left.cores), min(memory, left.memory), gpus&left.gpus
		if sh.exclusive && left.touched {
			return false
		}
	}
	if cores < sh.cores || memory < sh.memory {
		return false
	}
	*part = model.Part{Node: n, Cores: sh.cores, Memory: sh.memory}
	if sh.exclusive {
		if !pl.untouched(n) {
			return false
		}
		part.Cores, part.Exclusive = cores, true
	}
	if sh.gpus == 0 || sh.gpuMemory > 0 {
		return sh.gpuMemory == 0 || pl.sharesFit(sh, n)
	}
	part.GPUs = pl.choose(gpus, sh, n, int(sh.gpus))
	return part.GPUs != 0
}

// choose takes the k lowest devices of a set that the shape accepts; 0 if there
// are fewer than k.
func (pl *placer) choose(free uint64, sh *Shape, n int32, k int) uint64 {
	if sh.gpuType >= 0 {
		free &= pl.typeMask[sh.gpuType][n]
	}
	if bits.OnesCount64(free) < k {
		return 0
	}
	rest := free
	for range k {
		rest &= rest - 1
	}
	return free &^ rest
}

// shareOn is the memory of a device that a share may use now.
func (pl *placer) shareOn(sh *Shape, n, d int32) int64 {
	if sh.gpuType >= 0 && pl.typeMask[sh.gpuType][n]>>d&1 == 0 {
		return 0
	}
	free := pl.shareLeft(n, d)
	if left := pl.lim.of(n); left != nil {
		free = min(free, left.shares[d])
	}
	return free
}

func (pl *placer) sharesFit(sh *Shape, n int32) bool {
	found := int32(0)
	for d := range pl.cluster.Nodes[n].GPUs {
		if pl.shareOn(sh, n, int32(d)) >= sh.gpuMemory {
			found++
		}
	}
	return found >= sh.gpus
}

// addShares adds shares of the devices of node n to the placement, for its part
// number user.
func (pl *placer) addShares(sh *Shape, n, user int32) {
	found := int32(0)
	for d := int32(0); found < sh.gpus; d++ {
		if pl.shareOn(sh, n, d) >= sh.gpuMemory {
			pl.out.Grants = append(pl.out.Grants, model.Grant{
				For: user, Node: n, Device: d, Memory: sh.gpuMemory})
			found++
		}
	}
}

// first places a job on the first nodes that suit it, tier by tier.
func (pl *placer) first(sh *Shape, mode Mode) bool {
	core, memory, gpu, unhosted := pl.candidates(sh, mode, true)
	// suits writes each part directly into its place: copying what was just
	// written stalls the processor.
	parts := slices.Grow(pl.out.Parts[:0], int(sh.nodes))[:sh.nodes]
	found := int32(0)
	for _, tier := range pl.tiersFor(sh, mode).sets {
		tier = tier[:len(core)]
		for w := range core {
			for set := core[w] & memory[w] & gpu[w] & unhosted[w] & tier[w]; set != 0; set &= set - 1 {
				n := int32(w<<6 + bits.TrailingZeros64(set))
				if !pl.suits(sh, n, &parts[found]) {
					continue
				}
				if sh.gpuMemory > 0 {
					pl.addShares(sh, n, found)
				}
				if found++; found == sh.nodes {
					pl.out.Parts = parts
					pl.inNodeOrder()
					return true
				}
			}
		}
	}
	pl.out.Parts = parts[:found]
	if !pl.lim.active && !pl.recording && sh.class != noClass {
		// All nodes have been examined, so the number is exact until something
		// is given back. It must not be remembered if a reservation restricted
		// the search or the moves are only a trial.
		pl.setRoom(sh.class, mode, int32(len(pl.out.Parts)))
	}
	return false
}

// neighbours finds the first run of suitable nodes next to each other, in as few tiers as possible.
func (pl *placer) neighbours(sh *Shape, mode Mode) bool {
	for _, within := range pl.tiersFor(sh, mode).upTo {
		if pl.neighboursIn(sh, mode, within) {
			return true
		}
		pl.out.Parts, pl.out.Grants = pl.out.Parts[:0], pl.out.Grants[:0]
	}
	return false
}

func (pl *placer) neighboursIn(sh *Shape, mode Mode, within bitmap) bool {
	core, memory, gpu, unhosted := pl.candidates(sh, mode, true)
	var part model.Part
	for n := range int32(len(pl.nodes)) {
		w := n >> 6
		if core[w]&memory[w]&gpu[w]&unhosted[w]&within[w]>>(n&63)&1 == 0 || !pl.suits(sh, n, &part) {
			pl.out.Parts, pl.out.Grants = pl.out.Parts[:0], pl.out.Grants[:0]
			continue
		}
		if sh.gpuMemory > 0 {
			pl.addShares(sh, n, int32(len(pl.out.Parts)))
		}
		pl.out.Parts = append(pl.out.Parts, part)
		if int32(len(pl.out.Parts)) == sh.nodes {
			return true
		}
	}
	return false
}

// spread collects cores node by node, tier by tier. For a contiguous request the nodes must be neighbours that all
// give some, in as few tiers as possible.
func (pl *placer) spread(sh *Shape, mode Mode) bool {
	t := pl.tiersFor(sh, mode)
	if sh.Request.Contiguous {
		for _, within := range t.upTo {
			pl.out.Parts, pl.out.Grants = pl.out.Parts[:0], pl.out.Grants[:0]
			if pl.spreadIn(sh, mode, within, sh.cores) == 0 {
				return true
			}
		}
		return false
	}
	need := sh.cores
	for _, tier := range t.sets {
		if need = pl.spreadIn(sh, mode, tier, need); need == 0 {
			pl.inNodeOrder()
			return true
		}
	}
	return false
}

// spreadIn collects cores from some nodes, and returns how many are still missing. For a contiguous request it starts
// again at each gap.
func (pl *placer) spreadIn(sh *Shape, mode Mode, within bitmap, need int32) int32 {
	some, last := pl.coreSteps.atLeast(1), int32(-1)
	for w := range some {
		set := some[w] & within[w]
		if mode == Alone {
			set &= pl.unhosted[w]
		}
		if sh.allowed != nil {
			set &= sh.allowed[w]
		}
		for ; set != 0; set &= set - 1 {
			n := int32(w<<6 + bits.TrailingZeros64(set))
			part, ok := pl.spreadOn(sh, n, need)
			if !ok {
				continue
			}
			if sh.Request.Contiguous && n != last+1 {
				pl.out.Parts, pl.out.Grants = pl.out.Parts[:0], pl.out.Grants[:0]
				if part, ok = pl.spreadOn(sh, n, sh.cores); !ok {
					panic("policy: a node gives less of more")
				}
				need = sh.cores
			}
			last = n
			if sh.gpuMemory > 0 {
				pl.addShares(sh, n, int32(len(pl.out.Parts)))
			}
			pl.out.Parts = append(pl.out.Parts, part)
			if need -= part.Cores; need == 0 {
				return 0
			}
		}
	}
	return need
}

// spreadOn is the part that a node gives of need spread cores, if it gives any.
func (pl *placer) spreadOn(sh *Shape, n, need int32) (model.Part, bool) {
	cores, memory, gpus := pl.nodes[n].cores, pl.nodes[n].memory, pl.nodes[n].gpus
	if left := pl.lim.of(n); left != nil {
		cores, memory, gpus = min(cores, left.cores), min(memory, left.memory), gpus&left.gpus
	}
	memory -= sh.nodeMemory
	take := min(cores, need)
	if sh.memory > 0 {
		take = int32(min(int64(take), memory/sh.memory))
	}
	take -= take % sh.granule
	if take <= 0 || memory < 0 {
		return model.Part{}, false
	}
	part := model.Part{Node: n, Cores: take, Memory: sh.memory*int64(take) + sh.nodeMemory}
	switch {
	case sh.gpus == 0:
	case sh.gpuMemory > 0:
		if !pl.sharesFit(sh, n) {
			return model.Part{}, false
		}
	default:
		if part.GPUs = pl.choose(gpus, sh, n, int(sh.gpus)); part.GPUs == 0 {
			return model.Part{}, false
		}
	}
	return part, true
}

// borrow is the search of the R queue: first the nodes that Alone would take,
// then any with enough cores and memory; the missing GPUs are borrowed from any
// node that has some free.
func (pl *placer) borrow(sh *Shape) bool {
	if sh.Request.Contiguous {
		if pl.neighbours(sh, Alone) {
			return true
		}
		pl.out.Parts = pl.out.Parts[:0]
	} else if pl.first(sh, Alone) {
		return true
	}
	core, memory, _, _ := pl.candidates(sh, Sharing, false)
	plain := *sh // the same shape without its GPUs
	plain.gpus = 0
	var part model.Part

	clear(pl.base)
	found := int32(len(pl.out.Parts))
	for i := range pl.out.Parts {
		pl.base.set(pl.out.Parts[i].Node)
	}
	if sh.Request.Contiguous {
		if !pl.neighboursIn(&plain, Sharing, pl.alike.sets[0]) {
			return false
		}
		for i := range pl.out.Parts {
			pl.base.set(pl.out.Parts[i].Node)
		}
	} else {
	search:
		for w := range core {
			for set := core[w] & memory[w] &^ pl.base[w]; set != 0; set &= set - 1 {
				n := int32(w<<6 + bits.TrailingZeros64(set))
				if !pl.suits(&plain, n, &part) {
					continue
				}
				pl.base.set(n)
				if found++; found == sh.nodes {
					break search
				}
			}
		}
		if found < sh.nodes {
			return false
		}
	}
	return pl.collect(sh, &plain)
}

// collect builds the placement on the nodes in base: local GPUs first, the
// rest borrowed in node order.
func (pl *placer) collect(sh, plain *Shape) bool {
	pl.out.Parts = pl.out.Parts[:0]
	missing := int32(0)
	var part model.Part
	for w, set := range pl.base {
		for ; set != 0; set &= set - 1 {
			n := int32(w<<6 + bits.TrailingZeros64(set))
			pl.suits(plain, n, &part)
			part.GPUs = pl.upTo(pl.nodes[n].gpus, sh, n, sh.gpus)
			missing += sh.gpus - int32(bits.OnesCount64(part.GPUs))
			pl.out.Parts = append(pl.out.Parts, part)
		}
	}
	if missing == 0 {
		return true
	}
	user, lacking := int32(-1), int32(0) // the part that is being served, and the GPUs it still lacks
	lenders := pl.gpuSteps.atLeast(1)
	for w := range lenders {
		for set := lenders[w]; set != 0; set &= set - 1 {
			n := int32(w<<6 + bits.TrailingZeros64(set))
			free := pl.nodes[n].gpus
			if pl.nodes[n].closed || !sh.mayLend(n) {
				continue
			}
			if pl.base.has(n) {
				free &^= pl.partOn(n).GPUs
			}
			if sh.gpuType >= 0 {
				free &= pl.typeMask[sh.gpuType][n]
			}
			for ; free != 0; free &= free - 1 {
				for lacking == 0 {
					user++
					lacking = sh.gpus - int32(bits.OnesCount64(pl.out.Parts[user].GPUs))
				}
				pl.out.Grants = append(pl.out.Grants, model.Grant{
					For: user, Node: n, Device: int32(bits.TrailingZeros64(free))})
				lacking--
				if missing--; missing == 0 {
					return true
				}
			}
		}
	}
	return false
}

// partOn finds the part of the placement on node n; parts are in node order.
func (pl *placer) partOn(n int32) *model.Part {
	lo, hi := 0, len(pl.out.Parts)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if pl.out.Parts[mid].Node < n {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return &pl.out.Parts[lo]
}

// upTo takes the lowest devices that the shape accepts, at most k.
func (pl *placer) upTo(free uint64, sh *Shape, n, k int32) uint64 {
	if sh.gpuType >= 0 {
		free &= pl.typeMask[sh.gpuType][n]
	}
	if have := int32(bits.OnesCount64(free)); have < k {
		return free
	}
	return pl.choose(free, sh, n, int(k))
}

// remote adds the GPUs that may be on any node: first those of the job's own
// nodes, then those of other nodes in node order, which serve the job's nodes
// in rotation.
func (pl *placer) remote(sh *Shape, mode Mode) bool {
	need := sh.Request.Remote.Count
	clear(pl.base)
	parts := int32(len(pl.out.Parts))
	for i := range parts {
		n := pl.out.Parts[i].Node
		pl.base.set(n)
		if need = pl.remoteOn(sh, n, i, need); need == 0 {
			return true
		}
	}
	if mode == Alone {
		return false // it must not use other nodes
	}
	for n := int32(0); n < int32(len(pl.nodes)) && need > 0; n++ {
		if !pl.base.has(n) && !pl.nodes[n].closed && sh.mayLend(n) {
			need = pl.remoteOn(sh, n, -1, need)
		}
	}
	return need == 0
}

// remoteOn takes up to need devices of node n for part number user, or for the
// parts in rotation if user is -1. It returns how many are still missing.
func (pl *placer) remoteOn(sh *Shape, n, user int32, need int) int {
	want := sh.Request.Remote
	taken := uint64(0)
	if user >= 0 {
		taken = pl.out.Parts[user].GPUs
	}
	for _, g := range pl.out.Grants {
		if g.Node == n {
			taken |= 1 << g.Device
		}
	}
	for d, t := range pl.cluster.Nodes[n].GPUs {
		if need == 0 {
			break
		}
		if taken>>d&1 != 0 || pl.cluster.GPUTypes[t].Memory < want.Memory ||
			sh.gpuType >= 0 && int32(t) != sh.gpuType {
			continue
		}
		g := model.Grant{For: user, Node: n, Device: int32(d)}
		if want.Shared {
			if pl.shareOn(sh, n, int32(d)) < want.Memory {
				continue
			}
			g.Memory = want.Memory
		} else {
			free := pl.nodes[n].gpus
			if left := pl.lim.of(n); left != nil {
				free &= left.gpus
			}
			if free>>d&1 == 0 {
				continue
			}
		}
		switch {
		case user < 0:
			g.For = int32((want.Count - need) % len(pl.out.Parts))
			pl.out.Grants = append(pl.out.Grants, g)
		case want.Shared:
			pl.out.Grants = append(pl.out.Grants, g)
		default:
			pl.out.Parts[user].GPUs |= 1 << d
		}
		need--
	}
	return need
}

// charge takes a placement from what the reservation leaves free. The placement
// is made now and still holds its nodes when the reservation begins.
func (pl *placer) charge(a *model.Allocation) {
	for i := range a.Parts {
		if left := pl.lim.find(a.Parts[i].Node); left != nil {
			left.takePart(&a.Parts[i])
		}
	}
	for _, g := range a.Grants {
		if left := pl.lim.find(g.Node); left != nil {
			left.takeGrant(g)
		}
	}
}

func (l *nodeLeft) takePart(part *model.Part) {
	l.cores -= part.Cores
	l.memory -= part.Memory
	l.gpus &^= part.GPUs
	if len(l.shares) > 0 {
		for set := part.GPUs; set != 0; set &= set - 1 {
			l.shares[bits.TrailingZeros64(set)] = 0
		}
	}
}

func (l *nodeLeft) takeGrant(g model.Grant) {
	l.gpus &^= 1 << g.Device
	switch {
	case g.Memory > 0:
		l.shares[g.Device] -= g.Memory
	case len(l.shares) > 0:
		l.shares[g.Device] = 0
	}
}
