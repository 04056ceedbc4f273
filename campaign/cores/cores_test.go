package cores

import (
	"errors"
	"os"
	"testing"

	"muster/internal/need"
	"muster/internal/seeds"
)

// plays is how many seeds are played.
func plays(count uint64) uint64 {
	if os.Getenv("MUSTER_SOAK") != "" {
		return 200 * count
	}
	return count
}

func TestGuided(t *testing.T) {
	for seed := range plays(400) {
		if err := Guided(seed); err != nil {
			t.Fatal(err)
		}
	}
}

// The guide of the library in C does the same, and decides the same.
func TestGuidedInC(t *testing.T) {
	c, err := CompileInC(t.TempDir())
	if errors.Is(err, ErrNoCompiler) {
		need.Missing(t, need.Compiler, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for seed := range plays(200) {
		if err := errors.Join(c.Guided(seed), c.Differs); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSharing(t *testing.T) {
	first, _ := seeds.First(t)
	for seed := range plays(400) {
		if err := Sharing(first + seed); err != nil {
			t.Fatal(err)
		}
	}
}
