package policy

import (
	"slices"
	"time"

	"muster/model"
)

// What follows is for policies that let another decide, and may have to think again:
// scripts with a fallback.

// Mark is how far a plan has come.
type Mark struct {
	starts, stops, resumes, limits int
	wake                           time.Duration
	skipped                        bool
}

// Mark is where the plan stands now, for UndoTo.
func (p *Plan) Mark() Mark {
	return Mark{len(p.Starts), len(p.Stops), len(p.Resumes), len(p.Limits), p.Wake, p.Skipped}
}

// UndoTo takes back what was proposed since a mark, as if it had never been. It must
// not be asked to take back what StartAhead proposed.
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
	p.Limits, p.Wake, p.Skipped = p.Limits[:m.limits], m.wake, m.skipped
	s.view.epoch++ // what was found out about room holds no more
}

// Anew lets a policy that has not seen the last steps have this one: for the time of
// do the view tells that all who wait have come now, and that all else has changed.
func (v *View) Anew(do func()) {
	arrived, left, reshaped, refused, freed := v.arrived, v.left, v.reshaped, v.refused, v.freed
	defer func() { v.arrived, v.left, v.reshaped, v.refused, v.freed = arrived, left, reshaped, refused, freed }()
	v.arrived, v.left, v.reshaped, v.refused, v.freed = v.WaitingJobs(), nil, nil, nil, true
	v.changes++
	do()
}

// WaitingJobs lists the jobs in the queue that are not proposed, in the order of submission.
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

// PlaceOn is Place on some nodes alone.
func (v *View) PlaceOn(sh *Shape, nodes []int32, mode Mode) *model.Allocation {
	return v.place(v.narrowed(sh, nodes), mode)
}

// PlaceOnBeside is PlaceBeside on some nodes alone.
func (v *View) PlaceOnBeside(sh *Shape, nodes []int32, mode Mode) *model.Allocation {
	return v.PlaceBeside(v.narrowed(sh, nodes), mode)
}

// narrowed is a shape that may use some nodes only. It is for one placement: what is
// found out about its class would not hold for others.
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

// noClass is the class of shapes of which nothing is remembered.
const noClass = -1

// PlaceOf is where a job stands in the queue, or would.
func (v *View) PlaceOf(id JobID) Place {
	e := v.state.place(id)
	return Place{e.rank, e.key, e.id}
}

// Proposed says that a job was proposed to start in this step.
func (v *View) Proposed(id JobID) bool { return v.state.jobs.at(id).status == proposed }

// Suspended says that a job is suspended.
func (v *View) Suspended(id JobID) bool { return v.state.jobs.at(id).status == suspended }

// NodeNamed is the number of a node.
func (v *View) NodeNamed(name string) (int32, bool) { return v.state.shapes.node(name) }
