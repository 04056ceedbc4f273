package head_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"muster/head"
	"muster/wire/agent"
	"muster/wire/api"
)

// greet connects nodes to a head.
func (l *live) greet(nodes int) {
	for i := range nodes {
		hello := agent.Hello{Version: agent.Version, Node: fmt.Sprintf("n%05d", i), Incarnation: "1", Cores: 32, Memory: 128 << 30, Gateway: "g:1"}
		for range i % 3 {
			hello.Devices = append(hello.Devices, agent.Device{Name: "gpu", Memory: 8 << 30, Speed: 1, Up: true})
		}
		l.core.Handle(began, head.Greeted{Session: head.Session(i + 1), Hello: hello})
	}
	for l.core.Next() <= began { // before that, the policy decides nothing
		l.settle(began)
	}
}

func (l *live) submit(now time.Duration, user string, options ...string) {
	l.core.Handle(now, head.Submit{
		Caller: head.Caller{Request: 1, User: user}, Secret: "secret",
		Submission: api.Submission{Options: options, Arguments: []string{"./program", "with", "arguments"}, Directory: "/home/" + user},
	})
}

// BenchmarkSubmit measures what a submission costs the core, with its records.
func BenchmarkSubmit(b *testing.B) {
	l := newLive(b, "easy")
	l.greet(100)
	l.submit(began, "alice", "-N100", "-n3200", "--time=60")
	l.settle(began)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.submit(began+time.Second, fmt.Sprintf("user%d", i%100), "-n", fmt.Sprint(1+i%64), "-t", "2:00:00", "--gres=gpu:1")
		if i%1000 == 999 {
			l.core.Take()
		}
	}
	l.core.Take()
}

// BenchmarkStep measures a step with 10,000 nodes and 50,000 waiting jobs, when one job ends and
// one arrives.
func BenchmarkStep(b *testing.B) {
	l := newLive(b, "easy")
	before := memory()
	l.greet(10_000)
	nodes := memory()
	for i := range 50_000 + 10_000 {
		l.submit(began, fmt.Sprintf("user%d", i%500), "-n", fmt.Sprint(16+i%48), "-t", fmt.Sprint(30+i%600))
	}
	at := time.Now()
	l.core.Step(began) // all of them have just been submitted
	first := time.Since(at)
	l.settle(began)
	jobs := memory()
	var running []api.Job
	for _, d := range l.core.JobList(began, head.Filter{States: []api.State{api.Running}}) {
		running = append(running, d)
	}
	b.Logf("%d jobs run, %d wait; %d bytes a node, %d a job", len(running), len(l.core.JobList(began, head.Filter{States: []api.State{api.Pending}})),
		(nodes-before)/10_000, (jobs-nodes)/60_000)
	var longest time.Duration
	for i := 0; b.Loop(); i++ {
		now := began + time.Duration(i+1)*time.Second
		for _, s := range l.running[running[i%len(running)].ID] {
			l.core.Handle(now, head.Said{Session: s.session, Message: agent.Report{Task: s.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
		}
		l.submit(now, "alice", "-n", fmt.Sprint(16+i%48), "-t", "60")
		at := time.Now()
		l.core.Step(now)
		longest = max(longest, time.Since(at))
		l.settle(now)
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-step")
	b.ReportMetric(float64(first.Microseconds())/1000, "ms-first-step")
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
