package policy

import (
	"math/bits"
	"slices"

	"muster/model"
)

// bitmap is a set of nodes.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) set(i int32)      { b[i>>6] |= 1 << (i & 63) }
func (b bitmap) clear(i int32)    { b[i>>6] &^= 1 << (i & 63) }
func (b bitmap) has(i int32) bool { return b[i>>6]>>(i&63)&1 != 0 }

// few is the number of steps up to which ladder.move rewrites a node's bit in
// all of them, without branches. With more steps it changes only those that the
// amount crossed.
const few = 6

// maxSteps bounds the thresholds of a ladder. For an amount without a threshold
// of its own the next lower one serves as a filter, and the exact check at the
// node decides.
const maxSteps = 32

// ladder indexes one quantity of all nodes by threshold: for each amount that
// some job asks for, the set of nodes that have at least that much free.
type ladder struct {
	steps []int64 // ascending
	// words holds a bitmap of the nodes for each step, one after the other.
	words []uint64
	all   bitmap
	top   int64 // the last step, or 0 if there is none
	// rankOf[v] is rank(v), for small values.
	rankOf [130]uint8
}

// rank is the number of steps that value reaches.
func (l *ladder) rank(value int64) int {
	if uint64(value) < uint64(len(l.rankOf)) {
		return int(l.rankOf[value])
	}
	return l.rankLarge(value)
}

func (l *ladder) rankLarge(value int64) int {
	if value >= l.top {
		return len(l.steps)
	}
	if value < 0 {
		return 0
	}
	r := int(l.rankOf[len(l.rankOf)-1])
	for r < len(l.steps) && l.steps[r] <= value {
		r++
	}
	return r
}

// addStep makes the ladder exact for value, unless it has maxSteps steps.
func (l *ladder) addStep(value int64, nodes int, free func(i int) int64) {
	if value <= 0 || len(l.steps) == maxSteps {
		return
	}
	at, found := slices.BinarySearch(l.steps, value)
	if found {
		return
	}
	b := newBitmap(nodes)
	for i := range nodes {
		if free(i) >= value {
			b.set(int32(i))
		}
	}
	l.steps = slices.Insert(l.steps, at, value)
	l.words = slices.Insert(l.words, at*len(b), b...)
	l.top = l.steps[len(l.steps)-1]
	for v := range l.rankOf {
		r, _ := slices.BinarySearch(l.steps, int64(v)+1)
		l.rankOf[v] = uint8(r)
	}
}

// atLeast is a set that contains all nodes with value free. If the ladder has
// no step for value, it may contain others.
func (l *ladder) atLeast(value int64) bitmap {
	r := l.rank(value)
	if r == 0 {
		return l.all
	}
	n := len(l.all)
	return l.words[(r-1)*n : r*n]
}

// move updates the ladder after a node's free amount went from before to after.
func (l *ladder) move(node int32, before, after int64) {
	stride, bit := len(l.all), uint64(1)<<(node&63)
	at := int(node >> 6)
	if len(l.steps) <= few {
		for _, step := range l.steps {
			// reached is all ones if after >= step, else 0: the sign bit of
			// step-after-1, without a branch that could be mispredicted.
			reached := uint64((step - after - 1) >> 63)
			l.words[at] = l.words[at]&^bit | reached&bit
			at += stride
		}
		return
	}
	a, b := l.rank(before), l.rank(after)
	at += a * stride
	for ; a < b; a++ {
		l.words[at] |= bit
		at += stride
	}
	for ; a > b; a-- {
		at -= stride
		l.words[at] &^= bit
	}
}

// nodeState is what is free of one node.
type nodeState struct {
	memory int64
	gpus   uint64 // whole devices
	cores  int32
	hosted int32 // jobs with processes here
	lent   int32 // devices and shares that serve other nodes
	closed bool  // a job has the node to itself
}

// pool is the working copy of what is free, indexed for first fit.
type pool struct {
	cluster *model.Cluster

	nodes []nodeState

	// sharedOut is the memory of each device given out as shares;
	// device d of node n is at firstDevice[n]+d.
	firstDevice []int32
	sharedOut   []int64
	shares      int        // the number of shares given out
	sharing     bool       // some shape asks for shares
	typeMask    [][]uint64 // typeMask[t][n]: the devices of type t of node n

	freeCores int64
	freeGPUs  int64

	coreSteps, memorySteps, gpuSteps ladder
	order                            order
	unhosted                         bitmap // nodes with hosted == 0

	undo      []move
	recording bool

	// hidden is the capacity that must not be seen: of nodes that are not up,
	// and of devices that are out of order. It is nil until there is some.
	hidden []hiddenNode
}

// move is one change of the pool, recorded so that rollback can undo it.
type move struct {
	part  model.Part
	grant model.Grant
	kind  moveKind
}

type moveKind uint8

const (
	tookPart moveKind = iota
	gavePart
	tookGrant // grant.For is 1 if the device is lent to another node
	gaveGrant
)

func newPool(c *model.Cluster) *pool {
	n := len(c.Nodes)
	p := &pool{
		cluster:     c,
		nodes:       make([]nodeState, n),
		firstDevice: make([]int32, n+1),
		unhosted:    newBitmap(n),
	}
	p.typeMask = make([][]uint64, len(c.GPUTypes))
	for t := range p.typeMask {
		p.typeMask[t] = make([]uint64, n)
	}
	all := newBitmap(n)
	for i := range c.Nodes {
		node := &c.Nodes[i]
		p.nodes[i] = nodeState{cores: int32(node.Cores), memory: node.Memory, gpus: wholeMask(len(node.GPUs))}
		for d, t := range node.GPUs {
			p.typeMask[t][i] |= 1 << d
		}
		p.firstDevice[i+1] = p.firstDevice[i] + int32(len(node.GPUs))
		p.freeCores += int64(node.Cores)
		p.freeGPUs += int64(len(node.GPUs))
		p.unhosted.set(int32(i))
		all.set(int32(i))
	}
	p.sharedOut = make([]int64, p.firstDevice[n])
	p.coreSteps.all, p.memorySteps.all, p.gpuSteps.all = all, all, all
	return p
}

func wholeMask(devices int) uint64 {
	if devices >= 64 {
		return ^uint64(0)
	}
	return 1<<devices - 1
}

// index prepares the ladders for what a shape asks of each node.
func (p *pool) index(sh *Shape) {
	n := len(p.nodes)
	if sh.nodes == 0 {
		p.coreSteps.addStep(1, n, func(i int) int64 { return int64(p.nodes[i].cores) })
	} else {
		p.coreSteps.addStep(int64(sh.cores), n, func(i int) int64 { return int64(p.nodes[i].cores) })
		p.memorySteps.addStep(sh.memory, n, func(i int) int64 { return p.nodes[i].memory })
	}
	if r := sh.Request.Remote; sh.gpuMemory > 0 || r != nil && r.Shared {
		p.sharing = true
	}
	free := func(i int) int64 { return int64(bits.OnesCount64(p.nodes[i].gpus)) }
	p.gpuSteps.addStep(1, n, free) // collect looks up lenders by it
	if sh.gpuMemory == 0 {
		p.gpuSteps.addStep(int64(sh.gpus), n, free)
	}
}

// addCores, addMemory and setGPUs change what is free of a node and its place
// in the ladders.
func (p *pool) addCores(n int32, node *nodeState, delta int32) {
	before := node.cores
	node.cores = before + delta
	p.freeCores += int64(delta)
	p.coreSteps.move(n, int64(before), int64(before+delta))
}

func (p *pool) addMemory(n int32, node *nodeState, delta int64) {
	before := node.memory
	node.memory = before + delta
	if min(before, before+delta) < p.memorySteps.top {
		p.memorySteps.move(n, before, before+delta)
	}
}

func (p *pool) setGPUs(n int32, node *nodeState, mask uint64) {
	before, after := bits.OnesCount64(node.gpus), bits.OnesCount64(mask)
	node.gpus = mask
	p.freeGPUs += int64(after - before)
	p.gpuSteps.move(n, int64(before), int64(after))
}

func (p *pool) takePart(part *model.Part) {
	n := part.Node
	node := &p.nodes[n]
	if p.hidden == nil || !p.hidden[n].takePart(p, part) {
		p.addCores(n, node, -part.Cores)
		if part.Memory != 0 {
			p.addMemory(n, node, -part.Memory)
		}
		if part.GPUs != 0 {
			p.setGPUs(n, node, node.gpus&^part.GPUs)
		}
	}
	node.closed = part.Exclusive
	if node.hosted++; node.hosted == 1 {
		p.unhosted.clear(n)
	}
	if p.recording {
		p.undo = append(p.undo, move{part: *part, kind: tookPart})
	}
}

func (p *pool) givePart(part *model.Part) {
	n := part.Node
	node := &p.nodes[n]
	if p.hidden == nil || !p.hidden[n].givePart(p, part) {
		p.addCores(n, node, part.Cores)
		if part.Memory != 0 {
			p.addMemory(n, node, part.Memory)
		}
		if part.GPUs != 0 {
			p.setGPUs(n, node, node.gpus|part.GPUs)
		}
	}
	node.closed = false
	if node.hosted--; node.hosted == 0 {
		p.unhosted.set(n)
	}
	if p.recording {
		p.undo = append(p.undo, move{part: *part, kind: gavePart})
	}
}

func (p *pool) device(node, device int32) int32 { return p.firstDevice[node] + device }

// takeGrant takes a device or a share of one. A device with a share on it is
// not free as a whole; it becomes free again when its last share is given back.
func (p *pool) takeGrant(g model.Grant, borrowed bool) {
	if g.Memory > 0 {
		p.sharedOut[p.device(g.Node, g.Device)] += g.Memory
		p.shares++
	}
	if p.hidden == nil || !p.hidden[g.Node].takeDevice(g.Device) {
		node := &p.nodes[g.Node]
		p.setGPUs(g.Node, node, node.gpus&^(1<<g.Device))
	}
	g.For = 0
	if borrowed {
		p.nodes[g.Node].lent++
		g.For = 1
	}
	if p.recording {
		p.undo = append(p.undo, move{grant: g, kind: tookGrant})
	}
}

func (p *pool) giveGrant(g model.Grant, borrowed bool) {
	d := p.device(g.Node, g.Device)
	if g.Memory > 0 {
		p.sharedOut[d] -= g.Memory
		p.shares--
	}
	if p.sharedOut[d] == 0 && (p.hidden == nil || !p.hidden[g.Node].giveDevice(g.Device)) {
		node := &p.nodes[g.Node]
		p.setGPUs(g.Node, node, node.gpus|1<<g.Device)
	}
	g.For = 0
	if borrowed {
		p.nodes[g.Node].lent--
		g.For = 1
	}
	if p.recording {
		p.undo = append(p.undo, move{grant: g, kind: gaveGrant})
	}
}

func (p *pool) take(a *model.Allocation) {
	for i := range a.Parts {
		p.takePart(&a.Parts[i])
	}
	for _, g := range a.Grants {
		p.takeGrant(g, a.Borrowed(g))
	}
}

func (p *pool) give(a *model.Allocation) {
	for i := range a.Parts {
		p.givePart(&a.Parts[i])
	}
	for _, g := range a.Grants {
		p.giveGrant(g, a.Borrowed(g))
	}
}

// holds says whether everything in a is free to take.
func (p *pool) holds(a *model.Allocation) bool {
	for i := range a.Parts {
		part := &a.Parts[i]
		n := part.Node
		if p.nodes[n].closed || part.Exclusive && !p.untouched(n) {
			return false
		}
		if p.nodes[n].cores < part.Cores || p.nodes[n].memory < part.Memory || p.nodes[n].gpus&part.GPUs != part.GPUs {
			return false
		}
	}
	for _, g := range a.Grants {
		if p.nodes[g.Node].closed {
			return false
		}
		if g.Memory > 0 && p.shareLeft(g.Node, g.Device) < g.Memory {
			return false
		}
		if g.Memory == 0 && p.nodes[g.Node].gpus>>g.Device&1 == 0 {
			return false
		}
	}
	return true
}

// checkpoint starts recording moves; rollback undoes them all, the latest
// first.
func (p *pool) checkpoint() {
	p.undo = p.undo[:0]
	p.recording = true
}

func (p *pool) rollback() {
	p.recording = false
	for i := len(p.undo) - 1; i >= 0; i-- {
		m := &p.undo[i]
		switch m.kind {
		case tookPart:
			p.givePart(&m.part)
		case gavePart:
			p.takePart(&m.part)
		case tookGrant:
			p.giveGrant(m.grant, m.grant.For == 1)
		case gaveGrant:
			p.takeGrant(m.grant, m.grant.For == 1)
		}
	}
	p.undo = p.undo[:0]
}

// untouched says that nothing of a node is in use.
func (p *pool) untouched(n int32) bool {
	s := &p.nodes[n]
	all := wholeMask(len(p.cluster.Nodes[n].GPUs))
	if p.hidden != nil {
		if p.hidden[n].out {
			return false
		}
		all &^= p.hidden[n].broken
	}
	return s.hosted == 0 && s.lent == 0 && s.gpus == all
}

// shareLeft is the memory of a device that shares may still take.
func (p *pool) shareLeft(node, device int32) int64 {
	d := p.device(node, device)
	if p.nodes[node].gpus>>device&1 == 0 && p.sharedOut[d] == 0 {
		return 0 // a job has the whole device
	}
	if p.hidden != nil && p.hidden[node].hides(device) {
		return 0
	}
	t := p.cluster.Nodes[node].GPUs[device]
	return p.cluster.GPUTypes[t].Memory - p.sharedOut[d]
}
