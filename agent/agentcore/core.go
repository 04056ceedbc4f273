package agentcore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/model"
	"muster/wire/agent"
	"muster/wire/grant"
)

// The limits of what an agent keeps.
const (
	// MaxTasks is how many tasks it knows at a time.
	MaxTasks = agent.MaxTasks
	// MaxMarks is how many tasks that are over it remembers, and MarkTime how long.
	MaxMarks = 4096
	MarkTime = 24 * time.Hour
	// MaxLoans is how many grants it has served at a time.
	MaxLoans = agent.MaxLoans
	// RepeatTime is how often the end of a task is told anew.
	RepeatTime = 30 * time.Second
	// RevokeTime is how often a daemon that has not answered is told that a loan is over.
	RevokeTime = 5 * time.Second
)

// Config is what an agent is and has.
type Config struct {
	Node, Incarnation string
	// User is whose processes it can start; "" is everybody's.
	User   string
	Memory int64
	// Cores are the numbers of those that are handed out.
	Cores   []int
	Gateway string
	// Cluster is whose tasks the spool has; "" if it has none.
	Cluster string
	// Checkpoints is the folder in which tasks are saved (agent.Hello), or else NoCheckpoints why there is none.
	Checkpoints, NoCheckpoints string
	Devices                    []agent.Device
}

// Known is what the spool has of a task.
type Known struct {
	Task agent.Task
	// Grant is the name of the task's grant.
	Grant string
	Cores []int
	Stop  *agent.Stop
	// Begun says that a supervisor has begun to start processes.
	Begun bool
	End   *agent.End
}

// Restored is what the spool has.
type Restored struct {
	Tasks []Known
	Marks map[agent.Task]Past
	Loans []grant.Loan
}

type phase uint8

const (
	starting phase = iota // no supervisor has been heard of
	running
	suspended
	ended
)

type task struct {
	id    agent.Task
	phase phase
	cores []int
	holds bool // the cores are this task's
	grant string
	stop  *agent.Stop // what the head wants of it, also if the supervisor knows
	hold  bool        // the head wants it suspended
	asked bool        // the head has said whether it wants that
	end   *agent.End
	// The spool could not take it.
	unsaved bool
	told    agent.State // what the head was last told on this connection
	at      time.Duration
}

// Core is what an agent knows.
// Its many methods are one a message of the head and one an event of the node.
type Core struct {
	cfg      Config
	now      time.Duration
	tasks    map[agent.Task]*task
	marks    map[agent.Task]Past
	loans    map[string]grant.Loan
	over     map[string]time.Duration // loans that are over, and when the daemon was last told so
	used     map[int]int              // how many tasks hold a core
	greeted  bool                     // there is a connection
	welcome  bool                     // and the head has answered
	trouble  string                   // why no task can be put into the spool for now
	told     agent.Inventory
	load     load
	profiles profiles
	settings configured
	sweep    time.Duration // when marks are looked through
	owed     []agent.Stop  // of tasks that nothing is known of, which the spool could not mark
	undo     *task         // what the last event forgot, should the spool fail
	effects  []Effect
}

// New makes the core of an agent that has found these things in its spool.
func New(cfg Config, now time.Duration, r Restored) (*Core, []Effect) {
	c := &Core{cfg: cfg, now: now, tasks: map[agent.Task]*task{}, marks: map[agent.Task]Past{}, loans: map[string]grant.Loan{}, over: map[string]time.Duration{}, used: map[int]int{}}
	maps.Copy(c.marks, r.Marks)
	for _, k := range r.Tasks {
		c.restore(k)
	}
	for _, loan := range r.Loans { // first, as others may have been lent the same devices since
		if c.loanIsOver(loan.ID) {
			c.revoke(loan.ID)
		}
	}
	for _, loan := range r.Loans {
		if _, over := c.over[loan.ID]; !over {
			c.loans[loan.ID] = loan
			c.do(Admit{loan})
		}
	}
	return c, c.take()
}

// restore takes over what the spool has of a task.
func (c *Core) restore(k Known) {
	t := &task{id: k.Task, cores: k.Cores, grant: k.Grant, stop: k.Stop, end: k.End}
	c.tasks[k.Task] = t
	mark, over := c.marks[k.Task]
	switch {
	case over && mark.End == nil && k.End != nil: // killed between the mark and the removal
		delete(c.tasks, k.Task)
		c.do(Forget{k.Task})
	case k.End != nil:
		t.phase = ended
	case k.Begun || k.Stop != nil || over:
		c.claim(t)
		c.do(Attach{k.Task})
	default:
		c.claim(t)
		c.do(Launch{k.Task})
	}
}

// Step tells the core what happened. It returns what to do.
func (c *Core) Step(now time.Duration, e Event) []Effect {
	c.now = max(c.now, now)
	undo := c.undo
	c.undo = nil
	switch e := e.(type) {
	case Up:
		c.greeted, c.welcome = true, false
		c.greet()
	case Down:
		c.greeted, c.welcome, c.owed = false, false, nil // the next head says again what it wants
	case Heard:
		c.heard(e.Message)
	case Unread:
		c.unread(e.Message)
	case Began:
		c.began(e)
	case Ended:
		if t := c.tasks[e.Task]; t != nil && t.phase != ended {
			c.finish(t, e.End)
		}
	case Lost:
		c.lost(e)
	case SpoolFailed:
		c.spoolFailed(e, undo)
	case Spool:
		c.trouble = e.Trouble
		c.tellInventory()
	case Checkpointed:
		c.send(agent.Checkpointed{Task: e.Task, Folder: e.Folder, Bytes: e.Bytes, Error: e.Error})
	case Admitted:
		c.admitted(e.ID, e.Error)
	case Revoked:
		c.revoked(e.ID, e.Error)
	case Devices:
		c.cfg.Devices = e.Devices
		c.tellInventory()
	case Measured:
		c.measured(e)
	case Configured:
		c.configured(e)
	case InForce:
		c.inForce(e.Settings)
	case DaemonBegan:
		if c.settings.wanted != nil {
			c.do(Configure{*c.settings.wanted})
		}
		c.revokeAgain(0)
		for _, id := range slices.Sorted(maps.Keys(c.loans)) {
			c.do(Admit{c.limited(c.loans[id])})
		}
	case Tick:
		c.tick()
	}
	return c.take()
}

func (c *Core) do(e Effect) { c.effects = append(c.effects, e) }

func (c *Core) take() []Effect {
	e := c.effects
	c.effects = nil
	return e
}

// Trouble is why no task can be put into the spool for now; "" if one can.
func (c *Core) Trouble() string { return c.trouble }

// Ended says whether a task has ended, or is not known at all.
func (c *Core) Ended(id agent.Task) bool {
	t := c.tasks[id]
	return t == nil || t.phase == ended
}

func (c *Core) heard(m agent.ToAgent) {
	switch m := m.(type) {
	case agent.Welcome:
		c.welcomed(m)
	case agent.Ping:
		c.send(agent.Pong{})
	case agent.Start:
		c.start(m)
	case agent.Stop:
		c.stop(m)
	case agent.Signal:
		if t := c.find(m.Task); t != nil && t.phase != ended {
			c.do(Tell{m.Task, Order{Signal: m.Signal}})
		}
	case agent.Suspend:
		c.suspend(m.Task)
	case agent.Resume:
		c.resume(m.Task)
	case agent.Checkpoint:
		c.checkpoint(m)
	case agent.Discard:
		c.do(Discard{m.Folder})
	case agent.Done:
		c.done(m.Task)
	case agent.Lend:
		c.lend(m.Loan)
	case agent.Unlend:
		c.unlend(m.ID)
	case agent.Limit:
		if loan, ok := c.loans[m.ID]; ok {
			loan.Limit = m.Limit
			c.loans[m.ID] = loan
			c.do(Limit{m.ID, c.limited(loan).Limit})
		}
	case agent.Open:
		c.open(m)
	case agent.Configure:
		c.configure(m.Settings)
	}
}

// unread answers a message that cannot be read, if the head waits for an answer: what it wants
// cannot be done.
func (c *Core) unread(m agent.Unreadable) {
	reason := agent.Reason("the node cannot read what it is told to do: " + m.Err.Error())
	switch t := c.tasks[m.Task]; {
	case m.Kind == agent.Start{}.Kind() && t != nil:
		c.report(t)
	case m.Kind == agent.Start{}.Kind() && m.Task != agent.Task{}:
		c.refuse(m.Task, agent.NotBegun, reason)
	case m.Kind == agent.Lend{}.Kind() && m.Loan != "":
		c.send(agent.Lent{ID: m.Loan, Error: reason})
	case m.Kind == agent.Configure{}.Kind():
		c.unreadable(reason)
	}
}

// ---- what the head is told ----

// greet says Hello.
func (c *Core) greet() {
	hello := agent.Hello{
		Version: agent.Version, Node: c.cfg.Node, Incarnation: c.cfg.Incarnation, User: c.cfg.User, Cores: len(c.cfg.Cores), Memory: c.cfg.Memory,
		Devices: c.cfg.Devices, Gateway: c.cfg.Gateway, Loans: slices.Sorted(maps.Keys(c.loans)),
		Cluster: c.cfg.Cluster, Checkpoints: c.cfg.Checkpoints, NoCheckpoints: c.cfg.NoCheckpoints,
	}
	for id := range c.marks {
		hello.Last = max(hello.Last, id.Job)
	}
	for id := range c.tasks {
		hello.Last = max(hello.Last, id.Job)
	}
	for _, t := range c.inOrder() {
		r := t.report()
		t.told, t.at = r.State, c.now
		hello.Tasks = append(hello.Tasks, r)
	}
	c.told, c.load.told = agent.Inventory{Devices: c.cfg.Devices}, nil
	c.profiles.told, c.profiles.at = map[agent.Task]model.Measured{}, 0
	c.settings.told = agent.Configured{}
	c.do(Send{hello})
}

// welcomed tells what has changed since Hello.
func (c *Core) welcomed(m agent.Welcome) {
	if !c.greeted || c.welcome {
		return
	}
	c.welcome = true
	if m.Cluster != c.cfg.Cluster {
		if c.cfg.Cluster != "" {
			c.unmark(func(Past) bool { return true })
		}
		c.cfg.Cluster = m.Cluster
		c.do(SaveCluster{m.Cluster})
	}
	c.tellInventory()
	for _, t := range c.inOrder() {
		if t.report().State != t.told {
			c.report(t)
		}
	}
	c.tellConfigured()
	c.tellLoad()
}

func (c *Core) tellInventory() {
	if c.welcome && (c.told.Trouble != c.trouble || !slices.Equal(c.told.Devices, c.cfg.Devices)) {
		c.told = agent.Inventory{Devices: c.cfg.Devices, Trouble: c.trouble}
		c.send(c.told)
	}
}

// send says something to a head that has answered the greeting.
func (c *Core) send(m agent.ToHead) {
	if c.welcome {
		c.do(Send{m})
	}
}

// report tells how a task is. What the head cannot be told now is told with the next
// Hello.
func (c *Core) report(t *task) {
	if !c.welcome {
		return
	}
	r := t.report()
	t.told, t.at = r.State, c.now
	c.send(r)
}

func (t *task) report() agent.Report {
	switch t.phase {
	case starting:
		return agent.Report{Task: t.id, State: agent.Starting}
	case suspended:
		return agent.Report{Task: t.id, State: agent.Suspended}
	case ended:
		return agent.Report{Task: t.id, State: agent.Ended, End: t.end}
	}
	return agent.Report{Task: t.id, State: agent.Running}
}

// find finds a task. If there is none, the head hears so.
func (c *Core) find(id agent.Task) *task {
	t := c.tasks[id]
	if t == nil {
		c.send(agent.Report{Task: id, State: agent.Unknown})
	}
	return t
}

func (c *Core) inOrder() []*task {
	return slices.SortedFunc(maps.Values(c.tasks), func(a, b *task) int { return compare(a.id, b.id) })
}

func compare(a, b agent.Task) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Part, b.Part))
}

// tick repeats what the head has not taken yet, makes up for answers that the spool kept back, and forgets
// old marks.
func (c *Core) tick() {
	for _, t := range c.inOrder() {
		if t.phase == ended && c.now-t.at >= RepeatTime {
			c.report(t)
		}
	}
	if c.trouble == "" && len(c.owed) > 0 { // one at a time: if it fails again, the next ones are still owed
		next := c.owed[0]
		c.owed = c.owed[1:]
		c.stop(next)
	}
	c.revokeAgain(RevokeTime)
	if c.now >= c.sweep {
		c.sweep = c.now + MarkTime/24
		c.unmark(func(p Past) bool { return c.now-p.At >= MarkTime })
	}
}

// ---- the life of a task ----

// start begins a task that nothing is known of.
func (c *Core) start(m agent.Start) {
	mark, over := c.marks[m.Task]
	refuse := func(reason string) { c.refuse(m.Task, cannot(&m), reason) }
	switch t := c.tasks[m.Task]; {
	case t != nil:
		c.report(t)
	case over && mark.End != nil:
		t := &task{id: m.Task, phase: ended, end: mark.End}
		c.tasks[m.Task] = t
		c.report(t)
	case over:
		refuse("this node had the task before, and the head was done with it: the head has gone back to an earlier state")
	case m.Incarnation != c.cfg.Incarnation:
		refuse("the task is meant for this node as it was before its spool was lost: start the job anew")
	case c.cfg.User != "" && m.Spec.User != c.cfg.User:
		refuse(fmt.Sprintf("the agent of this node runs as %s and can start no processes of %s: start it as root", c.cfg.User, m.Spec.User))
	case m.From != "" && c.cfg.Checkpoints == "": // another node can have it
		refuse("it cannot go on here from where it was saved: " + c.cfg.NoCheckpoints)
	case len(c.tasks) >= MaxTasks:
		refuse(fmt.Sprintf("this node has %d tasks already", len(c.tasks)))
	default:
		c.begin(m)
	}
}

// begin puts a task into the spool and then starts it.
func (c *Core) begin(m agent.Start) {
	t := &task{id: m.Task}
	c.tasks[m.Task] = t
	free := c.free()
	if m.Spec.Cores > len(free) { // the same Start must not begin it later, when the head has been told this
		end := c.ends(cannot(&m), fmt.Sprintf("%d cores are asked for, and %d of this node's %d are free", m.Spec.Cores, len(free), len(c.cfg.Cores)))
		c.mark(m.Task, Past{End: end, At: c.now})
		c.finish(t, *end)
		return
	}
	t.cores = slices.Clone(free[:m.Spec.Cores])
	if m.Grant != nil {
		t.grant = m.Grant.ID
	}
	c.claim(t)
	c.do(Save{m, t.cores})
	c.do(Launch{m.Task})
}

// refuse tells that a task does not begin. Nothing of it is kept: if the head asks
// again, it is told again.
func (c *Core) refuse(id agent.Task, cause agent.Cause, reason string) {
	c.send(agent.Report{Task: id, State: agent.Ended, End: c.ends(cause, reason)})
}

// cannot is the cause of the end of a task that does not begin here: one that was saved can go on elsewhere.
func cannot(m *agent.Start) agent.Cause {
	if m.From != "" {
		return agent.NotReady
	}
	return agent.NotBegun
}

func (c *Core) ends(cause agent.Cause, reason string) *agent.End {
	return &agent.End{Cause: cause, Reason: reason, Ended: c.now}
}

// began takes note of what a supervisor says.
func (c *Core) began(e Began) {
	t := c.tasks[e.Task]
	if t == nil || t.phase == ended {
		return
	}
	was := t.phase
	if was == starting && !t.asked {
		t.hold = e.Suspended
	}
	c.release(t)
	t.cores, t.phase = e.Cores, running
	if e.Suspended {
		t.phase = suspended
	}
	switch {
	case !e.Suspended || (!t.hold && was != starting): // one that was told to go on meanwhile needs its cores
		c.claim(t)
	case !t.hold: // it does not know yet
		c.letGo(t)
	}
	if was == starting && t.stop != nil {
		c.do(Tell{t.id, Order{Stop: t.stop}})
	} else if was == starting && t.hold && !e.Suspended {
		c.do(Tell{t.id, Order{Suspend: true}})
	}
	if was != t.phase {
		c.report(t)
	}
}

// lost ends a task that has no supervisor any more.
func (c *Core) lost(e Lost) {
	t := c.tasks[e.Task]
	if t == nil || t.phase == ended {
		return
	}
	end := c.ends(agent.NodeLost, e.Reason)
	switch {
	case t.stop != nil:
		if end = c.ends(t.stop.Cause, t.stop.Reason); e.Begun {
			end.Began = c.now // nobody knows when, and the head must know that it has
		}
	case !e.Begun:
		end = c.ends(agent.NotReady, e.Reason)
	}
	c.finish(t, *end)
	c.do(SaveEnd{e.Task, *end}) // if it is not written, the next agent finds the same out
}

// finish notes that a task has ended, and tells it.
func (c *Core) finish(t *task, end agent.End) {
	c.release(t)
	t.phase, t.end = ended, &end
	if t.grant != "" {
		c.unlend(t.grant)
	}
	c.tellProfiles(t.id) // before its end: the head writes down what it knows then
	c.report(t)
}

func (c *Core) stop(m agent.Stop) {
	t := c.tasks[m.Task]
	if t == nil {
		if _, over := c.marks[m.Task]; !over {
			c.mark(m.Task, Past{End: c.ends(m.Cause, m.Reason), At: c.now})
		}
		c.send(agent.Report{Task: m.Task, State: agent.Unknown})
		return
	}
	switch {
	case t.phase == ended:
		if _, over := c.marks[m.Task]; t.unsaved && !over {
			c.mark(m.Task, Past{End: t.end, At: c.now})
		}
		c.report(t)
	case t.stop == nil:
		t.stop = &m
		c.tellStop(t, m)
		c.do(SaveStop{m})
	default: // perhaps with less time
		c.tellStop(t, m)
	}
}

func (c *Core) tellStop(t *task, m agent.Stop) {
	if t.phase != starting {
		c.do(Tell{t.id, Order{Stop: &m}})
	}
}

// suspend wants a task suspended. Its grant is of no use to it before its processes
// stand still: they may wait for a device, but nobody else waits for them.
func (c *Core) suspend(id agent.Task) {
	t := c.find(id)
	if t == nil {
		return
	}
	if t.phase == ended || (t.phase == suspended && t.hold) {
		c.report(t)
		return
	}
	t.hold, t.asked = true, true
	c.limitGrant(t)
	if t.phase != starting { // also if it was just told to go on
		c.do(Tell{id, Order{Suspend: true}})
	}
}

// resume wants a task to go on, on its own cores if they are free and else on others.
func (c *Core) resume(id agent.Task) {
	t := c.find(id)
	if t == nil {
		return
	}
	if t.phase == ended || (t.phase == running && !t.hold) {
		c.report(t)
		return
	}
	if t.phase == suspended {
		c.letGo(t)
		if t.hold {
			c.report(t)
		}
		return
	}
	t.hold, t.asked = false, true
	c.limitGrant(t)
	if t.phase == running {
		c.do(Tell{id, Order{Resume: &Resume{t.cores}}})
	}
}

// checkpoint saves a suspended task. What is not possible changes nothing, and the head hears why.
func (c *Core) checkpoint(m agent.Checkpoint) {
	t := c.find(m.Task)
	if t == nil {
		return
	}
	why := ""
	switch {
	case t.phase == ended:
		c.report(t)
		return
	case t.phase != suspended || !t.hold:
		why = "it is not suspended"
	case c.cfg.Checkpoints == "":
		why = c.cfg.NoCheckpoints
	}
	if why != "" {
		c.send(agent.Checkpointed{Task: m.Task, Folder: m.Folder, Error: why})
		return
	}
	c.do(Tell{t.id, Order{Save: &SaveIn{Folder: m.Folder}}})
}

// letGo lets a suspended task go on, if there are cores for it.
func (c *Core) letGo(t *task) {
	t.hold = !c.move(t)
	c.limitGrant(t)
	if !t.hold {
		c.do(Tell{t.id, Order{Resume: &Resume{t.cores}}})
	}
}

// move gives a suspended task cores again. It returns false if too few are free.
func (c *Core) move(t *task) bool {
	if t.holds { // it was told to go on already
		return true
	}
	if slices.ContainsFunc(t.cores, func(n int) bool { return c.used[n] > 0 }) {
		free := c.free()
		if len(free) < len(t.cores) {
			return false
		}
		t.cores = slices.Clone(free[:len(t.cores)])
	}
	c.claim(t)
	return true
}

// done forgets a task whose end the head has taken.
func (c *Core) done(id agent.Task) {
	t := c.tasks[id]
	if t == nil || t.phase != ended {
		return
	}
	delete(c.tasks, id)
	if _, over := c.marks[id]; !over {
		c.mark(id, Past{At: c.now})
		c.undo = t
	}
	c.do(Forget{id})
}

// spoolFailed takes back what the last event decided. The head hears of the trouble first, so that it
// starts no other task here before the driver says that the spool can take one.
func (c *Core) spoolFailed(e SpoolFailed, undo *task) {
	c.trouble = "the node cannot write to its spool: " + e.Reason
	c.tellInventory()
	t := c.tasks[e.Task]
	_, marked := c.marks[e.Task]
	switch {
	case undo != nil && undo.id == e.Task: // no mark, so the task itself must stay
		delete(c.marks, e.Task)
		c.tasks[e.Task] = undo
	case marked:
		end := c.marks[e.Task].End
		delete(c.marks, e.Task)
		if t == nil && end != nil && len(c.owed) < MaxTasks {
			c.owed = append(c.owed, agent.Stop{Task: e.Task, Cause: end.Cause, Reason: end.Reason})
		}
		if t != nil {
			t.unsaved = true
			c.finish(t, *t.end)
		}
	case t != nil && t.phase == starting && t.stop == nil:
		t.unsaved = true
		c.finish(t, *c.ends(agent.NotReady, "the node cannot write the task down: "+e.Reason))
	}
}

// ---- marks ----

func (c *Core) mark(id agent.Task, p Past) {
	if len(c.marks) >= MaxMarks { // many at a time: finding the oldest takes a look at all
		oldest := slices.SortedFunc(maps.Keys(c.marks), func(a, b agent.Task) int {
			return cmp.Or(cmp.Compare(c.marks[a].At, c.marks[b].At), compare(a, b))
		})
		for _, old := range oldest[:MaxMarks/8] {
			delete(c.marks, old)
			c.do(Unmark{old})
		}
	}
	c.marks[id] = p
	c.do(Mark{id, p})
}

func (c *Core) unmark(which func(Past) bool) {
	for _, id := range slices.SortedFunc(maps.Keys(c.marks), compare) {
		if which(c.marks[id]) {
			delete(c.marks, id)
			c.do(Unmark{id})
		}
	}
}

// ---- cores ----

// free lists the cores that no task has.
func (c *Core) free() []int {
	var free []int
	for _, n := range c.cfg.Cores {
		if c.used[n] == 0 {
			free = append(free, n)
		}
	}
	return free
}

func (c *Core) claim(t *task) {
	if t.holds {
		return
	}
	t.holds = true
	for _, n := range t.cores {
		c.used[n]++
	}
}

func (c *Core) release(t *task) {
	if !t.holds {
		return
	}
	t.holds = false
	for _, n := range t.cores {
		if c.used[n]--; c.used[n] == 0 {
			delete(c.used, n)
		}
	}
}

// ---- loans ----

// lend has the daemon serve a grant. That of a task which is over here is not.
func (c *Core) lend(loan grant.Loan) {
	_, known := c.loans[loan.ID]
	switch {
	case c.loanIsOver(loan.ID):
		return
	case !known && len(c.loans) >= MaxLoans:
		c.do(Send{agent.Lent{ID: loan.ID, Error: fmt.Sprintf("the node lends to %d already", MaxLoans)}})
		return
	}
	delete(c.over, loan.ID)
	c.loans[loan.ID] = loan
	c.do(Admit{c.limited(loan)})
}

// admitted tells the head that a loan can be used, or why not.
func (c *Core) admitted(id, trouble string) {
	if _, ok := c.loans[id]; !ok {
		return // it is over
	}
	if trouble != "" {
		c.unlend(id)
	}
	if c.welcome {
		c.do(Send{agent.Lent{ID: id, Error: trouble}})
	}
}

func (c *Core) unlend(id string) {
	if _, ok := c.loans[id]; ok {
		delete(c.loans, id)
		// It stays in the spool until the daemon has revoked it. The next agent must not have it
		// in the way of what the head has lent since.
		c.do(Limit{id, 0})
		c.revoke(id)
	}
}

// revoke has the daemon serve a grant no more.
func (c *Core) revoke(id string) {
	c.over[id] = c.now
	c.do(Revoke{id})
}

// revokeAgain tells the daemon again of loans that are over: it did not answer, as when it
// was about to end.
func (c *Core) revokeAgain(after time.Duration) {
	for _, id := range slices.Sorted(maps.Keys(c.over)) {
		if c.now-c.over[id] >= after {
			c.revoke(id)
		}
	}
}

// revoked forgets a loan that the daemon serves no more, unless the head has lent it again.
func (c *Core) revoked(id, trouble string) {
	if _, ok := c.over[id]; ok && trouble == "" {
		delete(c.over, id)
		c.do(DropLoan{id})
	}
}

// loanIsOver says whether the task here that a grant was for has ended.
func (c *Core) loanIsOver(id string) bool {
	t := c.taskOf(id)
	if t != nil {
		return t.phase == ended
	}
	task, ok := parseTask(id)
	_, over := c.marks[task]
	return ok && over
}

// taskOf finds the task here that has a grant.
func (c *Core) taskOf(id string) *task {
	if task, ok := parseTask(id); ok && c.tasks[task] != nil {
		return c.tasks[task]
	}
	for _, t := range c.tasks {
		if t.grant == id {
			return t
		}
	}
	return nil
}

// parseTask reads the name that the head gives to the grant of a task.
func parseTask(id string) (t agent.Task, ok bool) {
	n, err := fmt.Sscanf(id, "%d.%d.%d", &t.Job, &t.Attempt, &t.Part)
	return t, err == nil && n == 3 && t.String() == id
}

// limited is a loan as it counts now: nothing of the grant of a suspended task can be
// used.
func (c *Core) limited(loan grant.Loan) grant.Loan {
	if t := c.taskOf(loan.ID); t != nil && t.hold {
		loan.Limit = 0
	}
	return loan
}

func (c *Core) limitGrant(t *task) {
	if loan, ok := c.loans[t.grant]; ok {
		c.do(Limit{loan.ID, c.limited(loan).Limit})
	}
}

// ---- streams ----

func (c *Core) open(m agent.Open) {
	if m.File == agent.FileStatus {
		c.do(Stream{Open: m})
		return
	}
	t := c.tasks[m.Task]
	reason := ""
	switch {
	case t == nil && m.Ended != nil:
		if c.cfg.User != "" && m.Ended.User != c.cfg.User {
			reason = fmt.Sprintf("the agent of this node runs as %s and can read no files of %s: start it as root", c.cfg.User, m.Ended.User)
		}
	case t == nil:
		reason = fmt.Sprintf("the node of job %d has nothing of it: the job ended some time ago, or is only about to start", m.Task.Job)
	case m.Exec != nil && t.phase == ended:
		reason = fmt.Sprintf("job %d has ended on this node", m.Task.Job)
	case m.Exec == nil && m.File != "output" && m.File != "error":
		reason = fmt.Sprintf("a task has the files output and error, not %.40q", m.File)
	}
	c.do(Stream{m, reason})
}
