package clientcore

import (
	"time"

	"muster/wire/control"
)

// Activity says whether the client uses its device, for as long as others may
// care.
type Activity struct {
	Busy     bool // kernels were launched and may run
	Since    Time
	LastAt   Time          // of the last launch
	Kernels  int           // launched since the daemon was told
	Ran      time.Duration // what they took, in phases that have ended
	Spent    time.Duration // the same, since the client began
	Told     Time          // when the daemon was told
	Estimate time.Duration // of a phase with kernels, from those seen

	Watching bool
	Idle     bool // the daemon was told so
	Synced   bool // nothing came since the client announced that it waits for others
	Quiet    bool // nothing was under way when it was last looked, since QuietAt
	QuietAt  Time
	Reported Time // when the daemon got the statistics
	Changed  bool // something happened since
}

const (
	idleAfter   = time.Millisecond       // so long nothing happens before the daemon is told
	reportEvery = 250 * time.Millisecond // how often the daemon is told what was done
	toldEvery   = 10 * time.Millisecond  // how often it is told of short phases
	longWait    = 10 * time.Second
)

// Patience is how long the executor may wait for a message before it looks
// whether anything is under way (Observe).
func (c *Core) Patience() time.Duration {
	a := &c.Activity
	switch {
	case a.Watching && !a.Idle && c.Lease.Held:
		return idleAfter
	case a.Busy:
		return 5 * time.Millisecond
	case a.Changed:
		return reportEvery
	}
	return longWait
}

// Working says whether kernels may run, as far as the core was told.
func (c *Core) Working() bool { return c.Activity.Busy }

// Unnoticed says whether the core would learn something if it were told that all
// work had ended at a time.
func (c *Core) Unnoticed(at Time) bool { return c.Activity.Busy && at > c.Activity.LastAt }

// Ended says that nothing is under way, and that somebody who waited saw the end
// of the last kernels at a time.
func (c *Core) Ended(now, at Time) []Op {
	c.start(now)
	a := &c.Activity
	if c.Unnoticed(at) {
		a.over(at)
		if c.Now-a.Told > toldEvery {
			a.tell(c)
		}
		if a.Changed && c.Now-a.Reported > reportEvery { // now, rather than at the next launch
			a.report(c)
		}
	}
	return c.ops
}

// launched notes that the program launches a kernel, on the device of the lease or another:
// those of others are counted there.
func (a *Activity) launched(c *Core, home bool) {
	if home {
		a.Kernels++
	}
	if !a.Busy {
		a.Busy, a.Since = true, c.Now
	}
	a.LastAt = c.Now
	if c.Now-a.Reported > reportEvery {
		a.report(c)
	}
}

// over ends a phase with kernels.
func (a *Activity) over(at Time) {
	phase := max(0, at-a.Since)
	a.Busy = false
	if a.Estimate == 0 {
		a.Estimate = phase
	}
	a.Estimate = (3*a.Estimate + phase) / 4
	a.Ran += phase
	a.Spent += phase
}

// tell tells the daemon what kernels took.
func (a *Activity) tell(c *Core) {
	c.say(control.Ran{Kernels: a.Kernels, Busy: a.Ran})
	a.Kernels, a.Ran, a.Told = 0, 0, c.Now
	for i := range c.Further {
		c.tellFurther(&c.Further[i])
	}
}

// report tells the daemon what was done so far, and what the client has.
func (a *Activity) report(c *Core) {
	a.Reported, a.Changed = c.Now, false
	c.say(control.Report{Stats: c.Stats()})
}

// message notes that the client did something.
func (a *Activity) message(c *Core) {
	a.part(c)
	a.Synced = false
	if a.Idle {
		a.Idle = false
		c.say(control.Busy{})
	}
	a.Quiet = false
	a.Changed = true
}

// part tells of a part of a long phase.
func (a *Activity) part(c *Core) {
	if !a.Busy {
		return
	}
	if phase := c.Now - a.Since; phase > reportEvery {
		a.Ran += phase
		a.Spent += phase
		a.Since += phase
		a.tell(c)
	}
}

// Passing says that time passes while an operation is performed that may wait for
// kernels: what they have run counts as it passes. It may be called at any time, as
// UrgentMessage; its operations only tell the daemon something.
func (c *Core) Passing(now Time) []Op {
	ops, _ := c.aside(func() error {
		c.Now = max(c.Now, now)
		c.Activity.part(c)
		return nil
	})
	return ops
}

// Last tells the daemon what it was not told of kernels: nothing runs any more, and the
// client ends. Its operations only tell the daemon something.
func (c *Core) Last(now Time) []Op {
	ops, _ := c.aside(func() error {
		c.Now = max(c.Now, now)
		c.Activity.settle(c, c.Now)
		return nil
	})
	return ops
}

// Watch begins or ends telling the daemon whether the client is idle. It begins
// with what is so now: whether nothing is under way, and whether messages wait.
func (c *Core) Watch(now Time, on, quiet, more bool) ([]Op, error) {
	c.start(now)
	a := &c.Activity
	c.emit(Op{Kind: WatchWaits, On: on})
	a.Watching, a.Idle = on, false
	more = more || c.Queued()
	switch {
	case !on || !c.Lease.Held:
	case a.Synced && !more:
		a.atSyncPoint(c)
	case !quiet || !a.Quiet || more:
		a.Quiet = false
		c.say(control.Busy{})
	default:
		a.idle(c)
	}
	return c.advance()
}

// idle tells the daemon that nothing happens, once that has been so for a while.
func (a *Activity) idle(c *Core) {
	if a.Watching && !a.Idle && c.Lease.Held && c.Now-a.QuietAt >= idleAfter {
		a.Idle = true
		c.say(control.Idle{For: c.Now - a.QuietAt})
	}
}

// atSyncPoint tells the daemon that the client waits for others. The next
// message says otherwise.
func (a *Activity) atSyncPoint(c *Core) {
	a.Idle, a.Synced = true, true
	c.say(control.SyncPoint{})
}

// stop notes that nothing runs any more.
func (a *Activity) stop(c *Core) {
	a.settle(c, c.Now)
	a.Synced = false
	a.unwatch(c)
}

// settle notes that nothing runs any more since a time, and tells the daemon all
// that it was not told.
func (a *Activity) settle(c *Core, at Time) {
	if a.Busy {
		a.over(at)
		a.tell(c)
		return
	}
	if a.Kernels > 0 {
		a.tell(c)
	}
	for i := range c.Further {
		c.tellFurther(&c.Further[i])
	}
}

// Observe says what is so while no message comes: whether anything is under way
// and, if not, when somebody who waited last saw work end (0 for nobody).
func (c *Core) Observe(now Time, quiet bool, ended Time) ([]Op, error) {
	c.start(now)
	a := &c.Activity
	if !quiet {
		a.Quiet = false
		a.part(c)
		return c.advance()
	}
	at := c.Now
	if ended > a.LastAt {
		at = ended
	}
	a.settle(c, at)
	if !a.Quiet {
		a.Quiet, a.QuietAt = true, c.Now
	}
	a.idle(c)
	if a.Changed && c.Now-a.Reported > reportEvery {
		a.report(c)
	}
	return c.advance()
}
