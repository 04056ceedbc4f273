package head_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/wire/api"
)

// An ended job keeps nothing of what it waited for.
func TestEndedJobsForgetTheirDependencies(t *testing.T) {
	const jobs, terms = 50, 1000
	l := newLive(t, "fcfs")
	l.submit(began, "alice", "-n1", "--hold", fmt.Sprintf("--array=0-%d", terms-1))
	depends := "--dependency=afterok"
	for i := range terms {
		depends += fmt.Sprintf(":1_%d", i)
	}
	var refs []head.Ref
	for i := range jobs {
		l.submit(began, "alice", "-n1", depends)
		refs = append(refs, head.Ref{Job: uint64(terms + 1 + i), Task: -1})
	}
	l.core.Take()
	before := memory()
	for _, ref := range refs {
		l.core.Handle(began, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: ref})
		l.core.Take()
	}
	if after := memory(); before < after+jobs*terms*20 {
		t.Errorf("%d bytes before the jobs were cancelled, and %d afterwards", before, after)
	}
	runtime.KeepAlive(l)
}

// keyed submits with a key, and returns the answer.
func (l *live) keyed(t *testing.T, user, key string, options ...string) *api.Submitted {
	t.Helper()
	l.core.Handle(began, head.Submit{
		Caller: head.Caller{Request: 1, User: user}, Secret: "secret",
		Submission: api.Submission{Key: key, Options: options, Arguments: []string{"./program"}, Directory: "/home/" + user},
	})
	e := l.core.Take()
	l.keep(e.Records)
	if len(e.Answers) != 1 || e.Answers[0].Err != nil {
		t.Fatalf("%s's submission %s: %+v", user, key, e.Answers)
	}
	return e.Answers[0].Result.(*api.Submitted)
}

// A user's keys are bounded: the oldest leave first, and those of others stay.
func TestKeysAreBounded(t *testing.T) {
	l := newLive(t, "easy")
	l.disk = map[head.Bucket]map[string][]byte{}
	bobs := l.keyed(t, "bob", "k0", "--hold").Job
	first := l.keyed(t, "alice", "k0", "--hold").Job
	last := uint64(0)
	for i := 1; i <= head.MaxKeys; i++ {
		last = l.keyed(t, "alice", fmt.Sprint("k", i), "--hold").Job
	}
	for _, when := range []string{"at first", "after a restart"} {
		if n := len(l.disk[head.Keys]); n != head.MaxKeys+1 {
			t.Errorf("%s: %d keys are on the disk", when, n)
		}
		if got := l.keyed(t, "alice", fmt.Sprint("k", head.MaxKeys), "--hold").Job; got != last {
			t.Errorf("%s: alice's last key is job %d, not %d", when, got, last)
		}
		if got := l.keyed(t, "bob", "k0", "--hold").Job; got != bobs {
			t.Errorf("%s: bob's key is job %d, not %d", when, got, bobs)
		}
		l.restart(t)
	}
	if got := l.keyed(t, "alice", "k0", "--hold").Job; got == first {
		t.Error("alice's first key is remembered still")
	}
	if got := l.keyed(t, "alice", "k2", "--hold").Job; got != first+2 {
		t.Errorf("alice's third key is job %d", got)
	}
	l.core.Handle(began+time.Hour, head.Tick{})
	l.keep(l.core.Take().Records)
	if n := len(l.disk[head.Keys]); n != 0 {
		t.Errorf("after an hour, %d keys are left", n)
	}
}

// A repeated submission is told what the first one was, but the head keeps the notes with the job.
func TestKeysDoNotKeepNotes(t *testing.T) {
	l := newLive(t, "fcfs")
	l.disk = map[head.Bucket]map[string][]byte{}
	for _, array := range []string{"--array=0-9", "--array=0-9 --hold", "-n1"} {
		options := append(strings.Fields(array), "-k", "--or=-n2")
		first := l.keyed(t, "alice", array, options...)
		again := l.keyed(t, "alice", array, options...)
		if len(first.Notes) != 2 || fmt.Sprint(first) != fmt.Sprint(again) {
			t.Errorf("%s: the first answer was %+v, and then %+v", array, first, again)
		}
	}
	for _, value := range l.disk[head.Keys] {
		if strings.Contains(string(value), "notes") {
			t.Errorf("the record of a key: %s", value)
		}
	}
}

// However many tasks end on which others depend task by task, few looks are due.
func TestWakesAreBounded(t *testing.T) {
	const arrays, tasks = 50, 400
	l := newLive(t, "fcfs")
	l.submit(began, "alice", "-n1", "--hold", fmt.Sprintf("--array=0-%d", 2*tasks))
	for range arrays {
		l.submit(began, "alice", "-n1", fmt.Sprintf("--array=0-%d", 2*tasks), "--dependency=aftercorr:1")
	}
	every := head.Ref{Job: 1, Task: -1, Tasks: fmt.Sprintf("0-%d:2", 2*tasks-2)}
	l.core.Handle(began, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: every})
	steps := 0
	for ; l.core.Next() <= began; steps++ {
		l.core.Step(began)
		l.core.Take()
	}
	if steps > 20 {
		t.Errorf("it took %d events until all had looked", steps)
	}
	for i := range arrays {
		for task, never := range map[int64]bool{0: true, 1: false, 2 * tasks: false, 2*tasks - 2: true} {
			docs, _ := l.core.Job(began, head.Ref{Job: uint64(1 + (i+1)*(2*tasks+1)), Task: task})
			if len(docs) != 1 || (docs[0].Reason == "DependencyNeverSatisfied") != never {
				t.Fatalf("task %d of array %d: %+v", task, i, docs)
			}
		}
	}
}

// Tasks of which one is yet to look at what it waits for, and which are held meanwhile, are not all
// taken for that one.
func TestHeldBeforeTheyLooked(t *testing.T) {
	l := newLive(t, "fcfs")
	alice := head.Caller{Request: 1, User: "alice"}
	l.submit(began, "alice", "-n1", "--hold", "--array=0-9")
	for range 300 {
		l.submit(began, "alice", "-n1", "--dependency=afterany:1_0")
	}
	l.submit(began, "alice", "-n1", "--array=0-9", "--dependency=aftercorr:1")
	l.core.Handle(began, head.Cancel{Caller: alice, Jobs: head.Ref{Job: 1, Task: 0}})
	l.core.Handle(began, head.Change{Caller: alice, Jobs: head.Ref{Job: 311, Task: -1, Tasks: "0-3"}, Action: head.Hold})
	for range 10 {
		l.core.Handle(began, head.Tick{})
	}
	l.core.Handle(began, head.Change{Caller: alice, Jobs: head.Ref{Job: 311, Task: -1}, Action: head.Release})
	for task := range int64(10) {
		docs, _ := l.core.Job(began, head.Ref{Job: 311, Task: task})
		if len(docs) != 1 || (docs[0].Reason == "DependencyNeverSatisfied") != (task == 0) {
			t.Errorf("task %d: %+v", task, docs)
		}
	}
}

// An array whose tasks are cancelled two by two writes about as much as one of half as many tasks twice.
func TestRestsAreNearlyLinear(t *testing.T) {
	cost := func(tasks int) (bytes int) {
		l := newLive(t, "fcfs")
		l.disk = map[head.Bucket]map[string][]byte{}
		l.submit(began, "alice", "-n1", "--hold", fmt.Sprintf("--array=0-%d", tasks-1))
		for i := 0; i < tasks; i += 2 {
			bytes += l.work(func() {
				l.core.Handle(began, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: 1, Task: -1, Tasks: fmt.Sprintf("%d-%d", i, i+1)}})
			}).bytes
		}
		get := func(b head.Bucket, number uint64) []byte { return l.disk[b][string(head.Number(number))] }
		past, _, err := head.PastOf(1, get)
		if err != nil || past.Ends.Bad.Len() != tasks {
			t.Fatalf("%d tasks: %+v, %v", tasks, past.Ends, err)
		}
		for _, place := range []int{0, 1, tasks / 2, tasks - 2, tasks - 1} {
			d, err := past.Ends.Ended(1, place, get)
			if err != nil || d == nil || d.ID != uint64(1+place) || *d.ArrayTask != uint32(place) || d.State != string(api.Cancelled) {
				t.Errorf("task %d of %d: %+v, %v", place, tasks, d, err)
			}
		}
		if len(past.Ends.Rests)*len(past.Ends.Rests) > 2*tasks {
			t.Errorf("%d tasks ended in %d rests", tasks, len(past.Ends.Rests))
		}
		return bytes
	}
	if few, many := cost(500), cost(2000); many > 5*few {
		t.Errorf("500 tasks took %d bytes, and 2000 took %d", few, many)
	}
}

// What users submit and cancel, or hold and release, again and again leaves nothing in memory. Those
// that wait beside stay for long.
func TestNothingIsKeptOfJobsThatLeave(t *testing.T) {
	const times = 1000
	comment := "--comment=" + strings.Repeat("x", 4000)
	act := func(l *live, action head.Action, job uint64) {
		l.core.Handle(began, head.Change{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: job, Task: -1}, Action: action})
	}
	passing := func(options ...string) func(*live, uint64) {
		return func(l *live, next uint64) {
			l.submit(began, "alice", append(options, "-n1", comment)...)
			l.core.Handle(began, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: next, Task: -1}})
		}
	}
	held := func(l *live, _ uint64) { act(l, head.Hold, 1); act(l, head.Release, 1) }
	for name, c := range map[string]struct {
		nodes int
		first []string // a job that stays
		each  func(l *live, next uint64)
	}{
		"behind one of the same name": {1, []string{"-Jx", "--hold"}, passing("-Jx")},
		"until next year":             {1, []string{"--hold"}, passing("--begin=now+365days")},
		"with a deadline":             {1, []string{"--hold"}, passing("--hold", "--deadline=now+365days")},
		"at a limit":                  {1, nil, passing()},
		"without nodes":               {0, nil, passing()},
		"held until next year":        {1, []string{"--begin=now+365days"}, held},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, "fcfs")
			l.core.Configure(head.Config{Cluster: "test", NodeTimeout: time.Hour, Silence: time.Hour, Keep: time.Minute, Limits: head.Limits{Running: 1}})
			if c.nodes > 0 {
				l.greet(c.nodes)
			}
			l.submit(began, "alice", append(c.first, "-n1")...)
			l.settle(began)
			next := uint64(2)
			round := func(now time.Duration) uint64 {
				for range times {
					c.each(l, next)
					next++
					l.core.Take()
				}
				l.core.Handle(now, head.Tick{}) // those that have ended are forgotten
				l.core.Take()
				return memory()
			}
			round(began + 2*time.Minute)
			before := round(began + 4*time.Minute)
			if after := round(began + 6*time.Minute); after > before+32*times {
				t.Errorf("%d bytes became %d", before, after)
			}
			runtime.KeepAlive(l)
		})
	}
}

// Who waits behind a job that does not fit into the limits of its user goes on when that one leaves.
func TestThoseBehindOneThatLeavesGoOn(t *testing.T) {
	for name, leave := range map[string]head.Event{
		"cancelled": head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: 2, Task: -1}},
		"held":      head.Change{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: 2, Task: -1}, Action: head.Hold},
	} {
		l := newLive(t, "fcfs")
		l.core.Configure(head.Config{Cluster: "test", NodeTimeout: time.Hour, Silence: time.Hour, Keep: time.Minute, Limits: head.Limits{Cores: 3}})
		l.greet(1)
		for _, cores := range []string{"-n2", "-n2", "-n1"} {
			l.submit(began, "alice", cores)
		}
		l.settle(began)
		l.core.Handle(began, leave)
		l.settle(began)
		if len(l.running[1]) != 1 || len(l.running[3]) != 1 {
			t.Errorf("%s: of the jobs before and behind it %d and %d tasks run", name, len(l.running[1]), len(l.running[3]))
		}
	}
}
