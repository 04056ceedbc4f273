package head_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/internal/need"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/policy/catalog"
	"muster/sim"
	"muster/wire/agent"
	"muster/wire/api"
)

// began is when the test's cluster begins, since 1970.
const began = 1_000_000 * time.Second

// live drives a head with agents that answer without delay.
type live struct {
	t      testing.TB
	core   *head.Core
	starts []string
	// running has the started tasks of each job.
	running map[uint64][]started
	sends   int
	errors  []string
	// obedient: tasks stop, suspend and resume when the head says so.
	obedient bool
	disk     map[head.Bucket]map[string][]byte // what work has written
}

type started struct {
	session head.Session
	task    agent.Task
}

func newLive(t testing.TB, policySpec string) *live {
	t.Helper()
	p, err := catalog.New(policySpec)
	if err != nil {
		t.Fatal(err)
	}
	cfg := head.Config{Cluster: "test", NodeTimeout: time.Minute, Silence: time.Minute, Grace: time.Second, Keep: time.Minute, Authority: "ca", Admins: []string{"root"}}
	core, err := head.Restore(cfg, p, policySpec, func(func(head.Record) error) error { return nil }, began)
	if err != nil {
		t.Fatal(err)
	}
	return &live{t: t, core: core, running: map[uint64][]started{}}
}

// settle lets the policy decide, and the agents carry out what they are told, until nothing is left
// to do.
func (l *live) settle(now time.Duration) {
	l.core.Step(now)
	for {
		e := l.core.Take()
		if l.carryOut(now, e); len(e.Sends)+len(e.Answers) == 0 {
			return
		}
	}
}

// carryOut writes the records, and lets the agents carry out what they are told.
func (l *live) carryOut(now time.Duration, e head.Effects) {
	l.keep(e.Records)
	for _, a := range e.Answers {
		if a.Err != nil {
			l.errors = append(l.errors, a.Err.Reason)
		}
	}
	for _, s := range e.Sends {
		l.sends++
		switch m := s.Message.(type) {
		case agent.Ping:
			l.core.Handle(now, head.Said{Session: s.Session, Message: agent.Pong{}})
		case agent.Lend:
			l.core.Handle(now, head.Said{Session: s.Session, Message: agent.Lent{ID: m.Loan.ID}})
		case agent.Start:
			l.running[m.Task.Job] = append(l.running[m.Task.Job], started{s.Session, m.Task})
			l.core.Handle(now, head.Said{Session: s.Session, Message: agent.Report{Task: m.Task, State: agent.Running}})
		case agent.Stop, agent.Suspend, agent.Resume:
			if l.obedient {
				l.obey(now, s)
			}
		}
	}
}

// obey is how an agent reacts to a message that stops, suspends or resumes a task.
func (l *live) obey(now time.Duration, s head.Send) {
	var r agent.Report
	switch m := s.Message.(type) {
	case agent.Stop:
		r = agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: m.Cause, Reason: m.Reason, Signal: 15}}
		l.running[m.Task.Job] = slices.DeleteFunc(l.running[m.Task.Job], func(t started) bool { return t.task == m.Task })
	case agent.Suspend:
		r = agent.Report{Task: m.Task, State: agent.Suspended}
	case agent.Resume:
		r = agent.Report{Task: m.Task, State: agent.Running}
	}
	l.core.Handle(now, head.Said{Session: s.Session, Message: r})
}

// plan is what a simulated run started and ended, in order.
type plan struct {
	cluster *model.Cluster
	lines   []planLine
}

type planLine struct {
	at    time.Duration
	job   int
	start bool
	text  string
}

func (p *plan) Started(now time.Duration, job int, a *model.Allocation) {
	var b strings.Builder
	for i := range a.Parts {
		fmt.Fprintf(&b, " %s:%d", p.cluster.Nodes[a.Parts[i].Node].Name, a.Parts[i].Cores)
	}
	for i := range a.Parts {
		for _, d := range a.DevicesOf(i) {
			memory := int64(0)
			for _, g := range a.Grants {
				if g.Node == d.Node && g.Device == d.Device && int(g.For) == i {
					memory = g.Memory
				}
			}
			fmt.Fprintf(&b, " %s<%s:%d:%d", p.cluster.Nodes[a.Parts[i].Node].Name, p.cluster.Nodes[d.Node].Name, d.Device, memory)
		}
	}
	p.lines = append(p.lines, planLine{now, job, true, b.String()})
}

func (p *plan) Ended(now time.Duration, job int) {
	p.lines = append(p.lines, planLine{at: now, job: job})
}

// randomCluster is a few nodes, some with GPUs.
func randomCluster(rng *rand.Rand) *model.Cluster {
	c := &model.Cluster{Name: "test", GPUTypes: []model.GPUType{{Name: "gpu", Memory: 8 << 30, Speed: 1}}}
	for i := range 2 + rng.IntN(8) {
		n := model.Node{Name: fmt.Sprintf("n%d", i), Cores: 1 + rng.IntN(8), Memory: 32 << 30}
		n.GPUs = make([]int, rng.IntN(4))
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// randomOptions is a random request, some of which the cluster cannot satisfy.
func randomOptions(rng *rand.Rand, nodes int) []string {
	o := []string{fmt.Sprintf("-n%d", 1+rng.IntN(6)), fmt.Sprintf("--time=%d", 1+rng.IntN(90))}
	switch rng.IntN(7) {
	case 0:
		o = append(o, "--gres=gpu:1")
	case 1:
		o = append(o, fmt.Sprintf("--gres=rgpu:%d", 1+rng.IntN(2)))
	case 2:
		o = append(o, "--gres=rgpu:1:2G", "--rcuda-mode=shar")
	case 3:
		o = append(o, fmt.Sprintf("-N%d", 1+rng.IntN(nodes)))
	case 4:
		o = append(o, "--mem=4G")
	}
	return o
}

// The head's plans are the simulator's: the same jobs start at the same instants on the
// same nodes and devices.
func TestLiveEqualsSimulated(t *testing.T) {
	runs := need.Rounds(8, 60)
	for _, spec := range []string{"fcfs", "first-fit", "easy", "conservative", "r-queue"} {
		for seed := range uint64(runs) {
			compareWithSimulated(t, spec, seed)
		}
	}
}

func compareWithSimulated(t *testing.T, spec string, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	cluster := randomCluster(rng)
	var jobs []model.Job
	var options [][]string
	at := time.Duration(0)
	for i := range 60 {
		o := randomOptions(rng, len(cluster.Nodes))
		said, err := slurmopt.Parse(append([]string{slurmopt.Submit}, o...))
		if err != nil {
			t.Fatal(err)
		}
		at += time.Duration(rng.IntN(1200)) * time.Second
		j := model.Job{ID: fmt.Sprint(i), User: "alice", Submit: at}
		said.Apply(&j)
		j.Run = time.Duration(1+rng.Int64N(int64(j.WallTime/time.Second))) * time.Second
		jobs, options = append(jobs, j), append(options, o)
	}
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	want := &plan{cluster: cluster}
	result, err := sim.Run(context.Background(), sim.Config{Cluster: cluster, Jobs: jobs, Policy: p, Observe: want})
	if err != nil {
		t.Fatal(err)
	}
	var expected, got []string
	for _, line := range want.lines {
		if line.start {
			expected = append(expected, fmt.Sprintf("%v job %d%s", line.at, line.job, line.text))
		}
	}
	if len(expected) < 10 {
		t.Fatalf("%s, seed %d: only %d jobs were started", spec, seed, len(expected))
	}
	got = playLive(t, spec, cluster, jobs, options, result, want)
	if !slices.Equal(expected, got) {
		for i := range max(len(expected), len(got)) {
			a, b := "", ""
			if i < len(expected) {
				a = expected[i]
			}
			if i < len(got) {
				b = got[i]
			}
			if a != b {
				t.Fatalf("%s, seed %d: start %d is\n%s in the simulator, and\n%s live", spec, seed, i, a, b)
			}
		}
	}
}

// playLive feeds a head with the events of a simulated run, and lists what it starts.
func playLive(t *testing.T, spec string, cluster *model.Cluster, jobs []model.Job, options [][]string, result *sim.Result, want *plan) []string {
	l := newLive(t, spec)
	sessions := map[string]head.Session{}
	for i := range cluster.Nodes {
		n := &cluster.Nodes[i]
		hello := agent.Hello{Version: agent.Version, Node: n.Name, Incarnation: "1", Cores: n.Cores, Memory: n.Memory, Gateway: n.Name + ":1"}
		for range n.GPUs {
			hello.Devices = append(hello.Devices, agent.Device{Name: "gpu", Memory: 8 << 30, Speed: 1, Up: true})
		}
		sessions[n.Name] = head.Session(i + 1)
		l.core.Handle(began, head.Greeted{Session: head.Session(i + 1), Hello: hello})
	}
	l.settle(began)
	// The instants of the run, with the jobs that end and arrive at each.
	ends := map[time.Duration][]int{}
	var instants []time.Duration
	for _, line := range want.lines {
		if !line.start {
			ends[line.at] = append(ends[line.at], line.job)
			instants = append(instants, line.at)
		}
	}
	for i := range jobs {
		instants = append(instants, jobs[i].Submit)
	}
	slices.Sort(instants)
	instants = slices.Compact(instants)
	ids := map[int]uint64{}
	of := map[uint64]int{}
	var got []string
	seen := map[uint64]bool{}
	next, number := 0, uint64(0)
	for k := 0; k < len(instants); k++ {
		at := instants[k]
		now := began + at
		for _, job := range ends[at] {
			for _, s := range l.running[ids[job]] {
				l.core.Handle(now, head.Said{Session: s.session, Message: agent.Report{Task: s.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
			}
		}
		for ; next < len(jobs) && jobs[next].Submit == at; next++ {
			l.core.Handle(now, head.Submit{Caller: head.Caller{Request: 1, User: "alice"}, Secret: "s", Submission: api.Submission{Options: options[next], Arguments: []string{"true"}, Directory: "/"}})
			if result.Outcomes[next].State == sim.Impossible {
				continue
			}
			number++
			ids[next], of[number] = number, next
		}
		l.settle(now)
		// A policy may have asked to be woken.
		if wake := l.core.Next(); wake != policy.Never && wake > now && (k+1 == len(instants) || wake-began < instants[k+1]) && wake < began+instants[len(instants)-1] {
			instants = slices.Insert(instants, k+1, wake-began)
		}
		got = append(got, newStarts(l, at, seen, of, cluster)...)
	}
	return got
}

// newStarts lists the jobs that were started since the last call, in the order of their tasks'
// starts.
func newStarts(l *live, at time.Duration, seen map[uint64]bool, of map[uint64]int, cluster *model.Cluster) []string {
	var lines []string
	for _, d := range l.core.JobList(began+at, head.Filter{}) {
		if d.State == api.Pending || seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		var b strings.Builder
		for _, p := range d.Parts {
			fmt.Fprintf(&b, " %s:%d", p.Node, p.Cores)
		}
		for _, g := range d.Devices {
			fmt.Fprintf(&b, " %s<%s:%d:%d", g.For, g.Node, g.Device, g.Memory)
		}
		lines = append(lines, fmt.Sprintf("%v job %d%s", at, of[d.ID], b.String()))
	}
	return lines
}
