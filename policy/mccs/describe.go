package mccs

import (
	"fmt"

	"muster/model"
)

// The calls in this file say how nodes are set up. Which nodes and devices there are is
// what their agents have found; a policy cannot change that. How a node's runtime serves
// programs it can: what these calls say the policy keeps to by itself, and the plan of the
// step tells it to the nodes (configure).

// maxDescribed is how many nodes may be described that have not joined.
const maxDescribed = 10_000

// CreateNode describes a node that is expected. Once AddNode has put it into the list
// it may have a weight and a configuration; it takes jobs when a node of that name has joined.
func (l *Library) CreateNode(name string, cpus int, memory int64) (*Node, error) {
	switch {
	case name == "":
		return nil, fmt.Errorf("a node needs a name")
	case l.byName[name] != nil:
		return nil, fmt.Errorf("there is a node %s already: use mccsGetNode", name)
	case cpus < 0 || memory < 0:
		return nil, fmt.Errorf("node %s: CPUs and memory must not be negative", name)
	}
	return &Node{Name: name, lib: l, index: -1, spec: &model.Node{Name: name, Cores: cpus, Memory: memory}}, nil
}

// AddNode puts a node that was described into the list of nodes.
func (l *Library) AddNode(n *Node) error {
	if other := l.byName[n.Name]; other != nil && other != n {
		return fmt.Errorf("there is a node %s already: use mccsGetNode", n.Name)
	}
	if len(l.list)-len(l.nodes) >= maxDescribed {
		return fmt.Errorf("%d nodes were described that have not joined: that is all there is room for", maxDescribed)
	}
	l.byName[n.Name] = n
	if !n.listed {
		n.listed, l.unsorted = true, true
		l.list = append(l.list, n)
	}
	return nil
}

// CreateAccelerator describes a device, for AddAccelerator.
func (l *Library) CreateAccelerator(kind string, memory int64, speed float64) (*Accelerator, error) {
	if memory < 0 || !(speed >= 0) {
		return nil, fmt.Errorf("accelerator %s: memory and speed must not be negative", kind)
	}
	return &Accelerator{Type: kind, Memory: memory, Speed: speed}, nil
}

// AddAccelerator adds a device to the description of a node that has not joined.
func (l *Library) AddAccelerator(n *Node, a *Accelerator) error {
	switch {
	case n.Joined():
		return refuse("the devices of node %s are those that its agent has found: mccsAddAccelerator is for nodes that mccsCreateNode has described", n.Name)
	case a.node != nil:
		return fmt.Errorf("the accelerator is one of node %s already: create another", a.node.Name)
	case len(n.types) == model.MaxGPUsPerNode:
		return fmt.Errorf("node %s has %d accelerators already", n.Name, model.MaxGPUsPerNode)
	}
	a.node = n
	n.types = append(n.types, a)
	if _, set := l.weights[n.Name]; !set {
		n.weight = len(n.types)
	}
	return nil
}

// SetNodeSchedulingP says in what order the node's runtime serves the programs that wait: by one of
// model.NodePolicies, or "" for what the node's own configuration says.
func (l *Library) SetNodeSchedulingP(n *Node, name string) error {
	s := model.NodeSettings{Policy: name}
	if err := s.Check(); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	n.policy, l.unsettled = name, true
	return nil
}

// SetNodeSharingP says whether programs may share the GPUs of a node: model.Shared or model.Exclusive.
// On an exclusive node the policy gives processes as many GPUs as there are, whatever SetNodeVGPUConf says, and
// the node's runtime has one virtual GPU on each.
func (l *Library) SetNodeSharingP(n *Node, name string) error {
	if name != model.Shared && name != model.Exclusive {
		return fmt.Errorf("node %s: the GPUs of a node are shared or exclusive, not %q", n.Name, name)
	}
	n.sharing, l.unsettled = name, true
	l.makeRoom()
	return nil
}

// SetNodeVGPUConf says how many processes may share a GPU of a node, and so how many virtual GPUs the node's
// runtime has on each. 0 is any number for the policy, and what its configuration says for the node.
func (l *Library) SetNodeVGPUConf(n *Node, perGPU int) error {
	if perGPU < 0 || perGPU > maxWeight {
		return fmt.Errorf("node %s: from 0 to %d processes share a GPU, not %d", n.Name, maxWeight, perGPU)
	}
	n.vgpus, l.unsettled = perGPU, true
	l.makeRoom()
	return nil
}

// settings is what the node's runtime is told.
func (l *Library) settings(n *Node) model.NodeSettings {
	return model.NodeSettings{
		VGPUs: min(n.vgpus, model.MaxVGPUs), Sharing: n.sharing, Policy: n.policy,
		Profiling: min(l.period.Seconds(), model.MostProfiling),
	}
}

// configure tells the nodes that have joined what was said of them, if they have not been told so.
func (l *Library) configure() {
	if !l.unsettled {
		return
	}
	l.unsettled = false
	for _, n := range l.nodes {
		if s := l.settings(n); !s.Equal(l.view.Settings(n.index)) {
			l.plan.Configure(n.index, s)
		}
	}
}
