package head

import (
	"testing"
	"time"

	"muster/model"
	"muster/wire/agent"
	"muster/wire/api"
)

// How an attempt ended decides what becomes of the job, whoever holds it and whatever ran where.
func TestVerdict(t *testing.T) {
	exited := func(code int) *agent.End { return &agent.End{Cause: agent.Exited, Exit: code} }
	of := func(c agent.Cause) *agent.End { return &agent.End{Cause: c, Reason: string(c)} }
	type asked struct{ requeue, held, tired, moves bool }
	for _, tc := range []struct {
		name string
		ends []*agent.End
		stop *stop
		asked
		want verdict
	}{
		{"all is well", []*agent.End{exited(0), exited(0)}, nil, asked{}, verdict{state: api.Completed}},
		{"the first that failed counts", []*agent.End{exited(0), exited(3), exited(4)}, nil, asked{}, verdict{state: api.Failed, exit: 3}},
		{"those that were stopped for it say nothing", []*agent.End{of(agent.Stopped), exited(3)}, &stop{Cause: agent.Stopped}, asked{}, verdict{state: api.Failed, exit: 3}},
		{"time", []*agent.End{of(agent.TimedOut)}, nil, asked{}, verdict{state: api.Timeout, reason: string(agent.TimedOut)}},
		{"memory", []*agent.End{of(agent.NoMemory)}, nil, asked{}, verdict{state: api.OutOfMemory, reason: string(agent.NoMemory)}},
		{"a lost node", []*agent.End{exited(0), of(agent.NodeLost)}, nil, asked{}, verdict{state: api.NodeFail, reason: string(agent.NodeLost)}},
		{"a lost node, with --requeue", []*agent.End{of(agent.NodeLost)}, nil, asked{requeue: true}, verdict{again: true, reason: string(agent.NodeLost)}},
		{"cancelled while it was being requeued", []*agent.End{of(agent.Stopped)}, &stop{Cause: agent.Stopped, Reason: "by ann", Outcome: api.Cancelled}, asked{requeue: true}, verdict{state: api.Cancelled, reason: "by ann"}},
		{"preempted", []*agent.End{of(agent.Stopped)}, &stop{Cause: agent.Stopped, Requeue: true}, asked{}, verdict{again: true}},
		{"preempted, and an administrator holds it", []*agent.End{of(agent.Stopped)}, &stop{Cause: agent.Stopped, Requeue: true, Outcome: api.Preempted}, asked{held: true}, verdict{state: api.Preempted}},
		{"a node was not ready", []*agent.End{of(agent.NotReady)}, nil, asked{}, verdict{again: true, reason: string(agent.NotReady)}},
		{"a node was not ready, too often", []*agent.End{of(agent.NotReady)}, nil, asked{tired: true}, verdict{state: api.Failed, reason: string(agent.NotReady)}},
		{"a node was not ready, and another had begun", []*agent.End{exited(0), of(agent.NotReady)}, nil, asked{}, verdict{state: api.Failed, reason: string(agent.NotReady)}},
		{"saved, and it could not begin", []*agent.End{of(agent.NotBegun)}, nil, asked{moves: true, tired: true}, verdict{again: true, reason: string(agent.NotBegun)}},
		{"saved, and a lender refused", []*agent.End{of(agent.NotBegun)}, &stop{Cause: agent.NotBegun, Outcome: api.Failed}, asked{moves: true}, verdict{again: true, reason: string(agent.NotBegun)}},
		{"saved, and a lender was lost", []*agent.End{of(agent.NodeLost)}, &stop{Cause: agent.NodeLost, Outcome: api.NodeFail}, asked{moves: true}, verdict{again: true, reason: string(agent.NodeLost)}},
		{"saved, and cancelled", []*agent.End{of(agent.Stopped)}, &stop{Cause: agent.Stopped, Outcome: api.Cancelled, Reason: "by ann"}, asked{moves: true}, verdict{state: api.Cancelled, reason: "by ann"}},
		{"saved, and its deadline passes", []*agent.End{of(agent.TimedOut)}, &stop{Cause: agent.TimedOut, Outcome: api.Timeout, Reason: "late"}, asked{moves: true}, verdict{state: api.Timeout, reason: "late"}},
		{"saved, and it failed before the head heard that it ran", []*agent.End{exited(3)}, nil, asked{moves: true}, verdict{state: api.Failed, exit: 3}},
		{"saved, and done before the head heard that it ran", []*agent.End{exited(0)}, nil, asked{moves: true}, verdict{state: api.Completed}},
	} {
		a := attempt{stop: tc.stop}
		for _, end := range tc.ends {
			a.tasks = append(a.tasks, task{end: end})
		}
		if got := a.verdict(tc.requeue, !tc.held, !tc.held && !tc.tired, tc.moves); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// What an attempt has run does not count the time for which it was suspended, and what it used stays
// known when its job waits again.
func TestAttemptsTimes(t *testing.T) {
	a := attempt{nth: 2, start: 100 * time.Second, alloc: &model.Allocation{}, tasks: []task{{}}}
	if a.allEnded() || a.elapsed(130*time.Second) != 30*time.Second {
		t.Errorf("%+v", a)
	}
	a.suspend, a.suspendedSince = true, 130*time.Second
	if got := a.elapsed(190 * time.Second); got != 30*time.Second {
		t.Errorf("it has run for %v", got)
	}
	a.awake(200 * time.Second)
	a.awake(300 * time.Second)
	a.end, a.tasks[0].end = 210*time.Second, &agent.End{}
	if got := a.elapsed(999 * time.Second); got != 40*time.Second || !a.allEnded() {
		t.Errorf("it has run for %v", got)
	}
	a.cpu = time.Second
	if a.takeBack(); a.nth != 2 || a.cpu != time.Second || a.alloc != nil || a.tasks != nil || a.elapsed(0) != 0 {
		t.Errorf("taken back: %+v", a)
	}
}
