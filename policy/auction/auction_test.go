package auction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/consres"
	"muster/policy/winner"
	"muster/sim"
)

// row is a cluster of equal nodes called n001, n002, ...
func row(nodes, cores, gpus int) *model.Cluster {
	c := &model.Cluster{Name: "row", GPUTypes: []model.GPUType{{Name: "k20", Memory: 5 << 30, Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{
			Name: fmt.Sprintf("n%03d", i+1), Cores: cores, Memory: 64 << 30, GPUs: make([]int, gpus),
		})
	}
	return c
}

func names(first, last int) []string {
	var out []string
	for i := first; i <= last; i++ {
		out = append(out, fmt.Sprintf("n%03d", i))
	}
	return out
}

func job(id string, r model.Request) *model.Job {
	return &model.Job{ID: id, Run: time.Minute, Request: r}
}

func make1(t testing.TB, spec string) *auction {
	t.Helper()
	p, err := Entry.Make(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*auction)
}

// setting is a state with its policy.
type setting struct {
	*policy.State
	p   *auction
	ids map[string]policy.JobID
	t   testing.TB
}

func newSetting(t testing.TB, c *model.Cluster, spec string) *setting {
	p := make1(t, spec)
	return &setting{State: policy.NewState(c, p), p: p, ids: map[string]policy.JobID{}, t: t}
}

func (s *setting) submit(jobs ...*model.Job) {
	s.t.Helper()
	for _, j := range jobs {
		if err := j.Validate(); err != nil {
			s.t.Fatal(err)
		}
		id, err := s.Submit(j)
		if err != nil {
			s.t.Fatal(err)
		}
		s.ids[j.ID] = id
	}
}

// started is who was started on which nodes, by a step that must have no errors.
func (s *setting) started(now time.Duration) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	plan := s.Step(now)
	for _, st := range plan.Starts {
		if st.Err != nil {
			s.t.Errorf("refused: %v", st.Err)
		}
		out[plan.View().Job(st.Job).ID] = s.nodes(st.Alloc)
	}
	return out
}

func (s *setting) nodes(a *model.Allocation) string {
	var names []string
	for i := range a.Parts {
		names = append(names, s.p.market.cluster.Nodes[a.Parts[i].Node].Name)
	}
	return model.CompressNodes(names)
}

func expect(t *testing.T, got, want map[string]string) {
	t.Helper()
	for id, nodes := range want {
		if got[id] != nodes {
			t.Errorf("job %s is on %q, want %q", id, got[id], nodes)
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			t.Errorf("job %s was started on %s, and should not have been", id, got[id])
		}
	}
}

// Figs. 3 to 5: on two blocks of 64 free nodes the four jobs of the example all
// start in one auction, on the nodes that the paper names.
func workedExample(t *testing.T, spec string) *setting {
	s := newSetting(t, row(144, 8, 2), spec)
	s.submit(job("busy", model.Request{Nodes: 16, CoresPerNode: 8, NodeList: names(65, 80), Exclusive: true}))
	expect(t, s.started(0), map[string]string{"busy": "n[065-080]"})
	s.submit(
		job("J1", model.Request{Cores: 512}),
		job("J2", model.Request{Nodes: 64, CoresPerNode: 2, GPUs: 1}),
		job("J3", model.Request{Nodes: 64, CoresPerNode: 4, GPUs: 2}),
		job("J4", model.Request{Nodes: 128, CoresPerNode: 1}),
	)
	return s
}

func TestWorkedExample(t *testing.T) {
	for _, spec := range []string{"", "slurm_bids=off", "bids_per_job=5"} {
		t.Run(spec, func(t *testing.T) {
			s := workedExample(t, spec)
			got := s.started(5 * time.Second)
			if len(got) != 4 {
				t.Fatalf("%d jobs were started, want all 4: %v", len(got), got)
			}
			both := "n[001-064,081-144]"
			j2, j3 := "n[001-064]", "n[081-144]"
			if got["J2"] == j3 { // as good
				j2, j3 = j3, j2
			}
			expect(t, got, map[string]string{"J1": both, "J2": j2, "J3": j3, "J4": both})
			r := s.p.held[0]
			if !r.answer.Proven {
				t.Errorf("not proven: gap %v", r.answer.Gap())
			}
		})
	}
}

// Fig. 5: Slurm takes the jobs one by one, and needs two steps for the four.
func TestWorkedExampleBySlurm(t *testing.T) {
	jobs := []model.Job{
		*job("busy", model.Request{Nodes: 16, CoresPerNode: 8, NodeList: names(65, 80), Exclusive: true}),
		*job("J1", model.Request{Cores: 512}),
		*job("J2", model.Request{Nodes: 64, CoresPerNode: 2, GPUs: 1}),
		*job("J3", model.Request{Nodes: 64, CoresPerNode: 4, GPUs: 2}),
		*job("J4", model.Request{Nodes: 128, CoresPerNode: 1}),
	}
	jobs[0].Run = time.Hour
	for i := range jobs[1:] {
		jobs[i+1].Submit = 5 * time.Second
	}
	slurm, err := consres.Slurm.Make("")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p    policy.Policy
		want int // jobs that start at once
	}{"slurm": {slurm, 2}, "auction": {make1(t, ""), 4}} {
		res, err := sim.Run(context.Background(), sim.Config{Cluster: row(144, 8, 2), Jobs: jobs, Policy: c.p})
		if err != nil {
			t.Fatal(err)
		}
		now := 0
		for i := 1; i < len(jobs); i++ {
			if res.Outcomes[i].Start == jobs[i].Submit {
				now++
			}
		}
		if now != c.want {
			t.Errorf("%s starts %d of the four jobs at once, want %d", name, now, c.want)
		}
	}
}

// The earlier form bids for any nodes that suit, and takes as many as asked for.
func TestIPSCHED(t *testing.T) {
	s := newSetting(t, row(6, 4, 1), "form=ipsched")
	s.submit(
		job("hole", model.Request{Nodes: 1, CoresPerNode: 4, NodeList: names(3, 3)}),
		job("gpus", model.Request{Nodes: 2, CoresPerNode: 2, GPUs: 1}),
		job("cores", model.Request{Cores: 6}),
		job("block", model.Request{Nodes: 3, CoresPerNode: 1, Contiguous: true}),
	)
	got := s.started(0)
	if len(got) != 4 || got["hole"] != "n003" || got["block"] != "n[004-006]" {
		t.Errorf("started %v", got)
	}
	if !s.p.held[0].answer.Proven {
		t.Error("not proven")
	}
	for _, b := range s.p.held[0].bids {
		if any := b.class == AnyOfThem; any == (b.job == 3) {
			t.Errorf("job %d makes a bid of class %v", b.job, b.class)
		}
	}
}

// Bids of one job in a machine with a hole: what Fig. 2 shows.
func TestBidsOfEachClass(t *testing.T) {
	// Nodes 1-4 and 7-9 are free; node 3 has 1 core left, the others 4.
	for _, c := range []struct {
		name    string
		request model.Request
		classes string
		want    []string
	}{
		{"two nodes", model.Request{Nodes: 2, CoresPerNode: 4}, "ABC", []string{
			"A n[001-002]", "A n[007-008]", "A n[008-009]", "C n[002,004]", "C n[004,007]"}},
		{"two nodes with a core each", model.Request{Nodes: 2, CoresPerNode: 1}, "ABC", []string{
			"A n[001-002]", "A n[003-004]", "A n[007-008]", "A n[008-009]", "B n[002-003]", "C n[004,007]"}},
		{"two nodes side by side", model.Request{Nodes: 2, CoresPerNode: 4, Contiguous: true}, "ABC", []string{
			"A n[001-002]", "A n[007-008]", "A n[008-009]"}},
		{"blocks only", model.Request{Nodes: 2, CoresPerNode: 4}, "AB", []string{
			"A n[001-002]", "A n[007-008]", "A n[008-009]"}},
		{"joined only", model.Request{Nodes: 2, CoresPerNode: 4}, "C", []string{"C n[002,004]", "C n[004,007]"}},
		{"three nodes", model.Request{Nodes: 3, CoresPerNode: 4}, "ABC", []string{
			"A n[007-009]", "C n[001-002,004]", "C n[002,004,007]", "C n[004,007-008]"}},
		{"cores", model.Request{Cores: 8}, "ABC", []string{
			// From the end of the first nodeset it takes three nodes.
			"A n[001-002]", "A n[002-004]", "A n[007-008]", "A n[008-009]",
			"C n[001-004,007-009]"}},
		{"few cores", model.Request{Cores: 2}, "ABC", []string{
			// All nodes of both nodesets would be more than it has cores for.
			"A n001", "A n004", "A n007", "A n009", "B n002", "B n008"}},
		{"more cores", model.Request{Cores: 14}, "ABC", []string{
			"C n[001-004,007]", "C n[004,007-009]", "C n[001-004,007-009]"}},
		{"more cores side by side", model.Request{Cores: 14, Contiguous: true}, "ABC", nil},
		{"a GPU each", model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 1}, "ABC", []string{
			// Node 2 has no GPU.
			"A n[003-004]", "A n[007-008]", "A n[008-009]", "C n[001,003]", "C n[004,007]"}},
		{"named nodes", model.Request{Nodes: 2, CoresPerNode: 1, NodeList: []string{"n002", "n003", "n007"}}, "ABC", []string{
			"B n[002-003]", "C n[003,007]"}},
		{"memory", model.Request{Nodes: 1, CoresPerNode: 1, Memory: 60 << 30}, "ABC", []string{
			"A n001", "A n004", "A n007", "A n009", "B n002", "B n008"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := row(9, 4, 1)
			cluster.Nodes[1].GPUs = nil
			s := newSetting(t, cluster, "slurm_bids=off:avoid=none:bids=0:bids_per_job=0")
			s.submit(
				job("hole", model.Request{Nodes: 2, CoresPerNode: 4, NodeList: names(5, 6), Exclusive: true}),
				job("cores", model.Request{Nodes: 1, CoresPerNode: 3, Memory: 10 << 30, NodeList: names(3, 3)}),
			)
			s.started(0)
			s.submit(job("bidder", c.request))
			s.p.classes, _ = classesOf("classes", c.classes, nil)
			v := s.view()
			s.p.market.open(v)
			s.p.bidFor(v, bid{}, v.Shape(s.ids["bidder"]))
			var got []string
			for i := range s.p.market.bids {
				b := &s.p.market.bids[i]
				got = append(got, b.class.String()+" "+s.p.names(v, b.nodes))
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("bids\n got %q\nwant %q", got, c.want)
			}
		})
	}
}

// made lists the bids of a class in the latest auction, as "job nodes".
func (s *setting) made(class Class) []string {
	var out []string
	r := s.p.held[0]
	for i := range r.bids {
		if b := &r.bids[i]; b.class == class {
			out = append(out, s.view().Job(r.jobs[b.job].id).ID+" "+s.p.names(s.view(), b.nodes))
		}
	}
	return out
}

// Slurm bids are what Slurm would do one job after the other: each on what the
// ones before it leave.
func TestSlurmBids(t *testing.T) {
	for _, c := range []struct {
		name     string
		requests []model.Request
		want     []string
	}{
		{"cores", []model.Request{{Nodes: 2, CoresPerNode: 3}, {Nodes: 1, CoresPerNode: 2}, {Nodes: 2, CoresPerNode: 1}, {Cores: 6}},
			[]string{"0 n[001-002]", "1 n003", "2 n[001-002]", "3 n[003-004]"}},
		{"memory", []model.Request{{Nodes: 3, CoresPerNode: 1, Memory: 40 << 30}, {Nodes: 1, CoresPerNode: 1, Memory: 40 << 30}, {Nodes: 1, CoresPerNode: 1, Memory: 40 << 30}},
			[]string{"0 n[001-003]", "1 n004"}},
		{"GPUs", []model.Request{{Nodes: 3, CoresPerNode: 1, GPUs: 2}, {Nodes: 2, CoresPerNode: 1, GPUs: 1}, {Nodes: 1, CoresPerNode: 1, GPUs: 1}},
			[]string{"0 n[001-003]", "2 n004"}},
		{"shares", []model.Request{
			{Nodes: 4, CoresPerNode: 1, GPUs: 1}, {Nodes: 4, CoresPerNode: 1, GPUs: 1, GPUMemory: 3 << 30},
			{Nodes: 1, CoresPerNode: 1, GPUs: 1, GPUMemory: 3 << 30}, {Nodes: 3, CoresPerNode: 1, GPUs: 1, GPUMemory: 2 << 30}},
			[]string{"0 n[001-004]", "1 n[001-004]", "3 n[001-003]"}},
		{"alone", []model.Request{{Nodes: 2, CoresPerNode: 1}, {Nodes: 2, CoresPerNode: 1, Exclusive: true}, {Nodes: 1, CoresPerNode: 1, Exclusive: true}, {Nodes: 3, CoresPerNode: 1}},
			[]string{"0 n[001-002]", "1 n[003-004]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSetting(t, row(4, 4, 2), "")
			for i := range c.requests {
				s.submit(job(fmt.Sprint(i), c.requests[i]))
			}
			s.started(0)
			if got := s.made(Slurm); !slices.Equal(got, c.want) {
				t.Errorf("Slurm bids %q, want %q", got, c.want)
			}
		})
	}
}

// Each request of a job makes a Slurm bid, and the job takes once.
func TestSlurmBidsOfAlternatives(t *testing.T) {
	s := newSetting(t, row(4, 4, 1), "")
	either := job("either", model.Request{Nodes: 2, CoresPerNode: 4})
	either.Alternatives = []model.Request{{Nodes: 2, CoresPerNode: 3, GPUs: 1}}
	s.submit(either, job("next", model.Request{Nodes: 2, CoresPerNode: 4}))
	s.started(0)
	if got, want := s.made(Slurm), []string{"either n[001-002]", "either n[001-002]", "next n[003-004]"}; !slices.Equal(got, want) {
		t.Errorf("Slurm bids %q, want %q", got, want)
	}
}

// Nobody bids for the same nodes twice.
func TestNoBidTwice(t *testing.T) {
	s := newSetting(t, row(6, 4, 2), "")
	s.submit(job("a", model.Request{Nodes: 2, CoresPerNode: 3}), job("b", model.Request{Cores: 8}))
	s.started(0)
	for _, j := range s.p.held[0].jobs {
		seen := map[string]bool{}
		for _, b := range s.p.held[0].bids[j.first:j.end] {
			nodes := fmt.Sprint(b.nodes)
			if seen[nodes] {
				t.Errorf("job %d bids for %s again, as class %v", j.id, nodes, b.class)
			}
			seen[nodes] = true
		}
	}
}

// Bids go first to where the fewest bids are, if they are asked to.
func TestLeastContestedFirst(t *testing.T) {
	for avoid, want := range map[string][]string{
		"none": {"a n[002-003]", "b n[002-003]", "c n[002-003]"},
		"BC":   {"a n[002-003]", "b n[004-005]", "c n[006-007]"},
	} {
		s := newSetting(t, row(8, 4, 2), "slurm_bids=off:classes=B:bids_per_job=1:avoid="+avoid)
		for _, id := range []string{"a", "b", "c"} {
			s.submit(job(id, model.Request{Nodes: 2, CoresPerNode: 4}))
		}
		s.started(0)
		if got := s.made(Inside); !slices.Equal(got, want) {
			t.Errorf("avoid=%s: bids %q, want %q", avoid, got, want)
		}
	}
}

// The bids know nothing of memory that two winners want. The second finds
// another place, or waits: nothing is refused.
func TestWinnersThatWantTheSameMemory(t *testing.T) {
	big := model.Request{Nodes: 1, CoresPerNode: 1, Memory: 40 << 30, NodeList: names(1, 2)}
	s := newSetting(t, row(3, 4, 0), "slurm_bids=off:bids_per_job=1:avoid=none")
	s.submit(job("a", big), job("b", big), job("c", big))
	expect(t, s.started(0), map[string]string{"a": "n001", "b": "n002"})
	if why := s.Why(s.ids["c"]); !strings.Contains(why, "took memory or devices") {
		t.Errorf("c: %s", why)
	}
}

// Spread cores with memory of their own, where some nodes have too little of it
// for all their cores.
func TestScarceMemory(t *testing.T) {
	c := row(3, 4, 0)
	c.Nodes[1].Memory = 2 << 30
	s := newSetting(t, c, "slurm_bids=off")
	s.submit(job("a", model.Request{Cores: 10, MemoryPerCore: 1 << 30}))
	expect(t, s.started(0), map[string]string{"a": "n[001-003]"})
	if got := s.made(Placed); len(got) != 1 {
		t.Errorf("bids by placement: %q", got)
	}
	if a := s.Allocation(s.ids["a"]); a.Parts[1].Cores != 2 {
		t.Errorf("the node with little memory gives %d cores", a.Parts[1].Cores)
	}
	s = newSetting(t, c, "slurm_bids=off")
	s.submit(job("a", model.Request{Cores: 8, MemoryPerCore: 1 << 30}))
	expect(t, s.started(0), map[string]string{"a": "n[001,003]"})
	if got := s.made(Joined); len(got) != 1 {
		t.Errorf("joined bids: %q", got)
	}
}

// A job gets devices of the type that it asks for, and only nodes that have them.
func TestTypesOfGPUs(t *testing.T) {
	c := row(3, 4, 2)
	c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: "c2070", Memory: 6 << 30, Speed: 1})
	c.Nodes[1].GPUs, c.Nodes[2].GPUs = []int{0, 1}, []int{1, 1}
	s := newSetting(t, c, "")
	s.submit(job("a", model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 1, GPUType: "c2070"}))
	expect(t, s.started(0), map[string]string{"a": "n[002-003]"})
	if a := s.Allocation(s.ids["a"]); a.Parts[0].GPUs != 2 || a.Parts[1].GPUs != 1 {
		t.Errorf("devices %+v", a.Parts)
	}
}

// view is what the policy sees.
func (s *setting) view() *policy.View {
	s.p.next = policy.Never // there is no auction
	return s.Step(1).View()
}

// A job that runs on cores alone or with GPUs takes what is free. With GPUs it is
// over sooner, so it takes them while nobody else would have to wait for that.
func TestOneWinsOfTheAlternatives(t *testing.T) {
	c := row(3, 4, 0)
	c.Nodes[0].GPUs, c.Nodes[1].GPUs = []int{0}, []int{0}
	s := newSetting(t, c, "")
	for _, id := range []string{"a", "b", "c"} {
		j := job(id, model.Request{Nodes: 1, CoresPerNode: 4, GPUs: 1})
		j.Alternatives = []model.Request{{Cores: 4, Run: 4 * time.Minute}}
		s.submit(j)
	}
	plan := s.Step(0)
	as := map[int]int{}
	for _, st := range plan.Starts {
		as[st.Alternative]++
		if st.Err != nil {
			t.Error(st.Err)
		}
	}
	if as[0] != 2 || as[1] != 1 {
		t.Errorf("%d jobs run with a GPU and %d without, want 2 and 1", as[0], as[1])
	}

	// The first would rather have the GPU; it leaves it to one that has no choice.
	s = newSetting(t, c, "slurm_bids=off")
	s.submit(job("takes one", model.Request{Nodes: 1, CoresPerNode: 4, GPUs: 1}))
	s.started(0)
	either := job("either", model.Request{Nodes: 1, CoresPerNode: 4, GPUs: 1})
	either.Alternatives = []model.Request{{Nodes: 1, CoresPerNode: 4, Run: 4 * time.Minute}}
	s.submit(either, job("rigid", model.Request{Nodes: 1, CoresPerNode: 4, GPUs: 1}))
	expect(t, s.started(5*time.Second), map[string]string{"either": "n003", "rigid": "n002"})
}

// rogue is a solver that does not do its work.
type rogue func(p *winner.Problem) (*winner.Answer, error)

func (r rogue) Solve(p *winner.Problem, _ winner.Limits) (*winner.Answer, error) { return r(p) }

// Whatever the solver does, the step schedules.
func TestSolverThatFails(t *testing.T) {
	everybody := func(p *winner.Problem) *winner.Answer {
		a := &winner.Answer{}
		for i := range p.Bids {
			b := &p.Bids[i]
			a.Won = append(a.Won, winner.Win{Bid: int32(i), Nodes: b.Nodes, Cores: make([]int32, len(b.Nodes))})
			a.Value += b.Value
		}
		a.Bound = a.Value
		return a
	}
	for name, solver := range map[string]rogue{
		"error":    func(*winner.Problem) (*winner.Answer, error) { return nil, errors.New("no licence") },
		"panic":    func(*winner.Problem) (*winner.Answer, error) { panic("out of memory") },
		"nothing":  func(*winner.Problem) (*winner.Answer, error) { return nil, nil },
		"too much": func(p *winner.Problem) (*winner.Answer, error) { return everybody(p), nil },
		"no bid": func(*winner.Problem) (*winner.Answer, error) {
			return &winner.Answer{Won: []winner.Win{{Bid: 1 << 20}}}, nil
		},
		"a value of its own": func(p *winner.Problem) (*winner.Answer, error) {
			return &winner.Answer{Value: 1 << 40, Bound: 1 << 40, Proven: true}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings := model.Settings{}
			for _, o := range Entry.Options {
				settings[o.Name] = o.Default
			}
			p, err := New(settings, solver)
			if err != nil {
				t.Fatal(err)
			}
			s := &setting{State: policy.NewState(row(8, 4, 1), p), p: p.(*auction), ids: map[string]policy.JobID{}, t: t}
			s.submit(
				job("a", model.Request{Nodes: 4, CoresPerNode: 4}),
				job("b", model.Request{Nodes: 4, CoresPerNode: 4}),
				job("c", model.Request{Nodes: 4, CoresPerNode: 4}),
			)
			if got := s.started(0); len(got) != 2 {
				t.Errorf("%d jobs were started, want 2: %v", len(got), got)
			}
			if note := s.p.held[0].note; !strings.HasPrefix(note, "the solver ") {
				t.Errorf("nothing is said of the solver: %q", note)
			}
			if e := s.Explain(); !strings.Contains(e.Lead, "A simple rule chose the winners: the solver") {
				t.Errorf("the account does not tell of it: %s", e.Lead)
			}
		})
	}
}

// Between two auctions is the interval at least, and there is none where nothing
// happened.
func TestInterval(t *testing.T) {
	s := newSetting(t, row(2, 4, 0), "interval=5s")
	s.submit(job("a", model.Request{Nodes: 2, CoresPerNode: 4}), job("b", model.Request{Nodes: 2, CoresPerNode: 4}))
	plan := s.Step(2 * time.Second)
	if plan.Skipped || len(plan.Starts) != 1 || plan.Wake != 7*time.Second {
		t.Fatalf("at 2 s: %+v", plan)
	}
	s.submit(job("c", model.Request{Nodes: 2, CoresPerNode: 4}))
	plan = s.Step(4 * time.Second)
	if !plan.Skipped || plan.Wake != 7*time.Second || len(plan.Starts) != 0 {
		t.Fatalf("at 4 s: %+v", plan)
	}
	if why := s.Why(s.ids["c"]); why != "it came after the latest auction; the next auction is at 00:00:07" {
		t.Errorf("why: %s", why)
	}
	// Job a has started and c has come, so there is another auction; then there is
	// nothing to do.
	plan = s.Step(7 * time.Second)
	if plan.Skipped || len(plan.Starts) != 0 || plan.Wake != policy.Never {
		t.Fatalf("at 7 s: %+v", plan)
	}
	if plan = s.Step(15 * time.Second); !plan.Skipped || plan.Wake != policy.Never {
		t.Fatalf("at 15 s: %+v", plan)
	}
	s.End(s.ids["a"])
	if plan = s.Step(61 * time.Second); plan.Skipped || len(plan.Starts) != 1 || plan.Wake != 66*time.Second {
		t.Fatalf("at 61 s: %+v", plan)
	}
}

// Jobs that come behind a full window change nothing, and cost nothing.
func TestComingBehindTheWindow(t *testing.T) {
	s := newSetting(t, row(2, 4, 0), "window=2")
	wide := func(id string, priority int64) *model.Job {
		j := job(id, model.Request{Nodes: 2, CoresPerNode: 4})
		j.Priority = priority
		return j
	}
	s.submit(wide("runs", 9), wide("a", 5), wide("b", 5))
	s.Step(0)
	s.Step(5 * time.Second)
	s.submit(wide("late", 5), wide("low", 1))
	if plan := s.Step(20 * time.Second); !plan.Skipped || plan.Wake != policy.Never {
		t.Errorf("an auction for jobs that may not bid: %+v", plan)
	}
	if why := s.Why(s.ids["late"]); why != "2 jobs stood before it in the latest auction, and no more may bid (window)" {
		t.Errorf("why: %s", why)
	}
	s.submit(wide("high", 6))
	if plan := s.Step(30 * time.Second); plan.Skipped {
		t.Error("no auction though a job came that may bid")
	}
	if why := s.Why(s.ids["b"]); !strings.HasPrefix(why, "2 jobs stood before it") {
		t.Errorf("why: %s", why)
	}
}

// Without an interval jobs beyond the window and the limits on bids do not wait
// for nothing: there is one auction after the other.
func TestWithoutInterval(t *testing.T) {
	s := newSetting(t, row(8, 1, 0), "interval=0:window=2:bids=1:slurm_bids=off")
	for i := range 10 {
		s.submit(job(fmt.Sprint(i), model.Request{Nodes: 1, CoresPerNode: 1}))
	}
	if got := s.started(3); len(got) != 8 {
		t.Errorf("%d jobs were started, want 8", len(got))
	}
	if e := s.Explain(); len(e.Tables) < 8 || !strings.Contains(e.Tables[0].Title, "auction 1") {
		t.Errorf("the account tells of %d tables", len(e.Tables))
	}
}

// An auction that is not solved to the end leaves fewer bids to the next, where
// that is asked for.
func TestCut(t *testing.T) {
	s := newSetting(t, row(8, 4, 0), "cut=on:bids=9:bids_per_job=2")
	s.p.solver = rogue(func(p *winner.Problem) (*winner.Answer, error) {
		a := winner.Greedy(p)
		a.Bound, a.Proven = a.Bound+1, false
		return a, nil
	})
	for i := range 30 {
		s.submit(job(fmt.Sprint(i), model.Request{Nodes: 1, CoresPerNode: 3}))
	}
	var most []int
	for i := range 6 {
		s.Step(time.Duration(i) * 5 * time.Second)
		most = append(most, s.p.most)
		for id := range s.ids {
			if s.Allocation(s.ids[id]) != nil {
				s.End(s.ids[id])
			}
		}
	}
	if want := []int{6, 4, 2, 2, 2, 2}; !slices.Equal(most, want) {
		t.Errorf("limits on bids %v, want %v", most, want)
	}
}

func TestWhy(t *testing.T) {
	s := newSetting(t, row(4, 4, 1), "window=4:bids=40")
	s.submit(
		job("wide", model.Request{Nodes: 4, CoresPerNode: 3}),
		job("loser", model.Request{Nodes: 2, CoresPerNode: 2}),
		job("greedy", model.Request{Nodes: 4, CoresPerNode: 4, GPUs: 1}),
		job("small", model.Request{Nodes: 1, CoresPerNode: 1}),
		job("late", model.Request{Nodes: 1, CoresPerNode: 1}),
	)
	if got := s.Why(s.ids["wide"]); got != "no auction was held yet" {
		t.Errorf("before: %s", got)
	}
	expectKeys(t, s.started(0), "wide", "small")
	for id, want := range map[string]string{
		"loser":  "lost: n[001-002] went to wide",
		"greedy": "lost: n[001-004] went to wide, small",
		"late":   "4 jobs stood before it in the latest auction, and no more may bid (window); the next auction is at 00:00:05",
	} {
		if got := s.Why(s.ids[id]); !strings.Contains(got, want) {
			t.Errorf("job %s: %q, want %q", id, got, want)
		}
	}
	s.started(5 * time.Second)
	if got := s.Why(s.ids["greedy"]); !strings.Contains(got, "no bid was possible: needs 4 nodes with 4 cores, 1 GPU; no node has that free now") {
		t.Errorf("greedy: %s", got)
	}
}

// What else there is to say about those who wait.
func TestWhyOfLosers(t *testing.T) {
	s := newSetting(t, row(8, 1, 0), "slurm_bids=off:bids=9:bids_per_job=8")
	for i := range 8 {
		j := job(fmt.Sprint("small", i), model.Request{Nodes: 1, CoresPerNode: 1, NodeList: names(i+1, i+1)})
		j.Priority = 9
		s.submit(j)
	}
	s.submit(job("wide", model.Request{Nodes: 8, CoresPerNode: 1}), job("last", model.Request{Nodes: 1, CoresPerNode: 1}))
	s.started(0)
	for id, want := range map[string]string{
		"wide": "its bid lost: n[001-008] went to small0, small1, small2, small3, small4, 3 more",
		"last": "the jobs before it made 9 bids, and no more are allowed (bids)",
	} {
		if got := s.Why(s.ids[id]); !strings.HasPrefix(got, want) {
			t.Errorf("job %s: %q, want %q", id, got, want)
		}
	}
	// A solver that looks at nothing has nobody to blame.
	s = newSetting(t, row(2, 1, 0), "slurm_bids=off")
	s.p.solver = rogue(func(*winner.Problem) (*winner.Answer, error) { return &winner.Answer{Bound: 1 << 40}, nil })
	s.submit(job("busy", model.Request{Nodes: 1, CoresPerNode: 1}), job("idle", model.Request{Nodes: 1, CoresPerNode: 1}))
	s.started(0) // alone, as nothing runs
	s.started(5 * time.Second)
	if got := s.Why(s.ids["idle"]); !strings.Contains(got, "its bid did not win, though nobody took n002") {
		t.Errorf("idle: %s", got)
	}
}

func expectKeys(t *testing.T, got map[string]string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("started %v, want %v", got, want)
	}
	for _, id := range want {
		if _, ok := got[id]; !ok {
			t.Errorf("job %s was not started: %v", id, got)
		}
	}
}

// The account of a step tells of nodesets, bids and winners.
func TestExplain(t *testing.T) {
	s := workedExample(t, "slurm_bids=off")
	s.started(5 * time.Second)
	e := s.Explain()
	if want := "Of 4 jobs that could bid 4 did;"; !strings.HasPrefix(e.Lead, want) || !strings.Contains(e.Lead, "nodesets: 6, jobs started: 4.") {
		t.Errorf("lead: %s", e.Lead)
	}
	find := func(title string) *policy.ExplanationTable {
		for i := range e.Tables {
			if e.Tables[i].Title == title {
				return &e.Tables[i]
			}
		}
		t.Fatalf("no table %q", title)
		return nil
	}
	if got := find("Nodesets").Rows; len(got) != 6 || !slices.Equal(got[5], []string{"n081", "n144", "64", "512", "2"}) {
		t.Errorf("nodesets: %v", got)
	}
	won := 0
	bids := find("Bids")
	for _, r := range bids.Rows {
		if len(r) != len(bids.Columns) {
			t.Fatalf("row %v has no cell for each of %v", r, bids.Columns)
		}
		if r[len(r)-1] == "won" {
			won++
		}
	}
	if won != 4 {
		t.Errorf("%d bids won, want 4", won)
	}
	if got := find("Winners").Rows; len(got) != 4 || got[0][0] != "J1" || got[0][3] != "n[001-064,081-144]" {
		t.Errorf("winners: %v", got)
	}
	if got := find("Summary").Rows; got[0][1] != "10" {
		t.Errorf("summary: %v", got)
	}
	// The picture has a row for each bid; J1 won two stretches of nodes.
	if last := e.Bars[len(e.Bars)-1].Row; int(last) != len(bids.Rows)-1 {
		t.Errorf("the picture has %d rows for %d bids", last+1, len(bids.Rows))
	}
	var stretches [][2]int32
	for _, b := range e.Bars {
		if b.Won && strings.Contains(b.Label, "job J1,") {
			stretches = append(stretches, [2]int32{b.From, b.To})
		}
	}
	if !slices.Equal(stretches, [][2]int32{{0, 63}, {80, 143}}) {
		t.Errorf("J1 won %v", stretches)
	}
}

// Settings that make no sense are refused.
func TestSettings(t *testing.T) {
	for _, spec := range []string{
		"window=-1", "bids=x", "bids_per_job=1.5", "interval=-5s", "interval=x", "slurm_bids=yes", "cut=1",
		"classes=D", "classes=none", "classes=", "avoid=X", "form=lp", "iterations=-1", "tree_nodes=many", "bound_iterations=x",
	} {
		if _, err := Entry.Make(spec); err == nil {
			t.Errorf("%s was accepted", spec)
		}
	}
	p := make1(t, "window=0:bids=0:bids_per_job=0:interval=3s:classes=AB:avoid=none:iterations=7:bound_iterations=8:tree_nodes=9")
	if p.limits.Iterations != 7 || p.limits.BoundIterations != 8 || p.limits.TreeNodes != 9 || p.interval != 3*time.Second {
		t.Errorf("settings were lost: %+v", p.limits)
	}
}

// A job that the classes leave out is started all the same when nothing else runs.
func TestNothingWaitsForEver(t *testing.T) {
	c := row(5, 4, 0)
	c.Nodes[2].Cores = 1
	jobs := []model.Job{*job("wide", model.Request{Nodes: 4, CoresPerNode: 4})}
	res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, "classes=AB")})
	if err != nil {
		t.Fatal(err)
	}
	if o := res.Outcomes[0]; o.State != sim.Finished || o.Start != 0 {
		t.Errorf("outcome %+v", o)
	}
}
