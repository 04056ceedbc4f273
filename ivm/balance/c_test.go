package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The library in C has the guide once more: both decide the same, piece by piece.
func TestTheGuideInCDecidesTheSame(t *testing.T) {
	program := filepath.Join(t.TempDir(), "guide")
	if out, err := exec.Command("gcc", "-std=gnu11", "-O1", "-pthread", "-o", program, "testdata/guide.c", "../c/ivm.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
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
		cmd := exec.Command(program)
		cmd.Stdin = strings.NewReader(in.String())
		got, err := cmd.Output()
		if err != nil || string(got) != want.String() {
			t.Fatalf("seed %d: %d items, %d workers: %v: the library in C decides otherwise", seed, items, workers, err)
		}
	}
}
