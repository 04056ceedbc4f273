package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/sim"
)

// chooser tries every waiting job in order, each with all of its requests in
// order, and starts it with the first that fits.
type chooser struct{}

func (chooser) Traits() policy.Traits                 { return policy.Traits{Alternatives: true} }
func (chooser) Why(*policy.View, policy.JobID) string { return "nothing fits" }

func (chooser) Step(v *policy.View, p *policy.Plan) {
	for c := v.Queue(); ; {
		id, _, ok := c.Next()
		if !ok {
			return
		}
		for k := range v.Requests(id) {
			sh := v.ShapeAs(id, k)
			if sh == nil {
				continue
			}
			if a := v.Place(sh, policy.Sharing); a != nil {
				if !p.StartAs(id, k, a, policy.Reason{Code: policy.Fitted}) {
					panic("a placement was refused")
				}
				break
			}
		}
	}
}

// TestAlternatives: had the jobs asked from the beginning for what the chooser
// granted them, first fit would have done exactly what it did. So the oracle
// judges alternatives, too: where they go, how long they run, when they are killed.
func TestAlternatives(t *testing.T) {
	cases := howMany(150, 1000, 3000)
	granted, killed := 0, 0
	for seed := range cases {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 7))}
		s := g.scenario(5, 12)
		for i := range s.Jobs {
			s.Jobs[i].Alternatives = nil
			for range g.IntN(3) {
				other := g.request(s.Cluster)
				other.Run, other.WallTime = g.span(0, 8), g.span(0, 8)
				s.Jobs[i].Alternatives = append(s.Jobs[i].Alternatives, other)
			}
		}
		seen := &recorder{out: make([]oracleOutcome, len(s.Jobs))}
		res, err := sim.Run(context.Background(), sim.Config{
			Cluster: s.Cluster, Jobs: s.Jobs, Policy: chooser{}, NoKill: !s.Options.Kill, Observe: seen,
		})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, s)
		}
		asked := *s
		asked.Jobs = slices.Clone(s.Jobs)
		for i, o := range res.Outcomes {
			seen.out[i].Killed, seen.out[i].Impossible = o.State == sim.Killed, o.State == sim.Impossible
			asked.Jobs[i] = *s.Jobs[i].As(int(o.Alternative))
			if o.Alternative > 0 {
				granted++
				if o.State == sim.Killed {
					killed++
				}
			}
		}
		want := oracle(asked.Cluster, asked.Jobs, "first-fit", asked.Options)
		if d := difference(want, seen.out, 0); d != "" {
			t.Fatalf("seed %d: %s\n%s", seed, d, &asked)
		}
	}
	if granted == 0 || killed == 0 {
		t.Errorf("%d alternatives were granted, and %d of these jobs killed: that proves nothing", granted, killed)
	}
}

// TestAlternativeByHand: x fits with its second alternative alone, whose wall
// time kills it.
func TestAlternativeByHand(t *testing.T) {
	s := time.Second
	jobs := []model.Job{
		{ID: "w", Run: 9 * s, Request: model.Request{Nodes: 2, CoresPerNode: 3}},
		{
			ID: "x", Submit: s, Run: 2 * s, WallTime: 4 * s,
			Request: model.Request{Nodes: 3},
			Alternatives: []model.Request{
				{Nodes: 1, CoresPerNode: 2},
				{Cores: 2, Run: 6 * s, WallTime: 5 * s},
			},
		},
		{ID: "y", Submit: s, Run: 2 * s, Request: model.Request{Nodes: 3}, Alternatives: []model.Request{{Nodes: 4}}},
	}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: twoNodes(), Jobs: jobs, Policy: chooser{}, Watch: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	want := sim.Outcome{Start: s, End: 6 * s, State: sim.Killed, Alternative: 2, Nodes: 2, Blocks: 1, Span: 2}
	if r.Outcomes[1] != want {
		t.Errorf("x: %+v, want %+v", r.Outcomes[1], want)
	}
	if r.Outcomes[2].State != sim.Impossible {
		t.Errorf("y, which has no request that fits, is %v", r.Outcomes[2].State)
	}
	const told = "started: it fits best into what is free, with alternative 2: 2 cores on any nodes"
	if len(r.Watched) != 1 || r.Watched[0].Text != told {
		t.Errorf("of x it says %+v, want %q", r.Watched, told)
	}
}

// regular looks at the queue at whole multiples of every alone.
type regular struct {
	chooser
	every time.Duration
	steps []time.Duration
}

func (r *regular) Step(v *policy.View, p *policy.Plan) {
	if over := v.Now() % r.every; over > 0 {
		p.Skipped, p.Wake = true, v.Now()-over+r.every
		return
	}
	r.steps = append(r.steps, v.Now())
	r.chooser.Step(v, p)
	if v.Waiting() > len(p.Starts) {
		p.Wake = v.Now() + r.every
	}
}

func TestPolicyThatWorksAtIntervals(t *testing.T) {
	s := time.Second
	half := model.Request{Nodes: 1, CoresPerNode: 4}
	jobs := []model.Job{
		{ID: "a", Submit: 3 * s, Run: 12 * s, Request: half},
		{ID: "b", Submit: 4 * s, Run: 21 * s, Request: half},
		{ID: "c", Submit: 5 * s, Run: 1 * s, Request: half},
		{ID: "d", Submit: 90 * s, Run: 1 * s, Request: half},
	}
	p := &regular{every: 10 * s}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: twoNodes(), Jobs: jobs, Policy: p, Explain: []sim.Moment{{Step: 2}, {At: 25 * s}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{10 * s, 10 * s, 30 * s, 90 * s} {
		if got := r.Outcomes[i].Start; got != want {
			t.Errorf("%s starts at %v, want %v", jobs[i].ID, got, want)
		}
	}
	// At 20 s nothing is free, as a ends at 22 s. When b and c end at 31 s nothing
	// waits, but the policy does not look then, and asks for 40 s.
	want := []time.Duration{10 * s, 20 * s, 30 * s, 40 * s, 90 * s}
	if !slices.Equal(p.steps, want) {
		t.Errorf("it worked at %v, want %v", p.steps, want)
	}
	if r.Steps != len(want) || r.LastStep != 90*s {
		t.Errorf("%d steps were counted, the last at %v", r.Steps, r.LastStep)
	}
	if len(r.Explained) != 2 || r.Explained[0].At != 20*s || r.Explained[1].Step != 3 || r.Explained[1].At != 30*s {
		t.Errorf("explained: %+v", r.Explained)
	}
}

// asker asks for a step every second, and starts nothing; or, where it cheats,
// proposes less than was asked for, which is refused.
type asker struct {
	lazy
	cheats bool
}

func (a asker) Step(v *policy.View, p *policy.Plan) {
	p.Wake = v.Now() + time.Second
	c := v.Queue()
	if id, _, ok := c.Next(); ok && a.cheats {
		p.Start(id, &model.Allocation{Parts: []model.Part{{Cores: 1}}}, policy.Reason{})
	}
}

func TestPolicyThatAsksForEver(t *testing.T) {
	jobs := []model.Job{{ID: "x", Run: time.Second, Request: model.Request{Nodes: 1, CoresPerNode: 2}}}
	for _, p := range []policy.Policy{asker{}, asker{cheats: true}} {
		_, err := sim.Run(context.Background(), sim.Config{Cluster: twoNodes(), Jobs: jobs, Policy: p})
		if err == nil || !strings.Contains(err.Error(), "left 1 jobs waiting for ever") || !strings.Contains(err.Error(), "job x: nobody cares") {
			t.Errorf("%+v: %v", p, err)
		}
	}
	// Without jobs there is nothing to ask for.
	if r, err := sim.Run(context.Background(), sim.Config{Cluster: twoNodes(), Policy: asker{}}); err != nil || r.Steps != 0 {
		t.Errorf("no jobs: %+v, %v", r, err)
	}
}

// explaining keeps an account of its own.
type explaining struct{ chooser }

func (explaining) Explain(v *policy.View) *policy.Explanation {
	return &policy.Explanation{Lead: fmt.Sprintf("at %v %d wait", v.Now(), v.Waiting()), Tables: []policy.ExplanationTable{
		{Title: "Own", Columns: []string{"now"}, Rows: [][]string{{v.Now().String()}}},
		{Title: "Empty ones are left out", Columns: []string{"now"}},
	}}
}

func TestExplain(t *testing.T) {
	s := time.Second
	jobs := []model.Job{
		{ID: "x", Run: 10 * s, Request: model.Request{Nodes: 2, CoresPerNode: 3}},
		{ID: "y", Run: 5 * s, Request: model.Request{Nodes: 2, CoresPerNode: 2}},
		{ID: "z", Submit: 2 * s, Run: s, Request: model.Request{Cores: 1}},
	}
	moments := []sim.Moment{{At: 2 * s}, {Step: 1}, {Step: 2}, {At: 3 * s}, {Step: 99}, {At: time.Hour}}
	for _, tc := range []struct {
		policy policy.Policy
		want   string
	}{
		{explaining{}, `
1 0s at 0s 1 wait
  Own [now]
    [0s]
  Started [job asks for nodes why]
    [x 2 nodes with 3 cores a,b it fits best into what is free]
  Waiting, in the order of the queue [job asks for why]
    [y 2 nodes with 2 cores nothing fits]
2 2s at 2s 1 wait
  Own [now]
    [2s]
  Started [job asks for nodes why]
    [z 1 core on any nodes a it fits best into what is free]
  Waiting, in the order of the queue [job asks for why]
    [y 2 nodes with 2 cores nothing fits]
3 3s at 3s 1 wait
  Own [now]
    [3s]
  Waiting, in the order of the queue [job asks for why]
    [y 2 nodes with 2 cores nothing fits]`},
		{nil, `
1 0s Jobs started: 1. Jobs that wait: 1.
  Started [job asks for nodes why]
    [x 2 nodes with 3 cores a,b it was its turn]
  Waiting, in the order of the queue [job asks for why]
    [y 2 nodes with 2 cores needs 2 nodes with 2 cores; no node has that free now (too few cores); reserved for 00:00:10 at the latest]
2 2s Jobs started: 1. Jobs that wait: 1.
  Started [job asks for nodes why]
    [z 1 core on any nodes a it ends before the reservation of job y at 00:00:10]
  Waiting, in the order of the queue [job asks for why]
    [y 2 nodes with 2 cores needs 2 nodes with 2 cores; no node has that free now (too few cores); reserved for 00:00:10 at the latest]
3 3s Jobs started: 0. Jobs that wait: 1.
  Waiting, in the order of the queue [job asks for why]
    [y 2 nodes with 2 cores needs 2 nodes with 2 cores; no node has that free now (too few cores); reserved for 00:00:10 at the latest]`},
	} {
		cfg := sim.Config{Cluster: twoNodes(), Jobs: jobs, Policy: tc.policy, Explain: moments}
		if cfg.Policy == nil {
			var err error
			if cfg.Policy, err = catalog.New("easy"); err != nil {
				t.Fatal(err)
			}
		}
		r, err := sim.Run(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range r.Explained {
			got += fmt.Sprintf("\n%d %v %s", e.Step, e.At, e.Lead)
			for _, table := range e.Tables {
				got += fmt.Sprintf("\n  %s %v", table.Title, table.Columns)
				for _, row := range table.Rows {
					got += fmt.Sprintf("\n    %v", row)
				}
			}
		}
		if got != tc.want {
			t.Errorf("got %s\nwant %s", got, tc.want)
		}
		for i, want := range []int{2, 1, 2, 3, 0, 0} {
			e := r.ExplainedAt(moments[i])
			if want == 0 && e != nil || want > 0 && (e == nil || e.Step != want) {
				t.Errorf("%+v is %+v, want step %d", moments[i], e, want)
			}
		}
	}
}

// Of a long queue the first jobs are listed.
func TestExplainLongQueue(t *testing.T) {
	jobs := make([]model.Job, 151)
	for i := range jobs {
		jobs[i] = model.Job{ID: fmt.Sprint(i), Run: time.Second, Request: model.Request{Nodes: 2, CoresPerNode: 4}}
	}
	r := run(t, "fcfs", sim.Config{Cluster: twoNodes(), Jobs: jobs, Explain: []sim.Moment{{Step: 1}}})
	if got := r.Explained[0].Tables[1]; got.Title != "Waiting, in the order of the queue: the first 100 of 150" || len(got.Rows) != 100 {
		t.Errorf("%s, %d rows", got.Title, len(got.Rows))
	}
}

// A sweep explains steps of the first seed and size.
func TestSweepExplains(t *testing.T) {
	s := sim.Sweep{
		Cluster: twoNodes(), Seeds: []uint64{1, 2}, Nodes: []int{2, 3}, Workers: 1, Explain: []sim.Moment{{Step: 1}},
		Policies: []sim.NamedPolicy{
			{Name: "fcfs", New: func() (policy.Policy, error) { return catalog.New("fcfs") }},
			{Name: "sjf", New: func() (policy.Policy, error) { return catalog.New("sjf") }},
		},
		Workload: func(uint64) ([]model.Job, error) {
			return []model.Job{{ID: "x", Run: time.Second, Request: model.Request{Cores: 1}}}, nil
		},
	}
	runs, err := s.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range runs {
		if want := min(1, max(0, 2-i)); len(r.Explained) != want {
			t.Errorf("run %d explains %d steps, want %d", i, len(r.Explained), want)
		}
	}
}
