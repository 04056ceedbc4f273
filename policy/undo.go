package policy

import (
	"slices"
	"time"

	"muster/model"
)

// What follows is for policies that let another policy decide and may have to
// discard its decisions: scripts with a fallback.

// Mark is a position in a plan: what it contained at some time.
type Mark struct {
	starts, stops, resumes, limits, nodes int
	wake                                  time.Duration
	skipped                               bool
	profiles                              Profiles
	watches                               Watches
}

// Mark is the plan's current position, for UndoTo.
func (p *Plan) Mark() Mark {
	return Mark{len(p.Starts), len(p.Stops), len(p.Resumes), len(p.Limits), len(p.Nodes), p.Wake, p.Skipped, p.Profiles, p.Watches}
}

// UndoTo takes back everything that was proposed since a mark. None of it may
// come from StartAhead, which also changes the queue.
func (p *Plan) UndoTo(m Mark) {
	s := p.state
	for i := len(p.Starts) - 1; i >= m.starts; i-- {
		id := p.Starts[i].Job
		e := s.jobs.at(id)
		sl := &s.slots[e.slot]
		s.view.give(&sl.alloc)
		s.unlistEnd(id, sl)
		s.dropSlot(e)
		e.status = waiting
	}
	for i := m.stops; i < len(p.Stops); i++ {
		s.jobs.at(p.Stops[i].Job).stopping = false
	}
	for i := len(p.Resumes) - 1; i >= m.resumes; i-- {
		e := s.jobs.at(p.Resumes[i].Job)
		s.view.give(withoutMemory(&s.slots[e.slot].alloc))
		e.status = suspended
	}
	p.Starts, p.Stops, p.Resumes = p.Starts[:m.starts], p.Stops[:m.stops], p.Resumes[:m.resumes]
	p.Limits, p.Nodes, p.Wake, p.Skipped, p.Profiles, p.Watches = p.Limits[:m.limits], p.Nodes[:m.nodes], m.wake, m.skipped, m.profiles, m.watches
	s.view.epoch++ // capacity was given back, so that what was remembered about rooms is void
}

// Anew gives a step to a policy that has not seen the last ones: while do runs,
// the view reports that all waiting jobs have just arrived and that everything
// else has changed.
func (v *View) Anew(do func()) {
	arrived, left, reshaped, refused, freed := v.arrived, v.left, v.reshaped, v.refused, v.freed
	defer func() { v.arrived, v.left, v.reshaped, v.refused, v.freed = arrived, left, reshaped, refused, freed }()
	v.arrived, v.left, v.reshaped, v.refused, v.freed = v.WaitingJobs(), nil, nil, nil, true
	v.changes++
	do()
}

// WaitingJobs lists the jobs in the queue that are not proposed, in the order
// of submission.
func (v *View) WaitingJobs() []JobID {
	list := make([]JobID, 0, v.state.queue.n)
	for c := v.Queue(); ; {
		id, _, ok := c.Next()
		if !ok {
			break
		}
		if v.Waits(id) {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// PlaceOn is Place restricted to some nodes.
func (v *View) PlaceOn(sh *Shape, nodes []int32, mode Mode) *model.Allocation {
	return v.place(v.narrowed(sh, nodes), mode)
}

// PlaceOnBeside is PlaceBeside restricted to some nodes.
func (v *View) PlaceOnBeside(sh *Shape, nodes []int32, mode Mode) *model.Allocation {
	return v.PlaceBeside(v.narrowed(sh, nodes), mode)
}

// narrowed is the shape restricted to some nodes. It has no class: what
// placement finds out about it does not hold for other jobs.
func (v *View) narrowed(sh *Shape, nodes []int32) *Shape {
	out := *sh
	out.class = noClass
	out.allowed = newBitmap(len(v.nodes))
	for _, n := range nodes {
		if uint(n) < uint(len(v.nodes)) && (sh.allowed == nil || sh.allowed.has(n)) {
			out.allowed.set(n)
		}
	}
	return &out
}

// noClass is the class of shapes about which nothing is remembered.
const noClass = -1

// PlaceOf is the job's place in the queue, or the one it would have.
func (v *View) PlaceOf(id JobID) Place {
	e := v.state.place(id)
	return Place{e.rank, e.key, e.turn, e.id}
}

// Proposed says that a job was proposed to start in this step.
func (v *View) Proposed(id JobID) bool { return v.state.jobs.at(id).status == proposed }

// Suspended says that a job is suspended.
func (v *View) Suspended(id JobID) bool { return v.state.jobs.at(id).status == suspended }

// NodeNamed is the number of a node.
func (v *View) NodeNamed(name string) (int32, bool) { return v.state.shapes.node(name) }
