package sim_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy/catalog"
	"muster/sim"
)

// One node of four cores, from 100 s to 300 s. A job runs when the run begins, and ends at
// 150; one was submitted before; one comes after another; one is withdrawn while it waits, one
// while it runs; one has been made to go first; and one still runs at the end.
func TestPeriodByHand(t *testing.T) {
	c := &model.Cluster{Name: "one", Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30}}}
	job := func(id string, submit, run, cores int) model.Job {
		return model.Job{ID: id, Submit: seconds(submit), Run: seconds(run), WallTime: seconds(run), Request: model.Request{Nodes: 1, Cores: cores}}
	}
	first := int64(5)
	cfg := sim.Config{
		Cluster: c, Begin: seconds(100), Until: seconds(300),
		Jobs: []model.Job{
			job("runs", 0, 1000, 4), job("waits", 50, 20, 4), job("after", 100, 30, 4), job("leaves", 100, 10, 4), job("cut", 110, 1000, 4), job("pushed", 120, 10, 4), job("late", 290, 100, 1),
		},
		Adopted:   []sim.Adopted{{Job: 0, Alloc: &model.Allocation{Parts: []model.Part{{Node: 0, Cores: 4}}}, Start: seconds(10), End: seconds(150)}},
		After:     map[int][]int{2: {1}},
		Withdrawn: []sim.Withdrawal{{Job: 4, At: seconds(260)}, {Job: 3, At: seconds(140)}},
		Ranks:     []sim.Rank{{}, {}, {}, {}, {Nice: 1}, {Admin: &first}, {}},
	}
	res := run(t, "fcfs", cfg)
	for i, want := range []sim.Outcome{
		{Start: seconds(10), End: seconds(150), State: sim.Finished},
		{Start: seconds(160), End: seconds(180), State: sim.Finished},  // behind the one that was pushed
		{Start: seconds(180), End: seconds(210), State: sim.Finished},  // it comes at 180, before the nice one
		{Start: seconds(140), End: seconds(140), State: sim.Withdrawn}, // it never ran
		{Start: seconds(210), End: seconds(260), State: sim.Withdrawn},
		{Start: seconds(150), End: seconds(160), State: sim.Finished},
		{Start: seconds(290), State: sim.Running},
	} {
		if o := res.Outcomes[i]; o.Start != want.Start || o.End != want.End || o.State != want.State {
			t.Errorf("%s: %v to %v, %v; want %v to %v, %v", cfg.Jobs[i].ID, o.Start, o.End, o.State, want.Start, want.End, want.State)
		}
	}
}

// What does not fit together is refused, and what cannot be adopted waits.
func TestPeriodsThatMakeNoSense(t *testing.T) {
	c := &model.Cluster{Name: "one", Nodes: []model.Node{{Name: "n1", Cores: 4, Memory: 8 << 30}}}
	base := sim.Config{Cluster: c, Jobs: []model.Job{{ID: "a", Run: time.Second, Request: model.Request{Nodes: 1, Cores: 4}}}}
	alloc := &model.Allocation{Parts: []model.Part{{Node: 0, Cores: 4}}}
	for want, change := range map[string]func(*sim.Config){
		"must end after it begins":  func(c *sim.Config) { c.Begin, c.Until = 5, 4 },
		"ranks for 1 jobs":          func(c *sim.Config) { c.Ranks = make([]sim.Rank, 2) },
		"cannot run already":        func(c *sim.Config) { c.Adopted = []sim.Adopted{{Job: 1, Alloc: alloc}} },
		"is none of 1":              func(c *sim.Config) { c.Withdrawn = []sim.Withdrawal{{Job: -1}} },
		"cannot come after job 0":   func(c *sim.Config) { c.After = map[int][]int{0: {0}} },
		"cannot come after job 700": func(c *sim.Config) { c.After = map[int][]int{0: {700}} },
	} {
		cfg := base
		change(&cfg)
		p, err := catalog.New("fcfs")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Policy = p
		if _, err := sim.Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	base.Adopted = []sim.Adopted{{Alloc: &model.Allocation{Parts: []model.Part{{Node: 0, Cores: 9}}}, End: time.Hour}}
	if res := run(t, "fcfs", base); res.Outcomes[0].State != sim.Finished || res.Outcomes[0].End != time.Second || len(res.NotAdopted) != 1 {
		t.Errorf("a job that cannot be adopted: %+v, %v", res.Outcomes[0], res.NotAdopted)
	}
}
