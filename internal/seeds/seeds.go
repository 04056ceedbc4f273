// Package seeds gives tests that play at random their seeds: always the same, so that
// what is right today is right tomorrow, unless MUSTER_SEED says another. With
// MUSTER_SEED=random each run plays something else; make soak does.
package seeds

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// First is a test's seed, and whether it was asked for by number. A failure says how to
// repeat it.
func First(t testing.TB) (seed uint64, asked bool) {
	t.Helper()
	switch text := os.Getenv("MUSTER_SEED"); text {
	case "":
		seed = 1
	case "random":
		seed = uint64(time.Now().UnixNano())
	default:
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("MUSTER_SEED: %v: give a number, or random", err)
		}
		asked = true
	}
	t.Logf("MUSTER_SEED=%d repeats it", seed)
	return seed, asked
}
