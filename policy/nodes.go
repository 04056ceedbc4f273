package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"muster/model"
)

// What a policy says of nodes, and hears of them; and which nodes come first.

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

// order says which nodes a job is to have first. Nodes with smaller weights come first. Among nodes of
// one weight, a job that asks for no GPU gets those with fewer GPUs first: whoever needs the others can go
// nowhere else. Nodes that are alike in this are a tier; within a tier the order is the cluster's.
//
// It is made when it is first asked for, and made again after nodes, devices or weights have changed.
type order struct {
	made bool
	with tiers // for jobs that ask for GPUs
	none tiers // for those that do not
}

// tiers is the nodes in groups: those of an earlier one are to be taken first.
type tiers struct {
	sets []bitmap
	upTo []bitmap // upTo[i] has the nodes of sets[0] to sets[i]
	of   []int32  // by node, its tier
}

// weightOf is the weight of a node; one that nobody has weighed has Slurm's default.
func weightOf(n *model.Node) int { return cmp.Or(n.Weight, 1) }

func (o *order) make(c *model.Cluster, all bitmap) {
	o.made = true
	o.with, o.none = tiersOf(c, all, true), tiersOf(c, all, false)
}

// rankOfNode is what nodes of one tier have in common.
type rankOfNode struct{ weight, gpus int }

func (a rankOfNode) compare(b rankOfNode) int {
	return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.gpus, b.gpus))
}

// Tiers groups the nodes of a cluster for jobs that ask for GPUs, or for those that do not: by node the number of its
// tier, and how many tiers there are.
func Tiers(c *model.Cluster, gpus bool) (of []int32, count int) {
	rank := func(n *model.Node) rankOfNode {
		if gpus {
			return rankOfNode{weightOf(n), 0}
		}
		return rankOfNode{weightOf(n), len(n.GPUs)}
	}
	var ranks []rankOfNode
	for i := range c.Nodes {
		if at, found := slices.BinarySearchFunc(ranks, rank(&c.Nodes[i]), rankOfNode.compare); !found {
			ranks = slices.Insert(ranks, at, rank(&c.Nodes[i]))
		}
	}
	of = make([]int32, len(c.Nodes))
	for i := range c.Nodes {
		at, _ := slices.BinarySearchFunc(ranks, rank(&c.Nodes[i]), rankOfNode.compare)
		of[i] = int32(at)
	}
	return of, len(ranks)
}

func tiersOf(c *model.Cluster, all bitmap, gpus bool) (t tiers) {
	of, count := Tiers(c, gpus)
	if t.of = of; count <= 1 {
		t.sets, t.upTo = []bitmap{all}, []bitmap{all}
		return t
	}
	for k := range int32(count) {
		set, upTo := make(bitmap, len(all)), make(bitmap, len(all))
		for n, tier := range of {
			if tier == k {
				set.set(int32(n))
			}
			if tier <= k {
				upTo.set(int32(n))
			}
		}
		t.sets, t.upTo = append(t.sets, set), append(t.upTo, upTo)
	}
	return t
}

// tiersFor is the order of nodes for a shape. The queues of the TSUBAME paper (Alone and Borrowing) take nodes in the
// order of the cluster, as the paper has it.
func (pl *placer) tiersFor(sh *Shape, mode Mode) *tiers {
	if !pl.order.made {
		pl.order.make(pl.cluster, pl.gpuSteps.all)
		pl.alike = tiers{sets: []bitmap{pl.gpuSteps.all}, upTo: []bitmap{pl.gpuSteps.all}}
	}
	switch {
	case mode != Sharing:
		return &pl.alike
	case sh.gpus > 0 || sh.Request.Remote != nil:
		return &pl.order.with
	}
	return &pl.order.none
}

// before says which of two nodes a job gets first.
func (t *tiers) before(a, b int32) int {
	return cmp.Or(cmp.Compare(t.of[a], t.of[b]), cmp.Compare(a, b))
}

// inNodeOrder sorts parts that were taken tier by tier, with the shares of devices on their own nodes: an allocation is
// in node order.
func (pl *placer) inNodeOrder() {
	byNode := func(a, b model.Part) int { return cmp.Compare(a.Node, b.Node) }
	if slices.IsSortedFunc(pl.out.Parts, byNode) {
		return
	}
	slices.SortFunc(pl.out.Parts, byNode)
	for i := range pl.out.Grants {
		g := &pl.out.Grants[i]
		at, _ := slices.BinarySearchFunc(pl.out.Parts, g.Node, func(p model.Part, n int32) int { return cmp.Compare(p.Node, n) })
		g.For = int32(at)
	}
	slices.SortStableFunc(pl.out.Grants, func(a, b model.Grant) int { return cmp.Compare(a.For, b.For) })
}
