package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// MaxGPUsPerNode limits the devices of a node, so that a set of them fits into one word.
const MaxGPUsPerNode = 64

// MaxNodeWeight is the largest weight of a node.
const MaxNodeWeight = math.MaxInt32

// maxOverhead is far beyond the cost of any remote GPU.
const maxOverhead = 1_000_000

// Cluster is the whole cluster, with its nodes in a one-dimensional order.
type Cluster struct {
	Name     string
	Nodes    []Node
	GPUTypes []GPUType
	Remote   Remote
	// Partitions divide the nodes, which may be in several of them. Without any, jobs run on all nodes, whatever
	// queue they name.
	Partitions []Partition
}

// Node is one machine of a cluster.
type Node struct {
	Name   string
	Cores  int
	Memory int64
	// GPUs lists the devices: GPUs[i] is an index into Cluster.GPUTypes.
	GPUs []int
	// Link is the node's port to the network, full duplex.
	Link Link
	// Switch names the switch that the node is connected to. All nodes without one are equally
	// near.
	Switch string
	// Weight orders nodes: jobs get those with smaller weights first. 0 is the default, 1.
	Weight int
}

// GPUType describes one kind of device.
type GPUType struct {
	Name   string
	Memory int64
	// Speed is relative: a job that takes an hour at speed 1 takes half an hour at speed 2.
	Speed float64
	// PeerBandwidth is the bandwidth between two devices of one node.
	PeerBandwidth int64
}

// DistinctTypes lists each of the types of some GPUs once, and for each GPU the index of its type there.
func DistinctTypes(all []GPUType) (types []GPUType, gpus []int) {
	for _, t := range all {
		at := slices.Index(types, t)
		if at < 0 {
			at = len(types)
			types = append(types, t)
		}
		gpus = append(gpus, at)
	}
	return types, gpus
}

// Link is a network port.
type Link struct {
	Bandwidth int64
	Latency   time.Duration
}

// Remote is the cost of using a GPU of another node, beyond the network itself.
type Remote struct {
	// Latency is added to each transfer.
	Latency time.Duration
	// Overhead multiplies the bytes moved: 1.09 means 9% more. 0 means not given, which is 1.
	Overhead float64
	// Far multiplies latency and bytes if the device is on another switch. 0 means not given, which
	// is 1.
	Far float64
	// DriverMemory and ClientMemory are the memory that each job takes on a shared device beyond
	// its data: for the driver, and for the server per thread of a process. If they are given, jobs
	// ask only for the memory of their data.
	DriverMemory, ClientMemory int64
}

// ShareOf is the memory that a job takes on a device if it needs data bytes for its data and uses
// the device from the given number of threads.
func (r *Remote) ShareOf(data int64, threads int) int64 {
	return data + r.DriverMemory + r.ClientMemory*int64(max(1, threads))
}

// Distance is the distance of a device on node b from a process on node a: 0 is the same node, 1
// the same switch, 2 another one.
func (c *Cluster) Distance(a, b int32) int {
	switch {
	case a == b:
		return 0
	case c.Nodes[a].Switch == c.Nodes[b].Switch:
		return 1
	}
	return 2
}

// TotalCores counts the cores of the cluster.
func (c *Cluster) TotalCores() int {
	sum := 0
	for i := range c.Nodes {
		sum += c.Nodes[i].Cores
	}
	return sum
}

// TotalGPUs counts the devices of the cluster.
func (c *Cluster) TotalGPUs() int {
	sum := 0
	for i := range c.Nodes {
		sum += len(c.Nodes[i].GPUs)
	}
	return sum
}

// SameLink is the port of every node, if all have the same.
func (c *Cluster) SameLink() (Link, bool) {
	for i := range c.Nodes {
		if c.Nodes[i].Link != c.Nodes[0].Link {
			return Link{}, false
		}
	}
	return c.Nodes[0].Link, true
}

// GPUType returns the index of the type called name, or -1.
func (c *Cluster) GPUType(name string) int {
	for i := range c.GPUTypes {
		if c.GPUTypes[i].Name == name {
			return i
		}
	}
	return -1
}

// Resize returns the cluster with n nodes: its first n or, if it has fewer, with copies of its last
// node added. It answers "what if we had n nodes".
func (c *Cluster) Resize(n int) (*Cluster, error) {
	if n <= 0 {
		return nil, fmt.Errorf("a cluster needs at least one node, not %d", n)
	}
	out := *c
	if n <= len(c.Nodes) {
		out.Nodes = c.Nodes[:n:n]
		return &out, out.repartition(len(c.Nodes))
	}
	if len(c.Nodes) == 0 {
		return nil, errors.New("an empty cluster cannot grow: describe at least one node")
	}
	if n > MaxNodeNames {
		return nil, fmt.Errorf("a cluster grows to %d nodes at most, not to %d", MaxNodeNames, n)
	}
	taken := make(map[string]bool, n)
	for i := range c.Nodes {
		taken[c.Nodes[i].Name] = true
	}
	out.Nodes = append(make([]Node, 0, n), c.Nodes...)
	last := c.Nodes[len(c.Nodes)-1]
	for i := 1; len(out.Nodes) < n; i++ {
		node := last
		node.Name = fmt.Sprintf("extra%05d", i)
		if !taken[node.Name] {
			out.Nodes = append(out.Nodes, node)
		}
	}
	return &out, out.repartition(len(c.Nodes))
}

// repartition takes nodes out of the partitions that the cluster no longer has, and adds those beyond the first so
// many, which are copies of the last of these.
func (c *Cluster) repartition(had int) error {
	is := make(map[string]bool, len(c.Nodes))
	var more []string
	for i := range c.Nodes {
		if is[c.Nodes[i].Name] = true; i >= had {
			more = append(more, c.Nodes[i].Name)
		}
	}
	gone := func(name string) bool { return !is[name] }
	c.Partitions = slices.Clone(c.Partitions)
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.Nodes == nil {
			continue
		}
		grows := len(more) > 0 && slices.Contains(p.Nodes, c.Nodes[had-1].Name)
		p.Nodes = slices.DeleteFunc(slices.Clone(p.Nodes), gone)
		p.Lenders = slices.DeleteFunc(slices.Clone(p.Lenders), gone)
		if grows {
			p.Nodes = append(p.Nodes, more...)
		}
		if len(p.Nodes) == 0 {
			return fmt.Errorf("partition %s has none of %d nodes: try more", p.Name, len(c.Nodes))
		}
	}
	return nil
}

// Validate reports the first error in the cluster.
func (c *Cluster) Validate() error {
	if len(c.Nodes) == 0 {
		return errors.New("the cluster has no nodes: describe at least one")
	}
	types := make(map[string]bool, len(c.GPUTypes))
	for i, t := range c.GPUTypes {
		switch {
		case t.Name == "":
			return fmt.Errorf("GPU type %d has no name", i)
		case t.Memory < 0:
			return fmt.Errorf("GPU type %s: memory is negative", t.Name)
		case !(t.Speed > 0) || math.IsInf(t.Speed, 0):
			return fmt.Errorf("GPU type %s: speed must be a number above 0, not %v", t.Name, t.Speed)
		case t.PeerBandwidth < 0:
			return fmt.Errorf("GPU type %s: peer bandwidth is negative", t.Name)
		case types[t.Name]:
			return fmt.Errorf("GPU type %s is described twice", t.Name)
		}
		types[t.Name] = true
	}
	if c.Remote.Latency < 0 {
		return errors.New("the latency of remote GPUs must not be negative")
	}
	if o := c.Remote.Overhead; !(o >= 0 && o <= maxOverhead) {
		return fmt.Errorf("the overhead of remote GPUs must be a number from 0 to %d, not %v", maxOverhead, o)
	}
	if f := c.Remote.Far; !(f >= 0 && f <= maxOverhead) {
		return fmt.Errorf("the factor for GPUs on another switch must be a number from 0 to %d, not %v", maxOverhead, f)
	}
	if c.Remote.DriverMemory < 0 || c.Remote.ClientMemory < 0 {
		return errors.New("the memory that remote GPUs lose must not be negative")
	}
	seen := make(map[string]int, len(c.Nodes))
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if j, dup := seen[n.Name]; dup {
			return fmt.Errorf("node %q is described twice (nodes %d and %d): give each node one name", n.Name, j+1, i+1)
		}
		seen[n.Name] = i
		switch {
		case n.Name == "":
			return fmt.Errorf("node %d has no name", i+1)
		case n.Cores <= 0 || n.Cores > math.MaxInt32:
			return fmt.Errorf("node %s: cores must be between 1 and %d, not %d", n.Name, math.MaxInt32, n.Cores)
		case n.Memory < 0:
			return fmt.Errorf("node %s: memory is negative", n.Name)
		case n.Weight < 0 || n.Weight > MaxNodeWeight:
			return fmt.Errorf("node %s: the weight must be between 1 and %d, not %d", n.Name, MaxNodeWeight, n.Weight)
		case len(n.GPUs) > MaxGPUsPerNode:
			return fmt.Errorf("node %s: %d GPUs, at most %d are supported", n.Name, len(n.GPUs), MaxGPUsPerNode)
		case n.Link.Bandwidth < 0 || n.Link.Latency < 0:
			return fmt.Errorf("node %s: link bandwidth and latency must not be negative", n.Name)
		}
		for _, t := range n.GPUs {
			if t < 0 || t >= len(c.GPUTypes) {
				return fmt.Errorf("node %s: GPU type %d is not described", n.Name, t)
			}
		}
	}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		for _, name := range slices.Concat(p.Nodes, p.Lenders) {
			if _, is := seen[name]; !is {
				return fmt.Errorf("partition %s: there is no node %q in the cluster", p.Name, name)
			}
		}
	}
	return CheckPartitions(c.Partitions)
}

// Summary says in one line what a cluster has.
func (c *Cluster) Summary() string {
	counts := c.GPUCounts()
	var kinds []string
	for i, n := range counts {
		if n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, c.GPUTypes[i].Name))
		}
	}
	s := fmt.Sprintf("%d nodes, %d cores, %d GPUs", len(c.Nodes), c.TotalCores(), c.TotalGPUs())
	if len(kinds) > 0 {
		s += " (" + strings.Join(kinds, ", ") + ")"
	}
	return s
}

// GPUCounts is how many GPUs of each type there are.
func (c *Cluster) GPUCounts() []int {
	counts := make([]int, len(c.GPUTypes))
	for i := range c.Nodes {
		for _, t := range c.Nodes[i].GPUs {
			counts[t]++
		}
	}
	return counts
}
