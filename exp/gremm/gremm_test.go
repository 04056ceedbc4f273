package gremm

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/exp/exptest"
	"muster/internal/misuse"
	"muster/mapping"
	"muster/sim/kernels"
)

// standIn simulates nothing: its numbers depend on the run alone, for tests of what is done with them.
func standIn(t *testing.T, o exp.Options) *lab {
	t.Helper()
	l, err := newLab(o)
	if err != nil {
		t.Fatal(err)
	}
	l.simulate = func(ctx context.Context, c kernels.Config) (*kernels.Result, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := c.Mapper(layoutOf(c)); err != nil {
			return nil, err
		}
		h := fnv.New64a()
		text, err := json.Marshal([]any{c.Workload, c.Seed, c.Span, c.Status, c.Cluster.Nodes[0]})
		h.Write(text)
		part := float64(h.Sum64()%1000)/2000 + 0.25
		r := &kernels.Result{End: c.Span, Nodes: make([]kernels.NodeResult, len(c.Cluster.Nodes))}
		for n := range c.Cluster.Nodes {
			for range c.Cluster.Nodes[n].GPUs {
				r.Devices = append(r.Devices, kernels.DeviceResult{Node: int32(n), Busy: time.Duration(part * float64(c.Span))})
			}
		}
		for _, a := range c.Workload.Apps {
			r.Apps = append(r.Apps, kernels.AppResult{Name: a.Name, Processes: 12 * a.Nodes, Done: int64(1000 * part), Queue: time.Second})
		}
		return r, err
	}
	return l
}

// layoutOf is what a mapper is made for.
func layoutOf(c kernels.Config) *mapping.Layout {
	l := &mapping.Layout{Bandwidth: c.Cluster.Nodes[0].Link.Bandwidth}
	for i, a := range c.Workload.Apps {
		l.Critical = append(l.Critical, a.Critical)
		for range a.Nodes {
			l.Owner = append(l.Owner, int32(i))
		}
	}
	for n := range c.Cluster.Nodes {
		l.First = append(l.First, int32(len(l.NodeOf)))
		l.Cores = append(l.Cores, 12)
		for range c.Cluster.Nodes[n].GPUs {
			l.NodeOf, l.Speed = append(l.NodeOf, int32(n)), append(l.Speed, 1)
		}
	}
	l.First = append(l.First, int32(len(l.NodeOf)))
	return l
}

// All parts together give a result that can be shown, the same with any number of workers.
func TestEveryPart(t *testing.T) {
	r := exptest.SameWithWorkers(t, func(workers int) (*exp.Result, error) {
		return standIn(t, exp.Options{Seed: 1, Runs: 2, Workers: workers}).make(t.Context())
	}, 1, 2)
	if got := exp.Parts(r.Rows); len(got) != len(parts) {
		t.Errorf("parts with rows: %q", got)
	}
}

// Of the paper's numbers there are those that its text has, and no others.
func TestNumbersOfThePaper(t *testing.T) {
	r, err := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 2}).make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[float64]int{}
	for _, row := range r.Rows {
		if row.Paper != nil {
			got[*row.Paper]++
		}
	}
	// In 10,000 s and in 750 s; on GbE in two ways, IB and a boundless network; in points and of ST's utilisation.
	want := map[float64]int{12_000: 2, 28_000: 2, 92.5: 4, 26: 2}
	for number, times := range want {
		if got[number] != times {
			t.Errorf("%v stands %d times, want %d", number, got[number], times)
		}
		delete(got, number)
	}
	if len(got) > 0 {
		t.Errorf("numbers that the text does not have: %v", got)
	}
}

// Any part can be had alone.
func TestEveryPartAlone(t *testing.T) {
	for _, p := range parts {
		r, err := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 2, Figures: []string{p.name}}).make(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		if got := exp.Parts(r.Rows); !slices.Equal(got, []string{p.title}) {
			t.Errorf("%s: parts %q", p.name, got)
		}
		if p.about != "" && !slices.Contains(r.Notes, p.about) {
			t.Errorf("%s: its note is missing", p.name)
		}
		if !strings.Contains(exptest.Page(t, r), "<svg") {
			t.Errorf("%s: a page without a picture", p.name)
		}
	}
}

// What several parts need is run once: Fig. 3 is of the runs of Fig. 2.
func TestRunsAreShared(t *testing.T) {
	count := func(figures ...string) int {
		l := standIn(t, exp.Options{Seed: 1, Runs: 1, Figures: figures})
		for _, p := range l.chosen() {
			l.Want(p.Wants(l)...)
		}
		return len(l.Wanted)
	}
	if one, two, both := count("2"), count("3"), count("2", "3"); both != one || two == 0 {
		t.Errorf("%d runs for Fig. 2, %d for Fig. 3, %d for both", one, two, both)
	}
}

// An interrupted experiment shows what is complete, and names the rest.
func TestPartial(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := standIn(t, exp.Options{Seed: 1, Runs: 1, Workers: 1})
	l.options.Progress = func(done, total int64) {
		if 3*done >= total {
			cancel()
		}
	}
	r, err := l.make(ctx)
	if err != nil {
		t.Fatal(err)
	}
	exptest.Page(t, r)
	if !strings.Contains(r.Partial, "more") || !strings.Contains(r.Partial, "W4") {
		t.Errorf("missing: %s", r.Partial)
	}
	cancelled, stop := context.WithCancel(t.Context())
	stop()
	if _, err := standIn(t, exp.Options{Seed: 1, Runs: 1}).make(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("nothing was run, and the error is %v", err)
	}
}

func TestSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{"10s": 10 * time.Second, "20m": 20 * time.Minute} {
		l, err := newLab(exp.Options{Flags: map[string]string{"span": text}})
		if err != nil || l.span != want {
			t.Errorf("%s: %v", text, err)
		}
		if note := l.notes(nil); !strings.Contains(note[len(note)-1], "not those of its setting") {
			t.Errorf("%s: the notes do not tell", text)
		}
	}
	for _, text := range []string{"", "10", "9s", "-20s", "10000h", "soon"} {
		if _, err := newLab(exp.Options{Flags: map[string]string{"span": text}}); !misuse.Is(err) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What a scenario says is what the simulator gets.
func TestScenario(t *testing.T) {
	l := standIn(t, exp.Options{Seed: 1, Runs: 1})
	s := l.plain("w3", "ag:locality=yes")
	s.nodes, s.gpus, s.bandwidth, s.latency, s.ratio, s.reuse, s.critical, s.barrier, s.hold, s.ahead, s.window = 48, 5, ib, 7*time.Millisecond, 30, 0.5, light, true, true, true, 3
	s.status = kernels.Status{Delay: time.Second, FalsePositive: 0.25}
	var got kernels.Config
	l.simulate = func(_ context.Context, c kernels.Config) (*kernels.Result, error) {
		got = c
		return &kernels.Result{End: time.Second}, nil
	}
	if _, err := l.one(t.Context(), s, 9); err != nil {
		t.Fatal(err)
	}
	node := got.Cluster.Nodes[47]
	if len(got.Cluster.Nodes) != 48 || len(node.GPUs) != 5 || node.Link.Bandwidth != ib || got.Cluster.Remote.Latency+node.Link.Latency != 7*time.Millisecond {
		t.Errorf("the cluster: %d nodes, %+v, %+v", len(got.Cluster.Nodes), node, got.Cluster.Remote)
	}
	if got.Seed != 9 || got.Span != paperSpan || got.Window != 3 || !got.HoldResults || !got.SendAhead || got.Status != s.status {
		t.Errorf("the run: %+v", got)
	}
	h, lt := got.Workload.Apps[0], got.Workload.Apps[1]
	if h.Nodes != 24 || h.Critical || !lt.Critical || !h.Barrier || lt.Reuse != 0.5 || h.Steps[0].In.PerSecond != 30_000_000 || lt.Steps[0].Out.PerSecond != 15_000_000 {
		t.Errorf("the workload: %+v", got.Workload)
	}
	if len(l.cluster.Nodes) != paperNodes || len(l.cluster.Nodes[0].GPUs) != paperGPUs || l.cluster.Nodes[0].Link.Bandwidth != gbe {
		t.Error("the paper's cluster was changed")
	}
	for _, word := range []string{"w3", "ag:locality=yes", "48 nodes", "5 GPUs", "1000 MB/s", "7ms", "30 KB/ms", "1s old", "0.25 of the idle", "held", "ahead", "k=3", "reuse 0.5", "L critical", "barriers"} {
		if !strings.Contains(s.String(), word) {
			t.Errorf("%q is not in %q", word, s)
		}
	}
}

// The application with two kernels needs as much as H does, in as many steps.
func TestTwoKernels(t *testing.T) {
	w, err := workloadOf(scenario{workload: twoKernels, nodes: 24, ratio: 10})
	if err != nil {
		t.Fatal(err)
	}
	paper, err := workloadOf(scenario{workload: "W4", nodes: 24, ratio: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range w.Apps {
		var cpu, gpu float64
		for _, s := range a.Steps {
			cpu += s.CPU.Mean / float64(len(a.Steps))
			gpu += s.GPU.Mean / float64(len(a.Steps))
		}
		want := paper.Apps[i]
		if a.Name != want.Name || a.Nodes != want.Nodes || cpu != want.Steps[0].CPU.Mean || gpu != want.Steps[0].GPU.Mean || a.Steps[0].In != want.Steps[0].In {
			t.Errorf("%s: %v and %v on %d nodes; in the paper %+v", a.Name, cpu, gpu, a.Nodes, want)
		}
	}
}

func TestMeasure(t *testing.T) {
	w, err := workloadOf(scenario{workload: "W4", nodes: 4, ratio: 10})
	if err != nil {
		t.Fatal(err)
	}
	second := time.Second
	o := measure(&kernels.Result{
		End:     10 * second,
		Devices: []kernels.DeviceResult{{Node: 0, Busy: 10 * second}, {Node: 1, Busy: 5 * second}, {Node: 3, Busy: 3 * second}},
		Nodes:   []kernels.NodeResult{{Sent: 30_000_000}, {Sent: 10_000_000}, {}, {}},
		Apps: []kernels.AppResult{
			{Name: "H", Processes: 12, Done: 10, Remote: 5, Queue: 50 * second, Transfer: 10 * second},
			{Name: "L", Processes: 36, Done: 60, Queue: 60 * second},
		},
	}, w)
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	if !near(o.utilisation, 60) || !near(o.onNodesOf("H"), 100) || !near(o.onNodesOf("L"), 40) {
		t.Errorf("utilisation %v, of H's %v, of L's %v", o.utilisation, o.onNodesOf("H"), o.onNodesOf("L"))
	}
	// 120 s for 70 kernels; but 6 s for each kernel of 12 processes, 1 s for those of 36.
	if !near(o.wait, 12.0/7) || !near(o.waitOfProcess, 2.25) {
		t.Errorf("waits of %v s and %v s", o.wait, o.waitOfProcess)
	}
	if !near(o.ofApp("H"), 1) || !near(o.ofApp("L"), 6) || o.ofApp("X") != 0 || !near(o.remote, 50.0/7) || !near(o.moved, 4.0/7) {
		t.Errorf("%+v", o)
	}
}

func TestMetric(t *testing.T) {
	if got := metric("fig2", "W1", "AG, 2 choices", "alpha=0.003 beta=1"); got != "fig2_w1_ag_2_choices_alpha_0.003_beta_1" {
		t.Error(got)
	}
}

// Margins are differences of the same seed, and so have the interval of those.
func TestMargin(t *testing.T) {
	l := &lab{seeds: []uint64{1, 2}}
	a, b := l.plain("W4", "a"), l.plain("W4", "b")
	l.Found = map[scenario][]outcome{a: {{utilisation: 50}, {utilisation: 90}}, b: {{utilisation: 47}, {utilisation: 87}}}
	sw := sweep{
		key: "key", title: "Title", axis: "x", labels: []string{"1", "2"}, xs: []float64{1, 2}, shows: []measured{utilisation},
		lines: []line{{"A", func(i int) scenario { return []scenario{a, {}}[i] }}}, over: &line{"B", func(int) scenario { return b }},
	}
	s := shown{Shown: exp.Shown{Title: "part"}}
	l.showSweep(&s, sw)
	if len(s.Rows) != 1 || s.Rows[0].Metric != "key_1_a_utilisation_points_more" || s.Rows[0].Ours != 3 || *s.Rows[0].HalfWidth != 0 || s.Rows[0].Unit != "points" {
		t.Errorf("%+v", s.Rows)
	}
	if len(s.Pictures) != 1 || len(s.Tables) != 1 || len(s.Tables[0].Rows) != 1 || s.Tables[0].Rows[0][1] != "3.0 ±0.0" {
		t.Errorf("%+v", s.Tables)
	}
}
