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
	// Past looks up how a job ended that the core has forgotten, or how the tasks of an array
	// ended. It may be nil. The daemon sets it to a lookup in the store.
	Past func(job uint64) (Past, bool)

	cfg   Config
	spec  string        // the policy, as the administrator named it
	weigh bool          // the policy chooses among the requests of a job
	state policyState   // what the policy knows of the cluster
	plain *policy.State // the same state, without the recorder that state may be

	now   time.Duration // the time of the latest call
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
	aliases  map[string]bool // the policy's names of all nodes, including removed ones
	retired  map[string]int  // by node name, how many of its policy numbers are retired
	types    map[string]model.GPUType
	special  bool // some node serves one user alone, or has another name with the policy
	sessions map[Session]*node

	book     *priority.Book        // nil if the policy alone orders the queue
	inBook   map[priority.Key]bool // the jobs in the book; true for those waiting there
	bookTime time.Duration         // when the record was written from which the book was restored

	timers  timers
	stepDue bool
	wake    time.Duration

	// changes numbers the changes sent to subscribers. dirty are the jobs whose records the next
	// Take writes, tell those whose documents it publishes.
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
	tasks  []uint32         // all task numbers; tasks[i] is job number array+i
	byTask map[uint32]int32 // task number to its index in tasks; built on first use
	unread []uint32         // tasks that ended before this head started, not yet in the tally
	last   uint64           // the job number of the task that ended last
}

// user is what a user has of the cluster.
type user struct {
	jobs     int // jobs that have not ended
	admitted int // jobs that have passed the gate of limits: the policy has them, or they run
	taken    need
	waiting  []*job // jobs at the gate of limits, first in first out
}

type key struct{ user, key string }

type keyed struct {
	answer api.Submitted
	at     time.Duration
}

// New returns a cluster without nodes and jobs. The caller hands over the policy, which must serve
// no other core; spec is how the administrator named it.
func New(cfg Config, p policy.Policy, spec string) *Core {
	state := policy.NewState(&model.Cluster{Name: cfg.Cluster}, p)
	c := &Core{
		cfg: cfg, spec: spec, weigh: p.Traits().Alternatives, state: state, plain: state,
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

// Configure replaces what an administrator decides. The policy stays: see SetPolicy.
func (c *Core) Configure(cfg Config) {
	c.cfg = cfg
	for _, name := range sortedKeys(c.users) {
		c.admitWaiting(c.users[name])
	}
	c.setWindows()
}

// SetPolicy makes another policy decide from the next step on; spec is how the administrator named
// it. A running recording continues: its replay with the old policy stops at the first decision
// that the old policy would not have made.
func (c *Core) SetPolicy(p policy.Policy, spec string) {
	c.plain.SetPolicy(p)
	c.spec, c.weigh, c.stepDue = spec, p.Traits().Alternatives, true
}

// Handle processes an event. Its effects are collected until the caller takes them with Take.
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

// advance moves the clock, never back, and rings the timers that have become due.
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

// Next is the latest time at which the daemon must call again, with a Tick or a Step.
func (c *Core) Next() time.Duration {
	next := min(c.timers.first(), c.wake, c.rankingDue())
	if c.stepDue {
		next = c.now
	}
	return next
}

// Take returns the effects collected since the last call. Records and documents of changed jobs are
// made only here, so a job that changed several times is written and published once.
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

// touch marks a job as changed: the next Take writes its record and tells subscribers.
func (c *Core) touch(j *job) {
	if !j.dirty {
		j.dirty = true
		c.dirty = append(c.dirty, j)
	}
	c.show(j)
}

// show marks a job whose document has changed, but not its record.
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

// send queues a message to a node's agent. If the agent is away the message is dropped: compare
// makes it again when the agent greets.
func (c *Core) send(n *node, m agent.ToAgent, bulk uint64) {
	if n.session != 0 {
		c.effects.Sends = append(c.effects.Sends, Send{Session: n.session, Message: m, Bulk: bulk})
	}
}

// IsAdmin says whether a user administers the cluster.
func (c *Core) IsAdmin(user string) bool {
	return user == "root" || slices.Contains(c.cfg.Admins, user)
}

// mayTouch refuses a user who may not change a job, read its output or run commands in it.
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

// forget drops a job whose time of being listed (Config.Keep) is over. An ended array is dropped
// with the task of it that ended last.
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

// limits returns a user's own limits, or else those of all users.
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
