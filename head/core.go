package head

import (
	"fmt"
	"slices"
	"time"

	"muster/internal/indexset"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
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
	state *policy.State // what the policy knows of the cluster

	now   time.Duration // the time of the latest call
	began time.Duration
	next  uint64 // the number of the next job

	roster   roster
	records  int // counts the jobs that have not ended, an array as one
	numbered map[policy.JobID]*job
	users    map[string]*user
	waits    waitlist
	names    names
	doomed   []doomed        // jobs that could not be restored
	pasts    map[uint64]Past // recent answers of Past
	// impossible lists waiting jobs that no node could run; jobs that have become possible
	// or ended may still be listed.
	impossible []*job
	retrying   []*job   // those of them that may have become possible
	hungry     []*array // arrays of which the policy may see more tasks
	singly     int      // tasks of rests that this event ended one by one
	// chores are the requests that are being carried out: of each user in order, of all who have some
	// in turns, and of each array or job. mayLoad is how much may change until the next Take, and looked
	// how many jobs this event has looked at.
	chores          map[string][]*chore
	turns           []string
	lines           map[uint64][]*chore
	mayLoad, looked int
	choresFirst     bool   // in the next step; otherwise jobs that were woken come first
	offering        uint64 // from this job on, those that wait are to be submitted to the policy again; 0 if none are
	offerAnew       bool   // then all of them once more
	turn            int64  // the latest turn that was given
	starts          int64  // how many attempts have begun
	pending         int
	running         int

	nodes    []*node // by the policy's number
	byName   map[string]*node
	aliases  map[string]string // the names of all nodes by the policy's, including removed ones
	retired  map[string]int    // by node name, how many of its policy numbers are retired
	types    map[string]model.GPUType
	special  bool // some node serves one user alone, or has another name with the policy
	private  bool // some node serves one user alone
	sessions map[Session]*node
	// restricted is what the latest job that may not use all nodes may use.
	restricted restricted

	ranking *ranking // nil if the policy alone orders the queue

	timers  timers
	stepDue bool
	wake    time.Duration

	out outbox
}

// array is an array with tasks that have not ended, or that ended not long ago.
type array struct {
	id       uint64
	tasks    slurmopt.Tasks // the task at place i is job number id+i
	limit    int            // how many may run at a time; 0 is no limit
	admitted int            // tasks that have passed the array's gate
	waiting  []*job
	members  []*job // its jobs in memory, by number; those that were forgotten may still be listed
	skip     int    // the members before this one have ended
	gone     int    // members that were forgotten
	rests    []*job // the members that stand for several tasks, or for one that has not been offered
	made     int    // how many of them there have been
	offered  int    // tasks that wait with the policy
	hungry   bool   // the array is in Core.hungry
	apart    int    // tasks that were changed one by one before they started

	tally
	told    news         // what the jobs that wait for the array were last told
	watched map[int]bool // places of the tasks for which jobs wait
	ends    Ends         // how tasks ended, without late; see Core.endsNow
	// late are tasks that have ended since: they are added together, because a set with many runs is
	// long, and each of very many parts may end in one event.
	late   struct{ ok, bad []*indexset.Set }
	unread bool   // ends lacks the tasks that ended before this head started
	dirty  bool   // the array is in Core.endings
	last   uint64 // the number of the job that ended last
}

// user is what a user has of the cluster.
type user struct {
	jobs     int // jobs that have not ended, each task of an array
	records  int // the same, an array as one
	offered  int // tasks of arrays that wait with the policy
	admitted int // jobs that have passed the gate of limits: the policy has them, or they run
	taken    need
	waiting  []*job // jobs at the gate of limits, first in first out
	// keys are those of its submissions that are remembered, and keyed lists them, the oldest first.
	keys  map[string]keyed
	keyed []string
}

type key struct{ user, key string }

// keyed is what a submission that had a key became.
type keyed struct {
	job   uint64
	tasks int
	at    time.Duration
}

// New returns a cluster without nodes and jobs. The caller hands over the policy, which must serve
// no other core; spec is how the administrator named it.
func New(cfg Config, p policy.Policy, spec string) *Core {
	state := policy.NewState(&model.Cluster{Name: cfg.Cluster}, p)
	c := &Core{
		cfg: cfg, spec: spec, weigh: p.Traits().Alternatives, state: state,
		next:   1,
		roster: newRoster(), numbered: map[policy.JobID]*job{}, users: map[string]*user{}, waits: waitlist{waiters: map[awaited][]*job{}},
		chores: map[string][]*chore{}, lines: map[uint64][]*chore{},
		names: names{}, pasts: map[uint64]Past{},
		byName: map[string]*node{}, aliases: map[string]string{}, retired: map[string]int{}, types: map[string]model.GPUType{}, sessions: map[Session]*node{},
		wake: policy.Never,
	}
	state.SetClock(c.policyClock)
	state.SetNames(c.readable)
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
	c.state.SetPolicy(p)
	c.spec, c.weigh, c.stepDue = spec, p.Traits().Alternatives, true
}

// Handle processes an event. Its effects are collected until the caller takes them with Take.
func (c *Core) Handle(now time.Duration, ev Event) {
	c.allow(c.loadNow() + maxLoad)
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
	case Unsent:
		c.unsent(ev)
	case HungUp:
		c.hungUp(ev.Session, ev.Reason)
	case Tick:
	default:
		panic(fmt.Sprintf("head: an event of type %T", ev))
	}
	if !c.Full() {
		c.wakeSome(maxWoken)
	}
}

// advance moves the clock, never back, and rings the timers that have become due: some of them, if they
// have much to do. The others ring in the next calls.
func (c *Core) advance(now time.Duration) {
	c.now = max(c.now, now)
	c.failDoomed()
	for !c.spent() {
		t, ok := c.timers.due(c.now)
		if !ok {
			return
		}
		c.ring(t)
	}
}

// Next is the latest time at which the daemon must call again, with a Tick or a Step.
func (c *Core) Next() time.Duration {
	next := min(c.timers.first(), c.wake, c.ranking.due())
	if c.stepDue || len(c.waits.waking)+len(c.doomed)+len(c.turns)+len(c.retrying) > 0 || c.offering > 0 {
		next = c.now
	}
	return next
}

// Take returns the effects collected since the last call. Records and documents of changed jobs are
// made only here, so a job that changed several times is written and published once.
func (c *Core) Take() Effects {
	c.waits.woken = 0
	return c.out.take(c)
}

// IsAdmin says whether a user administers the cluster.
func (c *Core) IsAdmin(user string) bool {
	return user == "root" || slices.Contains(c.cfg.Admins, user)
}

func refusal(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Reason: fmt.Sprintf(format, args...)}
}

// send queues a message to a node's agent. If the agent is away the message is dropped: compare
// makes it again when the agent greets.
func (c *Core) send(n *node, m agent.ToAgent, bulk uint64) {
	if n.session != 0 {
		c.out.send(n.session, m, bulk)
	}
}

// mayTouch refuses a user who may not change a job, read its output or run commands in it.
func (c *Core) mayTouch(user string, j *job) *Refusal {
	if j.user == user || c.IsAdmin(user) {
		return nil
	}
	return refusal(statusForbidden, "job %s is %s's: only its user and administrators may do that", j.name(), j.user)
}

// keepEnded lists an ended job among the others for a while.
func (c *Core) keepEnded(j *job) {
	until := model.After(c.now, c.cfg.Keep)
	if c.roster.keepEnded(j, until) {
		c.timers.set(timer{at: until, what: ringForget})
	}
}

// forgetEnded drops the jobs whose time of being listed is over.
func (c *Core) forgetEnded() {
	if next, some := c.roster.forgetEnded(c.now); some {
		c.timers.set(timer{at: max(next, c.now+1), what: ringForget})
	}
}

// isThere says that there is a job with a number.
func (c *Core) isThere(number uint64) bool { return c.roster.jobs[number] != nil }

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
