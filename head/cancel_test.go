package head_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/head"
	"muster/wire/agent"
	"muster/wire/api"
)

// cancelled cancels, and returns the numbers in the answer.
func (l *live) cancelled(t *testing.T, ev head.Cancel) []uint64 {
	t.Helper()
	ev.Caller = head.Caller{Request: 1, User: "alice"}
	l.core.Handle(began, ev)
	e := l.core.Take()
	l.keep(e.Records)
	for _, s := range e.Sends {
		if m, ok := s.Message.(agent.Signal); ok {
			l.starts = append(l.starts, fmt.Sprint("signal ", m.Task))
		}
	}
	if len(e.Answers) != 1 || e.Answers[0].Err != nil {
		t.Fatalf("%+v: %+v", ev.Jobs, e.Answers)
	}
	return e.Answers[0].Result.(*api.Changed).Jobs
}

func (l *live) pending() (tasks int) {
	for _, d := range l.core.JobList(began, head.Filter{States: []api.State{api.Pending}}) {
		tasks += max(1, d.ArrayCount)
	}
	return tasks
}

// One task's end lets the next one of its name go, which is cancelled all the same if it is named, too.
func TestCancelTasksThatFollowEachOther(t *testing.T) {
	some := func(tasks string) head.Ref { return head.Ref{Job: 1, Task: -1, Tasks: tasks} }
	for _, c := range []struct {
		ref  head.Ref
		want int // tasks that are cancelled, from the first on
	}{
		{head.Ref{Job: 1}, 1},
		{some("0-2"), 3},
		{some("0-5"), 6},
		{some("0-9"), 10},
		{head.Ref{Job: 1, Task: -1}, 10},
	} {
		l := newLive(t, "fcfs")
		l.submit(began, "alice", "-n1", "-Jx", "--dependency=singleton", "--array=0-9")
		for _, apart := range []string{"2-4", "7-8"} { // several rests
			l.core.Handle(began, head.Change{Caller: head.Caller{User: "alice"}, Jobs: some(apart), Action: head.Hold})
		}
		l.core.Take()
		var want []uint64
		for i := range c.want {
			want = append(want, uint64(1+i))
		}
		if got := l.cancelled(t, head.Cancel{Jobs: c.ref}); !slices.Equal(got, want) {
			t.Errorf("%+v: the answer is %v, not %v", c.ref, got, want)
		}
		if info := l.core.Info(began); l.pending() != 10-c.want || info.Pending != 10-c.want {
			t.Errorf("%+v: %d tasks are left, and the head says %d", c.ref, l.pending(), info.Pending)
		}
	}
}

// Each task of an array is sent a signal once.
func TestSignalsAreSentOnce(t *testing.T) {
	l := newLive(t, "fcfs")
	l.greet(1)
	l.submit(began, "alice", "-n1", "--array=0-1")
	l.settle(began)
	l.starts = nil
	got := l.cancelled(t, head.Cancel{Signal: 10, Jobs: head.Ref{Job: 1, Task: -1}})
	if !slices.Equal(got, []uint64{1, 2}) || len(l.starts) != 2 {
		t.Errorf("%v: %q", got, l.starts)
	}
}

// The deadline of an array is that of all its tasks.
func TestDeadlineOfTasksThatFollowEachOther(t *testing.T) {
	l := newLive(t, "fcfs")
	l.submit(began, "alice", "-n1", "-Jx", "--dependency=singleton", "--array=0-9", "--deadline=now+1minute")
	l.core.Take()
	l.core.Handle(began+time.Minute, head.Tick{})
	if n := l.pending(); n > 0 {
		t.Errorf("%d tasks wait after their deadline", n)
	}
}
