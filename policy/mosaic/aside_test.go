package mosaic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/sim"
)

// misled is the policy with a planner that misreads one job in its first step.
type misled struct {
	*mosaic
	spoil func(q *piece)
	done  bool
	aside map[policy.JobID]bool // jobs that were put aside
}

// note looks for jobs that are aside: what is known of a job goes with it.
func (m *misled) note() {
	for id, j := range m.jobs {
		if j.aside {
			m.aside[id] = true
		}
	}
}

func (m *misled) Step(v *policy.View, plan *policy.Plan) {
	defer m.note()
	if m.done {
		m.mosaic.Step(v, plan)
		return
	}
	m.done = true
	m.readAgain(v)
	m.replan(v)
	m.spoil(&m.job(m.due[0]).pieces[0])
	m.startDue(v, plan, true)
	m.startElsewhere(v, plan)
}

// TestMisplanned: a job whose place is not free in a fresh plan, and one whose
// start is refused by the applier, start all the same; so do all others of its shape, as
// planned. It cannot happen while the planner and the view agree on what is free, so the
// planner is misled here.
func TestMisplanned(t *testing.T) {
	c := &model.Cluster{Name: "two"}
	for i := range 2 {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 4, Memory: 8})
	}
	var jobs []model.Job
	for i := range 6 {
		jobs = append(jobs, model.Job{ID: fmt.Sprint(i), Run: 10 * time.Second, Request: model.Request{Nodes: 1, CoresPerNode: 4, Memory: 4}})
	}
	// It makes the policy plan again, without the jobs that it has given up.
	jobs = append(jobs, model.Job{ID: "late", Submit: 5 * time.Second, Run: time.Second, Request: model.Request{Nodes: 1, CoresPerNode: 1}})
	for _, x := range []struct {
		name    string
		spoil   func(q *piece)
		refused int
		end     time.Duration
	}{
		{"its place is not free", func(q *piece) { q.cores = 5 }, 0, 31 * time.Second},
		// A node is idle until the next step.
		{"it is refused", func(q *piece) { q.memory++ }, 1, 36 * time.Second},
	} {
		p, err := Entry.Make("effort=0")
		if err != nil {
			t.Fatal(err)
		}
		m := &misled{mosaic: p.(*mosaic), spoil: x.spoil, aside: map[policy.JobID]bool{}}
		res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: m})
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		aside := len(m.aside)
		last := time.Duration(0)
		for _, o := range res.Outcomes {
			last = max(last, o.End)
		}
		if aside != 1 || res.Refused != x.refused || last != x.end {
			t.Errorf("%s: %d jobs are aside, %d starts refused, all ends at %v, want 1, %d and %v", x.name, aside, res.Refused, last, x.refused, x.end)
		}
	}
}

// TestLongPlans: thousands of jobs of hundreds of years, one after the other,
// are planned without an overflow: every start fits, and none overlaps another.
func TestLongPlans(t *testing.T) {
	const now = 140 * 365 * 24 * time.Hour // close to the last instant of a simulation
	for _, jobs := range []int{2000, 4000} {
		if jobs > 2000 && testing.Short() {
			continue
		}
		for _, short := range []int{0, jobs / 2} {
			p := &problem{needs: []need{{cores: 8}}, worth: testWorth(), balance: 50, patience: -1}
			p.now.reset(now, []seg{{to: 1, cores: 8, gpus: 2, memory: 16}})
			for i := range jobs {
				run := longestOf(jobs)
				if i < short {
					run = time.Hour
				}
				p.tasks = append(p.tasks, task{width: 1, run: run, cost: run.Seconds() * run.Seconds()})
				p.meanRun += run / time.Duration(jobs)
			}
			ranks := make([]int, jobs)
			for i := range ranks {
				ranks[i] = -1
			}
			s := searcher{problem: p}
			s.solve(ranks, 0, nil)
			next := time.Duration(now)
			for i, at := range s.best.start[:jobs] {
				if at < now || at > now+longestPlan {
					t.Fatalf("%d jobs: job %d starts at %v", jobs, i, at)
				}
				next = max(next, at+p.tasks[i].run)
			}
			sum := time.Duration(now)
			exact := 0.0 // what the plan costs, in floating point
			for i := range p.tasks {
				sum += p.tasks[i].run
				exact += float64(s.price(&p.tasks[i], s.best.start[i]-now))
			}
			if next != sum {
				t.Fatalf("%d jobs: all ends at %v, want %v", jobs, next, sum)
			}
			exact = 50*exact/float64(jobs)/256 + 50*float64((next-now)/time.Millisecond)
			if cost := float64(s.weigh(&s.best)); cost < 0.999*exact || cost > 1.001*exact {
				t.Errorf("%d jobs: the plan costs %g, want %g", jobs, cost, exact)
			}
		}
	}
}

// TestLongWaits: short jobs that wait for years cost what they do, however many.
func TestLongWaits(t *testing.T) {
	const jobs, wait = 10_000, 90 * 365 * 24 * time.Hour
	p := &problem{balance: 0, meanRun: time.Hour}
	p.now.reset(0, []seg{{to: 1, cores: 8}})
	s := searcher{problem: p}
	s.best.size(jobs)
	for i := range jobs {
		p.tasks = append(p.tasks, task{run: time.Millisecond})
		s.best.start[i] = wait
	}
	if got, want := s.weigh(&s.best), 100*int64(wait/time.Millisecond)*17; got != want {
		t.Errorf("the plan costs %d, want %d", got, want)
	}
}

// TestTotals: a mean is exact even where the sum is larger than 64 bits; so is a portion.
func TestTotals(t *testing.T) {
	var sum total
	for i := range int64(1000) {
		sum.add(1<<62 + 2*i)
	}
	if got := sum.over(1000); got != 1<<62+999 {
		t.Errorf("the mean is %d, want %d", got, 1<<62+999)
	}
	if got := portion(1<<62, 3, 4); got != 3<<60 {
		t.Errorf("three quarters are %d, want %d", got, 3<<60)
	}
}
