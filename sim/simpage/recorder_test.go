package simpage

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
	"muster/model"
	"muster/policy/catalog"
	"muster/sim"
)

// pictureCluster has nodes with and without devices.
func pictureCluster() *model.Cluster {
	c := &model.Cluster{
		Name: "picture", GPUTypes: []model.GPUType{{Name: "g", Memory: 8e9, Speed: 1}},
		Remote: model.Remote{Overhead: 1},
	}
	for i, gpus := range []int{2, 2, 4, 0, 1} {
		n := model.Node{Name: fmt.Sprintf("n%d", i+1), Cores: 8, Memory: 64e9, GPUs: make([]int, gpus)}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func drawJob(t *rapid.T, i int) model.Job {
	j := model.Job{ID: fmt.Sprint(i), Run: time.Duration(rapid.IntRange(0, 100).Draw(t, "run")) * time.Second}
	j.Submit = time.Duration(i*rapid.IntRange(0, 1).Draw(t, "gap")) * time.Second
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		j.Request = model.Request{Cores: rapid.IntRange(1, 20).Draw(t, "cores")}
	case 1:
		j.Request = model.Request{Nodes: rapid.IntRange(1, 3).Draw(t, "nodes"), CoresPerNode: rapid.IntRange(1, 8).Draw(t, "cores"), GPUs: rapid.IntRange(0, 2).Draw(t, "gpus")}
	case 2:
		j.Request = model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1, GPUMemory: int64(rapid.IntRange(1, 8).Draw(t, "share")) * 1e9}
	case 3:
		j.Request = model.Request{Nodes: 1, CoresPerNode: 1, Remote: &model.RemoteGPUs{Count: rapid.IntRange(1, 3).Draw(t, "remote")}}
		if rapid.Bool().Draw(t, "shared") {
			j.Request.Remote.Shared, j.Request.Remote.Memory = true, 3e9
		}
	}
	return j
}

// record runs jobs under a policy and returns the run with its recorder.
func record(t interface{ Fatal(...any) }, c *model.Cluster, jobs []model.Job, spec string, blocks int) (*sim.Result, *Recorder) {
	p, err := catalog.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(c, blocks)
	res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p, Observe: r})
	if err != nil {
		t.Fatal(err)
	}
	return res, r
}

// For any run, no two blocks of a node overlap, none leaves its row, and together they have the
// area that the simulator accounts for.
func TestBlocksNeverOverlap(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		c := pictureCluster()
		var jobs []model.Job
		for i := range rapid.IntRange(1, 30).Draw(t, "jobs") {
			j := drawJob(t, i)
			if n := len(jobs); n > 0 {
				j.Submit = max(j.Submit, jobs[n-1].Submit)
			}
			jobs = append(jobs, j)
		}
		spec := rapid.SampledFrom([]string{"first-fit", "r-queue", "g-queue", "easy"}).Draw(t, "policy")
		res, rec := record(t, c, jobs, spec, 1_000_000)
		p := rec.picture
		if len(p.open) != 0 {
			t.Fatalf("%d jobs are still open", len(p.open))
		}
		type box struct {
			segment
			lo, hi float32
		}
		rows := map[int32][]box{}
		for _, s := range p.closed {
			lo, hi := p.place(&s, true)
			if !(0 <= lo && lo < hi && hi <= 1) {
				t.Fatalf("job %d takes %v to %v of its row", s.job, lo, hi)
			}
			rows[s.node] = append(rows[s.node], box{s, lo, hi})
		}
		for node, boxes := range rows {
			for i, a := range boxes {
				for _, b := range boxes[:i] {
					if a.start < b.end && b.start < a.end && a.lo < b.hi-1e-5 && b.lo < a.hi-1e-5 {
						t.Fatalf("node %d: jobs %d and %d lie over each other", node, a.job, b.job)
					}
				}
			}
		}
		gpus := 0.0
		for i := range p.closed {
			if s := &p.closed[i]; !s.ofCores {
				gpus += float64(s.hi-s.lo) * (s.end - s.start).Seconds()
			}
		}
		if diff := gpus - res.GPUSeconds; diff > 0.01 || diff < -0.01 {
			t.Fatalf("the blocks have %v GPU seconds, the run %v", gpus, res.GPUSeconds)
		}
	})
}

// Two jobs of two nodes each on two nodes with two devices: under the R queue the
// second runs beside the first and borrows nothing; a third with two devices a node
// has to borrow.
func TestKindsOfBlocks(t *testing.T) {
	c := pictureCluster()
	c.Nodes = c.Nodes[:3]
	hour := time.Hour
	jobs := []model.Job{
		{ID: "a", Run: hour, Request: model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 1}},
		{ID: "b", Run: hour, Request: model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1}},
		{ID: "c", Run: hour, Request: model.Request{Nodes: 1, CoresPerNode: 2, GPUs: 3}},
	}
	_, rec := record(t, c, jobs, "r-queue", 1000)
	got := map[string]bool{}
	for _, s := range rec.picture.closed {
		got[fmt.Sprintf("%s %s %s %v-%v", jobs[s.job].ID, c.Nodes[s.node].Name, []string{"native", "borrows", "lends"}[s.kind], s.lo, s.hi)] = true
	}
	for _, want := range []string{
		"a n1 native 0-1", "a n2 native 0-1", "b n3 native 0-1",
		"c n1 borrows 1-2", "c n2 lends 1-2", "c n3 lends 1-2",
	} {
		if !got[want] {
			t.Errorf("there is no block %q in %v", want, got)
		}
	}
	if hosts, _ := rec.Hosts(2); hosts != "n1" {
		t.Errorf("c ran on %s", hosts)
	}
	if lenders, count := rec.Lenders(2); lenders != "n[2-3]" || count != 2 {
		t.Errorf("c borrowed from %s, %d nodes", lenders, count)
	}
	if hosts, count := rec.Hosts(17); hosts != "" || count != 0 {
		t.Errorf("a job that never ran has hosts %s", hosts)
	}
}

func TestPruneKeepsTheLargestJobs(t *testing.T) {
	c := pictureCluster()
	c.Nodes = c.Nodes[:2] // alike
	var jobs []model.Job
	for i := range 100 {
		jobs = append(jobs, model.Job{
			ID: fmt.Sprint(i), Run: time.Duration(1+i*37%100) * time.Minute,
			Request: model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 1},
		})
	}
	_, rec := record(t, c, jobs, "first-fit", 20)
	p := rec.picture
	p.prune()
	if len(p.closed) != 20 || p.lostJobs != 90 {
		t.Fatalf("%d blocks are kept and %d jobs lost, want 20 and 90", len(p.closed), p.lostJobs)
	}
	for _, s := range p.closed {
		if jobs[s.job].Run <= 90*time.Minute {
			t.Errorf("job %d of %v is kept", s.job, jobs[s.job].Run)
		}
	}
}

func TestLane(t *testing.T) {
	l := lane{size: 10}
	a, b, c := l.take(4), l.take(3), l.take(3)
	if fmt.Sprint(a, b, c) != "[{0 4}] [{4 7}] [{7 10}]" {
		t.Fatalf("got %v %v %v", a, b, c)
	}
	l.give(a[0])
	l.give(c[0])
	if got := fmt.Sprint(l.take(6)); got != "[{0 4} {7 9}]" {
		t.Errorf("around a job in the middle: got %v", got)
	}
	if got := fmt.Sprint(l.take(1)); got != "[{9 10}]" {
		t.Errorf("the rest: got %v", got)
	}
}

func TestSampledKeepsTheArea(t *testing.T) {
	var states []change
	for i := range 5000 {
		states = append(states, change{at: time.Duration(i*i) * time.Millisecond, cores: float32(i * 7919 % 100)})
	}
	of := func(c *change) float64 { return float64(c.cores) }
	area := func(x, y []float64) float64 {
		sum := 0.0
		for i := 1; i < len(x); i++ {
			sum += y[i-1] * (x[i] - x[i-1])
		}
		return sum
	}
	exact := area(sampled(states, of, len(states)))
	x, y := sampled(states, of, 100)
	if len(x) > 101 || len(x) != len(y) {
		t.Fatalf("%d points", len(x))
	}
	if got := area(x, y); got < exact*0.999999 || got > exact*1.000001 {
		t.Errorf("the area is %v, want %v", got, exact)
	}
	if !slices.IsSorted(x) {
		t.Error("x is out of order")
	}
}
