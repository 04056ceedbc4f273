package mccs

import (
	"fmt"
	"time"

	"muster/model"
	"muster/policy"
)

// Node is the library's picture of a node.
type Node struct {
	Name string
	// Tag is free for the code that binds the library to a language.
	Tag any

	lib      *Library
	index    int32 // in the view; -1 for one that was described and has not joined
	spec     *model.Node
	weight   int
	assigned int // processes on its GPUs
	vgpus    int // how many processes may share a GPU; 0 is any number
	sharing  string
	policy   string // in which order its runtime serves programs
	listed   bool
	types    []*Accelerator // of a node that was described
}

// Accelerator describes a device of a node that has not joined.
type Accelerator struct {
	Type   string
	Memory int64
	Speed  float64
	node   *Node
}

// Weight is how many processes the node should have: as many as it has GPUs, unless
// SetWeight said otherwise.
func (n *Node) Weight() int { return n.weight }

// NumAssignedProcesses counts the processes that use the node's GPUs, each of a
// job's GPUs at least once. Those of suspended jobs do not count.
func (n *Node) NumAssignedProcesses() int { return n.assigned }

// Joined says that the node is part of the cluster, up or not.
func (n *Node) Joined() bool { return n.index >= 0 }

// add changes how many processes a node has.
func (n *Node) add(processes int) {
	n.lib.spare -= n.spare()
	n.assigned += processes
	n.lib.spare += n.spare()
}

// setWeight changes how many it should have.
func (n *Node) setWeight(weight int) {
	n.lib.spare -= n.spare()
	n.weight = weight
	n.lib.spare += n.spare()
}

// spare is 1 for a node of the cluster that should have more processes.
func (n *Node) spare() int {
	if n.Joined() && n.weight > n.assigned {
		return 1
	}
	return 0
}

// most is how many more processes on its GPUs a node takes by its configuration.
func (n *Node) most() int {
	if n.each() == 0 {
		return 1 << 30
	}
	return max(0, n.each()*len(n.spec.GPUs)-n.assigned)
}

// each is how many processes may share a GPU of the node; 0 is any number.
func (n *Node) each() int {
	if n.sharing == model.Exclusive {
		return 1
	}
	return n.vgpus
}

// NodeInfo is what QueryNodeInfo answers.
type NodeInfo struct {
	Up     bool
	CPUs   int
	Memory int64
	GPUs   []GPUInfo

	FreeCPUs   int
	FreeMemory int64
	FreeGPUs   int // of which no job has any part

	// Alive says that the node's agent is connected, and LastWord how long ago it said something; Unknown before
	// the driver has told it, and in the simulator.
	Alive    bool
	LastWord time.Duration
}

// Unknown is an age that is not known.
const Unknown time.Duration = -1

// GPUInfo describes one device.
type GPUInfo struct {
	Type   string
	Memory int64
	Speed  float64
}

// NodeQueues is what QueryNodeQueues answers: jobs, and their processes.
type NodeQueues struct {
	Running, Suspended                   int
	RunningProcesses, SuspendedProcesses int
	// Programs is how many programs have a device in the node's runtime, Waiting how many want one and have
	// none, and Age how long ago the node has said so: it says so when that changes. Unknown where it has not.
	Programs, Waiting int
	Age               time.Duration
}

// Refusal is the answer to a call that asks for something impossible here.
type Refusal struct{ Sentence string }

func (r *Refusal) Error() string { return r.Sentence }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// follow takes nodes in that have joined, and devices.
func (l *Library) follow(v *policy.View) {
	c := v.Cluster()
	for i := range c.Nodes {
		spec := &c.Nodes[i]
		if i == len(l.nodes) {
			l.join(spec)
		}
		n := l.nodes[i]
		n.spec = spec // the list of nodes moves when it grows
		if weight := l.weightOf(n); weight != n.weight {
			n.setWeight(weight)
			l.unsorted = true
		}
	}
}

// join takes in a node that was described, or is new.
func (l *Library) join(spec *model.Node) {
	n := l.byName[spec.Name]
	if n == nil {
		n = &Node{Name: spec.Name, lib: l}
		l.byName[spec.Name] = n
	}
	n.spec, n.types, n.index = spec, nil, int32(len(l.nodes))
	l.unsettled = true
	l.spare += n.spare()
	l.nodes = append(l.nodes, n)
	if !n.listed {
		n.listed = true
		l.list = append(l.list, n)
	}
	l.unsorted = true
}
