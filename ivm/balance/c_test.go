package balance

import (
	"fmt"
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
	for range 20 {
		items, workers := rng.IntN(200_000), 1+rng.IntN(12)
		g := NewGuide(items, workers)
		var in, want strings.Builder
		fmt.Fprintln(&in, items, workers)
		for range 300 {
			worker, seconds := rng.IntN(workers), rng.Float64()
			if rng.IntN(100) == 0 {
				seconds = -1
			}
			fmt.Fprintln(&in, worker, seconds)
			from, to := items, items
			if seconds < 0 {
				g.Lose(worker)
			} else {
				from, to, _ = g.Next(worker, seconds)
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
