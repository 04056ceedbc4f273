package clientcore

import (
	"time"

	"muster/wire"
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

// activity watches the client's work, and tells the daemon of it.
type activity struct {
	*standing
	Activity
	memory *memory
	loans  *loans
	mapped *mapped
}

func (a *activity) register(h *handlers) { h[wire.OpSyncPoint] = decoding(a.syncPoint) }

func (a *activity) save(to *State)   { to.Activity = a.Activity }
func (a *activity) load(from *State) { a.Activity = from.Activity }

const (
	idleAfter   = time.Millisecond       // how long nothing must happen before the daemon is told
	reportEvery = 250 * time.Millisecond // how often the daemon gets the statistics
	toldEvery   = 10 * time.Millisecond  // how often it is told of short phases
	longWait    = 10 * time.Second
)

// Patience is how long the executor may wait for a message before it checks whether work is in
// flight (Observe).
func (a *activity) Patience() time.Duration {
	switch {
	case a.Watching && !a.Idle && a.Lease.Held:
		return idleAfter
	case a.Busy:
		return 5 * time.Millisecond
	case a.Changed:
		return reportEvery
	}
	return longWait
}

// Watched says whether the daemon wants to know when the client is idle, since others wait.
func (a *activity) Watched() bool { return a.Watching }

// Working says whether kernels may be running, as far as the core knows.
func (a *activity) Working() bool { return a.Busy }

// Unnoticed says whether it would be news to the core that all work had ended at a time.
func (a *activity) Unnoticed(at Time) bool { return a.Busy && at > a.LastAt }

// Ended says that no work is in flight, and that the executor saw the end of the last kernels at a
// time.
func (a *activity) Ended(now, at Time) []Op {
	a.start(now)
	if a.Unnoticed(at) {
		a.over(at)
		if a.Now-a.Told > toldEvery {
			a.tell()
		}
		if a.Changed && a.Now-a.Reported > reportEvery { // now, rather than at the next launch
			a.report()
		}
	}
	return a.ops
}

// launched notes a launch. Only those on the lease's device are counted here; a further device
// counts its own.
func (a *activity) launched(home bool) {
	if home {
		a.Kernels++
	}
	if !a.Busy {
		a.Busy, a.Since = true, a.Now
	}
	a.LastAt = a.Now
	if a.Now-a.Reported > reportEvery {
		a.report()
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
func (a *activity) tell() {
	a.say(control.Ran{Kernels: a.Kernels, Busy: a.Ran, Queued: a.mapped.queuedAt(a.Lease.Device)})
	a.Kernels, a.Ran, a.Told = 0, 0, a.Now
	for i := range a.loans.Further {
		a.loans.tellFurther(&a.loans.Further[i])
	}
}

// report sends the statistics to the daemon.
func (a *activity) report() {
	a.Reported, a.Changed = a.Now, false
	a.say(control.Report{Stats: a.memory.Stats()})
}

// message notes that the client has sent a message.
func (a *activity) message() {
	a.part()
	a.Synced = false
	if a.Idle {
		a.Idle = false
		a.say(control.Busy{})
	}
	a.Quiet = false
	a.Changed = true
}

// part reports a part of a long phase.
func (a *activity) part() {
	if !a.Busy || a.Now-a.Since <= reportEvery {
		return
	}
	p := a.Passage()
	for _, m := range p.Tell(a.Now) {
		a.say(m)
	}
	a.Passed(&p)
}

// Passing says that time passes while an operation is performed that may wait for kernels, so that
// their GPU time is reported as it passes. It may be called at any time, like UrgentMessage; its
// operations are only messages to the daemon.
func (a *activity) Passing(now Time) []Op {
	return a.aside(func() {
		a.Now = max(a.Now, now)
		a.part()
	})
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
func (a *activity) Passage() Passage {
	p := Passage{busy: a.Busy, since: a.Since, told: a.Told, home: control.Ran{Kernels: a.Kernels, Busy: a.Ran, Queued: a.mapped.queuedAt(a.Lease.Device)}}
	for i := range a.loans.Further {
		if f := &a.loans.Further[i]; f.Number > 0 {
			p.further = append(p.further, a.loans.ranFurther(f))
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
func (a *activity) Passed(p *Passage) {
	if p.spent == 0 {
		return
	}
	a.Now = max(a.Now, p.told)
	a.Since, a.Told, a.Kernels, a.Ran = p.since, p.told, 0, 0
	a.Activity.Spent += p.spent
	for i := range a.loans.Further {
		a.loans.Further[i].told()
	}
}

// Last reports the GPU time that was not reported yet: no work is running, and the client ends. Its
// operations are only messages to the daemon.
func (a *activity) Last(now Time) []Op {
	return a.aside(func() {
		a.Now = max(a.Now, now)
		a.settle(a.Now)
	})
}

// Watch starts or stops reporting to the daemon whether the client is idle. It begins with the
// present state: whether no work is in flight, and whether there are more messages.
func (c *Core) Watch(now Time, on, quiet, more bool) ([]Op, error) {
	c.start(now)
	c.emit(Op{Kind: WatchWaits, On: on})
	c.activity.Watching, c.activity.Idle = on, false
	more = more || c.queue.Queued()
	switch {
	case !on || !c.standing.Lease.Held:
	case c.activity.Synced && !more:
		c.activity.atSyncPoint()
	case !quiet || !c.activity.Quiet || more:
		c.activity.Quiet = false
		c.say(control.Busy{})
	default:
		c.activity.idle()
	}
	return c.advance()
}

// idle tells the daemon that the client is idle, once it has been for idleAfter.
func (a *activity) idle() {
	if a.Watching && !a.Idle && a.Lease.Held && a.Now-a.QuietAt >= idleAfter {
		a.Idle = true
		a.say(control.Idle{For: a.Now - a.QuietAt})
	}
}

// atSyncPoint tells the daemon that the client waits for others. The client's next message ends
// that.
func (a *activity) atSyncPoint() {
	a.Idle, a.Synced = true, true
	a.say(control.SyncPoint{})
}

// stop notes that no work is running any more.
func (a *activity) stop() {
	a.settle(a.Now)
	a.Synced = false
	a.unwatch()
}

// settle notes that no work has been running since a time, and reports everything that was not
// reported.
func (a *activity) settle(at Time) {
	if a.Busy {
		a.over(at)
		a.tell()
		return
	}
	if a.Kernels > 0 {
		a.tell()
	}
	for i := range a.loans.Further {
		a.loans.tellFurther(&a.loans.Further[i])
	}
}

// Observe is called while no message comes. Quiet says whether no work is in flight; if so, ended
// is when the executor last saw the end of work (0: never).
func (c *Core) Observe(now Time, quiet bool, ended Time) ([]Op, error) {
	c.start(now)
	if !quiet {
		c.activity.Quiet = false
		c.activity.part()
		return c.advance()
	}
	at := c.Now
	if ended > c.activity.LastAt {
		at = ended
	}
	c.activity.settle(at)
	if !c.activity.Quiet {
		c.activity.Quiet, c.activity.QuietAt = true, c.Now
	}
	c.activity.idle()
	if c.activity.Changed && c.Now-c.activity.Reported > reportEvery {
		c.activity.report()
	}
	return c.advance()
}

func (a *activity) syncPoint(*Message, *wire.SyncPoint) (bool, error) {
	if a.Lease.Held {
		a.atSyncPoint()
	}
	return true, nil
}

// unwatch notes that no daemon wants to know whether the client is idle. A daemon that does sends
// Watch.
func (a *activity) unwatch() {
	a.Idle = false
	if a.Watching {
		a.Watching = false
		a.emit(Op{Kind: WatchWaits})
	}
}

// Spent is how long kernels have run since the client began.
func (a *activity) Spent() time.Duration { return a.Activity.Spent }
