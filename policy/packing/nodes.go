package packing

import (
	"math/bits"

	"muster/model"
	"muster/policy"
)

// node is what is free of a node, made ready for scores.
type node struct {
	cores   int32
	memory  int64
	whole   uint64  // free whole devices
	share   []int64 // what shares may still take of each device, in bytes
	left    []int32 // the same in thousandths
	idle    int32   // their sum
	levels  []Level // the devices that have something left
	closed  bool    // to a job that has it to itself
	alone   bool    // nothing of it is in use
	version uint32  // grows with every change
	tags    []int32 // the number of tasks here by tag; nil if no job needs it
	kinds   int32   // how many tags are here
}

// nodes mirrors the view. A node is read again when it has changed.
type nodes struct {
	cluster *model.Cluster
	list    []node
	order   []int32 // of trial: ties go to the first
	typed   [][]uint64
	changes []int32 // every node that was read again, in turn
	// The largest node, in cores and thousandths of GPUs.
	mostCores, mostGPUs int32
}

func newNodes(v *policy.View, order []int32) *nodes {
	c := v.Cluster()
	s := &nodes{cluster: c, list: make([]node, len(c.Nodes)), order: order}
	s.typed = make([][]uint64, len(c.GPUTypes))
	for t := range s.typed {
		s.typed[t] = make([]uint64, len(c.Nodes))
	}
	for n := range c.Nodes {
		s.mostCores = max(s.mostCores, int32(c.Nodes[n].Cores))
		s.mostGPUs = max(s.mostGPUs, thousand*int32(len(c.Nodes[n].GPUs)))
		k := len(c.Nodes[n].GPUs)
		s.list[n].share, s.list[n].left = make([]int64, k), make([]int32, k)
		for d, t := range c.Nodes[n].GPUs {
			s.typed[t][n] |= 1 << d
		}
		s.read(v, int32(n))
	}
	return s
}

// read looks at a node again.
func (s *nodes) read(v *policy.View, n int32) {
	x := &s.list[n]
	x.version++
	s.changes = append(s.changes, n)
	x.cores, x.memory, x.whole = v.FreeCores(n), v.FreeMemory(n), v.FreeGPUs(n)
	x.closed, x.alone = v.Closed(n), v.Untouched(n)
	x.idle, x.levels = 0, x.levels[:0]
	if x.closed {
		x.whole = 0
	}
	for d, t := range s.cluster.Nodes[n].GPUs {
		x.share[d], x.left[d] = 0, 0
		switch whole := x.whole>>d&1 != 0; {
		case x.closed:
		case whole:
			x.share[d], x.left[d] = s.cluster.GPUTypes[t].Memory, thousand
		default:
			if x.share[d] = v.FreeShare(n, int32(d)); x.share[d] > 0 {
				x.left[d] = int32(x.share[d] * thousand / s.cluster.GPUTypes[t].Memory)
			}
		}
		x.idle += x.left[d]
		x.levels = addLevel(x.levels, int32(t), x.left[d], 1)
	}
}

// addLevel counts devices with this much left; with nothing left they do not
// count.
func addLevel(levels []Level, kind, left, count int32) []Level {
	if left == 0 {
		return levels
	}
	for i := range levels {
		if levels[i].Type == kind && levels[i].Left == left {
			levels[i].Count += count
			return levels
		}
	}
	return append(levels, Level{kind, left, count})
}

// need is what a request asks of each of its nodes.
type need struct {
	cores     int32
	memory    int64
	gpus      int32
	share     int64 // 0: whole devices
	kind      int32 // of device; -1: any
	exclusive bool
	allowed   []bool  // by node; nil: all
	lenders   []bool  // by node: may give it devices; nil: all
	milli     []int32 // thousandths of a device of each type
	tag       int32
}

// tagShare marks tasks with shares of devices; those with k whole ones have tag k.
const tagShare = 0

func (s *nodes) compile(r *model.Request) need {
	q := need{
		cores: int32(r.CoresOnNode()), memory: r.MemoryOnNode(r.CoresOnNode()),
		gpus: int32(r.GPUs), share: r.GPUMemory, kind: -1, exclusive: r.Exclusive,
	}
	if r.GPUType != "" && r.GPUs > 0 {
		q.kind = int32(s.cluster.GPUType(r.GPUType))
	}
	if q.share == 0 {
		q.tag = q.gpus
	}
	for _, t := range s.cluster.GPUTypes {
		q.milli = append(q.milli, milliOf(r.GPUMemory, t.Memory))
	}
	q.allowed, q.lenders = s.named(r.NodeList), s.named(r.Lenders)
	return q
}

// named says of each node whether it has one of these names; nil if there are none.
func (s *nodes) named(names []string) []bool {
	if len(names) == 0 {
		return nil
	}
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = true
	}
	is := make([]bool, len(s.cluster.Nodes))
	for n := range s.cluster.Nodes {
		is[n] = listed[s.cluster.Nodes[n].Name]
	}
	return is
}

// hosts says whether a node has the cores and the memory.
func (s *nodes) hosts(n int32, q *need) bool {
	x := &s.list[n]
	return x.cores >= q.cores && x.memory >= q.memory && !x.closed &&
		(!q.exclusive || x.alone) && (q.allowed == nil || q.allowed[n])
}

// fit is the set of a node's devices that would do; none where it is not asked for any.
func (s *nodes) fit(n int32, q *need) uint64 {
	if q.gpus == 0 || q.lenders != nil && !q.lenders[n] {
		return 0
	}
	x := &s.list[n]
	set := x.whole
	if q.share > 0 {
		set = 0
		for d, free := range x.share {
			if free >= q.share {
				set |= 1 << d
			}
		}
	}
	if q.kind >= 0 {
		set &= s.typed[q.kind][n]
	}
	return set
}

// tightest takes k devices of a set: those with the least left, the lowest
// numbers first.
func (s *nodes) tightest(n int32, set uint64, k int32) uint64 {
	taken := uint64(0)
	for ; k > 0; k-- {
		best := -1
		for rest := set &^ taken; rest != 0; rest &= rest - 1 {
			d := bits.TrailingZeros64(rest)
			if best < 0 || s.list[n].left[d] < s.list[n].left[best] {
				best = d
			}
		}
		taken |= 1 << best
	}
	return taken
}

// asks is how many thousandths of a node's devices a request takes there.
func (s *nodes) asks(n int32, q *need, devices uint64) int32 {
	sum := int32(0)
	for ; devices != 0; devices &= devices - 1 {
		sum += q.milli[s.cluster.Nodes[n].GPUs[bits.TrailingZeros64(devices)]]
	}
	return sum
}

// after is a node's levels when devices have given what is asked of them.
func (s *nodes) after(n int32, q *need, devices uint64, levels []Level) []Level {
	levels = levels[:0]
	x := &s.list[n]
	for d, t := range s.cluster.Nodes[n].GPUs {
		left := x.left[d]
		if devices>>d&1 != 0 {
			left = max(0, left-q.milli[t])
		}
		levels = addLevel(levels, int32(t), left, 1)
	}
	return levels
}

// tag counts the tasks of each tag on a node.
func (s *nodes) tag(n, tag, by int32) {
	x := &s.list[n]
	if x.tags == nil {
		x.tags = make([]int32, model.MaxGPUsPerNode+1)
	}
	before := x.tags[tag] > 0
	x.tags[tag] += by
	switch after := x.tags[tag] > 0; {
	case after && !before:
		x.kinds++
	case before && !after:
		x.kinds--
	}
}
