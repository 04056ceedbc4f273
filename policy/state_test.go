package policy

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"muster/model"
)

// small is a cluster of 3 nodes of 4 cores and 2 GPUs, of two types.
func small() *model.Cluster {
	c := &model.Cluster{
		Name: "small",
		GPUTypes: []model.GPUType{
			{Name: "a", Memory: 8, Speed: 1}, {Name: "b", Memory: 16, Speed: 1},
		},
	}
	for _, name := range []string{"n0", "n1", "n2"} {
		c.Nodes = append(c.Nodes, model.Node{Name: name, Cores: 4, Memory: 100, GPUs: []int{0, 1}})
	}
	return c
}

// scripted proposes what a test tells it to, right or wrong.
type scripted struct {
	propose func(v *View, p *Plan)
}

func (s *scripted) Traits() Traits            { return Traits{Ends: true} }
func (s *scripted) Step(v *View, p *Plan)     { s.propose(v, p) }
func (s *scripted) Why(*View, JobID) string   { return "it was not proposed" }
func part(node, cores int32) model.Part       { return model.Part{Node: node, Cores: cores} }
func alloc(p ...model.Part) *model.Allocation { return &model.Allocation{Parts: p} }

// TestNoPlanOversubscribes gives the applier plans that are wrong in every way,
// and expects each to be refused, and nothing to be lost by it.
func TestNoPlanOversubscribes(t *testing.T) {
	two := model.Request{Nodes: 2, CoresPerNode: 2}
	gpu := model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1}
	remote := model.Request{Nodes: 1, CoresPerNode: 1, Remote: &model.RemoteGPUs{Count: 2, Memory: 4, Shared: true}}
	withGrants := func(p model.Part, g ...model.Grant) *model.Allocation {
		return &model.Allocation{Parts: []model.Part{p}, Grants: g}
	}
	for _, tc := range []struct {
		name    string
		request model.Request
		alloc   *model.Allocation
		want    string // "" where the view refuses before the applier has to
	}{
		{"half a gang", two, alloc(part(0, 2)), "1 nodes granted, 2 requested"},
		{"too many nodes", two, alloc(part(0, 2), part(1, 2), part(2, 2)), "3 nodes granted"},
		{"a node twice", two, alloc(part(1, 2), part(1, 2)), "not in order, or one is named twice"},
		{"too few cores", two, alloc(part(0, 2), part(1, 1)), "gives 1 cores"},
		{"more than there is", two, alloc(part(0, 2), part(1, 5)), ""},
		{"no such node", two, alloc(part(0, 2), part(3, 2)), ""},
		{"a negative node", two, alloc(part(-1, 2), part(1, 2)), ""},
		{"negative cores", two, alloc(part(0, 2), part(1, -2)), ""},
		{"not contiguous", model.Request{Nodes: 2, CoresPerNode: 1, Contiguous: true}, alloc(part(0, 1), part(2, 1)), "not contiguous"},
		{"not on its list", model.Request{Nodes: 1, CoresPerNode: 1, NodeList: []string{"n2"}}, alloc(part(0, 1)), "not on its list"},
		{"no GPU", gpu, alloc(part(0, 1)), "gives 0 GPUs, not 1"},
		{"a GPU that does not exist", gpu, alloc(model.Part{Cores: 1, GPUs: 4}), ""},
		{"two GPUs", gpu, alloc(model.Part{Cores: 1, GPUs: 3}), "gives 2 GPUs, not 1"},
		{"another type", model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1, GPUType: "b"}, alloc(model.Part{Cores: 1, GPUs: 1}), "another type"},
		{"shared, not exclusive", model.Request{Nodes: 1, CoresPerNode: 1, Exclusive: true}, alloc(part(0, 1)), "not given whole"},
		{"exclusive, with less memory", model.Request{Nodes: 1, CoresPerNode: 1, Memory: 5, Exclusive: true}, alloc(model.Part{Cores: 4, Exclusive: true}), "not given whole"},
		{"exclusive, not asked for", model.Request{Nodes: 1, CoresPerNode: 4}, alloc(model.Part{Cores: 4, Exclusive: true}), "not requested"},
		{"spread too thin", model.Request{Cores: 5}, alloc(part(0, 2), part(1, 2)), "4 cores granted, 5 requested"},
		{"no remote GPUs", remote, alloc(part(0, 1)), "0 GPUs granted, 2 requested"},
		{"one device twice", remote, withGrants(part(0, 1), model.Grant{Node: 1, Memory: 4}, model.Grant{Node: 1, Memory: 4}), "granted twice"},
		{"too large a share", remote, withGrants(part(0, 1), model.Grant{Node: 1, Memory: 5}, model.Grant{Node: 2, Memory: 4}), "5 bytes, not 4"},
		{"whole, not shared", remote, withGrants(part(0, 1), model.Grant{Node: 1}, model.Grant{Node: 2, Memory: 4}), "0 bytes, not 4"},
		{"for nobody", remote, withGrants(part(0, 1), model.Grant{Node: 1, Memory: 4, For: 1}, model.Grant{Node: 2, Memory: 4}), ""},
		{"no such device", remote, withGrants(part(0, 1), model.Grant{Node: 1, Device: 2, Memory: 4}, model.Grant{Node: 2, Memory: 4}), ""},
		{"more memory than a device has", remote, withGrants(part(0, 1), model.Grant{Node: 1, Memory: 9}, model.Grant{Node: 2, Memory: 4}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proposed := false
			p := &scripted{propose: func(v *View, plan *Plan) {
				for _, id := range v.Arrived() {
					proposed = plan.Start(id, tc.alloc, Reason{})
				}
			}}
			s := NewState(small(), p)
			id, err := s.Submit(&model.Job{ID: "j", Request: tc.request})
			if err != nil {
				t.Fatal(err)
			}
			plan := s.Step(0)
			if tc.want == "" {
				if proposed {
					t.Fatalf("the view let it pass; the applier says %v", plan.Starts[0].Err)
				}
			} else if err := plan.Starts[0].Err; err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("the applier says %v, want %q", err, tc.want)
			}
			if s.Waiting() != 1 || s.Allocation(id) != nil {
				t.Fatal("the job does not wait any more")
			}
			// Nothing is lost: the same state can still give everything it has.
			idle := newPool(small())
			for n := range idle.nodes {
				if s.view.nodes[n] != idle.nodes[n] || s.ledger.nodes[n].cores != idle.nodes[n].cores || s.ledger.nodes[n].gpus != idle.nodes[n].gpus {
					t.Fatalf("node %d is left as %+v", n, s.view.nodes[n])
				}
			}
			if s.view.freeCores != idle.freeCores || s.view.freeGPUs != idle.freeGPUs || s.ends.n != 0 {
				t.Fatal("the sums are off")
			}
		})
	}
}

// TestJobsAreProposedOnce refuses a second start of the same job, in the same
// step and later.
func TestJobsAreProposedOnce(t *testing.T) {
	var again bool
	p := &scripted{}
	s := NewState(small(), p)
	id, err := s.Submit(&model.Job{ID: "j", Run: time.Second, Request: model.Request{Nodes: 1, CoresPerNode: 1}})
	if err != nil {
		t.Fatal(err)
	}
	p.propose = func(v *View, plan *Plan) {
		plan.Start(id, alloc(part(0, 1)), Reason{})
		again = plan.Start(id, alloc(part(1, 1)), Reason{})
	}
	if s.Step(0); again {
		t.Error("proposed twice in one step")
	}
	p.propose = func(v *View, plan *Plan) { again = plan.Start(id, alloc(part(1, 1)), Reason{}) }
	if s.Step(1); again {
		t.Error("proposed while it runs")
	}
	s.End(id)
	if s.Step(2); again {
		t.Error("proposed after its end")
	}
}

func TestCancel(t *testing.T) {
	var arrived, left []JobID
	p := &scripted{propose: func(v *View, plan *Plan) {
		arrived, left = append([]JobID(nil), v.Arrived()...), append([]JobID(nil), v.Left()...)
	}}
	s := NewState(small(), p)
	submit := func() JobID {
		id, err := s.Submit(&model.Job{ID: "j", Request: model.Request{Cores: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	a, b := submit(), submit()
	if err := s.Cancel(b); err != nil { // before any policy saw it
		t.Fatal(err)
	}
	s.Step(0)
	if len(arrived) != 1 || arrived[0] != a || len(left) != 0 {
		t.Fatalf("arrived %v, left %v", arrived, left)
	}
	if err := s.Cancel(a); err != nil {
		t.Fatal(err)
	}
	s.Step(1)
	if len(arrived) != 0 || len(left) != 1 || left[0] != a || s.Waiting() != 0 {
		t.Fatalf("arrived %v, left %v, %d waiting", arrived, left, s.Waiting())
	}
	if err := s.Cancel(a); err == nil {
		t.Fatal("cancelled twice")
	}
}

// TestRefusedJobsLeaveAndArrive: a job whose start was refused and that is
// cancelled then is not forgotten by a policy that believes it runs.
func TestRefusedJobsLeaveAndArrive(t *testing.T) {
	var arrived, left []JobID
	p := &scripted{propose: func(v *View, plan *Plan) {
		arrived, left = append([]JobID(nil), v.Arrived()...), append([]JobID(nil), v.Left()...)
		for _, id := range v.Arrived() {
			plan.Start(id, alloc(part(0, 1)), Reason{})
		}
	}}
	s := NewState(small(), p)
	var ids []JobID
	for range 2 {
		id, err := s.Submit(&model.Job{ID: "j", Request: model.Request{Nodes: 2, CoresPerNode: 1}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, st := range s.Step(0).Starts {
		if st.Err == nil {
			t.Fatal("half a gang was started")
		}
	}
	if err := s.Cancel(ids[0]); err != nil {
		t.Fatal(err)
	}
	s.Step(1)
	if len(arrived) != 1 || arrived[0] != ids[1] || len(left) != 2 || left[0] != ids[0] {
		t.Fatalf("arrived %v, left %v", arrived, left)
	}
}

// TestTrialsAreNoPlacements: what a trial found on nodes that are not free yet
// is not taken on trust after it.
func TestTrialsAreNoPlacements(t *testing.T) {
	started := true
	p := &scripted{propose: func(v *View, plan *Plan) { plan.Start(0, alloc(part(0, 4)), Reason{}) }}
	s := NewState(small(), p)
	for _, r := range []model.Request{
		{Nodes: 1, CoresPerNode: 4}, {Nodes: 3, CoresPerNode: 4, Contiguous: true}, {Nodes: 1, CoresPerNode: 1},
	} {
		if _, err := s.Submit(&model.Job{ID: "j", Run: 5, Request: r}); err != nil {
			t.Fatal(err)
		}
	}
	s.Step(0)
	p.propose = func(v *View, plan *Plan) {
		a := v.Place(v.Shape(2), Sharing)
		v.ReserveEarliest(v.Shape(1), Never)
		started = plan.Start(2, a, Reason{})
	}
	if s.Step(1); started {
		t.Error("a trial was started")
	}
}

func TestImpossibleJobsSayWhy(t *testing.T) {
	for _, tc := range []struct {
		request model.Request
		want    string
	}{
		{model.Request{Nodes: 4, CoresPerNode: 1}, "needs 4 nodes with 1 core; only 3 nodes of the cluster have that"},
		{model.Request{Nodes: 1, CoresPerNode: 5}, "needs 1 node with 5 cores; no node of the cluster has that (too few cores)"},
		{model.Request{Nodes: 1, GPUs: 3}, "needs 1 node with 1 core, 3 GPUs; no node of the cluster has that (too few GPUs)"},
		{model.Request{Cores: 1, GPUs: 3}, "needs 1 core on any nodes, 3 GPUs of each node; no node of the cluster has 3 GPUs"},
		{model.Request{Cores: 13}, "needs 13 cores on any nodes; the cluster has only 12 cores"},
		{model.Request{Nodes: 1, GPUs: 1, GPUType: "c"}, `the cluster has no GPUs of type "c"`},
		{model.Request{Nodes: 1, NodeList: []string{"n9"}}, `node "n9" is not in the cluster`},
		{model.Request{Nodes: 2, NodeList: []string{"n0"}}, "needs 2 nodes with 1 core, only on n0; only 1 node of the cluster has that"},
		{model.Request{Nodes: 1, Remote: &model.RemoteGPUs{Count: 7}}, "needs 1 node with 1 core, 7 GPUs anywhere; the cluster has 6 whole GPUs, on 3 of 3 nodes"},
		{model.Request{Nodes: 1, Remote: &model.RemoteGPUs{Count: 4, Memory: 9, Shared: true}}, "needs 1 node with 1 core, 4 GPUs anywhere of 9B; only 3 GPUs of the cluster have 9B"},
		{model.Request{Cores: 1, Remote: &model.RemoteGPUs{Count: 1, Memory: 17, Shared: true}}, "needs 1 core on any nodes, 1 GPU anywhere of 17B; no GPU of the cluster has 17B, and the largest has 16B"},
		{model.Request{Nodes: 1, GPUType: "a", Remote: &model.RemoteGPUs{Count: 1, Memory: 9}}, "needs 1 node with 1 core, 1 GPU anywhere of 9B; no GPU of the cluster has 9B, and the largest has 8B"},
		{model.Request{Cores: 5, CoresPerProcess: 5}, "needs 5 cores on any nodes, 5 together; no node of the cluster has 5 cores"},
	} {
		s := NewState(small(), &scripted{})
		_, err := s.Submit(&model.Job{ID: "j", Request: tc.request})
		if !errors.Is(err, ErrImpossible) || !strings.HasSuffix(err.Error(), ": "+tc.want) {
			t.Errorf("%+v: %v\nwant %s", tc.request, err, tc.want)
		}
	}
}

// A node that is down lacks everything, and so no one thing is too few.
func TestWhatIsMissingOfNodesThatAreDown(t *testing.T) {
	said := ""
	s := NewState(small(), &scripted{propose: func(v *View, _ *Plan) { said = v.Shortage(v.Shape(0), Sharing) }})
	must(t, s.SetNode(1, NodeDown))
	if _, err := s.Submit(&model.Job{ID: "j", Request: model.Request{Nodes: 3, CoresPerNode: 1}}); err != nil {
		t.Fatal(err)
	}
	s.Step(1)
	if want := "needs 3 nodes with 1 core; only 2 nodes have that free now; 1 node draining or down"; said != want {
		t.Errorf("got %q\nwant %q", said, want)
	}
	s.SetRetired(func(n int32) bool { return n == 1 }) // it will not come back
	s.Step(2)
	if want := "needs 3 nodes with 1 core; only 2 nodes have that free now"; said != want {
		t.Errorf("got %q\nwant %q", said, want)
	}
}

// TestPoolIndexes takes and gives at random and checks that the indexes say
// what counting says, and that a rolled-back trial leaves no trace.
func TestPoolIndexes(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 10, Speed: 1}}}
		for range 1 + rng.IntN(200) {
			c.Nodes = append(c.Nodes, model.Node{
				Cores: 1 + rng.IntN(200), Memory: rng.Int64N(1000), GPUs: make([]int, rng.IntN(5)),
			})
		}
		s := newShapes(c)
		pl := newPlacer(newPool(c))
		var held []model.Allocation
		for range 300 {
			sh, fresh := s.of(&model.Request{
				Nodes: 1 + rng.IntN(4), CoresPerNode: 1 + rng.IntN(150), Memory: rng.Int64N(900), GPUs: rng.IntN(4),
			})
			if fresh {
				pl.index(sh)
			}
			count := int32(0)
			for n := range pl.nodes {
				st := &pl.nodes[n]
				if st.cores >= sh.cores && st.memory >= sh.memory && bits.OnesCount64(st.gpus) >= int(sh.gpus) {
					count++
				}
			}
			pl.epoch++
			if room := pl.upper(sh, Sharing); room < count || len(pl.memorySteps.steps) < maxSteps && len(pl.coreSteps.steps) < maxSteps && room != count {
				t.Fatalf("seed %d: room for %d nodes, counted %d", seed, room, count)
			}
			before := append([]nodeState(nil), pl.nodes...)
			if len(held) > 0 {
				pl.checkpoint()
				pl.give(&held[rng.IntN(len(held))])
				if a := pl.place(sh, Sharing); a != nil {
					pl.take(a)
				}
				pl.rollback()
			}
			for n := range before {
				if pl.nodes[n] != before[n] {
					t.Fatalf("seed %d: rollback left node %d as %+v, not %+v", seed, n, pl.nodes[n], before[n])
				}
			}
			a := pl.place(sh, Sharing)
			if (a != nil) != (count >= sh.nodes) {
				t.Fatalf("seed %d: %d nodes suit, %d wanted, placed: %v", seed, count, sh.nodes, a != nil)
			}
			if a != nil {
				kept := model.Allocation{Parts: append([]model.Part(nil), a.Parts...)}
				pl.take(a)
				held = append(held, kept)
			}
			if len(held) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(held))
				pl.give(&held[i])
				held = append(held[:i], held[i+1:]...)
			}
		}
	}
}
