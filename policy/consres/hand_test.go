package consres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/consres"
	"muster/sim"
)

// row is a table of what is free: one node a letter, its free cores a digit.
type row struct {
	cluster *model.Cluster
	cores   []int32
	gpus    []uint64
	memory  int64
}

func (r *row) Cluster() *model.Cluster  { return r.cluster }
func (r *row) FreeCores(n int32) int32  { return r.cores[n] }
func (r *row) FreeMemory(n int32) int64 { return r.memory }
func (r *row) FreeGPUs(n int32) uint64  { return r.gpus[n] }
func (r *row) FreeShare(n, d int32) int64 {
	if r.gpus[n]>>d&1 == 0 {
		return 0
	}
	return 100
}
func (r *row) Closed(n int32) bool    { return false }
func (r *row) Untouched(n int32) bool { return int(r.cores[n]) == r.cluster.Nodes[n].Cores }

// rowOf reads "8 4 0/2": free cores, and after a stroke free GPUs.
func rowOf(text string) *row {
	r := &row{cluster: &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 100, Speed: 1}}}, memory: 64}
	for i, word := range strings.Fields(text) {
		var cores int32
		var gpus int
		if _, err := fmt.Sscanf(word, "%d/%d", &cores, &gpus); err != nil {
			if _, err := fmt.Sscanf(word, "%d", &cores); err != nil {
				panic(err)
			}
		}
		r.cluster.Nodes = append(r.cluster.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 8, Memory: 64, GPUs: []int{0, 0}})
		r.cores = append(r.cores, cores)
		r.gpus = append(r.gpus, 1<<gpus-1)
	}
	return r
}

func TestBestFit(t *testing.T) {
	for _, x := range []struct {
		name, free string
		request    model.Request
		want       string // "" where it does not fit
	}{
		{"the smallest set that suffices", "8 8 8 0 8 8 0 8 8 8", model.Request{Nodes: 2, CoresPerNode: 8}, "4:8 5:8"},
		{"the first of equal ones", "8 8 8 0 8 8 8", model.Request{Nodes: 2, CoresPerNode: 8}, "0:8 1:8"},
		{"the largest, then what is left from the best fit", "8 0 8 8 0 8 8 8 0 8 8", model.Request{Nodes: 4, CoresPerNode: 8}, "0:8 5:8 6:8 7:8"},
		{"the largest again and again", "8 8 0 8 8 0 8 8 8", model.Request{Nodes: 7, CoresPerNode: 8}, "0:8 1:8 3:8 4:8 6:8 7:8 8:8"},
		{"too few", "8 8 0 8", model.Request{Nodes: 4, CoresPerNode: 8}, ""},
		{"a node with too few cores parts sets", "8 3 8 8", model.Request{Nodes: 2, CoresPerNode: 4}, "2:4 3:4"},
		{"sets count nodes, not spare cores", "8 8 0 4 4 4", model.Request{Nodes: 2, CoresPerNode: 4}, "0:4 1:4"},
		{"contiguous: one set or nothing", "8 8 0 8 8", model.Request{Nodes: 3, CoresPerNode: 1, Contiguous: true}, ""},
		{"contiguous: from the start of the best", "8 8 8 8 0 8 8 8", model.Request{Nodes: 2, CoresPerNode: 1, Contiguous: true}, "5:1 6:1"},
		{"spread: the set with the fewest cores", "8 8 0 5 2 0 3 3", model.Request{Cores: 6}, "6:3 7:3"},
		{"spread: as much as a node has", "0 5 8 0", model.Request{Cores: 7}, "1:5 2:2"},
		{"spread: the largest set first", "3 0 8 8 0 2 0 1", model.Request{Cores: 19}, "0:3 2:8 3:8"},
		{"spread: then the best fit", "5 0 8 8 0 2 0 1", model.Request{Cores: 17}, "2:8 3:8 7:1"},
		{"spread in multiples", "3 0 5 8 1", model.Request{Cores: 8, CoresPerProcess: 2}, "2:4 3:4"},
		{"spread: a single core parts sets of pairs", "4 1 4 4", model.Request{Cores: 8, CoresPerProcess: 2}, "2:4 3:4"},
		{"spread, contiguous", "8 8 0 4 4", model.Request{Cores: 20, Contiguous: true}, ""},
		{"GPUs part sets", "8/2 8/1 8/2 8/2", model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 2}, "2:1 3:1"},
		{"GPUs of each node used", "8/0 4/1 8/1", model.Request{Cores: 12, GPUs: 1}, "1:4 2:8"},
		{"a node list", "8 8 8 8", model.Request{Nodes: 2, CoresPerNode: 1, NodeList: []string{"n0", "n2", "n3"}}, "2:1 3:1"},
		{"exclusive: untouched nodes, all cores", "7 8 0 8 8", model.Request{Nodes: 1, CoresPerNode: 1, Exclusive: true}, "1:8"},
		{"memory", "8 8", model.Request{Cores: 10, MemoryPerCore: 16}, ""},
		{"memory of the cores", "8 8", model.Request{Cores: 8, MemoryPerCore: 16}, "0:4 1:4"},
	} {
		t.Run(x.name, func(t *testing.T) {
			free := rowOf(x.free)
			var out model.Allocation
			got := ""
			if consres.Select(free, &policy.Shape{Request: x.request}, &out) {
				for _, p := range out.Parts {
					got += fmt.Sprintf("%d:%d ", p.Node, p.Cores)
				}
			}
			if strings.TrimSpace(got) != x.want {
				t.Errorf("%+v on %s: got %q, want %q", x.request, x.free, got, x.want)
			}
		})
	}
}

// events writes down what a run did.
type events struct {
	cluster *model.Cluster
	jobs    []model.Job
	lines   []string
	granted map[string]string
}

func (e *events) Started(now time.Duration, job int, a *model.Allocation) {
	text := ""
	for i, p := range a.Parts {
		text += fmt.Sprintf(" %s", e.cluster.Nodes[p.Node].Name)
		for d := range e.cluster.Nodes[p.Node].GPUs {
			if p.GPUs>>d&1 != 0 {
				text += fmt.Sprintf("+%d", d)
			}
		}
		for _, g := range a.Grants {
			if int(g.For) == i {
				text += fmt.Sprintf("+%s:%d", e.cluster.Nodes[g.Node].Name, g.Device)
				if g.Memory > 0 {
					text += "s"
				}
			}
		}
	}
	e.lines = append(e.lines, fmt.Sprintf("%v %s%s", now, e.jobs[job].ID, text))
}

func (e *events) Ended(time.Duration, int) {}

func made(t testing.TB, e *policy.Entry, spec string) policy.Policy {
	t.Helper()
	p, err := e.Make(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func runOf(t testing.TB, c *model.Cluster, jobs []model.Job, p policy.Policy) (*sim.Result, []string) {
	t.Helper()
	seen := &events{cluster: c, jobs: jobs}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p, NoKill: true, Observe: seen})
	if err != nil {
		t.Fatal(err)
	}
	if r.Refused > 0 {
		t.Fatalf("%d lines refused", r.Refused)
	}
	return r, seen.lines
}

func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// smallCluster is that of section III-B of the paper: node0 and node1 have a GPU of 4 GB.
func smallCluster() *model.Cluster {
	c := &model.Cluster{Name: "paper", GPUTypes: []model.GPUType{{Name: "gpu", Memory: 4e9, Speed: 1}}}
	for i := range 4 {
		n := model.Node{Name: fmt.Sprint("node", i), Cores: 4, Memory: 1e9}
		if i < 2 {
			n.GPUs = []int{0}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// twoNodes asks for two whole nodes' cores and two GPUs, of which 1 GB each is used.
func twoNodes(id string, shared bool) model.Job {
	r := &model.RemoteGPUs{Count: 2, Memory: 1e9, Shared: shared}
	return model.Job{ID: id, Run: 10 * time.Second, Request: model.Request{Nodes: 2, CoresPerNode: 4, Remote: r}}
}

func TestPaperIIIBExclusive(t *testing.T) {
	jobs := []model.Job{twoNodes("a", false), twoNodes("b", false)}
	_, got := runOf(t, smallCluster(), jobs, made(t, &consres.RGPU, ""))
	check(t, got, "0s a node0+0 node1+0", "10s b node0+0 node1+0")
}

func TestPaperIIIBShared(t *testing.T) {
	jobs := []model.Job{twoNodes("a", true), twoNodes("b", true)}
	jobs[0].Intensity, jobs[1].Intensity = 0.5, 0.5
	r, got := runOf(t, smallCluster(), jobs, made(t, &consres.RGPU, ""))
	check(t, got, "0s a node0+node0:0s node1+node1:0s", "0s b node2+node0:0s node3+node1:0s")
	if !r.Outcomes[1].Borrowed || r.Outcomes[0].Borrowed {
		t.Error("the second borrows, the first does not")
	}
}

func TestNamedNodeWithoutGPU(t *testing.T) {
	jobs := []model.Job{{ID: "w", Run: time.Second, Request: model.Request{
		Nodes: 1, NodeList: []string{"node3"}, Remote: &model.RemoteGPUs{Count: 2, Memory: 1e9, Shared: true}}}}
	_, got := runOf(t, smallCluster(), jobs, made(t, &consres.RGPU, ""))
	check(t, got, "0s w node3+node0:0s+node1:0s")
}

// A job that may run anywhere goes to a node with a GPU, although node2 and
// node3 would be the better fit.
func TestPrefersLocalGPU(t *testing.T) {
	c := smallCluster()
	jobs := []model.Job{
		{ID: "cores", Run: 10 * time.Second, Request: model.Request{Nodes: 1, CoresPerNode: 4, NodeList: []string{"node2"}}},
		{ID: "gpu", Run: time.Second, Request: model.Request{Nodes: 1, Remote: &model.RemoteGPUs{Count: 1}}},
	}
	_, got := runOf(t, c, jobs, made(t, &consres.RGPU, ""))
	check(t, got, "0s cores node2", "0s gpu node0+0")
	_, got = runOf(t, c, jobs, made(t, &consres.Slurm, ""))
	check(t, got, "0s cores node2", "0s gpu node3+node0:0")
}

func plain(nodes int) *model.Cluster {
	c := &model.Cluster{Name: "plain"}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 4})
	}
	return c
}

func onNodes(id string, submit, run, nodes, cores int) model.Job {
	return model.Job{ID: id, Submit: time.Duration(submit) * time.Second, Run: time.Duration(run) * time.Second,
		Request: model.Request{Nodes: nodes, CoresPerNode: cores}}
}

// The reservation of b takes n0 and n1 whole: c does not start beside it on n1,
// though it needs one core and b leaves three. d ends before it.
func TestWholeNodesAreReserved(t *testing.T) {
	jobs := []model.Job{
		onNodes("a", 0, 10, 1, 4), // n0
		onNodes("b", 0, 10, 2, 1), // waits for n0, reserved at 10
		onNodes("c", 0, 20, 1, 1),
		onNodes("d", 0, 10, 1, 1),
	}
	_, got := runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0"))
	check(t, got, "0s a n0", "0s d n1", "10s b n0 n1", "10s c n0")
}

// Nobody is backfilled between two passes, but the main loop goes on.
func TestInterval(t *testing.T) {
	jobs := []model.Job{
		onNodes("a", 0, 100, 1, 4),
		onNodes("b", 0, 100, 2, 4), // waits for both
		onNodes("c", 1, 10, 1, 4),  // fits on n1, and ends before 100
	}
	_, got := runOf(t, plain(2), jobs, made(t, &consres.Slurm, ""))
	check(t, got, "0s a n0", "30s c n1", "1m40s b n0 n1")
	_, got = runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0"))
	check(t, got, "0s a n0", "1s c n1", "1m40s b n0 n1")
}

func TestResolution(t *testing.T) {
	jobs := []model.Job{
		onNodes("a", 0, 100, 1, 4),
		onNodes("b", 0, 100, 2, 4), // reserved at 100; rounded, at 60
		onNodes("c", 0, 80, 1, 4),
	}
	_, got := runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0"))
	check(t, got, "0s a n0", "0s c n1", "1m40s b n0 n1")
	_, got = runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0:bf_resolution=60s"))
	check(t, got, "0s a n0", "1m40s b n0 n1", "3m20s c n0")
}

func TestSettings(t *testing.T) {
	for _, bad := range []string{"depth=-1", "bf_interval=x", "bf_resolution=x", "bf_window=?", "select=memory"} {
		if _, err := consres.Slurm.Make(bad); err == nil {
			t.Errorf("slurm takes %s", bad)
		}
	}
	if _, err := consres.RGPU.Make("select=sped"); err == nil || !strings.Contains(err.Error(), "speed") {
		t.Errorf("an unknown ranking says %v", err)
	}
}
