package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
	"muster/policy/history"
	"muster/policy/preempt"
	"muster/policy/priority"
	"muster/slurm/words"
)

// Config is what an administrator decides.
type Config struct {
	Cluster string
	// Memory says that Slurm allocates memory as it does cores.
	Memory bool
	// WholeNodes says that Slurm allocates whole nodes only.
	WholeNodes bool
	// Balanced says that Slurm divides tasks among the pinned nodes as evenly as possible;
	// otherwise each node gives what was pinned (release.Balanced).
	Balanced bool
	// GPUMemory is the memory of a GPU, which Slurm does not know; 0 is 16 GiB.
	GPUMemory int64
	// Patience is how long a placed job may wait for Slurm to start it; 0 is 30 s. Settle is how
	// long the outcome of a request without an answer stays open, and how long a new driver waits
	// for requests of the driver before it; 0 is 3 s. Retry is how long a job that Slurm refused to
	// start stands aside at most; 0 is 30 s.
	Patience, Settle, Retry time.Duration
	// Lending says that nodes lend GPUs (Picture.Lenders). A GPU then counts only while its node is
	// connected and lends it. Without Lending, jobs are told which GPUs they have, but no node
	// enforces it.
	Lending bool
	// GrantFolder is where the plug-in finds the grants of jobs that borrow: those for the first
	// start of job 17 are below GrantFolder/17.0. "" if there are none.
	GrantFolder string
	// Priority is how Slurm ranks jobs that are not held; nil if it serves them in the order of
	// arrival. The age of a job counts from when it could first have started, or from its
	// submission if AgeFromSubmission.
	Priority          *priority.Config
	AgeFromSubmission bool
	// ClassByPartition says that policies with classes of jobs take the partition as the class, not
	// the QOS.
	ClassByPartition bool
}

func (c *Config) defaults() {
	c.GPUMemory = cmp.Or(c.GPUMemory, 16<<30)
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	c.Settle = cmp.Or(c.Settle, 3*time.Second)
	c.Retry = cmp.Or(c.Retry, 30*time.Second)
}

// Ref names a job as Slurm's commands do: by its number, or its array and task.
type Ref struct {
	ID    uint64
	Array uint64
	Task  int
}

func (r Ref) String() string {
	if r.Array != 0 {
		return fmt.Sprintf("%d_%d", r.Array, r.Task)
	}
	return strconv.FormatUint(r.ID, 10)
}

// Place asks for a job to be placed on exactly these nodes and released.
type Place struct {
	Job   Ref
	Nodes []string
	// CPUsPerNode is pinned for each node; otherwise Slurm would divide the processors as it likes.
	CPUsPerNode int
	// Comment is the job's new comment.
	Comment string
	// Start is how often Slurm had restarted the job; User and UID are its owner.
	Start int
	User  string
	UID   int
	// As is what the job asks for from now on; nil if that stays as it is.
	As *Change
	// Borrows are, for each of Nodes, the GPUs that are lent to the programs there; nil if there
	// are none.
	Borrows [][]Borrow
}

// Borrow is a GPU that is lent to a job.
type Borrow struct {
	words.Device
	// Memory is the share in bytes; 0 is the whole GPU.
	Memory int64
}

// Say asks for an action that comes with a new comment.
type Say struct {
	Job     Ref
	Comment string
}

// Split asks for tasks to be taken out of an array.
type Split struct {
	Array uint64
	Tasks []int
	// Contiguous is what the array asks for, and so what each task must ask for.
	Contiguous bool
}

// Effects are what the driver must do. It must report the fate of each, except Comments, with Told.
type Effects struct {
	Places    []Place
	Recalls   []Ref
	Handovers []Say
	Splits    []Split
	Comments  []Say
	Stops     []Stop
	// Resumes let suspended jobs continue, with their new comments.
	Resumes []Say
	// Notes are for the log.
	Notes []string
}

// Fate is the outcome of a request to Slurm.
type Fate uint8

// The fates of requests.
const (
	Done    Fate = iota
	Refused      // Slurm did nothing
	Unknown      // it is not known whether Slurm did it
)

// phase is the stage of a job of Muster.
type phase uint8

const (
	aside     phase = iota // not offered to the policy
	waiting                // in the policy's queue
	placing                // a request to place it is in progress, or its outcome is unknown
	placed                 // Slurm was told, and has not started it yet
	running                // Slurm has started it
	recalling              // it is to be held again
	leaving                // it is being handed to Slurm's scheduler
	slurms                 // it is Slurm's own
)

func (p phase) String() string {
	return [...]string{"aside", "waiting", "placing", "placed", "running", "recalling", "leaving", "slurm's"}[p]
}

// job is what the core knows of a job that has not ended.
type job struct {
	Ref
	fact    Job
	phase   phase
	comment words.Comment
	managed bool
	spec    *model.Job
	number  policy.JobID   // its number in the policy's state, or -1 if it is not there
	parts   []policy.JobID // the policy's jobs for its uses of single nodes, where one job could not describe them
	plan    *words.Answer
	why     string
	until   time.Duration // it stands aside until then
	since   time.Duration // when this phase began
	// told is when the latest request about the job was answered: a listing that was requested
	// before that may not show the effect, and is ignored. While busy is true, a request has not
	// been answered.
	told time.Duration
	busy bool
	// said is the comment's sentence, saidAt when it was written.
	said   string
	saidAt time.Duration
	mark   uint64        // the latest listing that contains it
	uses   []Use         // what the policy's book has for it while it runs
	grants []model.Grant // GPUs lent to it, while uncrowd enters it again
	// counted: it is counted in Core.active.
	counted bool
	member  bool // it is counted in Core.members
	tries   int  // how often it was recalled or refused since it last ran
	// borrower: it asks for GPUs on any node. short: the book lacks some of the GPUs that it has,
	// because their nodes have not said yet what they lend.
	borrower, short bool
	// before is the comment before choose changed what the job asks for; nil if it did not.
	before *words.Comment
	ors    []model.Request // its alternatives, as they were written
	nice   int64           // the nice value that the policy was told
	ranked bool            // it is in the book of priorities
	// halting: the policy wants it stopped. asleep: it is suspended, and the policy knows. rousing:
	// the policy wants it resumed. stopFor is the job in whose favour it was stopped.
	halting, asleep, rousing bool
	stopFor                  string
	spread                   bool // no processors per node are pinned: Slurm takes whatever is free on its nodes
}

// Counts are the numbers of events so far.
type Counts struct {
	Placed     int `json:"placed"`
	Started    int `json:"started"`
	Ended      int `json:"ended"`
	Refused    int `json:"refused"`
	Unknown    int `json:"unknown"`
	Recalled   int `json:"recalled"`
	HandedOver int `json:"handed_over"`
	// Clashes is how often Slurm gave a job a GPU that was lent to another.
	Clashes int `json:"gpu_clashes"`
	// Stopped is the number of jobs that were suspended, requeued or cancelled in favour of others.
	Stopped int `json:"stopped"`
	// Wrong is the number of jobs that started on other nodes than they were placed on; Uneven that
	// of jobs that started on the right nodes with other shares of them.
	Wrong  int `json:"wrong"`
	Uneven int `json:"uneven"`
}

// Core is the driver's state.
type Core struct {
	cfg   Config
	state *policy.State

	now, began time.Duration
	started    bool
	settled    bool // a listing was requested late enough to show all requests of the driver before this one

	nodes      []*node
	byName     map[string]*node
	strangers  map[string]bool // lenders that Slurm does not know, and that were logged
	partitions map[string]*partition
	reserved   []Reservation
	largest    int // processors of the largest node
	threads    int
	leastMem   int64

	book     *priority.Book // nil if Slurm does not rank jobs
	jobs     map[uint64]*job
	numbered map[policy.JobID]*job
	active   map[uint64]int // by array: its tasks in the policy's book
	members  map[uint64]int // by array: its tasks with a record of their own
	listing  uint64

	preempts  bool          // the policy resumes suspended jobs by itself
	asleep    int           // the number of jobs that the policy takes for suspended
	open      map[int32]int // within one step: nodes of jobs that were placed and have not started (see startsFirst)
	uncrowdAt time.Duration
	stepDue   bool
	wake      time.Duration
	effects   Effects
	counts    Counts
	asked     uint64 // the job with which Explain continues
}

type partition struct {
	Partition
	names []string
}

type node struct {
	Node
	number  int32
	crowded bool // a job uses something that the book has no room for
	noted   bool // that it is crowded was logged
	gone    bool
	// book is how many of its GPUs the policy's book has, lends the set of those that are usable.
	book  int
	lends uint64
	odd   bool // its GPUs cannot be entered in the book, and that was logged
}

// New returns a core that knows nothing of the cluster yet. The policy must serve this core only.
func New(cfg Config, p policy.Policy) *Core {
	cfg.defaults()
	state := policy.NewState(&model.Cluster{Name: cfg.Cluster}, p)
	c := &Core{cfg: cfg, state: state, byName: map[string]*node{}, strangers: map[string]bool{}, partitions: map[string]*partition{},
		jobs: map[uint64]*job{}, numbered: map[policy.JobID]*job{}, active: map[uint64]int{}, members: map[uint64]int{}, wake: policy.Never}
	state.SetClock(func(t time.Duration) string {
		if t-c.policyTime(c.now) > year/2 {
			return ""
		}
		return time.Unix(0, int64(t+c.began)).Format("15:04:05")
	})
	c.preempts = preempt.Wraps(p)
	c.setRanking()
	return c
}

// Record writes everything that the policy is told from now on, and what it decides, in the format
// of package history, for muster sim replay. The recording begins with a snapshot. An error of w
// ends the recording and nothing else.
func (c *Core) Record(w io.Writer, h history.Header) { history.Record(w, h, c.state) }

const year = 365 * 24 * time.Hour

func (c *Core) advance(now time.Duration) {
	if !c.started {
		c.started, c.began = true, now
	}
	c.now = max(c.now, now)
}

// policyTime converts an instant to the policy's clock, which starts at c.began. It is negative for
// jobs that started earlier.
func (c *Core) policyTime(at time.Duration) time.Duration { return at - c.began }

// Take returns the effects collected so far, and forgets them.
func (c *Core) Take() Effects {
	e := c.effects
	c.effects = Effects{}
	return e
}

// Counts returns the numbers of events so far.
func (c *Core) Counts() Counts { return c.counts }

// Next is when a Step is due even if nothing happens.
func (c *Core) Next() time.Duration {
	if c.stepDue {
		return max(c.now, c.began+c.cfg.Settle)
	}
	if c.book != nil && c.book.Waiting() > 0 {
		return min(c.wake, c.began+c.book.Next())
	}
	return c.wake
}

func (c *Core) note(format string, args ...any) {
	c.effects.Notes = append(c.effects.Notes, fmt.Sprintf(format, args...))
}

// must panics on an error of a call that cannot fail while the driver's and the policy's books
// agree.
func (c *Core) must(err error) {
	if err != nil {
		panic("slurm: the policy's book and the driver's disagree: " + err.Error())
	}
}

// Observe brings the core up to date with what Slurm says. Partitions and nodes come before jobs,
// because jobs are understood in their terms.
func (c *Core) Observe(now time.Duration, p *Picture) {
	c.advance(now)
	if p.Partitions != nil {
		clear(c.partitions)
		for _, f := range p.Partitions {
			c.partitions[f.Name] = &partition{f, names(f.Nodes)}
		}
	}
	if p.Nodes != nil {
		c.takeNodes(p.Nodes)
	}
	if c.cfg.Lending && p.Lenders != nil {
		c.takeLenders(p.Lenders)
	}
	c.takeRanking(p)
	if p.Reservations != nil {
		c.reserved = p.Reservations
		c.setWindows()
	}
	c.settled = c.settled || p.Asked-c.began >= c.cfg.Settle
	if p.Same {
		c.lookAgain(p.Asked)
		return
	}
	c.listing++
	var fresh []*job
	// Jobs that hold nothing go first: after slurmctld was killed it may have forgotten which jobs
	// it had started, and other jobs may have what the book says is theirs. Suspended jobs come
	// next, since others may run in their place.
	for turn := range 3 {
		for i := range p.Jobs {
			if p.Jobs[i].turn() != turn {
				continue
			}
			if j := c.take(&p.Jobs[i], p.Asked); j != nil && j.phase == aside {
				fresh = append(fresh, j)
			}
		}
	}
	for _, id := range c.sorted(func(j *job) bool { return j.mark != c.listing && !j.busy && p.Asked > j.told }) {
		c.over(id, c.jobs[id])
	}
	c.uncrowd()
	c.offerAll(fresh)
}

// lookAgain acts on a listing without changes: time has passed, so jobs may be offered again, and
// patience may be over.
func (c *Core) lookAgain(asked time.Duration) {
	var fresh []*job
	for _, id := range c.sorted(func(j *job) bool { return !j.busy && asked > j.told }) {
		j := c.jobs[id]
		switch j.phase {
		case aside:
			fresh = append(fresh, j)
		case placing, placed, recalling:
			fact := j.fact
			if c.take(&fact, asked); j.phase == aside {
				fresh = append(fresh, j)
			}
		case running:
			if j.halting || j.rousing {
				c.standing(j, asked)
			}
		}
	}
	c.offerAll(fresh)
}

// sorted lists the numbers of some jobs, ascending.
func (c *Core) sorted(which func(*job) bool) []uint64 {
	var ids []uint64
	for id, j := range c.jobs {
		if which(j) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// take updates what is known of a job with what Slurm says. It returns nil if the job has ended, or
// if the listing is older than the latest request about the job.
func (c *Core) take(f *Job, asked time.Duration) *job {
	j := c.jobs[f.ID]
	if j != nil {
		j.mark = c.listing
		if j.busy || asked <= j.told {
			return nil // the listing may be older than what is known
		}
	}
	if f.Ended() {
		if j != nil {
			c.ended(j, f)
		}
		return nil
	}
	if j == nil {
		j = &job{Ref: refOf(f), number: -1, mark: c.listing, since: c.now}
		c.jobs[f.ID] = j
	}
	j.Ref = refOf(f)
	c.read(j, f)
	if !f.pending() {
		c.runs(j)
		c.standing(j, asked)
		return j
	}
	c.waits(j, asked)
	return j
}

func refOf(f *Job) Ref {
	if f.ArrayJob == 0 || f.several() {
		return Ref{ID: f.ID}
	}
	task := f.ArrayTask
	if list := f.tasks(1); len(list) == 1 {
		task = list[0]
	}
	return Ref{ID: f.ID, Array: f.ArrayJob, Task: task}
}

// read takes over Slurm's record of a job, and parses its comments if they have changed.
func (c *Core) read(j *job, f *Job) {
	c.member(j, f.ArrayJob, f.ArrayJob != 0 && !f.several())
	fresh := j.fact.ID == 0 || j.fact.AdminComment != f.AdminComment || j.fact.Comment != f.Comment
	j.fact = *f
	if !fresh {
		return
	}
	both, err := words.ParseBoth(f.AdminComment, f.Comment)
	if err != nil {
		c.note("job %s: %v", j.Ref, err)
	}
	j.comment, j.managed = both, both.Request != nil
	j.said, j.before = j.comment.Why, nil
	j.borrower = j.borrows()
	c.readAlternatives(j)
}

// borrows says whether a job asks for GPUs on any node.
func (j *job) borrows() bool {
	return j.managed && (j.comment.Request.GPUs > 0 || strings.Contains(j.fact.TRESPerNode+j.fact.TRESPerJob, "rgpu"))
}

// enter moves a job to another phase.
func (c *Core) enter(j *job, p phase) {
	if j.phase != p {
		j.phase, j.since = p, c.now
	}
}

// withdraw removes a job from the policy's book, undoes choose, and puts the job aside.
func (c *Core) withdraw(j *job) {
	if j.number >= 0 {
		c.unrank(j)
		if j.phase == waiting {
			c.must(c.state.Cancel(j.number))
		} else {
			c.must(c.state.End(j.number))
		}
		delete(c.numbered, j.number)
		j.number = -1
		c.stepDue = true
	}
	for _, id := range j.parts {
		c.must(c.state.End(id))
		delete(c.numbered, id)
		c.stepDue = true
	}
	j.parts = nil
	c.setAsleep(j, false)
	j.halting, j.rousing = false, false
	if j.before != nil {
		j.comment, j.before = *j.before, nil
		j.borrower = j.borrows()
	}
	c.count(j)
	if j.phase != aside {
		c.enter(j, aside)
	}
}

// ended handles a job that Slurm lists as ended. It may have been too short to be seen running.
func (c *Core) ended(j *job, f *Job) {
	if j.managed && j.plan != nil && (j.phase == placing || j.phase == placed || j.phase == recalling) && f.Nodes != "" {
		c.checkNodes(j, names(f.Nodes))
		c.enter(j, running)
	}
	c.over(f.ID, j)
}

// over forgets a job that has ended, or that Slurm does not list any more.
func (c *Core) over(id uint64, j *job) {
	if j.managed && (j.phase == running || j.phase == placed) {
		c.counts.Ended++ // a placed job that is gone has run and ended between two listings
	}
	c.withdraw(j)
	c.member(j, j.fact.ArrayJob, false)
	delete(c.jobs, id)
}

// waits handles a job that is pending in Slurm.
func (c *Core) waits(j *job, asked time.Duration) {
	f := &j.fact
	if j.phase == running {
		c.withdraw(j) // Slurm has requeued it
	}
	switch {
	case !j.managed:
		c.withdraw(j)
		c.enter(j, slurms)
	case f.several():
		c.takeApart(j)
	case !f.Held:
		c.released(j)
	case j.phase == placing && asked <= j.told+c.cfg.Settle:
		// The outcome of the request is still open.
	case j.phase == placing, j.phase == placed, j.phase == recalling, j.phase == leaving, j.phase == slurms:
		c.withdraw(j) // it is held again, or was never released
		j.plan = nil
	case j.phase == waiting:
		c.reread(j)
	}
}

// released handles a pending job that is not held.
func (c *Core) released(j *job) {
	f, answer := &j.fact, j.comment.Answer
	switch {
	case answer.For(f.ID, f.Restarts) && j.phase != recalling && j.plan.For(f.ID, f.Restarts) && !j.plan.Same(answer):
		c.recall(j, "Slurm has forgotten where it was placed last")
	case answer.For(f.ID, f.Restarts) && j.phase != recalling:
		if j.phase != placed {
			c.findPlaced(j)
		}
		c.checkPlaced(j)
	case answer != nil && answer.Job == f.ID:
		// Slurm has requeued it, pinned to the nodes that it had; or it is to be recalled.
		c.recall(j, "Slurm has requeued it")
	default:
		// Its user released it, or it was handed over.
		c.withdraw(j)
		c.enter(j, slurms)
	}
}

// checkPlaced recalls a placed job that Slurm does not start.
func (c *Core) checkPlaced(j *job) {
	if j.phase != placed {
		return
	}
	switch j.fact.Reason {
	case "", "None", "Resources", "Priority", "Prolog", "Cleaning":
		if c.now-j.since > c.cfg.Patience {
			c.recall(j, fmt.Sprintf("Slurm did not start it within %s", units.FormatDuration(c.cfg.Patience)))
		}
		return
	}
	if c.now-j.since < time.Second { // the reason may be from before the placement
		return
	}
	c.recall(j, "Slurm does not start it: "+j.fact.Reason)
	if j.fact.Reason == "DependencyNeverSatisfied" {
		j.until = max(j.until, c.now+time.Hour)
	}
}

// pause is how long a job stands aside: twice as long each time, up to Retry.
func (c *Core) pause(j *job) time.Duration {
	j.tries++
	return min(c.cfg.Retry, time.Second<<min(j.tries, 20))
}

// recall asks for a job to be held again. The job keeps what it was given until a listing shows it
// held, since Slurm may start it before.
func (c *Core) recall(j *job, why string) {
	if j.phase != recalling {
		c.counts.Recalled++
		c.note("job %s is recalled: %s", j.Ref, why)
	}
	if j.phase == waiting {
		c.withdraw(j) // the policy has given it nothing yet
	}
	c.enter(j, recalling)
	c.crowdLenders(j)
	j.why, j.until = why, c.now+c.pause(j)
	j.busy = true
	c.effects.Recalls = append(c.effects.Recalls, j.Ref)
}

// offerAll offers the jobs that stand aside to the policy, in the order of their numbers.
func (c *Core) offerAll(list []*job) {
	slices.SortFunc(list, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	for _, j := range list {
		if j.phase == aside && j.managed && !j.busy && c.jobs[j.ID] == j && j.fact.pending() && j.fact.Held && !j.fact.several() {
			c.offer(j)
		}
	}
}

// gate says why a job must not be offered now; "" if it may.
func (c *Core) gate(j *job) string {
	f := &j.fact
	switch p := c.partitions[f.Partition]; {
	case j.comment.Request.Held:
		return "its user holds it: scontrol release lets it go"
	case f.Reason == "JobHeldAdmin":
		return "an administrator holds it: scontrol release lets it go"
	case f.Dependency != "" && c.dependsOn(f) != "":
		return "it waits for other jobs: " + c.dependsOn(f)
	case f.Eligible > c.now:
		return "it must not start before " + time.Unix(0, int64(f.Eligible)).Format("15:04:05")
	case j.until > c.now:
		return j.why
	case p != nil && !p.Up:
		return "partition " + f.Partition + " is not up"
	case f.ArrayJob != 0 && f.ArrayLimit > 0 && c.active[f.ArrayJob] >= f.ArrayLimit:
		return fmt.Sprintf("%d tasks of its array may run at a time, and as many do", f.ArrayLimit)
	}
	return ""
}

// member counts the tasks of arrays that have a record of their own.
func (c *Core) member(j *job, array uint64, is bool) {
	if is == j.member {
		return
	}
	j.member = is
	if is {
		c.members[array]++
	} else if c.members[array]--; c.members[array] == 0 {
		delete(c.members, array)
	}
}

// count counts the tasks of arrays that are in the policy's book.
func (c *Core) count(j *job) {
	in := j.number >= 0 || len(j.parts) > 0
	if in == j.counted || j.fact.ArrayJob == 0 {
		return
	}
	j.counted = in
	if in {
		c.active[j.fact.ArrayJob]++
	} else if c.active[j.fact.ArrayJob]--; c.active[j.fact.ArrayJob] == 0 {
		delete(c.active, j.fact.ArrayJob)
	}
}

// offer submits a job to the policy, or notes why not.
func (c *Core) offer(j *job) {
	if j.why = c.gate(j); j.why != "" {
		return
	}
	spec, err := c.understand(j)
	if err != nil {
		c.notOurs(j, err)
		return
	}
	id, err := c.state.Submit(spec)
	if err != nil {
		j.why = strings.TrimPrefix(err.Error(), policy.ErrImpossible.Error()+": ")
		if !errors.Is(err, policy.ErrImpossible) {
			j.why = err.Error()
		}
		j.until = c.now + 10*time.Second // nodes may join
		return
	}
	j.spec, j.number = spec, id
	c.numbered[id] = j
	c.count(j)
	c.rank(j)
	c.enter(j, waiting)
	c.stepDue = true
}

// notOurs handles a job that the core does not understand: it is handed to Slurm's scheduler,
// unless it needs what only Muster can give.
func (c *Core) notOurs(j *job, err error) {
	if j.borrower {
		j.why = fmt.Sprintf("it asks for borrowed GPUs, and %v: change it with scontrol update, or cancel it", err)
		return
	}
	if c.mixes(j) {
		j.why = fmt.Sprintf("nodes lend GPUs that Slurm knows, too, so Slurm's scheduler cannot have it, and %v: change it with scontrol update, or cancel it", err)
		return
	}
	j.why = fmt.Sprintf("left to Slurm's scheduler: %v", err)
	c.enter(j, leaving)
	j.busy = true
	say := j.comment
	say.Answer, say.Why = nil, j.why
	c.counts.HandedOver++
	c.effects.Handovers = append(c.effects.Handovers, Say{j.Ref, say.String()})
}

// reread withdraws a waiting job that must not be offered any more, or that asks for something else
// than it did.
func (c *Core) reread(j *job) {
	if c.gate(j) == "" || strings.HasPrefix(c.gate(j), "partition") {
		if spec, err := c.understand(j); err == nil && sameSpec(spec, j.spec) {
			c.rerank(j)
			return
		}
	} else if j.fact.ArrayJob != 0 && !j.comment.Request.Held && j.fact.Reason != "JobHeldAdmin" && c.dependsOn(&j.fact) == "" {
		return // its array's limit is reached because the job itself is counted
	}
	c.withdraw(j)
}

// takeApart asks for the next tasks of an array to become jobs of their own: few at a time, since
// each is a record in Slurm.
func (c *Core) takeApart(j *job) {
	f := &j.fact
	c.enter(j, aside)
	if j.busy || c.gate(j) != "" {
		j.why = c.gate(j)
		return
	}
	n := 64
	if f.ArrayLimit > 0 {
		n = min(n, f.ArrayLimit)
	}
	if n -= c.members[f.ArrayJob]; n <= 0 {
		return
	}
	// The last task is not taken out: the record that is left becomes that task.
	tasks := f.tasks(n + 1)
	if len(tasks) > n {
		tasks = tasks[:n]
	}
	if all := f.tasks(n + 2); len(all) == len(tasks) {
		tasks = tasks[:len(tasks)-1]
	}
	if len(tasks) == 0 {
		return
	}
	j.busy = true
	c.effects.Splits = append(c.effects.Splits, Split{Array: f.ArrayJob, Tasks: tasks, Contiguous: f.Contiguous})
}

// Told reports the outcome of a request about a job; err says why it was refused. The outcome of a
// Split is reported for the array.
func (c *Core) Told(now time.Duration, id uint64, fate Fate, err error) {
	c.advance(now)
	j := c.jobs[id]
	if j == nil {
		return
	}
	j.busy, j.told = false, c.now
	switch {
	case j.halting || j.rousing:
		c.toldOfStop(j, fate, err)
	case fate == Unknown:
		c.counts.Unknown++
		c.note("job %s: %v", j.Ref, err)
	case fate == Refused && j.phase == placing:
		c.counts.Refused++
		c.note("job %s: %v", j.Ref, err)
		c.withdraw(j)
		j.plan = nil
		j.why, j.until = err.Error(), c.now+c.pause(j)
		if !errors.Is(err, ErrNotLent) {
			j.why = "Slurm refused its placement: " + j.why
		}
	case fate == Refused:
		c.note("job %s: %v", j.Ref, err)
		j.why, j.until = err.Error(), c.now+c.pause(j)
	case j.phase == placing:
		c.counts.Placed++
		c.enter(j, placed)
	case j.phase == leaving:
		c.enter(j, slurms)
	}
}

// Step lets the policy decide, if anything has changed since it last did, or if it asked for a step
// now. A new driver first waits for Settle, until it knows what the driver before it has placed.
func (c *Core) Step(now time.Duration) {
	c.advance(now)
	if !c.stepDue && c.now < c.wake && !c.ranksDue() || c.now-c.began < c.cfg.Settle || c.cfg.Lending && !c.settled {
		return
	}
	c.stepDue = false
	c.tellRanks()
	plan := c.state.Step(c.policyTime(c.now))
	c.wake = policy.Never
	if plan.Wake != policy.Never && plan.Wake > c.policyTime(c.now) {
		c.wake = plan.Wake + c.began
	}
	c.open = nil
	for i := range plan.Starts {
		if st := &plan.Starts[i]; st.Err == nil {
			c.begin(st)
		} else {
			c.stepDue = true
		}
	}
	for i := range plan.Stops {
		c.halt(&plan.Stops[i])
	}
	for i := range plan.Resumes {
		if r := &plan.Resumes[i]; r.Err == nil {
			c.rouse(c.numbered[r.Job])
		} else {
			c.stepDue = true
		}
	}
	c.rouseIdle()
}

// begin asks for a job to be placed as the policy decided.
func (c *Core) begin(st *policy.Start) {
	j := c.numbered[st.Job]
	c.unrank(j)
	a := &words.Answer{Start: j.fact.Restarts, Job: j.ID, Why: st.Reason.Text(c.state.View())}
	for i := range st.Alloc.Parts {
		p := &st.Alloc.Parts[i]
		a.Nodes = append(a.Nodes, c.nodes[p.Node].Name)
	}
	var change *Change
	if st.Alternative > 0 {
		change = c.choose(j, st.Alternative)
	}
	if node := c.startsFirst(j, st.Alloc); node != "" {
		c.enter(j, placing)
		c.withdraw(j)
		j.why, j.until = fmt.Sprintf("a job that was placed on node %s has not started yet", node), c.now+500*time.Millisecond
		return
	}
	borrows := c.borrowed(j, st.Alloc)
	for _, list := range borrows {
		for _, b := range list {
			a.Devices = append(a.Devices, b.Device)
		}
	}
	if len(a.Devices) > 0 && c.cfg.GrantFolder != "" {
		a.Grant = fmt.Sprintf("%s/%d.%d", c.cfg.GrantFolder, j.ID, a.Start)
	}
	if node := c.clash(j, st.Alloc, borrows); node != "" {
		c.enter(j, placing)
		c.withdraw(j)
		j.why, j.until = fmt.Sprintf("node %s lends some of its GPUs, and Slurm gives out others: which ones a job gets there Slurm alone decides, so it waits until only one of both is so", node), c.now+c.pause(j)
		return
	}
	j.plan = a
	say := words.Comment{Other: j.comment.Other, Request: j.comment.Request, Answer: a}
	say.Request.Paused = false
	if !say.Request.Placed {
		say.Request.Placed, say.Request.Was = true, j.fact.Required
	}
	c.enter(j, placing)
	j.busy = true
	place := Place{Job: j.Ref, Nodes: a.Nodes, Comment: say.String(), Start: a.Start, User: j.fact.User, UID: j.fact.UID, As: change, Borrows: borrows}
	if !st.Alloc.Parts[0].Exclusive && !j.spread {
		place.CPUsPerNode = int(st.Alloc.Parts[0].Cores)
	}
	c.trim(j, st.Alloc)
	c.effects.Places = append(c.effects.Places, place)
}

// Explain asks for the reasons why jobs wait to be written into their comments: of at most most
// jobs, only if the reason has changed, and for each job once in every.
func (c *Core) Explain(now time.Duration, most int, every time.Duration) {
	c.advance(now)
	if c.now-c.began < c.cfg.Settle {
		return // the policy has decided nothing yet
	}
	ids := c.sorted(func(j *job) bool {
		return (j.phase == waiting || j.phase == aside) && j.managed && !j.busy && c.now-j.saidAt >= every
	})
	from, _ := slices.BinarySearch(ids, c.asked)
	for _, id := range slices.Concat(ids[from:], ids[:from]) {
		if most == 0 {
			return
		}
		most--
		j := c.jobs[id]
		c.asked, j.saidAt = id+1, c.now
		why := c.Why(j.ID)
		if why == "" || why == j.said {
			continue
		}
		j.said = why
		say := j.comment
		say.Answer, say.Why = nil, why
		c.effects.Comments = append(c.effects.Comments, Say{j.Ref, say.String()})
	}
}

// Why says why a job waits, or why it was placed where it is.
func (c *Core) Why(id uint64) string {
	j := c.jobs[id]
	switch {
	case j == nil:
		return ""
	case j.phase == waiting:
		return c.state.Why(j.number)
	case j.phase == aside:
		return j.why
	case j.phase == running && j.whyStopped() != "":
		return j.whyStopped()
	case j.plan != nil:
		return j.plan.Why
	}
	return ""
}

func sameSpec(a, b *model.Job) bool {
	return a.WallTime == b.WallTime && a.Reservation == b.Reservation && a.Request.Nodes == b.Request.Nodes && a.Request.Cores == b.Request.Cores &&
		a.Request.CoresPerNode == b.Request.CoresPerNode && a.Request.Memory == b.Request.Memory && a.Request.GPUs == b.Request.GPUs &&
		a.Request.Exclusive == b.Request.Exclusive && a.Request.Contiguous == b.Request.Contiguous && slices.Equal(a.Request.NodeList, b.Request.NodeList)
}
