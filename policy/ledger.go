package policy

import (
	"fmt"
	"math/bits"

	"muster/model"
)

// ledger is the truth about what is taken. It has no index and shares no code
// with placement: every line of every plan is checked against it before it is
// entered.
type ledger struct {
	nodes []ledgerNode
	// shared[n] is the memory of each device of node n that is given out as
	// shares. It is made when the node first gives a share.
	shared [][]int64
	// trouble: some node or device has been out of order at some time. Before
	// that, checkUp can be skipped.
	trouble bool
}

// ledgerNode is what is not taken of a node.
type ledgerNode struct {
	memory int64
	gpus   uint64
	broken uint64 // devices that are out of order
	cores  int32
	closed bool // a job has the node to itself
	state  NodeState
}

func newLedger(c *model.Cluster) ledger {
	n := len(c.Nodes)
	l := ledger{nodes: make([]ledgerNode, n), shared: make([][]int64, n)}
	for i := range c.Nodes {
		l.nodes[i] = wholeNode(&c.Nodes[i])
	}
	return l
}

// wholeNode is a node of which nothing is taken.
func wholeNode(n *model.Node) ledgerNode {
	return ledgerNode{cores: int32(n.Cores), memory: n.Memory, gpus: wholeMask(len(n.GPUs))}
}

// checkUp says why nothing new may be placed on the nodes and devices of an
// allocation: a node is draining or down, or a device is out of order.
func (l *ledger) checkUp(e *jobEntry, a *model.Allocation, c *model.Cluster) error {
	check := func(n int32, devices uint64) error {
		node := &l.nodes[n]
		if node.state != NodeUp {
			return fmt.Errorf("job %s: node %s is %s", e.job.ID, c.Nodes[n].Name, node.state)
		}
		if bad := devices & node.broken; bad != 0 {
			return fmt.Errorf("job %s: GPU %d of node %s is out of order", e.job.ID, bits.TrailingZeros64(bad), c.Nodes[n].Name)
		}
		return nil
	}
	for i := range a.Parts {
		if err := check(a.Parts[i].Node, a.Parts[i].GPUs); err != nil {
			return err
		}
	}
	for _, g := range a.Grants {
		if err := check(g.Node, 1<<g.Device); err != nil {
			return err
		}
	}
	return nil
}

// check says why an allocation must not be committed: something of it is not
// free, or it is not exactly what the job asked for.
func (l *ledger) check(e *jobEntry, sh *Shape, a *model.Allocation, c *model.Cluster) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("job %s: "+format, append([]any{e.job.ID}, args...)...)
	}
	if len(a.Parts) == 0 || sh.nodes > 0 && len(a.Parts) != int(sh.nodes) {
		return refuse("%d nodes granted, %d requested", len(a.Parts), sh.nodes)
	}
	sum, last := int64(0), int32(-1)
	gpuType := ^uint64(0)
	for i := range a.Parts {
		p := &a.Parts[i]
		n := p.Node
		if n <= last {
			return refuse("its nodes are not in order, or one is named twice")
		}
		if sh.Request.Contiguous && last >= 0 && n != last+1 {
			return refuse("its nodes are not contiguous")
		}
		last = n
		if p.Cores > l.nodes[n].cores || p.Memory > l.nodes[n].memory || p.GPUs&^l.nodes[n].gpus != 0 {
			return refuse("node %s does not have that much free", c.Nodes[n].Name)
		}
		if sh.allowed != nil && !sh.allowed.has(n) {
			return refuse("node %s is not on its list", c.Nodes[n].Name)
		}
		if sh.gpuType >= 0 {
			gpuType = 0
			for d, t := range c.Nodes[n].GPUs {
				if t == int(sh.gpuType) {
					gpuType |= 1 << d
				}
			}
		}
		if p.GPUs&^gpuType != 0 {
			return refuse("node %s gives GPUs of another type", c.Nodes[n].Name)
		}
		sum += int64(p.Cores)
		if p.Exclusive && !sh.exclusive {
			return refuse("node %s is given whole, which was not requested", c.Nodes[n].Name)
		}
		switch {
		case sh.nodes == 0:
			if p.Cores <= 0 || p.Cores%sh.granule != 0 || p.Memory != sh.memory*int64(p.Cores)+sh.nodeMemory {
				return refuse("node %s gives %d cores and %d bytes", c.Nodes[n].Name, p.Cores, p.Memory)
			}
		case sh.exclusive:
			if int(p.Cores) != c.Nodes[n].Cores || p.Memory != sh.memory || !p.Exclusive {
				return refuse("node %s is not given whole", c.Nodes[n].Name)
			}
			if l.nodes[n].gpus != wholeMask(len(c.Nodes[n].GPUs)) {
				return refuse("node %s lends GPUs to others", c.Nodes[n].Name)
			}
		default:
			if p.Cores != sh.cores || p.Memory != sh.memory {
				return refuse("node %s gives %d cores and %d bytes, not %d and %d", c.Nodes[n].Name, p.Cores, p.Memory, sh.cores, sh.memory)
			}
		}
		if len(a.Grants) == 0 && sh.Request.Remote == nil && bits.OnesCount64(p.GPUs) != int(sh.gpus) {
			return refuse("node %s gives %d GPUs, not %d", c.Nodes[n].Name, bits.OnesCount64(p.GPUs), sh.gpus)
		}
	}
	if sh.nodes == 0 && sum != int64(sh.cores) {
		return refuse("%d cores granted, %d requested", sum, sh.cores)
	}
	if len(a.Grants) == 0 && sh.Request.Remote == nil {
		return nil
	}
	return l.checkGrants(e, sh, a, c)
}

func (l *ledger) checkGrants(e *jobEntry, sh *Shape, a *model.Allocation, c *model.Cluster) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("job %s: "+format, append([]any{e.job.ID}, args...)...)
	}
	type device struct{ node, device int32 }
	seen := make(map[device]bool, len(a.Grants))
	serving := make([]int32, len(a.Parts))
	total := int32(len(a.Grants))
	for i := range a.Parts {
		k := int32(bits.OnesCount64(a.Parts[i].GPUs))
		serving[i] += k
		total += k
		for set := a.Parts[i].GPUs; set != 0; set &= set - 1 {
			seen[device{a.Parts[i].Node, int32(bits.TrailingZeros64(set))}] = true
		}
	}
	for _, g := range a.Grants {
		name := func() string { return fmt.Sprintf("GPU %d of node %s", g.Device, c.Nodes[g.Node].Name) }
		if seen[device{g.Node, g.Device}] {
			return refuse("%s is granted twice", name())
		}
		seen[device{g.Node, g.Device}] = true
		serving[g.For]++
		t := c.Nodes[g.Node].GPUs[g.Device]
		if sh.gpuType >= 0 && t != int(sh.gpuType) {
			return refuse("%s is of another type", name())
		}
		if l.nodes[g.Node].closed {
			return refuse("node %s lends nothing", c.Nodes[g.Node].Name)
		}
		if !sh.mayLend(g.Node) {
			return refuse("node %s does not lend it GPUs", c.Nodes[g.Node].Name)
		}
		free := l.nodes[g.Node].gpus>>g.Device&1 != 0
		used := int64(0)
		if l.shared[g.Node] != nil {
			used = l.shared[g.Node][g.Device]
		}
		if g.Memory == 0 && !free ||
			g.Memory > 0 && (!free && used == 0 || used+g.Memory > c.GPUTypes[t].Memory) {
			return refuse("%s is not free", name())
		}
		want := sh.gpuMemory
		if r := sh.Request.Remote; r != nil && (sh.gpus == 0 || g.Memory != want) {
			want = 0
			if r.Shared {
				want = r.Memory
			}
		}
		if g.Memory != want {
			return refuse("%s is granted with %d bytes, not %d", name(), g.Memory, want)
		}
	}
	need := int32(len(a.Parts)) * sh.gpus
	if r := sh.Request.Remote; r != nil {
		need += int32(r.Count)
	}
	if total != need && !(sh.Request.MoreGPUs && total > need) {
		return refuse("%d GPUs granted, %d requested", total, need)
	}
	for i, k := range serving {
		if k < sh.gpus {
			return refuse("node %s is served by %d GPUs, not %d", c.Nodes[a.Parts[i].Node].Name, k, sh.gpus)
		}
	}
	return nil
}

func (l *ledger) take(a *model.Allocation) {
	for i := range a.Parts {
		p := &a.Parts[i]
		l.nodes[p.Node].cores -= p.Cores
		l.nodes[p.Node].memory -= p.Memory
		l.nodes[p.Node].gpus &^= p.GPUs
		if p.Exclusive {
			l.nodes[p.Node].closed = true
		}
	}
	for _, g := range a.Grants {
		l.nodes[g.Node].gpus &^= 1 << g.Device
		if g.Memory > 0 {
			if l.shared[g.Node] == nil {
				l.shared[g.Node] = make([]int64, model.MaxGPUsPerNode)
			}
			l.shared[g.Node][g.Device] += g.Memory
		}
	}
}

func (l *ledger) give(a *model.Allocation) {
	for i := range a.Parts {
		p := &a.Parts[i]
		l.nodes[p.Node].cores += p.Cores
		l.nodes[p.Node].memory += p.Memory
		l.nodes[p.Node].gpus |= p.GPUs
		l.nodes[p.Node].closed = false
	}
	for _, g := range a.Grants {
		if g.Memory > 0 {
			l.shared[g.Node][g.Device] -= g.Memory
			if l.shared[g.Node][g.Device] > 0 {
				continue
			}
		}
		l.nodes[g.Node].gpus |= 1 << g.Device
	}
}
