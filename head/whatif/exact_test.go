package whatif_test

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/head/whatif"
	"muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/wire/agent"
	"muster/wire/api"
)

// began is when the test's cluster begins, since 1970.
const began = 1_000_000 * time.Second

// past is a head with agents that obey at once, and jobs that run for as long as the test says.
type past struct {
	t      testing.TB
	core   *head.Core
	now    time.Duration
	runs   map[uint64]time.Duration
	ends   endings
	ended  []api.Job
	turns  []head.NodeTurn
	hellos []agent.Hello
}

type ending struct {
	at      time.Duration
	session head.Session
	task    agent.Task
}

type endings []ending

func (e endings) Len() int { return len(e) }
func (e endings) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].task.Job < e[j].task.Job
}
func (e endings) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)   { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newPast(t testing.TB, cfg head.Config, spec string) *past {
	t.Helper()
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cluster, cfg.NodeTimeout, cfg.Silence, cfg.Grace, cfg.Keep = "test", 10*time.Minute, time.Minute, time.Second, time.Minute
	cfg.Authority, cfg.Admins = "ca", []string{"root"}
	core, err := head.Restore(cfg, p, spec, func(func(head.Record) error) error { return nil }, began)
	if err != nil {
		t.Fatal(err)
	}
	return &past{t: t, core: core, now: began, runs: map[uint64]time.Duration{}}
}

// join lets a node of a cluster join.
func (p *past) join(n *model.Node, types []model.GPUType) {
	h := agent.Hello{Version: agent.Version, Node: n.Name, Incarnation: "1", Cores: n.Cores, Memory: n.Memory, Gateway: n.Name + ":1"}
	for _, g := range n.GPUs {
		h.Devices = append(h.Devices, agent.Device{Name: types[g].Name, Memory: types[g].Memory, Speed: types[g].Speed, Up: true})
	}
	p.hellos = append(p.hellos, h)
	p.core.Handle(p.now, head.Greeted{Session: head.Session(len(p.hellos)), Hello: h})
}

// submit submits a job that will run for a given time, and returns its number.
func (p *past) submit(user string, run time.Duration, options ...string) {
	p.core.Handle(p.now, head.Submit{Caller: head.Caller{Request: 1, User: user}, Secret: "s", Submission: api.Submission{Options: options, Arguments: []string{"true"}, Directory: "/"}})
	for _, a := range p.take() {
		if s, ok := a.Result.(*api.Submitted); ok {
			p.runs[s.Job] = run
			for i := range s.Tasks {
				p.runs[s.Job+uint64(i)] = run
			}
		}
	}
}

// take carries out the core's effects, until there are none.
func (p *past) take() (answers []head.Answer) {
	for {
		e := p.core.Take()
		if len(e.Records)+len(e.Sends)+len(e.Answers) == 0 {
			return answers
		}
		answers = append(answers, e.Answers...)
		for _, r := range e.Records {
			p.keep(r)
		}
		for _, s := range e.Sends {
			switch m := s.Message.(type) {
			case agent.Lend:
				p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Lent{ID: m.Loan.ID}})
			case agent.Start:
				p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Report{Task: m.Task, State: agent.Running}})
				heap.Push(&p.ends, ending{p.now + p.runs[m.Task.Job], s.Session, m.Task})
			case agent.Stop:
				p.ends = slices.DeleteFunc(p.ends, func(e ending) bool { return e.task == m.Task })
				heap.Init(&p.ends)
				p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: m.Cause, Reason: m.Reason}}})
			}
		}
	}
}

func (p *past) keep(r head.Record) {
	var err error
	switch {
	case r.Value == nil:
	case r.Bucket == head.Ended:
		var d api.Job
		err = json.Unmarshal(r.Value, &d)
		p.ended = append(slices.DeleteFunc(p.ended, func(o api.Job) bool { return o.ID == d.ID }), d)
	case r.Bucket == head.NodeLog:
		var t head.NodeTurn
		err = json.Unmarshal(r.Value, &t)
		p.turns = append(p.turns, t)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// step lets the policy decide.
func (p *past) step() {
	p.core.Step(p.now)
	p.take()
}

// until lets time pass: jobs end, and the policy is woken.
func (p *past) until(at time.Duration) {
	p.step()
	for {
		next := at
		if len(p.ends) > 0 {
			next = min(next, p.ends[0].at)
		}
		if wake := p.core.Next(); wake != policy.Never && wake > p.now {
			next = min(next, wake)
		}
		p.now = next
		p.core.Handle(p.now, head.Tick{})
		for len(p.ends) > 0 && p.ends[0].at <= p.now {
			e := heap.Pop(&p.ends).(ending)
			p.core.Handle(p.now, head.Said{Session: e.session, Message: agent.Report{Task: e.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
		}
		p.take()
		if next == at {
			return // everything at that instant is decided together
		}
		p.step()
	}
}

// header is what the head knows now of the time since an instant.
func (p *past) header(from time.Duration, specs ...string) whatif.Header {
	pic := p.core.Picture(p.now)
	active, _ := p.core.JobsFrom(p.now, head.Filter{States: []api.State{api.Pending, api.Running, api.Suspended, api.Completing}}, 0, math.MaxInt)
	h := whatif.Header{
		Name: "day", From: from, To: pic.At, Began: pic.Began, Cluster: pic.Cluster, Machines: pic.Machines, Turns: p.turns, Active: active,
	}
	for i, s := range specs {
		h.Policies = append(h.Policies, whatif.Candidate{Name: s, Spec: s, InForce: i == 0})
	}
	return h
}

func workloadOf(t testing.TB, h whatif.Header, ended []api.Job) *whatif.Workload {
	t.Helper()
	y, err := whatif.New(h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ended {
		y.Add(&ended[i])
	}
	return y.Workload()
}

func try(t testing.TB, w *whatif.Workload, spec string) *whatif.Trial {
	t.Helper()
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	trial, err := w.Try(context.Background(), p, nil)
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return trial
}

func randomCluster(rng *rand.Rand) *model.Cluster {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "gpu", Memory: 8 << 30, Speed: 1}}}
	for i := range 2 + rng.IntN(8) {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprintf("n%d", i), Cores: 1 + rng.IntN(8), Memory: 32 << 30, GPUs: make([]int, rng.IntN(4))})
	}
	return c
}

// randomOptions is what a user asks for, and how long the job runs: agents end it at its
// limit.
func randomOptions(rng *rand.Rand, nodes int) ([]string, time.Duration) {
	limit := 1 + rng.IntN(90)
	o := []string{fmt.Sprintf("-n%d", 1+rng.IntN(4)), fmt.Sprintf("--time=%d", limit)}
	switch rng.IntN(8) {
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
	case 5:
		o = append(o, "-x", fmt.Sprintf("n%d", rng.IntN(nodes)))
	}
	if rng.IntN(8) == 0 {
		o = append(o, fmt.Sprintf("--nice=%d", rng.IntN(100)))
	}
	return o, time.Duration(1+rng.IntN(60*limit)) * time.Second
}

// remembers are policies whose decisions depend on earlier ones, or on random numbers: a period
// that begins later than the cluster does not contain those.
var remembers = map[string]bool{"conservative": true, "slurm": true, "rgpu": true, "auction": true, "mosaic": true, "random-fit": true, "fgd": true, "priced-fit": true}

// suspends are policies that suspend jobs, which these agents do not do.
var suspends = map[string]bool{"mccs-latency": true}

// A head's history, simulated under the policy that made it, gives what was measured: all starts,
// waits and uses. In it jobs arrive, are cancelled while they wait, have nice values, depend on
// others, wait for a time, and run and wait at both ends of the period; nodes are drained, and one
// joins late.
func TestPolicyInForceGivesWhatWasMeasured(t *testing.T) {
	seeds := need.Rounds(3, 6)
	for _, e := range catalog.Entries {
		if suspends[e.Name] {
			continue
		}
		jobs := 0
		for seed := range uint64(seeds) {
			jobs += compareWithMeasured(t, e.Name, seed, began)
			if !remembers[e.Name] {
				jobs += compareWithMeasured(t, e.Name, seed, began+8*time.Hour)
			}
		}
		if jobs < 30*seeds {
			t.Errorf("%s: only %d jobs were counted", e.Name, jobs)
		}
	}
}

func compareWithMeasured(t *testing.T, spec string, seed uint64, from time.Duration) int {
	t.Helper()
	w := randomPast(t, spec, seed, from)
	p := w.Period()
	trial := try(t, w, spec)
	if trial.Figures != p.Measured || trial.StartedTogether != 1 {
		t.Errorf("%s, seed %d, from %v: %.3f of %d jobs started when they did\nmeasured %+v\nreplayed %+v", spec, seed, from-began, trial.StartedTogether, p.Jobs, p.Measured, trial.Figures)
	}
	for _, u := range trial.Users {
		if u.MeanWait != u.MeanWaitMeasured {
			t.Errorf("%s, seed %d, from %v: %+v", spec, seed, from-began, u)
		}
	}
	return p.Jobs
}

// partitionsOf are two halves of a cluster, of which one borrows from the other and is of a higher tier, and all of it.
func partitionsOf(c *model.Cluster) []model.Partition {
	left, right := model.Partition{Name: "left", Default: true, PriorityTier: 1}, model.Partition{Name: "right", PriorityTier: 2}
	for i := range c.Nodes {
		if i < len(c.Nodes)/2 {
			left.Nodes = append(left.Nodes, c.Nodes[i].Name)
		} else {
			right.Nodes = append(right.Nodes, c.Nodes[i].Name)
		}
	}
	right.Lenders = left.Nodes[:1]
	return []model.Partition{left, right, {Name: "all", PriorityTier: 1}}
}

func randomPast(t *testing.T, spec string, seed uint64, from time.Duration) *whatif.Workload {
	rng := rand.New(rand.NewPCG(seed, 3))
	c := randomCluster(rng)
	cfg := head.Config{}
	divided := seed%2 == 1 && !strings.HasPrefix(spec, "mccs")
	if divided {
		cfg.Partitions = partitionsOf(c)
	}
	p := newPast(t, cfg, spec)
	for i := range c.Nodes {
		if i > 0 || divided { // all jobs of partitions come anew when a node joins
			p.join(&c.Nodes[i], c.GPUTypes)
		}
	}
	p.until(p.now)
	admin := head.Caller{Request: 1, User: "root"}
	drained := make([]bool, len(c.Nodes))
	for k := range 120 {
		p.until(p.now + time.Duration(rng.IntN(600))*time.Second)
		node := 1 + rng.IntN(len(c.Nodes)-1)
		switch rng.IntN(20) {
		case 0, 1, 2:
			// Only actions that change something: a step that nothing requires might find that time
			// has passed.
			action := head.DrainNode
			if drained[node] {
				action = head.ResumeNode
			}
			drained[node] = !drained[node]
			p.core.Handle(p.now, head.Node{Caller: admin, Nodes: []string{c.Nodes[node].Name}, Action: action, Reason: "r"})
		case 3:
			if pending, _ := p.core.JobsFrom(p.now, head.Filter{States: []api.State{api.Pending}}, 0, math.MaxInt); len(pending) > 0 {
				p.core.Handle(p.now, head.Cancel{Caller: admin, Jobs: head.Ref{Job: pending[rng.IntN(len(pending))].ID, Task: -1}})
			}
		default:
			o, run := randomOptions(rng, len(c.Nodes))
			if strings.HasPrefix(spec, "mccs") { // in its queues a job that excludes nodes comes anew when one joins
				o = slices.DeleteFunc(o, func(s string) bool { return s == "-x" || strings.HasPrefix(s, "n") })
			}
			if divided && rng.IntN(3) > 0 {
				o = append(o, "-p", []string{"left", "right", "all"}[rng.IntN(3)])
			}
			switch {
			case rng.IntN(8) == 0 && len(p.runs) > 3 && !remembers[spec]: // these have cycles, which a job that cannot come yet moves
				o = append(o, fmt.Sprintf("--dependency=afterany:%d", len(p.runs)-rng.IntN(3)))
			case rng.IntN(12) == 0:
				o = append(o, "--begin=now+1hour")
			}
			p.submit([]string{"alice", "bob", "carol"}[rng.IntN(3)], run, o...)
		}
		if k == 60 && spec != "mosaic" && !divided { // it counts on nodes that are drained
			p.until(p.now + time.Second)
			p.join(&c.Nodes[0], c.GPUTypes)
		}
		p.take()
	}
	p.until(p.now + time.Duration(rng.IntN(900))*time.Second)
	p.step()
	return workloadOf(t, p.header(from, spec), p.ended)
}
