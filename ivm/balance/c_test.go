package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/build"
)

// compile makes a program of C and returns its path.
func compile(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args = append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I../c", "-o", path}, args...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return path
}

// The balancers in C in virtual time, as model_test.go has those in Go: whatever the times, and whoever
// dies or leaves, all work is done or Root returns an error.
func TestBalancersInCInVirtualTime(t *testing.T) {
	program := compile(t, "balancers", "-Dclock_gettime=model_clock", "testdata/balancers.c", "testdata/model.c", "../c/balance.c", "-lm")
	for _, way := range []string{"spawning", "monitoring", "guided"} {
		for _, args := range [][]string{{way, "0", "300"}, {way, "0", "300", "fail"}} {
			if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	}
}

// A thousand runs of ivm-nbody --way guided, each with other speeds and heavy-tailed times.
func TestNBodyGuidedInVirtualTime(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "nbody.ptx"), nil, 0o600); err != nil { // its elements are on CPUs
		t.Fatal(err)
	}
	if err := build.Generated("../.."); err != nil {
		t.Fatal(err)
	}
	modelled := []string{"-Dclock_gettime=model_clock", "-ffp-contract=off", "-I../../examples/cuda", "-I../../shim/include"}
	object := compile(t, "nbody.o", append(modelled, "-c", "-Dmain=nbody_main", "-Wa,-I"+folder, "../../examples/ivm/nbody.c")...)
	program := compile(t, "nbody", append(modelled, "-no-pie", "-Wl,--unresolved-symbols=ignore-all", // nobody calls CUDA
		"testdata/nbody.c", "testdata/model.c", "../c/balance.c", "../../examples/ivm/divide.c", "../../examples/cuda/gpu.c", object, "-lm")...)
	if out, err := exec.Command(program, "0", "1000").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The library in C has the guide once more: both decide the same, piece by piece.
func TestTheGuideInCDecidesTheSame(t *testing.T) {
	program := compile(t, "guide", "-pthread", "testdata/guide.c", "../c/ivm.c", "-ldl")
	const seed = 9
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 30 {
		items, workers := rng.IntN(200_000), 1+rng.IntN(12)
		lies := round >= 20
		if lies {
			items = []int{-5, 0, 1, 200_000, math.MaxInt64}[rng.IntN(5)]
		}
		g := NewGuide(items, workers)
		var in, want strings.Builder
		fmt.Fprintln(&in, items, workers)
		for _, none := range []int{-1, workers, 1 << 30} { // no such worker
			fmt.Fprintln(&in, none, 1)
			fmt.Fprintln(&want, max(0, items), max(0, items))
		}
		for range 300 {
			worker, seconds := rng.IntN(workers), rng.Float64()
			switch rng.IntN(100) {
			case 0:
				seconds = -1
			case 1, 2:
				seconds = -2
			}
			if lies && rng.IntN(4) == 0 {
				seconds = []float64{math.NaN(), math.Inf(1), math.MaxFloat64, 0, 5e-324, 1e-310, 1e300}[rng.IntN(7)]
			}
			fmt.Fprintln(&in, worker, seconds)
			from, to := items, items
			switch {
			case seconds == -1:
				g.Lose(worker)
			case seconds == -2:
				g.Again()
			default:
				var ok bool
				from, to, ok = g.Next(worker, seconds)
				if ok && (from < 0 || from >= to || to > items) {
					t.Fatalf("seed %d: of %d items those from %d to %d are handed out", seed, items, from, to)
				}
			}
			fmt.Fprintln(&want, from, to)
		}
		if g.Done() == nil {
			fmt.Fprintln(&want, "done")
		}
		cmd := exec.Command(program)
		cmd.Stdin = strings.NewReader(in.String())
		got, err := cmd.Output()
		if err != nil || string(got) != want.String() {
			t.Fatalf("seed %d: %d items, %d workers: %v: the library in C decides otherwise", seed, items, workers, err)
		}
	}
}
