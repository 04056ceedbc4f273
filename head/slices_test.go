package head_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/internal/need"
	"muster/internal/seeds"
	"muster/wire/agent"
	"muster/wire/api"
)

// sliced is a head that carries out requests in very small slices, while anything may happen between two
// of them.
type sliced struct {
	*player
	t      *testing.T
	random *rand.Rand
	log    []string
	size   map[uint64]int // tasks by array, or 0 for single jobs
	ids    []uint64       // of arrays and single jobs
	asked  map[head.Request]asked
	last   head.Request
	// cancelled tasks must not start, and held ones only once somebody asks for their release.
	cancelled, held map[uint64]bool
	stops           []head.Send // that agents have not obeyed yet
	nodes           []string
}

// asked is a request for jobs that is not answered yet.
type asked struct {
	what string
	ref  head.Ref
}

func (s *sliced) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(s.log, "\n"))
}

func (s *sliced) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *sliced) one(of ...string) string { return of[s.random.IntN(len(of))] }

// collect carries out what the head has decided. Agents start tasks at once, and stop them later.
func (s *sliced) collect() (sent int) {
	e := s.core.Take()
	for _, r := range e.Records {
		if s.disk[r.Bucket] == nil {
			s.disk[r.Bucket] = map[string][]byte{}
		}
		if s.disk[r.Bucket][string(r.Key)] = r.Value; r.Value == nil {
			delete(s.disk[r.Bucket], string(r.Key))
		}
	}
	for _, a := range e.Answers {
		s.answered(a)
	}
	for _, m := range e.Sends {
		switch start := m.Message.(type) {
		case agent.Start:
			id := start.Task
			twice := s.tasks[id] != ""
			for other, node := range s.tasks { // only while the node of another attempt is away
				twice = twice || other.Job == id.Job && other.Attempt != id.Attempt && s.session[node] != 0
			}
			switch {
			case s.cancelled[id.Job]:
				s.fail("task %v starts, and was cancelled", id)
			case s.held[id.Job]:
				s.fail("task %v starts, and is held", id)
			case twice:
				s.fail("task %v starts, and runs already", id)
			}
			s.send(m)
		case agent.Stop:
			s.stops = append(s.stops, m)
		default:
			s.send(m)
		}
	}
	return len(e.Sends)
}

func (s *sliced) answered(a head.Answer) {
	q, ok := s.asked[a.Request]
	if !ok {
		s.fail("request %d is answered, which nobody waits for", a.Request)
	}
	delete(s.asked, a.Request)
	switch r := a.Result.(type) {
	case *api.Submitted:
		s.size[r.Job] = r.Tasks
		s.ids = append(s.ids, r.Job)
		s.note("  submitted %d", r.Job)
	case *api.Changed:
		s.note("  %d: %s has changed %v", a.Request, q.what, r.Jobs)
		for _, id := range r.Jobs {
			switch q.what {
			case "cancel":
				s.cancelled[id] = true
			case "hold":
				s.held[id] = !s.releases()
			}
		}
		s.whole(q)
	default:
		s.note("  %d: %s", a.Request, a.Err.Reason)
	}
}

// releases says whether somebody waits for the answer to a release.
func (s *sliced) releases() bool {
	for _, q := range s.asked {
		if q.what == "release" {
			return true
		}
	}
	return false
}

// whole looks at all tasks of an array for which there was a request.
func (s *sliced) whole(q asked) {
	if q.ref.Task >= 0 || q.ref.Tasks != "" || s.size[q.ref.Job] == 0 {
		return
	}
	docs, _ := s.core.Job(s.now, q.ref)
	for _, d := range docs {
		switch {
		case q.what == "cancel" && (d.State == api.Pending || d.State == api.Running || d.State == api.Suspended):
			s.fail("job %d, %s, is %s after all were cancelled", d.ID, d.ArrayTasks, d.State)
		case len(s.asked) > 0: // another request may have begun
		case q.what == "hold" && d.State == api.Pending && !d.Held, q.what == "release" && d.State == api.Pending && d.Held:
			s.fail("job %d, %s, is held %v after a %s", d.ID, d.ArrayTasks, d.Held, q.what)
		}
	}
}

func (s *sliced) request(what string, ref head.Ref, event func(head.Caller) head.Event) {
	s.last++
	s.asked[s.last] = asked{what, ref}
	s.core.Handle(s.now, event(head.Caller{Request: s.last, User: "root"}))
}

func (s *sliced) submit() {
	options := []string{"-n1", "-t" + fmt.Sprint(1+s.random.IntN(3)), "-J" + s.one("a", "b")}
	if s.random.IntN(4) > 0 {
		options = append(options, fmt.Sprintf("--array=0-%d%s", 4+s.random.IntN(20), s.one("", "", "%2")))
	}
	switch s.random.IntN(8) {
	case 0:
		options = append(options, "--hold")
	case 1:
		options = append(options, "--begin=now+1minute")
	case 2:
		options = append(options, "--deadline=now+4minutes")
	case 3:
		options = append(options, "--dependency=singleton")
	case 4, 5, 6:
		if len(s.ids) > 0 {
			on := s.ids[len(s.ids)-1-s.random.IntN(min(4, len(s.ids)))]
			options = append(options, fmt.Sprintf("--dependency=%s:%d", s.one("aftercorr", "aftercorr", "aftercorr", "afterok", "afterany", "after"), on))
		}
	}
	if s.random.IntN(2) == 0 {
		options = append(options, "--requeue")
	}
	user := s.one("alice", "bob")
	s.note("%d: %s submits %v", s.last+1, user, options)
	s.request("submit", head.Ref{}, func(c head.Caller) head.Event {
		return head.Submit{Caller: c, Secret: "s", Submission: api.Submission{User: user, Options: options, Arguments: []string{"x"}, Directory: "/"}}
	})
}

// change asks for something for an array, some of its tasks, or one, by either of its names.
func (s *sliced) change() {
	if len(s.ids) == 0 {
		return
	}
	id := s.ids[len(s.ids)-1-s.random.IntN(min(6, len(s.ids)))]
	what := s.one("cancel", "cancel", "hold", "hold", "release", "release", "priority", "requeue", "suspend", "resume", "signal")
	r := head.Ref{Job: id, Task: -1}
	if n := s.size[id]; n > 0 {
		switch s.random.IntN(6) {
		case 0:
			r.Job = id + 1 + uint64(s.random.IntN(n-1))
		case 1:
			r.Task = int64(s.random.IntN(n))
		case 2, 3:
			from := s.random.IntN(n)
			r.Tasks = fmt.Sprintf("%d-%d%s", from, from+s.random.IntN(n), s.one("", ":2"))
		}
	}
	s.note("%d: %s %+v", s.last+1, what, r)
	if what == "release" { // it may start from now on, until the next answer to a hold
		clear(s.held)
	}
	nice := int64(s.random.IntN(5))
	s.request(what, r, func(c head.Caller) head.Event {
		if what != "hold" && what != "release" { // users may not release what administrators hold
			c.User = s.one("root", "root", "alice", "bob")
		}
		switch what {
		case "cancel":
			return head.Cancel{Caller: c, Jobs: r}
		case "signal":
			return head.Cancel{Caller: c, Jobs: r, Signal: 10}
		}
		return head.Change{Caller: c, Jobs: r, Action: head.Action(what), Priority: api.Priority{Nice: &nice}}
	})
}

func (s *sliced) obey() {
	stops := s.stops
	s.stops = nil
	for _, m := range stops {
		if s.session[s.names[m.Session]] == m.Session {
			s.send(m)
		}
	}
}

func (s *sliced) turn() {
	s.core.Step(s.now)
	s.collect()
}

// rest lets the head work until it says that nothing is left to do.
func (s *sliced) rest() {
	for n := 0; ; n++ {
		s.obey()
		if s.core.Next() <= s.now {
			s.core.Handle(s.now, head.Tick{})
		}
		s.turn()
		if len(s.stops) == 0 && s.core.Next() > s.now {
			break
		}
		if n == 20_000 {
			s.fail("the head does not come to rest")
		}
	}
	for r, q := range s.asked {
		s.fail("request %d, %+v, is not answered", r, q)
	}
}

// check is for a head at rest.
func (s *sliced) check() {
	if trouble := s.count(); trouble != "" {
		s.fail("%s", trouble)
	}
}

// count looks at every task: it is in memory or among those that ended, and never both.
func (s *sliced) count() string {
	w := &twins{arrays: s.player, size: map[uint64]int{}, owner: []uint64{0}}
	for _, id := range slices.Sorted(slices.Values(s.ids)) {
		for uint64(len(w.owner)) < id {
			return fmt.Sprintf("job %d was not answered", len(w.owner))
		}
		for range max(1, s.size[id]) {
			w.owner = append(w.owner, id)
		}
		w.size[id] = max(1, s.size[id])
	}
	return w.count()
}

func (s *sliced) ending() {
	running := s.sorted()
	if len(running) == 0 {
		return
	}
	id := running[s.random.IntN(len(running))]
	s.note("task %v ends", id)
	s.report(id, agent.Report{Task: id, State: agent.Ended, End: &agent.End{Cause: agent.Exited, Exit: s.random.IntN(4) / 3}})
}

func (s *sliced) nodeEvent() {
	name := s.nodes[s.random.IntN(len(s.nodes))]
	switch {
	case s.session[name] == 0:
		s.note("node %s comes", name)
		s.node([]string{name})
	case s.random.IntN(3) == 0:
		cores := fmt.Sprintf("cores=%d", 2+s.random.IntN(4))
		s.note("node %s comes anew with %s", name, cores)
		maps.DeleteFunc(s.tasks, func(_ agent.Task, node string) bool { return node == name }) // it was restarted
		s.node([]string{name, cores})
	case s.random.IntN(2) == 0:
		s.note("node %s serves one user", name)
		s.node([]string{name, "user=" + s.one("", "", "alice")})
	default:
		s.note("node %s is away", name)
		s.core.Handle(s.now, head.HungUp{Session: s.session[name], Reason: "x"})
		delete(s.session, name)
	}
}

// seenNow is what must be the same before and after a restart, by task.
func (s *sliced) seenNow() map[string]string {
	found := map[string]string{}
	for _, id := range s.ids {
		for i := range max(1, s.size[id]) {
			task := int64(i)
			if s.size[id] == 0 {
				task = -1
			}
			docs, _ := s.core.Job(s.now, head.Ref{Job: id, Task: task})
			if len(docs) == 1 && !docs[0].State.Over() {
				d := docs[0]
				found[fmt.Sprint(d.ID)] = fmt.Sprintf("%s held %v priority %d attempt %d on %s", d.State, d.Held, d.Priority, d.Attempt, d.NodeList)
			}
		}
	}
	return found
}

func (s *sliced) restart() {
	s.note("restart")
	for s.collect() > 0 { // what agents answer at once is written, too
	}
	before := s.seenNow()
	clear(s.asked)
	s.stops = nil
	s.names, s.session = map[head.Session]string{}, map[string]head.Session{}
	if err := s.boot(); err != nil {
		s.fail("%v", err)
	}
	for id, now := range s.seenNow() {
		if was := before[id]; was != now {
			s.fail("job %s was %q before the restart, and is %q", id, was, now)
		}
		delete(before, id)
	}
	for id, was := range before {
		s.fail("job %s was %q before the restart, and is gone", id, was)
	}
	for _, name := range s.nodes {
		if s.random.IntN(8) > 0 {
			s.node([]string{name})
		}
	}
}

func (s *sliced) event() {
	switch n := s.random.IntN(40); {
	case n < 6:
		s.submit()
	case n < 18:
		s.change()
	case n < 24:
		s.ending()
	case n < 25:
		s.nodeEvent()
	case n < 27:
		s.now += time.Duration(s.random.IntN(60)) * time.Second
		s.note("at %v", s.now-began)
		s.core.Handle(s.now, head.Tick{})
	case n < 28 && s.random.IntN(3) == 0:
		s.restart()
	case n < 29:
		s.rest()
		s.check()
	case n < 32:
		s.obey()
	default:
		s.turn()
	}
	s.now += time.Millisecond
}

// finish lets all jobs run that can, and looks whether one is left.
func (s *sliced) finish() {
	for _, name := range s.nodes {
		s.node([]string{name, "cores=4", "user="})
	}
	s.rest()
	for _, id := range s.ids {
		clear(s.held)
		s.request("release", head.Ref{Job: id, Task: -1}, func(c head.Caller) head.Event {
			return head.Change{Caller: c, Jobs: head.Ref{Job: id, Task: -1}, Action: head.Release}
		})
		s.rest()
		s.request("resume", head.Ref{Job: id, Task: -1}, func(c head.Caller) head.Event {
			return head.Change{Caller: c, Jobs: head.Ref{Job: id, Task: -1}, Action: head.ResumeJob}
		})
		s.rest()
	}
	s.check()
	for range 2000 {
		s.now += time.Minute
		s.core.Handle(s.now, head.Tick{})
		s.rest()
		running := s.sorted()
		if len(running) == 0 && s.now > began+10*time.Hour {
			break
		}
		if len(running) == 0 {
			s.now += time.Hour
		}
		for _, id := range running {
			s.report(id, agent.Report{Task: id, State: agent.Ended, End: &agent.End{Cause: agent.Exited}})
		}
	}
	s.check()
	for _, d := range s.core.JobList(s.now, head.Filter{}) {
		if !d.State.Over() && d.Reason != "DependencyNeverSatisfied" && d.Reason != "Dependency" {
			s.fail("in the end job %d, %s, is %s (%s: %s)", d.ID, d.ArrayTasks, d.State, d.Reason, d.Why)
		}
	}
}

// Whatever happens between the slices of requests, each is answered, each task is there once, what was
// cancelled or held does not start, and the records are those of what the head has in memory.
func TestAnythingBetweenSlices(t *testing.T) {
	first, given := seeds.First(t)
	rounds := uint64(need.Rounds(12, 400))
	if given && first != 1 {
		rounds = 1
	}
	for seed := first; seed < first+rounds; seed++ {
		func() {
			random := rand.New(rand.NewPCG(seed, 11))
			defer head.Slices(1+random.IntN(6), 2+random.IntN(12))()
			s := &sliced{
				player: newPlayer(), t: t, random: random, size: map[uint64]int{}, asked: map[head.Request]asked{},
				cancelled: map[uint64]bool{}, held: map[uint64]bool{}, nodes: []string{"n1", "n2", "n3"},
			}
			s.policy = s.one("fcfs", "easy", "first-fit")
			if random.IntN(2) == 0 {
				s.cfg.Limits.Running = 3
			}
			s.note("seed %d", seed)
			if err := s.boot(); err != nil {
				t.Fatal(err)
			}
			for _, name := range s.nodes {
				s.node([]string{name})
			}
			for range 150 {
				s.event()
			}
			s.rest()
			s.finish()
			for i, r := range s.records {
				mustReplay(t, fmt.Sprintf("seed %d, start %d", seed, i), r)
			}
		}()
	}
}
