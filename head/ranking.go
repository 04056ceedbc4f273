package head

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/policy"
	"muster/policy/priority"
	"muster/wire/api"
)

// The head keeps a book of priorities. It tells the book what happens to jobs, and tells the policy
// the ranks that follow. Without a book, jobs stand in the order in which they came, apart from
// nice values and what administrators set. The store has the book as one record, written every
// keepRanking. After a restart, usage since the last write is computed again for jobs that still
// run; that of jobs that ended meanwhile is lost.

// rankingKey is the key of the book's record.
var rankingKey = []byte("priority")

// keepRanking is how often the book is written.
const keepRanking = 5 * time.Minute

// ranking is the book of priorities, and which jobs are in it, by their numbers. It knows no jobs
// beside that. A nil ranking is that of a head without a book: it does nothing.
type ranking struct {
	book  *priority.Book
	in    map[priority.Key]bool // the jobs in the book; true for those waiting there
	wrote time.Duration         // when the record was written from which the book was restored
}

// newRanking makes a ranking, from the stored document if there is one.
func newRanking(cfg priority.Config, kept *priority.Document) (*ranking, error) {
	r := &ranking{in: map[priority.Key]bool{}}
	var err error
	if kept == nil {
		r.book, err = priority.New(cfg)
	} else {
		r.book, err = priority.Import(cfg, *kept)
	}
	if err != nil {
		return nil, fmt.Errorf("the priorities: %w", err)
	}
	if kept != nil {
		for i := range kept.Jobs {
			r.in[kept.Jobs[i].Key] = kept.Jobs[i].Waits
		}
		r.wrote = kept.Now
	}
	return r, nil
}

// must panics on an error of a call that cannot fail while the head and the book agree.
func (r *ranking) must(err error) {
	if err != nil {
		panic("head: the book of priorities and the head's disagree: " + err.Error())
	}
}

// submitted enters a job that waits now. entry is asked for what the book needs to know of one that is
// not in it.
func (r *ranking) submitted(job uint64, now time.Duration, entry func() priority.Submission) {
	if r == nil {
		return
	}
	k := priority.Key(job)
	waits, known := r.in[k]
	switch {
	case waits:
		return
	case known:
		r.must(r.book.Requeued(k, now))
	case r.book.Submitted(k, entry()) != nil:
		return // an administrator has removed its account: the book does not rank it
	}
	r.in[k] = true
}

// started notes that a job runs with what it holds, unless the book does not rank it.
func (r *ranking) started(job uint64, at time.Duration, holds priority.TRES) {
	if k := priority.Key(job); r.knows(job) {
		r.must(r.book.Started(k, max(at, r.wrote), holds))
		r.in[k] = false
	}
}

func (r *ranking) knows(job uint64) (known bool) {
	if r != nil {
		_, known = r.in[priority.Key(job)]
	}
	return known
}

// stopped notes that a job neither waits in the book nor runs.
func (r *ranking) stopped(job uint64, now time.Duration) {
	if k := priority.Key(job); r.knows(job) {
		r.must(r.book.Stopped(k, now))
		r.in[k] = false
	}
}

// gone notes that a job is over.
func (r *ranking) gone(job uint64, now time.Duration) {
	if k := priority.Key(job); r.knows(job) {
		r.must(r.book.Gone(k, now))
		delete(r.in, k)
	}
}

// compare drops from a book from the store, which may be minutes old, the jobs that are not there.
func (r *ranking) compare(there func(job uint64) bool) {
	for _, k := range slices.Sorted(maps.Keys(r.in)) {
		if !there(uint64(k)) {
			r.gone(uint64(k), r.wrote)
		}
	}
}

// adjust sets what was decided for a job by hand, and says whether the book ranks it.
func (r *ranking) adjust(job uint64, nice int64, admin *int64) bool {
	k := priority.Key(job)
	if r == nil || !r.in[k] {
		return false
	}
	r.must(r.book.SetNice(k, nice))
	r.must(r.book.SetPriority(k, admin))
	return true
}

// due is when ranks change next because time passes.
func (r *ranking) due() time.Duration {
	if r == nil || r.book.Waiting() == 0 {
		return policy.Never
	}
	return r.book.Next()
}

// ---- the core's part ----

// setRanking makes the book, from the stored document if there is one.
func (c *Core) setRanking(kept *priority.Document) error {
	if c.cfg.Priority == nil {
		return nil
	}
	var err error
	if c.ranking, err = newRanking(*c.cfg.Priority, kept); err != nil {
		return err
	}
	c.now = max(c.now, c.ranking.wrote)
	c.timers.set(timer{at: c.now + keepRanking, what: ringRanking})
	return nil
}

// compareBook reconciles a book from the store with the present jobs.
func (c *Core) compareBook() {
	if c.ranking == nil {
		return
	}
	c.ranking.compare(c.isThere)
	for j := range c.roster.from(0) {
		switch {
		case j.alloc != nil && !j.asleep:
			c.bookStarted(j, max(c.ranking.wrote, j.start))
		case j.number < 0, j.asleep: // it stands still, or at a gate
			c.ranking.stopped(j.id, c.now)
		}
	}
}

// bookSubmitted enters a job that has been offered to the policy.
func (c *Core) bookSubmitted(j *job) {
	c.ranking.submitted(j.id, c.now, func() priority.Submission { return c.entryOf(j) })
}

// entryOf is what the book needs to know of a job.
func (c *Core) entryOf(j *job) priority.Submission {
	r := &j.said.Request
	return priority.Submission{
		User: j.user, Account: j.said.Account, QOS: j.said.QOS, Partition: j.said.Partition, At: cmp.Or(j.eligible, c.now),
		Nodes: int64(r.Nodes), Asks: priority.AsksOf(c.state.Cluster(), r), Nice: j.nice, Admin: j.priority,
	}
}

func (c *Core) bookStarted(j *job, at time.Duration) {
	if c.ranking == nil {
		return
	}
	if !c.ranking.knows(j.id) {
		c.bookSubmitted(j)
	}
	c.ranking.started(j.id, at, priority.HoldsOf(c.state.Cluster(), j.alloc))
}

// mayBook refuses a job that the book would refuse.
func (c *Core) mayBook(j *job) *Refusal {
	if c.ranking == nil {
		return nil
	}
	if err := c.ranking.book.Possible(priority.Key(j.id), c.entryOf(j)); err != nil {
		return refusal(statusBadRequest, "%v", err)
	}
	return nil
}

// rankAll tells the policy the ranks that have changed.
func (c *Core) rankAll() {
	if c.ranking == nil {
		return
	}
	for _, r := range c.ranking.book.Due(c.now) {
		if j := c.roster.jobs[uint64(r.Job)]; j != nil && j.number >= 0 && j.state == api.Pending {
			c.mustState(c.state.Rank(j.number, r.Rank))
			c.stepDue = true
		}
	}
}

// rank brings a waiting job's rank up to date. The book takes nice value and priority, and rankAll
// hands on what follows; a job that is not in the book is ranked directly.
func (c *Core) rank(j *job) {
	if j.number < 0 || j.state != api.Pending {
		return
	}
	if c.ranking.adjust(j.id, j.nice, j.priority) {
		return
	}
	c.mustState(c.state.Rank(j.number, j.standing(c)))
}

// standing is a job's priority, as users see it. Tasks of an array that the book does not know yet
// have that of those which wait with the policy.
func (j *job) standing(c *Core) int64 {
	if c.ranking != nil {
		if r := cmp.Or(j.of, j); r.rest != nil && r.passed > 0 {
			if o := c.roster.arrays[r.array].ahead(r); o != nil {
				j = o
			}
		}
		if rank, ok := c.ranking.book.Rank(priority.Key(j.id)); ok {
			return rank
		}
	}
	if j.priority != nil {
		return *j.priority
	}
	return -j.nice
}

// keepBook writes the book to the store, and sets the timer for the next time.
func (c *Core) keepBook() {
	if c.ranking != nil {
		c.out.write(Record{Meta, rankingKey, encoded(c.ranking.book.Export())})
		c.timers.set(timer{at: c.now + keepRanking, what: ringRanking})
	}
}

// clusterChanged tells the book the size of the cluster, and the policy the nodes of the windows.
func (c *Core) clusterChanged() {
	if c.ranking != nil {
		c.ranking.book.Cluster(int64(len(c.byName)), priority.WholeOf(c.state.Cluster()))
	}
	c.setWindows()
}

// Usage lists what users and accounts have used.
func (c *Core) Usage(now time.Duration) []api.UsageLine {
	c.now = max(c.now, now)
	lines := []api.UsageLine{}
	if c.ranking == nil {
		return lines
	}
	for _, l := range c.ranking.book.Usage(c.now) {
		line := api.UsageLine{Account: l.Account, User: l.User, Shares: l.NormShares, Used: l.NormUsage, Raw: l.Usage}
		if l.User != "" {
			line.Factor = &l.FairShare
		}
		lines = append(lines, line)
	}
	return lines
}

// Priorities lists the waiting jobs among most jobs from a number on, with their priorities, and the
// factors of each. It says at which number to go on; 0 at the end.
func (c *Core) Priorities(first uint64, most int) (lines []api.JobPriority, next uint64) {
	for j := range c.roster.from(first) {
		if most--; most < 0 {
			return lines, j.id
		}
		if j.state != api.Pending {
			continue
		}
		line := api.JobPriority{Job: j.id, User: j.user, Account: j.said.Account, Priority: j.standing(c)}
		if c.ranking != nil {
			if f, ok := c.ranking.book.Factors(priority.Key(j.id)); ok {
				line.Account = f.Account
				line.Factors = map[string]int64{
					"age": int64(f.Age.Weighted), "fairshare": int64(f.FairShare.Weighted), "jobsize": int64(f.JobSize.Weighted),
					"partition": int64(f.Part.Weighted), "qos": int64(f.Class.Weighted), "tres": int64(f.CPU.Weighted + f.Mem.Weighted + f.GPU.Weighted), "nice": f.Nice,
				}
			}
		}
		lines = append(lines, line)
	}
	return lines, 0
}

// Window is a reservation or a maintenance window: a time in which only the users and accounts
// listed may use the nodes; if none are listed, none may. Without Nodes, it covers all nodes.
type Window struct {
	Name            string
	From, Until     time.Duration
	Nodes           []string
	Users, Accounts []string
}

// setWindows tells the policy the windows that are not over, with the numbers of the present nodes.
func (c *Core) setWindows() {
	var list []policy.Window
	for _, w := range c.cfg.Windows {
		p := policy.Window{Name: w.Name, From: c.policyTime(w.From), Until: c.policyTime(w.Until), Users: w.Users, Accounts: w.Accounts}
		if w.Until <= c.now || p.From >= p.Until { // over, or beyond the policy's clock
			continue
		}
		for _, n := range c.nodes {
			if !n.removed && (len(w.Nodes) == 0 || slices.Contains(w.Nodes, n.name)) {
				p.Nodes = append(p.Nodes, n.number)
			}
		}
		if len(p.Nodes) > 0 {
			list = append(list, p)
		}
	}
	if len(list) == 0 && len(c.state.Windows()) == 0 {
		return
	}
	c.mustState(c.state.SetWindows(list))
	c.stepDue = true
}
