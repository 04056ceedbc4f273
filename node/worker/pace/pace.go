// Package pace makes the kernels of a client give way to those of others on its device. It knows the page
// that the workers of a node share (wire.Precedence), and of its client only when it launches and in which
// stream. It does not know who is whose neighbour, nor why: classes are the daemon's decision.
package pace

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/internal/spin"
	"muster/wire"
	"muster/wire/control"
)

// Pacer makes the kernels of a client give way to those of others.
//
// The worker of a latency-class program claims its device in a page of memory that all workers
// share (wire.Precedence), from the first launch until the program's work has ended. Workers of
// batch-class programs hold their launches back meanwhile. While latency-class programs are around,
// batch workers also keep little work in flight, because a GPU cannot give back what it was given.
// The limit, the window, is an amount of time; where a single kernel takes longer, it is one
// kernel. On a device whose kernels take about the same time each, the next are submitted just
// before those in flight end: the device always has work, and never much.
//
// A client whose device another client waits for also keeps less in flight, so that its turn ends
// soon after the daemon revokes the lease.
//
// Neither rule may hold a client back for ever. Claims keep it from launching for a fraction of the
// time only (control.Pace.Share), whoever claims: budget is a token bucket of waiting time, which
// fills at rate Share and is spent by waiting. And kernels may wait for each other: if what is in
// flight does not end within longestPace, a later launch may be what it waits for, so the client
// launches freely for letAlone.
//
// The loop owns the fields, except claims, used and launched, which goroutines that answer calls
// use too.
type Pacer struct {
	control.Pace
	heard  func() bool
	page   *wire.Precedence
	file   *os.File                                       // of the page; kept open for the next daemon
	claims [wire.MaxPrecedence]atomic.Pointer[wire.Claim] // of a latency-class program, by device
	used   atomic.Uint64                                  // number of launches of a latency-class program

	launched atomic.Int64 // page time of the last of them

	budget time.Duration // how much longer the client may be held back
	asOf   int64         // page time at which budget was last updated
	held   time.Duration // total time the client was held back

	window  time.Duration // limit of work in flight; 0: no limit
	groups  []group       // launches in flight, oldest first
	open    int           // launches since the last group, with no event behind them
	stream  device.Stream // the stream of the open launches
	events  Events        // of the context of that stream
	kernel  time.Duration // duration of a kernel, smoothed
	spread  time.Duration // by how much durations differ from kernel, smoothed
	ended   time.Time     // when the last group was seen to end
	watched bool          // the device is polled for the end of groups (device.Event.Watch)
	freeAt  time.Time     // no limit until then, since kernels may wait for each other

	buried int64 // page time at which queues of dead workers were last looked for
}

// Events are the spare events of a context.
type Events interface {
	Spare() (device.Event, error)
	GiveBack(device.Event)
}

// group is a run of launches in one stream, and the event recorded behind them.
type group struct {
	from  Events
	event device.Event
	count int
	given time.Time
}

const (
	// NextRequest is how long the worker of a latency-class program spins for the next message
	// before it sleeps: waking up takes as long as many a request.
	NextRequest = 5 * time.Millisecond
	// budgetSpan is the time over which the fraction Share is kept.
	budgetSpan = 100 * time.Millisecond
	// stillLaunching is how long after a launch the program is assumed to launch more.
	stillLaunching = time.Millisecond
	// longestHold is how long a client waits at a time before it checks whether the processes that
	// claim its device are alive.
	longestHold = 2 * time.Millisecond
	// longestPace is how long a group may take before the limit is lifted, and letAlone for how
	// long it is lifted.
	longestPace, letAlone = time.Second, 10 * time.Second
	// longestSpin is how long the loop polls for the end of a group before it sleeps between polls:
	// a sleep takes longer than many kernels.
	longestSpin = 500 * time.Microsecond
	// yieldParts is the fraction of a quantum (1/16) that may be in flight while others wait.
	yieldParts = 16
	// ahead is how long before the predicted end of the work in flight the next is submitted: about
	// what it takes until the device has it.
	ahead = 15 * time.Microsecond
	// maxGroup bounds the launches of a group, so that a group still fits the window when kernels
	// become longer.
	maxGroup = 256
)

// New maps the page that the workers share; nil if the daemon sent none. Heard says whether the daemon has
// sent something: that may be a revocation, and ends every wait.
func New(p *control.Pace, file *os.File, heard func() bool) (*Pacer, error) {
	if p == nil {
		return nil, nil
	}
	page, err := wire.MapPrecedence(file)
	if err != nil {
		return nil, err
	}
	return &Pacer{Pace: *p, heard: heard, page: page, file: file, budget: time.Duration(p.Share * float64(budgetSpan)), asOf: page.Now()}, nil
}

// Close gives up all claims.
func (p *Pacer) Close() {
	if p == nil {
		return
	}
	p.each((*wire.Claim).Leave)
	p.page.Unmap()
	p.file.Close()
}

// each calls f for all claims. Any goroutine may call it.
func (p *Pacer) each(f func(*wire.Claim)) {
	for i := range p.claims {
		if c := p.claims[i].Load(); c != nil {
			f(c)
		}
	}
}

// Before makes the client give way to others before it launches on a device, if it must. Where no
// latency-class program is around and no client waits, it costs two reads. Watched says that another client
// waits for the device; free, that what is in flight may wait for a host function of the program, which the
// caller must then serve, so that it must not wait here.
func (p *Pacer) Before(number int, on device.Stream, watched, free bool) error {
	if number >= wire.MaxPrecedence {
		return nil
	}
	if p.Latency {
		p.claim(number)
		return nil
	}
	about := p.page.About(number)
	if !about && !watched {
		if p.window != 0 {
			p.Forget()
		}
		return nil
	}
	p.window = 0
	if about = about && p.page.StillAbout(number, p.page.Now()); about {
		p.window = p.Window
	} else if watched {
		p.window = p.Quantum / yieldParts
	}
	if p.window == 0 || free {
		p.Forget()
	} else if err := p.keepWindow(on); err != nil {
		return err
	}
	if about { // last, because a claim may have come while the window was full
		p.giveWay(number)
	}
	return nil
}

// claim says that a latency-class program has work on a device.
func (p *Pacer) claim(number int) {
	p.used.Add(1)
	c := p.claims[number].Load()
	if c == nil {
		if c = p.page.Claim(number, os.Getpid()); c == nil {
			return // the page has no room for another claim, so nobody gives way
		}
		p.claims[number].Store(c)
	}
	p.launched.Store(c.Hold())
}

// IsLatency says whether the worker claims devices for its client.
func (p *Pacer) IsLatency() bool { return p != nil && p.Latency }

// Look renews the claims of a program while its work goes on, and ends them when it is over. A
// program that launches without waiting may launch again at once, so the claims stay for
// stillLaunching.
func (p *Pacer) Look(quiet bool) {
	switch {
	case !p.IsLatency():
	case quiet && p.page.Now()-p.launched.Load() > int64(stillLaunching):
		p.each((*wire.Claim).End)
	case !quiet:
		p.each((*wire.Claim).Renew)
	}
}

// Waited ends the claims: the program has waited for all of its work.
func (p *Pacer) Waited() { p.each((*wire.Claim).End) }

// giveWay holds the client back while others claim its device, as long as the budget lasts. It
// returns early if the daemon has sent something: that may be a revocation.
func (p *Pacer) giveWay(number int) {
	now := p.page.Now()
	p.refill(now)
	for began := now; p.budget > 0 && !p.heard() && p.page.Claimed(number, now); {
		p.page.Await(number, min(longestHold, p.budget))
		then := now
		now = p.page.Now()
		p.refill(now)
		p.spend(time.Duration(now - then))
		if now-began > int64(longestHold) {
			p.page.Bury(number)
		}
	}
}

// refill adds the budget for the time that has passed.
func (p *Pacer) refill(now int64) {
	more := time.Duration(p.Share * float64(now-p.asOf))
	p.budget = min(p.budget+more, time.Duration(p.Share*float64(budgetSpan)))
	p.asOf = now
}

// spend subtracts the time that the client was held back. It counts at most budgetSpan: a worker
// that was stopped meanwhile did not wait for others all that time, and must not be exempt from
// waiting for long in return.
func (p *Pacer) spend(waited time.Duration) {
	waited = min(waited, budgetSpan)
	p.budget -= waited
	p.held += waited
}

// keepWindow waits until the work in flight leaves room for another launch.
func (p *Pacer) keepWindow(on device.Stream) error {
	if time.Now().Before(p.freeAt) {
		p.Forget()
		return nil
	}
	if p.open > 0 && (p.open >= p.groupSize() || p.stream != on) {
		if err := p.closeGroup(); err != nil {
			return err
		}
	}
	for len(p.groups) >= p.allowed() && p.open == 0 {
		over, err := p.groupEnds(p.groups[0])
		if err != nil || !over {
			return err
		}
	}
	return nil
}

// nearlyOver says whether the only group in flight ends within ahead, as far as the kernels before
// it tell.
func (p *Pacer) nearlyOver(g group, now time.Time) bool {
	left := later(g.given, p.ended).Add(time.Duration(g.count) * p.kernel).Sub(now)
	return len(p.groups) == 1 && p.isSteady() && left < ahead
}

// isSteady says whether kernels take about the same time each, so that the end of one can be
// predicted.
func (p *Pacer) isSteady() bool { return p.kernel > 0 && p.spread < p.kernel/8 }

// allowed is how many groups may be in flight: two, so that the device has work while the next
// group is submitted; one if a single kernel takes half a window or more, or if the loop polls for
// the predicted end of the group (groupEnds).
func (p *Pacer) allowed() int {
	if p.kernel >= p.window/2 || p.watched && p.isSteady() && p.window/2 <= longestSpin {
		return 1
	}
	return 2
}

// groupSize is how many launches take half a window.
func (p *Pacer) groupSize() int {
	if p.kernel <= 0 {
		return 1
	}
	return int(min(max(p.window/2/p.kernel, 1), maxGroup))
}

// After counts a launch, in a stream of the context that has the events.
func (p *Pacer) After(events Events, on device.Stream) error {
	if p.window == 0 {
		return nil
	}
	p.open++
	p.stream, p.events = on, events
	if p.open >= p.groupSize() {
		return p.closeGroup()
	}
	return nil
}

// closeGroup records an event behind the open launches, in their stream. Their context may be
// another than that of the next launch.
func (p *Pacer) closeGroup() error {
	e, err := p.events.Spare()
	if err == nil {
		err = p.stream.Record(e)
	}
	if err == nil {
		p.groups = append(p.groups, group{p.events, e, p.open, time.Now()})
		p.watched = e.Watch() != nil
	}
	p.noneOpen()
	return err
}

// noneOpen notes that no launch is without an event behind it.
func (p *Pacer) noneOpen() { p.open, p.stream, p.events = 0, nil, nil }

// Leaves notes that the program has destroyed a stream: no event can be recorded behind its
// launches any more.
func (p *Pacer) Leaves(on device.Stream) {
	if p != nil && p.stream == on {
		p.noneOpen()
	}
}

// groupEnds waits for the oldest group. It returns false, which lets the next launch through, if
// the group is nearly over, if the daemon has sent something, or if the group takes so long that it
// may wait for a later launch.
func (p *Pacer) groupEnds(oldest group) (over bool, err error) {
	began, patience := time.Now(), min(p.window, longestSpin)
	ended := oldest.event.Done
	if watch := oldest.event.Watch(); watch != nil { // the device works by itself, and polling takes nothing from it
		ended, patience = func() (bool, error) { return watch(spin.Look) }, longestSpin
	}
	for looks := 0; ; looks++ {
		if done, err := ended(); err != nil {
			p.Forget()
			return false, err
		} else if done {
			break
		}
		waited := time.Since(began)
		switch {
		case p.heard() || p.watched && p.nearlyOver(oldest, began.Add(waited)):
			return false, nil
		case waited > longestPace:
			p.freeAt = time.Now().Add(letAlone)
			p.Forget()
			return false, nil
		case waited < patience || looks < spin.Few:
			runtime.Gosched() // the device may be in this process, and needs its turn to run
		default:
			time.Sleep(min(waited/8, time.Millisecond))
		}
	}
	// The device runs groups in order, so this one began when it was submitted or when the one
	// before ended, whichever was later. The mean of a kernel and the
	// differences from it are smoothed with weight 1/4.
	now := time.Now()
	took := now.Sub(later(oldest.given, p.ended)) / time.Duration(oldest.count)
	if p.kernel == 0 {
		p.kernel, p.spread = took, took
	}
	p.spread = (3*p.spread + (took - p.kernel).Abs()) / 4
	p.kernel, p.ended = (3*p.kernel+took)/4, now
	p.groups = p.groups[1:]
	oldest.from.GiveBack(oldest.event)
	return true, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Forget stops limiting what is in flight, and returns the events.
func (p *Pacer) Forget() {
	if p == nil {
		return
	}
	for _, g := range p.groups {
		g.from.GiveBack(g.event)
	}
	p.groups, p.window = nil, 0
	p.noneOpen()
}

// Held is how long the client was held back in all.
func (p *Pacer) Held() time.Duration {
	if p == nil {
		return 0
	}
	return p.held
}

// Claimed is what a latency-class program had launched when one of its calls began to wait.
type Claimed struct {
	by    *Pacer
	used  uint64
	alone bool // all of it in one stream, so that all has ended when the wait ends
}

// Claimed returns what was launched so far, for a goroutine that waits for it. Streams counts those that
// may have work.
func (p *Pacer) Claimed(streams func() int) Claimed {
	if !p.IsLatency() {
		return Claimed{}
	}
	return Claimed{p, p.used.Load(), streams() == 1}
}

// End ends the claims if all work was waited for and nothing was launched meanwhile. Otherwise it returns
// false, and the caller looks later.
func (c Claimed) End() bool {
	switch {
	case c.by == nil:
	case c.alone && c.by.used.Load() == c.used:
		c.by.Waited()
	default:
		return false
	}
	return true
}

// self is this process; asking for it takes longer than looking at a queue.
var self = os.Getpid()

// Queue is where launches on a device are counted for the mappers of other programs; nil if there is no place
// left, or nobody who looks.
func (p *Pacer) Queue(device int) *wire.Queue {
	if p == nil {
		return nil
	}
	return p.page.Queue(device, self)
}

// buryEvery is how often a worker looks for queues of workers that were killed.
const buryEvery = time.Second

// TellQueues tells what other mapped programs have on devices now.
func (p *Pacer) TellQueues(devices []int, tell func(device, queued int)) {
	if p == nil {
		return
	}
	if now := p.page.Now(); now-p.buried > int64(buryEvery) {
		p.buried = now
		p.page.BuryQueues()
	}
	for _, device := range devices {
		if device < wire.MaxPrecedence {
			tell(device, p.page.QueuedBy(device, self))
		}
	}
}
