package mosaic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/policy/consres"
	"muster/policy/mosaic"
	"muster/sim"
	"muster/workload"
)

// machine is one of the AUCSCHED paper: nodes of 8 cores and 2 GPUs.
func machine(nodes int) *model.Cluster {
	c := &model.Cluster{Name: "paper", GPUTypes: []model.GPUType{{Name: "gpu", Memory: 1 << 30, Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprintf("n%03d", i), Cores: 8, Memory: 1 << 36, GPUs: []int{0, 0}})
	}
	return c
}

// paperV is its workload V, an hour of it.
func paperV(t testing.TB, nodes, contiguous int, seed uint64, remote string) []model.Job {
	t.Helper()
	w, err := workload.Generate("aucsched", map[string]string{
		"nodes": fmt.Sprint(nodes), "contiguous": fmt.Sprint(contiguous), "hours": "1", "remote": remote,
	}, seed+1)
	if err != nil {
		t.Fatal(err)
	}
	return w.Jobs
}

type placed struct{ at, from, to int }

// where runs jobs and tells, by job, the second of its start and its nodes.
func where(t *testing.T, c *model.Cluster, jobs []model.Job, spec string) []placed {
	t.Helper()
	w := &watcher{out: make([]placed, len(jobs))}
	res, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, spec), Observe: w})
	if err != nil || res.Refused > 0 {
		t.Fatal(err, res)
	}
	return w.out
}

func job(id string, run int, r model.Request) model.Job {
	return model.Job{ID: id, Run: seconds(run), Request: r}
}

// TestFillersGoBeside: cores alone are had beside the GPU jobs, and so the
// nodes that the others need are left free.
func TestFillersGoBeside(t *testing.T) {
	jobs := []model.Job{
		job("filler", 100, model.Request{Nodes: 2, CoresPerNode: 4}),
		job("gpu", 100, model.Request{Nodes: 2, CoresPerNode: 2, GPUs: 2}),
		job("whole", 100, model.Request{Nodes: 2, CoresPerNode: 8}),
	}
	got := where(t, machine(4), jobs, "")
	if got[0].from != got[1].from || got[0].at != 0 || got[1].at != 0 || got[2].at != 0 || got[1].from == got[2].from {
		t.Errorf("filler, gpu, whole: %+v, want all at once, and the filler beside the GPU job", got)
	}
}

// TestPairsOfGPUs: two jobs with one GPU a node share nodes, so that a job
// that needs both GPUs finds some.
func TestPairsOfGPUs(t *testing.T) {
	jobs := []model.Job{
		job("one", 100, model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 1}),
		job("another", 100, model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 1}),
		job("both", 100, model.Request{Nodes: 2, CoresPerNode: 2, GPUs: 2}),
	}
	got := where(t, machine(4), jobs, "")
	if got[0].from != got[1].from || got[2].at != 0 {
		t.Errorf("one, another, both: %+v, want the first two on the same nodes", got)
	}
}

// TestSmallFirstLargeLast: on one node, jobs run in order of their length, and
// the wide one does not leave the node beside it idle in the end.
func TestSmallFirstLargeLast(t *testing.T) {
	whole := func(nodes int) model.Request { return model.Request{Nodes: nodes, CoresPerNode: 8} }
	jobs := []model.Job{
		job("long", 300, whole(1)), job("wide", 300, whole(2)), job("short", 100, whole(1)), job("middle", 200, whole(1)),
	}
	got := where(t, machine(2), jobs, "")
	// 100 + 200 on one node beside 300 on the other, then the wide one.
	if got[2].at != 0 || got[3].at != 100 || got[0].at != 0 || got[1].at != 300 {
		t.Errorf("long, wide, short, middle: %+v", got)
	}
}

// TestRemoteDevicesAreNear: cores in one block, devices on it first, then on
// the nodes beside it.
func TestRemoteDevicesAreNear(t *testing.T) {
	c := machine(8)
	jobs := []model.Job{
		job("left", 100, model.Request{Nodes: 2, CoresPerNode: 8}),
		job("remote", 50, model.Request{Nodes: 1, CoresPerNode: 8, Remote: &model.RemoteGPUs{Count: 5}}),
	}
	w := &watcher{out: make([]placed, 2)}
	if _, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: make1(t, ""), Observe: w}); err != nil {
		t.Fatal(err)
	}
	a := w.allocs[1]
	node := a.Parts[0].Node
	if a.Parts[0].GPUs != 3 || len(a.Grants) != 3 {
		t.Fatalf("the remote job has %+v, want both devices of its node and three more", a)
	}
	for _, g := range a.Grants {
		if d := g.Node - node; d < -2 || d > 2 {
			t.Errorf("a device of node %d serves node %d", g.Node, node)
		}
	}
}

// TestBetterThanBackfill is the claim, in small: better than Slurm's way in all
// five columns of the paper at once.
func TestBetterThanBackfill(t *testing.T) {
	seeds := uint64(need.Rounds(2, 4))
	for version, contiguous := range []int{0, 50, 100} {
		var slurm, ours [5]float64
		for seed := range seeds {
			jobs := paperV(t, 64, contiguous, seed, "no")
			add := func(p policy.Policy, to *[5]float64) {
				res, err := sim.Run(context.Background(), sim.Config{Cluster: machine(64), Jobs: jobs, Policy: p})
				if err != nil {
					t.Fatal(err)
				}
				s := res.Summarize()
				for i, x := range []float64{s.Makespan, s.Wait.Mean, s.Slowdown.Mean, s.Fragmentation.Mean, s.Spread.Mean} {
					to[i] += x
				}
			}
			p, err := consres.Slurm.Make("")
			if err != nil {
				t.Fatal(err)
			}
			add(p, &slurm)
			add(make1(t, "effort=50"), &ours)
		}
		for i, name := range []string{"makespan", "wait", "slowdown", "fragmentation", "spread"} {
			if ours[i] > slurm[i] || ours[i] == slurm[i] && contiguous < 100 {
				t.Errorf("V.%d: the sum of %s is %v, %v for backfill", version+1, name, ours[i], slurm[i])
			}
		}
	}
}

// TestAccounts: a step can be explained, and a waiting job says what is planned.
func TestAccounts(t *testing.T) {
	jobs := paperV(t, 32, 0, 1, "no")
	res, err := sim.Run(context.Background(), sim.Config{
		Cluster: machine(32), Jobs: jobs, Policy: make1(t, "effort=0"), Explain: []sim.Moment{{Step: 1}}, Watch: []int{0, 1, 2, 3, 4, 5, 6, 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Explained) != 1 || len(res.Explained[0].Tables) < 3 {
		t.Fatalf("explained: %+v", res.Explained)
	}
	text := fmt.Sprint(res.Explained[0].Tables)
	for _, want := range []string{"8 cores, 0 GPUs", "fits beside the others", "a node of 8 cores, 2 GPUs", "Planned next"} {
		if !strings.Contains(text, want) {
			t.Errorf("the account does not say %q:\n%s", want, text)
		}
	}
	said := false
	for _, w := range res.Watched {
		said = said || strings.Contains(w.Text, "planned for ")
	}
	if !said {
		t.Errorf("nobody who waits says what is planned: %+v", res.Watched)
	}
}

func TestSettings(t *testing.T) {
	for _, bad := range []string{"balance=101", "balance=x", "effort=-1", "depth=1.5", "age=soon", "patience=100001", "what=1"} {
		if _, err := mosaic.Entry.Make(bad); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
