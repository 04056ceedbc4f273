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
// though it needs one core and b leaves three. Nor does d, which ends just when it begins; e ends before.
func TestWholeNodesAreReserved(t *testing.T) {
	jobs := []model.Job{
		onNodes("a", 0, 10, 1, 4), // n0
		onNodes("b", 0, 10, 2, 1), // waits for n0, reserved at 10
		onNodes("c", 0, 20, 1, 1),
		onNodes("d", 0, 10, 1, 1),
		onNodes("e", 0, 9, 1, 1),
	}
	_, got := runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0:bf_resolution=0"))
	check(t, got, "0s a n0", "0s e n1", "10s b n0 n1", "10s c n0", "10s d n0")
}

// Ends are looked at in groups. b could have its three nodes at 40. But the first look is at all that
// ends by 60 (10, rounded up to 30, and 30 more): so b is promised them for 50, the last of these ends, and
// c, of 45 s, may go before it.
func TestEndsInGroups(t *testing.T) {
	jobs := []model.Job{
		onNodes("a1", 0, 10, 1, 4), onNodes("a2", 0, 40, 1, 4), onNodes("a3", 0, 50, 1, 4),
		onNodes("b", 0, 100, 3, 4),
		onNodes("c", 0, 45, 1, 4),
	}
	_, got := runOf(t, plain(4), jobs, made(t, &consres.Slurm, "bf_interval=0:bf_resolution=0:bf_ends=0"))
	check(t, got, "0s a1 n0", "0s a2 n1", "0s a3 n2", "40s b n0 n1 n3", "50s c n2")
	_, got = runOf(t, plain(4), jobs, made(t, &consres.Slurm, "bf_interval=0:bf_resolution=0"))
	check(t, got, "0s a1 n0", "0s a2 n1", "0s a3 n2", "0s c n3", "45s b n0 n1 n3")
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
	_, got := runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0:bf_resolution=0"))
	check(t, got, "0s a n0", "0s c n1", "1m40s b n0 n1")
	_, got = runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0"))
	check(t, got, "0s a n0", "1m40s b n0 n1", "3m20s c n0")
}

func TestSettings(t *testing.T) {
	for _, bad := range []string{"depth=-1", "bf_interval=x", "bf_resolution=x", "bf_ends=x", "bf_window=?", "select=memory"} {
		if _, err := consres.Slurm.Make(bad); err == nil {
			t.Errorf("slurm takes %s", bad)
		}
	}
	if _, err := consres.RGPU.Make("select=sped"); err == nil || !strings.Contains(err.Error(), "speed") {
		t.Errorf("an unknown ranking says %v", err)
	}
}

// pool is a cluster whose first node has no GPU; the others have one each, of the
// types and on the switches given.
func pool(types []int, switches string) *model.Cluster {
	c := &model.Cluster{
		Name:     "pool",
		GPUTypes: []model.GPUType{{Name: "slow", Memory: 4, Speed: 1}, {Name: "fast", Memory: 4, Speed: 2}},
		Remote:   model.Remote{Far: 3, Overhead: 1},
	}
	link := model.Link{Bandwidth: 1e9}
	c.Nodes = append(c.Nodes, model.Node{Name: "host", Cores: 8, Switch: switches[:1], Link: link})
	for i, t := range types {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("g", i+1), Cores: 8, GPUs: []int{t}, Switch: switches[i+1 : i+2], Link: link})
	}
	return c
}

// shares asks for shares of so many devices, from a node that has none.
func shares(id string, run, count int, load float64) model.Job {
	return model.Job{ID: id, Run: time.Duration(run) * time.Second, Intensity: load, Request: model.Request{
		Nodes: 1, NodeList: []string{"host"}, Remote: &model.RemoteGPUs{Count: count, Memory: 1, Shared: true}}}
}

func TestSelect(t *testing.T) {
	busy := []model.Job{shares("a", 100, 1, 0.5), shares("b", 100, 1, 0.5)}
	for _, x := range []struct {
		name, by string
		cluster  *model.Cluster
		jobs     []model.Job
		want     []string
	}{
		{"memory piles up", "memory", pool([]int{0, 0}, "xxx"), busy, []string{"0s a host+g1:0s", "0s b host+g1:0s"}},
		{"intensity spreads", "intensity", pool([]int{0, 0}, "xxx"), busy, []string{"0s a host+g1:0s", "0s b host+g2:0s"}},
		{"speed", "speed", pool([]int{0, 1}, "xxx"), busy, []string{"0s a host+g2:0s", "0s b host+g2:0s"}},
		{"distance", "distance", pool([]int{0, 0}, "xyx"), busy, []string{"0s a host+g2:0s", "0s b host+g2:0s"}},
		{"all: a fast device for two is better than a slow one alone", "all", pool([]int{0, 1}, "xxx"), busy, []string{"0s a host+g2:0s", "0s b host+g2:0s"}},
		{"all: but not for three", "all", pool([]int{0, 1}, "xxx"), append(slices.Clone(busy), shares("c", 100, 1, 1)),
			[]string{"0s a host+g2:0s", "0s b host+g2:0s", "0s c host+g1:0s"}},
		{"all: a job as slow as its slow device leaves the fast one alone", "all", pool([]int{1, 0, 0}, "xxxx"), []model.Job{shares("a", 100, 2, 1)},
			[]string{"0s a host+g2:0s+g3:0s"}},
		{"all: it waits for a full device", "all", pool([]int{0}, "xx"), []model.Job{shares("a", 10, 1, 1), shares("b", 100, 1, 1)},
			[]string{"0s a host+g1:0s", "10s b host+g1:0s"}},
		{"all: it shares one that is not full", "all", pool([]int{0}, "xx"), []model.Job{shares("a", 10, 1, 0.8), shares("b", 100, 1, 0.8)},
			[]string{"0s a host+g1:0s", "0s b host+g1:0s"}},
		{"memory never waits", "memory", pool([]int{0}, "xx"), []model.Job{shares("a", 10, 1, 1), shares("b", 100, 1, 1)},
			[]string{"0s a host+g1:0s", "0s b host+g1:0s"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, got := runOf(t, x.cluster, x.jobs, made(t, &consres.RGPU, "select="+x.by))
			check(t, got, x.want...)
		})
	}
}

// A far device costs three times the transfer: the slower near one wins where
// much is moved.
func TestSelectAllCountsTransfers(t *testing.T) {
	c := pool([]int{0, 1}, "xxy") // g1 slow and near, g2 fast and far
	for bytes, want := range map[int64]string{1e9: "g2", 100e9: "g1"} {
		j := shares("a", 100, 1, 1)
		j.Traffic.GPUBytes = bytes
		_, got := runOf(t, c, []model.Job{j}, made(t, &consres.RGPU, "select=all"))
		check(t, got, "0s a host+"+want+":0s")
	}
}

// Each way to wait has its words.
func TestWhy(t *testing.T) {
	jobs := []model.Job{
		onNodes("a", 0, 100, 1, 4),
		onNodes("b", 0, 100, 2, 4),
		onNodes("c", 0, 200, 1, 4),
		onNodes("d", 0, 200, 1, 4),
		onNodes("e", 1, 10, 1, 4),
	}
	r, err := sim.Run(context.Background(), sim.Config{Cluster: plain(2), Jobs: jobs, Policy: made(t, &consres.Slurm, "depth=2:bf_resolution=0"),
		Watch: []int{1, 2, 3, 4}, Explain: []sim.Moment{{Step: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	says := map[int]string{}
	for _, w := range r.Watched {
		says[w.Job] += w.Text + "\n"
	}
	for job, want := range map[int]string{
		1: "reserved for 00:01:40", 2: "would delay the reservations of others; reserved for 00:03:20",
		3: "backfilling tries only the first 2 (depth)", 4: "backfilling looks again at 00:00:30 (bf_interval)",
	} {
		if !strings.Contains(says[job], want) {
			t.Errorf("job %s says\n%swithout %q", jobs[job].ID, says[job], want)
		}
	}
	e := r.Explained[0]
	if len(e.Tables[0].Rows) != 2 || e.Tables[0].Rows[0][0] != "b" || e.Tables[0].Rows[0][4] != "n[0-1]" {
		t.Errorf("the first step is explained so: %+v", e.Explanation)
	}
	if want := []policy.ExplanationBar{
		{Row: 0, From: 0, To: 1, Label: "job b: reserved for 00:01:40"}, {Row: 1, From: 0, To: 0, Label: "job c: reserved for 00:03:20"},
	}; !slices.Equal(e.Bars, want) {
		t.Errorf("it is drawn as %+v", e.Bars)
	}
}

func TestWhyPatient(t *testing.T) {
	r, err := sim.Run(context.Background(), sim.Config{Cluster: pool([]int{0}, "xx"), Policy: made(t, &consres.RGPU, "select=all"),
		Jobs: []model.Job{shares("a", 10, 1, 1), shares("b", 100, 1, 1)}, Watch: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "the devices are crowded: it does better to wait until 00:00:10"; !strings.Contains(r.Watched[0].Text, want) {
		t.Errorf("it says %q", r.Watched[0].Text)
	}
}

// Jobs without a time limit are expected to run for ever: nothing can be
// reserved within the window, and whatever fits starts.
func TestNoTimeLimits(t *testing.T) {
	jobs := []model.Job{onNodes("a", 0, 10, 1, 4), onNodes("b", 0, 10, 2, 4), onNodes("c", 0, 20, 1, 4)}
	for i := range jobs {
		jobs[i].WallTime = time.Duration(365+i) * 24 * time.Hour
	}
	_, got := runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0"))
	check(t, got, "0s a n0", "0s c n1", "20s b n0 n1")
	_, got = runOf(t, plain(2), jobs, made(t, &consres.Slurm, "bf_interval=0:bf_window=0"))
	check(t, got, "0s a n0", "10s b n0 n1", "20s c n0")
}
