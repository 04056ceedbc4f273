package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
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

// present is what all parts go by: the configuration and the time.
type present struct {
	cfg        Config
	now, began time.Duration
}

// book is the policy's view of the cluster, and what it is to be asked.
type book struct {
	state    *policy.State
	numbered map[policy.JobID]*job
	stepDue  bool
	wake     time.Duration
}

// due has the policy decide soon: something has changed.
func (b *book) due() { b.stepDue = true }

// ground is what there is, for all parts that do something with it.
type ground struct {
	*present
	out    *outbox
	roster *roster
	book   *book
	fleet  *fleet
}

// Core is the driver's state. Each of its parts knows only parts before it in this list.
type Core struct {
	ground
	reader *reader
	*ranks
	ledger *ledger
	*lending
	stopper *stopper

	started   bool
	settled   bool // a listing was requested late enough to show all requests of the driver before this one
	uncrowdAt time.Duration
	asked     uint64 // the job with which Explain continues
}

// New returns a core that knows nothing of the cluster yet. The policy must serve this core only.
func New(cfg Config, p policy.Policy) *Core {
	cfg.defaults()
	now, out := &present{cfg: cfg}, &outbox{}
	roster := &roster{jobs: map[uint64]*job{}, active: map[uint64]int{}, members: map[uint64]int{}}
	book := &book{state: policy.NewState(&model.Cluster{Name: cfg.Cluster}, p), numbered: map[policy.JobID]*job{}, wake: policy.Never}
	book.state.SetClock(func(t time.Duration) string {
		if t-now.policyTime(now.now) > year/2 {
			return ""
		}
		return time.Unix(0, int64(t+now.began)).Format("15:04:05")
	})
	on := ground{now, out, roster, book, &fleet{present: now, out: out, book: book, byName: map[string]*node{}, partitions: map[string]*partition{}}}
	c := &Core{ground: on, reader: &reader{on}, ranks: newRanks(on)}
	c.ledger = &ledger{ground: on, reader: c.reader, ranks: c.ranks}
	c.lending = &lending{on, c.ledger, map[string]bool{}}
	c.stopper = &stopper{on, c.ledger, preempt.Wraps(p)}
	return c
}

// Record writes everything that the policy is told from now on, and what it decides, in the format
// of package history, for muster sim replay. The recording begins with a snapshot. An error of w
// ends the recording and nothing else.
func (c *Core) Record(w io.Writer, h history.Header) { history.Record(w, h, c.book.state) }

const year = 365 * 24 * time.Hour

func (c *Core) advance(now time.Duration) {
	if !c.started {
		c.started, c.began = true, now
	}
	c.now = max(c.now, now)
}

// policyTime converts an instant to the policy's clock, which starts at c.began. It is negative for
// jobs that started earlier.
func (p *present) policyTime(at time.Duration) time.Duration { return at - p.began }

// Take returns the effects collected so far, and forgets them.
func (c *Core) Take() Effects {
	e := c.out.effects
	c.out.effects = Effects{}
	return e
}

// Counts returns the numbers of events so far.
func (c *Core) Counts() Counts { return c.out.counts }

// Next is when a Step is due even if nothing happens.
func (c *Core) Next() time.Duration {
	if c.book.stepDue {
		return max(c.now, c.began+c.cfg.Settle)
	}
	if c.ranks.priorities != nil && c.ranks.priorities.Waiting() > 0 {
		return min(c.book.wake, c.began+c.ranks.priorities.Next())
	}
	return c.book.wake
}

// must panics on an error of a call that cannot fail while the driver's and the policy's books
// agree.
func must(err error) {
	if err != nil {
		panic("slurm: the policy's book and the driver's disagree: " + err.Error())
	}
}

// Observe brings the core up to date with what Slurm says. Partitions and nodes come before jobs,
// because jobs are understood in their terms.
func (c *Core) Observe(now time.Duration, p *Picture) {
	c.advance(now)
	if p.Partitions != nil {
		clear(c.fleet.partitions)
		for _, f := range p.Partitions {
			c.fleet.partitions[f.Name] = &partition{f, names(f.Nodes)}
		}
	}
	if p.Nodes != nil {
		c.fleet.takeNodes(p.Nodes)
	}
	if c.cfg.Lending && p.Lenders != nil {
		c.lending.takeLenders(p.Lenders)
	}
	c.ranks.takeRanking(p)
	if p.Reservations != nil {
		c.fleet.reserved = p.Reservations
		c.fleet.setWindows()
	}
	c.settled = c.settled || p.Asked-c.began >= c.cfg.Settle
	if p.Same {
		c.lookAgain(p.Asked)
		return
	}
	c.roster.listing++
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
	for _, id := range c.roster.sorted(func(j *job) bool { return j.mark != c.roster.listing && !j.busy && p.Asked > j.told }) {
		c.over(id, c.roster.jobs[id])
	}
	c.uncrowd()
	c.offerAll(fresh)
}

// lookAgain acts on a listing without changes: time has passed, so jobs may be offered again, and
// patience may be over.
func (c *Core) lookAgain(asked time.Duration) {
	var fresh []*job
	for _, id := range c.roster.sorted(func(j *job) bool { return !j.busy && asked > j.told }) {
		j := c.roster.jobs[id]
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
				c.stopper.standing(j, asked)
			}
		}
	}
	c.offerAll(fresh)
}

// take updates what is known of a job with what Slurm says. It returns nil if the job has ended, or
// if the listing is older than the latest request about the job.
func (c *Core) take(f *Job, asked time.Duration) *job {
	j := c.roster.jobs[f.ID]
	if j != nil {
		j.mark = c.roster.listing
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
		j = &job{Ref: refOf(f), place: place{number: -1}, mark: c.roster.listing, since: c.now}
		c.roster.jobs[f.ID] = j
	}
	j.Ref = refOf(f)
	c.read(j, f)
	if !f.pending() {
		c.runs(j)
		c.stopper.standing(j, asked)
		return j
	}
	c.waits(j, asked)
	return j
}

// read takes over Slurm's record of a job, and parses its comments if they have changed.
func (c *Core) read(j *job, f *Job) {
	c.roster.member(j, f.ArrayJob, f.ArrayJob != 0 && !f.several())
	fresh := j.fact.ID == 0 || j.fact.AdminComment != f.AdminComment || j.fact.Comment != f.Comment
	j.fact = *f
	if !fresh {
		return
	}
	both, err := words.ParseBoth(f.AdminComment, f.Comment)
	if err != nil {
		c.out.note("job %s: %v", j.Ref, err)
	}
	j.comment, j.managed = both, both.Request != nil
	j.said, j.before = j.comment.Why, nil
	j.borrower = j.borrows()
	c.reader.readAlternatives(j)
}

// ended handles a job that Slurm lists as ended. It may have been too short to be seen running.
func (c *Core) ended(j *job, f *Job) {
	if j.managed && j.plan != nil && (j.phase == placing || j.phase == placed || j.phase == recalling) && f.Nodes != "" {
		c.checkNodes(j, names(f.Nodes))
		c.ledger.enter(j, running)
	}
	c.over(f.ID, j)
}

// over forgets a job that has ended, or that Slurm does not list any more.
func (c *Core) over(id uint64, j *job) {
	if j.managed && (j.phase == running || j.phase == placed) {
		c.out.counts.Ended++ // a placed job that is gone has run and ended between two listings
	}
	c.ledger.withdraw(j)
	c.roster.member(j, j.fact.ArrayJob, false)
	delete(c.roster.jobs, id)
}

// waits handles a job that is pending in Slurm.
func (c *Core) waits(j *job, asked time.Duration) {
	f := &j.fact
	if j.phase == running {
		c.ledger.withdraw(j) // Slurm has requeued it
	}
	switch {
	case !j.managed:
		c.ledger.withdraw(j)
		c.ledger.enter(j, slurms)
	case f.several():
		c.takeApart(j)
	case !f.Held:
		c.released(j)
	case j.phase == placing && asked <= j.told+c.cfg.Settle:
		// The outcome of the request is still open.
	case j.phase == placing, j.phase == placed, j.phase == recalling, j.phase == leaving, j.phase == slurms:
		c.ledger.withdraw(j) // it is held again, or was never released
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
		c.ledger.recall(j, "Slurm has forgotten where it was placed last")
	case answer.For(f.ID, f.Restarts) && j.phase != recalling:
		if j.phase != placed {
			c.ledger.findPlaced(j)
		}
		c.checkPlaced(j)
	case answer != nil && answer.Job == f.ID:
		// Slurm has requeued it, pinned to the nodes that it had; or it is to be recalled.
		c.ledger.recall(j, "Slurm has requeued it")
	default:
		// Its user released it, or it was handed over.
		c.ledger.withdraw(j)
		c.ledger.enter(j, slurms)
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
			c.ledger.recall(j, fmt.Sprintf("Slurm did not start it within %s", units.FormatDuration(c.cfg.Patience)))
		}
		return
	}
	if c.now-j.since < time.Second { // the reason may be from before the placement
		return
	}
	c.ledger.recall(j, "Slurm does not start it: "+j.fact.Reason)
	if j.fact.Reason == "DependencyNeverSatisfied" {
		j.until = max(j.until, c.now+time.Hour)
	}
}

// offerAll offers the jobs that stand aside to the policy, in the order of their numbers.
func (c *Core) offerAll(list []*job) {
	slices.SortFunc(list, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	for _, j := range list {
		if j.phase == aside && j.managed && !j.busy && c.roster.jobs[j.ID] == j && j.fact.pending() && j.fact.Held && !j.fact.several() {
			c.offer(j)
		}
	}
}

// gate says why a job must not be offered now; "" if it may.
func (c *Core) gate(j *job) string {
	f := &j.fact
	switch p := c.fleet.partitions[f.Partition]; {
	case j.comment.Request.Held:
		return "its user holds it: scontrol release lets it go"
	case f.Reason == "JobHeldAdmin":
		return "an administrator holds it: scontrol release lets it go"
	case f.Dependency != "" && c.roster.dependsOn(f) != "":
		return "it waits for other jobs: " + c.roster.dependsOn(f)
	case f.Eligible > c.now:
		return "it must not start before " + time.Unix(0, int64(f.Eligible)).Format("15:04:05")
	case j.until > c.now:
		return j.why
	case p != nil && !p.Up:
		return "partition " + f.Partition + " is not up"
	case f.ArrayJob != 0 && f.ArrayLimit > 0 && c.roster.active[f.ArrayJob] >= f.ArrayLimit:
		return fmt.Sprintf("%d tasks of its array may run at a time, and as many do", f.ArrayLimit)
	}
	return ""
}

// offer submits a job to the policy, or notes why not.
func (c *Core) offer(j *job) {
	if j.why = c.gate(j); j.why != "" {
		return
	}
	spec, err := c.reader.understand(j)
	if err != nil {
		c.notOurs(j, err)
		return
	}
	id, err := c.book.state.Submit(spec)
	if err != nil {
		j.why = strings.TrimPrefix(err.Error(), policy.ErrImpossible.Error()+": ")
		if !errors.Is(err, policy.ErrImpossible) {
			j.why = err.Error()
		}
		j.until = c.now + 10*time.Second // nodes may join
		return
	}
	j.spec, j.number = spec, id
	c.book.numbered[id] = j
	c.roster.count(j)
	c.ranks.rank(j)
	c.ledger.enter(j, waiting)
	c.book.due()
}

// notOurs handles a job that the core does not understand: it is handed to Slurm's scheduler,
// unless it needs what only Muster can give.
func (c *Core) notOurs(j *job, err error) {
	if j.borrower {
		j.why = fmt.Sprintf("it asks for borrowed GPUs, and %v: change it with scontrol update, or cancel it", err)
		return
	}
	if c.lending.mixes(j) {
		j.why = fmt.Sprintf("nodes lend GPUs that Slurm knows, too, so Slurm's scheduler cannot have it, and %v: change it with scontrol update, or cancel it", err)
		return
	}
	j.why = fmt.Sprintf("left to Slurm's scheduler: %v", err)
	c.ledger.enter(j, leaving)
	j.busy = true
	say := j.comment
	say.Answer, say.Why = nil, j.why
	c.out.counts.HandedOver++
	c.out.effects.Handovers = append(c.out.effects.Handovers, Say{j.Ref, say.String()})
}

// reread withdraws a waiting job that must not be offered any more, or that asks for something else
// than it did.
func (c *Core) reread(j *job) {
	if c.gate(j) == "" || strings.HasPrefix(c.gate(j), "partition") {
		if spec, err := c.reader.understand(j); err == nil && sameSpec(spec, j.spec) {
			c.ranks.rerank(j)
			return
		}
	} else if j.fact.ArrayJob != 0 && !j.comment.Request.Held && j.fact.Reason != "JobHeldAdmin" && c.roster.dependsOn(&j.fact) == "" {
		return // its array's limit is reached because the job itself is counted
	}
	c.ledger.withdraw(j)
}

// takeApart asks for the next tasks of an array to become jobs of their own: few at a time, since
// each is a record in Slurm.
func (c *Core) takeApart(j *job) {
	f := &j.fact
	c.ledger.enter(j, aside)
	if j.busy || c.gate(j) != "" {
		j.why = c.gate(j)
		return
	}
	n := 64
	if f.ArrayLimit > 0 {
		n = min(n, f.ArrayLimit)
	}
	if n -= c.roster.members[f.ArrayJob]; n <= 0 {
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
	c.out.effects.Splits = append(c.out.effects.Splits, Split{Array: f.ArrayJob, Tasks: tasks, Contiguous: f.Contiguous})
}

// Told reports the outcome of a request about a job; err says why it was refused. The outcome of a
// Split is reported for the array.
func (c *Core) Told(now time.Duration, id uint64, fate Fate, err error) {
	c.advance(now)
	j := c.roster.jobs[id]
	if j == nil {
		return
	}
	j.busy, j.told = false, c.now
	switch {
	case j.halting || j.rousing:
		c.stopper.toldOfStop(j, fate, err)
	case fate == Unknown:
		c.out.counts.Unknown++
		c.out.note("job %s: %v", j.Ref, err)
	case fate == Refused && j.phase == placing:
		c.out.counts.Refused++
		c.out.note("job %s: %v", j.Ref, err)
		c.ledger.withdraw(j)
		j.plan = nil
		j.why, j.until = err.Error(), c.now+c.ledger.pause(j)
		if !errors.Is(err, ErrNotLent) {
			j.why = "Slurm refused its placement: " + j.why
		}
	case fate == Refused:
		c.out.note("job %s: %v", j.Ref, err)
		j.why, j.until = err.Error(), c.now+c.ledger.pause(j)
	case j.phase == placing:
		c.out.counts.Placed++
		c.ledger.enter(j, placed)
	case j.phase == leaving:
		c.ledger.enter(j, slurms)
	}
}

// Step lets the policy decide, if anything has changed since it last did, or if it asked for a step
// now. A new driver first waits for Settle, until it knows what the driver before it has placed.
func (c *Core) Step(now time.Duration) {
	c.advance(now)
	if !c.book.stepDue && c.now < c.book.wake && !c.ranks.ranksDue() || c.now-c.began < c.cfg.Settle || c.cfg.Lending && !c.settled {
		return
	}
	c.book.stepDue = false
	c.ranks.tellRanks()
	plan := c.book.state.Step(c.policyTime(c.now))
	c.book.wake = policy.Never
	if plan.Wake != policy.Never && plan.Wake > c.policyTime(c.now) {
		c.book.wake = plan.Wake + c.began
	}
	c.ledger.open = nil
	for i := range plan.Starts {
		if st := &plan.Starts[i]; st.Err == nil {
			c.begin(st)
		} else {
			c.book.due()
		}
	}
	for i := range plan.Stops {
		c.stopper.halt(&plan.Stops[i])
	}
	for i := range plan.Resumes {
		if r := &plan.Resumes[i]; r.Err == nil {
			c.stopper.rouse(c.book.numbered[r.Job])
		} else {
			c.book.due()
		}
	}
	c.stopper.rouseIdle()
}

// begin asks for a job to be placed as the policy decided.
func (c *Core) begin(st *policy.Start) {
	j := c.book.numbered[st.Job]
	c.ranks.unrank(j)
	a := &words.Answer{Start: j.fact.Restarts, Job: j.ID, Why: st.Reason.Text(c.book.state.View())}
	for i := range st.Alloc.Parts {
		p := &st.Alloc.Parts[i]
		a.Nodes = append(a.Nodes, c.fleet.nodes[p.Node].Name)
	}
	var change *Change
	if st.Alternative > 0 {
		change = c.reader.choose(j, st.Alternative)
	}
	if node := c.ledger.startsFirst(j, st.Alloc); node != "" {
		c.ledger.enter(j, placing)
		c.ledger.withdraw(j)
		j.why, j.until = fmt.Sprintf("a job that was placed on node %s has not started yet", node), c.now+500*time.Millisecond
		return
	}
	borrows := c.lending.borrowed(j, st.Alloc)
	for _, list := range borrows {
		for _, b := range list {
			a.Devices = append(a.Devices, b.Device)
		}
	}
	if len(a.Devices) > 0 && c.cfg.GrantFolder != "" {
		a.Grant = fmt.Sprintf("%s/%d.%d", c.cfg.GrantFolder, j.ID, a.Start)
	}
	if node := c.lending.clash(j, st.Alloc, borrows); node != "" {
		c.ledger.enter(j, placing)
		c.ledger.withdraw(j)
		j.why, j.until = fmt.Sprintf("node %s lends some of its GPUs, and Slurm gives out others: which ones a job gets there Slurm alone decides, so it waits until only one of both is so", node), c.now+c.ledger.pause(j)
		return
	}
	j.plan = a
	say := words.Comment{Other: j.comment.Other, Request: j.comment.Request, Answer: a}
	say.Request.Paused = false
	if !say.Request.Placed {
		say.Request.Placed, say.Request.Was = true, j.fact.Required
	}
	c.ledger.enter(j, placing)
	j.busy = true
	place := Place{Job: j.Ref, Nodes: a.Nodes, Comment: say.String(), Start: a.Start, User: j.fact.User, UID: j.fact.UID, As: change, Borrows: borrows}
	if !st.Alloc.Parts[0].Exclusive && !j.spread {
		place.CPUsPerNode = int(st.Alloc.Parts[0].Cores)
	}
	c.ledger.trim(j, st.Alloc)
	c.out.effects.Places = append(c.out.effects.Places, place)
}

// Explain asks for the reasons why jobs wait to be written into their comments: of at most most
// jobs, only if the reason has changed, and for each job once in every.
func (c *Core) Explain(now time.Duration, most int, every time.Duration) {
	c.advance(now)
	if c.now-c.began < c.cfg.Settle {
		return // the policy has decided nothing yet
	}
	ids := c.roster.sorted(func(j *job) bool {
		return (j.phase == waiting || j.phase == aside) && j.managed && !j.busy && c.now-j.saidAt >= every
	})
	from, _ := slices.BinarySearch(ids, c.asked)
	for _, id := range slices.Concat(ids[from:], ids[:from]) {
		if most == 0 {
			return
		}
		most--
		j := c.roster.jobs[id]
		c.asked, j.saidAt = id+1, c.now
		why := c.Why(j.ID)
		if why == "" || why == j.said {
			continue
		}
		j.said = why
		say := j.comment
		say.Answer, say.Why = nil, why
		c.out.effects.Comments = append(c.out.effects.Comments, Say{j.Ref, say.String()})
	}
}

// Why says why a job waits, or why it was placed where it is.
func (c *Core) Why(id uint64) string {
	j := c.roster.jobs[id]
	switch {
	case j == nil:
		return ""
	case j.phase == waiting:
		return c.book.state.Why(j.number)
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

// Settled says whether the core knows everything that a driver before this one has asked Slurm for.
// Until then, nothing that it lent must be taken back.
func (c *Core) Settled() bool { return c.settled }

// runs handles a job that Slurm has started: the book must have what Slurm says.
func (c *Core) runs(j *job) {
	uses := j.fact.Uses
	if len(uses) == 0 {
		return // it is ending, or Slurm does not say: the book stays
	}
	if j.phase == running && slices.Equal(uses, j.uses) {
		return
	}
	if j.plan == nil && j.managed && j.comment.Answer.For(j.ID, j.fact.Restarts) {
		j.plan = j.comment.Answer
	}
	if j.phase != running && j.managed && j.plan != nil {
		var on []string
		for _, u := range uses {
			on = append(on, u.Node)
		}
		c.checkNodes(j, on)
	}
	if j.number >= 0 && j.phase != waiting && c.ledger.asPlanned(j) {
		j.uses, j.tries = uses, 0
		c.ledger.enter(j, running)
		return
	}
	grants := c.ledger.grantsOf(j)
	c.ledger.withdraw(j)
	j.uses = uses
	c.ledger.enter(j, running)
	c.ledger.adopt(j, grants)
	c.lending.noteClashes(j)
}

// checkNodes compares where a job has started with where it was placed.
func (c *Core) checkNodes(j *job, on []string) {
	c.out.counts.Started++
	want := slices.Clone(j.plan.Nodes)
	sort.Strings(on)
	sort.Strings(want)
	if !slices.Equal(on, want) {
		c.out.counts.Wrong++
		c.out.note("job %s was placed on %v and runs on %v", j.Ref, want, on)
	}
}

// uncrowd tries again to enter what did not fit: it withdraws all jobs on crowded nodes and enters
// them anew, at most once a second.
func (c *Core) uncrowd() {
	if c.now < c.uncrowdAt || !slices.ContainsFunc(c.fleet.nodes, func(n *node) bool { return n.crowded }) {
		return
	}
	c.uncrowdAt = c.now + time.Second
	var there []*job
	for _, id := range c.roster.sorted(func(j *job) bool { return j.phase == running && c.ledger.onCrowded(j) }) {
		j := c.roster.jobs[id]
		grants := c.ledger.grantsOf(j)
		c.ledger.withdraw(j)
		c.ledger.enter(j, running)
		there = append(there, j)
		j.grants = grants
	}
	for _, n := range c.fleet.nodes {
		if n.crowded {
			n.crowded = false
			c.fleet.setNode(n)
		}
	}
	// Suspended jobs first: others may run in their place.
	slices.SortStableFunc(there, func(a, b *job) int { return cmp.Compare(b.suspended(), a.suspended()) })
	for _, j := range there {
		c.ledger.adopt(j, j.grants)
		j.grants = nil
		c.stopper.standing(j, c.now)
	}
	for _, id := range c.roster.sorted(func(j *job) bool { return j.phase == recalling }) {
		c.ledger.crowdLenders(c.roster.jobs[id])
	}
	for _, n := range c.fleet.nodes {
		n.noted = n.crowded
	}
}
