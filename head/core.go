package head

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"muster/head/record"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/policy/priority"
	"muster/wire/api"
)

// ground is what there is, for all parts that do something with it.
type ground struct {
	*present
	out    *outbox
	budget *budget
	roster *roster
	timers *timers
	users  *users
	fleet  *fleet
}

// Core is the state of a head. Each of its parts knows only parts before it in this list.
type Core struct {
	ground
	keys     *keys
	deps     *dependencies
	desk     *desk
	chores   *chores
	queue    *queue
	lending  *lending
	runner   *runner
	views    *views
	agents   *agents
	intake   *intake
	actions  *actions
	doomed   []doomed // jobs that could not be restored
	toChores bool     // the next step does chores first; otherwise jobs that were woken come first
}

// New returns a cluster without nodes and jobs. The caller hands over the policy, which must serve
// no other core; spec is how the administrator named it.
func New(cfg Config, p policy.Policy, spec string) *Core {
	now, out, roster := &present{cfg: cfg}, &outbox{}, newRoster()
	on := ground{now, out, &budget{out: out}, roster, &timers{lives: roster.lives}, &users{now, map[string]*user{}, map[tallyKey]*tallied{}, map[lineKey]*line{}}, newFleet()}
	on.fleet.divide(cfg.Partitions)
	c := &Core{ground: on, desk: newDesk(on, p, spec), keys: &keys{out, on.timers, map[string]*userKeys{}}}
	c.deps = &dependencies{present: now, roster: roster, waits: waitlist{waiters: map[awaited][]*job{}}, names: names{}, pasts: map[uint64]Past{}}
	c.chores = &chores{budget: on.budget, roster: roster, byUser: map[string][]*chore{}, lines: map[uint64][]*chore{}}
	c.queue = &queue{on, c.deps, c.desk, c.chores}
	c.lending = &lending{on}
	c.runner = &runner{on, c.desk, c.queue, c.lending}
	c.views = &views{on, c.deps, c.desk}
	c.agents = &agents{on, c.desk, c.lending, c.runner, c.views, nil}
	c.intake = &intake{on, c.keys, c.deps, c.desk, c.queue, c.runner}
	c.actions = &actions{on, c.desk, c.chores, c.queue, c.lending, c.runner}
	return c
}

// SetEnded has the core read the record of a job that has ended and that it has forgotten; nil is none.
func (c *Core) SetEnded(ended func(job uint64) *record.Ended) { c.agents.ended = ended }

// SetPast has the core look up how a job ended that it has forgotten, or how the tasks of an array ended.
func (c *Core) SetPast(stored func(job uint64) (Past, bool)) { c.deps.stored = stored }

// Configure replaces what an administrator decides. The policy and the priorities stay: see SetPolicy and SetPriority.
func (c *Core) Configure(cfg Config) {
	c.cfg = cfg
	c.users.realign()
	c.queue.admitLines()
	c.desk.setWindows()
	c.desk.partsNow()
	c.desk.describeNodes()
	c.fleet.unsettleAll()
	c.desk.due()
}

// UnknownNodes lists the names in the rules of how nodes serve programs, and in partitions, that no node has; none while no node
// has come.
func (c *Core) UnknownNodes() (names []string) {
	if len(c.fleet.byName) == 0 {
		return nil
	}
	for _, r := range c.cfg.NodeRules {
		for _, name := range r.Nodes {
			if c.fleet.byName[name] == nil {
				names = append(names, name)
			}
		}
	}
	names = append(names, c.fleet.unknownParts()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// SetPriority has other priorities order the queue, with the factors of partitions, or the policy alone if there are none. After an error all is
// as it was.
func (c *Core) SetPriority(cfg *priority.Config, parts []model.Partition) error {
	return c.desk.setPriority(cfg, parts)
}

// SetPolicy makes another policy decide from the next step on; spec is how the administrator named
// it. A running recording continues: its replay with the old policy stops at the first decision
// that the old policy would not have made.
func (c *Core) SetPolicy(p policy.Policy, spec string) {
	c.desk.setPolicy(p, spec)
}

// Handle processes an event. Its effects are collected until the caller takes them with Take.
func (c *Core) Handle(now time.Duration, ev Event) {
	c.budget.allow(c.out.full() + maxLoad)
	c.advance(now)
	switch ev := ev.(type) {
	case Submit:
		done, err := c.intake.accept(ev)
		c.out.answer(ev.Request, done, err)
	case Cancel:
		c.actions.cancel(ev)
	case Change:
		c.actions.change(ev)
	case Keep:
		c.actions.keep(ev)
	case Finish:
		c.actions.finishAllocation(ev)
	case Node:
		c.out.answer(ev.Request, &api.Changed{Jobs: []uint64{}}, c.agents.nodeAction(ev))
	case Greeted:
		c.agents.greeted(ev.Session, ev.Hello)
	case Said:
		c.agents.said(ev.Session, ev.Message)
	case Unsent:
		c.agents.unsent(ev)
	case HungUp:
		c.agents.hungUp(ev.Session, ev.Reason)
	case Tick:
	default:
		panic(fmt.Sprintf("head: an event of type %T", ev))
	}
	if !c.Full() {
		c.queue.wakeSome(maxWoken)
	}
}

// advance moves the clock, never back, and rings the timers that have become due: some of them, if they
// have much to do. The others ring in the next calls.
func (c *Core) advance(now time.Duration) {
	c.now = max(c.now, now)
	c.failDoomed()
	for !c.budget.spent() {
		t, ok := c.timers.due(c.now)
		if !ok {
			return
		}
		c.ring(t)
	}
}

// Full says whether so much has changed that Take should be called before the next event.
func (c *Core) Full() bool { return c.out.full() >= maxLoad }

// Next is the latest time at which the daemon must call again, with a Tick or a Step.
func (c *Core) Next() time.Duration {
	next := min(c.timers.first(), c.desk.wake, c.desk.ranking.Due())
	if c.desk.stepDue || len(c.deps.waits.waking)+len(c.doomed)+len(c.chores.turns)+len(c.desk.retrying) > 0 || c.desk.offering > 0 {
		next = c.now
	}
	return next
}

// Take returns the effects collected since the last call. Records and documents of changed jobs are
// made only here, so a job that changed several times is written and published once.
func (c *Core) Take() Effects {
	c.deps.waits.woken = 0
	return c.out.take(struct {
		*views
		*dependencies
		*roster
	}{c.views, c.deps, c.roster})
}

// present is what all parts go by: the configuration and the time.
type present struct {
	cfg   Config
	now   time.Duration // the time of the latest call
	began time.Duration // when the cluster began: the policy's clock starts there
}

// IsAdmin says whether a user administers the cluster.
func (p *present) IsAdmin(user string) bool {
	return user == "root" || slices.Contains(p.cfg.Admins, user)
}

// mayTouch refuses a user who may not change a job, read its output or run commands in it.
func (p *present) mayTouch(user string, j *job) *Refusal {
	if j.user == user || p.IsAdmin(user) {
		return nil
	}
	return refusal(statusForbidden, "job %s is %s's: only its user and administrators may do that", j.name(), j.user)
}

// must panics on an error of a call that cannot fail while the head's and the policy's books agree.
func must(err error) {
	if err != nil {
		panic("head: the policy's book and the head's disagree: " + err.Error())
	}
}

// policyTime converts an instant to the policy's clock, which starts when the cluster began. The
// cap leaves the policy room to add durations without overflow.
func (p *present) policyTime(at time.Duration) time.Duration {
	return min(max(0, at-p.began), math.MaxInt64/4)
}

// Step lets the policy decide if something has changed since its last step, or if the time has come
// at which it asked for another. Ranks come first: the policy must not decide with old ones.
func (c *Core) Step(now time.Duration) {
	c.budget.allow(max(maxLoad, c.out.full()+leastLoad))
	c.advance(now)
	c.catchUp()
	c.queue.refill()
	c.desk.rankAll()
	if !c.desk.offerSome() || !c.desk.stepDue && c.now < c.desk.wake {
		return
	}
	plan := c.desk.step()
	for i := range plan.Starts {
		if st := &plan.Starts[i]; st.Err == nil {
			c.runner.begin(c.desk.numbered[st.Job], st.Alloc, st.Alternative)
		} else {
			c.desk.due()
		}
	}
	if plan.Profiles != policy.SameProfiles {
		c.desk.profiles = plan.Profiles == policy.StartProfiles
	}
	if plan.Watches != policy.SameWatches {
		c.desk.watch(plan.Watches == policy.StartWatching)
	}
	for i := range plan.Nodes {
		if line := &plan.Nodes[i]; line.Err == nil {
			c.fleet.unsettle(c.fleet.nodes[line.Node])
		}
	}
	c.agents.configureNodes()
	for _, l := range plan.Limits {
		if j := c.desk.numbered[l.Job]; j.active() {
			j.limit = l.Devices
			c.out.touch(j)
			c.lending.sendLimits(j)
		}
	}
	for _, st := range plan.Stops {
		c.runner.preempt(c.desk.numbered[st.Job], st)
	}
	for _, r := range plan.Resumes {
		if r.Err == nil {
			j := c.desk.numbered[r.Job]
			must(c.desk.state.Resumed(r.Job))
			c.runner.goOn(j)
		}
	}
	c.desk.dueIfHungry()
}

// catchUp does some of what was left for later: of one kind, or of both if that is little.
func (c *Core) catchUp() {
	if c.toChores = !c.toChores; c.toChores {
		if c.chores.doSome(); !c.Full() {
			c.queue.wakeSome(maxWoken - c.deps.waits.woken)
		}
	} else if c.queue.wakeSome(maxWoken - c.deps.waits.woken); c.deps.waits.woken < maxWoken {
		c.chores.doSome()
	}
}

// local is an instant in the head's time zone.
func (p *present) local(at time.Duration) time.Time {
	return time.Unix(0, int64(at)).In(cmp.Or(p.cfg.Zone, time.UTC))
}

// clock formats an instant for users.
func (p *present) clock(at time.Duration) string {
	return p.local(at).Format("2006-01-02T15:04:05")
}

// policyClock formats an instant of the policy's clock for its sentences. It returns "" for
// instants so far away that they depend on the end of a job without a time limit, which the policy
// expects to run for a year.
func (p *present) policyClock(t time.Duration) string {
	if t-p.policyTime(p.now) > aYear/2 {
		return ""
	}
	return p.clock(t + p.began)
}

// beginOf is the earliest time at which a job may begin.
func (p *present) beginOf(j *job) time.Duration {
	b := &j.said.Batch.Begin
	if !b.Set {
		return j.notBefore
	}
	return max(j.notBefore, p.moment(b, j))
}

// moment is the instant that a user's time specification meant when the job was submitted.
func (p *present) moment(m *slurmopt.Moment, j *job) time.Duration {
	at := m.Time(p.local(j.submit))
	// Instants are in nanoseconds. Users may write years beyond their range.
	switch seconds := at.Unix(); {
	case seconds <= 0:
		return 0
	case seconds >= int64(policy.Never/time.Second):
		return policy.Never
	}
	return time.Duration(at.UnixNano())
}

// ring does what a timer was set for.
func (c *Core) ring(t timer) {
	switch t.what {
	case ringBegin:
		c.chores.doTo(t.job, &chore{passes: []pass{allJobs}, visit: func(j *job) bool {
			if j.gate == atBegin && !j.over() {
				c.queue.advanceJob(j)
			}
			return true
		}, finish: func(*Refusal) {}})
	case ringForget:
		c.queue.forgetEnded()
	case ringKey:
		c.keys.forgetOld(t.user, c.now)
	case ringSignal:
		if j := c.roster.jobs[t.job]; j != nil && j.nth == t.attempt && j.active() && j.stop == nil {
			c.runner.signal(j, j.said.Batch.Signal.Number)
		}
	case ringLoans:
		if j := c.roster.jobs[t.job]; j != nil && j.nth == t.attempt && j.active() && j.stop == nil {
			c.runner.unanswered(j)
		}
	case ringDeadline:
		c.chores.doTo(t.job, c.actions.ending("", Ref{}, c.runner.late))
	case ringInactive:
		if j := c.roster.jobs[t.job]; j != nil && !j.over() {
			c.actions.inactive(j)
		}
	case ringRetry:
		if j := c.roster.jobs[t.job]; j != nil {
			c.desk.retry(j)
		}
	case ringLook:
		c.queue.lookAgain()
	case ringRanking:
		c.desk.keepBook()
	case ringNode:
		if n := t.node; n.session == 0 && !n.down && c.now >= n.since+c.cfg.NodeTimeout {
			c.agents.giveUp(n)
		}
	}
}
