package policy

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"muster/model"
)

// JobID names a job within one State. IDs grow in the order of submission.
type JobID int32

// Policy decides. An instance serves one State; it may keep what it derived
// between steps, but everything it needs can be read again from the view.
type Policy interface {
	Traits() Traits
	// Step proposes what to start now.
	Step(v *View, p *Plan)
	// Why says why a waiting job was not started by the latest step.
	Why(v *View, id JobID) string
}

// Traits is what the state must keep for a policy.
type Traits struct {
	// Order is the job's key in the queue, smallest first; ties are broken by
	// submission. Nil means submission alone.
	Order func(j *model.Job) int64
	// Mode is how the policy places jobs. What cannot be placed so on the idle
	// cluster is impossible.
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
	ended
)

type jobEntry struct {
	job    *model.Job
	shape  *Shape   // of the main request
	others []*Shape // of the alternatives, where the policy chooses
	rank   int64
	slot   int32 // of a running job
	status status
}

// as is the shape of one of the job's requests; nil if it has no such.
func (e *jobEntry) as(alternative int) *Shape {
	switch {
	case alternative == 0:
		return e.shape
	case uint(alternative) <= uint(len(e.others)):
		return e.others[alternative-1]
	}
	return nil
}

type slot struct {
	alloc       model.Allocation
	expectedEnd time.Duration
}

// State is one cluster, its queue and its running jobs.
type State struct {
	cluster *model.Cluster
	traits  Traits
	policy  Policy

	shapes shapes
	jobs   []jobEntry
	slots  []slot
	vacant []int32
	queue  ordered
	ends   ordered
	ranked bool // some job has had a rank

	ledger ledger
	view   View
	idle   *View // an idle cluster, to tell the impossible
	plan   Plan
	grants grantStore
}

// NewState returns an idle cluster with an empty queue, for p to decide on.
func NewState(c *model.Cluster, p Policy) *State {
	s := &State{cluster: c, policy: p, traits: p.Traits(), ledger: newLedger(c)}
	s.shapes = shapes{cluster: c, byKey: map[shapeKey]*Shape{}, byNode: map[nodeNeed]int32{}}
	s.view = View{state: s, placer: newPlacer(newPool(c))}
	s.idle = &View{state: s, placer: newPlacer(newPool(c))}
	s.plan.state = s
	return s
}

// Expect makes room for so many jobs in all; it saves growing.
func (s *State) Expect(jobs int) { s.jobs = slices.Grow(s.jobs, max(0, jobs-len(s.jobs))) }

// View is the state as a policy sees it during one step.
type View struct {
	state *State
	*placer
	now     time.Duration
	arrived []JobID
	left    []JobID // ended, cancelled while waiting, or refused
	freed   bool
	ranked  bool // a waiting job has got another rank

	// Scratch of ReserveEarliest.
	futures    []future
	generation uint32
	chosen     []int32
	together   []JobID
}

// ErrImpossible is wrapped by the errors of Submit for jobs that cannot run
// even on the idle cluster.
var ErrImpossible = errors.New("impossible on this cluster")

// Submit puts a job into the queue. The job must not change afterwards.
func (s *State) Submit(j *model.Job) (JobID, error) {
	sh := s.shapeOf(&j.Request)
	var others []*Shape
	possible := sh.impossible == ""
	if s.traits.Alternatives && len(j.Alternatives) > 0 {
		others = make([]*Shape, len(j.Alternatives))
		for i := range j.Alternatives {
			others[i] = s.shapeOf(&j.Alternatives[i])
			possible = possible || others[i].impossible == ""
		}
	}
	if !possible {
		return -1, fmt.Errorf("%w: %s", ErrImpossible, sh.impossible)
	}
	id := JobID(len(s.jobs))
	s.jobs = append(s.jobs, jobEntry{job: j, shape: sh, others: others, slot: -1})
	s.queue.insert(s.place(id))
	s.view.arrived = append(s.view.arrived, id)
	return id, nil
}

// shapeOf compiles a request, and finds out whether it can ever be granted.
func (s *State) shapeOf(r *model.Request) *Shape {
	sh, fresh := s.shapes.of(r)
	if fresh {
		s.idle.index(sh)
		s.view.index(sh)
		if sh.impossible == "" && s.idle.place(sh, s.traits.Mode) == nil {
			sh.impossible = s.idle.Shortage(sh, s.traits.Mode)
		}
	}
	return sh
}

// place is where a job stands in the queue.
func (s *State) place(id JobID) orderedEntry {
	e := &s.jobs[id]
	return orderedEntry{rank: e.rank, key: s.key(e.job), id: id, class: e.shape.class, nodes: e.shape.nodes}
}

func (s *State) key(j *model.Job) int64 {
	if s.traits.Order == nil {
		return 0
	}
	return s.traits.Order(j)
}

// known is the entry of a job that is not over.
func (s *State) known(id JobID) (*jobEntry, error) {
	if uint(id) >= uint(len(s.jobs)) {
		return nil, fmt.Errorf("policy: there is no job %d", id)
	}
	e := &s.jobs[id]
	if e.status == ended {
		return nil, fmt.Errorf("policy: job %s is over", e.job.ID)
	}
	return e, nil
}

// Cancel takes a waiting job out of the queue.
func (s *State) Cancel(id JobID) error {
	e := &s.jobs[id]
	if e.status != waiting {
		return fmt.Errorf("job %s does not wait any more", e.job.ID)
	}
	s.queue.remove(s.place(id))
	e.status = ended
	if i := slices.Index(s.view.arrived, id); i >= 0 {
		s.view.arrived = slices.Delete(s.view.arrived, i, i+1) // the policy need not hear of it
	} else {
		s.view.left = append(s.view.left, id)
	}
	return nil
}

// End tells that a running job is over, and frees what it held.
func (s *State) End(id JobID) {
	e := &s.jobs[id]
	if e.status != running {
		panic(fmt.Sprintf("policy: End of job %s, which does not run", e.job.ID))
	}
	s.ledger.give(&s.slots[e.slot].alloc)
	s.free(id)
	s.view.left = append(s.view.left, id)
	e.status = ended
}

// Step lets the policy decide at now, applies its plan line by line, and
// returns the plan. Lines that were refused carry their error.
func (s *State) Step(now time.Duration) *Plan {
	p := &s.plan
	p.Starts, p.Wake, p.Skipped = p.Starts[:0], Never, false
	s.view.now = now
	s.policy.Step(&s.view, p)
	s.view.arrived = s.view.arrived[:0]
	s.view.left = s.view.left[:0]
	s.view.freed, s.view.ranked = false, false
	for i := range p.Starts {
		st := &p.Starts[i]
		e := &s.jobs[st.Job]
		st.Alloc = &s.slots[e.slot].alloc // slots may have moved since
		if st.Err = s.ledger.check(e, e.as(st.Alternative), st.Alloc, s.cluster); st.Err != nil {
			s.free(st.Job)
			e.status = waiting
			// The policy must think again, and forget that it started the job.
			s.view.left = append(s.view.left, st.Job)
			s.view.arrived = append(s.view.arrived, st.Job)
			continue
		}
		s.ledger.take(st.Alloc)
		s.queue.remove(s.place(st.Job))
		e.status = running
	}
	return p
}

// free gives back what a job holds in the view.
func (s *State) free(id JobID) {
	e := &s.jobs[id]
	sl := &s.slots[e.slot]
	s.view.give(&sl.alloc)
	s.view.epoch++
	s.view.freed = true
	if s.traits.Ends {
		s.ends.remove(orderedEntry{key: int64(sl.expectedEnd), id: id})
	}
	s.grants.giveBack(&sl.alloc)
	s.vacant = append(s.vacant, e.slot)
	e.slot = -1
}

func (s *State) newSlot() int32 {
	if n := len(s.vacant); n > 0 {
		i := s.vacant[n-1]
		s.vacant = s.vacant[:n-1]
		return i
	}
	s.slots = append(s.slots, slot{})
	return int32(len(s.slots) - 1)
}

// Why says why a waiting job waits.
func (s *State) Why(id JobID) string {
	if s.jobs[id].status != waiting {
		return "it does not wait"
	}
	return s.policy.Why(&s.view, id)
}

// Explain says how the latest step came to its plan; nil if the policy keeps
// no account.
func (s *State) Explain() *Explanation {
	if p, ok := s.policy.(Explainer); ok {
		return p.Explain(&s.view)
	}
	return nil
}

// Waiting counts the queue.
func (s *State) Waiting() int { return s.queue.n }

// Allocation is what a running or proposed job holds; nil if it holds nothing.
func (s *State) Allocation(id JobID) *model.Allocation {
	if e := &s.jobs[id]; e.slot >= 0 {
		return &s.slots[e.slot].alloc
	}
	return nil
}

// ---- what a policy may ask ----

// Now is the instant of the step.
func (v *View) Now() time.Duration { return v.now }

// Arrived lists the jobs that joined the queue since the last step, and those
// whose start was refused then.
func (v *View) Arrived() []JobID { return v.arrived }

// Left lists the jobs that ended or were cancelled since the last step, and
// those whose start was refused then: they have arrived again.
func (v *View) Left() []JobID { return v.left }

// Freed says whether anything was given back since the last step.
func (v *View) Freed() bool { return v.freed }

// Waiting counts the jobs in the queue, those proposed in this step included.
func (v *View) Waiting() int { return v.state.queue.n }

// Queue walks the waiting jobs in the policy's order.
func (v *View) Queue() Cursor { return Cursor{o: &v.state.queue} }

// Ends walks the running and the proposed jobs in order of their expected ends.
func (v *View) Ends() Cursor { return Cursor{o: &v.state.ends} }

// Job is what the user submitted.
func (v *View) Job(id JobID) *model.Job { return v.state.jobs[id].job }

// Shape is what the job asks for.
func (v *View) Shape(id JobID) *Shape { return v.state.jobs[id].shape }

// ShapeAs is what one of the job's requests asks for: 0 is the main one. It is
// nil where the job has no such request, or it could never be granted. Policies
// that choose say so in their Traits.
func (v *View) ShapeAs(id JobID, alternative int) *Shape {
	sh := v.state.jobs[id].as(alternative)
	if sh != nil && sh.impossible != "" {
		return nil
	}
	return sh
}

// Requests counts the requests of a job: the main one and its alternatives.
func (v *View) Requests(id JobID) int { return 1 + len(v.state.jobs[id].others) }

// FreeCores is what is free of a node's cores.
func (v *View) FreeCores(n int32) int32 { return v.nodes[n].cores }

// FreeMemory is what is free of a node's memory.
func (v *View) FreeMemory(n int32) int64 { return v.nodes[n].memory }

// FreeGPUs is the set of a node's whole devices that are free: bit i is device i.
// A node that a job has to itself lends none of them (see Closed).
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

// ExpectedEnd is when a running job must be expected to end: never before
// the next instant.
func (v *View) ExpectedEnd(id JobID) time.Duration {
	return max(v.state.slots[v.state.jobs[id].slot].expectedEnd, v.now+1)
}

// Holds says whether all of a is free now.
func (v *View) Holds(a *model.Allocation) bool { return v.holds(a) }

// MayFit is a quick test: false means that Place would find nothing.
func (v *View) MayFit(sh *Shape, mode Mode) bool { return v.mayFit(sh, mode) }

// Room bounds the number of nodes that give what the shape asks of each: it
// is never too low.
func (v *View) Room(sh *Shape, mode Mode) int { return int(v.upper(sh, mode)) }

// Place finds a first fit on what is free now, or nil.
func (v *View) Place(sh *Shape, mode Mode) *model.Allocation { return v.place(sh, mode) }

// PlaceBeside is Place in what the reservation made with Reserve leaves.
func (v *View) PlaceBeside(sh *Shape, mode Mode) *model.Allocation {
	v.lim.active = true
	a := v.place(sh, mode)
	v.lim.active = false
	return a
}

// Charge takes a placement that will still run when the reservation
// begins from what it leaves.
func (v *View) Charge(a *model.Allocation) { v.charge(a) }

// ---- plans ----

// Plan is what a policy proposes in one step.
type Plan struct {
	state  *State
	Starts []Start
	// Wake asks for a step at this time even if nothing happens until then: for
	// policies that work at intervals. Never, the default, asks for none.
	Wake time.Duration
	// Skipped says that the policy did not look: this was no step of its own.
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
}

// Reason says why a job was started now.
type Reason struct {
	Code ReasonCode
	// Job and At are the reservation that was kept, where there was one.
	Job JobID
	At  time.Duration
}

// ReasonCode tells the kinds of reasons apart.
type ReasonCode uint8

// Why a job was started.
const (
	InTurn     ReasonCode = iota // it was its turn
	Overtook                     // it fits, and the policy lets jobs pass
	EndsBefore                   // it will have ended when the reservation begins
	Beside                       // it leaves the reservation what it needs
	Reserved                     // its own reservation has come
	Won                          // its bid won the auction
	Fitted                       // it fits best into what is free
)

// Text says the reason to people.
func (r Reason) Text(v *View) string {
	at := func() string {
		return fmt.Sprintf("the reservation of job %s at %s", v.Job(r.Job).ID, Clock(r.At))
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
	default:
		return "it was its turn"
	}
}

// Start proposes to start a job on a, which is taken from the view at once. It
// reports false, and proposes nothing, if a is not free in the view or the job
// does not wait.
func (p *Plan) Start(id JobID, a *model.Allocation, why Reason) bool {
	return p.StartAs(id, 0, a, why)
}

// StartAs proposes to start a job with one of its requests; 0 is the main one.
func (p *Plan) StartAs(id JobID, alternative int, a *model.Allocation, why Reason) bool {
	s := p.state
	e := &s.jobs[id]
	if e.status != waiting || e.as(alternative) == nil || !s.view.justPlaced(a) && (!s.view.sane(a) || !s.view.holds(a)) {
		return false
	}
	s.view.take(a)
	e.status, e.slot = proposed, s.newSlot()
	sl := &s.slots[e.slot]
	sl.alloc.Parts, sl.alloc.Grants = recycle(&s.grants.parts, a.Parts), recycle(&s.grants.grants, a.Grants)
	sl.expectedEnd = model.After(s.view.now, e.job.As(alternative).Estimate())
	if s.traits.Ends {
		s.ends.insert(orderedEntry{key: int64(sl.expectedEnd), id: id})
	}
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

// grantStore recycles the memory of allocations, by size.
type grantStore struct {
	parts  [32][][]model.Part
	grants [32][][]model.Grant
}

func (g *grantStore) giveBack(a *model.Allocation) {
	discard(&g.parts, a.Parts)
	discard(&g.grants, a.Grants)
	*a = model.Allocation{}
}

func sizeClass(n int) int {
	return bits.Len(uint(n - 1))
}

func recycle[T any](free *[32][][]T, from []T) []T {
	if len(from) == 0 {
		return nil
	}
	c := sizeClass(len(from))
	var to []T
	if l := len(free[c]); l > 0 {
		to = free[c][l-1][:0]
		free[c] = free[c][:l-1]
	} else {
		to = make([]T, 0, 1<<c)
	}
	return append(to, from...)
}

func discard[T any](free *[32][][]T, s []T) {
	if cap(s) > 0 {
		c := sizeClass(cap(s))
		free[c] = append(free[c], s)
	}
}
