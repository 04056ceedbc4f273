package clientcore

import (
	"time"

	"muster/wire/control"
)

// Activity says whether the client uses its device, which matters while other clients wait for it,
// and how much GPU time it has used.
type Activity struct {
	Busy     bool // kernels were launched and may still run
	Since    Time
	LastAt   Time          // of the last launch
	Kernels  int           // launched since the last report to the daemon
	Ran      time.Duration // how long they ran, in phases that have ended
	Spent    time.Duration // total since the client began
	Told     Time          // when the daemon was last told
	Estimate time.Duration // of the length of a phase with kernels, smoothed

	Watching bool
	Idle     bool // the daemon was told that the client is idle
	Synced   bool // the client has announced a synchronisation point, and sent nothing since
	Quiet    bool // no work was in flight when last checked, since QuietAt
	QuietAt  Time
	Reported Time // when the daemon last got the statistics
	Changed  bool // something has happened since
}

const (
	idleAfter   = time.Millisecond       // how long nothing must happen before the daemon is told
	reportEvery = 250 * time.Millisecond // how often the daemon gets the statistics
	toldEvery   = 10 * time.Millisecond  // how often it is told of short phases
	longWait    = 10 * time.Second
)

// Patience is how long the executor may wait for a message before it checks whether work is in
// flight (Observe).
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

// Working says whether kernels may be running, as far as the core knows.
func (c *Core) Working() bool { return c.Activity.Busy }

// Unnoticed says whether it would be news to the core that all work had ended at a time.
func (c *Core) Unnoticed(at Time) bool { return c.Activity.Busy && at > c.Activity.LastAt }

// Ended says that no work is in flight, and that the executor saw the end of the last kernels at a
// time.
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

// launched notes a launch. Only those on the lease's device are counted here; a further device
// counts its own.
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

// tell reports the GPU time to the daemon.
func (a *Activity) tell(c *Core) {
	c.say(control.Ran{Kernels: a.Kernels, Busy: a.Ran, Queued: c.mapping.queuedAt(c.Lease.Device)})
	a.Kernels, a.Ran, a.Told = 0, 0, c.Now
	for i := range c.Further {
		c.tellFurther(&c.Further[i])
	}
}

// report sends the statistics to the daemon.
func (a *Activity) report(c *Core) {
	a.Reported, a.Changed = c.Now, false
	c.say(control.Report{Stats: c.Stats()})
}

// message notes that the client has sent a message.
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

// part reports a part of a long phase.
func (a *Activity) part(c *Core) {
	if !a.Busy || c.Now-a.Since <= reportEvery {
		return
	}
	p := c.Passage()
	for _, m := range p.Tell(c.Now) {
		c.say(m)
	}
	c.Passed(&p)
}

// Passing says that time passes while an operation is performed that may wait for kernels, so that
// their GPU time is reported as it passes. It may be called at any time, like UrgentMessage; its
// operations are only messages to the daemon.
func (c *Core) Passing(now Time) []Op {
	ops, _ := c.aside(func() error {
		c.Now = max(c.Now, now)
		c.Activity.part(c)
		return nil
	})
	return ops
}

// Passage is the GPU time that the daemon has not been told of, as a value: an executor that is about to
// wait for kernels, and will not call the core meanwhile, takes it along (Core.Passage). Whoever notices
// that time passes tells the daemon of it (Tell). After the wait, the core hears what was told (Passed).
type Passage struct {
	busy        bool
	since, told Time
	spent       time.Duration // told of since the executor began to wait
	home        control.Ran
	further     []control.RanFurther
}

// Passage returns what the daemon has not been told of.
func (c *Core) Passage() Passage {
	a := &c.Activity
	p := Passage{busy: a.Busy, since: a.Since, told: a.Told, home: control.Ran{Kernels: a.Kernels, Busy: a.Ran, Queued: c.mapping.queuedAt(c.Lease.Device)}}
	for i := range c.Further {
		if f := &c.Further[i]; f.Number > 0 {
			p.further = append(p.further, c.ranFurther(f))
		}
	}
	return p
}

// Tell returns what the daemon is to be told now, if a phase with kernels is long enough for that. It does
// not use the core, so it may be called in another goroutine than the core's.
func (p *Passage) Tell(now Time) (said []control.ToDaemon) {
	phase := now - p.since
	if !p.busy || phase <= reportEvery {
		return nil
	}
	p.since, p.told, p.spent = now, now, p.spent+phase
	p.home.Busy += phase
	said = append(said, p.home)
	p.home = control.Ran{Queued: p.home.Queued}
	for i, f := range p.further {
		if news(f) {
			said = append(said, f)
		}
		p.further[i] = control.RanFurther{Device: f.Device, Loan: f.Loan, Queued: f.Queued}
	}
	return said
}

// Passed says what the daemon was told while the executor waited.
func (c *Core) Passed(p *Passage) {
	if p.spent == 0 {
		return
	}
	c.Now = max(c.Now, p.told)
	a := &c.Activity
	a.Since, a.Told, a.Kernels, a.Ran = p.since, p.told, 0, 0
	a.Spent += p.spent
	for i := range c.Further {
		c.Further[i].told()
	}
}

// Last reports the GPU time that was not reported yet: no work is running, and the client ends. Its
// operations are only messages to the daemon.
func (c *Core) Last(now Time) []Op {
	ops, _ := c.aside(func() error {
		c.Now = max(c.Now, now)
		c.Activity.settle(c, c.Now)
		return nil
	})
	return ops
}

// Watch starts or stops reporting to the daemon whether the client is idle. It begins with the
// present state: whether no work is in flight, and whether there are more messages.
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

// idle tells the daemon that the client is idle, once it has been for idleAfter.
func (a *Activity) idle(c *Core) {
	if a.Watching && !a.Idle && c.Lease.Held && c.Now-a.QuietAt >= idleAfter {
		a.Idle = true
		c.say(control.Idle{For: c.Now - a.QuietAt})
	}
}

// atSyncPoint tells the daemon that the client waits for others. The client's next message ends
// that.
func (a *Activity) atSyncPoint(c *Core) {
	a.Idle, a.Synced = true, true
	c.say(control.SyncPoint{})
}

// stop notes that no work is running any more.
func (a *Activity) stop(c *Core) {
	a.settle(c, c.Now)
	a.Synced = false
	a.unwatch(c)
}

// settle notes that no work has been running since a time, and reports everything that was not
// reported.
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

// Observe is called while no message comes. Quiet says whether no work is in flight; if so, ended
// is when the executor last saw the end of work (0: never).
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
