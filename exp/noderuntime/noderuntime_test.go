package noderuntime

import (
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/exptest"
	"muster/internal/misuse"
)

// made gives every measurement of all figures a time: seconds in the first run, and twice that in
// the second.
func made(all bool, seconds func(key string) float64) *measured {
	m := newMeasured([]uint64{1, 2})
	m.Machine, m.Figures, m.All, m.Addition = "made up", study().FigureNames(), all, 0.001
	for _, p := range append(slices.Clone(shortPrograms), matmulLarge, optionsLarge, matmulSmall) {
		m.Alone[p.name] = alone{Seconds: 0.2, Kernel: 0.15, Copy: 0.01, Kernels: uint64(p.calls)}
	}
	for _, f := range figures() {
		for _, one := range f.Plan(m) {
			for run := 1; run <= 2; run++ {
				m.Outcomes[one.key] = append(m.Outcomes[one.key], outcome{Timing: bench.Timing{Seconds: float64(run) * seconds(one.key)}})
			}
		}
	}
	return m
}

func shownOf(t *testing.T, m *measured) *exp.Result {
	t.Helper()
	r, err := study().Result(m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// With made-up times, every figure has rows and a picture, ratios are not inverted, and the scaling
// is listed.
func TestShown(t *testing.T) {
	for _, all := range []bool{false, true} {
		m := made(all, func(key string) float64 {
			switch {
			case strings.HasSuffix(key, "_batch"):
				return 3
			case strings.HasSuffix(key, "_preemptive_2way"), strings.HasSuffix(key, "_migrate"):
				return 2
			case key == swapping.name(200, serial):
				return 5
			}
			return 4
		})
		for i := range m.Outcomes["fig3_11_12jobs_cpu100_migrate"] {
			m.Outcomes["fig3_11_12jobs_cpu100_migrate"][i].Moves = 7
		}
		r := shownOf(t, m)
		page := exptest.Page(t, r)
		for _, f := range figures() {
			if !strings.Contains(page, f.Part) {
				t.Errorf("%s is not on the page", f.Part)
			}
		}
		for metric, want := range map[string]float64{
			"fig3_7_worst_overhead_pct": 0, "fig3_7_all_4vgpus_over_gpu": 1, "fig3_9_growth_serial": 1.25, "fig3_9_growth_sharing": 1,
			"fig3_11_12jobs_cpu100_migrate_over_stay": 0.5, "fig3_11_12jobs_cpu100_migrate_moves": 7,
			"fig3_12_16jobs_4vgpus_speedup": 1, "fig3_13_16jobs_4vgpus_speedup": 1, "fig3_13_16jobs_offload_speedup": 1, "claim_3_12_offload": 0, "fig3_21_4processes_preemptive_2way_speedup": 1.5, "fig3_21_8processes_4way_s": 6, "claim_3_21_preemptive": 1, "claim_3_13_sharing": 0,
			"fig3_14a_10_4way_speedup": 0.75, "fig3_15_most_speedup": 1.5, "fig3_18_20_most_over_batch": 1.5, "fig3_18_20_most_over_4way": 2,
			"claim_3_11_migration_gains": 1, "claim_3_9_serial_grows_linearly": 0,
			"scale_multi_0.5s_iterations": 10, "scale_multi_0.3s_iterations": 10, "scale_multi_max_idle_ms": 1, "scale_mm_l_alone_s": 0.2, "scale_sc_calls": 3300,
		} {
			if got := exptest.Row(t, r, metric); got.Ours != want {
				t.Errorf("%s is %v, want %v", metric, got.Ours, want)
			}
		}
		if s := exptest.Row(t, r, "fig3_9_cpu0_4vgpus_s"); s.Low != 4 || s.Ours != 6 || s.High != 8 {
			t.Errorf("%+v", s)
		}
		for metric, want := range map[string]float64{"scale_multi_0.5s_iterations": 200, "scale_multi_0.3s_phase_s": 0.3, "scale_long_c2050_memory_mib": 3072, "scale_mm_l_alone_s": 30} {
			if got := exptest.Row(t, r, metric); got.Paper == nil || *got.Paper != want {
				t.Errorf("%s is %v in the paper", metric, got.Paper)
			}
		}
		// Long phases are measured only with all points.
		if got := slices.ContainsFunc(r.Rows, func(row exp.Row) bool {
			return row.Metric == "scale_multi_3s_iterations" && *row.Paper == 20 && row.Ours == leastIterations
		}); got != all {
			t.Errorf("all points %v: iterations of long phases are said %v", all, got)
		}
		if note := exptest.Row(t, r, "scale_bp_calls").Note; !strings.Contains(note, "64K inputs") || !strings.Contains(note, "bp --size 2k") {
			t.Error(note)
		}
		for _, said := range []string{"a batch queue that knows of no GPUs", "10 iterations stand for the paper's 200, and 3 for its 20"} {
			if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, said) }) {
				t.Errorf("no note says %q: %q", said, r.Notes)
			}
		}
	}
}

// A figure that is asked for alone is measured alone, at all its points.
func TestPlans(t *testing.T) {
	keys := map[string]bool{}
	for _, f := range figures() {
		some, all := f.Plan(&measured{}), f.Plan(&measured{All: true})
		if len(some) == 0 || len(some) > len(all) {
			t.Errorf("%s: %d measurements of %d", f.Name, len(some), len(all))
		}
		prefix := "fig" + strings.ReplaceAll(f.Name, "-", "_")
		for _, one := range all {
			if keys[one.key] || !strings.HasPrefix(one.key, prefix) {
				t.Errorf("figure %s: key %s", f.Name, one.key)
			}
			keys[one.key] = true
		}
	}
	if len(figures()) != 15 || !slices.Equal(Experiment.Figures, study().FigureNames()) {
		t.Error(Experiment.Figures)
	}
}

// Without MPI its figures are left out, and if nothing else is wanted that is an error.
func TestWithoutMPI(t *testing.T) {
	l := &lab{ctx: t.Context(), m: &measured{}}
	if err := l.choose(exp.Options{Figures: []string{"3-14", "3-20"}}); err == nil || !strings.Contains(err.Error(), "3-14, 3-20 are left out") || !strings.Contains(err.Error(), "apt-get install mpich") {
		t.Error(err)
	}
	m := made(false, func(string) float64 { return 1 })
	m.LeftOut = l.m.LeftOut
	if !slices.Contains(shownOf(t, m).Notes, l.m.LeftOut) {
		t.Error("it is not said")
	}
}

// What is missing is said.
func TestMissingFigures(t *testing.T) {
	m := made(false, func(string) float64 { return 1 })
	m.Missing = "figures 3-20"
	if notes := strings.Join(shownOf(t, m).Notes, "\n"); !strings.Contains(notes, "Missing: figures 3-20.") {
		t.Error(notes)
	}
}

func TestScaleFlag(t *testing.T) {
	if _, err := Experiment.Run(context.Background(), exp.Options{Flags: map[string]string{"patience": "soon"}}); err == nil || !strings.Contains(err.Error(), "as 10m") {
		t.Error(err)
	}
	for _, text := range []string{"0", "-1", "1001", "half", ""} {
		_, err := Experiment.Run(context.Background(), exp.Options{Flags: map[string]string{"scale": text}})
		if !misuse.Is(err) {
			t.Errorf("--scale %q: %v", text, err)
		}
	}
	for scale, want := range map[int][2]int{1: {200, 20}, 10: {20, 3}, 20: {10, 3}, 1000: {3, 3}} {
		m := &measured{Scale: scale}
		if got := [2]int{m.iterationsOf(200), m.iterationsOf(20)}; got != want {
			t.Errorf("scale %d: %v iterations of 200 and 20, want %v", scale, got, want)
		}
	}
}

// The devices have the paper's proportions.
func TestProportions(t *testing.T) {
	for c, want := range map[card]float64{c1060: 0.606, quadro2000: 0.466, gtx480: 1.304} {
		if math.Abs(power(c)-want) > 0.001 {
			t.Errorf("%s : C2050 = %v", c.Name, power(c))
		}
	}
	for _, s := range []scale{short, long, moved} {
		if got := s.copies * s.time / s.memory; math.Abs(got/pcie-1) > 0.01 {
			t.Errorf("copies are out of proportion: %v bytes a second in the paper's time", got)
		}
	}
	// Two large programs fit on a GPU, three do not. Each takes three units of memory.
	for _, c := range []card{c2050, c1060} {
		if m := long.bytes(c); 6*granule > m || 9*granule <= m {
			t.Errorf("%s: %d bytes", c.Name, m)
		}
	}
	// As many small products as share a GPU fit on the smallest.
	if m := moved.bytes(quadro2000); shared*granule > m {
		t.Errorf("%s: %d bytes", quadro2000.Name, m)
	}
}

// The sleep of a program in CPU phases is fixed, whatever shares its GPU.
func TestCPUPhases(t *testing.T) {
	a := alone{Seconds: 0.5, Kernels: 10}
	if got := matmulLarge.withCPU(a, 2).String(); !strings.HasSuffix(got, "--cpu-sleep --cpu-ms 100.000") {
		t.Error(got)
	}
	if got := matmulLarge.withCPU(a, 0).String(); got != matmulLarge.of().String() {
		t.Error(got)
	}
	p := parallel{processes: 4, phase: 0.3, others: 3, imbalance: -50, cpu: 0.5, pattern: scatterGather, iterations: 200}
	m := &measured{Scale: 20, Addition: 0.001}
	want := "phases --patient --pattern scatter-gather --iterations 10 --kernels 30 --elements 32768 --gpu-bytes 100000 --mpi-bytes 400000 --slow-ranks 3 --imbalance -50 --cpu-sleep --cpu-ms 15.000"
	if got := p.of(m).String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// The GPUs' own time: kernels one after the other on each, copies beside them.
func TestDealt(t *testing.T) {
	known := map[string]alone{"a": {Kernel: 1, Copy: 0.5}, "b": {Kernel: 0.1, Copy: 3}}
	a, b := program{name: "a"}, program{name: "b"}
	for _, c := range []struct {
		f    *drawnFigure
		list []program
		want float64
	}{
		{&overhead, []program{a, a}, 2}, {&overhead, []program{a, b}, 3.5}, {&sharing, []program{a, a, a}, 1 / power(c1060)}, {&sharing, []program{a, a, b, a}, 3},
	} {
		if got := c.f.dealt(known, c.list); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v on %d GPUs: %v, want %v", c.list, len(c.f.cards), got, c.want)
		}
	}
}

// What the phases of a workload leave idle, worked out by hand.
func TestBounds(t *testing.T) {
	best := intraParts("3-16", scatterGather)[1]
	between := interParts("3-19", scatterGather)[2]
	for _, c := range []struct {
		f    *parallelFigure
		key  string
		want float64
	}{
		{best, "50", 1.6},                  // 4 x 0.3 s one after the other; 4 x (0.3 + 3 x 0.15) s on four GPUs
		{best, "10", 1.2 / 1.11},           // 4 x (0.3 + 3 x 0.27) / 4
		{between, "4x3", 2.4 / 0.9},        // phases of 0.3 s and as long on the CPU, three of four GPUs
		{between, "4x4", 2.4 / 1.2},        // only the CPU phases
		{&preliminaryIntra, "50", 4.0 / 3}, // 0.5 s, and three times 0.333 s
		{&preliminaryInter, "4x3", 4.0 / 3},
		{&preliminaryInter, "3x4_1x3", 4 / 3.75},
	} {
		i := slices.IndexFunc(c.f.points, func(p point) bool { return p.key == c.key })
		if got := c.f.points[i].inPhases(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s, %s: %v, want %v", c.f.key, c.key, got, c.want)
		}
	}
	// As it was run: 10 iterations of 4 programs with phases of 30, 15, 15 and 15 kernels.
	m := &measured{Scale: 20, Addition: 0.001}
	if got := best.points[4].work(m); math.Abs(got-10*4*75*0.001/4) > 1e-9 {
		t.Error(got)
	}
}

// The page made from a file is the same as that made from the measurements.
func TestSaved(t *testing.T) {
	m := made(false, func(string) float64 { return 1 })
	path := t.TempDir() + "/kept.json"
	if err := bench.Save(path, m); err != nil {
		t.Fatal(err)
	}
	r, err := Experiment.Run(context.Background(), exp.Options{Flags: map[string]string{"from": path}})
	if err != nil {
		t.Fatal(err)
	}
	var before, after strings.Builder
	if err := shownOf(t, m).Page.WriteHTML(&before); err != nil {
		t.Fatal(err)
	}
	if err := r.Page.WriteHTML(&after); err != nil || after.String() != before.String() {
		t.Errorf("the pages differ: %v", err)
	}
	for name, spoil := range map[string]func(*measured){
		"version 2":    func(m *measured) { m.Version = 2 },
		"scale 0":      func(m *measured) { m.Scale = 0 },
		"nothing":      func(m *measured) { m.Seeds = nil },
		"no figure":    func(m *measured) { m.Figures = []string{"3-99"} },
		"with 2 seeds": func(m *measured) { m.Outcomes["fig3_7_1jobs_gpu"] = m.Outcomes["fig3_7_1jobs_gpu"][:1] },
		"Seconds:0":    func(m *measured) { m.Outcomes["fig3_7_1jobs_gpu"][0].Seconds = 0 },
		"program SC":   func(m *measured) { m.Alone["SC"] = alone{} },
		"fig3_9_cpu0_1vgpus was measured 0 times": func(m *measured) { delete(m.Outcomes, swapping.name(0, serial)) },
		"an addition": func(m *measured) { m.Addition = -1 },
		"without the": func(m *measured) { m.Addition = 0 },
	} {
		m := made(false, func(string) float64 { return 1 })
		spoil(m)
		if err := bench.Save(path, m); err != nil {
			t.Fatal(err)
		}
		if _, err := study().Frame().Load(path); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "{}", "[]", `{"version":1,"surprise":1}`, `{"version":1} {}`} {
		if _, err := study().Frame().Decode([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// Everything that is accepted from a file can be shown.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"machine":"m","figures":["3-9"],"all":false,"scale":20,"seeds":[1],"alone":{},"addition":0,"outcomes":{}}`))
	f.Add([]byte(`{"version":1,"figures":["3-7"],"scale":1,"seeds":[1],"outcomes":{"fig3_7_1jobs_gpu":[{"seconds":1e-320}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := study().Frame().Decode(text)
		if err != nil {
			return
		}
		r := shownOf(t, m)
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if err := r.Page.WriteHTML(io.Discard); err != nil {
			t.Fatal(err)
		}
	})
}
