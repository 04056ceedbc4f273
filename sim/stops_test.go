package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/priority"
	"muster/sim"
)

// One node. A low job of 100 s runs from 0; at 30 s a high one of 50 s comes. Suspended,
// the low one has 70 s left at 80 s and ends at 150; requeued it begins anew and ends at
// 180; cancelled it is over at 30.
func TestPreemptionByHand(t *testing.T) {
	c := &model.Cluster{Name: "one", Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30}}}
	job := func(id, class string, submit, run int) model.Job {
		return model.Job{ID: id, QOS: class, User: id, Submit: seconds(submit), Run: seconds(run), WallTime: seconds(run), Request: model.Request{Nodes: 1, Cores: 4}}
	}
	jobs := []model.Job{job("low", "low", 0, 100), job("high", "high", 30, 50)}
	cfg := priority.Defaults()
	cfg.DecayHalfLife = 0
	for _, w := range []struct {
		how        string
		start, end int
		state      sim.State
		used       float64 // core seconds of the low job
	}{
		{"suspend", 0, 150, sim.Finished, 400}, {"move", 80, 152, sim.Finished, 408}, // it takes 2 s to go on
		{"requeue", 80, 180, sim.Finished, 520}, {"cancel", 0, 30, sim.Preempted, 120},
	} {
		res := run(t, "easy:preempt="+w.how+":qos=low<high", sim.Config{Cluster: c, Jobs: jobs, Priority: &cfg, Moving: sim.Moving{Fixed: 2 * time.Second}})
		low, high := res.Outcomes[0], res.Outcomes[1]
		if high.Start != seconds(30) || high.End != seconds(80) || high.State != sim.Finished {
			t.Errorf("%s: the high job: %+v", w.how, high)
		}
		if low.Start != seconds(w.start) || low.End != seconds(w.end) || low.State != w.state || res.Stops != 1 {
			t.Errorf("%s: the low job: %+v, %d stops", w.how, low, res.Stops)
		}
		if res.CoreSeconds != w.used+200 {
			t.Errorf("%s: %v core seconds, want %v", w.how, res.CoreSeconds, w.used+200)
		}
		for _, s := range res.Shares {
			if s.User == "low" && s.Usage != w.used {
				t.Errorf("%s: the low user is charged %v, want %v", w.how, s.Usage, w.used)
			}
		}
	}
}

// A job that shares a GPU or the network is slowed down by others; suspended, it has as
// much left to do as before. Every job is over, and what ran was as long as it should be.
func TestPreemptionUnderEveryPolicy(t *testing.T) {
	for seed := range uint64(6) {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 79)), traffic: seed%2 == 0}
		s := g.scenario(5, 25)
		for i := range s.Jobs {
			s.Jobs[i].QOS, s.Jobs[i].User = []string{"low", "mid", "high"}[g.IntN(3)], fmt.Sprint("u", i%4)
		}
		cfg := priority.Defaults()
		cfg.WeightFairshare, cfg.WeightAge, cfg.CalcPeriod = 100, 10, 3*time.Second
		stops := 0
		for _, e := range catalog.Entries {
			for _, how := range []string{"suspend", "move", "requeue"} {
				p, err := catalog.New(e.Name + ":preempt=" + how + ":qos=low<mid<high")
				if err != nil {
					t.Fatal(err)
				}
				res, err := sim.Run(context.Background(), sim.Config{Cluster: s.Cluster, Jobs: s.Jobs, Policy: p, Priority: &cfg, NoKill: true})
				if err != nil {
					t.Fatalf("seed %d: %s, %s: %v", seed, e.Name, how, err)
				}
				stops += res.Stops
				for i, o := range res.Outcomes {
					if o.State != sim.Finished && o.State != sim.Impossible {
						t.Fatalf("seed %d: %s, %s: job %s is %s", seed, e.Name, how, s.Jobs[i].ID, o.State)
					}
					if j := s.Jobs[i].As(int(o.Alternative)); o.State == sim.Finished && !g.traffic && o.End-o.Start < j.Run && uniform(s.Cluster) {
						t.Fatalf("seed %d: %s, %s: job %s ran for %s, not %s", seed, e.Name, how, j.ID, o.End-o.Start, j.Run)
					}
				}
			}
		}
		if stops == 0 {
			t.Logf("seed %d: nobody was stopped", seed)
		}
	}
}

func uniform(c *model.Cluster) bool {
	for _, g := range c.GPUTypes {
		if g.Speed != 1 {
			return false
		}
	}
	return true
}

// Maintenance of the only node from 60 to 90 s: a job of 50 s runs before it, one of 70 s after.
func TestMaintenanceInASimulation(t *testing.T) {
	c := &model.Cluster{Name: "one", Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30}}}
	var jobs []model.Job
	for i, run := range []int{70, 50, 5} {
		jobs = append(jobs, model.Job{ID: fmt.Sprint(i), Run: seconds(run), WallTime: seconds(run), Request: model.Request{Nodes: 1, Cores: 4}})
	}
	cfg := priority.Defaults()
	for _, policies := range []string{"fcfs", "easy", "conservative", "first-fit"} {
		res := run(t, policies, sim.Config{Cluster: c, Jobs: jobs, Priority: &cfg,
			Windows: []policy.Window{{Name: "maint", From: seconds(60), Until: seconds(90), Nodes: []int32{0}}}})
		for i, want := range []int{90, 0, 50} {
			if res.Outcomes[i].Start != seconds(want) {
				t.Errorf("%s: job %d starts at %s, want %d s", policies, i, res.Outcomes[i].Start, want)
			}
		}
	}
}

// Nodes fail under jobs that run and jobs that are suspended, while ranks change.
func TestEverythingAtOnce(t *testing.T) {
	cfg := priority.Defaults()
	cfg.WeightFairshare, cfg.WeightAge, cfg.CalcPeriod = 100, 10, 3*time.Second
	for seed := range uint64(6) {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 80)), traffic: seed%2 == 0}
		s := g.scenario(5, 25)
		for i := range s.Jobs {
			s.Jobs[i].QOS, s.Jobs[i].User = []string{"low", "mid", "high"}[g.IntN(3)], fmt.Sprint("u", i%4)
		}
		var outages []sim.Outage
		for range 4 {
			from := g.span(0, 60)
			outages = append(outages, sim.Outage{Node: int32(g.IntN(len(s.Cluster.Nodes))), From: from, Until: from + g.span(1, 20), Kind: sim.OutageKind(g.IntN(2)), Requeue: g.IntN(3) > 0})
		}
		window := policy.Window{Name: "m", From: seconds(20), Until: seconds(40), Nodes: []int32{0}, Users: []string{"u1"}}
		for _, e := range catalog.Entries {
			for _, how := range []string{"suspend", "requeue", "cancel"} {
				res := run(t, e.Name+":preempt="+how+":qos=low<mid<high", sim.Config{Cluster: s.Cluster, Jobs: s.Jobs, Priority: &cfg, NoKill: true,
					Outages: outages, Windows: []policy.Window{window}})
				for i, o := range res.Outcomes {
					if o.State == sim.Pending || o.State == sim.Running {
						t.Fatalf("seed %d: %s, %s: job %s is %s", seed, e.Name, how, s.Jobs[i].ID, o.State)
					}
				}
			}
		}
	}
}

// A job that was suspended and resumed may be suspended again, for the next one.
func TestAJobIsSuspendedTwice(t *testing.T) {
	c := &model.Cluster{Name: "one", Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30}}}
	whole := model.Request{Nodes: 1, Cores: 4}
	jobs := []model.Job{
		{ID: "low", QOS: "low", Run: seconds(300), Request: whole},
		{ID: "first", QOS: "high", Submit: seconds(10), Run: seconds(20), Request: whole},
		{ID: "second", QOS: "high", Submit: seconds(100), Run: seconds(20), Request: whole},
	}
	res := run(t, "fcfs:preempt=suspend:qos=low<high", sim.Config{Cluster: c, Jobs: jobs})
	if o := res.Outcomes; res.Stops != 2 || o[1].Start != seconds(10) || o[2].Start != seconds(100) || o[0].End != seconds(340) {
		t.Errorf("%d stops, %+v", res.Stops, o)
	}
}

// Listing 4-3 in the simulator: a long job is suspended for short ones, twice, and continues.
func TestLatencyReductionInASimulation(t *testing.T) {
	c := &model.Cluster{Name: "one", GPUTypes: []model.GPUType{{Name: "g", Memory: 1 << 30, Speed: 1}},
		Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30, GPUs: []int{0}}}}
	request := model.Request{Cores: 4, GPUs: 1}
	jobs := []model.Job{
		{ID: "long", Run: seconds(10000), Request: request},
		{ID: "other", Run: seconds(5000), Request: request},
		{ID: "short1", Submit: seconds(1000), Run: seconds(60), Request: request},
		{ID: "short2", Submit: seconds(3000), Run: seconds(60), Request: request},
	}
	res := run(t, "mccs-latency:short=10m", sim.Config{Cluster: c, Jobs: jobs})
	want := []int{0, 10120, 1000, 3000}
	for i, o := range res.Outcomes {
		if o.Start != seconds(want[i]) || o.State != sim.Finished {
			t.Errorf("job %s: %+v, want a start at %d s", jobs[i].ID, o, want[i])
		}
	}
	if res.Stops != 2 {
		t.Errorf("%d stops", res.Stops)
	}
}

// A job that makes way goes on on another node with what it has left: save and restore take as long as its
// memory and its GPU's. Where it cannot be saved it is suspended, and goes on where it was.
func TestMovedByHand(t *testing.T) {
	c := &model.Cluster{
		Name: "two", GPUTypes: []model.GPUType{{Name: "a", Memory: 6 << 30, Speed: 1}, {Name: "b", Memory: 6 << 30, Speed: 0.5}},
		Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30, GPUs: []int{0}}, {Name: "n2", Cores: 4, Memory: 8 << 30, GPUs: []int{1}}},
	}
	job := func(id, class string, submit, run, nodes int, on ...string) model.Job {
		return model.Job{ID: id, QOS: class, User: id, Submit: seconds(submit), Run: seconds(run), WallTime: seconds(10 * run), Request: model.Request{Nodes: nodes, Cores: 4 * nodes, Memory: 4 << 30, GPUs: 1, NodeList: on}}
	}
	moving := sim.Moving{Rate: 1 << 30}
	// 30 of 100 s are done; it is saved until 40 s, made again until 50 s, and has twice 70 s to go on the slow device.
	res := run(t, "easy:preempt=move:qos=low<high", sim.Config{Cluster: c, Moving: moving, Jobs: []model.Job{job("low", "low", 0, 100, 1), job("high", "high", 30, 500, 1, "n1")}})
	if low := res.Outcomes[0]; low.Start != seconds(40) || low.End != seconds(50+140) || low.State != sim.Finished || res.Moves != 1 {
		t.Errorf("%+v, %d moves", low, res.Moves)
	}
	res = run(t, "easy:preempt=move:qos=low<high", sim.Config{Cluster: c, Moving: moving, Jobs: []model.Job{job("low", "low", 0, 100, 2), job("high", "high", 30, 500, 1, "n1")}})
	if low := res.Outcomes[0]; low.Start != 0 || low.End <= seconds(530) || low.State != sim.Finished || res.Moves != 0 {
		t.Errorf("%+v, %d moves", low, res.Moves)
	}
}

// A long job that stands still for a short one goes on on another node when that is free before the short one
// has ended. Without the setting it waits until its own place is free.
func TestLatencyReductionMovesAJob(t *testing.T) {
	c := &model.Cluster{Name: "two", GPUTypes: []model.GPUType{{Name: "g", Memory: 1 << 30, Speed: 1}},
		Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30, GPUs: []int{0}}, {Name: "n2", Cores: 4, Memory: 8 << 30, GPUs: []int{0}}}}
	request := model.Request{Cores: 4, GPUs: 1}
	jobs := []model.Job{
		{ID: "long", Run: seconds(10000), Request: request},
		{ID: "other", Run: seconds(1300), Request: request},
		{ID: "short", Submit: seconds(1000), Run: seconds(500), Request: request},
	}
	for setting, want := range map[string]struct{ end, moves int }{"no": {10500, 0}, "yes": {10302, 1}} {
		res := run(t, "mccs-latency:short=10m:move="+setting, sim.Config{Cluster: c, Jobs: jobs, Moving: sim.Moving{Rate: 1 << 30}})
		for i, o := range res.Outcomes {
			t.Logf("move=%s: %s from %v to %v", setting, jobs[i].ID, o.Start, o.End)
		}
		if long := res.Outcomes[0]; long.End != seconds(want.end) || res.Moves != want.moves {
			t.Errorf("move=%s: the long job ends at %v after %d moves, want %d s and %d", setting, long.End, res.Moves, want.end, want.moves)
		}
	}
}
