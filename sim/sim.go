package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/history"
	"muster/policy/priority"
)

// Config describes one run.
type Config struct {
	Cluster *model.Cluster
	// Jobs in order of submission.
	Jobs []model.Job
	// Policy decides. It must not be used by any other run.
	Policy policy.Policy
	// NoKill lets jobs run past their wall time.
	NoKill bool
	// Moving says how long policy.Move takes; the zero value is DefaultMoving.
	Moving Moving
	// Begin is when the run begins: jobs submitted before it are in the queue from the start.
	// Until, if not 0, is when the run ends, even if some jobs are still waiting or running.
	Begin, Until time.Duration
	// Adopted are jobs that are already running when the run begins.
	Adopted []Adopted
	// After maps a job to the jobs that must be over before it joins the queue, by index.
	After map[int][]int
	// Withdrawn are the jobs that their users cancel.
	Withdrawn []Withdrawal
	// Ranks, if given, has the changes that users and administrators made to each job's place in
	// the queue.
	Ranks []Rank
	// Alone, if set, gives the run time of a job on an allocation that no other job shares. It
	// replaces the default (the job's run time on the slowest of its devices) for workloads whose
	// programs were measured. The time includes transfers between nodes; the simulator adds what
	// they take longer because of other jobs, as for any job.
	Alone func(job int, a *model.Allocation) Alone
	// Anywhere says of which jobs, by index, the run time is what it is whatever devices they are given; nil: of
	// none.
	Anywhere []bool
	// Bind, if set, has nodes bind the shares of jobs to other devices while these run (binding.go). It
	// does nothing for jobs that were measured (Alone), whose speed elsewhere is not known.
	Bind *Binding
	// Outages are times during which nodes take no jobs, in any order. Outages of nodes that the
	// cluster does not have are ignored.
	Outages []Outage
	// Record, if set, receives a history of the run, which begins with RecordAs.
	Record   io.Writer
	RecordAs history.Header
	// Priority, if set, ranks the waiting jobs by Slurm's multifactor priority, with Group as the
	// account. Under every policy, jobs with larger ranks are then first in the queue.
	Priority *priority.Config
	// Windows are reservations and maintenance, in the time of the run.
	Windows []policy.Window
	// Observe, if set, is told what starts and ends.
	Observe Observer
	// Watch lists jobs, by index. For these, Result.Watched records why they wait.
	Watch []int
	// Explain names the steps to explain.
	Explain []Moment
	// Progress, if set, is called now and then with the number of jobs that are over.
	Progress func(done int)
}

// Alone is the behaviour of a job on devices that no other job uses.
type Alone struct {
	Time time.Duration
	// Load is the fraction of that time, from 0 to 1, in which it keeps each share of a device
	// busy, in the order of the allocation's grants; nil means the job's GPULoad on all.
	Load []float64
	// Net is the number of bytes that pass through the port of each of its nodes, in the order of
	// the allocation's parts; nil means those of its Traffic. Time includes their transfer over
	// ports that no other job uses.
	Net []int64
}

// Observer is told about the starts and ends of jobs during a run.
type Observer interface {
	// Started reports a start. alloc is valid only during the call.
	Started(now time.Duration, job int, alloc *model.Allocation)
	Ended(now time.Duration, job int)
}

// State is the state of a simulated job.
type State uint8

// The states of a simulated job. All but the first two are final.
const (
	Pending State = iota // waiting or not submitted; at the end only with Config.Until
	Running
	Finished
	Killed     // at its wall time
	Impossible // it cannot start even on the idle cluster
	Lost       // a node that it used failed
	Preempted  // it was cancelled for a job of a higher class
	Withdrawn  // its user cancelled it
)

func (s State) String() string {
	return [...]string{"pending", "running", "finished", "killed", "impossible", "lost", "preempted", "withdrawn"}[s]
}

// Outcome is the result of one job.
type Outcome struct {
	Start, End time.Duration
	State      State
	// Borrowed says that it used a GPU of another node.
	Borrowed bool
	// Alternative is the request that was granted; 0 is the main request.
	Alternative uint16
	// Nodes is the number of nodes that the job ran on, Blocks the number of contiguous blocks that
	// they form, and Span the number of nodes from the first to the last of them.
	Nodes, Blocks, Span int32
}

// Fragmentation is the number of contiguous blocks of a job's nodes.
func (o *Outcome) Fragmentation() float64 { return float64(o.Blocks) }

// Spread is the number of nodes that a job spans, divided by the number that it has.
func (o *Outcome) Spread() float64 { return float64(o.Span) / float64(max(1, o.Nodes)) }

// Result is the outcome of a run.
type Result struct {
	Cluster  *model.Cluster
	Jobs     []model.Job
	Outcomes []Outcome // by job
	// Reasons says why jobs are impossible, by index.
	Reasons map[int]string
	// CoreSeconds and GPUSeconds are the cores and devices that jobs held times the seconds they
	// held them; a share counts as its fraction of the device's memory.
	CoreSeconds, GPUSeconds float64
	// Steps counts the policy's steps; the last was at LastStep. Refused counts the starts in its
	// plans that the applier refused.
	Steps, Refused int
	LastStep       time.Duration
	// Requeues counts how often a job was put back into the queue because a node failed.
	Requeues int
	// NodeSecondsLost is the total time for which nodes were down or draining, until the last job
	// was over. CoreSecondsLost is the core time that jobs had used when a failure hit them.
	NodeSecondsLost, CoreSecondsLost float64
	// Moves counts how often a job was saved, to go on from there.
	Moves int
	// Stops counts how often a running job was stopped in favour of another.
	Stops int
	// Rebinds counts how often a share was bound to another device after its job had started.
	Rebinds int
	Watched []Watched
	// Shares are the accounts and users at the end of a run with priorities.
	Shares []Share
	// Explained are the explanations of the steps that were asked for, each once, in order.
	Explained []Explained
	// NotAdopted says why jobs could not be adopted, by index; those waited in the queue instead.
	NotAdopted map[int]string
}

// Watched is what the policy said about a watched job at one instant.
type Watched struct {
	At   time.Duration
	Job  int
	Text string
}

// Run simulates until every job is over, or until Config.Until.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.Cluster.Validate(); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	for i := 1; i < len(cfg.Jobs); i++ {
		if cfg.Jobs[i].Submit < cfg.Jobs[i-1].Submit {
			return nil, fmt.Errorf("job %s is submitted before job %s, which stands before it: sort the workload",
				cfg.Jobs[i].ID, cfg.Jobs[i-1].ID)
		}
	}
	out, err := newOutages(cfg.Outages, len(cfg.Cluster.Nodes))
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	r := &run{
		Config: cfg, outages: out, now: cfg.Begin,
		jobOf: make([]int32, 0, len(cfg.Jobs)), ids: make([]policy.JobID, len(cfg.Jobs)),
		result: &Result{
			Cluster: cfg.Cluster, Jobs: cfg.Jobs,
			Outcomes: make([]Outcome, len(cfg.Jobs)), Reasons: map[int]string{}, NotAdopted: map[int]string{},
		},
	}
	if err := r.prepare(); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	r.divide()
	state := policy.NewState(cfg.Cluster, cfg.Policy)
	state.Expect(len(cfg.Jobs))
	r.state = state
	var recorder *history.Recorder
	if cfg.Record != nil {
		recorder = history.Record(cfg.Record, cfg.RecordAs, state)
	}
	if r.ranking, err = newRanking(&cfg); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	if len(cfg.Windows) > 0 { // a history has what was told
		if err := state.SetWindows(cfg.Windows); err != nil {
			return nil, fmt.Errorf("%w", err)
		}
	}
	r.wake = policy.Never
	r.network = newNetwork(r)
	r.watched = map[int]string{}
	r.paused, r.since = map[policy.JobID]pause{}, map[policy.JobID]time.Duration{}
	if r.Moving == (Moving{}) {
		r.Moving = DefaultMoving
	}
	r.moves = moves{map[policy.JobID]bool{}, map[policy.JobID]moved{}}
	r.adopt()
	if err := r.loop(ctx); err != nil {
		return nil, err
	}
	r.closeOutages()
	if recorder != nil && recorder.Err() != nil {
		return nil, fmt.Errorf("the history: %w", recorder.Err())
	}
	r.result.Shares = r.ranking.shares(r.result, r.now)
	return r.result, nil
}

// run is a simulation in progress. Everything happens in one goroutine, driven by loop: the clock
// jumps from event to event, and at each instant the order is fixed: jobs end, nodes fail and
// return, jobs join and are withdrawn, ranks change, the policy decides, and the network settles.
// This order is part of the result's definition.
type run struct {
	Config
	state   *policy.State
	events  events
	outages outages
	network *network
	ranking *ranking // nil without priorities
	parts   placed
	result  *Result

	now     time.Duration
	next    int            // the next job to submit
	wake    time.Duration  // when the policy wants its next step; policy.Never if it does not ask for one
	wakes   int            // consecutive instants at which nothing happened
	idle    int            // consecutive steps on an idle cluster with no job to come
	jobOf   []int32        // index of the job with each policy.JobID
	ids     []policy.JobID // by index, of jobs that were submitted
	joins   joins
	paused  map[policy.JobID]pause
	moves   moves
	since   map[policy.JobID]time.Duration // when a job that had been suspended was resumed
	done    int
	running int

	watched map[int]string // the latest text about each watched job
}

// horizon is the last instant of a run. Sums of two times up to it do not overflow.
const horizon = time.Duration(math.MaxInt64 / 2)

// maxIdle limits how often in a row a policy may ask for another step on an idle cluster without
// starting anything.
const maxIdle = 1000

// maxWakes limits how many steps in a row a policy may ask for while nothing happens.
const maxWakes = 1_000_000

// loop advances the clock to the earliest of all next events (a job's end, a submission, a step
// that the policy or the priorities asked for, an outage, a withdrawal), handles everything that is
// due at that instant, and repeats. The policy decides only if something changed or it asked for a
// step. The network settles last, once per instant, so that rates are computed for the final set of
// jobs and not for intermediate ones.
func (r *run) loop(ctx context.Context) error {
	for n := 0; ; n++ {
		// Steps of some policies take long, so cancellation is checked at every step.
		if err := ctx.Err(); err != nil {
			return err
		}
		if n&0xff == 0 && r.Progress != nil {
			r.Progress(r.done)
		}
		at, some := r.events.first()
		if r.next < len(r.Jobs) && (!some || r.Jobs[r.next].Submit < at) {
			at, some = r.Jobs[r.next].Submit, true
		}
		for _, wake := range [...]time.Duration{r.wake, r.ranking.due()} {
			if wake != policy.Never && (!some || wake < at) {
				at, some = wake, true
			}
		}
		if next, more := r.outages.next(); more && (!some || next < at) {
			at, some = next, true
		}
		if due := r.network.binding.next(); due != policy.Never && (!some || due < at) {
			at, some = due, true
		}
		if next, more := r.joins.next(r.now); more && (!some || next < at) {
			at, some = next, true
		}
		at = max(at, r.Begin)
		if r.Until > 0 && (!some || at > r.Until) {
			r.now = r.Until
			return nil
		}
		if !some || r.idle > maxIdle || r.done == len(r.Jobs) {
			break
		}
		if at > horizon {
			return fmt.Errorf("the run is not over after %d years: look for a submission or a run time that is far too large",
				horizon/(365*24*time.Hour))
		}
		r.now = at
		changed := r.endJobs()
		if len(r.outages.turns) > 0 && r.turnNodes() {
			changed = true
		}
		if r.submitJobs() {
			changed = true
		}
		if r.withdraw() {
			changed = true
		}
		if r.rank() {
			changed = true
		}
		if r.wakes++; changed {
			r.wakes = 0
		}
		if r.wakes > maxWakes {
			return fmt.Errorf("the policy asked for %d steps in a row while nothing happened, the last at %s: let it ask only for times at which it will decide otherwise (plan.wake)", maxWakes, policy.Clock(r.now))
		}
		if changed || r.wake <= r.now {
			if err := r.decide(); err != nil {
				return err
			}
		}
		r.network.settle(r.now)
	}
	if left := len(r.Jobs) - r.done; left > 0 && r.outages.out > 0 {
		return fmt.Errorf("%d jobs wait for ever, since nodes do not come back; the first says: %s", left, r.firstStuck())
	} else if left > 0 {
		return &StuckError{Jobs: left, First: r.firstStuck()}
	}
	if r.Progress != nil {
		r.Progress(r.done)
	}
	return nil
}

// StuckError says that the policy left jobs waiting although the cluster was idle.
type StuckError struct {
	Jobs  int    // that are waiting
	First string // the first of them, with the policy's reason
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("sim: the policy left %d jobs waiting for ever, though the cluster is idle; the first says: %s", e.Jobs, e.First)
}

// endJobs ends the jobs whose ends are due. It ignores events that are void: those of an earlier
// attempt of a job, and those whose job now ends later (see network.due).
func (r *run) endJobs() (any bool) {
	for {
		at, some := r.events.first()
		if !some || at > r.now {
			return any
		}
		e := r.events.pop()
		i := int(r.jobOf[e.job])
		if r.outages.attempt != nil && r.outages.attempt[e.job] != e.attempt {
			continue // a node failed before this end
		}
		if e.saved {
			any = true
			r.moves.saved(r, e.job)
			continue
		}
		killed, due := r.network.due(e)
		if !due {
			continue
		}
		any = true
		o := &r.result.Outcomes[i]
		o.End = r.now
		o.State = Finished
		if killed {
			o.State = Killed
		}
		r.leave(e.job, i)
		r.must(r.state.End(e.job))
		r.ranking.gone(e.job, r.now)
		r.over(i)
	}
}

// leave adds what a job has held to the totals, and removes the job from the network. For a
// suspended job, both were done when it was suspended.
func (r *run) leave(id policy.JobID, i int) {
	if _, still := r.paused[id]; still {
		r.moves.giveUp(r, id)
		delete(r.paused, id)
		return
	}
	r.count(id, &r.result.Outcomes[i])
	delete(r.since, id)
	if r.network.binding != nil {
		r.network.binding.hold(r.state.Allocation(id), -1)
	}
	r.network.leave(id)
	r.running--
	if r.Observe != nil {
		r.Observe.Ended(r.now, i)
	}
}

// must is for calls that the state cannot refuse unless the run has lost track of it.
func (r *run) must(err error) {
	if err != nil {
		panic("sim: " + err.Error())
	}
}

// submitJobs puts the jobs that are due into the queue, and reports whether any joined it.
func (r *run) submitJobs() (any bool) {
	// Jobs that waited for others join before new ones. If one of them is impossible it is over at
	// once, which may release further jobs: so released may grow during the loop.
	for k := 0; k < len(r.joins.released); k++ {
		any = r.join(int(r.joins.released[k])) || any
	}
	r.joins.released = r.joins.released[:0]
	for r.next < len(r.Jobs) && r.Jobs[r.next].Submit <= r.now {
		i := r.next
		r.next++
		if r.result.Outcomes[i].State == Pending && r.joins.open[i] == 0 {
			any = r.join(i) || any
		}
	}
	return any
}

// join puts a job into the queue, unless it is impossible.
func (r *run) join(i int) bool {
	if r.result.Outcomes[i].State != Pending {
		return false // it was withdrawn in the meantime
	}
	if err := r.submit(i); err != nil {
		r.result.Outcomes[i] = Outcome{Start: r.now, End: r.now, State: Impossible}
		r.result.Reasons[i] = err.Error()
		r.over(i)
		return false
	}
	return true
}

// submit hands a job to the priorities, if there are any, and to the policy's state.
func (r *run) submit(i int) error {
	if err := r.parts.refused[i]; err != nil {
		return err
	}
	j := &r.Jobs[i]
	if len(r.After[i]) > 0 && j.Submit < r.now {
		// For the policy the job arrives now. It must not count the time spent waiting for other
		// jobs as waiting in the queue.
		late := *j
		late.Submit = r.now
		j = &late
	}
	next := policy.JobID(len(r.jobOf)) // IDs grow by one
	if err := r.ranking.submitted(next, j, r.rankOf(i), r.now); err != nil {
		return err
	}
	id, err := r.state.Submit(r.parts.shown(j))
	switch {
	case err == nil && id == next:
		r.jobOf = append(r.jobOf, int32(i))
		r.ids[i] = id
		r.rankAlone(i)
		return nil
	case err == nil || !errors.Is(err, policy.ErrImpossible):
		panic(fmt.Sprintf("sim: job %s became %d, not %d: %v", j.ID, id, next, err)) // Submit has no other error
	}
	r.ranking.gone(next, r.now)
	return err
}

// maxStops limits how often in a row a policy may stop jobs at one instant.
const maxStops = 10_000

// decide lets the policy decide until it stops no more jobs. Stopping takes no time in the
// simulator, so the policy can use what it freed at the same instant.
func (r *run) decide() error {
	for n := 0; r.step(); n++ {
		if n == maxStops {
			return fmt.Errorf("the policy stops jobs again and again at %s", policy.Clock(r.now))
		}
		r.rank()
	}
	return nil
}

// step lets the policy decide once and carries out its plan. It reports whether running jobs were
// stopped.
func (r *run) step() bool {
	plan := r.state.Step(r.now)
	r.wake = plan.Wake
	if r.wake <= r.now {
		r.wake = policy.Never
	}
	if !plan.Skipped {
		r.result.Steps++
		r.explain(plan)
	}
	for k := range plan.Starts {
		st := &plan.Starts[k]
		if st.Err != nil {
			r.result.Refused++
			continue
		}
		i := int(r.jobOf[st.Job])
		o := &r.result.Outcomes[i]
		o.Start, o.State, o.Alternative = r.now, Running, uint16(st.Alternative)
		o.Borrowed = len(st.Alloc.Grants) > 0 && st.Alloc.UsesBorrowed()
		o.place(st.Alloc)
		r.running++
		r.network.binding.hold(st.Alloc, 1)
		if j := r.Jobs[i].As(st.Alternative); !r.moves.enter(r, st.Job, j, st.Alloc) {
			r.network.enter(st.Job, j, st.Alloc)
		}
		r.ranking.started(st.Job, r.now, st.Alloc)
		if r.Observe != nil {
			r.Observe.Started(r.now, i, st.Alloc)
		}
		if len(r.Watch) > 0 {
			r.note(i, "started: "+st.Reason.Text(plan.View())+r.granted(plan, st))
		}
	}
	stopped := r.obey(plan)
	if r.idle++; r.running > 0 || r.next < len(r.Jobs) || len(r.outages.turns) > 0 {
		r.idle = 0
	}
	for _, i := range r.Watch {
		if i < r.next && r.result.Outcomes[i].State == Pending && r.joins.open[i] == 0 {
			r.note(i, "waits: "+r.state.Why(r.ids[i]))
		}
	}
	return stopped
}

// granted names the alternative that a job was started with; "" for its main request.
func (r *run) granted(plan *policy.Plan, st *policy.Start) string {
	if st.Alternative == 0 {
		return ""
	}
	return fmt.Sprintf(", with alternative %d: %s", st.Alternative, plan.View().ShapeAs(st.Job, st.Alternative))
}

// place records where a job runs. The parts of an allocation are in node order.
func (o *Outcome) place(a *model.Allocation) {
	o.On(len(a.Parts), func(i int) int32 { return a.Parts[i].Node })
}

// On records the nodes that a job ran on: n of them, in ascending order.
func (o *Outcome) On(n int, node func(i int) int32) {
	o.Nodes, o.Blocks, o.Span = int32(n), 0, 0
	for i := range n {
		if i == 0 || node(i) != node(i-1)+1 {
			o.Blocks++
		}
	}
	if n > 0 {
		o.Span = node(n-1) - node(0) + 1
	}
}

// note records a text about a watched job, unless it is the same as the last one.
func (r *run) note(job int, text string) {
	for _, w := range r.Watch {
		if w == job && r.watched[job] != text {
			r.watched[job] = text
			r.result.Watched = append(r.result.Watched, Watched{r.now, job, text})
		}
	}
}

func (r *run) firstStuck() string {
	for i := range r.Jobs {
		if r.result.Outcomes[i].State == Pending && r.joins.open[i] == 0 {
			return fmt.Sprintf("job %s: %s", r.Jobs[i].ID, r.state.Why(r.ids[i]))
		}
	}
	return "nothing"
}
