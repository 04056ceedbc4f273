package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/model"
)

// JobID names a job within one State. IDs grow in the order of submission.
type JobID int32

// Policy decides which jobs start. An instance serves one State. It may keep
// derived data between steps, but must be able to compute all of it again from
// the view.
type Policy interface {
	Traits() Traits
	// Step proposes what to start now.
	Step(v *View, p *Plan)
	// Why says why a waiting job was not started by the latest step.
	Why(v *View, id JobID) string
}

// Traits says what the state must maintain for a policy.
type Traits struct {
	// Order is the job's key in the queue, smallest first; ties are broken by
	// submission. Nil means submission alone.
	Order func(j *model.Job) int64
	// Mode is how the policy places jobs. A job that cannot be placed that way
	// on the idle cluster is impossible.
	Mode Mode
	// Ends keeps the running jobs in order of their estimated ends.
	Ends bool
	// Alternatives says that the policy chooses among a job's requests: a job is
	// impossible only if all of them are.
	Alternatives bool
}

type status uint8

const (
	waiting status = iota
	proposed
	running
	suspended
	resuming // a plan asked the driver to resume it; it holds everything it needs
	ended    // it is over, and the policy has not been told yet
	gone
)

type jobEntry struct {
	job    *model.Job
	shape  *Shape   // of the main request
	others []*Shape // of the alternatives, if the policy chooses among them
	rank   int64
	slot   int32 // index in State.slots if the job holds something, or -1
	status status
	window *windowed // how reservations restrict a waiting job; mostly nil
	// stopping: a plan asked the driver to stop the job, and the driver has not
	// confirmed it.
	stopping bool
	// stays: the driver could not move it. parked: the policy is to leave it alone, suspended.
	stays, parked bool
}

// as is the shape of one of the job's requests, or nil if the job has no such
// request.
func (e *jobEntry) as(alternative int) *Shape {
	switch {
	case alternative == 0:
		return e.shape
	case uint(alternative) <= uint(len(e.others)):
		return e.others[alternative-1]
	}
	return nil
}

// State is one cluster, its queue and its running jobs. It is not safe for
// concurrent use: the driver calls it from one goroutine. Its many methods are one an event (events.go),
// one a question that a driver may ask, and what events have in common.
type State struct {
	cluster *model.Cluster // a copy, since nodes may join
	traits  Traits
	policy  Policy

	shapes shapes
	jobs   jobTable
	queue  ordered
	holdings
	windows windows
	ranked  bool  // some job has had a rank
	turned  bool  // some job has had a turn
	seen    JobID // jobs with lower IDs had been submitted when the policy last had a step

	ledger ledger
	grown  bool   // nodes or devices were added: settle must examine the shapes again
	said   []said // of nodes; those at the end may be missing
	anew   bool   // SetPolicy has set a policy that has not had a step yet
	view   View
	idle   *View // an idle copy of the cluster, to recognize impossible jobs
	plan   Plan

	recorder func(Event, Answer) // see SetRecorder
}

// NewState returns an idle cluster with an empty queue, for p to decide on.
func NewState(c *model.Cluster, p Policy) *State {
	own := *c
	own.Nodes, own.GPUTypes = slices.Clone(c.Nodes), slices.Clone(c.GPUTypes)
	c = &own
	s := &State{cluster: c, policy: p, traits: p.Traits(), ledger: newLedger(c)}
	s.inOrder = s.traits.Ends
	s.shapes = newShapes(c)
	s.view = View{state: s, placer: newPlacer(newPool(c))}
	s.idle = &View{state: s, placer: newPlacer(newPool(c))}
	s.view.changes = 1
	s.plan.state = s
	return s
}

// Expect reserves memory for the given number of jobs, which saves growing
// later.
func (s *State) Expect(jobs int) { s.jobs.expect(jobs) }

// View is the state as a policy sees it during one step. Its embedded placer
// holds the working copy of the cluster, which Plan.Start changes.
// Its many methods are the questions that a policy may ask, one each; none changes anything but the view itself.
type View struct {
	state *State
	*placer
	now     time.Duration
	arrived []JobID
	left    []JobID // ended, cancelled while waiting, requeued or refused
	refused []JobID
	// reshaped: see Reshaped.
	reshaped []JobID
	freed    bool
	ranked   bool   // a waiting job's rank has changed
	changes  uint64 // see Generation

	withheld withheld

	// Scratch of ReserveEarliest.
	futures    []future
	generation uint32
	chosen     []int32
	together   []JobID
}

// ErrImpossible is wrapped by the errors that Submit returns for jobs that
// cannot run even on the idle cluster with all its nodes.
var ErrImpossible = errors.New("impossible on this cluster")

func (ev Submitted) apply(s *State) Answer {
	j := ev.Job
	e := s.entryOf(j, s.traits.Alternatives)
	if err := e.impossible(); err != nil {
		return Answer{Job: -1, Err: err}
	}
	id := s.jobs.add(e)
	s.turned = s.turned || j.Turn != 0
	s.queue.insert(s.place(id))
	s.view.arrived = append(s.view.arrived, id)
	s.windows.joined(id, j)
	return Answer{Job: id}
}

// Possible says with which error Submit would refuse a job, and changes nothing that a policy
// sees. What it finds out about the job's shapes is kept for the submission that mostly follows.
func (s *State) Possible(j *model.Job) error {
	e := s.entryOf(j, s.traits.Alternatives)
	return e.impossible()
}

// entryOf compiles the job's request, and its alternatives if the caller wants
// them.
func (s *State) entryOf(j *model.Job, alternatives bool) jobEntry {
	s.settle()
	e := jobEntry{job: j, shape: s.shapeOf(&j.Request), slot: -1}
	if alternatives && len(j.Alternatives) > 0 {
		e.others = make([]*Shape, len(j.Alternatives))
		for i := range j.Alternatives {
			e.others[i] = s.shapeOf(&j.Alternatives[i])
		}
	}
	return e
}

// impossible says why none of the job's requests can ever be granted.
func (e *jobEntry) impossible() error {
	if e.shape.impossible == "" {
		return nil
	}
	for _, sh := range e.others {
		if sh.impossible == "" {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", ErrImpossible, e.shape.impossible)
}

// shapeOf compiles a request. If its shape is new, it also finds out whether it
// can ever be granted.
func (s *State) shapeOf(r *model.Request) *Shape {
	sh, fresh := s.shapes.of(r)
	if fresh {
		s.admit(sh)
	}
	return sh
}

// admit makes a shape ready for placement, and finds out whether it can ever be
// granted.
func (s *State) admit(sh *Shape) {
	s.idle.index(sh)
	s.view.index(sh)
	if sh.impossible == "" && s.idle.place(sh, s.traits.Mode) == nil {
		sh.impossible = s.idle.Shortage(sh, s.traits.Mode)
	}
}

// place is the job's place in the queue.
func (s *State) place(id JobID) orderedEntry {
	e := s.jobs.at(id)
	return orderedEntry{rank: e.rank, key: s.key(e.job), turn: e.job.Turn, id: id, class: e.shape.class, nodes: e.shape.nodes}
}

func (s *State) key(j *model.Job) int64 {
	if s.traits.Order == nil {
		return 0
	}
	return s.traits.Order(j)
}

func (ev Cancelled) apply(s *State) Answer {
	id := ev.Job
	e, err := s.known(id)
	if err != nil {
		return refused(err)
	}
	if e.status != waiting {
		return refused(fmt.Errorf("job %s does not wait any more: stop it, and tell its end", e.job.ID))
	}
	if e.held() {
		s.windows.held--
	} else {
		s.queue.remove(s.place(id))
	}
	s.forget(id, e)
	return Answer{}
}

// forget ends a waiting job that is out of the queue.
func (s *State) forget(id JobID, e *jobEntry) {
	e.status = ended
	i := slices.Index(s.view.arrived, id)
	if i < 0 {
		s.view.left = append(s.view.left, id)
		return
	}
	// The job arrived since the last step, so the policy does not know it and
	// need not be told of either event. But a job that is also in left (it was
	// requeued or refused) is known from before: the policy must hear that it
	// left.
	s.view.arrived = slices.Delete(s.view.arrived, i, i+1)
	if !slices.Contains(s.view.left, id) {
		s.jobs.drop(id)
	}
}

func (ev Ended) apply(s *State) Answer {
	e, err := s.holder(ev.Job)
	if err != nil {
		return refused(err)
	}
	s.release(ev.Job, e)
	s.view.left = append(s.view.left, ev.Job)
	e.status = ended
	return Answer{}
}

// The policy's proposals have already changed the view. So a start that passes
// the check is only taken from the ledger, and one that is refused is given
// back to the view; ledger and view agree again when Step returns. The lists of
// what happened (arrived, left, refused) are cleared between the policy's step
// and the application, so that refusals are news for the next step.
func (ev Stepped) apply(s *State) Answer {
	now := ev.Now
	s.settle()
	p := &s.plan
	p.Starts, p.Stops, p.Resumes, p.Limits, p.Nodes = p.Starts[:0], p.Stops[:0], p.Resumes[:0], p.Limits[:0], p.Nodes[:0]
	p.Profiles, p.Watches, p.Wake, p.Skipped = SameProfiles, SameWatches, Never, false
	s.view.now = now
	s.keepToWindows(now)
	if s.anew {
		s.anew = false
		s.view.Anew(func() { s.policy.Step(&s.view, p) })
	} else {
		s.policy.Step(&s.view, p)
	}
	if s.windows.on && s.Waiting() > 0 {
		p.Wake = min(p.Wake, s.windows.wake(now))
	}
	for _, id := range s.view.left {
		if s.jobs.at(id).status == ended {
			s.jobs.drop(id)
		}
	}
	s.view.arrived, s.view.left, s.view.refused = s.view.arrived[:0], s.view.left[:0], s.view.refused[:0]
	s.view.freed, s.view.ranked = false, false
	s.seen, s.view.reshaped = s.jobs.next, s.view.reshaped[:0]
	s.applyResumes(p)
	s.applyNodes(p)
	for i := range p.Starts {
		st := &p.Starts[i]
		e := s.jobs.at(st.Job)
		st.Alloc = &s.slots[e.slot].alloc // appending to slots may have moved them since the proposal
		if st.Err = s.checkStart(e, st); st.Err != nil {
			s.free(st.Job)
			e.status = waiting
			if st.ahead {
				s.queue.insert(s.place(st.Job))
			}
			// To the policy the job has left and arrived again: it must forget
			// that it started the job, and decide anew.
			s.view.left = append(s.view.left, st.Job)
			s.view.arrived = append(s.view.arrived, st.Job)
			s.view.refused = append(s.view.refused, st.Job)
			continue
		}
		s.ledger.take(st.Alloc)
		if !st.ahead {
			s.queue.remove(s.place(st.Job))
		}
		e.status = running
	}
	return Answer{Plan: p}
}

// checkStart checks one start against the ledger, which knows nothing of the
// view's indexes.
func (s *State) checkStart(e *jobEntry, st *Start) error {
	if s.ledger.trouble {
		if err := s.ledger.checkUp(e, st.Alloc, s.cluster); err != nil {
			return err
		}
	}
	if err := s.windows.checkLenders(e, st.Alloc, s.cluster); err != nil {
		return err
	}
	return s.ledger.check(e, e.as(st.Alternative), st.Alloc, s.cluster)
}

// free gives what a job holds back to the view. It does not touch the ledger.
func (s *State) free(id JobID) {
	e := s.jobs.at(id)
	sl := &s.slots[e.slot]
	s.view.give(&sl.alloc)
	s.gaveBack()
	s.unlistEnd(id, sl)
	s.dropSlot(e)
}

// gaveBack notes that something has become free. A new epoch makes everything
// invalid that the placer has remembered about shapes that do not fit.
func (s *State) gaveBack() {
	s.view.epoch++
	s.view.freed = true
}

// Why says why a waiting job waits.
func (s *State) Why(id JobID) string {
	if s.jobs.at(id).status != waiting {
		return "it does not wait"
	}
	if e := s.jobs.at(id); e.held() {
		return e.window.held
	}
	s.settle()
	return s.policy.Why(&s.view, id)
}

// Explain says how the latest step arrived at its plan; it is nil if the policy
// does not record that.
func (s *State) Explain() *Explanation {
	if p, ok := s.policy.(Explainer); ok {
		return p.Explain(&s.view)
	}
	return nil
}

// Waiting is the number of waiting jobs, including those that reservations keep
// out of the queue.
func (s *State) Waiting() int { return s.queue.n + s.windows.held }

// Allocation is what a running, proposed or suspended job holds; nil if it
// holds nothing.
func (s *State) Allocation(id JobID) *model.Allocation {
	if e := s.jobs.at(id); e.slot >= 0 {
		return &s.slots[e.slot].alloc
	}
	return nil
}

// ---- what a policy may ask ----

// Now is the instant of the step.
func (v *View) Now() time.Duration { return v.now }

// Arrived lists the jobs that joined the queue since the last step. Jobs that
// were requeued, and jobs whose start the last step refused, are among them.
func (v *View) Arrived() []JobID { return v.arrived }

// Left lists the jobs that ended or were cancelled since the last step. Jobs
// that were requeued or whose start was refused are in Left and in Arrived.
func (v *View) Left() []JobID { return v.left }

// Refused lists the jobs of Arrived whose start the last step refused.
func (v *View) Refused() []JobID { return v.refused }

// Freed says whether anything was given back or added since the last step.
func (v *View) Freed() bool { return v.freed }

// Waiting is the number of jobs in the queue, including those proposed in this
// step.
func (v *View) Waiting() int { return v.state.queue.n }

// Queue walks the waiting jobs in the policy's order.
func (v *View) Queue() Cursor { return Cursor{o: &v.state.queue} }

// Ends walks the running and the proposed jobs in order of their expected ends.
func (v *View) Ends() Cursor { return Cursor{o: &v.state.ends} }

// Job is what the user submitted.
func (v *View) Job(id JobID) *model.Job { return v.state.jobs.at(id).job }

// Shape is what the job asks for.
func (v *View) Shape(id JobID) *Shape { return v.state.jobs.at(id).shape }

// ShapeAs is what one of the job's requests asks for: 0 is the main one. It is
// nil where the job has no such request, or it could never be granted. Policies
// that choose say so in their Traits.
func (v *View) ShapeAs(id JobID, alternative int) *Shape {
	sh := v.state.jobs.at(id).as(alternative)
	if sh != nil && sh.impossible != "" {
		return nil
	}
	return sh
}

// Requests counts the requests of a job: the main one and its alternatives.
func (v *View) Requests(id JobID) int { return 1 + len(v.state.jobs.at(id).others) }

// FreeCores is the number of free cores of a node.
func (v *View) FreeCores(n int32) int32 { return v.nodes[n].cores }

// FreeMemory is the free memory of a node.
func (v *View) FreeMemory(n int32) int64 { return v.nodes[n].memory }

// FreeGPUs is the set of a node's whole devices that are free: bit i is device
// i. If a job has the node to itself, none of them may be lent (see Closed).
func (v *View) FreeGPUs(n int32) uint64 { return v.nodes[n].gpus }

// FreeShare is the memory of a device that shares may still take.
func (v *View) FreeShare(n, device int32) int64 { return v.shareLeft(n, device) }

// Closed says that a job has the node to itself.
func (v *View) Closed(n int32) bool { return v.nodes[n].closed }

// Untouched says that nothing of a node is in use.
func (v *View) Untouched(n int32) bool { return v.untouched(n) }

// Cluster is the machine.
func (v *View) Cluster() *model.Cluster { return v.cluster }

// Held is what a running or proposed job holds.
func (v *View) Held(id JobID) *model.Allocation { return v.state.Allocation(id) }

// ExpectedEnd is the time at which a running job is expected to end. A job that
// has overrun its estimate is expected to end at the next instant.
func (v *View) ExpectedEnd(id JobID) time.Duration {
	return max(v.state.slots[v.state.jobs.at(id).slot].expectedEnd, v.now+1)
}

// Holds says whether all of a is free now.
func (v *View) Holds(a *model.Allocation) bool { return v.holds(a) }

// MayFit is a quick test. If it is false, Place would find nothing.
func (v *View) MayFit(sh *Shape, mode Mode) bool { return v.mayFit(sh, mode) }

// Room is an upper bound of the number of nodes that have what the shape asks
// of each.
func (v *View) Room(sh *Shape, mode Mode) int { return int(v.upper(sh, mode)) }

// Place finds a first fit on what is free now, or nil. The allocation is valid
// until the next call.
func (v *View) Place(sh *Shape, mode Mode) *model.Allocation { return v.place(sh, mode) }

// PlaceBeside is Place restricted to what the reservation made with Reserve
// leaves free.
func (v *View) PlaceBeside(sh *Shape, mode Mode) *model.Allocation {
	v.lim.active = true
	a := v.place(sh, mode)
	v.lim.active = false
	return a
}

// Charge takes a placement from what the reservation leaves free. The policy
// calls it for a job that it starts now and that will still run when the
// reservation begins.
func (v *View) Charge(a *model.Allocation) { v.charge(a) }

// ---- plans ----

// Plan is what a policy proposes in one step.
type Plan struct {
	state  *State
	Starts []Start
	// Stops and Resumes ask the driver to act. They free nothing by themselves:
	// the driver reports what it did with Suspended, Requeue, End and Resumed.
	Stops   []Stop
	Resumes []Resume
	// Limits set how many devices jobs may use from now on.
	Limits []Limit
	// Nodes says how nodes are to serve programs from now on.
	Nodes []NodeLine
	// Profiles says whether the driver is to tell what jobs measured, and Watches whether what it hears of nodes.
	Profiles Profiles
	Watches  Watches
	// Wake asks the driver for a step at this time even if nothing happens
	// until then: for policies that work at intervals. Never, the default, asks
	// for none.
	Wake time.Duration
	// Skipped says that the policy made no decision in this step, because it
	// works at intervals and the next one has not come.
	Skipped bool
}

// Start proposes one job.
type Start struct {
	Job JobID
	// Alternative is the request that was granted; 0 is the main one.
	Alternative int
	// Alloc is valid until the job ends.
	Alloc  *model.Allocation
	Reason Reason
	// Err is the applier's refusal.
	Err error

	ahead bool // see StartAhead
}

// Reason says why a job was started now.
type Reason struct {
	Code ReasonCode
	// Job and At name the reservation that the start respects, if there is one.
	Job JobID
	At  time.Duration
}

// ReasonCode tells the kinds of reasons apart.
type ReasonCode uint8

// Why a job was started.
const (
	InTurn     ReasonCode = iota // it was first in the queue
	Overtook                     // it fits, and the policy lets jobs overtake
	EndsBefore                   // it will have ended when the reservation begins
	Beside                       // it leaves the reservation what it needs
	Reserved                     // the time of its own reservation has come
	Won                          // its bid won the auction
	Fitted                       // it fits best into what is free
	MakesWay                     // it is stopped for another job
)

// Text says the reason to people.
func (r Reason) Text(v *View) string {
	at := func() string {
		return fmt.Sprintf("the reservation of job %s at %s", v.Job(r.Job).ID, v.Clock(r.At))
	}
	switch r.Code {
	case Overtook:
		return "it fits now, and jobs may overtake"
	case EndsBefore:
		return "it ends before " + at()
	case Beside:
		return "it leaves room for " + at()
	case Reserved:
		return "its reservation has come"
	case Won:
		return "its bid won the auction"
	case Fitted:
		return "it fits best into what is free"
	case MakesWay:
		if r.Job < 0 {
			return "the policy stops it"
		}
		return "it makes way for job " + v.Job(r.Job).ID
	default:
		return "it was its turn"
	}
}

// Start proposes to start a job on a, which is taken from the view at once. It
// returns false, and proposes nothing, if a is not free in the view or the job
// is not waiting.
func (p *Plan) Start(id JobID, a *model.Allocation, why Reason) bool {
	return p.StartAs(id, 0, a, why)
}

// StartAs proposes to start a job with one of its requests; 0 is the main one.
func (p *Plan) StartAs(id JobID, alternative int, a *model.Allocation, why Reason) bool {
	s := p.state
	e := s.jobs.at(id)
	if e.status != waiting || e.as(alternative) == nil || !s.view.justPlaced(a) && (!s.view.sane(a) || !s.view.holds(a)) {
		return false
	}
	s.view.take(a)
	e.status = proposed
	sl := s.hold(id, e, alternative, a, s.view.now)
	p.Starts = append(p.Starts, Start{Job: id, Alternative: alternative, Alloc: &sl.alloc, Reason: why})
	return true
}

// View is the state that the plan was made for.
func (p *Plan) View() *View { return &p.state.view }

// sane checks that a names nodes and devices that exist.
func (p *pool) sane(a *model.Allocation) bool {
	for i := range a.Parts {
		n := a.Parts[i].Node
		if uint(n) >= uint(len(p.nodes)) || a.Parts[i].Cores < 0 || a.Parts[i].Memory < 0 {
			return false
		}
	}
	for _, g := range a.Grants {
		if uint(g.Node) >= uint(len(p.nodes)) || uint(g.For) >= uint(len(a.Parts)) || g.Memory < 0 ||
			uint(g.Device) >= uint(p.firstDevice[g.Node+1]-p.firstDevice[g.Node]) {
			return false
		}
	}
	return true
}
