package preempt_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/preempt"
	"muster/policy/priority"
)

// bench is a cluster of nodes with 4 cores, and what its latest plan said.
type bench struct {
	t     *testing.T
	state *policy.State
	ids   map[string]policy.JobID
	names map[policy.JobID]string
}

func newBench(t *testing.T, spec string, nodes int) *bench {
	t.Helper()
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &model.Cluster{Name: "b"}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 4, Memory: 4 << 30})
	}
	return &bench{t, policy.NewState(c, p), map[string]policy.JobID{}, map[policy.JobID]string{}}
}

func (b *bench) submit(name, class string, nodes int) {
	b.t.Helper()
	id, err := b.state.Submit(&model.Job{ID: name, QOS: class, Run: time.Hour, WallTime: time.Hour, Request: model.Request{Nodes: nodes, CoresPerNode: 4}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.ids[name], b.names[id] = id, name
}

// step says what a step does, as "start a; suspend b for c; resume d".
func (b *bench) step(now time.Duration, want string) {
	b.t.Helper()
	plan := b.state.Step(now)
	var said []string
	for _, s := range plan.Starts {
		if s.Err != nil {
			b.t.Fatal(s.Err)
		}
		said = append(said, "start "+b.names[s.Job])
	}
	for _, s := range plan.Stops {
		said = append(said, fmt.Sprintf("%s %s for %s", s.How, b.names[s.Job], b.names[s.For]))
	}
	for _, r := range plan.Resumes {
		said = append(said, "resume "+b.names[r.Job])
	}
	if got := strings.Join(said, "; "); got != want {
		b.t.Fatalf("at %s: %q, want %q", now, got, want)
	}
}

func (b *bench) tell(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestLowestThenYoungestAreStopped(t *testing.T) {
	for nodes, want := range map[int]string{
		1: "requeue d for h", 2: "requeue d for h; requeue b for h",
		3: "requeue d for h; requeue b for h; requeue a for h", 4: "requeue d for h; requeue b for h; requeue a for h; requeue c for h",
	} {
		b := newBench(t, "easy:preempt=requeue:qos=low<mid<high", 4)
		for i, name := range []string{"a", "b", "c", "d"} {
			class := "low"
			if name == "c" {
				class = "mid"
			}
			b.submit(name, class, 1)
			b.step(time.Duration(i), "start "+name)
		}
		b.submit("h", "high", nodes)
		b.step(10, want)
	}
}

// Only what stands in the way is stopped: with one node free, one of the two suffices.
func TestNoMoreThanNeededAreStopped(t *testing.T) {
	b := newBench(t, "fcfs:preempt=cancel:qos=low<high", 4)
	b.submit("wide", "low", 2)
	b.step(0, "start wide")
	b.submit("young", "low", 1)
	b.step(1, "start young")
	b.submit("h", "high", 3)
	// young alone is not enough; with wide gone as well it is, and then young can stay.
	b.step(2, "cancel wide for h")
	b.tell(b.state.End(b.ids["wide"]))
	b.step(3, "start h")
}

// While jobs make way one after the other, nobody else takes the place.
func TestThePlaceIsKept(t *testing.T) {
	b := newBench(t, "first-fit:preempt=requeue:qos=low<high", 2)
	b.submit("a", "low", 1)
	b.submit("b", "low", 1)
	b.step(0, "start a; start b")
	b.submit("h", "high", 2)
	b.step(1, "requeue b for h; requeue a for h")
	b.submit("c", "low", 1)
	b.tell(b.state.Requeue(b.ids["a"]))
	b.step(2, "")
	if why := b.state.Why(b.ids["h"]); why != "it waits for jobs of lower classes to make way: b, a" {
		t.Errorf("why: %s", why)
	}
	b.tell(b.state.Requeue(b.ids["b"]))
	b.step(3, "start h")
	b.tell(b.state.End(b.ids["h"]))
	b.step(4, "start a; start b")
}

// A job that was told to make way and did not is not waited for: the claim is made anew.
func TestWhoDoesNotMakeWay(t *testing.T) {
	b := newBench(t, "easy:preempt=suspend:qos=low<high", 1)
	b.submit("a", "low", 1)
	b.step(0, "start a")
	b.submit("h", "high", 1)
	b.step(1, "suspend a for h")
	b.tell(b.state.Resumed(b.ids["a"])) // the agent could not
	b.step(2, "suspend a for h")
	b.tell(b.state.Cancel(b.ids["h"]))
	b.tell(b.state.Suspended(b.ids["a"]))
	b.step(3, "resume a")
}

// New jobs do not keep a suspended one from running again.
func TestSuspendedJobsComeFirst(t *testing.T) {
	b := newBench(t, "first-fit:preempt=suspend:qos=low<high", 2)
	b.submit("a", "low", 2)
	b.step(0, "start a")
	b.submit("h", "high", 1)
	b.step(1, "suspend a for h")
	b.tell(b.state.Suspended(b.ids["a"]))
	b.step(1, "start h")
	b.submit("b", "low", 1) // would fit beside h
	b.step(2, "")
	b.submit("g", "high", 1) // higher classes may
	b.step(3, "start g")
	b.tell(b.state.End(b.ids["h"]))
	b.step(4, "")
	b.tell(b.state.End(b.ids["g"]))
	b.step(5, "resume a")
	b.tell(b.state.End(b.ids["a"]))
	b.step(6, "start b")
}

// A higher class takes the place that a lower one waits for.
func TestHigherClassesOvertakeClaims(t *testing.T) {
	b := newBench(t, "easy:preempt=requeue:qos=low<mid<high", 1)
	b.submit("a", "low", 1)
	b.step(0, "start a")
	b.submit("m", "mid", 1)
	b.step(1, "requeue a for m")
	b.submit("h", "high", 1)
	b.step(2, "")
	b.tell(b.state.Requeue(b.ids["a"]))
	b.step(3, "start h")
	b.tell(b.state.End(b.ids["h"]))
	b.step(4, "start m")
	b.tell(b.state.End(b.ids["m"]))
	b.step(5, "start a")
}

func TestRulesThatMakeNoSense(t *testing.T) {
	for _, spec := range []string{"easy:preempt=suspend", "easy:preempt=kill:qos=a<b", "easy:qos=a<b", "easy:preempt=suspend:qos=a", "easy:preempt=suspend:qos=a<a",
		"easy:preempt=suspend:qos=a<", "easy:preempt=suspend:qos=" + strings.Repeat("x<", 70) + "y"} {
		if _, err := catalog.New(spec); err == nil {
			t.Errorf("%s was taken", spec)
		}
	}
	if _, err := preempt.Wrap(nil, preempt.Rules{{Name: "a", Stops: []string{"b"}}, {Name: "b"}}); err == nil {
		t.Error("a class stops a higher one")
	}
	if _, err := catalog.New("easy:depth=3:preempt=off"); err != nil {
		t.Error(err)
	}
}

// Rules are written so that they can be read again: recordings have them.
func TestRulesAsText(t *testing.T) {
	rules := preempt.FromQOS([]priority.QOS{
		{Name: "high", Priority: 3, Preempt: []string{"low", "normal"}}, {Name: "low", Priority: 1, PreemptMode: priority.PreemptSuspend}, {Name: "normal", Priority: 2, PreemptMode: priority.PreemptRequeue},
	})
	const text = "(none)/fixed<low/suspend<normal/requeue<high/fixed/low|normal"
	if rules.String() != text {
		t.Errorf("written as %s", rules)
	}
	again, err := preempt.ReadRules(text)
	if err != nil || again.String() != text || len(again) != 4 || !again[0].Fixed || again[1].How != policy.Suspend || len(again[3].Stops) != 2 {
		t.Errorf("read as %+v, %v", again, err)
	}
	for _, wrong := range []string{"", "low", "low/never", "low/suspend<low/suspend", "low/suspend/high<high/fixed", "a:b/fixed"} {
		if r, err := preempt.ReadRules(wrong); err == nil {
			t.Errorf("%q was read as %v", wrong, r)
		}
	}
}
