package fgd

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"muster/exp"
	"muster/exp/exptest"
	"muster/internal/need"
	"muster/model"
	"muster/policy/packing"
	"muster/report"
)

// thinned is a part of the cluster: every step-th node of it.
func thinned(t testing.TB, step int) *model.Cluster {
	t.Helper()
	c, err := loadCluster()
	if err != nil {
		t.Fatal(err)
	}
	small := *c
	small.Nodes = nil
	for i := 0; i < len(c.Nodes); i += step {
		small.Nodes = append(small.Nodes, c.Nodes[i])
	}
	return &small
}

// The trace is what the paper says it is, and nothing in it was rounded.
func TestTrace(t *testing.T) {
	c, err := loadCluster()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if len(c.Nodes) != 1213 || c.TotalGPUs() != 6212 || c.TotalCores() != 107_018_000 {
		t.Errorf("%d nodes, %d GPUs, %d thousandths of cores", len(c.Nodes), c.TotalGPUs(), c.TotalCores())
	}
	for _, want := range []struct {
		workload     string
		pods         int
		cores, gpus  int64 // thousandths
		types, multi int
	}{
		{"default", 8152, 85_436_012, 6_086_800, 0, 75},
		{"cpu050", 7439, 72_761_612, 6_086_800, 0, 75},
		{"gpushare40", 8152, 80_383_484, 5_641_250, 0, 62},
		{"gpuspec10", 8152, 85_436_012, 6_086_800, 732, 75},
		{"multigpu20", 8324, 95_171_812, 7_086_800, 0, 247},
	} {
		pods, err := loadPods(want.workload)
		if err != nil {
			t.Fatal(err)
		}
		got := want
		got.pods, got.cores, got.gpus, got.types, got.multi = len(pods), 0, 0, 0, 0
		for i := range pods {
			got.cores += int64(pods[i].Request.Cores)
			got.gpus += demand(&pods[i])
			if pods[i].Request.GPUType != "" {
				got.types++
			}
			if pods[i].Request.GPUs > 1 {
				got.multi++
			}
		}
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

// All pods arrive once, then some again, up to 130 %.
func TestSample(t *testing.T) {
	pods, err := loadPods("default")
	if err != nil {
		t.Fatal(err)
	}
	const capacity = 6_212_000
	list := sample(pods, capacity, 42)
	seen := map[*model.Job]int{}
	sum := int64(0)
	for i, j := range list {
		if i < len(pods) && seen[j] > 0 {
			t.Fatal("a pod comes a second time before all came once")
		}
		seen[j]++
		sum += demand(j)
	}
	if len(seen) != len(pods) || len(list) == len(pods) {
		t.Errorf("%d pods came, %d different ones of %d", len(list), len(seen), len(pods))
	}
	if sum > 1.3*capacity || sum < 1.3*capacity-8000 {
		t.Errorf("%d thousandths are asked for", sum)
	}
	other := sample(pods, capacity, 43)
	if list[0] == other[0] && list[1] == other[1] && list[2] == other[2] {
		t.Error("two seeds begin alike")
	}
	if cut := sample(pods, capacity/10, 42); len(cut) >= len(pods) || cut[0] != list[0] {
		t.Errorf("on a tenth of the cluster %d pods come", len(cut))
	}
}

// What the gauge adds up pod by pod is what one finds by counting at the end.
func TestGauge(t *testing.T) {
	c := thinned(t, 40)
	s, err := newScene(c, "gpuspec10")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range contenders {
		p, err := packing.New(k.policy, packing.Config{Seed: 1, Decoupled: k.decoupled, Target: s.target})
		if err != nil {
			t.Fatal(err)
		}
		capacity := 1000 * int64(c.TotalGPUs())
		g := newGauge(c, s.target, k.decoupled)
		out, err := fill(context.Background(), c, p, sample(s.pods, capacity, 1), g)
		if err != nil {
			t.Fatal(err)
		}
		idle, lost, inGaps := 0.0, 0.0, 0.0
		for n := range g.left {
			var levels []packing.Level
			for d, l := range g.left[n] {
				if l < 0 || l > 1000 {
					t.Fatalf("%s: device %d of node %d has %d left", k.name, d, n, l)
				}
				idle += float64(l)
				levels = append(levels, packing.Level{Type: int32(c.Nodes[n].GPUs[d]), Left: l, Count: 1})
			}
			lost += s.target.Fragments(g.cores[n], levels)
		}
		for _, x := range out.gaps {
			inGaps += 1000 * x
		}
		if got := (100 - final(&out.allocated)) / 100 * float64(capacity); math.Abs(got-idle) > 1e-3 || math.Abs(inGaps-idle) > 1e-3 {
			t.Errorf("%s: %v thousandths are not allocated, %v are idle, %v in gaps", k.name, got, idle, inGaps)
		}
		if got := final(&out.fragmented) / 100 * float64(capacity); !k.decoupled && math.Abs(got-lost) > 1e-3 {
			t.Errorf("%s: %v thousandths are fragments, counted at the end %v", k.name, got, lost)
		} else if k.decoupled && got > lost+1e-3 {
			t.Errorf("%s: decoupled, %v thousandths are fragments, more than the %v of nodes", k.name, got, lost)
		}
		if k.decoupled != (out.borrowing > 0) {
			t.Errorf("%s: %d pods borrow", k.name, out.borrowing)
		}
	}
}

// small is the experiment on a twentieth of the cluster; the tests ask it different things.
var small = sync.OnceValues(func() (*exp.Result, error) {
	c, err := loadCluster()
	if err != nil {
		return nil, err
	}
	few := *c
	few.Nodes = nil
	for i := 0; i < len(c.Nodes); i += 20 {
		few.Nodes = append(few.Nodes, c.Nodes[i])
	}
	return runOn(context.Background(), exp.Options{Seed: 1, Runs: 3, Workers: 2}, &few)
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

// The order of the policies, in the paper and beyond it. On a small cluster best
// fit and fgd are close on some workloads.
func TestOrderOfPolicies(t *testing.T) {
	at := func(workload, policy string) float64 { return smallRow(t, workload+"_"+policy+"_allocated_pct").Ours }
	for _, w := range workloads {
		random, fgd := at(w, "random_fit"), at(w, "fgd")
		for _, p := range []string{"dot_product", "gpu_clustering", "gpu_packing"} {
			if x := at(w, p); x <= random || x >= fgd {
				t.Errorf("%s: %s allocates %.2f %%, random %.2f, fgd %.2f", w, p, x, random, fgd)
			}
		}
		pooled, priced := at(w, "best_fit_decoupled"), at(w, "priced_fit")
		if !(fgd < pooled && pooled < priced) {
			t.Errorf("%s: fgd %.2f, decoupled best fit %.2f, priced fit %.2f", w, fgd, pooled, priced)
		}
		if smallRow(t, w+"_priced_fit_more_gpus").Ours <= 0 {
			t.Errorf("%s: nothing is gained", w)
		}
	}
	if random, best, fgd, drawn := at("default", "random_fit"), at("default", "best_fit"), at("default", "fgd"), at("default", "fgd_random_ties"); !(random < best && best < fgd && drawn < fgd) {
		t.Errorf("random %.2f, best fit %.2f, fgd %.2f, with random ties %.2f", random, best, fgd, drawn)
	}
}

// The numbers of one small run: they change only with the rules or the random numbers.
func TestGolden(t *testing.T) {
	c := thinned(t, 40)
	s, err := newScene(c, "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range contenders {
		out, err := s.run(context.Background(), k, 42)
		if err != nil {
			t.Fatal(err)
		}
		round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
		got := [3]float64{round(final(&out.allocated)), round(final(&out.fragmented)), float64(out.failed)}
		if got != golden[k.name] {
			t.Errorf("%q: {%v, %v, %v}, want %v", k.name, got[0], got[1], got[2], golden[k.name])
		}
	}
}

var golden = map[string][3]float64{ // allocated, fragmented, pods refused
	"random-fit":         {87.755, 11.96, 62},
	"dot-product":        {91.15, 8.511, 60},
	"gpu-clustering":     {88.626, 11.129, 63},
	"gpu-packing":        {90.306, 9.663, 60},
	"best-fit":           {92.048, 7.893, 58},
	"fgd":                {94.959, 4.886, 53},
	"fgd-random-ties":    {93.048, 6.916, 56},
	"best-fit-decoupled": {96.15, 3.787, 50},
	"fgd-decoupled":      {96.15, 3.787, 50},
	"priced-fit":         {96.469, 3.488, 49},
}

// Until a policy refuses a pod, no packing is denser than the bound.
func TestDensestIsABound(t *testing.T) {
	s, err := newScene(thinned(t, 40), "default")
	if err != nil {
		t.Fatal(err)
	}
	if s.densest <= 90 || s.densest >= 100 {
		t.Errorf("the densest packing fills %v %%", s.densest)
	}
	// Shares of more than half a device have one each.
	devices, asked := 0.0, 0.0
	for i := range s.pods {
		asked += float64(demand(&s.pods[i])) / 1000
		switch r := &s.pods[i].Request; {
		case r.GPUMemory == 0:
			devices += float64(r.GPUs)
		case r.GPUMemory > 500*milliGPU:
			devices++
		}
	}
	if simple := 100 * asked / devices; s.densest > simple {
		t.Errorf("%v %% is more than %v %%, which follows from the large shares alone", s.densest, simple)
	}
}

func TestResultCanBeShown(t *testing.T) {
	r, err := small()
	if err != nil {
		t.Fatal(err)
	}
	exptest.Page(t, r)
	charts := 0
	for _, s := range r.Page.Sections {
		if c, ok := s.(*report.Chart); ok {
			charts++
			if len(c.Series) != 8 {
				t.Errorf("%s: %d lines, want those of eight policies", c.Title, len(c.Series))
			}
		}
	}
	if charts != 2*len(workloads) {
		t.Errorf("%d charts, want two a workload", charts)
	}
	papers := 0
	for _, row := range r.Rows {
		if row.Paper != nil {
			papers++
		}
	}
	if papers != 4*6+3+3 {
		t.Errorf("%d published numbers are shown: four of each policy on the default workload, three on cpu050, and fgd's on the others", papers)
	}
}

// The same seed gives the same bytes, with any number of workers.
func TestDeterministic(t *testing.T) {
	exptest.SameWithWorkers(t, func(workers int) (*exp.Result, error) {
		return runOn(context.Background(), exp.Options{Seed: 7, Runs: 2, Workers: workers, Figures: []string{"gpuspec10", "multigpu20"}}, thinned(t, 60))
	}, 1, 3)
}

// An interrupted experiment gives the workloads that are through, or says that none is.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	o := exp.Options{Seed: 1, Runs: 1, Workers: 1, Progress: func(done, _ int64) {
		if done == int64(len(contenders))+2 {
			cancel()
		}
	}}
	r, err := runOn(ctx, o, thinned(t, 60))
	if err != nil {
		t.Fatal(err)
	}
	if parts := exp.Parts(r.Rows); r.Partial == "" || len(parts) != 1 || !strings.Contains(parts[0], "default") {
		t.Errorf("partial %q, parts %v", r.Partial, parts)
	}
	if _, err := runOn(ctx, exp.Options{Seed: 1, Runs: 1}, thinned(t, 60)); !errors.Is(err, context.Canceled) {
		t.Errorf("it went on: %v", err)
	}
}

// On the whole cluster of the authors, every policy is within the variation over seeds.
func TestPublishedDefault(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	r, err := run(context.Background(), exp.Options{Seed: 1, Runs: need.Rounds(1, 3), Workers: 2, Figures: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Paper != nil && strings.HasSuffix(row.Metric, "_allocated_pct") && math.Abs(row.Ours-*row.Paper) > 1 {
			t.Errorf("%s: %.2f, the authors have %.2f", row.Metric, row.Ours, *row.Paper)
		}
	}
}
