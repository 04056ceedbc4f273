package policy

import (
	"fmt"
	"strings"

	"muster/internal/units"
	"muster/model"
)

// Shape is a request compiled for placement. Jobs with equal requests share
// one, so that what is found out about the first holds for all.
type Shape struct {
	id int32
	// Request is the request itself. Shares of devices include what driver and
	// server use of the device for the job.
	Request model.Request

	nodes  int32 // 0: the cores are spread over any nodes
	cores  int32 // per node; in all if spread
	memory int64 // per node; per core if spread
	// granule and nodeMemory are for spread cores: a node gives a multiple of
	// granule cores, and nodeMemory in addition to the memory of its cores.
	granule    int32
	nodeMemory int64
	gpus       int32
	gpuMemory  int64
	gpuType    int32 // -1: any
	exclusive  bool
	allowed    bitmap // nil: all nodes
	lenders    bitmap // whose GPUs it may have; nil: all

	totalCores int64 // the least number, on all nodes together
	wholeGPUs  int64 // in all, wherever they are
	plain      bool  // a number of nodes with the same on each, and nothing special

	// impossible says why no job of this shape can ever run; empty if it can.
	impossible string
	names      func([]string) string // see State.SetNames
	// class is the number of what is asked of each node; see Class.
	class int32
}

// ID numbers the shapes of one state, from 0.
func (sh *Shape) ID() int { return int(sh.id) }

// Class numbers what shapes ask of each node: shapes that differ only in the
// number of nodes have the same class.
func (sh *Shape) Class() int { return int(sh.class) }

// Plain says that the shape asks for a number of nodes with the same on each,
// and nothing special: if it does not fit, one with more nodes does not fit
// either.
func (sh *Shape) Plain() bool { return sh.plain }

// Nodes is the number of nodes asked for; 0 if cores are spread.
func (sh *Shape) Nodes() int { return int(sh.nodes) }

// String says what the shape asks for, for people.
func (sh *Shape) String() string {
	r := &sh.Request
	var b strings.Builder
	if sh.nodes == 0 {
		fmt.Fprintf(&b, "%s on any nodes", units.Plural(int(sh.cores), "core"))
		if sh.granule > 1 {
			fmt.Fprintf(&b, ", %d together", sh.granule)
		}
		if sh.memory > 0 {
			fmt.Fprintf(&b, " with %s each", units.FormatSize(sh.memory))
		}
		if sh.nodeMemory > 0 {
			fmt.Fprintf(&b, ", %s of each node", units.FormatSize(sh.nodeMemory))
		}
	} else {
		fmt.Fprintf(&b, "%s with %s", units.Plural(int(sh.nodes), "node"), units.Plural(int(sh.cores), "core"))
		if sh.exclusive {
			b.WriteString(" and nothing else on them")
		}
		if sh.memory > 0 {
			fmt.Fprintf(&b, ", %s", units.FormatSize(sh.memory))
		}
	}
	if sh.gpus > 0 {
		b.WriteString(", " + units.Plural(int(sh.gpus), "GPU"))
		if sh.gpuMemory > 0 {
			fmt.Fprintf(&b, " of %s", units.FormatSize(sh.gpuMemory))
		}
		if r.GPUType != "" {
			b.WriteString(" (" + r.GPUType + ")")
		}
		if sh.nodes == 0 {
			b.WriteString(" of each node")
		}
	}
	if r.Contiguous {
		b.WriteString(", contiguous")
	}
	if r.Remote != nil {
		fmt.Fprintf(&b, ", %s anywhere", units.Plural(r.Remote.Count, "GPU"))
		if r.Remote.Memory > 0 {
			fmt.Fprintf(&b, " of %s", units.FormatSize(r.Remote.Memory))
		}
	}
	if len(r.NodeList) > 0 {
		if names := sh.names(r.NodeList); names != "" {
			b.WriteString(", only on " + names)
		}
	}
	return b.String()
}

// shapeKey is a request as a comparable value, for maps.
type shapeKey struct {
	nodes, cores, coresPerNode, gpus int
	coresPerProcess                  int
	memory, memoryPerCore, gpuMemory int64
	gpuType                          string
	remote                           model.RemoteGPUs
	contiguous, exclusive, moreGPUs  bool
	nodeList, lenders                string
}

func keyOf(r *model.Request) shapeKey {
	k := shapeKey{
		nodes: r.Nodes, cores: r.Cores, coresPerNode: r.CoresPerNode, gpus: r.GPUs,
		coresPerProcess: r.CoresPerProcess,
		memory:          r.Memory, memoryPerCore: r.MemoryPerCore, gpuMemory: r.GPUMemory,
		gpuType: r.GPUType, contiguous: r.Contiguous, exclusive: r.Exclusive, moreGPUs: r.MoreGPUs,
	}
	if r.Remote != nil {
		k.remote = *r.Remote
	}
	if len(r.NodeList) > 0 {
		k.nodeList = strings.Join(r.NodeList, "\x00")
	}
	if len(r.Lenders) > 0 {
		k.lenders = strings.Join(r.Lenders, "\x00")
	}
	return k
}

// nodeNeed is what a shape asks of each of its nodes.
type nodeNeed struct {
	cores, granule, gpus, gpuType int32
	memory, nodeMemory, gpuMemory int64
	exclusive, contig             bool
	nodeList, lenders             string
}

// shapes interns requests.
type shapes struct {
	cluster *model.Cluster
	names   func([]string) string
	retired func(int32) bool // see State.SetRetired
	list    []*Shape         // by ID
	nodeOf  map[string]int32 // made when first needed
	byKey   map[shapeKey]*Shape
	byNode  map[nodeNeed]int32 // class
	// recent finds plain requests by a hash, without building a key.
	recent [1024]*Shape
}

func newShapes(c *model.Cluster) shapes {
	return shapes{cluster: c, names: model.CompressNodes, retired: func(int32) bool { return false }, byKey: map[shapeKey]*Shape{}, byNode: map[nodeNeed]int32{}}
}

func recentSlot(r *model.Request) uint64 {
	h := uint64(r.Nodes)*0x9E3779B97F4A7C15 ^ uint64(r.Cores)*0xC2B2AE3D27D4EB4F ^
		uint64(r.CoresPerNode)*0x165667B19E3779F9 ^ uint64(r.GPUs)*0x27D4EB2F165667C5 ^
		uint64(r.Memory)*0x85EBCA77C2B2AE63
	return h >> 54
}

func plainEqual(a, b *model.Request) bool {
	return a.Nodes == b.Nodes && a.Cores == b.Cores && a.CoresPerNode == b.CoresPerNode && a.CoresPerProcess == b.CoresPerProcess &&
		a.GPUs == b.GPUs && a.Memory == b.Memory && a.MemoryPerCore == b.MemoryPerCore &&
		a.GPUMemory == b.GPUMemory && a.MoreGPUs == b.MoreGPUs && a.Contiguous == b.Contiguous && a.Exclusive == b.Exclusive &&
		a.GPUType == b.GPUType
}

// of returns the shape of a request; fresh says that it is new.
func (s *shapes) of(r *model.Request) (sh *Shape, fresh bool) {
	plain := r.Remote == nil && len(r.NodeList) == 0 && len(r.Lenders) == 0
	slot := uint64(0)
	if plain {
		slot = recentSlot(r)
		if c := s.recent[slot]; c != nil && plainEqual(&c.Request, r) {
			return c, false
		}
	}
	key := keyOf(r)
	sh = s.byKey[key]
	if sh == nil {
		sh, fresh = s.compile(r), true
		s.byKey[key] = sh
		s.list = append(s.list, sh)
		s.classify(sh)
	}
	if plain {
		s.recent[slot] = sh
	}
	return sh, fresh
}

// classify numbers what the shape asks of each node.
func (s *shapes) classify(sh *Shape) {
	need := nodeNeed{
		cores: sh.cores, granule: sh.granule, gpus: sh.gpus, gpuType: sh.gpuType,
		memory: sh.memory, nodeMemory: sh.nodeMemory, gpuMemory: sh.gpuMemory,
		exclusive: sh.exclusive, contig: sh.Request.Contiguous, nodeList: strings.Join(sh.Request.NodeList, "\x00"),
		lenders: strings.Join(sh.Request.Lenders, "\x00"),
	}
	class, known := s.byNode[need]
	if !known {
		class = int32(len(s.byNode))
		s.byNode[need] = class
	}
	sh.class = class
}

// withOwnUse adds to shares of devices what driver and server use of the device
// for the job.
func (s *shapes) withOwnUse(r *model.Request) *model.Request {
	remote := &s.cluster.Remote
	shared := r.Remote != nil && r.Remote.Shared
	if remote.DriverMemory == 0 && remote.ClientMemory == 0 || r.GPUMemory == 0 && !shared {
		return r
	}
	out := *r
	if r.GPUMemory > 0 {
		out.GPUMemory = remote.ShareOf(r.GPUMemory, r.Threads())
	}
	if shared {
		asked := *r.Remote
		asked.Memory = remote.ShareOf(asked.Memory, r.Threads())
		out.Remote = &asked
	}
	return &out
}

func (s *shapes) compile(r *model.Request) *Shape {
	r = s.withOwnUse(r)
	sh := &Shape{
		id: int32(len(s.byKey)), Request: *r,
		nodes: int32(r.Nodes), gpus: int32(r.GPUs), gpuMemory: r.GPUMemory, gpuType: -1,
		exclusive: r.Exclusive, names: s.names,
	}
	if r.Nodes == 0 {
		sh.cores, sh.memory = int32(r.Cores), r.MemoryPerCore
		sh.granule, sh.nodeMemory = int32(max(1, r.CoresPerProcess)), r.Memory
	} else {
		sh.cores = int32(r.CoresOnNode())
		sh.memory = r.MemoryOnNode(r.CoresOnNode())
	}
	sh.totalCores = int64(sh.cores)
	if sh.nodes > 0 {
		sh.totalCores *= int64(sh.nodes)
	}
	if sh.gpuMemory == 0 {
		sh.wholeGPUs = int64(sh.nodes) * int64(sh.gpus)
	}
	if r.Remote != nil && !r.Remote.Shared {
		sh.wholeGPUs += int64(r.Remote.Count)
	}
	sh.plain = sh.nodes > 0 && sh.gpuMemory == 0 && r.Remote == nil && !r.Contiguous && !r.Exclusive
	s.resolve(sh)
	return sh
}

// resolve looks up what the shape names: a type of GPUs, and nodes.
func (s *shapes) resolve(sh *Shape) {
	r := &sh.Request
	if r.GPUType != "" && (r.GPUs > 0 || r.Remote != nil) {
		sh.gpuType = int32(s.cluster.GPUType(r.GPUType))
		if sh.gpuType < 0 {
			sh.impossible = fmt.Sprintf("the cluster has no GPUs of type %q", r.GPUType)
		}
	}
	if len(r.NodeList) > 0 {
		sh.allowed = newBitmap(len(s.cluster.Nodes))
		for _, name := range r.NodeList {
			n, ok := s.node(name)
			if !ok {
				sh.impossible = fmt.Sprintf("node %q is not in the cluster", name)
				break
			}
			sh.allowed.set(n)
		}
	}
	if len(r.Lenders) > 0 {
		sh.lenders = newBitmap(len(s.cluster.Nodes))
		for _, name := range r.Lenders {
			if n, ok := s.node(name); ok {
				sh.lenders.set(n)
			}
		}
	}
}

// mayLend says whether a node may give GPUs to the shape.
func (sh *Shape) mayLend(n int32) bool { return sh.lenders == nil || sh.lenders.has(n) }

// node finds a node by its name.
func (s *shapes) node(name string) (int32, bool) {
	if s.nodeOf == nil {
		s.nodeOf = make(map[string]int32, len(s.cluster.Nodes))
		for i := range s.cluster.Nodes {
			s.nodeOf[s.cluster.Nodes[i].Name] = int32(i)
		}
	}
	n, ok := s.nodeOf[name]
	return n, ok
}

// Claim is the nodes that some jobs may use. Jobs are confined to a part of the nodes by their Request.Lenders;
// others may use all.
type Claim struct {
	nodes bitmap
	all   bool
}

// Add adds those of a shape.
func (c *Claim) Add(sh *Shape) {
	if c.all = c.all || sh.lenders == nil; c.all {
		return
	}
	for len(c.nodes) < len(sh.lenders) {
		c.nodes = append(c.nodes, 0)
	}
	for i, set := range sh.lenders {
		c.nodes[i] |= set
	}
}

// Everything says that they are all nodes.
func (c *Claim) Everything() bool { return c.all }

// Meets says whether a shape may use one of them.
func (c *Claim) Meets(sh *Shape) bool {
	if c.all || sh.lenders == nil {
		return c.all || len(c.nodes) > 0
	}
	for i, set := range sh.lenders {
		if i < len(c.nodes) && c.nodes[i]&set != 0 {
			return true
		}
	}
	return false
}
