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

// Config is one run.
type Config struct {
	Cluster *model.Cluster
	// Jobs in order of submission.
	Jobs []model.Job
	// Policy decides; it serves this run only.
	Policy policy.Policy
	// NoKill lets jobs run past their wall time.
	NoKill bool
	// Begin is when the run begins: jobs that were submitted before are in the queue from the
	// start. Until, if it is not 0, is when the run ends: some jobs may then still wait or run.
	Begin, Until time.Duration
	// Adopted are jobs that run when the run begins.
	Adopted []Adopted
	// After has the jobs that must be over before a job joins the queue, by index.
	After map[int][]int
	// Withdrawn are the jobs that their users cancel.
	Withdrawn []Withdrawal
	// Ranks, if given, is how users and administrators have changed each job's place in the queue.
	Ranks []Rank
	// Alone, if set, says how long a job takes on an allocation that no other job shares with it,
	// instead of its run time on the slowest of its devices, for workloads whose programs were
	// measured. Data between nodes are part of it; what they take longer beside others is
	// added as for any job.
	Alone func(job int, a *model.Allocation) Alone
	// Outages are times during which nodes take no jobs, in any order. Those of
	// nodes that the cluster does not have are left out.
	Outages []Outage
	// Record, if set, gets a history of the run, which begins with RecordAs.
	Record   io.Writer
	RecordAs history.Header
	// Priority, if set, ranks the waiting jobs by Slurm's multifactor priority, with
	// Group as the account. Whatever the policy, larger ranks then stand first.
	Priority *priority.Config
	// Windows are reservations and maintenance; times are those of the run.
	Windows []policy.Window
	// Observe, if set, is told what starts and ends.
	Observe Observer
	// Watch lists jobs (by index) of which Result.Watched tells why they wait.
	Watch []int
	// Explain names the steps that are to be explained.
	Explain []Moment
	// Progress, if set, is called now and then with the jobs that are over.
	Progress func(done int)
}

// Alone is what a job does on devices that it has to itself.
type Alone struct {
	Time time.Duration
	// Load is the part of that time in which it keeps each share of a device busy, from
	// 0 to 1, in the order of the allocation's grants; nil for the job's GPULoad on all.
	Load []float64
	// Net is the bytes that pass the port of each of its nodes, in the order of the allocation's
	// parts; nil for those of its Traffic. Time includes what they take on a port that no other job
	// uses.
	Net []int64
}

// Observer is told about a run as it goes.
type Observer interface {
	// Started: alloc is valid during the call only.
	Started(now time.Duration, job int, alloc *model.Allocation)
	Ended(now time.Duration, job int)
}

// State is how a job ended up.
type State uint8

// The outcomes of a simulated job.
const (
	Pending State = iota // only while the run goes on
	Running
	Finished
	Killed     // at its wall time
	Impossible // it could not start even on the idle cluster
	Lost       // a node failed under it
	Preempted  // it was cancelled for a job of a higher class
	Withdrawn  // its user took it back
)

func (s State) String() string {
	return [...]string{"pending", "running", "finished", "killed", "impossible", "lost", "preempted", "withdrawn"}[s]
}

// Outcome is the result of one job.
type Outcome struct {
	Start, End time.Duration
	State      State
	// Borrowed: it used a GPU of another node.
	Borrowed bool
	// Alternative is the request that was granted; 0 is the main one.
	Alternative uint16
	// Nodes is the number of nodes that hosted it, Blocks the number of blocks of neighbours that
	// they form, and Span the number of nodes from the first to the last of them.
	Nodes, Blocks, Span int32
}

// Fragmentation is the number of blocks of neighbouring nodes of a job.
func (o *Outcome) Fragmentation() float64 { return float64(o.Blocks) }

// Spread is how many times more nodes a job spans than it has.
func (o *Outcome) Spread() float64 { return float64(o.Span) / float64(max(1, o.Nodes)) }

// Result is what a run produced.
type Result struct {
	Cluster  *model.Cluster
	Jobs     []model.Job
	Outcomes []Outcome // by job
	// Reasons says, by job, why it was impossible.
	Reasons map[int]string
	// CoreSeconds and GPUSeconds are cores and devices times the seconds they
	// were held; a share counts as its part of the device's memory.
	CoreSeconds, GPUSeconds float64
	// Steps counts the policy's steps, of which the last was at LastStep; Refused
	// counts the lines of its plans that the applier refused.
	Steps, Refused int
	LastStep       time.Duration
	// Requeues counts how often a job was put back into the queue because a node failed.
	Requeues int
	// NodeSecondsLost is how long nodes failed or drained, all together, until the
	// last job was over; CoreSecondsLost is what jobs had held when a failure hit them.
	NodeSecondsLost, CoreSecondsLost float64
	// Stops counts how often a running job was stopped for another.
	Stops   int
	Watched []Watched
	// Shares are the accounts and users at the end, of runs with priorities.
	Shares []Share
	// Explained are the steps that were asked for, each once, in their order.
	Explained []Explained
	// NotAdopted says of jobs that could not be adopted why; they waited instead.
	NotAdopted map[int]string
}

// Watched says what was known about a job at one instant.
type Watched struct {
	At   time.Duration
	Job  int
	Text string
}

// Run simulates until every job is over.
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
	state := policy.NewState(cfg.Cluster, cfg.Policy)
	state.Expect(len(cfg.Jobs))
	r.state = state
	var recorder *history.Recorder
	if cfg.Record != nil {
		recorder = history.Record(cfg.Record, cfg.RecordAs, state)
		r.state = recorder
	}
	if r.ranking, err = newRanking(&cfg); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	if err := state.SetWindows(cfg.Windows); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	r.wake = policy.Never
	r.network = newNetwork(r)
	r.watched = map[int]string{}
	r.paused, r.since = map[policy.JobID]pause{}, map[policy.JobID]time.Duration{}
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

// driven is the state that a run drives, recorded or not.
type driven interface {
	Submit(j *model.Job) (policy.JobID, error)
	Adopt(j *model.Job, alternative int, a *model.Allocation, started time.Duration) (policy.JobID, error)
	Cancel(id policy.JobID) error
	End(id policy.JobID) error
	Requeue(id policy.JobID) error
	Suspended(id policy.JobID) error
	Resumed(id policy.JobID) error
	Rank(id policy.JobID, rank int64) error
	SetNode(n int32, st policy.NodeState) error
	Step(now time.Duration) *policy.Plan
	Allocation(id policy.JobID) *model.Allocation
	Jobs(do func(policy.JobState))
	Waiting() int
	Why(id policy.JobID) string
	Explain() *policy.Explanation
}

var (
	_ driven = (*policy.State)(nil)
	_ driven = (*history.Recorder)(nil)
)

type run struct {
	Config
	state   driven
	events  events
	outages outages
	network *network
	ranking *ranking // nil without priorities
	result  *Result

	now     time.Duration
	next    int            // the next job to submit
	wake    time.Duration  // when the policy wants a step; policy.Never if it does not
	idle    int            // steps in a row after which the cluster was idle, and no job was to come
	jobOf   []int32        // index of each policy.JobID
	ids     []policy.JobID // of each job that was submitted, by index
	joins   joins
	paused  map[policy.JobID]pause
	since   map[policy.JobID]time.Duration // when jobs that were suspended were resumed
	done    int
	running int

	watched map[int]string // what was said last
}

// horizon is the last instant of a run: beyond it sums of times would not fit.
const horizon = time.Duration(math.MaxInt64 / 2)

// maxIdle bounds how often a policy may ask for another step on an idle cluster
// and then start nothing.
const maxIdle = 1000

func (r *run) loop(ctx context.Context) error {
	for n := 0; ; n++ {
		// A step of some policies takes long, so cancellation is checked at every step.
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
		if r.ranking.rank(r.state, r.now) {
			changed = true
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

// StuckError says that a policy started nothing more, though the cluster was idle.
type StuckError struct {
	Jobs  int    // that wait
	First string // the first of them, and what the policy says of it
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("sim: the policy left %d jobs waiting for ever, though the cluster is idle; the first says: %s", e.Jobs, e.First)
}

// endJobs ends what ends now.
func (r *run) endJobs() (any bool) {
	for {
		at, some := r.events.first()
		if !some || at > r.now {
			return any
		}
		e := r.events.pop()
		i := int(r.jobOf[e.job])
		if r.outages.attempt != nil && r.outages.attempt[e.job] != e.attempt {
			continue // a node failed before that
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

// leave counts what a job has held until now, and takes it off the network. Of a
// suspended job both were done.
func (r *run) leave(id policy.JobID, i int) {
	if _, still := r.paused[id]; still {
		delete(r.paused, id)
		return
	}
	r.count(id, &r.result.Outcomes[i])
	delete(r.since, id)
	r.network.leave(id)
	r.running--
	if r.Observe != nil {
		r.Observe.Ended(r.now, i)
	}
}

// must is for what the state cannot refuse, since the run knows what it told.
func (r *run) must(err error) {
	if err != nil {
		panic("sim: " + err.Error())
	}
}

func (r *run) submitJobs() (any bool) {
	// Jobs that waited for others come before those that are new; one that is impossible
	// may let further ones come.
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
		return false // it was withdrawn meanwhile
	}
	if err := r.submit(i); err != nil {
		r.result.Outcomes[i] = Outcome{Start: r.now, End: r.now, State: Impossible}
		r.result.Reasons[i] = err.Error()
		r.over(i)
		return false
	}
	return true
}

// submit puts a job into the queue, and into the book where there is one.
func (r *run) submit(i int) error {
	j := &r.Jobs[i]
	if len(r.After[i]) > 0 && j.Submit < r.now {
		// For the policy it comes now: what it waited for is none of its business.
		late := *j
		late.Submit = r.now
		j = &late
	}
	next := policy.JobID(len(r.jobOf)) // IDs grow by one
	if err := r.ranking.submitted(next, j, r.rankOf(i), r.now); err != nil {
		return err
	}
	id, err := r.state.Submit(j)
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

// maxStops bounds how often in a row, at one instant, a policy may stop jobs.
const maxStops = 10_000

// decide gives the policy steps until it stops no more jobs: stopping takes no time here.
func (r *run) decide() error {
	for n := 0; r.step(); n++ {
		if n == maxStops {
			return fmt.Errorf("the policy stops jobs again and again at %s", policy.Clock(r.now))
		}
		r.ranking.rank(r.state, r.now)
	}
	return nil
}

// step lets the policy decide once, and does what it says. It reports whether
// running jobs were stopped.
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
		r.network.enter(st.Job, r.Jobs[i].As(st.Alternative), st.Alloc)
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

// granted names the alternative that a job was started with, if it was one.
func (r *run) granted(plan *policy.Plan, st *policy.Start) string {
	if st.Alternative == 0 {
		return ""
	}
	return fmt.Sprintf(", with alternative %d: %s", st.Alternative, plan.View().ShapeAs(st.Job, st.Alternative))
}

// place notes where a job runs; parts are in node order.
func (o *Outcome) place(a *model.Allocation) {
	o.On(len(a.Parts), func(i int) int32 { return a.Parts[i].Node })
}

// On notes the nodes that a job ran on, of which there are n, in order.
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
