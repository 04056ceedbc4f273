package model

import "slices"

// Allocation is what a job was given: its nodes, and the devices that serve them.
type Allocation struct {
	// Parts are the nodes that host the job's processes, in node order.
	Parts []Part
	// Grants are devices beyond the whole local ones in Parts: devices borrowed from another node,
	// and shares.
	Grants []Grant
}

// Part is what one node gives to a job's processes.
type Part struct {
	Node   int32
	Cores  int32
	Memory int64
	// GPUs is the set of whole local devices: bit i stands for device i of the node.
	GPUs uint64
	// Exclusive reserves the node: it hosts no other job, and lends nothing.
	Exclusive bool
}

// Grant is a device, or a share of one, that serves a part of the job.
type Grant struct {
	// For is the index in Parts of the node that uses the device.
	For int32
	// Node and Device identify the device. It is borrowed if Node is another node than the part's.
	Node   int32
	Device int32
	// Memory is the size of the share; 0 means the whole device.
	Memory int64
}

// Borrowed says whether a grant crosses the network.
func (a *Allocation) Borrowed(g Grant) bool { return a.Parts[g.For].Node != g.Node }

// UsesBorrowed says whether any device of the allocation is on another node.
func (a *Allocation) UsesBorrowed() bool {
	return slices.ContainsFunc(a.Grants, a.Borrowed)
}
