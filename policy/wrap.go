package policy

import (
	"slices"
	"time"

	"muster/model"
)

// What follows is for policies that wrap another one: they act before the inner
// policy has its step, and hide from it what is already promised.

// StartAhead proposes to start a job before the inner policy has its step. The
// job leaves the queue at once. The inner policy is told that it left and that
// something changed, and finds it among the running jobs.
func (p *Plan) StartAhead(id JobID, a *model.Allocation, why Reason) bool {
	if !p.Start(id, a, why) {
		return false
	}
	p.Starts[len(p.Starts)-1].ahead = true
	s := p.state
	s.queue.remove(s.place(id))
	if i := slices.Index(s.view.arrived, id); i >= 0 {
		s.view.arrived = slices.Delete(s.view.arrived, i, i+1)
	} else {
		s.view.left = append(s.view.left, id)
	}
	s.view.changes++
	return true
}

// Redraw makes the inner policy rebuild its picture of the cluster and try all
// waiting jobs. The wrapper calls it when it withholds something else than in
// the step before.
func (v *View) Redraw() { v.state.changed() }

// withheld is what Withhold has taken from the view although it is free.
type withheld struct {
	parts  []model.Part
	grants []withheldGrant
}

type withheldGrant struct {
	model.Grant
	borrowed bool
}

// Withhold hides what is free of an allocation until Release.
func (v *View) Withhold(a *model.Allocation) {
	v.fresh = false
	for i := range a.Parts {
		p, n := a.Parts[i], &v.nodes[a.Parts[i].Node]
		if n.closed || !v.Up(p.Node) {
			continue
		}
		p.Cores, p.Memory, p.GPUs, p.Exclusive = min(p.Cores, n.cores), min(p.Memory, n.memory), p.GPUs&n.gpus, false
		v.takePart(&p)
		v.withheld.parts = append(v.withheld.parts, p)
	}
	for _, g := range a.Grants {
		if v.Up(g.Node) && v.holds(&model.Allocation{Grants: []model.Grant{g}}) {
			w := withheldGrant{g, a.Borrowed(g)}
			v.takeGrant(g, w.borrowed)
			v.withheld.grants = append(v.withheld.grants, w)
		}
	}
}

// Release gives back to the view what was withheld.
func (v *View) Release() {
	v.fresh = false
	for _, g := range v.withheld.grants {
		v.giveGrant(g.Grant, g.borrowed)
	}
	for i := range v.withheld.parts {
		v.givePart(&v.withheld.parts[i])
	}
	if len(v.withheld.parts)+len(v.withheld.grants) > 0 {
		v.epoch++
	}
	v.withheld.parts, v.withheld.grants = v.withheld.parts[:0], v.withheld.grants[:0]
}

// Suppose places a shape as if some jobs had been stopped and some allocations
// had been taken; nil if it does not fit even then. It ignores jobs that no
// longer run and allocations that are no longer free.
func (v *View) Suppose(stopped []Stop, taken []*model.Allocation, sh *Shape, mode Mode) *model.Allocation {
	v.fresh = false
	v.checkpoint()
	defer v.rollback()
	for _, s := range stopped {
		e := v.state.jobs.at(s.Job)
		if e.status != running {
			continue
		}
		a := &v.state.slots[e.slot].alloc
		if s.How == Suspend || s.How == Move {
			a = withoutMemory(a)
		}
		v.give(a)
	}
	for _, a := range taken {
		if v.holds(a) {
			v.take(a)
		}
	}
	return v.place(sh, mode)
}

// Stopping says that a plan has asked the driver to stop a job and the driver
// has not confirmed it.
func (v *View) Stopping(id JobID) bool { return v.state.jobs.at(id).stopping }

// Waits says that a job waits and was not proposed in this step.
func (v *View) Waits(id JobID) bool { return v.state.jobs.at(id).status == waiting }

// StartedAt is when a running or suspended job was started.
func (v *View) StartedAt(id JobID) time.Duration {
	if e := v.state.jobs.at(id); e.slot >= 0 {
		return v.state.slots[e.slot].started
	}
	return 0
}

// StandStill lists the suspended jobs that are not being stopped, in the order
// of submission.
func (v *View) StandStill() []JobID {
	var list []JobID
	if v.state.kept == nil {
		return nil
	}
	v.state.jobs.each(func(id JobID, e *jobEntry) {
		if e.status == suspended && !e.stopping {
			list = append(list, id)
		}
	})
	return list
}

// Parked says that a suspended job is to be left alone.
func (v *View) Parked(id JobID) bool { return v.state.jobs.at(id).parked }

// CanStop says that Plan.Stop would accept a running job.
func (v *View) CanStop(id JobID) bool {
	e := v.state.jobs.at(id)
	return e.status == running && !e.stopping && !e.job.Fixed
}
