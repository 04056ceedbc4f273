package policy

import (
	"fmt"
	"slices"
	"time"

	"muster/model"
)

// NodeState says what a node may be used for.
type NodeState uint8

// The states of a node.
const (
	// NodeUp nodes take jobs.
	NodeUp NodeState = iota
	// NodeDraining nodes keep running their jobs and get no new ones; their devices are not lent
	// either.
	NodeDraining
	// NodeDown nodes get no jobs. The driver ends or requeues those that ran there.
	NodeDown
)

func (s NodeState) String() string {
	switch s {
	case NodeUp:
		return "up"
	case NodeDraining:
		return "draining"
	case NodeDown:
		return "down"
	}
	return fmt.Sprintf("node state %d", uint8(s))
}

// ParseNodeState reads what String writes.
func ParseNodeState(text string) (NodeState, error) {
	for s := NodeUp; s <= NodeDown; s++ {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fmt.Errorf("a node is up, draining or down, not %q", text)
}

func (ev NodeAdded) apply(s *State) Answer {
	n := ev.Node
	never := func(err error) Answer { return Answer{Node: -1, Err: err} }
	if _, known := s.shapes.node(n.Name); known {
		return never(fmt.Errorf("there is a node %q already", n.Name))
	}
	gpus, all, err := s.merge(n.GPUs, ev.Types)
	if err != nil {
		return never(fmt.Errorf("node %s: %w", n.Name, err))
	}
	n.GPUs = gpus
	trial := model.Cluster{Nodes: []model.Node{n}, GPUTypes: all}
	if err := trial.Validate(); err != nil {
		return never(fmt.Errorf("%w", err))
	}
	i := int32(len(s.cluster.Nodes))
	s.cluster.Nodes, s.cluster.GPUTypes = append(s.cluster.Nodes, n), all
	s.shapes.nodeOf[n.Name] = i
	s.ledger.nodes, s.ledger.shared = append(s.ledger.nodes, wholeNode(&n)), append(s.ledger.shared, nil)
	if s.kept != nil {
		s.kept = append(s.kept, 0)
	}
	s.idle.grow()
	s.view.grow()
	s.grown = true
	s.windows.names, s.windows.next = map[uint64][]string{}, 0
	s.changed()
	return Answer{Node: i}
}

func (ev DevicesAdded) apply(s *State) Answer {
	n := ev.Node
	node, err := s.node(n)
	if err != nil || len(ev.GPUs) == 0 {
		return refused(err)
	}
	gpus, all, err := s.merge(ev.GPUs, ev.Types)
	if err != nil {
		return refused(fmt.Errorf("node %s: %w", node.Name, err))
	}
	more := *node
	more.GPUs = slices.Concat(node.GPUs, gpus)
	trial := model.Cluster{Nodes: []model.Node{more}, GPUTypes: all}
	if err := trial.Validate(); err != nil {
		return refused(fmt.Errorf("%w", err))
	}
	had := len(node.GPUs)
	*node, s.cluster.GPUTypes = more, all
	s.ledger.nodes[n].gpus |= wholeMask(len(more.GPUs)) &^ wholeMask(had)
	for _, v := range []*View{&s.view, s.idle} {
		v.fresh = false
		v.insertDevices(n, len(gpus))
		v.lim.begin()
		v.epoch++
	}
	s.grown = true
	s.changed()
	return Answer{}
}

// merge translates GPUs that are indexes into types into indexes into the types of the cluster, and
// returns both with the new types added.
func (s *State) merge(gpus []int, types []model.GPUType) ([]int, []model.GPUType, error) {
	all := s.cluster.GPUTypes
	if len(types) == 0 {
		return slices.Clone(gpus), all, nil
	}
	of := make([]int, len(types))
	for i, t := range types {
		of[i] = slices.IndexFunc(all, func(known model.GPUType) bool { return known.Name == t.Name })
		switch {
		case of[i] < 0:
			of[i] = len(all)
			all = append(all[:len(all):len(all)], t)
		case all[of[i]] != t:
			return nil, nil, fmt.Errorf("GPU type %s is known with other properties: give it another name", t.Name)
		}
	}
	out := make([]int, len(gpus))
	for i, g := range gpus {
		if g < 0 || g >= len(types) {
			return nil, nil, fmt.Errorf("GPU type %d is not described", g)
		}
		out[i] = of[g]
	}
	return out, all, nil
}

func (s *State) node(n int32) (*model.Node, error) {
	if uint(n) >= uint(len(s.cluster.Nodes)) {
		return nil, fmt.Errorf("there is no node number %d", n)
	}
	return &s.cluster.Nodes[n], nil
}

func (ev NodeSet) apply(s *State) Answer {
	n, st := ev.Node, ev.State
	if _, err := s.node(n); err != nil {
		return refused(err)
	}
	if st > NodeDown {
		return refused(fmt.Errorf("there is no %s", st))
	}
	if s.ledger.nodes[n].state == st {
		return Answer{}
	}
	s.ledger.nodes[n].state = st
	s.ledger.trouble = true
	s.view.fresh = false
	s.view.setOut(n, st != NodeUp)
	s.changed()
	return Answer{}
}

func (ev NodeWeighed) apply(s *State) Answer {
	node, err := s.node(ev.Node)
	if err != nil {
		return refused(err)
	}
	if ev.Weight < 0 || ev.Weight > model.MaxNodeWeight {
		return refused(fmt.Errorf("node %s: a weight is from 1 to %d, not %d", node.Name, model.MaxNodeWeight, ev.Weight))
	}
	if node.Weight == ev.Weight {
		return Answer{}
	}
	node.Weight = ev.Weight
	for _, v := range []*View{&s.view, s.idle} {
		v.order.made, v.fresh = false, false
	}
	s.grown = true // with remote GPUs, what is possible depends on the nodes that come first
	s.changed()
	return Answer{}
}

func (ev DeviceSet) apply(s *State) Answer {
	n, device := ev.Node, ev.Device
	node, err := s.node(n)
	if err != nil {
		return refused(err)
	}
	if uint(device) >= uint(len(node.GPUs)) {
		return refused(fmt.Errorf("node %s has no GPU %d", node.Name, device))
	}
	s.ledger.nodes[n].broken &^= 1 << device
	if !ev.Up {
		s.ledger.nodes[n].broken |= 1 << device
	}
	s.ledger.trouble = true
	s.view.fresh = false
	s.view.setBroken(n, device, !ev.Up)
	s.changed()
	return Answer{}
}

// changed notes that the cluster has changed: policies must refresh what they derived from it.
func (s *State) changed() {
	s.view.changes++
	s.gaveBack()
}

// settle examines the shapes again if nodes or devices were added: what they name may exist now,
// and what was impossible may have become possible.
func (s *State) settle() {
	if s.grown {
		s.lookAgain()
	}
}

func (s *State) lookAgain() {
	s.grown = false
	for _, sh := range s.shapes.list {
		// With remote GPUs even a possible shape may become impossible: first fit may now choose
		// other nodes, with fewer GPUs beside them.
		if sh.impossible != "" || sh.allowed != nil || sh.lenders != nil || sh.Request.Remote != nil {
			s.lookAgainAt(sh, false)
		}
	}
}

// lookAgainAt resolves the names of a shape again. Where the answer may have changed, or for all
// shapes if all is set, it also finds out again whether it can be granted.
func (s *State) lookAgainAt(sh *Shape, all bool) {
	was := sh.impossible
	sh.impossible = ""
	s.shapes.resolve(sh)
	if all || was != "" || sh.Request.Remote != nil {
		s.shapes.classify(sh)
		s.admit(sh)
	}
}

// SetPolicy makes another policy decide from now on. Its first step is told that all waiting jobs
// have just arrived and that everything else has changed (View.Anew). What the earlier one said of nodes no longer
// counts.
func (s *State) SetPolicy(p Policy) {
	s.settle()
	for n := range s.said {
		if !s.said[n].settings.IsZero() {
			_ = s.Configured(int32(n), model.NodeSettings{}) // nothing is wrong with that
		}
	}
	was := s.traits.Mode
	s.policy, s.traits, s.anew = p, p.Traits(), true
	if s.traits.Mode != was {
		for _, sh := range s.shapes.list {
			s.lookAgainAt(sh, true)
		}
	}
	s.queue, s.ends, s.inOrder = ordered{}, ordered{}, s.traits.Ends
	s.jobs.each(func(id JobID, e *jobEntry) {
		if s.traits.Alternatives && e.others == nil {
			e.others = s.entryOf(e.job, true).others
		}
		switch {
		case e.status == waiting && !e.held():
			s.queue.insert(s.place(id))
		case e.status == running || e.status == resuming:
			s.listEnd(id, &s.slots[e.slot])
		}
	})
	s.gaveBack()
}

// Cluster is the cluster as it is now. The caller must not change it.
func (s *State) Cluster() *model.Cluster { return s.cluster }

// NodeState is what a node may be used for.
func (s *State) NodeState(n int32) NodeState { return s.ledger.nodes[n].state }

// ---- what a policy may ask ----

// Generation grows whenever something happens that Arrived and Left do not report: nodes or devices
// are added, removed or change, and jobs are adopted, suspended or resumed. A policy that keeps its
// own picture of the cluster or of the running jobs must then rebuild it from the view. It is never
// 0.
func (v *View) Generation() uint64 { return v.changes }

// Up says whether new jobs may be placed on a node.
func (v *View) Up(n int32) bool { return v.hidden == nil || !v.hidden[n].out }

// Usable is the devices of a set that are not out of order; none if the node is not up.
func (v *View) Usable(n int32, devices uint64) uint64 { return v.usable(n, devices) }

// Capacity is what a node will have for other jobs when all running jobs have ended: nothing if it
// is not up, and not the memory that suspended jobs keep.
func (v *View) Capacity(n int32) (cores int32, memory int64, devices uint64) {
	if !v.Up(n) {
		return 0, 0, 0
	}
	node := &v.cluster.Nodes[n]
	memory = node.Memory
	if v.state.kept != nil {
		memory -= v.state.kept[n]
	}
	return int32(node.Cores), memory, v.usable(n, wholeMask(len(node.GPUs)))
}

// Impaired says that some node or device may be out of order, or that suspended
// jobs keep memory: the cluster may have less than its description says.
func (v *View) Impaired() bool { return v.hidden != nil || v.state.kept != nil }

// Running lists the running jobs and those proposed in this step, in the order of submission.
func (v *View) Running() []JobID {
	var list []JobID
	v.state.jobs.each(func(id JobID, e *jobEntry) {
		if e.status == running || e.status == resuming || e.status == proposed {
			list = append(list, id)
		}
	})
	return list
}

// Granted is the request that a job was started with; 0 is the main one.
func (v *View) Granted(id JobID) int {
	if e := v.state.jobs.at(id); e.slot >= 0 {
		return v.state.slots[e.slot].alternative
	}
	return 0
}

// ---- what a driver may ask ----

// View is what a policy would see now, between two steps.
func (s *State) View() *View {
	s.settle()
	return &s.view
}

// DeviceUp says whether a device may be used, whatever the state of its node.
func (s *State) DeviceUp(n, device int32) bool { return s.ledger.nodes[n].broken>>device&1 == 0 }

// JobState is what a state knows of a job that is not over.
type JobState struct {
	ID        JobID
	Job       *model.Job // as it was submitted
	Rank      int64
	Waiting   bool
	Suspended bool
	Stays     bool // it is suspended, and cannot be moved
	Parked    bool // it is suspended, and is to be left alone
	// For jobs that do not wait: the request that was granted, what the job holds, and when it is
	// expected to end; for suspended jobs, how long it has left to run.
	Alternative int
	Alloc       *model.Allocation
	ExpectedEnd time.Duration
	Left        time.Duration
	Measured    model.Measured
}

// Jobs calls do for every job that is not over, in the order of submission.
func (s *State) Jobs(do func(JobState)) {
	s.jobs.each(func(id JobID, e *jobEntry) {
		j := JobState{ID: id, Job: e.job, Rank: e.rank, Waiting: e.slot < 0, Suspended: e.status == suspended, Stays: e.stays, Parked: e.parked}
		if e.window != nil {
			j.Job = e.window.base
		}
		if e.slot >= 0 {
			sl := &s.slots[e.slot]
			j.Alternative, j.Alloc, j.ExpectedEnd, j.Left, j.Measured = sl.alternative, &sl.alloc, sl.expectedEnd, sl.left, sl.measured
		}
		do(j)
	})
}
