package head

import (
	"fmt"
	"slices"
	"time"

	"muster/head/api"
	"muster/model"
	"muster/policy"
	"muster/policy/priority"
	"muster/wire/agent"
)

// Core is the state of a head.
type Core struct {
	// Past tells how a job ended that the core has forgotten, or how the tasks of an array
	// did; it may be nil. The daemon's asks the store.
	Past func(job uint64) (Past, bool)

	cfg   Config
	spec  string        // the policy, as the administrator wrote it
	state policyState   // what the policy knows of the cluster
	plain *policy.State // the same, without the recorder that may stand before it

	now   time.Duration // of the latest call
	began time.Duration
	next  uint64 // the number of the next job
	jobs  map[uint64]*job
	// order lists the numbers in jobs, ascending; jobs that were forgotten may still be
	// listed.
	order    []uint64
	arrays   map[uint64]*array
	numbered map[policy.JobID]*job
	users    map[string]*user
	keys     map[key]*keyed
	waiters  map[awaited][]*job // jobs that depend on a job or array
	// named are the jobs of a user that have the same name, in the order of their numbers;
	// some may have ended.
	named map[key][]*job
	over  map[uint64]*array // arrays that ended not long ago
	pasts map[uint64]Past   // recent answers of Past
	// impossible lists waiting jobs that no node could run; jobs that have become possible
	// or ended may still be listed.
	impossible []*job
	pending    int
	running    int

	nodes    []*node // by the policy's number
	byName   map[string]*node
	aliases  map[string]bool // the policy's names of nodes, those that are gone included
	retired  map[string]int  // how many policy numbers of each node are out of use
	types    map[string]model.GPUType
	special  bool // some node serves one user alone, or has another name with the policy
	sessions map[Session]*node

	book     *priority.Book        // nil if the policy alone orders the queue
	inBook   map[priority.Key]bool // jobs that the book knows; true if they wait there
	bookTime time.Duration         // when the book was written that the core began with

	timers  timers
	stepDue bool
	wake    time.Duration

	changes uint64
	dirty   []*job
	tell    []*job
	effects Effects
}

// array is the tasks of one array that have not ended.
type array struct {
	limit    int // how many may run at a time; 0 is no limit
	admitted int // tasks that have passed the array's gate
	waiting  []*job
	tally
	told   news             // what the jobs that wait for the array were last told
	tasks  []uint32         // all task numbers, in the order of the jobs' numbers
	byTask map[uint32]int32 // the places in tasks; made when first needed
	unread []uint32         // tasks that ended before the head was started and are not counted yet
	last   uint64           // the task that ended last
}

// user is what a user has of the cluster.
type user struct {
	jobs     int // that have not ended
	admitted int // with the policy, or running
	taken    need
	waiting  []*job // for room in the limits
}

type key struct{ user, key string }

type keyed struct {
	answer api.Submitted
	at     time.Duration
}

// New returns a cluster without nodes and jobs. The policy serves this core only; spec
// is how the administrator named it.
func New(cfg Config, p policy.Policy, spec string) *Core {
	state := policy.NewState(&model.Cluster{Name: cfg.Cluster}, p)
	c := &Core{
		cfg: cfg, spec: spec, state: state, plain: state,
		next: 1,
		jobs: map[uint64]*job{}, arrays: map[uint64]*array{}, numbered: map[policy.JobID]*job{},
		users: map[string]*user{}, keys: map[key]*keyed{}, waiters: map[awaited][]*job{},
		named: map[key][]*job{}, over: map[uint64]*array{}, pasts: map[uint64]Past{},
		byName: map[string]*node{}, aliases: map[string]bool{}, retired: map[string]int{}, types: map[string]model.GPUType{}, sessions: map[Session]*node{},
		wake: policy.Never,
	}
	state.SetClock(c.policyClock)
	return c
}

// Configure changes what an administrator decides. The policy stays: see SetPolicy.
func (c *Core) Configure(cfg Config) {
	c.cfg = cfg
	for _, name := range sortedKeys(c.users) {
		c.admitWaiting(c.users[name])
	}
	c.setWindows()
}

// SetPolicy lets another policy decide from the next step on; spec is how the
// administrator named it. A recording goes on: a replay with the old policy stops at the
// first decision that it would not have made.
func (c *Core) SetPolicy(p policy.Policy, spec string) {
	c.plain.SetPolicy(p)
	c.spec, c.stepDue = spec, true
}

// Handle takes an event. The effects are collected until Take.
func (c *Core) Handle(now time.Duration, ev Event) {
	c.advance(now)
	switch ev := ev.(type) {
	case Submit:
		c.submit(ev)
	case Cancel:
		c.cancel(ev)
	case Change:
		c.change(ev)
	case Node:
		c.nodeAction(ev)
	case Greeted:
		c.greeted(ev.Session, ev.Hello)
	case Said:
		c.said(ev.Session, ev.Message)
	case HungUp:
		c.hungUp(ev.Session)
	case Tick:
	default:
		panic(fmt.Sprintf("head: an event of type %T", ev))
	}
}

// advance moves the clock, never back, and does what has become due.
func (c *Core) advance(now time.Duration) {
	c.now = max(c.now, now)
	for {
		t, ok := c.timers.due(c.now)
		if !ok {
			return
		}
		c.ring(t)
	}
}

// Next is when a Tick is due at the latest.
func (c *Core) Next() time.Duration {
	next := min(c.timers.first(), c.wake, c.rankingDue())
	if c.stepDue {
		next = c.now
	}
	return next
}

// Take returns what was collected since the last call.
func (c *Core) Take() Effects {
	for _, j := range c.dirty {
		j.dirty = false
		c.effects.Records = append(c.effects.Records, c.record(j)...)
	}
	c.dirty = c.dirty[:0]
	for _, j := range c.tell {
		j.told = false
		doc := c.document(j)
		c.publish(api.Change{Job: &doc})
	}
	c.tell = c.tell[:0]
	e := c.effects
	c.effects = Effects{}
	return e
}

func (c *Core) publish(change api.Change) {
	c.changes++
	change.At = c.changes
	c.effects.Changes = append(c.effects.Changes, change)
}

// touch says that a job has changed: the next Take writes its record and tells listeners.
func (c *Core) touch(j *job) {
	if !j.dirty {
		j.dirty = true
		c.dirty = append(c.dirty, j)
	}
	c.show(j)
}

// show says that only what is shown of a job has changed, and not its record.
func (c *Core) show(j *job) {
	if !j.told {
		j.told = true
		c.tell = append(c.tell, j)
	}
}

func (c *Core) answer(r Request, result any) {
	c.effects.Answers = append(c.effects.Answers, Answer{Request: r, Result: result})
}

func (c *Core) refuse(r Request, status int, format string, args ...any) {
	c.effects.Answers = append(c.effects.Answers, Answer{Request: r, Err: refusal(status, format, args...)})
}

func refusal(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Reason: fmt.Sprintf(format, args...)}
}

// send sends a message to a node's agent. If the agent is away the message is dropped:
// compare makes it again when the agent greets.
func (c *Core) send(n *node, m agent.ToAgent, bulk uint64) {
	if n.session != 0 {
		c.effects.Sends = append(c.effects.Sends, Send{Session: n.session, Message: m, Bulk: bulk})
	}
}

// IsAdmin says whether a user administers the cluster.
func (c *Core) IsAdmin(user string) bool {
	return user == "root" || slices.Contains(c.cfg.Admins, user)
}

// mayTouch says whether a user may change a job, read its output and run commands in it.
func (c *Core) mayTouch(user string, j *job) *Refusal {
	if j.user == user || c.IsAdmin(user) {
		return nil
	}
	return refusal(statusForbidden, "job %s is %s's: only its user and administrators may do that", j.name(), j.user)
}

// find lists the jobs that a reference names: one, or all tasks of an array.
func (c *Core) find(ref Ref) ([]*job, *Refusal) {
	j := c.jobs[ref.Job]
	if a := c.arrays[ref.Job]; a != nil {
		from, to := ref.Job, ref.Job+uint64(len(a.tasks))
		if ref.Task >= 0 {
			if id, ok := a.idOf(ref.Job, ref.Task); ok {
				from, to = id, id+1
			}
		}
		var all []*job
		for _, id := range c.between(from, to) {
			if j := c.jobs[id]; j != nil && j.array == ref.Job && (ref.Task < 0 || j.task == ref.Task) {
				all = append(all, j)
			}
		}
		if len(all) > 0 {
			return all, nil
		}
		return nil, refusal(statusNotFound, "job %d has no task %d that is not long over", ref.Job, ref.Task)
	}
	if j == nil || ref.Task >= 0 {
		if ref.Task >= 0 {
			return nil, refusal(statusNotFound, "there is no job %d_%d, or it is long over", ref.Job, ref.Task)
		}
		return nil, refusal(statusNotFound, "there is no job %d, or it is long over", ref.Job)
	}
	return []*job{j}, nil
}

// between lists the numbers of jobs in [from, to), including those of forgotten jobs.
func (c *Core) between(from, to uint64) []uint64 {
	i, _ := slices.BinarySearch(c.order, from)
	k, _ := slices.BinarySearch(c.order, to)
	return c.order[i:k]
}

// forget drops a job that is long over.
func (c *Core) forget(id uint64) {
	if array := c.jobs[id].array; array != 0 && c.over[array] != nil && c.over[array].last == id {
		delete(c.over, array)
	}
	delete(c.jobs, id)
	// The list is compacted when half of its jobs are gone.
	if len(c.order) > 64 && len(c.jobs) < len(c.order)/2 {
		c.order = slices.DeleteFunc(c.order, func(id uint64) bool { return c.jobs[id] == nil })
	}
}

func (c *Core) user(name string) *user {
	u := c.users[name]
	if u == nil {
		u = &user{}
		c.users[name] = u
	}
	return u
}

// limits are those of a user.
func (c *Core) limits(name string) Limits {
	if l, ok := c.cfg.Users[name]; ok {
		return l
	}
	return c.cfg.Limits
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
