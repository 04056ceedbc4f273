package policy

import (
	"fmt"
	"time"

	"muster/model"
)

// What a policy says of nodes, and hears of them.

// NodeLine is a line of a plan: how the runtime of a node is to serve programs from now on, in place of what an
// earlier line said. The driver tells the node.
type NodeLine struct {
	Node     int32
	Settings model.NodeSettings
	Err      error // the applier's refusal
}

// Configure proposes how the runtime of a node is to serve programs. What is left out is as the driver's and the
// node's administrators have it. It holds until the policy says otherwise, or another takes its place.
func (p *Plan) Configure(n int32, s model.NodeSettings) {
	p.Nodes = append(p.Nodes, NodeLine{Node: n, Settings: s})
}

// Watch asks the driver to tell from now on what it hears of nodes (NodeHeard), or no more.
func (p *Plan) Watch(yes bool) {
	if p.Watches = StopWatching; yes {
		p.Watches = StartWatching
	}
}

// Watches says whether the driver is to tell NodeHeard.
type Watches uint8

// What a plan says of that.
const (
	SameWatches Watches = iota // go on as before; at first not to tell it
	StartWatching
	StopWatching
)

// Heard is what the driver knows of a node from the node itself.
type Heard struct {
	// Alive says that the node's session is, and At when the node said something last, also if it is not.
	Alive bool
	At    time.Duration
	// Reported is when it said last how many programs have a device there (Assigned), and how many want one
	// and have none (Waiting); it says so when that changes. Never: it has not.
	Reported          time.Duration
	Assigned, Waiting int
}

// Settings is what the policy has said of a node.
func (v *View) Settings(n int32) model.NodeSettings { return v.state.SettingsOf(n) }

// Heard is what the driver has told last of a node; false if it has not, as in the simulator.
func (v *View) Heard(n int32) (Heard, bool) {
	if int(n) >= len(v.state.said) || v.state.said[n].heard == nil {
		return Heard{}, false
	}
	return *v.state.said[n].heard, true
}

// SettingsOf is what the policy has said of a node.
func (s *State) SettingsOf(n int32) model.NodeSettings {
	if uint(n) >= uint(len(s.said)) {
		return model.NodeSettings{}
	}
	return s.said[n].settings
}

// HeardOf is what the driver has told last of a node; nil if it has not.
func (s *State) HeardOf(n int32) *Heard {
	if uint(n) >= uint(len(s.said)) {
		return nil
	}
	return s.said[n].heard
}

// said is what the policy said of a node, and what the driver heard of it.
type said struct {
	settings model.NodeSettings
	heard    *Heard
}

// saidOf makes room for what is said of a node.
func (s *State) saidOf(n int32) (*said, error) {
	if uint(n) >= uint(len(s.cluster.Nodes)) {
		return nil, fmt.Errorf("there is no node %d", n)
	}
	for len(s.said) < len(s.cluster.Nodes) {
		s.said = append(s.said, said{})
	}
	return &s.said[n], nil
}

func (ev NodeConfigured) apply(s *State) Answer {
	if err := ev.Settings.Check(); err != nil {
		return refused(err)
	}
	about, err := s.saidOf(ev.Node)
	if err != nil {
		return refused(err)
	}
	about.settings = ev.Settings
	return Answer{}
}

func (ev NodeHeard) apply(s *State) Answer {
	h := ev.Heard
	if h.Assigned < 0 || h.Waiting < 0 || h.At < 0 || h.Reported < 0 {
		return refused(fmt.Errorf("node %d: %d and %d programs, heard at %v", ev.Node, h.Assigned, h.Waiting, h.At))
	}
	about, err := s.saidOf(ev.Node)
	if err != nil {
		return refused(err)
	}
	about.heard = &h
	return Answer{}
}

// applyNodes takes over what a plan says of nodes.
func (s *State) applyNodes(p *Plan) {
	for i := range p.Nodes {
		p.Nodes[i].Err = NodeConfigured{p.Nodes[i].Node, p.Nodes[i].Settings}.apply(s).Err
	}
}

// Configured says NodeConfigured.
func (s *State) Configured(n int32, settings model.NodeSettings) error {
	return tell(s, NodeConfigured{n, settings}).Err
}

// Hear says NodeHeard.
func (s *State) Hear(n int32, h Heard) error { return tell(s, NodeHeard{n, h}).Err }
