package head_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/head"
	"muster/internal/need"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/policy/priority"
	"muster/wire/agent"
	"muster/wire/api"
)

// A replay of what a head recorded of a random life makes the same decisions, plan by plan: jobs of
// all kinds and classes, fair-share ranks, windows that come and go, nodes that leave, drain and
// return.
func TestRecordedIsReplayed(t *testing.T) {
	seeds := need.Rounds(3, 20)
	for _, spec := range []string{
		"fcfs", "easy", "conservative", "first-fit", "r-queue", "easy:preempt=suspend:qos=low<normal<high",
		"conservative:preempt_classes=low/suspend<normal/requeue<high/fixed/low|normal",
	} {
		steps, starts := 0, 0
		for seed := range uint64(seeds) {
			l, record := recordedLife(t, spec, seed)
			r := mustReplay(t, fmt.Sprintf("%s, seed %d", spec, seed), record)
			steps, starts = steps+r.Steps, starts+r.Starts
			var snapshot bytes.Buffer
			at, err := l.core.Snapshot(lifeEnd, &snapshot, history.Header{Policy: spec})
			if err != nil || at != lifeEnd-began {
				t.Fatalf("%s, seed %d: a snapshot at %v: %v", spec, seed, at, err)
			}
			if s, err := history.Restore(&snapshot, catalog.New); err != nil || s.Waiting() != waiting(l) {
				t.Fatalf("%s, seed %d: the snapshot has not the jobs that wait: %v", spec, seed, err)
			}
		}
		if steps < 20*seeds || starts < 20*seeds {
			t.Errorf("%s: only %d plans with %d starts were played", spec, steps, starts)
		}
	}
}

// lifeEnd is the end of a recorded life.
const lifeEnd = began + 100*time.Hour

func waiting(l *live) int {
	return len(l.core.JobList(lifeEnd, head.Filter{States: []api.State{api.Pending}}))
}

func recordedLife(t *testing.T, spec string, seed uint64) (*live, *bytes.Buffer) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	weights := priority.Defaults()
	weights.WeightFairshare, weights.WeightAge = 1000, 100
	cfg := head.Config{Cluster: "test", NodeTimeout: time.Minute, Silence: time.Minute, Grace: time.Second, Keep: time.Minute, Authority: "ca", Admins: []string{"root"}, Priority: &weights}
	core, err := head.Restore(cfg, p, spec, func(func(head.Record) error) error { return nil }, began)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{t: t, core: core, running: map[uint64][]started{}, obedient: true}
	record := new(bytes.Buffer)
	core.Record(record, history.Header{Policy: spec})
	cluster := randomCluster(rng)
	hellos := make([]agent.Hello, len(cluster.Nodes))
	for i := range cluster.Nodes {
		n := &cluster.Nodes[i]
		hellos[i] = agent.Hello{Version: agent.Version, Node: n.Name, Incarnation: "1", Cores: n.Cores, Memory: n.Memory, Gateway: n.Name + ":1"}
		for range n.GPUs {
			hellos[i].Devices = append(hellos[i].Devices, agent.Device{Name: "gpu", Memory: 8 << 30, Speed: 1, Up: true})
		}
	}
	sessions := make([]head.Session, len(hellos))
	next := head.Session(0)
	greet := func(now time.Duration, i int) {
		next++
		sessions[i] = next
		l.core.Handle(now, head.Greeted{Session: next, Hello: hellos[i]})
	}
	for i := range hellos {
		greet(began, i)
	}
	l.settle(began)
	now := began
	admin := head.Caller{Request: 1, User: "root"}
	for range 150 {
		now += time.Duration(rng.IntN(600)) * time.Second
		node := rng.IntN(len(hellos))
		switch rng.IntN(12) {
		case 0:
			l.core.Handle(now, head.Node{Caller: admin, Nodes: []string{hellos[node].Node}, Action: head.DrainNode, Reason: "r"})
		case 1:
			l.core.Handle(now, head.Node{Caller: admin, Nodes: []string{hellos[node].Node}, Action: head.ResumeNode})
		case 2:
			if len(cfg.Windows) < 20 {
				w := head.Window{Name: fmt.Sprintf("w%d", len(cfg.Windows)), From: now + time.Duration(rng.IntN(7200))*time.Second, Nodes: []string{hellos[node].Node}, Users: []string{"bob"}}
				w.Until = w.From + time.Hour
				cfg.Windows = append(cfg.Windows[:len(cfg.Windows):len(cfg.Windows)], w)
				l.core.Handle(now, head.Tick{})
				l.core.Configure(cfg)
			}
		case 3:
			l.core.Handle(now, head.HungUp{Session: sessions[node]})
			l.settle(now)
			greet(now+time.Second, node)
		case 4, 5, 6:
			l.endSome(now, rng)
		default:
			o := randomOptions(rng, len(cluster.Nodes))
			o = append(o, "--qos="+[]string{"low", "normal", "high"}[rng.IntN(3)])
			if n := len(cfg.Windows); n > 0 && rng.IntN(6) == 0 {
				o = append(o, fmt.Sprintf("--reservation=w%d", rng.IntN(n)))
			}
			user := []string{"alice", "bob", "carol"}[rng.IntN(3)]
			l.core.Handle(now, head.Submit{Caller: head.Caller{Request: 1, User: user}, Secret: "s", Submission: api.Submission{Options: o, Arguments: []string{"true"}, Directory: "/"}})
		}
		l.settle(now)
	}
	return l, record
}

// endSome ends some of the running jobs.
func (l *live) endSome(now time.Duration, rng *rand.Rand) {
	for _, d := range l.core.JobList(now, head.Filter{States: []api.State{api.Running}}) {
		if rng.IntN(2) == 0 {
			for _, s := range l.running[d.ID] {
				l.core.Handle(now, head.Said{Session: s.session, Message: agent.Report{Task: s.task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}}})
			}
			delete(l.running, d.ID)
		}
	}
}

// A recording has the jobs that were offered to the policy, and nothing of the questions that the
// head asked about them first.
func TestRecordedAreRealJobsOnly(t *testing.T) {
	_, record := recordedLife(t, "easy", 1)
	offered := 0
	for line := range bytes.Lines(record.Bytes()) {
		if !bytes.HasPrefix(line, []byte(`{"do":"submit"`)) {
			continue
		}
		offered++
		if !bytes.Contains(line, []byte(`"turn":`)) {
			t.Errorf("a job without a turn was never offered: %s", line)
		}
	}
	if offered < 20 {
		t.Errorf("%d submissions were recorded", offered)
	}
}
