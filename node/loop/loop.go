// Package loop runs functions one after the other, so that what they share needs no lock: its state belongs
// to the loop. It knows the time, and wakes those that wait for some, but not what any of it is about.
//
// A function that the loop runs must never wait, a disk aside: nothing else happens meanwhile.
package loop

import (
	"sync"
	"time"

	"muster/node/refusal"
)

// Loop runs functions. Its goroutine is the one that calls Run; the others hand it functions with Do, Ask
// and Try.
type Loop struct {
	events   chan func()
	ended    chan struct{} // closed when Run returns
	clock    func() time.Time
	start    time.Time
	draining bool // the loop's
	others   sync.WaitGroup
}

// Alarm has Ring called at the time that Next gives, if it gives one, and maybe sooner. Both are called
// by the loop.
type Alarm struct {
	Next func() (at time.Duration, ok bool)
	Ring func()
}

// New makes a loop whose time begins now.
func New(clock func() time.Time) *Loop {
	return &Loop{events: make(chan func(), 256), ended: make(chan struct{}), clock: clock, start: clock()}
}

// Do has the loop run f later, and does not wait for that. It returns false if the loop
// has ended. The loop itself must not call it: the channel may be full, and nobody else
// empties it.
func (l *Loop) Do(f func()) bool {
	select {
	case l.events <- f:
		return true
	case <-l.ended:
		return false
	}
}

// Ask has the loop run f, and waits until it has. It returns false if the loop ended
// first; f may have run all the same. The loop must not call it, since it would wait for
// itself.
func (l *Loop) Ask(f func()) bool {
	done := make(chan struct{})
	if !l.Do(func() { f(); close(done) }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-l.ended:
		return false
	}
}

// Try has the loop run f, and returns its error; ErrShuttingDown if the loop is about to end.
func (l *Loop) Try(f func() error) error {
	err := error(refusal.ErrShuttingDown)
	l.Ask(func() {
		if !l.draining {
			err = f()
		}
	})
	return err
}

// Now is the time since the loop was made.
func (l *Loop) Now() time.Duration { return l.clock().Sub(l.start) }

// Clock is the time of day.
func (l *Loop) Clock() time.Time { return l.clock() }

// Start is when the loop was made.
func (l *Loop) Start() time.Time { return l.start }

// Waiting is how many functions wait to be run.
func (l *Loop) Waiting() int { return len(l.events) }

// Ended is closed when the loop has ended.
func (l *Loop) Ended() <-chan struct{} { return l.ended }

// Go runs f in a goroutine, for whose end Wait waits.
func (l *Loop) Go(f func()) { l.others.Go(f) }

// Wait waits for the goroutines of Go.
func (l *Loop) Wait() { l.others.Wait() }

// Drain has the loop end once nothing is left to do (Run).
func (l *Loop) Drain() { l.draining = true }

// Draining says whether the loop is about to end. Only the loop asks.
func (l *Loop) Draining() bool { return l.draining }

// Run runs functions until the loop drains and no work is left. When an alarm is due, all of them ring, in
// order.
func (l *Loop) Run(isIdle func() bool, alarms []Alarm, after func()) {
	defer close(l.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !l.draining || !isIdle() {
		if at, ok := First(alarms); ok {
			timer.Reset(max(0, at-l.Now()))
		} else {
			timer.Reset(time.Hour)
		}
		select {
		case f := <-l.events:
			f()
		case <-timer.C:
			for _, a := range alarms {
				a.Ring()
			}
		}
		after()
	}
}

// First is when the first of some alarms is due.
func First(alarms []Alarm) (at time.Duration, ok bool) {
	for _, a := range alarms {
		if next, some := a.Next(); some && (!ok || next < at) {
			at, ok = next, true
		}
	}
	return at, ok
}
