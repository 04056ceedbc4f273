// Package await has tests wait for what other processes do, which tell nobody.
package await

import (
	"testing"
	"time"
)

// patience only ends a test that hangs: test machines may be ten times slower than yours.
const patience = 4 * time.Minute

// Until waits until a condition holds, and ends the test with what was waited for if that takes too long.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	pause := time.Millisecond // grows: a node that is asked all the time does little else
	for end := time.Now().Add(patience); !is(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
		pause = min(pause+pause/8, 10*time.Millisecond)
	}
}
