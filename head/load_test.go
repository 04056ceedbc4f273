package head_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/head"
	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/wire/agent"
	"muster/wire/api"
)

// The head shows how busy a node said it is last, until its agent leaves: no step, record or message follows.
func TestLoadOfNodes(t *testing.T) {
	p, err := catalog.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	core := head.New(head.Config{Cluster: "test"}, p, "fcfs")
	gpu := agent.Device{Name: "GPU", Memory: 8 << 30, Speed: 1, Up: true}
	for n := range 2 {
		core.Handle(0, head.Greeted{Session: head.Session(n + 1), Hello: agent.Hello{
			Version: agent.Version, Node: fmt.Sprint("n", n), Incarnation: "x", Cores: 1, Memory: 1 << 30, Devices: []agent.Device{gpu, gpu},
		}})
	}
	for core.Next() == 0 {
		core.Step(0)
		core.Take()
	}
	is := func(want string) {
		t.Helper()
		nodes, _ := core.NodesFrom(0, 0, 10)
		n, info := nodes[0], core.Info(0)
		got := fmt.Sprint(info.Busy, info.Waiting)
		if n.Load != nil {
			got += fmt.Sprintf(" %+v", *n.Load)
		}
		for _, d := range n.Devices {
			if d.Load != nil {
				got += fmt.Sprintf(" %+v", *d.Load)
			}
		}
		if got != want || nodes[1].Load != nil {
			t.Errorf("%s, and not %s; the other node %v", got, want, nodes[1].Load)
		}
	}
	is("0 0")
	said := agent.Load{Use: []int{85, 0, 7}, Used: []int{3, 0, 0}, Guaranteed: []int{2, 0, 0}, Assigned: 3, Waiting: 2, SwapIn: 10}
	for _, s := range []head.Session{1, 7} { // 7 is nobody's
		core.Handle(0, head.Said{Session: s, Message: said})
	}
	is("0.92 2 {Assigned:3 Waiting:2 Longest:0 SwapIn:10 SwapOut:0} {Use:85 Used:3145728 Guaranteed:2097152} {Use:0 Used:0 Guaranteed:0}")
	if e := core.Take(); len(e.Records)+len(e.Sends)+len(e.Changes) > 0 || core.Next() == 0 {
		t.Errorf("a load has effects: %+v, and something is due at %v", e, core.Next())
	}
	notices := func() (list []string) {
		nodes, _ := core.NodesFrom(0, 0, 10)
		for _, n := range nodes[0].Notices {
			list = append(list, fmt.Sprintf("%s since %v: %s", n.Name, n.Since, n.Text))
		}
		return list
	}
	said.Used[0], said.Longest = 8<<10, time.Minute
	core.Handle(2*time.Second, head.Said{Session: 1, Message: said})
	core.Handle(3*time.Second, head.Said{Session: 1, Message: said})
	want := []string{"gpu-memory since 2: 100 % of the memory of GPU 0 is used", "wait since 2: 2 waiting for a GPU, the first for 00:01:00 or more"}
	if e := core.Take(); !slices.Equal(notices(), want) || len(e.Notices) != 2 || len(e.Changes) > 0 {
		t.Errorf("notices are %q, not %q; effects %+v", notices(), want, e)
	}
	core.Handle(4*time.Second, head.HungUp{Session: 1, Reason: "gone"})
	is("0 0")
	if notices() != nil {
		t.Errorf("of a node that is away: %q", notices())
	}
}

// asking is a policy that starts what fits, and wants to know what jobs measured or not.
type asking struct {
	policy.Policy
	want bool
	seen map[policy.JobID]model.Measured
}

func (a *asking) Step(v *policy.View, p *policy.Plan) {
	a.Policy.Step(v, p)
	p.Profile(a.want)
	for _, id := range v.Running() {
		a.seen[id] = v.Measured(id)
	}
}

// A policy that asks for profiles sees what the nodes measured, of each attempt anew; others are not told.
func TestPolicySeesProfiles(t *testing.T) {
	for _, want := range []bool{true, false} {
		inner, err := catalog.New("fcfs")
		if err != nil {
			t.Fatal(err)
		}
		p := &asking{inner, want, map[policy.JobID]model.Measured{}}
		core := head.New(head.Config{Cluster: "test"}, p, "asking")
		now := time.Duration(0)
		step := func(ev head.Event) {
			now += time.Second
			core.Handle(now, ev)
			for core.Next() <= now {
				core.Step(now)
				core.Take()
			}
		}
		hello := agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1 << 30}
		step(head.Greeted{Session: 1, Hello: hello})
		submit := head.Submit{Caller: head.Caller{Request: 1, User: "alice"}, Submission: api.Submission{Arguments: []string{"true"}, Directory: "/", Options: []string{"-n1", "--requeue"}}, Secret: "s"}
		step(submit)
		step(head.Said{Session: 1, Message: agent.Profiles{Tasks: []agent.Profile{{Task: agent.Task{Job: 1, Attempt: 1}, Measured: model.Measured{CPU: 3}}}}})
		step(submit) // so that the policy looks again
		if got := p.seen[0].CPU; (got == 3) != want || got != 0 && !want {
			t.Errorf("asked %v: the policy sees %v s", want, got)
		}
		step(head.Change{Caller: head.Caller{Request: 2, User: "alice"}, Jobs: head.Ref{Job: 1, Task: -1}, Action: head.RequeueJob})
		step(head.Said{Session: 1, Message: agent.Report{Task: agent.Task{Job: 1, Attempt: 1}, State: agent.Ended, End: &agent.End{Cause: agent.Stopped}}})
		if got := p.seen[0].CPU; got != 0 {
			t.Errorf("of the next attempt it sees %v s", got)
		}
	}
}
