package soft

import (
	"context"
	"sync"
	"testing"
	"time"

	"muster/device"
)

// Each copy, fill and kernel is reported once: in the order of the stream, without overlap, and
// between its submission and the end of the wait for it. Work submitted after Time(nil) is not.
func TestStreamTellsWhenWorkRan(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	must(t, c.Map(base, granule))
	m, err := c.Load([]byte(nothing))
	must(t, err)
	f, err := m.Function("nothing")
	must(t, err)
	s := newStream(t, c)
	type ran struct {
		begin, end time.Time
		bytes      uint64
	}
	var mu sync.Mutex
	var got []ran
	before := time.Now()
	s.time(func(begin, end time.Time, bytes uint64) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, ran{begin, end, bytes})
	})
	one := device.Dim{X: 1, Y: 1, Z: 1}
	host := make([]byte, 4096)
	gate := make(chan struct{})
	must(t, s.CopyIn(base, host[:100])) // done by the submitting goroutine
	must(t, s.Call(func() { <-gate }))
	must(t, s.Launch(f, device.Launch{Grid: one, Block: one}))
	must(t, s.Fill(base, 1, 4, 50))
	must(t, s.Copy(base, base+2048, 300))
	must(t, s.CopyOut(host[:400], base))
	s.time(nil)
	must(t, s.CopyIn(base, host))
	close(gate)
	must(t, s.Synchronise(context.Background()))
	after := time.Now()
	mu.Lock()
	defer mu.Unlock()
	want := []uint64{100, 0, 200, 300, 400}
	if len(got) != len(want) {
		t.Fatalf("%d of %d pieces of work have told", len(got), len(want))
	}
	for i, r := range got {
		if r.bytes != want[i] || r.begin.Before(before) || r.end.Before(r.begin) || after.Before(r.end) {
			t.Errorf("work %d: %d bytes from %v to %v, between %v and %v", i, r.bytes, r.begin, r.end, before, after)
		}
		if i > 0 && r.begin.Before(got[i-1].end) {
			t.Errorf("work %d began before the one before it had ended", i)
		}
	}
}
