package consres

import (
	"math/bits"
	"strings"

	"muster/model"
	"muster/policy"
)

// bitmap is a set of nodes.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) set(i int32)      { b[i>>6] |= 1 << (i & 63) }
func (b bitmap) has(i int32) bool { return b[i>>6]>>(i&63)&1 != 0 }

// add makes b the union of b and c, which has the same length.
func (b bitmap) add(c bitmap) {
	c = c[:len(b)]
	for i := range b {
		b[i] |= c[i]
	}
}

// need is what a request asks of each node that gives it anything.
type need struct {
	spread     bool
	cores      int32 // of each node; if spread, the multiple that a node gives
	memory     int64 // of each node; if spread, of each core
	nodeMemory int64 // if spread: of each node, in addition to that of the cores
	gpus       int
	gpuMemory  int64 // of each GPU; 0 means the whole GPU
	gpuType    int   // -1: any
	exclusive  bool
	allowed    bitmap // nil: all nodes
	lenders    bitmap // whose GPUs it may have; nil: all
}

// needKey is a need as a comparable value, for maps.
type needKey struct {
	spread, exclusive             bool
	cores                         int32
	gpus, gpuType                 int
	memory, nodeMemory, gpuMemory int64
	nodeList, lenders             string
}

// needOf compiles a request. The request must be possible on the idle cluster,
// so that its type of GPU and its nodes exist.
func needOf(c *model.Cluster, r *model.Request) need {
	nd := need{gpus: r.GPUs, gpuMemory: r.GPUMemory, gpuType: -1, exclusive: r.Exclusive}
	if r.GPUType != "" {
		nd.gpuType = c.GPUType(r.GPUType)
	}
	if r.Nodes == 0 {
		nd.spread, nd.cores, nd.memory, nd.nodeMemory = true, int32(max(1, r.CoresPerProcess)), r.MemoryPerCore, r.Memory
	} else {
		nd.cores = int32(r.CoresOnNode())
		nd.memory = r.MemoryOnNode(r.CoresOnNode())
	}
	nd.allowed, nd.lenders = named(c, r.NodeList), named(c, r.Lenders)
	return nd
}

// named is the set of the nodes with these names; nil, which is all, if there are none.
func named(c *model.Cluster, names []string) bitmap {
	if len(names) == 0 {
		return nil
	}
	set := newBitmap(len(c.Nodes))
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = true
	}
	for n := range c.Nodes {
		if listed[c.Nodes[n].Name] {
			set.set(int32(n))
		}
	}
	return set
}

func (nd *need) key(r *model.Request) needKey {
	return needKey{
		spread: nd.spread, exclusive: nd.exclusive, cores: nd.cores, gpus: nd.gpus, gpuType: nd.gpuType,
		memory: nd.memory, nodeMemory: nd.nodeMemory, gpuMemory: nd.gpuMemory,
		nodeList: strings.Join(r.NodeList, "\x00"), lenders: strings.Join(r.Lenders, "\x00"),
	}
}

// local says that the request uses what its nodes could lend to others: their
// GPUs, or the whole nodes.
func (nd *need) local() bool { return nd.gpus > 0 || nd.exclusive }

// mixed says that a request asks for GPUs of its own nodes and for others on
// any node. The best fit for the former may leave too little for the latter, so
// these are placed by first fit.
func mixed(r *model.Request) bool { return r.GPUs > 0 && r.Remote != nil }

// want is what a request asks for in all, in the unit of offers: nodes or
// cores.
func want(r *model.Request) int32 {
	if r.Nodes == 0 {
		return int32(r.Cores)
	}
	return int32(r.Nodes)
}

// FreeView is what is free on each node. *policy.View is one; a caller that
// asks about the future passes a table.
type FreeView interface {
	Cluster() *model.Cluster
	FreeCores(n int32) int32
	FreeMemory(n int32) int64
	// FreeGPUs is the set of whole devices that are free: bit i is device i.
	FreeGPUs(n int32) uint64
	// FreeShare is the memory of a device that shares may still take.
	FreeShare(n, device int32) int64
	// Closed says that a job has the node to itself: it lends nothing.
	Closed(n int32) bool
	// Untouched says that nothing of the node is in use.
	Untouched(n int32) bool
}

var _ FreeView = (*policy.View)(nil)

// offer is what a node could give: a number of cores if they are spread,
// otherwise 1; 0 if it can give nothing.
func (nd *need) offer(v FreeView, n int32) int32 {
	cores, memory := v.FreeCores(n), v.FreeMemory(n)
	if nd.spread {
		memory -= nd.nodeMemory
		if nd.memory > 0 {
			cores = int32(min(int64(cores), max(0, memory)/nd.memory))
		}
		cores -= cores % nd.cores
		if cores <= 0 || memory < 0 {
			return 0
		}
	} else {
		if cores < nd.cores || memory < nd.memory {
			return 0
		}
		cores = 1
	}
	if nd.allowed != nil && !nd.allowed.has(n) || nd.exclusive && !v.Untouched(n) {
		return 0
	}
	switch {
	case nd.gpus == 0:
	case nd.gpuMemory > 0:
		if nd.shares(v, n, nil, 0) < nd.gpus {
			return 0
		}
	case bits.OnesCount64(v.FreeGPUs(n)&nd.typeMask(v.Cluster(), n)) < nd.gpus:
		return 0
	}
	return cores
}

// typeMask is the set of a node's devices of the right type.
func (nd *need) typeMask(c *model.Cluster, n int32) uint64 {
	if nd.gpuType < 0 {
		return ^uint64(0)
	}
	mask := uint64(0)
	for d, t := range c.Nodes[n].GPUs {
		if t == nd.gpuType {
			mask |= 1 << d
		}
	}
	return mask
}

// shares is the number of devices of a node that can give a share, up to the
// number asked for. If out is not nil, it also grants them to part number user
// of out.
func (nd *need) shares(v FreeView, n int32, out *model.Allocation, user int32) int {
	mask, found := nd.typeMask(v.Cluster(), n), 0
	for d := range int32(len(v.Cluster().Nodes[n].GPUs)) {
		if found == nd.gpus {
			break
		}
		if mask>>d&1 == 0 || v.FreeShare(n, d) < nd.gpuMemory {
			continue
		}
		found++
		if out != nil {
			out.Grants = append(out.Grants, model.Grant{For: user, Node: n, Device: d, Memory: nd.gpuMemory})
		}
	}
	return found
}

// part appends to out what a node gives: the given number of cores if they are
// spread, otherwise what the need asks of each node.
func (nd *need) part(v FreeView, n, cores int32, out *model.Allocation) {
	p := model.Part{Node: n, Cores: nd.cores, Memory: nd.memory}
	if nd.spread {
		p.Cores, p.Memory = cores, nd.memory*int64(cores)+nd.nodeMemory
	}
	if nd.exclusive {
		p.Cores, p.Exclusive = int32(v.Cluster().Nodes[n].Cores), true
	}
	switch {
	case nd.gpus == 0:
	case nd.gpuMemory > 0:
		nd.shares(v, n, out, int32(len(out.Parts)))
	default:
		free := v.FreeGPUs(n) & nd.typeMask(v.Cluster(), n)
		rest := free
		for range nd.gpus {
			rest &= rest - 1
		}
		p.GPUs = free &^ rest
	}
	out.Parts = append(out.Parts, p)
}
