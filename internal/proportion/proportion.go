// Package proportion is for tests that work grows with its input and no faster. It counts the CPU
// time of one thread, which what else the machine does hardly changes, and compares two sizes in the
// same run. It knows nothing of what it measures.
package proportion

import (
	"runtime"
	"testing"
	"time"

	"muster/internal/cputime"
)

// noise is what a cache that others have emptied, or a collection of garbage, may cost.
const noise = 2 * time.Millisecond

// Hold fails the test if the larger work takes more than most times as long as the smaller one, in
// each of many tries: a disturbance only adds, so the least of all counts.
func Hold(t testing.TB, what string, most int, smaller, larger func()) {
	t.Helper()
	small, large := Time(smaller), Time(larger)
	for try := 0; try < 20 && large > time.Duration(most)*small+noise; try++ {
		small, large = min(small, Time(smaller)), min(large, Time(larger))
	}
	if large > time.Duration(most)*small+noise {
		t.Errorf("%s: the smaller takes %v, and the larger %v, more than %d times as long", what, small, large, most)
	}
}

// Time is the CPU time that a function takes in its own goroutine.
func Time(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := cputime.OfThread()
	do()
	return cputime.OfThread() - began
}
