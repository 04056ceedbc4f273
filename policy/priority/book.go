package priority

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Key names a job; the driver chooses it.
type Key int64

// Submission is what the book must know of a job.
type Submission struct {
	User      string        `json:"user"`
	Account   string        `json:"account,omitempty"` // "" is the user's first, or DefaultAccount
	QOS       string        `json:"qos,omitempty"`
	Partition string        `json:"partition,omitempty"`
	At        time.Duration `json:"at_ns"`
	Nodes     int64         `json:"nodes,omitempty"`
	Asks      TRES          `json:"asks"`
	// Nice is subtracted from the priority: what a user gives up or, if allowed
	// to give a negative value, gains.
	Nice int64 `json:"nice,omitempty"`
	// Admin, where set, is the priority, whatever the factors say.
	Admin *int64 `json:"admin,omitempty"`
}

// Book is all that was told, and what follows from it.
type Book struct {
	config Config
	tree   *tree
	nodes  int64 // of the cluster
	whole  TRES

	jobs map[Key]*job
	// queue holds the waiting jobs, in no order; a job knows its place.
	queue []*job
	// fresh are jobs that wait and have no rank yet.
	fresh []*job

	// now is the latest instant that was told or asked about; recalculated is that of the picture.
	now, recalculated time.Duration
	picture           picture
	stale             bool // a user or account has joined the tree since
	never             bool // there was no recalculation yet
	changed           bool // the configuration or the cluster did: all ranks are due

	// told are fair shares that another program keeps; nil if the book computes
	// them.
	told map[Member]float64

	ranked []Ranked // the latest answer
}

// Member is a user in an account.
type Member struct{ Account, User string }

type job struct {
	key    Key
	s      Submission
	user   int32 // member of the tree
	place  int32 // in the queue; -1 if it does not wait
	fixed  float64
	rank   int64
	at     time.Duration // when it was ranked
	holds  *TRES         // while it runs
	rate   int64
	ranked bool // rank is what Due said
	fresh  bool // it is in the list of those that came
}

// Ranked is a waiting job with its priority.
type Ranked struct {
	Job  Key
	Rank int64
}

// New returns an empty book.
func New(c Config) (*Book, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	return &Book{config: c, tree: newTree(c.Accounts), jobs: map[Key]*job{}, never: true}, nil
}

// Config is what the administrator decided.
func (b *Book) Config() Config { return b.config }

// Cluster tells what there is in all: sizes of jobs are parts of it.
func (b *Book) Cluster(nodes int64, whole TRES) {
	if b.nodes == nodes && b.whole == whole {
		return
	}
	b.nodes, b.whole, b.changed = nodes, whole, true
}

// FairShares replaces the fair shares that the book computes by those that
// another program keeps, as a real Slurm does for all jobs that run there. A
// user who is not named has none.
func (b *Book) FairShares(told map[Member]float64) {
	if b.told != nil && maps.Equal(b.told, told) {
		return
	}
	b.told, b.changed = told, true
}

// Configure changes what the administrator decided. What was used stays used:
// members that are no longer in the configuration keep their usage, and one share.
func (b *Book) Configure(c Config, at time.Duration) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w", err)
	}
	b.advance(at)
	old, halfLife := b.tree, b.config.DecayHalfLife
	b.config, b.tree, b.changed = c, newTree(c.Accounts), true
	moved := make([]int32, len(old.members))
	for i := range old.members {
		m := &old.members[i]
		if !m.user {
			continue
		}
		moved[i] = b.tree.memberOf(old.members[m.parent].name, m.name)
		to := &b.tree.members[moved[i]].meter
		to.used, to.since = m.meter.at(b.now, halfLife), b.now
	}
	for _, j := range b.byKey() {
		j.user = moved[j.user]
		if j.holds != nil {
			j.rate = c.Billing.rate(*j.holds)
			b.tree.members[j.user].meter.rate += j.rate
		}
	}
	return nil
}

// byKey lists the jobs in order of their keys.
func (b *Book) byKey() []*job {
	return slices.SortedFunc(maps.Values(b.jobs), func(a, c *job) int { return cmp.Compare(a.key, c.key) })
}

// memberOf finds a user in an account; both join the tree if they are not in it.
func (t *tree) memberOf(account, user string) int32 {
	a, ok := t.accounts[account]
	if !ok {
		a = t.addAccount(root, account, 1)
	}
	if id, ok := t.users[pair{a, user}]; ok {
		return id
	}
	return t.addUser(a, user, 1)
}

// advance moves the book's time; it never goes back.
func (b *Book) advance(at time.Duration) { b.now = max(b.now, at) }

// find returns a job, or an error that says what to do.
func (b *Book) find(k Key, what string) (*job, error) {
	j := b.jobs[k]
	if j == nil {
		return nil, fmt.Errorf("%s of job %d, which is not in the book: tell Submitted first", what, k)
	}
	return j, nil
}

// AccountOf is the account that a user's job is charged to: the one it names, or
// the first that the user is in.
func (b *Book) AccountOf(user, named string) string {
	if named != "" {
		return named
	}
	if home, ok := b.tree.home[user]; ok {
		return b.tree.members[home].name
	}
	return DefaultAccount
}

// Possible says with which error Submitted would refuse a job that is not in the book.
func (b *Book) Possible(k Key, s Submission) error {
	if err := checkNice(s.Nice); err != nil {
		return fmt.Errorf("job %d: %w", k, err)
	}
	if !b.config.Strict {
		return nil
	}
	account := b.AccountOf(s.User, s.Account)
	a, known := b.tree.accounts[account]
	if !known {
		return fmt.Errorf("there is no account %q: name one that the administrator made", account)
	}
	if _, in := b.tree.users[pair{a, s.User}]; !in {
		return fmt.Errorf("user %q is not in account %q: name an account that the user is in, or have the user added", s.User, account)
	}
	return nil
}

// Submitted tells of a job that waits from now on. Its rank is in the next Due.
func (b *Book) Submitted(k Key, s Submission) error {
	if b.jobs[k] != nil {
		return fmt.Errorf("job %d is in the book already", k)
	}
	if err := b.Possible(k, s); err != nil {
		return err
	}
	account := b.AccountOf(s.User, s.Account)
	s.Account = account
	members := len(b.tree.members)
	j := &job{key: k, s: s, user: b.tree.memberOf(account, s.User), place: -1}
	b.stale = b.stale || len(b.tree.members) > members
	b.jobs[k] = j
	b.advance(s.At)
	b.wait(j)
	return nil
}

func checkNice(nice int64) error {
	if nice < -MaxNice || nice > MaxNice {
		return fmt.Errorf("nice must be from -%[1]d to %[1]d, not %[2]d", MaxNice, nice)
	}
	return nil
}

// wait puts a job into the queue; it is ranked by the next Due.
func (b *Book) wait(j *job) {
	if j.place >= 0 {
		return
	}
	j.place = int32(len(b.queue))
	b.queue = append(b.queue, j)
	b.renew(j)
}

// renew lets the next Due rank a job whatever the time is.
func (b *Book) renew(j *job) {
	j.fixed, j.ranked = b.fixedOf(j), false
	if !j.fresh {
		j.fresh = true
		b.fresh = append(b.fresh, j)
	}
}

func (b *Book) unwait(j *job) {
	if j.place < 0 {
		return
	}
	last := b.queue[len(b.queue)-1]
	b.queue[j.place], last.place = last, j.place
	b.queue = b.queue[:len(b.queue)-1]
	j.place = -1
}

// charge changes what a job is charged for from now on; nil is nothing.
func (b *Book) charge(j *job, at time.Duration, holds *TRES) {
	b.advance(at)
	rate := int64(0)
	if holds != nil {
		rate = b.config.Billing.rate(*holds)
	}
	b.tree.members[j.user].meter.change(b.now, b.config.DecayHalfLife, rate-j.rate)
	j.holds, j.rate = holds, rate
}

// Started tells that a job runs, for the first time or again, and what it holds.
func (b *Book) Started(k Key, at time.Duration, holds TRES) error {
	j, err := b.find(k, "start")
	if err != nil {
		return err
	}
	b.unwait(j)
	b.charge(j, at, &holds)
	return nil
}

// Stopped tells that a job neither runs nor waits from now on: it was suspended,
// or is held back.
func (b *Book) Stopped(k Key, at time.Duration) error {
	j, err := b.find(k, "stop")
	if err != nil {
		return err
	}
	b.unwait(j)
	b.charge(j, at, nil)
	return nil
}

// Requeued tells that a job waits again. Its age still counts from its submission.
func (b *Book) Requeued(k Key, at time.Duration) error {
	j, err := b.find(k, "requeue")
	if err != nil {
		return err
	}
	b.charge(j, at, nil)
	b.wait(j)
	return nil
}

// Gone tells that a job is over, or was cancelled. What it used stays in the book.
func (b *Book) Gone(k Key, at time.Duration) error {
	j, err := b.find(k, "end")
	if err != nil {
		return err
	}
	b.unwait(j)
	b.charge(j, at, nil)
	delete(b.jobs, k)
	return nil
}

// SetNice changes a job's nice value.
func (b *Book) SetNice(k Key, nice int64) error {
	j, err := b.find(k, "nice value")
	if err != nil {
		return err
	}
	if err := checkNice(nice); err != nil {
		return fmt.Errorf("job %d: %w", k, err)
	}
	j.s.Nice = nice
	b.renew(j)
	return nil
}

// SetPriority sets a job's priority outright, or with nil lets the factors
// decide again.
func (b *Book) SetPriority(k Key, priority *int64) error {
	j, err := b.find(k, "priority")
	if err != nil {
		return err
	}
	j.s.Admin = priority
	b.renew(j)
	return nil
}

// Next is when Due has more to say than jobs that came, if nothing happens.
func (b *Book) Next() time.Duration {
	if b.never {
		return b.now
	}
	if b.recalculated > math.MaxInt64-b.config.CalcPeriod {
		return math.MaxInt64
	}
	return b.recalculated + b.config.CalcPeriod
}

// Due lists the waiting jobs whose rank is not what Due said last, in order of
// their keys. Jobs that came since are among them; the others are ranked anew
// once every CalcPeriod. The list is valid until the next call.
func (b *Book) Due(at time.Duration) []Ranked {
	b.advance(at)
	b.ranked = b.ranked[:0]
	if b.never || b.changed || b.now >= b.Next() {
		b.rankAll()
	} else if len(b.fresh) > 0 {
		b.rankFresh()
	}
	for _, j := range b.fresh {
		j.fresh = false
	}
	b.fresh = b.fresh[:0]
	slices.SortFunc(b.ranked, func(a, c Ranked) int { return cmp.Compare(a.Job, c.Job) })
	return b.ranked
}

func (b *Book) rankAll() {
	b.tree.look(&b.picture, b.now, &b.config)
	for _, j := range b.queue {
		if b.changed {
			j.fixed = b.fixedOf(j)
		}
		b.rank(j)
	}
	b.recalculated, b.never, b.changed, b.stale = b.now, false, false, false
}

// rankFresh ranks the new jobs; the others keep their ranks. The shares are
// computed again only if a user or account has joined the tree.
func (b *Book) rankFresh() {
	if b.stale {
		b.tree.look(&b.picture, b.now, &b.config)
		b.stale = false
	}
	for _, j := range b.fresh {
		if j.place >= 0 {
			b.rank(j)
		}
	}
}

// rank works out a job's priority and notes it if it is new.
func (b *Book) rank(j *job) {
	rank := b.priority(j, b.now)
	j.at = b.now
	if j.ranked && rank == j.rank {
		return
	}
	j.rank, j.ranked = rank, true
	b.ranked = append(b.ranked, Ranked{j.key, rank})
}

// Waiting counts the jobs that are ranked.
func (b *Book) Waiting() int { return len(b.queue) }
