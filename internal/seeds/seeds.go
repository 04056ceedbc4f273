// Package seeds gives seeds to randomized tests: always the same ones, so that results are
// reproducible, unless MUSTER_SEED gives another. With MUSTER_SEED=random each run is different;
// make soak uses that.
package seeds

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// First is a test's seed, and whether the user gave it as a number. If the test fails, it says how
// to repeat the run.
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

// Check has rapid try a property on random cases, beginning with the test's seed unless the flag
// -rapid.seed gives another.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue {
		seed, _ := First(t)
		if err := f.Value.Set(strconv.FormatUint(seed, 10)); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, property)
}
