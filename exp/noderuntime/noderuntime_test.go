package noderuntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/wire/control"
)

// tiny is small enough for tests, which say nothing of times.
var tiny = scale{time: 1.0 / 2000, memory: 1.0 / 256}

func writer(t *testing.T, s scale, c card) func(p program) *script {
	t.Helper()
	made := &calibrator{scale: s, profile: s.profile(c), known: map[program]*script{}}
	return func(p program) *script {
		t.Helper()
		one, err := made.write(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
}

// All programs compute what they should, on a bare device and on a node.
func TestProgramsCompute(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	write := writer(t, tiny, c2050)
	var all []*script
	for _, p := range append(slices.Clone(shortPrograms), matmulLarge, optionsLarge) {
		s := write(p)
		if s.units < 1 || s.takes <= 0 {
			t.Errorf("%s: %d units take %v", p.name, s.units, s.takes)
		}
		if _, err := onBare([]control.DeviceConfig{tiny.profile(c2050)}, []*script{s}); err != nil {
			t.Error(err)
		}
		all = append(all, s)
	}
	for _, vgpus := range []int{1, 4} {
		o, err := onNode(t.Context(), setting{devices: tiny.devices(c2050, c1060), vgpus: vgpus}, all)
		if err != nil {
			t.Error(err)
		}
		if o.seconds <= 0 {
			t.Error("it took no time")
		}
	}
}

// A script notices when it gets back something else.
func TestWrongResultsAreFound(t *testing.T) {
	for _, k := range []*kernel{saxpy, vecadd, matmul, options, transpose, reduce} {
		b, err := k.build(1, 1, leastMemory)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(b.out.data)
		if err := b.verify(got); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
		got[2] ^= 0xff
		if b.verify(got) == nil {
			t.Errorf("%s: a damaged result passes", k.name)
		}
		var large tooLarge
		if _, err := k.build(1<<20, 1, leastMemory); !errors.As(err, &large) || large.most < 1 {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}

// Fig. 3-9 in small: alone on a GPU nothing is swapped; where memory is in
// conflict, it is, and all results are right nevertheless.
func TestSwapping(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	p := matmulLarge
	p.calls, p.cpu = 4, 2
	s := writer(t, scale{time: 1.0 / 600, memory: long.memory}, c2050)(p)
	scripts := slices.Repeat([]*script{s}, 6)
	for vgpus, swaps := range map[int]bool{serial: false, shared: true} {
		o, err := onNode(t.Context(), setting{devices: long.devices(c2050), vgpus: vgpus}, scripts)
		if err != nil || (o.swaps > 0) != swaps {
			t.Errorf("%d vGPUs: %d swaps, %v", vgpus, o.swaps, err)
		}
	}
}

// Every scheme brings every pattern to an end; only preemptive ones take a GPU
// away.
func TestSchemes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	v, err := newLab(t.Context()).vectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range allSchemes {
		for _, p := range []pattern{allToAll, broadcast, scatterGather, barrier} {
			programs := composition(2, parallel{cpu: 2, pattern: p, iterations: 2}, 0.05)
			o, err := parallelOnNode(t.Context(), how, v, programs)
			if err != nil {
				t.Errorf("%s, %v: %v", how.name, p, err)
			}
			if o.preemptions > 0 && !how.preempts {
				t.Errorf("%s, %v: %d preemptions", how.name, p, o.preemptions)
			}
		}
	}
	o, err := parallelOnNode(t.Context(), preemptive, v, composition(0, parallel{cpu: 2, pattern: barrier, iterations: 3}, 0.1))
	if err != nil || o.preemptions == 0 {
		t.Errorf("nobody was told to leave while idle: %+v, %v", o, err)
	}
}

func TestPatterns(t *testing.T) {
	// In a broadcast the first waits for nobody, and the others only for it.
	g := newGroup(3)
	for i := 1; i <= 5; i++ {
		if err := g.communicate(broadcast, 0, i, i == 5); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i <= 5; i++ {
		if err := g.communicate(broadcast, 2, i, i == 5); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []pattern{allToAll, scatterGather, barrier} {
		const iterations = 50
		g := newGroup(4)
		reached := make([]int, 4) // guarded by g.mu
		err := together(4, func(rank int) error {
			for i := 1; i <= iterations; i++ {
				g.mu.Lock()
				reached[rank] = i
				for other, n := range reached {
					if n < i-1 {
						t.Errorf("%v: process %d begins iteration %d while %d is in %d", p, rank, i, other, n)
					}
				}
				g.mu.Unlock()
				if err := g.communicate(p, rank, i, i == iterations); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
	// Nobody waits for a process that is no more.
	failing := newGroup(2)
	err := together(2, func(rank int) error {
		if rank == 1 {
			failing.fail()
			return nil
		}
		return failing.communicate(barrier, rank, 1, false)
	})
	if !errors.Is(err, errPartner) {
		t.Error(err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slow := script{program: program{name: "slow", kernel: saxpy, calls: 1000, sync: true}, pause: 10 * time.Millisecond}
	var err error
	if slow.body, err = saxpy.build(1, slow.calls, leastMemory); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, cancel)
	start := time.Now()
	if _, err := onNode(ctx, setting{devices: tiny.devices(c2050), vgpus: 1}, []*script{&slow}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(start); took > 8*time.Second { // 10 s and more if nobody heard
		t.Errorf("it took %v to end", took)
	}
}

// made gives every measurement of all figures a time: so long in the first run,
// and twice as long in the second.
func made(all bool, seconds func(key string) float64) measured {
	m := measured{}
	for _, f := range figures() {
		for _, one := range f.plan(all) {
			for run := 1; run <= 2; run++ {
				m[one.key] = append(m[one.key], outcome{seconds: float64(run) * seconds(one.key)})
			}
		}
	}
	return m
}

// What is shown of made-up times: every figure has rows and a picture, and the
// ratios are the right way round.
func TestShown(t *testing.T) {
	for _, all := range []bool{false, true} {
		m := made(all, func(key string) float64 {
			switch {
			case strings.HasSuffix(key, "_batch"):
				return 3
			case strings.HasSuffix(key, "_preemptive_2way"):
				return 2
			case key == swapping.name(200, serial):
				return 5
			}
			return 4
		})
		r := result(figures(), m, []uint64{1, 2}, all)
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if err := r.Page.WriteHTML(io.Discard); err != nil {
			t.Fatal(err)
		}
		for metric, want := range map[string]float64{
			"fig3_7_worst_overhead_pct": 0, "fig3_7_all_4vgpus_over_bare": 1, "fig3_9_growth_serial": 1.25, "fig3_9_growth_sharing": 1,
			"fig3_14a_10_4way_speedup": 0.75, "fig3_15_most_speedup": 1.5, "fig3_18_20_most_over_batch": 1.5, "fig3_18_20_most_over_4way": 2,
		} {
			if got := find(t, r, metric); got.Ours != want {
				t.Errorf("%s is %v, want %v", metric, got.Ours, want)
			}
		}
		if s := find(t, r, "fig3_9_cpu0_4vgpus_s"); s.Low != 4 || s.Ours != 6 || s.High != 8 {
			t.Errorf("%+v", s)
		}
	}
}

func find(t *testing.T, r *exp.Result, metric string) exp.Row {
	t.Helper()
	for _, row := range r.Rows {
		if row.Metric == metric {
			return row
		}
	}
	t.Fatalf("there is no row %s", metric)
	return exp.Row{}
}

// A figure that is asked for alone is measured alone, at all its points.
func TestPlans(t *testing.T) {
	keys := map[string]bool{}
	for _, f := range figures() {
		some, all := f.plan(false), f.plan(true)
		if len(some) == 0 || len(some) > len(all) {
			t.Errorf("%s: %d measurements of %d", f.name, len(some), len(all))
		}
		prefix := "fig" + strings.ReplaceAll(f.name, "-", "_")
		for _, one := range all {
			if keys[one.key] || !strings.HasPrefix(one.key, prefix) {
				t.Errorf("figure %s: key %s", f.name, one.key)
			}
			keys[one.key] = true
		}
	}
	if len(figures()) != 11 || !slices.Equal(Experiment.Figures, figureNames()) {
		t.Error(Experiment.Figures)
	}
}

// The devices have the paper's proportions.
func TestProportions(t *testing.T) {
	fast, slow := short.profile(c2050), short.profile(c1060)
	if r := slow.Speed / fast.Speed; r < 0.6 || r > 0.61 {
		t.Error("C1060 : C2050 =", r)
	}
	for _, s := range []scale{short, long} {
		three, four := s.profile(c2050).Memory, s.profile(c1060).Memory
		if 4*three != 3*four {
			t.Errorf("%d and %d bytes for 3 and 4 GB", three, four)
		}
		// To copy a part of the memory takes as long, relative to kernels.
		if r := s.memory / float64(s.profile(c2050).CopyBandwidth) / (s.time / pcie); r < 0.99 || r > 1.01 {
			t.Error("copies are out of proportion:", r)
		}
	}
	// Two large programs fit on a GPU, three do not.
	need := (uint64(matmulLarge.memory*1e6*long.memory) + granule - 1) / granule * granule
	for _, c := range []card{c2050, c1060} {
		if m := long.profile(c).Memory; 2*need > m || 3*need <= m {
			t.Errorf("%s: %d bytes for programs of %d", c.name, m, need)
		}
	}
}

// One measurement through the experiment's front door.
func TestRunOneFigure(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	var steps []string
	r, err := run(t.Context(), exp.Options{Seed: 1, Runs: 1, Figures: []string{"3-9"}, Progress: func(done, all int64) {
		steps = append(steps, fmt.Sprint(done, "/", all))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if len(steps) != 10 || steps[9] != "10/10" {
		t.Error(steps)
	}
	if find(t, r, "fig3_9_cpu200_1vgpus_swaps").Ours != 0 || find(t, r, "fig3_9_cpu200_4vgpus_swaps").Ours == 0 {
		t.Error("swaps where none are needed, or none where they are")
	}
	var b bytes.Buffer
	if err := r.Page.WriteHTML(&b); err != nil || !strings.Contains(b.String(), "Fig. 3-9") {
		t.Error(err)
	}
}
