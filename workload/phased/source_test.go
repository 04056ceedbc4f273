package phased

import (
	"math"
	"slices"
	"testing"
	"time"
)

func mustPaper(t testing.TB, name string, nodes int) *Workload {
	t.Helper()
	w, err := Paper(name, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// The draws themselves: they must be these on every machine.
func TestSourceGolden(t *testing.T) {
	w := mustPaper(t, "W4", 24)
	s := w.Sources(1).Of(1, 7)
	want := []Draw{
		{Kernel: 1, CPU: 2817251265, GPU: 344368357, In: 3443684, Out: 1721842},
		{Kernel: 1, CPU: 849058722, GPU: 1307473019, In: 13074730, Out: 6537365},
		{Kernel: 1, CPU: 1289208712, GPU: 698280004, In: 6982800, Out: 3491400},
	}
	for i, d := range want {
		if got := s.Next(); got != d {
			t.Errorf("step %d: %#v, want %#v", i, got, d)
		}
	}
	// A long run of all families, as one number.
	sum := uint64(0)
	for _, e := range List() {
		w, err := Load(e.Name, 24)
		if err != nil {
			t.Fatal(err)
		}
		for app := range w.Apps {
			s := w.Sources(99).Of(app, 3)
			for range 1000 {
				d := s.Next()
				for _, x := range []int64{int64(d.Kernel), int64(d.CPU), int64(d.GPU), d.In, d.Out} {
					sum = sum*0x9e3779b97f4a7c15 + uint64(x)
				}
			}
		}
	}
	if want := uint64(0xaff1e6e7630f86cd); sum != want {
		t.Errorf("got %#x, want %#x", sum, want)
	}
}

func TestSourcesAreTheirOwn(t *testing.T) {
	w := mustPaper(t, "W3", 24)
	first := func(app, rank int, seed uint64) Draw { return w.Sources(seed).Of(app, rank).Next() }
	if one, again := first(0, 5, 1), first(0, 5, 1); one != again {
		t.Error("the same process draws differently")
	}
	seen := map[time.Duration]string{}
	for app := range 2 {
		for rank := range 100 {
			for seed := range uint64(20) {
				cpu := first(app, rank, seed).CPU
				if seen[cpu] != "" {
					t.Fatalf("application %d, rank %d, seed %d draws as %s", app, rank, seed, seen[cpu])
				}
				seen[cpu] = "another"
			}
		}
	}
}

// Neighbouring processes and seeds must not resemble each other.
func TestSourcesAreUnrelated(t *testing.T) {
	w := mustPaper(t, "W5", 24)
	const n = 20_000
	series := func(rank int, seed uint64) []float64 {
		s := w.Sources(seed).Of(0, rank)
		out := make([]float64, n)
		for i := range out {
			out[i] = s.Next().GPU.Seconds()/0.75 - 1
		}
		return out
	}
	base := series(4, 10)
	for name, other := range map[string][]float64{
		"the next rank": series(5, 10), "the next seed": series(4, 11), "itself a step later": append(base[1:n:n], 0),
	} {
		sum := 0.0
		for i := range base {
			sum += base[i] * other[i]
		}
		if r := sum / n; math.Abs(r) > 4/math.Sqrt(n) {
			t.Errorf("correlation with %s: %v", name, r)
		}
	}
}

func TestSourceMeansAndSizes(t *testing.T) {
	w := mustPaper(t, "W7", 24)
	s := w.Sources(5).Of(1, 0)
	const n = 100_000
	var cpu, gpu time.Duration
	for range n {
		d := s.Next()
		cpu += d.CPU
		gpu += d.GPU
		if in, out := int64(math.Round(float64(d.GPU)/100)), int64(math.Round(float64(d.GPU)/200)); d.In-in < -1 || d.In-in > 1 || d.Out-out < -1 || d.Out-out > 1 {
			t.Fatalf("a kernel of %v is sent %d and sends %d, want %d and %d", d.GPU, d.In, d.Out, in, out)
		}
	}
	for name, c := range map[string]struct{ got, want time.Duration }{
		"cpu": {cpu / n, 2625 * time.Millisecond}, "gpu": {gpu / n, 325 * time.Millisecond},
	} {
		if off := math.Abs(float64(c.got-c.want)) / float64(c.want); off > 4/math.Sqrt(n) {
			t.Errorf("%s: mean %v, want %v", name, c.got, c.want)
		}
	}
}

func TestStepsTakeTurnsAndKernelsHaveNumbers(t *testing.T) {
	step := func(kernel string, gpu time.Duration) Step {
		return Step{Kernel: kernel, GPU: Time{ConstantOf(gpu)}, In: Size{Bytes: ConstantOf[int64](7)}, Out: Size{PerSecond: 1e9}}
	}
	w := &Workload{Apps: []App{
		{Name: "a", Nodes: 1, Steps: []Step{step("x", 1), step("y", 2), step("x", 3), step("", 4)}},
		{Name: "b", Nodes: 1, Steps: []Step{step("", 5)}},
		{Name: "c", Nodes: 1, Steps: []Step{step("y", 6), step("x", 7)}},
	}}
	if got, want := w.Kernels(), []string{"a/x", "a/y", "a", "b", "c/y", "c/x"}; !slices.Equal(got, want) {
		t.Errorf("kernels are %q, want %q", got, want)
	}
	for app, want := range [][]Draw{
		{{Kernel: 0, GPU: 1, In: 7, Out: 1}, {Kernel: 1, GPU: 2, In: 7, Out: 2}, {Kernel: 0, GPU: 3, In: 7, Out: 3}, {Kernel: 2, GPU: 4, In: 7, Out: 4}, {Kernel: 0, GPU: 1, In: 7, Out: 1}},
		{{Kernel: 3, GPU: 5, In: 7, Out: 5}, {Kernel: 3, GPU: 5, In: 7, Out: 5}},
		{{Kernel: 4, GPU: 6, In: 7, Out: 6}, {Kernel: 5, GPU: 7, In: 7, Out: 7}, {Kernel: 4, GPU: 6, In: 7, Out: 6}},
	} {
		s := w.Sources(1).Of(app, 0)
		for i, d := range want {
			if got := s.Next(); got != d {
				t.Errorf("application %d, step %d: %+v, want %+v", app, i, got, d)
			}
		}
	}
}

func TestLongTailsAreCut(t *testing.T) {
	for x, want := range map[float64]int64{0.4: 0, 0.5: 1, 1e30: 1 << 60, math.Inf(1): 1 << 60} {
		if got := whole(x); got != want {
			t.Errorf("whole(%v) = %d, want %d", x, got, want)
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	for _, e := range List() {
		w, err := Load(e.Name, 24)
		if err != nil {
			t.Fatal(err)
		}
		for app := range w.Apps {
			s := w.Sources(1).Of(app, 0)
			if n := testing.AllocsPerRun(100, func() { s.Next() }); n != 0 {
				t.Errorf("%s, %s: %v allocations a step", e.Name, w.Apps[app].Name, n)
			}
		}
	}
}

func BenchmarkSource(b *testing.B) {
	for _, spec := range []string{"W4", "three", "mpi"} {
		w, err := Load(spec, 24)
		if err != nil {
			b.Fatal(err)
		}
		for app := range w.Apps {
			b.Run(spec+"/"+w.Apps[app].Name, func(b *testing.B) {
				s := w.Sources(1).Of(app, 7)
				b.ReportAllocs()
				sum := int64(0)
				for b.Loop() {
					d := s.Next()
					sum += int64(d.CPU+d.GPU) + d.In + d.Out
				}
				_ = sum
			})
		}
	}
}
