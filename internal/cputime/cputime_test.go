package cputime

import (
	"runtime"
	"testing"
	"time"
)

// Work counts, however short, and sleep does not.
func TestOfThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 100 {
		began := OfThread()
		sum := 0
		for i := range 10_000 {
			sum += i * i % 7
		}
		if took := OfThread() - began; took <= 0 {
			t.Fatalf("the sum %d took %v", sum, took)
		}
	}
	const pause = 200 * time.Millisecond
	began := OfThread()
	time.Sleep(pause)
	if took := OfThread() - began; took > pause/2 {
		t.Errorf("a pause of %v was counted as %v", pause, took)
	}
}
