package worker

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"muster/device"
	"muster/internal/mailbox"
	"muster/vmm"
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

// keepHolding renews a claim until it is stopped.
func keepHolding(c *wire.Claim) (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				c.End()
				return
			default:
				c.Hold()
				runtime.Gosched()
			}
		}
	}()
	return func() { close(done); <-over }
}

func batch(share float64) *control.Pace {
	return &control.Pace{Share: share, Window: 200 * time.Microsecond, Quantum: time.Second}
}

// Launches of class batch wait while others claim the device, and go on when they do not.
func TestBatchMakesWay(t *testing.T) {
	f, page := claims(t)
	c := newClient(t, options{pace: batch(0.99), page: f})
	v := newVectors(c, 1000)
	v.round(0)
	claim := page.Claim(0, os.Getpid())
	claim.Hold()
	stop := keepHolding(claim)
	v.launch(0)
	for looks := 1; page.Waiting(0) == 0; looks++ {
		if looks%100_000 == 0 { // the claim was not renewed in time, on a busy machine: another try
			v.launch(0)
		}
		runtime.Gosched()
	}
	stop()
	v.round(1)
	c.must(&wire.Synchronise{}, nil)
	reports := said[control.Report](c)
	c.revoke("idle") // which is reported
	if held := hear[control.Report](c, reports+1).Stats.Held; held <= 0 {
		t.Errorf("it was held back for %v, as the daemon is told", held)
	}
}

// A program that claims the device all the time does not stop others, and neither does one
// that was killed.
func TestClaimsAreBounded(t *testing.T) {
	f, page := claims(t)
	c := newClient(t, options{pace: batch(0.5), page: f})
	v := newVectors(c, 1000)
	v.round(0)
	stop := keepHolding(page.Claim(0, os.Getpid()))
	defer stop()
	for i := range 50 {
		v.round(i)
	}
}

// A stream that was launched on is destroyed before an event is behind its launches.
func TestStreamsEndInAGroup(t *testing.T) {
	f, page := claims(t)
	p := batch(0.01)
	p.Window = time.Hour // so that launches make large groups
	c := newClient(t, options{pace: p, page: f})
	v := newVectors(c, 1000)
	stop := keepHolding(page.Claim(0, os.Getpid()))
	defer stop()
	for i := range 50 {
		on := uint32(i + 1)
		c.post(&wire.StreamCreate{Stream: on})
		v.launch(on)
		c.must(&wire.StreamSynchronise{Stream: on}, nil)
		c.post(&wire.StreamDestroy{Stream: on})
		v.round(i)
	}
}

// The part of the time for which a client may be held back.
func TestBudget(t *testing.T) {
	p := &pacer{Pace: control.Pace{Share: 0.75}, budget: 75 * time.Millisecond}
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

// A program of class latency claims its device while its work is under way, and not longer.
func TestLatencyClaims(t *testing.T) {
	f, page := claims(t)
	c := newClient(t, options{pace: &control.Pace{Latency: true, Share: 0.8, Window: time.Millisecond}, page: f})
	v := newVectors(c, 1000)
	if page.About(0) {
		t.Error("the device is claimed before there is work")
	}
	v.round(0)
	if !page.About(0) {
		t.Error("the program has launched a kernel, and is not about")
	}
	c.post(&wire.HostFunction{Cookie: 1}) // the stream waits
	v.launch(0)
	cookie := c.nextCookie()
	if !page.Claimed(0, page.Now()) {
		t.Error("the device is not claimed while work is under way")
	}
	pending := c.start(&wire.Synchronise{})
	c.post(&wire.HostDone{Cookie: cookie})
	if r, _, err := pending.Wait(); r != success || err != nil {
		t.Fatal(r, err)
	}
	for page.Claimed(0, page.Now()) { // another stream may have been looked at first
		runtime.Gosched()
	}
	v.round(1)
}

// A program that launches without ever waiting is told to leave, and leaves: what it sent waits.
func TestYieldsWithoutWaiting(t *testing.T) {
	f, _ := claims(t)
	c := newClient(t, options{pace: batch(0.8), page: f})
	v := newVectors(c, 1000)
	v.round(0)
	for turn := range 2 {
		c.tell(control.Watch{On: true})
		stop, over := make(chan struct{}), make(chan int)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					over <- n
					return
				default:
					v.launch(0)
				}
			}
		}()
		c.revoke("quantum")
		close(stop)
		<-over
		v.round(turn)
	}
}

// events are a device's of which the test decides when they are done.
type fakeEvent struct {
	device.Event
	looks int // before it is done
	err   error
}

func (e *fakeEvent) Done() (bool, error) { e.looks--; return e.looks < 0, e.err }

type fakeStream struct{ device.Stream }

func (fakeStream) Record(device.Event) error { return nil }

type fakeContext struct {
	device.Context
	made *[]*fakeEvent
}

func (c fakeContext) NewEvent() (device.Event, error) {
	e := &fakeEvent{looks: 2}
	*c.made = append(*c.made, e)
	return e, nil
}

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
		var made []*fakeEvent
		g := &gpu{context: fakeContext{made: &made}}
		w := &worker{inbox: mailbox.New(replaces), pace: &pacer{kernel: c.kernel}}
		p := w.pace
		most := 0
		for range 40 * c.size {
			p.kernel, p.window = c.kernel, c.window
			if err := w.keepWindow(fakeStream{}); err != nil {
				t.Fatal(err)
			}
			p.kernel = c.kernel
			if err := w.afterLaunch(g, fakeStream{}); err != nil {
				t.Fatal(err)
			}
			most = max(most, len(p.groups))
		}
		if most != c.groups || p.groupSize() != c.size {
			t.Errorf("kernels of %v, a window of %v: %d groups of %d in flight, want %d of %d", c.kernel, c.window, most, p.groupSize(), c.groups, c.size)
		}
		if held := len(made); held > 3 {
			t.Errorf("%d events were made for %d groups", held, c.groups)
		}
	}
}

// ownStream takes events of its own context only, as those of devices do.
type ownStream struct {
	device.Stream
	made *[]*fakeEvent
}

func (s ownStream) Record(e device.Event) error {
	if !slices.Contains(*s.made, e.(*fakeEvent)) {
		return errors.New("an event of another context")
	}
	return nil
}

// A program goes from one of its devices to another before an event is behind its launches.
func TestGroupsOfTwoDevices(t *testing.T) {
	w := &worker{inbox: mailbox.New(replaces), pace: &pacer{}}
	var made [2][]*fakeEvent
	var gpus [2]*gpu
	for i := range gpus {
		gpus[i] = &gpu{context: fakeContext{made: &made[i]}}
	}
	for i := range 20 {
		w.pace.kernel, w.pace.window = 25*time.Microsecond, 200*time.Microsecond // groups of four
		on := ownStream{made: &made[i%2]}
		if err := w.keepWindow(on); err != nil {
			t.Fatal(err)
		}
		if err := w.afterLaunch(gpus[i%2], on); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range gpus {
		for _, e := range g.free {
			if !slices.Contains(made[i], e.(*fakeEvent)) {
				t.Errorf("device %d was given an event of the other", i)
			}
		}
	}
}

// What the daemon says is heard while kernels are waited for, and a fault is told.
func TestWindowGivesUp(t *testing.T) {
	var made []*fakeEvent
	g := &gpu{context: fakeContext{made: &made}}
	w := &worker{inbox: mailbox.New(replaces), pace: &pacer{window: time.Millisecond, kernel: time.Second}}
	if err := w.afterLaunch(g, fakeStream{}); err != nil {
		t.Fatal(err)
	}
	made[0].looks = 1 << 60
	w.inbox.Put(control.Revoke{})
	if err := w.keepWindow(fakeStream{}); err != nil || len(w.pace.groups) != 1 {
		t.Errorf("it did not listen: %v, %d groups", err, len(w.pace.groups))
	}
	w.inbox.Take()
	made[0].err = errors.New("a fault")
	if err := w.keepWindow(fakeStream{}); err == nil || len(w.pace.groups) != 0 {
		t.Errorf("the fault was not told: %v, %d groups", err, len(w.pace.groups))
	}
}

// A worker that was stopped for long while it made way for others makes way again soon after.
func TestStoppedWhileHeldBack(t *testing.T) {
	p := &pacer{Pace: control.Pace{Share: 0.5}}
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
	w := &worker{inbox: mailbox.New(replaces), pace: &pacer{Pace: *batch(0.5), page: page, kernel: time.Second}}
	p := w.pace
	for p.held == 0 { // on a busy machine the claim may be over before the launch is due
		claim.Hold()
		claim.End()
		p.budget, p.asOf, p.window = time.Millisecond, page.Now(), p.Window
		g := &gpu{place: vmm.Device(0), free: []device.Event{&claimingEvent{fakeEvent{looks: 1}, claim}}}
		if err := w.afterLaunch(g, fakeStream{}); err != nil {
			t.Fatal(err)
		}
		if err := w.beforeLaunch(g, fakeStream{}); err != nil {
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
		p := &pacer{kernel: c.kernel, spread: c.spread, ended: at.Add(c.ended), groups: slices.Repeat([]group{g}, c.groups)}
		if got := p.nearlyOver(g, at.Add(c.now)); got != c.over {
			t.Errorf("%s: nearly over: %v", c.what, got)
		}
	}
}
