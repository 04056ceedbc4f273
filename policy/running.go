package policy

import (
	"fmt"
	"math/bits"

	"muster/model"
)

func (ev Adopted) apply(s *State) Answer {
	j, a := ev.Job, ev.Alloc
	never := func(err error) Answer { return Answer{Job: -1, Err: err} }
	if ev.Alternative < 0 || ev.Alternative > len(j.Alternatives) {
		return never(fmt.Errorf("job %s has no alternative %d", j.ID, ev.Alternative))
	}
	e := s.entryOf(j, s.traits.Alternatives || ev.Alternative > 0)
	if !s.view.sane(a) {
		return never(fmt.Errorf("job %s: its allocation names a node or a GPU that does not exist", j.ID))
	}
	if err := s.ledger.check(&e, e.as(ev.Alternative), a, s.cluster); err != nil {
		return never(fmt.Errorf("%w", err))
	}
	e.status = running
	s.turned = s.turned || j.Turn != 0
	id := s.jobs.add(e)
	kept := s.jobs.at(id)
	s.view.take(a)
	s.ledger.take(a)
	s.hold(id, kept, ev.Alternative, a, ev.Started)
	s.view.changes++
	return Answer{Job: id}
}

// holder is the entry of a job that holds something: one that runs or is suspended.
func (s *State) holder(id JobID) (*jobEntry, error) {
	e, err := s.known(id)
	if err == nil && (e.slot < 0 || e.status == proposed) {
		err = fmt.Errorf("job %s does not run", e.job.ID)
	}
	return e, err
}

// release gives back everything that a job holds, to ledger and view.
func (s *State) release(id JobID, e *jobEntry) {
	e.stopping, e.parked = false, false
	a := &s.slots[e.slot].alloc
	if e.status != suspended {
		s.ledger.give(a)
		s.free(id)
		return
	}
	s.ledger.giveMemory(a)
	s.view.fresh = false
	s.view.giveMemory(a)
	s.keep(a, -1, len(s.cluster.Nodes))
	s.changed()
	s.dropSlot(e)
}

func (ev Requeued) apply(s *State) Answer {
	id := ev.Job
	e, err := s.holder(id)
	if err != nil {
		return refused(err)
	}
	s.settle()
	s.release(id, e)
	s.view.left = append(s.view.left, id)
	if err := e.impossible(); err != nil {
		e.status = ended
		return refused(fmt.Errorf("job %s cannot be requeued: %w", e.job.ID, err))
	}
	e.status, e.stays = waiting, false
	s.queue.insert(s.place(id))
	s.view.arrived = append(s.view.arrived, id)
	s.windows.joined(id, e.job)
	return Answer{}
}

func (ev Suspended) apply(s *State) Answer {
	id := ev.Job
	e, err := s.holder(id)
	if err != nil {
		return refused(err)
	}
	if e.status == suspended {
		return refused(fmt.Errorf("job %s is suspended already", e.job.ID))
	}
	sl := &s.slots[e.slot]
	still := withoutMemory(&sl.alloc)
	s.ledger.give(still)
	s.view.give(still)
	s.keep(&sl.alloc, 1, len(s.cluster.Nodes))
	s.unlistEnd(id, sl)
	sl.left = max(0, sl.expectedEnd-s.view.now)
	e.status, e.stopping = suspended, false
	s.changed()
	return Answer{}
}

// sleeper is the entry of a suspended job.
func (s *State) sleeper(id JobID) (*jobEntry, error) {
	e, err := s.holder(id)
	if err == nil && e.status != suspended {
		err = fmt.Errorf("job %s is not suspended", e.job.ID)
	}
	return e, err
}

func (ev Parked) apply(s *State) Answer {
	e, err := s.sleeper(ev.Job)
	if err != nil {
		return refused(err)
	}
	e.parked = true
	s.view.changes++
	return Answer{}
}

func (ev Stays) apply(s *State) Answer {
	e, err := s.sleeper(ev.Job)
	if err != nil {
		return refused(err)
	}
	e.stopping, e.parked, e.stays = false, false, true
	s.view.changes++
	return Answer{}
}

func (ev Resumed) apply(s *State) Answer {
	id := ev.Job
	e, err := s.holder(id)
	if err != nil {
		return refused(err)
	}
	switch {
	case e.status == resuming:
		e.status = running
		return Answer{}
	case e.status == running && e.stopping:
		e.stopping = false
		return Answer{}
	case e.status == running:
		return refused(fmt.Errorf("job %s runs already", e.job.ID))
	}
	if err := s.ledger.checkResume(e, &s.slots[e.slot].alloc, s.cluster); err != nil {
		return refused(fmt.Errorf("%w", err))
	}
	still := withoutMemory(&s.slots[e.slot].alloc)
	s.ledger.take(still)
	s.view.take(still)
	s.runAgain(id, e)
	e.status = running
	return Answer{}
}

// runAgain notes that a suspended job holds everything it needs again.
func (s *State) runAgain(id JobID, e *jobEntry) {
	sl := &s.slots[e.slot]
	s.keep(&sl.alloc, -1, len(s.cluster.Nodes))
	sl.expectedEnd = model.After(s.view.now, sl.left)
	s.listEnd(id, sl)
	e.stopping, e.parked = false, false
	s.view.changes++
}

// withoutMemory is what a suspended job gives back.
func withoutMemory(a *model.Allocation) *model.Allocation {
	out := &model.Allocation{Parts: append([]model.Part(nil), a.Parts...), Grants: a.Grants}
	for i := range out.Parts {
		out.Parts[i].Memory = 0
	}
	return out
}

// giveMemory frees what a suspended job kept.
func (l *ledger) giveMemory(a *model.Allocation) {
	for i := range a.Parts {
		l.nodes[a.Parts[i].Node].memory += a.Parts[i].Memory
	}
}

// checkResume says why a suspended job cannot run again where it was.
func (l *ledger) checkResume(e *jobEntry, a *model.Allocation, c *model.Cluster) error {
	refuse := func(n int32, why string) error {
		return fmt.Errorf("job %s cannot be resumed: %s of node %s", e.job.ID, why, c.Nodes[n].Name)
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		node := &l.nodes[p.Node]
		switch {
		case node.state == NodeDown:
			return fmt.Errorf("job %s cannot be resumed: node %s is down", e.job.ID, c.Nodes[p.Node].Name)
		case p.GPUs&node.broken != 0:
			return refuse(p.Node, fmt.Sprintf("GPU %d is out of order", bits.TrailingZeros64(p.GPUs&node.broken)))
		case node.closed || p.Cores > node.cores:
			return refuse(p.Node, "others have the cores")
		case p.GPUs&^node.gpus != 0 || p.Exclusive && node.gpus != wholeMask(len(c.Nodes[p.Node].GPUs)):
			return refuse(p.Node, "others have GPUs")
		}
	}
	for _, g := range a.Grants {
		node := &l.nodes[g.Node]
		if node.state == NodeDown || node.broken>>g.Device&1 != 0 {
			return refuse(g.Node, fmt.Sprintf("GPU %d is out of order", g.Device))
		}
		free := node.gpus>>g.Device&1 != 0
		used := int64(0)
		if l.shared[g.Node] != nil {
			used = l.shared[g.Node][g.Device]
		}
		if node.closed || g.Memory == 0 && !free ||
			g.Memory > 0 && (!free && used == 0 || used+g.Memory > c.GPUTypes[c.Nodes[g.Node].GPUs[g.Device]].Memory) {
			return refuse(g.Node, "others have GPUs")
		}
	}
	return nil
}

// ---- plans ----

// How says what is to be done with a job that is stopped.
type How uint8

// The ways to stop a job.
const (
	Suspend How = iota // it pauses, and keeps the memory of its nodes
	// Move suspends it and then, where its driver can save what it has done, puts it back into the queue,
	// to go on from there wherever there is room. A driver that cannot says Stays.
	Move
	Requeue // it ends, and goes back to the queue
	Cancel  // it ends
)

func (h How) String() string { return [...]string{"suspend", "move", "requeue", "cancel"}[h] }

// Stop asks the driver to stop a job.
type Stop struct {
	Job JobID
	How How
	// For is the job that is to get its place; -1 for none in particular.
	For    JobID
	Reason Reason
}

// Resume asks the driver to let a suspended job run again. From then on the state keeps what the
// job needs for it.
type Resume struct {
	Job JobID
	// Err is the applier's refusal.
	Err error
}

// Stop proposes to stop a job in favour of another one (in), or of none: -1. It frees nothing. It
// returns false, and proposes nothing, if the job does not run (or is suspended already and how is
// Suspend), is fixed, is being stopped, or is parked or cannot be moved and how is Move, or if the other job
// does not wait.
func (p *Plan) Stop(id JobID, how How, in JobID) bool {
	e := p.state.jobs.at(id)
	switch {
	case how > Cancel, e.stopping, e.job.Fixed, how == Move && (e.stays || e.parked), in >= 0 && p.state.jobs.at(in).status != waiting:
		return false
	case e.status == running, e.status == suspended && how != Suspend:
	default:
		return false
	}
	e.stopping = true
	p.Stops = append(p.Stops, Stop{Job: id, How: how, For: in, Reason: Reason{Code: MakesWay, Job: in}})
	return true
}

// Resume proposes to let a suspended job run again, and takes what it needs from the view at once.
// It returns false, and proposes nothing, if that is not free, or if the job is parked.
func (p *Plan) Resume(id JobID) bool {
	s := p.state
	e := s.jobs.at(id)
	if e.status != suspended || e.stopping || e.parked {
		return false
	}
	still := withoutMemory(&s.slots[e.slot].alloc)
	if !s.view.holds(still) {
		return false
	}
	s.view.take(still)
	e.status = resuming
	p.Resumes = append(p.Resumes, Resume{Job: id})
	return true
}

// Limit asks the driver to let a job use fewer of the devices that it holds, or more of them again.
// It frees nothing.
type Limit struct {
	Job JobID
	// Devices is the number on each of the job's nodes; -1 means all.
	Devices int
}

// Limit proposes how many devices a running, proposed or suspended job may use. It returns false,
// and proposes nothing, for other jobs and for numbers below -1 or 0: a job that is to use no
// device must be suspended.
func (p *Plan) Limit(id JobID, devices int) bool {
	if e := p.state.jobs.at(id); e.slot < 0 || devices < -1 || devices == 0 {
		return false
	}
	p.Limits = append(p.Limits, Limit{Job: id, Devices: devices})
	return true
}

// applyResumes checks the resumes of a plan against the ledger and enters them. A refused one is
// given back to the view.
func (s *State) applyResumes(p *Plan) {
	for i := range p.Resumes {
		r := &p.Resumes[i]
		e := s.jobs.at(r.Job)
		a := &s.slots[e.slot].alloc
		still := withoutMemory(a)
		if r.Err = s.ledger.checkResume(e, a, s.cluster); r.Err != nil {
			s.view.give(still)
			s.gaveBack()
			e.status = suspended
			continue
		}
		s.ledger.take(still)
		s.runAgain(r.Job, e)
	}
}
