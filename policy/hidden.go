package policy

import "muster/model"

// hiddenNode is the free capacity of a node that policies must not see:
// everything of a node that is draining or down, and devices that are out of
// order. What jobs give back there is added here, and moves to the pool when
// the node or the device returns.
type hiddenNode struct {
	out    bool   // the node is draining or down: everything is hidden
	broken uint64 // the devices that are out of order

	cores  int32
	memory int64
	gpus   uint64 // free whole devices
}

// hides says whether a device is hidden.
func (h *hiddenNode) hides(device int32) bool { return h.out || h.broken>>device&1 != 0 }

// takePart takes a part from what is hidden. It returns false, and does
// nothing, if nothing of the part is hidden.
func (h *hiddenNode) takePart(p *pool, part *model.Part) bool {
	return h.movePart(p, part, -1)
}

// givePart gives a part back to what is hidden. It returns false, and does
// nothing, if nothing of the part is hidden.
func (h *hiddenNode) givePart(p *pool, part *model.Part) bool {
	return h.movePart(p, part, 1)
}

func (h *hiddenNode) movePart(p *pool, part *model.Part, sign int32) bool {
	if h.out {
		h.cores += sign * part.Cores
		h.memory += int64(sign) * part.Memory
		h.moveDevices(part.GPUs, sign)
		return true
	}
	bad := part.GPUs & h.broken
	if bad == 0 {
		return false
	}
	h.moveDevices(bad, sign)
	node := &p.nodes[part.Node]
	p.addCores(part.Node, node, sign*part.Cores)
	p.addMemory(part.Node, node, int64(sign)*part.Memory)
	if sign > 0 {
		p.setGPUs(part.Node, node, node.gpus|part.GPUs&^bad)
	} else {
		p.setGPUs(part.Node, node, node.gpus&^part.GPUs)
	}
	return true
}

func (h *hiddenNode) moveDevices(set uint64, sign int32) {
	if sign > 0 {
		h.gpus |= set
	} else {
		h.gpus &^= set
	}
}

// takeDevice takes a hidden device; false if it is not hidden.
func (h *hiddenNode) takeDevice(device int32) bool {
	if h.hides(device) {
		h.gpus &^= 1 << device
		return true
	}
	return false
}

func (h *hiddenNode) giveDevice(device int32) bool {
	if h.hides(device) {
		h.gpus |= 1 << device
		return true
	}
	return false
}

// hiddenOf is what is hidden of a node. It makes the table on first use.
func (p *pool) hiddenOf(n int32) *hiddenNode {
	if p.hidden == nil {
		p.hidden = make([]hiddenNode, len(p.nodes))
	}
	return &p.hidden[n]
}

// setOut hides a node, or shows it again.
func (p *pool) setOut(n int32, out bool) {
	h, node := p.hiddenOf(n), &p.nodes[n]
	if h.out == out {
		return
	}
	if h.out = out; out {
		h.cores, h.memory, h.gpus = node.cores, node.memory, h.gpus|node.gpus
		p.addCores(n, node, -node.cores)
		p.addMemory(n, node, -node.memory)
		p.setGPUs(n, node, 0)
		return
	}
	p.addCores(n, node, h.cores)
	p.addMemory(n, node, h.memory)
	p.setGPUs(n, node, h.gpus&^h.broken)
	h.cores, h.memory, h.gpus = 0, 0, h.gpus&h.broken
}

// setBroken hides devices of a node, or shows them again.
func (p *pool) setBroken(n int32, device int32, broken bool) {
	h, node, bit := p.hiddenOf(n), &p.nodes[n], uint64(1)<<device
	if (h.broken&bit != 0) == broken {
		return
	}
	if broken {
		h.broken |= bit
		if node.gpus&bit != 0 {
			h.gpus |= bit
			p.setGPUs(n, node, node.gpus&^bit)
		}
		return
	}
	h.broken &^= bit
	if !h.out && h.gpus&bit != 0 {
		h.gpus &^= bit
		p.setGPUs(n, node, node.gpus|bit)
	}
}

// usable is the devices of a set that are not out of order; none if the node is
// not up.
func (p *pool) usable(n int32, set uint64) uint64 {
	switch {
	case p.hidden == nil:
		return set
	case p.hidden[n].out:
		return 0
	}
	return set &^ p.hidden[n].broken
}

// giveMemory gives back the memory that a suspended job kept.
func (p *pool) giveMemory(a *model.Allocation) {
	for i := range a.Parts {
		n, memory := a.Parts[i].Node, a.Parts[i].Memory
		if p.hidden != nil && p.hidden[n].out {
			p.hidden[n].memory += memory
			continue
		}
		p.addMemory(n, &p.nodes[n], memory)
	}
}

// grow adds the last node of the cluster, which has just joined.
func (p *pool) grow() {
	n := int32(len(p.nodes))
	node := &p.cluster.Nodes[n]
	p.nodes = append(p.nodes, nodeState{})
	p.firstDevice = append(p.firstDevice, p.firstDevice[n]+int32(len(node.GPUs)))
	p.sharedOut = append(p.sharedOut, make([]int64, len(node.GPUs))...)
	if p.hidden != nil {
		p.hidden = append(p.hidden, hiddenNode{})
	}
	p.widenTypes()
	p.unhosted = p.unhosted.grown(n)
	p.unhosted.set(n)
	all := p.coreSteps.all.grown(n)
	all.set(n)
	for _, l := range []*ladder{&p.coreSteps, &p.memorySteps, &p.gpuSteps} {
		l.widen(all)
	}
	p.addCores(n, &p.nodes[n], int32(node.Cores))
	p.addMemory(n, &p.nodes[n], node.Memory)
	p.addDevices(n, 0)
}

// widenTypes gives the masks of types an entry for each type and node.
func (p *pool) widenTypes() {
	for len(p.typeMask) < len(p.cluster.GPUTypes) {
		p.typeMask = append(p.typeMask, make([]uint64, len(p.nodes)))
	}
	for t := range p.typeMask {
		for len(p.typeMask[t]) < len(p.nodes) {
			p.typeMask[t] = append(p.typeMask[t], 0)
		}
	}
}

// addDevices adds the devices of a node from number from on, which are new and
// free.
func (p *pool) addDevices(n int32, from int) {
	p.order.made = false
	p.widenTypes()
	set := uint64(0)
	for d, t := range p.cluster.Nodes[n].GPUs {
		if d >= from {
			p.typeMask[t][n] |= 1 << d
			set |= 1 << d
		}
	}
	if p.hidden != nil && p.hidden[n].out {
		p.hidden[n].gpus |= set
		return
	}
	p.setGPUs(n, &p.nodes[n], p.nodes[n].gpus|set)
}

// insertDevices adds count new devices of a node, whose list in the cluster has
// them already. Devices of later nodes move up in sharedOut.
func (p *pool) insertDevices(n int32, count int) {
	at := p.firstDevice[n+1]
	grown := append([]int64(nil), p.sharedOut[:at]...)
	grown = append(grown, make([]int64, count)...)
	p.sharedOut = append(grown, p.sharedOut[at:]...)
	for i := n + 1; int(i) < len(p.firstDevice); i++ {
		p.firstDevice[i] += int32(count)
	}
	p.addDevices(n, len(p.cluster.Nodes[n].GPUs)-count)
}

// grown is the set with room for a new member; it has one more word if needed.
func (b bitmap) grown(member int32) bitmap {
	if int(member)>>6 >= len(b) {
		return append(b[:len(b):len(b)], 0)
	}
	return b
}

// widen makes the bitmaps of a ladder as long as all, which has the same number
// of words or one more.
func (l *ladder) widen(all bitmap) {
	was, now := len(l.all), len(all)
	if l.all = all; was == now {
		return
	}
	words := make([]uint64, len(l.steps)*now)
	for i := range l.steps {
		copy(words[i*now:], l.words[i*was:(i+1)*was])
	}
	l.words = words
}

// grow adds the last node of the cluster, which has just joined, and drops
// limits and rooms.
func (pl *placer) grow() {
	pl.pool.grow()
	pl.fresh = false
	pl.base = newBitmap(len(pl.nodes))
	pl.lim.stamp, pl.lim.at = append(pl.lim.stamp, 0), append(pl.lim.at, 0)
	pl.lim.begin()
	pl.epoch++
}
