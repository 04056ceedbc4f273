package tsubame

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/exp"
	"muster/exp/exptest"
	"muster/internal/need"
	"muster/model"
	"muster/policy/catalog"
	"muster/report"
	"muster/sim"
)

// small is the experiment on a small scale; the tests ask it different things.
var small = sync.OnceValues(func() (*exp.Result, error) {
	o := exp.Options{Seed: 1, Runs: 2, Days: need.Rounds(15, 30), Workers: 2}
	if testing.Short() {
		o.Days = 12
	}
	return run(context.Background(), o)
})

func smallRow(t *testing.T, metric string) exp.Row {
	t.Helper()
	r, err := small()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Metric == metric {
			return row
		}
	}
	t.Fatalf("there is no row %s", metric)
	return exp.Row{}
}

// Section 4.2: jobs wait less and finish sooner, and hardly run longer.
func TestRQueueWaitsLess(t *testing.T) {
	if r := smallRow(t, "wait_change_pct"); r.High >= 0 {
		t.Errorf("the wait changes by up to %v %%; want less in every seed", r.High)
	}
	if r := smallRow(t, "run_change_pct"); r.Low <= 0 || r.High > 1 {
		t.Errorf("the run time changes by %v to %v %%; want a little more", r.Low, r.High)
	}
	if r := smallRow(t, "life_change_pct"); r.High >= 0 {
		t.Errorf("the life time changes by up to %v %%; want less in every seed", r.High)
	}
	if r := smallRow(t, "finish_later_pct"); r.High > 50 {
		t.Errorf("%v %% of jobs finish later; want a small part", r.High)
	}
	// Transfers cost 4.67 ms each, and there are at most 100,000.
	if r := smallRow(t, "worst_run_increase_min"); r.High < 4 || r.High > 10 {
		t.Errorf("the worst increase is %v min; the paper's is about 7", r.High)
	}
}

// Table 3: with every ten nodes more the R queue gains more, and its jobs run less long.
func TestMoreNodesMoreGain(t *testing.T) {
	for _, quantity := range []string{"wait", "run", "life"} {
		before := math.Inf(-1)
		for _, n := range sizes {
			r := smallRow(t, fmt.Sprintf("table3_%s_gain_s_%d", quantity, n))
			if r.Ours <= before {
				t.Errorf("%s: %v s gained on %d nodes, %v s with ten fewer", quantity, r.Ours, n, before)
			}
			before = r.Ours
		}
	}
}

// The less room jobs leave, the less there is to gain.
func TestWholeNodesLeaveLessToGain(t *testing.T) {
	half, most, nearly := smallRow(t, "wait_change_pct"), smallRow(t, "wait_change_pct_whole_nodes_75"), smallRow(t, "wait_change_pct_whole_nodes_90")
	if !(half.Ours < most.Ours && most.Ours < nearly.Ours && nearly.Ours < 0) {
		t.Errorf("the wait changes by %v, %v and %v %%", half.Ours, most.Ours, nearly.Ours)
	}
}

// Section 3: for every shape of the congested queue and every seed, the R queue finishes first.
func TestCongestedQueueIsThroughSooner(t *testing.T) {
	for _, sh := range shapes {
		if r := smallRow(t, "congested_makespan_change_pct_"+sh.name); r.High > 0 || r.Low < -40 {
			t.Errorf("%s: %v to %v %%; want sooner, by some 15 to 30", sh.name, r.Low, r.High)
		}
	}
}

func TestResultCanBeShown(t *testing.T) {
	r, err := small()
	if err != nil {
		t.Fatal(err)
	}
	page := exptest.Page(t, r)
	gantts := 0
	for _, s := range r.Page.Sections {
		if g, ok := s.(*report.Gantt); ok {
			gantts++
			if len(g.Kinds) != 3 {
				t.Errorf("%s: %d colours, want those of native, base and server", g.Title, len(g.Kinds))
			}
			seen := map[uint8]bool{}
			for _, b := range g.Blocks {
				seen[b.Kind] = true
			}
			if want := 1 + 2*(gantts-1); len(seen) != want { // the G queue borrows nothing
				t.Errorf("%s: blocks of %d kinds, want %d", g.Title, len(seen), want)
			}
		}
	}
	if gantts != 2 {
		t.Errorf("%d Gantts, want Figs. 7 and 8", gantts)
	}
	for _, figure := range []string{"Fig. 9", "Fig. 10", "Fig. 11", "Table 3"} {
		if !strings.Contains(page, figure) {
			t.Errorf("the page has no %s", figure)
		}
	}
}

// The same seed gives the same bytes, with any number of workers.
func TestDeterministic(t *testing.T) {
	exptest.SameWithWorkers(t, func(workers int) (*exp.Result, error) {
		return run(context.Background(), exp.Options{Seed: 7, Runs: 1, Days: 3, Workers: workers})
	}, 1, 3)
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := run(ctx, exp.Options{Seed: 1, Runs: 1, Days: 30}); err == nil {
		t.Error("it went on")
	}
}

// Table 3 of the paper adds up: life is wait and run.
func TestPaperTable3AddsUp(t *testing.T) {
	for i, row := range table3 {
		if math.Abs(row.wait+row.run-row.life) > 0.02 {
			t.Errorf("%d nodes: %v + %v is not %v", sizes[i], row.wait, row.run, row.life)
		}
	}
}

// Fig. 2 and equations 1 and 2: a transfer through rCUDA takes both latencies and
// 1.09 times its bytes over the bandwidth, of which n other users leave 1/(n+1).
func TestTransferModel(t *testing.T) {
	const bandwidth, rcuda, net = 10_000_000_000, 3470 * time.Microsecond, 1200 * time.Microsecond
	for _, others := range []int{0, 1, 2, 4, 6, 8} {
		for _, size := range []int64{1e6, 1e8, 1e9, 22e9} {
			got := transferTime(t, others, size, bandwidth, rcuda, net)
			want := rcuda + net + time.Duration(float64(size)*1.09*float64(others+1)/bandwidth*1e9)
			if diff := (got - want).Abs(); diff > time.Microsecond {
				t.Errorf("%d bytes beside %d others: %v, want %v", size, others, got, want)
			}
		}
	}
}

// transferTime simulates a job that does nothing but one transfer to a GPU of
// another node, while others use its node's port.
func transferTime(t *testing.T, others int, size, bandwidth int64, rcuda, net time.Duration) time.Duration {
	t.Helper()
	link := model.Link{Bandwidth: bandwidth, Latency: net}
	c := &model.Cluster{
		Nodes:    []model.Node{{Name: "base", Cores: 100, Memory: 1, Link: link}},
		GPUTypes: []model.GPUType{{Name: "gpu", Memory: 1, Speed: 1}},
		Remote:   model.Remote{Latency: rcuda, Overhead: 1.09},
	}
	var jobs []model.Job
	for i := range others + 1 { // each has a server of its own; the last is the one that is timed
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("server", i), Cores: 1, Memory: 1, GPUs: []int{0}, Link: link})
		bytes := int64(1e15)
		if i == others {
			bytes = size
		}
		jobs = append(jobs, model.Job{
			ID:      fmt.Sprint(i),
			Request: model.Request{Nodes: 1, CoresPerNode: 1, NodeList: []string{"base"}, Remote: &model.RemoteGPUs{Count: 1}},
			Traffic: model.Traffic{GPUBytes: bytes, GPUConns: 1},
		})
	}
	p, err := catalog.New("first-fit")
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	o := r.Outcomes[others]
	if o.State != sim.Finished || !o.Borrowed || o.Start != 0 {
		t.Fatalf("the job was to borrow at once: %+v %v", o, r.Reasons)
	}
	return o.End - o.Start
}
