package agentcore

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
	"muster/wire/agent"
)

// world is a node without its agent: what is on disk, and the supervisors, which
// outlive agents. The agent may be killed between any two effects.
type world struct {
	t     *rapid.T
	core  *Core
	now   time.Duration
	disk  map[agent.Task]*Known
	marks map[agent.Task]Past
	// Supervisors by task, and what each was told.
	alive map[agent.Task]*supervisor
	// The lock that whoever declares a task lost keeps.
	locked map[agent.Task]bool

	up      bool
	events  []Event // of supervisors, on their way
	started map[agent.Task]int
	stopped map[agent.Task]bool // the agent has taken a Stop of it
	barred  map[agent.Task]bool // and at that time had not begun it
	told    map[agent.Task]bool // how it ended was said on this connection
	done    map[agent.Task]bool
}

type supervisor struct {
	begun, suspended, stopped bool
	cores                     []int
}

var propTasks = []agent.Task{{Job: 1, Attempt: 1}, {Job: 1, Attempt: 2}, {Job: 2, Attempt: 1, Part: 1}}

const propCores = 2 // fewer than tasks

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, disk: map[agent.Task]*Known{}, marks: map[agent.Task]Past{}, alive: map[agent.Task]*supervisor{}, locked: map[agent.Task]bool{},
		started: map[agent.Task]int{}, stopped: map[agent.Task]bool{}, barred: map[agent.Task]bool{}, told: map[agent.Task]bool{}, done: map[agent.Task]bool{},
	}
	w.restart(-1)
	return w
}

// restart begins with a new agent, which may be killed after some effects.
func (w *world) restart(crash int) {
	var r Restored
	for _, id := range slices.SortedFunc(maps.Keys(w.disk), compare) {
		r.Tasks = append(r.Tasks, *w.disk[id])
	}
	r.Marks = maps.Clone(w.marks)
	w.locked, w.events, w.up = map[agent.Task]bool{}, nil, false
	var effects []Effect
	w.core, effects = New(Config{Node: "n", Incarnation: "x", Memory: 1, Cores: []int{0, propCores - 1}, Cluster: "c"}, w.now, r)
	w.perform(effects, crash)
}

// step tells the agent something. It returns false if the agent was killed meanwhile.
func (w *world) step(e Event, crash int) bool {
	w.now += time.Second
	return w.perform(w.core.Step(w.now, e), crash)
}

func (w *world) perform(effects []Effect, crash int) bool {
	for i, e := range effects {
		if i == crash {
			w.restart(-1)
			return false
		}
		w.effect(e)
	}
	return true
}

func (w *world) effect(e Effect) {
	switch e := e.(type) {
	case Save:
		w.disk[e.Start.Task] = &Known{Task: e.Start.Task, Cores: e.Cores}
	case SaveStop:
		w.disk[e.Stop.Task].Stop = &e.Stop
	case SaveEnd:
		if !w.locked[e.Task] {
			w.t.Fatalf("the end of %v is written while a supervisor may", e.Task)
		}
		w.disk[e.Task].End = &e.End
	case Mark:
		w.marks[e.Task] = e.Mark
	case Unmark:
		delete(w.marks, e.Task)
	case Forget:
		delete(w.disk, e.Task)
	case Launch:
		w.find(e.Task, true)
	case Attach:
		w.find(e.Task, false)
	case Tell:
		w.tell(e)
	case Send:
		w.sent(e.Message)
	}
}

func (w *world) find(id agent.Task, launch bool) {
	known := w.disk[id]
	if known == nil {
		w.t.Fatalf("%v is started without being on disk", id)
	}
	switch s := w.alive[id]; {
	case s != nil && s.begun:
		w.events = append(w.events, Began{id, s.suspended, s.cores})
	case s != nil: // it says so when it begins
	case known.End != nil:
		w.events = append(w.events, Ended{id, *known.End})
	case launch && !known.Begun:
		w.alive[id] = &supervisor{cores: known.Cores}
	default:
		w.locked[id] = true
		w.events = append(w.events, Lost{id, known.Begun, "nobody"})
	}
}

func (w *world) tell(e Tell) {
	s := w.alive[e.Task]
	switch {
	case s == nil:
	case e.Order.Stop != nil:
		s.stopped = true
	case e.Order.Suspend:
		s.suspended = true
		w.events = append(w.events, Began{e.Task, true, s.cores})
	case e.Order.Resume != nil:
		s.suspended, s.cores = false, e.Order.Resume.Cores
		w.events = append(w.events, Began{e.Task, false, s.cores})
	}
}

func (w *world) sent(m agent.ToHead) {
	switch m := m.(type) {
	case agent.Hello:
		w.told = map[agent.Task]bool{}
		for _, r := range m.Tasks {
			w.told[r.Task] = w.told[r.Task] || r.State == agent.Ended
		}
	case agent.Report:
		w.told[m.Task] = w.told[m.Task] || m.State == agent.Ended
	}
}

// begin has a supervisor do what it does first.
func (w *world) begin(id agent.Task) {
	s := w.alive[id]
	if s == nil || s.begun {
		return
	}
	known := w.disk[id]
	if known == nil || w.locked[id] || known.Begun || known.End != nil {
		delete(w.alive, id)
		return
	}
	s.begun, known.Begun = true, true
	w.started[id]++
	if w.barred[id] {
		w.t.Fatalf("%v begins after it was stopped", id)
	}
	w.events = append(w.events, Began{id, false, s.cores})
}

// end has a supervisor end its task, or be killed.
func (w *world) end(id agent.Task, killed bool) {
	s := w.alive[id]
	if s == nil || (!s.begun && !killed) {
		return
	}
	delete(w.alive, id)
	if killed {
		w.find(id, false)
		return
	}
	end := agent.End{Cause: agent.Exited}
	w.disk[id].End = &end
	w.events = append(w.events, Ended{id, end})
}

// next lets the agent hear one thing from a supervisor.
func (w *world) next(crash int) {
	if len(w.events) > 0 {
		e := w.events[0]
		w.events = w.events[1:]
		w.step(e, crash)
	}
}

// hear brings a message from the head, old or new, any number of times.
func (w *world) hear(m agent.ToAgent, crash int) {
	if !w.up {
		return
	}
	id, isStop := agent.Task{}, false
	switch m := m.(type) {
	case agent.Stop:
		id, isStop = m.Task, true
	case agent.Done: // the head says so only of what it was told
		if !w.told[m.Task] {
			return
		}
	}
	alive := w.disk[id] != nil
	whole := w.step(Heard{m}, crash)
	if isStop && whole {
		w.stopped[id] = true
		w.barred[id] = w.barred[id] || !alive
	}
	if d, ok := m.(agent.Done); ok && w.core.tasks[d.Task] == nil {
		w.done[d.Task] = true
	}
}

func (w *world) connect(crash int) {
	w.up = w.step(Up{}, crash)
}

func (w *world) welcome(crash int) {
	if w.up {
		w.step(Heard{agent.Welcome{Cluster: "c", Silence: 1}}, crash)
	}
}

func (w *world) coresAreApart() {
	used := map[int]agent.Task{}
	for id, s := range w.alive {
		t := w.core.tasks[id]
		if !s.begun || s.suspended || t == nil || t.phase != running {
			continue
		}
		for _, n := range t.cores {
			if other, ok := used[n]; ok {
				w.t.Fatalf("%v and %v have core %d", id, other, n)
			}
			used[n] = id
		}
	}
}

// settle lets all that is under way come to its end, without further trouble.
func (w *world) settle() {
	for range 3 {
		w.connect(-1)
		for len(w.events) > 0 {
			w.next(-1)
		}
		w.welcome(-1)
		for _, id := range propTasks {
			w.begin(id)
		}
		for len(w.events) > 0 {
			w.next(-1)
		}
		for _, id := range propTasks {
			if s := w.alive[id]; s != nil && s.stopped {
				w.end(id, false)
			}
		}
	}
}

func (w *world) check() {
	w.coresAreApart()
	for _, id := range propTasks {
		if w.started[id] > 1 {
			w.t.Fatalf("%v was started %d times", id, w.started[id])
		}
	}
}

func (w *world) checkAtTheEnd() {
	w.settle()
	for _, id := range propTasks {
		if w.stopped[id] && w.alive[id] != nil {
			w.t.Fatalf("%v runs, though it was stopped", id)
		}
		if k := w.disk[id]; k != nil && k.End != nil && !w.told[id] && !w.done[id] {
			w.t.Fatalf("the head was not told that %v has ended", id)
		}
		if w.started[id] > 0 && w.alive[id] == nil && !w.told[id] && !w.done[id] {
			w.t.Fatalf("the end of %v was lost", id)
		}
	}
}

// Messages in any order, lost and repeated, and agents and supervisors killed at any
// point: each task begins at most once, its end is told until the head has taken it,
// and what was stopped does not run.
func TestAnyOrder(t *testing.T) {
	for range 20 { // 100 worlds each
		seeds.Check(t, anyOrder)
	}
}

func anyOrder(t *rapid.T) {
	w := newWorld(t)
	for range rapid.IntRange(1, 100).Draw(t, "steps") {
		id := rapid.SampledFrom(propTasks).Draw(t, "task")
		crash := rapid.SampledFrom([]int{-1, -1, -1, -1, -1, -1, 0, 1, 2}).Draw(t, "crash")
		switch rapid.SampledFrom([]string{
			"start", "start", "stop", "suspend", "resume", "done", "up", "welcome", "welcome", "down", "begin", "begin", "end", "kill", "event", "event", "event", "tick", "restart",
		}).Draw(t, "what") {
		case "start":
			w.hear(agent.Start{Task: id, Incarnation: "x", Spec: agent.Spec{User: "a", Cores: 1}}, crash)
		case "stop":
			w.hear(agent.Stop{Task: id, Cause: agent.Stopped}, crash)
		case "suspend":
			w.hear(agent.Suspend{Task: id}, crash)
		case "resume":
			w.hear(agent.Resume{Task: id}, crash)
		case "done":
			w.hear(agent.Done{Task: id}, crash)
		case "up":
			w.connect(crash)
		case "welcome":
			w.welcome(crash)
		case "down":
			w.up = false
			w.step(Down{}, crash)
		case "begin":
			w.begin(id)
		case "end":
			w.end(id, false)
		case "kill":
			w.end(id, true)
		case "event":
			w.next(crash)
		case "tick":
			w.now += time.Minute
			w.step(Tick{}, crash)
		case "restart":
			w.restart(crash)
		}
		w.check()
	}
	w.checkAtTheEnd()
}

// What an agent remembers is bounded.
func TestMarksAreBounded(t *testing.T) {
	c, _ := New(Config{Node: "n", Incarnation: "x", Memory: 1, Cores: []int{0}}, 0, Restored{})
	dropped := 0
	for i := range 2 * MaxMarks {
		for _, e := range c.Step(time.Duration(i), Heard{agent.Stop{Task: agent.Task{Job: uint64(i + 1), Attempt: 1}, Cause: agent.Stopped}}) {
			if _, ok := e.(Unmark); ok {
				dropped++
			}
		}
	}
	if len(c.marks) > MaxMarks || len(c.marks) < MaxMarks/2 || dropped != 2*MaxMarks-len(c.marks) {
		t.Errorf("%d marks, %d dropped", len(c.marks), dropped)
	}
	for _, e := range c.Step(3*MarkTime, Tick{}) {
		if _, ok := e.(Unmark); !ok {
			t.Fatal(e)
		}
	}
	if len(c.marks) != 0 {
		t.Errorf("%d marks are kept for ever", len(c.marks))
	}
}
