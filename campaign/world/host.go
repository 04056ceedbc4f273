package world

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/agent/agentcore"
	"muster/wire/agent"
	"muster/wire/grant"
)

// host is a node: its agent, its spool, and the supervisors of tasks.
type host struct {
	w       *World
	name    string
	changed bool // since the last check

	cores       int
	memory      int64
	devices     []agent.Device
	incarnation int

	core     *agentcore.Core // nil while the agent is not running
	life     uint64
	dead     bool // the machine is off
	conn     *conn
	cutUntil time.Duration
	books    []agentcore.Effect // grants about which the daemon has not been told yet

	// The spool, which survives the agent.
	tasks   map[agent.Task]*spooled
	marks   map[agent.Task]agentcore.Past
	loans   map[string]grant.Loan
	cluster string

	// What runs independently of the agent.
	supervisors map[agent.Task]*supervisor
	served      map[string]grant.Loan // loans that the daemon serves
}

type spooled struct {
	start agent.Start
	known agentcore.Known
}

// supervisor runs the processes of one task.
type supervisor struct {
	task      agent.Task
	cores     []int
	began     bool
	suspended bool
	left      time.Duration // remaining run time when it was last set going
	since     time.Duration
	limit     time.Duration
	exit      int
	turn      int // number of the valid timer; earlier ones are void
	stopping  *agent.Stop
	gone      bool
}

func newHost(w *World, i int) *host {
	h := &host{w: w, name: fmt.Sprintf("n%02d", i), cores: 4 << (i % 2), memory: 64 << 30}
	devices := i % 3
	if w.Content > 0 {
		devices = 12 * (1 - i%2) // together more than any program sees, and than some messages hold
	}
	for range devices {
		h.devices = append(h.devices, agent.Device{Name: "GPU", Memory: 8 << 30, Speed: 1, Up: true})
	}
	h.wipe()
	h.incarnation = 1
	h.supervisors, h.served = map[agent.Task]*supervisor{}, map[string]grant.Loan{}
	return h
}

// wipe erases the spool.
func (h *host) wipe() {
	h.incarnation++
	h.tasks, h.marks, h.loans, h.cluster = map[agent.Task]*spooled{}, map[agent.Task]agentcore.Past{}, map[string]grant.Loan{}, ""
}

// boot starts the agent.
func (h *host) boot() {
	if h.core != nil {
		return
	}
	h.dead = false
	h.life++
	h.books = nil
	cfg := agentcore.Config{
		Node: h.name, Incarnation: strconv.Itoa(h.incarnation), Memory: h.memory, Gateway: h.name + ":9421", Cluster: h.cluster, Devices: slices.Clone(h.devices),
	}
	for i := range h.cores {
		cfg.Cores = append(cfg.Cores, i)
	}
	restored := agentcore.Restored{Marks: map[agent.Task]agentcore.Past{}}
	for _, id := range sortedTasks(h.tasks) {
		restored.Tasks = append(restored.Tasks, h.tasks[id].known)
	}
	maps.Copy(restored.Marks, h.marks)
	for _, id := range sortedKeys(h.loans) {
		restored.Loans = append(restored.Loans, h.loans[id])
	}
	h.w.trace("%s: agent is up, with %d tasks", h.name, len(restored.Tasks))
	core, effects := agentcore.New(cfg, h.w.now, restored)
	h.core = core
	h.perform(effects)
	h.reconnect()
	h.tick()
}

// tick gives the agent the time regularly: often while it may have to repeat a message.
func (h *host) tick() {
	life, pause := h.life, 15*time.Second
	if len(h.tasks) == 0 {
		pause = 10 * time.Minute
	}
	h.w.after(pause, func() {
		if h.core != nil && h.life == life {
			h.step(agentcore.Tick{})
			h.tick()
		}
	})
}

// crash kills the agent. The tasks continue.
func (h *host) crash() {
	if h.core == nil {
		return
	}
	h.core = nil
	if h.conn != nil {
		h.conn.broken()
		h.conn = nil
	}
}

// die turns the machine off, with everything that runs there.
func (h *host) die() {
	h.crash()
	h.dead = true
	for _, id := range sortedTasks(h.supervisors) {
		h.supervisors[id].gone = true
	}
	h.supervisors, h.served = map[agent.Task]*supervisor{}, map[string]grant.Loan{}
}

func (h *host) heal() {
	h.cutUntil = 0
	for i := range h.devices {
		h.devices[i].Up = true
	}
	if h.core != nil {
		h.step(agentcore.Devices{Devices: slices.Clone(h.devices)})
	}
	h.w.after(0, h.boot)
}

// cut breaks the link to the head for a time.
func (h *host) cut(d time.Duration) {
	h.cutUntil = h.w.now + d
	h.breakConnection()
}

func (h *host) breakConnection() {
	if h.conn != nil {
		h.conn.broken()
	}
}

func (h *host) halfOpen() {
	if h.conn != nil {
		h.conn.halfOpen()
	}
}

func (h *host) hungUp() {
	h.conn = nil
	h.step(agentcore.Down{})
	h.reconnect()
}

func (h *host) reconnect() {
	life := h.life
	h.w.after(h.w.delay(2*time.Second), func() {
		if h.core == nil || h.life != life || h.conn != nil {
			return
		}
		if h.conn = h.connect(); h.conn == nil {
			h.reconnect()
			return
		}
		h.step(agentcore.Up{})
	})
}

func (h *host) heard(m agent.ToAgent) {
	h.w.trace("%s hears %s %v", h.name, m.Kind(), brief(m))
	if r, ok := m.(agent.Refused); ok {
		if !strings.Contains(r.Reason, "is connected already") { // the head has not noticed yet that the old connection is dead
			h.w.fail("%s is refused: %v", h.name, m)
		}
		h.breakConnection() // the agent hangs up, and its core never hears of it
		return
	}
	h.step(agentcore.Heard{Message: m})
}

func (h *host) step(e agentcore.Event) {
	if h.core != nil {
		h.perform(h.core.Step(h.w.now, e))
	}
}

// perform carries out effects. The agent may be killed between any two of them.
func (h *host) perform(effects []agentcore.Effect) {
	life := h.life
	for i, e := range effects {
		if !h.w.quiet && h.w.chance(2e-4) {
			h.w.trace("%s: agent dies with %d effects to go", h.name, len(effects)-i)
			h.crash()
			h.w.after(h.w.delay(10*time.Second), h.boot)
		}
		if h.core == nil && i > 0 || h.life != life {
			return
		}
		if id, saved := savedTask(e); saved && !h.w.quiet && h.w.chance(1e-3) {
			h.w.trace("%s: spool fails for %v", h.name, id)
			h.step(agentcore.SpoolFailed{Task: id, Reason: "no space"})
			h.w.after(h.w.delay(10*time.Second), func() {
				if h.life == life {
					h.step(agentcore.Spool{})
				}
			})
			return
		}
		h.do(e)
	}
}

// savedTask is the task about which an effect writes to the spool.
func savedTask(e agentcore.Effect) (agent.Task, bool) {
	switch e := e.(type) {
	case agentcore.Save:
		return e.Start.Task, true
	case agentcore.SaveStop:
		return e.Stop.Task, true
	case agentcore.SaveEnd:
		return e.Task, true
	case agentcore.Mark:
		return e.Task, true
	}
	return agent.Task{}, false
}

// touch marks the host for the next check.
func (h *host) touch() {
	if !h.changed {
		h.changed = true
		h.w.changed = append(h.w.changed, h)
	}
}

func (h *host) do(e agentcore.Effect) {
	h.touch()
	switch e := e.(type) {
	case agentcore.Save:
		name := ""
		if e.Start.Grant != nil {
			name = e.Start.Grant.ID
		}
		h.tasks[e.Start.Task] = &spooled{e.Start, agentcore.Known{Task: e.Start.Task, Grant: name, Cores: e.Cores}}
	case agentcore.SaveStop:
		if t := h.tasks[e.Stop.Task]; t != nil {
			stop := e.Stop
			t.known.Stop = &stop
		}
	case agentcore.SaveEnd:
		if t := h.tasks[e.Task]; t != nil {
			end := e.End
			t.known.End = &end
		}
	case agentcore.Mark:
		h.marks[e.Task] = e.Mark
	case agentcore.Unmark:
		delete(h.marks, e.Task)
	case agentcore.Forget:
		delete(h.tasks, e.Task)
	case agentcore.SaveCluster:
		h.cluster = e.Cluster
	case agentcore.Launch:
		h.launch(e.Task)
	case agentcore.Attach:
		h.attach(e.Task)
	case agentcore.Tell:
		h.order(e.Task, e.Order)
	case agentcore.Send:
		if h.conn != nil {
			h.w.trace("%s says %s %v", h.name, e.Message.Kind(), brief(e.Message))
			h.conn.toHead(e.Message)
		}
	case agentcore.Admit:
		h.loans[e.Loan.ID] = e.Loan
		h.book(e)
	case agentcore.Revoke:
		h.book(e)
	case agentcore.DropLoan:
		delete(h.loans, e.ID)
	case agentcore.Limit:
		if l, ok := h.loans[e.ID]; ok {
			l.Limit = e.Limit
			h.loans[e.ID] = l
		}
		h.book(e)
	}
}

// book tells the daemon about a grant a moment later, in the order of the effects. If the agent
// dies before that, the daemon is told nothing.
func (h *host) book(e agentcore.Effect) {
	h.books = append(h.books, e)
	h.later(func() {
		first := h.books[0]
		h.books = h.books[1:]
		switch e := first.(type) {
		case agentcore.Admit:
			why := h.cannotHave(e.Loan)
			if why == "" {
				h.served[e.Loan.ID] = e.Loan
			}
			h.step(agentcore.Admitted{ID: e.Loan.ID, Error: why})
		case agentcore.Revoke:
			delete(h.served, e.ID)
			h.step(agentcore.Revoked{ID: e.ID})
		case agentcore.Limit:
			if l, ok := h.served[e.ID]; ok {
				l.Limit = e.Limit
				h.served[e.ID] = l
			}
		}
	})
}

// cannotHave says why the daemon does not have a loan's devices of other nodes, if it was not told of them before:
// one of those does not know the grant, or this one has no room.
func (h *host) cannotHave(l grant.Loan) string {
	if _, known := h.served[l.ID]; known || l.Home == "" {
		return ""
	}
	if h.w.chance(0.1) {
		return "there is no swap space for them"
	}
	for _, d := range l.Devices {
		lender := slices.IndexFunc(h.w.hosts, func(o *host) bool { return o.name == d.Node })
		if _, lends := h.w.hosts[lender].served[l.ID]; d.IsBorrowed() && !lends {
			return "node " + d.Node + " knows no grant with this credential"
		}
	}
	return ""
}

// later calls a function a moment later, if the agent is still alive then.
func (h *host) later(do func()) {
	life := h.life
	h.w.after(h.w.delay(5*time.Millisecond), func() {
		if h.core != nil && h.life == life {
			do()
		}
	})
}

// ---- supervisors ----

func (h *host) launch(id agent.Task) {
	if s := h.supervisors[id]; s != nil {
		h.attach(id)
		return
	}
	t := h.tasks[id]
	switch {
	case t == nil:
		h.w.fail("%s launches %v, which is not in its spool", h.name, id)
		return
	case t.known.Begun || t.known.End != nil: // an earlier supervisor had begun it, and is gone
		h.attach(id)
		return
	}
	s := &supervisor{task: id, cores: t.known.Cores, limit: t.start.Spec.Time}
	h.supervisors[id] = s
	h.w.after(h.w.delay(5*time.Millisecond), func() { h.begin(s, t) })
}

// begin starts the processes of a task. The spool records that first, so that no later supervisor
// starts them again.
func (h *host) begin(s *supervisor, t *spooled) {
	if s.gone {
		return
	}
	h.touch()
	t.known.Begun = true
	name := h.name + " " + s.task.String()
	if h.w.began[name]++; h.w.began[name] > 1 {
		h.w.fail("task %v was begun twice on %s", s.task, h.name)
	}
	s.began = true
	h.w.trace("%s: %v begins", h.name, s.task)
	spec := &t.start.Spec
	s.left = time.Duration(1<<62 - 1)
	if spec.Script == "" || s.task.Part == 0 {
		s.left, s.exit = ran(spec.Arguments)
	}
	if s.stopping != nil {
		h.endSupervisor(s, agent.End{Cause: s.stopping.Cause, Reason: s.stopping.Reason, Signal: 15})
		return
	}
	h.setGoing(s)
	h.tellBegan(s)
}

// ran is how long a task runs and its exit status, by its arguments; odd content has others.
func ran(arguments []string) (time.Duration, int) {
	if len(arguments) != 2 {
		return time.Second, 0
	}
	run, err := strconv.Atoi(arguments[0])
	if err != nil {
		return time.Second, 0
	}
	exit, _ := strconv.Atoi(arguments[1])
	return time.Duration(run) * time.Second, exit
}

func (h *host) tellBegan(s *supervisor) {
	h.later(func() {
		if !s.gone {
			h.step(agentcore.Began{Task: s.task, Suspended: s.suspended, Cores: s.cores})
		}
	})
}

// setGoing lets the processes run, and schedules their end.
func (h *host) setGoing(s *supervisor) {
	s.turn++
	turn := s.turn
	s.since = h.w.now
	span, cause := s.left, agent.Exited
	if s.limit > 0 && s.limit < span {
		span, cause = s.limit, agent.TimedOut
	}
	if span > calmTime*10 {
		return
	}
	h.w.after(span, func() {
		if s.gone || s.turn != turn {
			return
		}
		if cause == agent.Exited {
			h.w.ran[s.task.String()]++
		}
		end := agent.End{Cause: cause, Exit: s.exit, Began: 1, Ended: h.w.now}
		if cause == agent.TimedOut {
			end.Exit, end.Signal = 0, 15
		}
		h.endSupervisor(s, end)
	})
}

// endSupervisor writes the end of a task to the spool, and tells the agent, if it is running.
func (h *host) endSupervisor(s *supervisor, end agent.End) {
	s.gone = true
	delete(h.supervisors, s.task)
	h.w.trace("%s: %v ends: %s %d", h.name, s.task, end.Cause, end.Exit)
	if t := h.tasks[s.task]; t != nil {
		t.known.End = &end
		h.later(func() { h.step(agentcore.Ended{Task: s.task, End: end}) })
	}
}

func (h *host) attach(id agent.Task) {
	s, t := h.supervisors[id], h.tasks[id]
	switch {
	case s != nil && s.began:
		h.tellBegan(s)
	case s != nil: // it reports when it has begun
		h.later(func() {
			if !s.gone && s.began {
				h.tellBegan(s)
			} else if !s.gone {
				h.attach(id)
			}
		})
	case t != nil && t.known.End != nil:
		end := *t.known.End
		h.later(func() { h.step(agentcore.Ended{Task: id, End: end}) })
	default:
		begun := t != nil && t.known.Begun
		h.later(func() { h.step(agentcore.Lost{Task: id, Begun: begun, Reason: "its supervisor is gone"}) })
	}
}

func (h *host) order(id agent.Task, o agentcore.Order) {
	s := h.supervisors[id]
	if s == nil {
		return
	}
	switch {
	case o.Stop != nil:
		if s.stopping != nil {
			return
		}
		s.stopping = o.Stop
		if !s.began {
			return
		}
		h.w.after(min(h.w.delay(5*time.Second), o.Stop.Grace), func() {
			if !s.gone {
				h.endSupervisor(s, agent.End{Cause: o.Stop.Cause, Reason: o.Stop.Reason, Signal: 15})
			}
		})
	case o.Suspend:
		if s.began && !s.suspended {
			s.suspended = true
			s.turn++
			s.left -= h.w.now - s.since
			s.limit = max(1, s.limit-(h.w.now-s.since))
		}
		h.tellBegan(s)
	case o.Resume != nil:
		if s.suspended {
			h.touch()
			s.suspended = false
			s.cores = o.Resume.Cores
			h.setGoing(s)
		}
		h.tellBegan(s)
	}
}

// killSupervisor kills a supervisor with its processes. A running agent notices.
func (h *host) killSupervisor() {
	ids := sortedTasks(h.supervisors)
	if len(ids) == 0 {
		return
	}
	id := ids[h.w.rng.IntN(len(ids))]
	s := h.supervisors[id]
	s.gone = true
	delete(h.supervisors, id)
	h.later(func() { h.step(agentcore.Lost{Task: id, Begun: s.began, Reason: "its supervisor was killed"}) })
}

func (h *host) flipDevice() {
	if len(h.devices) == 0 {
		return
	}
	d := &h.devices[h.w.rng.IntN(len(h.devices))]
	d.Up = !d.Up
	h.step(agentcore.Devices{Devices: slices.Clone(h.devices)})
}
