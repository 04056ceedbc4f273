package mccs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/easy"
	"muster/policy/script"
	"muster/policy/script/bundled"
)

// highEnd is the cluster of Table 4-3: nodes of 4, 3 and 2 GPUs.
func highEnd() *model.Cluster {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 16 << 30, Speed: 1}}}
	for i, gpus := range []int{4, 3, 2} {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("node", i+1), Cores: 16, Memory: 64 << 30, GPUs: make([]int, gpus)})
	}
	return c
}

// claim drives one bundled script by hand.
type claim struct {
	t     *testing.T
	state *policy.State
	p     *script.Policy
	ids   map[string]policy.JobID
	names map[policy.JobID]string
	now   time.Duration
}

func newClaim(t *testing.T, c *model.Cluster, spec string) *claim {
	t.Helper()
	name, settings, _ := strings.Cut(spec, ":")
	for _, e := range bundled.Entries(func(string) (policy.Policy, error) { return easy.Entry.Make("") }) {
		if e.Name == name {
			p, err := e.Make(settings)
			if err != nil {
				t.Fatal(err)
			}
			return &claim{t: t, state: policy.NewState(c, p), p: p.(*script.Policy), ids: map[string]policy.JobID{}, names: map[policy.JobID]string{}}
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// submit is a job of so many processes, each with a core, that share one GPU a node.
func (c *claim) submit(id, program string, processes int, run time.Duration) {
	c.t.Helper()
	j := &model.Job{ID: id, Run: run, Logged: &model.Logged{Executable: program},
		Request: model.Request{Cores: processes, CoresPerProcess: 1, GPUs: 1, GPUMemory: 1 << 30}}
	n, err := c.state.Submit(j)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ids[id], c.names[n] = n, id
}

func (c *claim) end(id string) {
	c.t.Helper()
	if err := c.state.End(c.ids[id]); err != nil {
		c.t.Fatal(err)
	}
}

// step says what a step, and those that follow from its stops, have done: "A 4:3:1" is a
// start with processes on the nodes, "-A" a suspension and "+A" a resumption.
func (c *claim) step() string {
	c.t.Helper()
	var out []string
	for again := true; again; {
		c.now += time.Second
		plan := c.state.Step(c.now)
		for _, st := range plan.Starts {
			if st.Err != nil {
				c.t.Fatal(st.Err)
			}
			on := make([]string, len(c.state.Cluster().Nodes))
			for i := range on {
				on[i] = "0"
			}
			for _, p := range st.Alloc.Parts {
				on[p.Node] = fmt.Sprint(p.Cores)
			}
			out = append(out, c.names[st.Job]+" "+strings.Join(on, ":"))
		}
		for _, r := range plan.Resumes {
			out = append(out, "+"+c.names[r.Job])
			if err := c.state.Resumed(r.Job); err != nil {
				c.t.Fatal(err)
			}
		}
		for _, s := range plan.Stops {
			out = append(out, "-"+c.names[s.Job])
			if err := c.state.Suspended(s.Job); err != nil {
				c.t.Fatal(err)
			}
		}
		again = len(plan.Stops) > 0
	}
	if c.p.Trouble().Failures > 0 {
		c.t.Fatal(c.p.Trouble().Last)
	}
	return strings.Join(out, ", ")
}

func (c *claim) want(what, want string) {
	c.t.Helper()
	if got := c.step(); got != want {
		c.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Section 4.2.2: "mccsAddNodeToJob assigns jobs to nodes one process at a time in a
// round-robin fashion".
func TestRoundRobinOneProcessAtATime(t *testing.T) {
	c := newClaim(t, highEnd(), "mccs-roundrobin")
	c.submit("A", "ADFA", 8, time.Hour)
	c.submit("B", "MM", 2, time.Hour)
	c.want("8 and 2 processes on 3 nodes", "A 3:3:2, B 1:1:0")
}

// Listing 4-2, lines 18-30: "co-located processes of an application are all scheduled onto a
// single node", the one with the largest weight less assigned processes.
func TestColocationOnTheNodeWithTheMaximumScore(t *testing.T) {
	c := newClaim(t, highEnd(), "mccs-colocation:weights=8/4/4")
	c.submit("M1", "MM", 4, time.Hour)
	c.submit("N1", "NW", 4, time.Hour)
	c.submit("M2", "MM", 8, time.Hour)
	c.submit("N2", "NW", 4, time.Hour)
	c.submit("M3", "MM", 4, time.Hour)
	// After M1 and N1 node1 has nothing left; M2 has 8 processes, and goes whole to a node with 4.
	c.want("the jobs", "M1 4:0:0, N1 4:0:0, M2 0:8:0, N2 0:0:4")
	c.want("nothing is free", "")
	c.end("N1")
	c.want("node1 has 4 left", "M3 4:0:0")
}

// Lines 31-43: others take what is available on every node, the rest shares GPUs
// round robin. Lines 46-48: if nothing is free, undo and requeue.
func TestOthersTakeWhatEveryNodeHas(t *testing.T) {
	c := newClaim(t, highEnd(), "mccs-colocation") // weights 4:3:2
	c.submit("A", "ADFA", 8, time.Hour)
	c.submit("M", "MM", 4, time.Hour)
	c.submit("B", "ADFA", 8, time.Hour)
	c.submit("N", "NW", 4, time.Hour)
	c.want("A leaves one GPU of node3, on which M shares; then nothing is free", "A 4:3:1, M 0:0:4")
	c.end("M")
	c.want("B takes the one that is free, and shares the rest in turn", "B 3:2:3")
	c.end("A")
	// Node1 has 3 of its weight of 4, node2 2 of 3, node3 3 of 2.
	c.want("N goes whole to the first of the nodes with one left", "N 4:0:0")
}

// Section 4.3.1: "the number of nodes assigned to an application is bounded, but not
// necessarily equal to 1".
func TestTheNumberOfNodesIsBounded(t *testing.T) {
	// With two nodes 4 and 3 are available; the last process is dealt to the first.
	for spec, want := range map[string]string{"nodes=1": "M 8:0:0", "nodes=2": "M 5:3:0", "nodes=3": "M 4:3:1", "nodes=3:deal=even": "M 3:3:2"} {
		c := newClaim(t, highEnd(), "mccs-colocation:"+spec)
		c.submit("M", "MM", 8, time.Hour)
		c.want(spec, want)
	}
}

// Section 4.3.2: short jobs come first, "by temporarily suspending long-running jobs when all GPUs are
// occupied and short-running jobs need to be scheduled"; Listing 4-3 suspends all of them.
func TestShortJobsSuspendAllLongOnes(t *testing.T) {
	c := newClaim(t, highEnd(), "mccs-latency:short=10m")
	c.submit("A", "ADFA", 8, time.Hour)
	c.submit("L", "MM", 4, time.Hour)
	c.want("two long jobs", "A 4:3:1, L 0:0:4")
	c.submit("K", "MM", 4, time.Hour)
	c.submit("S", "NW", 4, time.Minute)
	c.want("S has the place of a long one; they both share the GPUs when S has started, and K is held", "-A, -L, S 4:0:0, +A, +L")
	c.submit("S2", "NW", 2, time.Minute)
	c.want("nothing is free again", "-A, -L, S2 0:2:0, +A, +L")
	c.end("A")
	c.end("S")
	c.want("K goes on", "K 4:0:0")
}

// A short job that needs the very GPUs of a long one keeps it suspended until it ends.
func TestASuspendedJobGoesOnInTheEnd(t *testing.T) {
	one := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 1 << 30, Speed: 1}}, Nodes: []model.Node{{Name: "n", Cores: 4, Memory: 1 << 30, GPUs: []int{0}}}}
	c := newClaim(t, one, "mccs-latency:short=10m")
	c.submit("L", "MM", 2, time.Hour)
	c.want("a long job", "L 2")
	c.submit("K", "MM", 2, time.Hour)
	c.submit("S", "NW", 2, time.Minute)
	c.want("a short one", "-L, S 2")
	c.want("nothing changes", "")
	c.end("S")
	c.want("the long one goes on before the other starts", "+L")
	c.end("L")
	c.want("the other", "K 2")
}
