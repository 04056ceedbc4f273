package slurm

import (
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/slurm/words"
)

// partsOf has two nodes of 8 processors in partition p, with the policy's book.
func partsOf(t *testing.T) (*fleet, *reader) {
	t.Helper()
	p, err := catalog.New("first-fit")
	if err != nil {
		t.Fatal(err)
	}
	now, out := &present{cfg: Config{Memory: true}}, &outbox{}
	f := &fleet{present: now, out: out, byName: map[string]*node{}, partitions: map[string]*partition{"p": {Partition{Name: "p", MaxTime: time.Hour}, []string{"a", "b"}}},
		book: &book{state: policy.NewState(&model.Cluster{}, p)}}
	f.takeNodes([]Node{{Name: "a", CPUs: 8, Memory: 1 << 30, States: []string{"IDLE"}}, {Name: "b", CPUs: 8, Memory: 2 << 30, States: []string{"DRAIN"}}})
	return f, &reader{ground{present: now, out: out, fleet: f}}
}

// The policy's book follows what Slurm says of nodes; one that has changed, or on which more is used than
// is known, takes no new jobs.
func TestFleet(t *testing.T) {
	f, _ := partsOf(t)
	states := func() (s string) {
		for _, n := range f.nodes {
			s += " " + f.book.state.NodeState(n.number).String()
		}
		return s[1:]
	}
	if got := states(); got != "up draining" || !f.book.stepDue || f.leastMem != 1<<30 || f.largest != 8 {
		t.Errorf("%s, %+v", got, f)
	}
	f.crowd(0)
	f.crowd(0)
	if got := states(); got != "draining draining" || len(f.out.effects.Notes) != 1 {
		t.Errorf("crowded: %s, %q", got, f.out.effects.Notes)
	}
	f.takeNodes([]Node{{Name: "b", CPUs: 4, Memory: 2 << 30, States: []string{"IDLE"}}})
	if got := states(); got != "down draining" || !strings.Contains(strings.Join(f.out.effects.Notes, "\n"), "node b has changed") {
		t.Errorf("then: %s, %q", got, f.out.effects.Notes)
	}
}

// What Slurm's record of a job says becomes a request; what the policies have no words for is an error.
func TestReader(t *testing.T) {
	_, rd := partsOf(t)
	for _, tc := range []struct {
		fact Job
		want string
		spec model.Request
	}{
		{Job{MinNodes: 2, CPUs: 6, Tasks: 6}, "", model.Request{Nodes: 2, CoresPerNode: 3, Memory: 1 << 30}},
		{Job{CPUs: 4, MemoryPerCPU: 1 << 20, Exclusive: true}, "", model.Request{Nodes: 1, CoresPerNode: 4, Memory: 8 << 20, Exclusive: true}},
		{Job{CPUs: 1, Required: "b", MemoryPerNode: 1}, "", model.Request{Nodes: 1, CoresPerNode: 1, Memory: 1, NodeList: []string{"b"}}},
		{Job{CPUs: 1, Required: "a,b"}, "it names 2 of its 1 nodes", model.Request{}},
		{Job{CPUs: 1, Features: "fast"}, "it asks for features of nodes", model.Request{}},
	} {
		f := tc.fact
		f.Partition = "p"
		j := &job{Ref: Ref{ID: 7}, fact: f, wish: wish{comment: words.Comment{Request: &words.Request{}}}}
		spec, err := rd.understand(j)
		if err != nil || tc.want != "" {
			if err == nil || tc.want == "" || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v: %v, want %q", tc.fact, err, tc.want)
			}
			continue
		}
		if !sameSpec(spec, &model.Job{Request: tc.spec, WallTime: time.Hour}) {
			t.Errorf("%+v: %+v", tc.fact, spec.Request)
		}
	}
}

// A dependency is open as long as a job that it names has not ended, or not started for after; with ? one
// that is met suffices.
func TestDependsOn(t *testing.T) {
	r := roster{jobs: map[uint64]*job{1: {fact: Job{State: "PENDING"}}, 2: {fact: Job{State: "RUNNING"}}}, members: map[uint64]int{5: 1}}
	for on, want := range map[string]string{
		"after:1": "after:1", "after:2": "", "afterok:2": "afterok:2", "afterok:3": "", "afterany:3,afterok:1(unfulfilled)": "afterok:1", "afterok:1?afterok:3": "",
		"afterany:5_*": "afterany:5_*", "singleton": "", "afterok:3:2": "afterok:3:2",
	} {
		if got := r.dependsOn(&Job{Dependency: on}); got != want {
			t.Errorf("%s waits for %q, want %q", on, got, want)
		}
	}
}
