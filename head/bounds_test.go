package head_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"muster/head"
	"muster/wire/agent"
)

// TestDependenciesAreNearlyLinear makes arrays depend on arrays, and cancels both. The cost must
// not grow with the square of the number of tasks, or one user could stop the head for hours.
func TestDependenciesAreNearlyLinear(t *testing.T) {
	for _, depends := range []string{"afterok:1", "aftercorr:1", "singleton"} {
		cost := func(tasks int) uint64 {
			l := newLive(t, "fcfs")
			cancel := func(job int) {
				l.core.Handle(began, head.Cancel{Caller: head.Caller{Request: 1, User: "alice"}, Jobs: head.Ref{Job: uint64(job), Task: -1}})
				l.core.Take()
			}
			array := fmt.Sprintf("--array=0-%d", tasks-1)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			l.submit(began, "alice", "-n1", "--hold", array)
			l.submit(began, "alice", "-n1", "-Jx", array, "--dependency="+depends)
			l.core.Take()
			cancel(1)
			cancel(tasks + 1)
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		if few, many := cost(100), cost(400); many > 7*few {
			t.Errorf("%s: 100 tasks took %d bytes, and 400 took %d", depends, few, many)
		}
	}
}

// TestManyTermsAreRefused: comparing the tasks of an array with those of many others would take long.
func TestManyTermsAreRefused(t *testing.T) {
	l := newLive(t, "fcfs")
	terms := "aftercorr"
	for i := range 10 {
		terms += fmt.Sprint(":", i+1)
	}
	l.submit(began, "alice", "-n1", "--array=0-99999", "--dependency="+terms)
	l.settle(began)
	if len(l.errors) != 1 || len(l.core.JobList(began, head.Filter{})) != 0 {
		t.Errorf("got %q", l.errors)
	}
}

// TestManyBytesAreRefused: each job that has not ended is in memory with its options.
func TestManyBytesAreRefused(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, options := range [][]string{{"--comment=" + long}, {"--job-name=" + long}} {
		l := newLive(t, "fcfs")
		l.submit(began, "alice", append(options, "-n1")...)
		if e := l.core.Take(); len(e.Answers) != 1 || e.Answers[0].Err == nil {
			t.Errorf("%.20q: %d records", options, len(e.Records))
		}
	}
}

// TestStaleTasksAreBounded lets a node claim to run ever more tasks that the head does not want.
func TestStaleTasksAreBounded(t *testing.T) {
	l := newLive(t, "fcfs")
	l.greet(1)
	size := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	say := func(from, to int) {
		for i := from; i < to; i++ {
			l.core.Handle(began, head.Said{Session: 1, Message: agent.Report{Task: agent.Task{Job: uint64(i), Attempt: 1}, State: agent.Running}})
			l.core.Take()
		}
	}
	say(1, 2*agent.MaxTasks)
	before := size()
	say(2*agent.MaxTasks, 20*agent.MaxTasks)
	if after := size(); after > before+1<<20 {
		t.Errorf("%d bytes became %d", before, after)
	}
	runtime.KeepAlive(l)
}

// TestNumbersOfNodesAreBounded lets a node reconnect with a different number of cores each time.
func TestNumbersOfNodesAreBounded(t *testing.T) {
	l := newLive(t, "fcfs")
	greet := func(session, cores int) (refused string, records int) {
		l.core.Handle(began, head.Greeted{Session: head.Session(session), Hello: agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "1", Cores: cores, Memory: 1 << 30}})
		e := l.core.Take()
		for _, s := range e.Sends {
			if r, ok := s.Message.(agent.Refused); ok {
				refused = r.Reason
			}
		}
		return refused, len(e.Records)
	}
	last := 0
	for i := 1; i <= 1100; i++ {
		refused, records := greet(i, i)
		if refused == "" {
			last = i
		} else if records > 0 {
			t.Fatal("a node that was refused is written down")
		}
	}
	if last != 1001 {
		t.Errorf("the last one that was let in is number %d", last)
	}
	if refused, _ := greet(2000, last); refused != "" {
		t.Errorf("the node as it was last is refused: %s", refused)
	}
}
