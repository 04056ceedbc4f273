package soft

import (
	"testing"
	"time"
)

// A stream that waits for a word polls ever more rarely, but is late by little compared with its wait.
func TestLooksAtWords(t *testing.T) {
	looks := func(long time.Duration) (n int) {
		for waited, pause := time.Duration(0), firstLook; waited < long; pause = nextLook(waited, pause) {
			if pause > max(soonLook, waited/100) {
				t.Fatalf("after %v it does not look for %v", waited, pause)
			}
			waited += pause
			n++
		}
		return n
	}
	if n := looks(time.Hour); n > 3600*20+2000 {
		t.Errorf("%d looks within an hour", n)
	}
	if n := looks(50 * time.Millisecond); n < 50 {
		t.Errorf("%d looks within 50 ms", n)
	}
}
