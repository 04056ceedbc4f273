package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy/catalog"
	"muster/policy/priority"
	"muster/sim"
)

// One node, one job at a time, an hour each. Ann has submitted four jobs, Ben two
// later on: first come first served they wait for all of hers, with fair share the
// two take turns as soon as she has used something.
func TestFairShareTakesTurns(t *testing.T) {
	c := &model.Cluster{Name: "one", Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 1 << 30}}}
	var jobs []model.Job
	add := func(user string, submit time.Duration) {
		jobs = append(jobs, model.Job{ID: fmt.Sprint(user, len(jobs)), User: user, Group: "lab", Submit: submit,
			Run: time.Hour, WallTime: time.Hour, Request: model.Request{Nodes: 1, Cores: 4}})
	}
	for range 4 {
		add("ann", 0)
	}
	add("ben", time.Minute)
	add("ben", time.Minute)
	order := func(cfg *priority.Config) string {
		res := run(t, "fcfs", sim.Config{Cluster: c, Jobs: jobs, Priority: cfg})
		names := make([]string, len(jobs))
		for i, o := range res.Outcomes {
			names[o.Start/time.Hour] = jobs[i].ID
		}
		return strings.Join(names, " ")
	}
	if got, want := order(nil), "ann0 ann1 ann2 ann3 ben4 ben5"; got != want {
		t.Errorf("without priorities: %s, want %s", got, want)
	}
	cfg := priority.Defaults()
	cfg.WeightFairshare = 1000
	// After ann0: ben has used nothing, so ben4. Then both have used an hour, but Ann's is older and has decayed
	// more: ann1. Then Ann has used two: ben5.
	if got, want := order(&cfg), "ann0 ben4 ann1 ben5 ann2 ann3"; got != want {
		t.Errorf("with fair share: %s, want %s", got, want)
	}
	res := run(t, "fcfs", sim.Config{Cluster: c, Jobs: jobs, Priority: &cfg})
	for _, s := range res.Shares {
		switch {
		case s.User == "ann" && (s.Jobs != 4 || s.MeanWait != 2.75*3600):
			t.Errorf("ann: %+v", s)
		case s.User == "ben" && (s.Jobs != 2 || s.MeanWait != 2*3600-60):
			t.Errorf("ben: %+v", s)
		case s.User == "" && s.Jobs != 6:
			t.Errorf("account %s: %+v", s.Account, s)
		}
	}
}

// Priorities without any weight change nothing, whatever the policy.
func TestNoWeightsNoChange(t *testing.T) {
	none := priority.Defaults()
	for seed := range uint64(8) {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 77))}
		s := g.scenario(6, 25)
		for _, e := range catalog.Entries {
			var results [2]*sim.Result
			for k, cfg := range []*priority.Config{nil, &none} {
				p, err := catalog.New(e.Name)
				if err != nil {
					t.Fatal(err)
				}
				if results[k], err = sim.Run(context.Background(), sim.Config{Cluster: s.Cluster, Jobs: s.Jobs, Policy: p, Priority: cfg}); err != nil {
					t.Fatalf("seed %d: %s: %v", seed, e.Name, err)
				}
			}
			if !reflect.DeepEqual(results[0].Outcomes, results[1].Outcomes) {
				t.Errorf("seed %d: %s: other outcomes", seed, e.Name)
			}
		}
	}
}

// With every weight set, every policy starts what it can, the same way each time, and
// first come first served starts nothing before a job of higher priority that came earlier.
func TestEveryPolicyRunsInOrderOfPriority(t *testing.T) {
	cfg := priority.Defaults()
	cfg.WeightAge, cfg.WeightFairshare, cfg.WeightJobSize, cfg.WeightQOS, cfg.CalcPeriod = 50, 1000, 300, 200, 2*time.Second
	cfg.MaxAge, cfg.DecayHalfLife = time.Minute, time.Minute
	cfg.QOS = []priority.QOS{{Name: "high", Priority: 9}, {Name: "low", Priority: 1}}
	for seed := range uint64(8) {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 78))}
		s := g.scenario(6, 25)
		for i := range s.Jobs {
			s.Jobs[i].User, s.Jobs[i].QOS = fmt.Sprint("u", i%3), []string{"", "low", "high"}[g.IntN(3)]
		}
		for _, e := range catalog.Entries {
			var first *sim.Result
			for range 2 {
				p, err := catalog.New(e.Name)
				if err != nil {
					t.Fatal(err)
				}
				res, err := sim.Run(context.Background(), sim.Config{Cluster: s.Cluster, Jobs: s.Jobs, Policy: p, Priority: &cfg})
				if err != nil {
					t.Fatalf("seed %d: %s: %v", seed, e.Name, err)
				}
				if first != nil && !(reflect.DeepEqual(first.Outcomes, res.Outcomes) && reflect.DeepEqual(first.Shares, res.Shares)) {
					t.Errorf("seed %d: %s: another result the second time", seed, e.Name)
				}
				first = res
			}
		}
	}
}
