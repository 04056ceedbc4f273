package pace

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"muster/device"
	"muster/wire"
	"muster/wire/control"
)

// claims are those of a program of class latency, which the test plays.
func claims(t *testing.T) (*os.File, *wire.Precedence) {
	t.Helper()
	f, err := wire.CreatePrecedence()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p, err := wire.MapPrecedence(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Unmap)
	return f, p
}

func batch(share float64) *control.Pace {
	return &control.Pace{Share: share, Window: 200 * time.Microsecond, Quantum: time.Second}
}

// The part of the time for which a client may be held back.
func TestBudget(t *testing.T) {
	p := &Pacer{Pace: control.Pace{Share: 0.75}, budget: 75 * time.Millisecond}
	for _, c := range []struct {
		at         int64 // in milliseconds
		held       time.Duration
		wantBudget time.Duration
	}{
		{0, 0, 75}, {10, 0, 75}, {50, 40, 35}, {100, 50, 22}, {1100, 0, 75}, {1200, 100, -25}, {1204, 0, -22},
	} {
		p.refill(c.at * 1e6)
		p.budget -= c.held * time.Millisecond
		if got := p.budget / time.Millisecond; got != c.wantBudget {
			t.Errorf("at %d ms: %d ms are left, want %d", c.at, got, c.wantBudget)
		}
	}
}

// events are a device's of which the test decides when they are done.
type fakeEvent struct {
	device.Event
	looks int // before it is done
	err   error
}

func (e *fakeEvent) Done() (bool, error) { e.looks--; return e.looks < 0, e.err }

func (e *fakeEvent) Watch() func(time.Duration) (bool, error) { return nil }

type fakeStream struct{ device.Stream }

func (fakeStream) Record(device.Event) error { return nil }

// fakeEvents are the events of a context.
type fakeEvents struct {
	made []*fakeEvent
	free []device.Event
}

func (c *fakeEvents) Spare() (device.Event, error) {
	if n := len(c.free); n > 0 {
		e := c.free[n-1]
		c.free = c.free[:n-1]
		return e, nil
	}
	e := &fakeEvent{looks: 2}
	c.made = append(c.made, e)
	return e, nil
}

func (c *fakeEvents) GiveBack(e device.Event) { c.free = append(c.free, e) }

func deaf() bool { return false }

// The window is one kernel where kernels are long, and some where they are short.
func TestWindow(t *testing.T) {
	for _, c := range []struct {
		kernel, window time.Duration
		groups, size   int
	}{
		{0, 200 * time.Microsecond, 2, 1},
		{time.Millisecond, 200 * time.Microsecond, 1, 1},
		{100 * time.Microsecond, 200 * time.Microsecond, 1, 1},
		{25 * time.Microsecond, 200 * time.Microsecond, 2, 4},
		{time.Nanosecond, 200 * time.Microsecond, 2, maxGroup},
	} {
		g := &fakeEvents{}
		p := &Pacer{kernel: c.kernel, heard: deaf}
		most := 0
		for range 40 * c.size {
			p.kernel, p.window = c.kernel, c.window
			if err := p.keepWindow(fakeStream{}); err != nil {
				t.Fatal(err)
			}
			p.kernel = c.kernel
			if err := p.After(g, fakeStream{}); err != nil {
				t.Fatal(err)
			}
			most = max(most, len(p.groups))
		}
		if most != c.groups || p.groupSize() != c.size {
			t.Errorf("kernels of %v, a window of %v: %d groups of %d in flight, want %d of %d", c.kernel, c.window, most, p.groupSize(), c.groups, c.size)
		}
		if held := len(g.made); held > 3 {
			t.Errorf("%d events were made for %d groups", held, c.groups)
		}
	}
}

// ownStream takes events of its own context only, as those of devices do.
type ownStream struct {
	device.Stream
	of *fakeEvents
}

func (s ownStream) Record(e device.Event) error {
	if !slices.Contains(s.of.made, e.(*fakeEvent)) {
		return errors.New("an event of another context")
	}
	return nil
}

// A program goes from one of its devices to another before an event is behind its launches.
func TestGroupsOfTwoDevices(t *testing.T) {
	p := &Pacer{heard: deaf}
	var contexts [2]fakeEvents
	for i := range 20 {
		p.kernel, p.window = 25*time.Microsecond, 200*time.Microsecond // groups of four
		on := ownStream{of: &contexts[i%2]}
		if err := p.keepWindow(on); err != nil {
			t.Fatal(err)
		}
		if err := p.After(&contexts[i%2], on); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range contexts {
		for _, e := range g.free {
			if !slices.Contains(g.made, e.(*fakeEvent)) {
				t.Errorf("device %d was given an event of the other", i)
			}
		}
	}
}

// What the daemon says is heard while kernels are waited for, and a fault is told.
func TestWindowGivesUp(t *testing.T) {
	heard := false
	g, p := &fakeEvents{}, &Pacer{window: time.Millisecond, kernel: time.Second, heard: func() bool { return heard }}
	if err := p.After(g, fakeStream{}); err != nil {
		t.Fatal(err)
	}
	g.made[0].looks = 1 << 60
	heard = true
	if err := p.keepWindow(fakeStream{}); err != nil || len(p.groups) != 1 {
		t.Errorf("it did not listen: %v, %d groups", err, len(p.groups))
	}
	heard = false
	g.made[0].err = errors.New("a fault")
	if err := p.keepWindow(fakeStream{}); err == nil || len(p.groups) != 0 {
		t.Errorf("the fault was not told: %v, %d groups", err, len(p.groups))
	}
}

// A worker that was stopped for long while it made way for others makes way again soon after.
func TestStoppedWhileHeldBack(t *testing.T) {
	p := &Pacer{Pace: control.Pace{Share: 0.5}}
	p.refill(int64(budgetSpan))
	p.refill(int64(time.Hour))
	p.spend(time.Hour)
	if p.refill(int64(time.Hour + 4*budgetSpan)); p.budget <= 0 {
		t.Errorf("it may be held back for %v", p.budget)
	}
	if p.held > budgetSpan {
		t.Errorf("it was held back for %v", p.held)
	}
}

// claimingEvent is an event that the device reaches at the second look; at the first, a program of
// class latency claims the device.
type claimingEvent struct {
	fakeEvent
	claim *wire.Claim
}

func (e *claimingEvent) Done() (bool, error) {
	e.claim.Hold()
	return e.fakeEvent.Done()
}

// A claim that comes while the window is full holds the next launch back.
func TestClaimComesWhileWindowIsFull(t *testing.T) {
	_, page := claims(t)
	claim := page.Claim(0, os.Getpid())
	p := &Pacer{Pace: *batch(0.5), page: page, kernel: time.Second, heard: deaf}
	for p.held == 0 { // on a busy machine the claim may be over before the launch is due
		claim.Hold()
		claim.End()
		p.budget, p.asOf, p.window = time.Millisecond, page.Now(), p.Window
		g := &fakeEvents{free: []device.Event{&claimingEvent{fakeEvent{looks: 1}, claim}}}
		if err := p.After(g, fakeStream{}); err != nil {
			t.Fatal(err)
		}
		if err := p.Before(0, fakeStream{}, false, false); err != nil {
			t.Fatal(err)
		}
		p.kernel = time.Second
	}
}

// The end of a group is predicted from the kernels before it, if these took about the same time.
func TestGroupIsNearlyOver(t *testing.T) {
	const us = time.Microsecond
	at := time.Now()
	for _, c := range []struct {
		what              string
		groups, count     int
		given, ended, now time.Duration
		kernel, spread    time.Duration
		over              bool
	}{
		{"in its middle", 1, 1, 0, 0, 50 * us, 100 * us, 0, false},
		{"at its end", 1, 1, 0, 0, 90 * us, 100 * us, 0, true},
		{"longer than predicted", 1, 1, 0, 0, 300 * us, 100 * us, 0, true},
		{"began when the one before had ended", 1, 1, 0, 80 * us, 90 * us, 100 * us, 0, false},
		{"many kernels", 1, 4, 0, 0, 90 * us, 100 * us, 0, false},
		{"another is behind it", 2, 1, 0, 0, 90 * us, 100 * us, 0, false},
		{"kernels differ", 1, 1, 0, 0, 90 * us, 100 * us, 30 * us, false},
		{"no kernel is known", 1, 1, 0, 0, 90 * us, 0, 0, false},
	} {
		g := group{count: c.count, given: at.Add(c.given)}
		p := &Pacer{kernel: c.kernel, spread: c.spread, ended: at.Add(c.ended), groups: slices.Repeat([]group{g}, c.groups)}
		if got := p.nearlyOver(g, at.Add(c.now)); got != c.over {
			t.Errorf("%s: nearly over: %v", c.what, got)
		}
	}
}
