package tally

import (
	"testing"
	"time"
)

// A client that has work on a device all the time counts as one, however rarely it reports; one that
// has stopped counts less and less.
func TestRecentUse(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, 250 * time.Millisecond, time.Second} {
		var r Recent
		for now := every; now <= 5*time.Second; now += every {
			r = r.Add(now, 2, every)
		}
		if r.Busy < 0.9 || r.Busy > 1 {
			t.Errorf("busy all the time, reported every %v: %v", every, r.Busy)
		}
		if later := r.Faded(r.At + time.Second).Busy; later < 0.3 || later > 0.4 {
			t.Errorf("a second after that: %v", later)
		}
	}
	r := Recent{}.Add(time.Second, 1, time.Hour) // nobody has been busy for longer than since the last report
	if r.Busy > 1 {
		t.Errorf("%+v", r)
	}
}
