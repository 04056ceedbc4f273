package head_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/wire/agent"
	"muster/wire/api"
)

const (
	many        = 3000        // tasks of the array of these tests, which is job 1
	manyRunning = 64 * 32     // of them run
	mostInTurn  = 2 * 512     // what one turn of the daemon's loop may change
	mostRecords = 3*512 + 100 // and what it may write
)

// crowded is a cluster that runs what it can of alice's array.
func crowded(t *testing.T) *live {
	l := newLive(t, "easy")
	l.obedient, l.disk = true, map[head.Bucket]map[string][]byte{}
	l.greet(manyRunning / 32)
	l.submit(began, "alice", "-n1", fmt.Sprintf("--array=0-%d", many-1))
	for l.settle(began); l.core.Next() <= began; {
		l.settle(began)
	}
	if info := l.core.Info(began); info.Running != manyRunning {
		t.Fatalf("%d tasks run, and %d wait: %q", info.Running, info.Pending, l.errors)
	}
	return l
}

// turn is what one turn of the daemon's loop does: one event, and a step. The agents obey afterwards.
func (l *live) turn(t *testing.T, ev head.Event) head.Effects {
	t.Helper()
	l.core.Handle(began, ev)
	l.core.Step(began)
	e := l.core.Take()
	if len(e.Changes) > mostInTurn || len(e.Sends) > mostInTurn || len(e.Records) > mostRecords {
		t.Fatalf("one turn, of a %T: %d records, %d changes, %d messages", ev, len(e.Records), len(e.Changes), len(e.Sends))
	}
	return e
}

// until turns the loop until a request has been answered, and says how often.
func (l *live) until(t *testing.T, r head.Request, ev head.Event) (turns int, answer head.Answer) {
	t.Helper()
	for ; turns < 1000; ev = (head.Tick{}) {
		if turns > 0 && l.core.Next() > began {
			t.Fatalf("request %d is not answered, and the core does not say that it has more to do", r)
		}
		turns++
		e := l.turn(t, ev)
		l.carryOut(began, e)
		for _, a := range e.Answers {
			if a.Request == r {
				return turns, a
			}
		}
	}
	t.Fatalf("request %d is not answered", r)
	return 0, answer
}

// numbersOf are the jobs that an answer says were changed.
func numbersOf(t *testing.T, a head.Answer) []uint64 {
	t.Helper()
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.Result.(*api.Changed).Jobs
}

func theFirst(n, step int) (numbers []uint64) {
	for i := 1; i <= n; i += step {
		numbers = append(numbers, uint64(i))
	}
	return numbers
}

// by is a request of a user for tasks of job 1.
func by(user string, r head.Request, tasks string, action head.Action) head.Event {
	caller, ref := head.Caller{Request: r, User: user}, head.Ref{Job: 1, Task: -1, Tasks: tasks}
	if action == "" {
		return head.Cancel{Caller: caller, Jobs: ref}
	}
	return head.Change{Caller: caller, Jobs: ref, Action: action, Priority: api.Priority{Nice: new(int64)}, Limit: 3}
}

// Whatever is asked for all tasks of a large array, no turn of the loop does much, and the answer names all.
func TestLargeRequestsAreSliced(t *testing.T) {
	running := theFirst(manyRunning, 1)
	for _, c := range []struct {
		name string
		ev   head.Event
		want []uint64
	}{
		{"hold", by("alice", 7, "", head.Hold), theFirst(many, 1)},
		{"release", by("alice", 7, "", head.Release), theFirst(many, 1)},
		{"nice", by("alice", 7, "", head.Prioritise), theFirst(many, 1)},
		{"limit", by("alice", 7, "", head.LimitDevices), running},
		{"suspend", by("alice", 7, "", head.SuspendJob), running},
		{"requeue", by("alice", 7, "", head.RequeueJob), running},
		{"signal", head.Cancel{Caller: head.Caller{Request: 7, User: "alice"}, Jobs: head.Ref{Job: 1, Task: -1}, Signal: 10}, running},
		{"cancel", by("alice", 7, "", ""), theFirst(many, 1)},
		{"cancel every second", by("alice", 7, fmt.Sprintf("0-%d:2", many-1), ""), theFirst(many, 2)},
		{"hold every second", by("alice", 7, fmt.Sprintf("0-%d:2", many-1), head.Hold), theFirst(many, 2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := crowded(t)
			turns, answer := l.until(t, 7, c.ev)
			if got := numbersOf(t, answer); !slices.Equal(got, c.want) {
				t.Errorf("the answer has %d numbers, %v to %v", len(got), got[0], got[len(got)-1])
			}
			if turns < 2 {
				t.Error("all was done in one turn: this shows nothing")
			}
			for range 50 {
				l.settle(began)
			}
			if strings.HasPrefix(c.name, "cancel") {
				for _, d := range l.core.JobList(began, head.Filter{States: []api.State{api.Pending, api.Running, api.Completing}}) {
					if d.ArrayTask != nil && slices.Contains(c.want, d.ID) {
						t.Fatalf("task %d is %s", *d.ArrayTask, d.State)
					}
				}
			}
		})
	}
}

// A request for a few jobs is done in its own event.
func TestSmallRequestsAreNotSliced(t *testing.T) {
	l := crowded(t)
	for _, tasks := range []string{"7", "100-200", "0-2999:30", "2500-2999"} {
		if turns, answer := l.until(t, 7, by("alice", 7, tasks, "")); turns != 1 || len(numbersOf(t, answer)) == 0 {
			t.Errorf("%s took %d turns", tasks, turns)
		}
	}
}

// What others ask for is done between two slices, also for jobs of the same user; what is for the same
// array waits, and nothing of it is done before the request that came first.
func TestOthersBetweenSlices(t *testing.T) {
	l := crowded(t)
	l.until(t, 2, head.Submit{Caller: head.Caller{Request: 2, User: "alice"}, Secret: "s", Submission: api.Submission{Options: []string{"-n1", "--array=0-9"}, Arguments: []string{"x"}, Directory: "/"}})
	answers, after := map[head.Request]head.Answer{}, map[head.Request]int{}
	for i, ev := range []head.Event{
		by("alice", 3, "", head.Hold),
		by("root", 4, "5", head.Release),
		head.Change{Caller: head.Caller{Request: 5, User: "alice"}, Jobs: head.Ref{Job: many + 1, Task: -1}, Action: head.Hold},
		head.Submit{Caller: head.Caller{Request: 6, User: "bob"}, Secret: "s", Submission: api.Submission{Options: []string{"-n1"}, Arguments: []string{"x"}, Directory: "/"}},
		by("bob", 7, "", ""),
		head.Tick{}, head.Tick{}, head.Tick{}, head.Tick{},
	} {
		for _, a := range l.turn(t, ev).Answers {
			answers[a.Request], after[a.Request] = a, i
		}
	}
	if after[3] < 2 || after[4] < after[3] || len(numbersOf(t, answers[3])) != many || len(numbersOf(t, answers[4])) != 1 {
		t.Errorf("the first request is answered in turn %d: %+v; and the second for the same array in turn %d: %+v", after[3], answers[3].Err, after[4], answers[4].Err)
	}
	if after[5] != 2 || after[6] != 3 || after[7] != 4 || after[5]+after[6] >= 2*after[3] {
		t.Errorf("requests for other jobs are answered in turns %v", after)
	}
	if err := answers[7].Err; err == nil || err.Status != 403 {
		t.Errorf("bob cancels alice's array: %+v", answers[7])
	}
	for _, d := range l.core.JobList(began, head.Filter{User: "alice"}) {
		if d.Held != (d.ID != 6) {
			t.Errorf("job %d is held: %v", d.ID, d.Held)
		}
	}
}

// A hold of all and then a release of all leave nothing held, however they are sliced.
func TestRequestsStayInOrder(t *testing.T) {
	l := crowded(t)
	l.turn(t, by("alice", 2, "", head.Hold))
	l.turn(t, by("root", 3, "", head.Prioritise))
	_, answer := l.until(t, 4, by("alice", 4, "", head.Release))
	if n := len(numbersOf(t, answer)); n != many {
		t.Errorf("%d tasks were released", n)
	}
	for _, d := range l.core.JobList(began, head.Filter{}) {
		if d.Held {
			t.Fatalf("job %d is held", d.ID)
		}
	}
}

// Users take turns: a short request does not wait for all of another's long ones.
func TestUsersTakeTurns(t *testing.T) {
	l := crowded(t)
	sub := func(r head.Request) head.Event {
		return head.Submit{Caller: head.Caller{Request: r, User: "bob"}, Secret: "s", Submission: api.Submission{Options: []string{"-n1", "--hold", "--array=0-1999"}, Arguments: []string{"x"}, Directory: "/"}}
	}
	l.until(t, 2, sub(2))
	for i := range 10 {
		l.turn(t, by("alice", head.Request(10+i), "", head.Prioritise))
	}
	turns, _ := l.until(t, 30, head.Change{Caller: head.Caller{Request: 30, User: "bob"}, Jobs: head.Ref{Job: many + 1, Task: -1}, Action: head.Release})
	if turns > 3 {
		t.Errorf("bob waits for %d turns", turns)
	}
	if _, answer := l.until(t, 19, head.Tick{}); len(numbersOf(t, answer)) != many {
		t.Error("alice's last request is not carried out")
	}
}

// Who sends requests faster than they are carried out is refused, and others are not.
func TestTooManyRequests(t *testing.T) {
	l := crowded(t)
	refused := 0
	for i := range 300 {
		l.core.Handle(began, by("alice", head.Request(10+i), "", head.Prioritise))
	}
	l.core.Handle(began, by("root", 7, "", head.Hold))
	for _, a := range l.core.Take().Answers {
		if a.Err == nil || a.Err.Status != 429 || a.Request == 7 {
			t.Fatalf("%+v", a)
		}
		refused++
	}
	if refused != 300-256 {
		t.Errorf("%d of 300 requests are refused", refused)
	}
	for range 2000 {
		if l.core.Next() > began {
			return
		}
		l.settle(began)
	}
	t.Error("the core never gets done")
}

// The tasks that wait end before those that run are stopped, and no task starts in the room that the
// first of these leave.
func TestCancelStartsNothing(t *testing.T) {
	for _, tasks := range []string{"", fmt.Sprintf("0-%d", many-1), fmt.Sprintf("0-%d:3", many-1)} {
		l := crowded(t)
		named := map[uint64]bool{}
		for _, n := range theFirst(many, map[bool]int{true: 3, false: 1}[strings.HasSuffix(tasks, ":3")]) {
			named[n] = true
		}
		var ev head.Event = by("alice", 7, tasks, "")
		for l.core.Next() <= began || ev != (head.Tick{}) {
			e := l.turn(t, ev)
			for _, s := range e.Sends {
				if m, ok := s.Message.(agent.Start); ok && named[m.Task.Job] {
					t.Fatalf("tasks %q: task %v starts", tasks, m.Task)
				}
			}
			l.carryOut(began, e)
			ev = head.Tick{}
		}
		if info := l.core.Info(began); tasks != fmt.Sprintf("0-%d:3", many-1) && info.Pending+info.Running > 0 {
			t.Errorf("tasks %q: %d wait, and %d run", tasks, info.Pending, info.Running)
		}
	}
}

// A task that ends before its slice is left out.
func TestTasksThatEndBetweenSlices(t *testing.T) {
	for _, action := range []head.Action{"", head.RequeueJob, head.Hold, head.SuspendJob} {
		l := crowded(t)
		l.obedient = false
		l.carryOut(began, l.turn(t, by("alice", 7, "", action)))
		s := l.running[manyRunning][0]
		_, answer := l.until(t, 7, head.Said{Session: s.session, Message: agent.Report{Task: s.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
		if got := numbersOf(t, answer); slices.Contains(got, manyRunning) || !slices.Contains(got, manyRunning-1) {
			t.Errorf("%s: the answer has %d numbers", action, len(got))
		}
		if docs, _ := l.core.Job(began, head.Ref{Job: 1, Task: manyRunning - 1}); len(docs) != 1 || docs[0].State != api.Completed {
			t.Errorf("%s: %+v", action, docs)
		}
	}
}

// A head that stops between two slices continues from its records: what was done is done, and who asks
// again gets the rest.
func TestStopBetweenSlices(t *testing.T) {
	for _, action := range []head.Action{"", head.Hold, head.RequeueJob} {
		for turns := 1; turns <= 3; turns++ {
			l := crowded(t)
			l.obedient = false
			ev := by("alice", 7, "", action)
			for range turns {
				e := l.turn(t, ev)
				if l.keep(e.Records); len(e.Answers) > 0 {
					t.Fatal("it is answered already")
				}
				ev = head.Tick{}
			}
			before := states(l)
			l.restart(t)
			for id, state := range states(l) {
				if was := before[id]; was != state {
					t.Fatalf("%s, %d turns: job %d was %q, and is %q", action, turns, id, was, state)
				}
			}
			_, answer := l.until(t, 8, by("alice", 8, "", action))
			if got := numbersOf(t, answer); len(got) == 0 {
				t.Errorf("%s: nothing was left to do", action)
			}
			for id, state := range states(l) {
				wrong := map[head.Action]bool{"": state == "PENDING false" || state == "RUNNING false", head.Hold: !strings.HasSuffix(state, "true"), head.RequeueJob: state == "RUNNING false"}
				if wrong[action] {
					t.Fatalf("%s, %d turns: in the end job %d is %s", action, turns, id, state)
				}
			}
		}
	}
}

// states is the state of each task that has not ended, and whether it is held.
func states(l *live) map[uint64]string {
	found := map[uint64]string{}
	for i := range many {
		for _, d := range func() []api.Job {
			docs, _ := l.core.Job(began, head.Ref{Job: 1, Task: int64(i)})
			return docs
		}() {
			if !d.State.Over() {
				found[d.ID] = fmt.Sprint(d.State, " ", d.Held)
			}
		}
	}
	return found
}

// A list of an array's tasks that is made page by page has what one that is made at once has.
func TestPagesOfTasks(t *testing.T) {
	l := crowded(t)
	for _, tasks := range []string{"0-2999:7", "2100,2200-2300", "2900"} {
		l.until(t, 7, by("alice", 7, tasks, head.Hold))
	}
	for _, ref := range []head.Ref{{Job: 1, Task: -1}, {Job: 1, Task: 5}, {Job: 6, Task: -1}, {Job: 1, Task: -1, Tasks: "1500-2999:2"}, {Job: 1, Task: -1, Tasks: "2999"}} {
		whole, known := l.core.Job(began, ref)
		for _, most := range []int{1, 7, 500} {
			var pages []api.Job
			for first, next := uint64(0), uint64(0); ; first = next {
				var some []api.Job
				some, next, _ = l.core.JobFrom(began, ref, first, most)
				if pages = append(pages, some...); next == 0 {
					break
				}
			}
			same := slices.EqualFunc(pages, whole, func(a, b api.Job) bool { return a.ID == b.ID && a.ArrayTasks == b.ArrayTasks })
			if !known || len(whole) == 0 || !same {
				t.Errorf("%+v: %d jobs in pages of %d, and %d in all", ref, len(pages), most, len(whole))
			}
		}
	}
}

// A node that comes back with other cores has another name with the policy, so all jobs that wait are
// submitted there again: some in each turn. They can use it afterwards, as can those that name it.
func TestNodeThatChangedWhileManyWait(t *testing.T) {
	l := newLive(t, "easy")
	l.greet(2)
	for i := range many {
		l.submit(began, fmt.Sprintf("user%d", i%50), "-n1", "--nodelist=n00001")
	}
	l.settle(began)
	starts := len(l.running)
	l.core.Handle(began, head.HungUp{Session: 2})
	l.greetCores("n00001", 7)
	turns := 0
	for ; l.core.Next() <= began; turns++ {
		l.core.Step(began)
		l.carryOut(began, l.core.Take())
		if turns < many/512 && len(l.running) != starts {
			t.Fatalf("in turn %d, tasks start before all jobs know of the node", turns)
		}
	}
	if turns < many/512 {
		t.Errorf("all was done in %d turns", turns)
	}
	if n := len(l.running) - starts; n != 7 {
		t.Errorf("%d tasks start on the node's 7 cores; refused: %q", n, l.errors)
	}
}

// A node that changes again and again does not keep the policy from deciding for others.
func TestNodeThatChangesAllTheTime(t *testing.T) {
	l := newLive(t, "easy:depth=4000")
	l.greet(2)
	for range many {
		l.submit(began, "alice", "-n1", "--nodelist=n00001")
	}
	l.settle(began)
	l.submit(began, "bob", "-n1", "--nodelist=n00000")
	for turns := 0; l.running[many+1] == nil; turns++ {
		if turns == 100 {
			t.Fatal("bob's job does not start on the other node")
		}
		l.greetCores("n00001", 1+turns%2)
		l.core.Step(began)
		l.carryOut(began, l.core.Take())
	}
}

// greetCores greets as a node that has so many cores.
func (l *live) greetCores(name string, cores int) {
	hello := agent.Hello{Version: agent.Version, Node: name, Incarnation: "1", Cores: cores, Memory: 128 << 30, Gateway: "g:1"}
	l.core.Handle(began, head.Greeted{Session: head.Session(1_000_000 + cores), Hello: hello})
}

// Tasks that need no longer wait for those of another array, or wait in vain, leave their rest: also between
// two slices of a request, which is for them all the same.
func TestTasksThatLeaveTheirRestBetweenSlices(t *testing.T) {
	const tasks, fillers = 100_000, 256 // as many jobs look at what they wait for in the event before
	all := head.Ref{Job: tasks + fillers + 1, Task: -1}
	alice := head.Caller{Request: 7, User: "alice"}
	for _, action := range []head.Action{head.Hold, head.Release, head.Prioritise} {
		l := newLive(t, "fcfs")
		l.submit(began, "alice", "-n1", "--hold", "--array=0-99999")
		for range fillers {
			l.submit(began, "alice", "-n1", "--dependency=afterany:1_95000")
		}
		l.submit(began, "alice", "-n1", "--array=0-99999", "--dependency=aftercorr:1")
		small := head.Ref{Job: all.Job, Task: -1, Tasks: "90000-99999"}
		l.core.Handle(began, head.Change{Caller: alice, Jobs: small, Action: head.Prioritise, Priority: api.Priority{Nice: new(int64(5))}})
		if action == head.Release {
			l.core.Handle(began, head.Change{Caller: alice, Jobs: all, Action: head.Hold})
		}
		for l.settle(began); l.core.Next() <= began; {
			l.settle(began)
		}
		l.core.Handle(began, head.Cancel{Caller: alice, Jobs: head.Ref{Job: 1, Task: 95000}})
		l.core.Take()
		_, answer := l.until(t, 7, head.Change{Caller: alice, Jobs: all, Action: action, Priority: api.Priority{Nice: new(int64(9))}})
		if n := len(numbersOf(t, answer)); n != tasks {
			t.Errorf("%s: %d tasks were changed", action, n)
		}
		docs, _ := l.core.Job(began, all)
		if len(docs) != 3 {
			t.Errorf("%d rests: this shows nothing", len(docs))
		}
		for _, d := range docs {
			if d.Held != (action == head.Hold) || action == head.Prioritise && d.Priority != -9 {
				t.Errorf("%s: tasks %s: held %v, priority %d", action, d.ArrayTasks, d.Held, d.Priority)
			}
		}
	}
}

// If many jobs may begin at one instant, or have one deadline, no turn of the loop does much.
func TestManyTimersAtOnce(t *testing.T) {
	for _, option := range []string{"--begin=now+1minute", "--deadline=now+1minute"} {
		l := newLive(t, "fcfs")
		for range many {
			l.submit(began, "alice", "-n1", option)
		}
		l.settle(began)
		now, changed := began+time.Minute, 0
		for turns := 0; l.core.Next() <= now; turns++ {
			l.core.Handle(now, head.Tick{})
			l.core.Step(now)
			e := l.core.Take()
			if changed += len(e.Changes); len(e.Changes) > mostInTurn || turns > many {
				t.Fatalf("%s: %d changes in turn %d", option, len(e.Changes), turns)
			}
		}
		if changed != many {
			t.Errorf("%s: %d jobs have changed", option, changed)
		}
	}
}

// Jobs that were submitted before any node could run them are offered to the policy in slices, however
// many nodes come, and run when one does that can.
func TestManyImpossibleJobs(t *testing.T) {
	l := newLive(t, "easy")
	for range many {
		l.submit(began, "alice", "-n1", "-c8")
	}
	l.settle(began)
	for i := range 20 {
		l.greetCores(fmt.Sprint("small", i), 1+i%7)
	}
	l.greetCores("large", 16)
	turns := 0
	for ; l.core.Next() <= began; turns++ {
		l.core.Step(began)
		l.carryOut(began, l.core.Take())
	}
	if turns < many/512 {
		t.Errorf("all was done in %d turns", turns)
	}
	if len(l.running) != 2 {
		t.Errorf("%d jobs run on the node with 16 cores; refused: %q", len(l.running), l.errors)
	}
}
