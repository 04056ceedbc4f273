package worker

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/wire"
	"muster/wire/control"
)

// pacer has the kernels of a client make way for those of others.
//
// The worker of a program of class latency claims its device in memory that all workers
// share (wire.Precedence), from the first launch until the program's work has ended. Workers
// of class batch hold their launches back meanwhile. As long as such programs are about, they
// also keep little in flight, because what a GPU was given cannot be taken back: the window is
// a time, and one kernel where a kernel takes longer than that.
//
// A client for whose device others wait keeps less in flight, too, so that its turn ends soon
// after it is told to leave.
//
// Neither may hold a client back for ever. Claims may keep it from launching for a part of
// the time only (control.Pace.Share), whoever claims. And kernels may wait for each other: if
// what is in flight does not end for a while, the client is let go on.
type pacer struct {
	control.Pace
	page   *wire.Precedence
	file   *os.File                                       // of it: the next daemon finds it here
	claims [wire.MaxPrecedence]atomic.Pointer[wire.Claim] // of a program of class latency, by device
	used   atomic.Uint64                                  // launches of such a program

	launched atomic.Int64 // when the last of them was

	budget time.Duration // for how long the client may be held back now
	asOf   int64         // when that was so
	held   time.Duration // for how long it was, all in all

	window time.Duration // of work in flight; 0: as much as there is
	groups []group       // launches that were given to the device, in its order
	open   int           // launches since the last group
	stream device.Stream // of these
	gpu    *gpu          // of that stream
	kernel time.Duration // what one takes, smoothed
	ended  time.Time     // when the last group was seen to have ended
	freeAt time.Time     // until then nothing is waited for: kernels may wait for each other
}

// group is some launches in a row, and the event behind them.
type group struct {
	gpu   *gpu
	event device.Event
	count int
	given time.Time
}

const (
	// nextRequest is for how long the worker of a program of class latency looks for its next
	// message before it sleeps: to be woken takes as long as many a request.
	nextRequest = 5 * time.Millisecond
	// budgetSpan is the time over which a client is held back no more than its part.
	budgetSpan = 100 * time.Millisecond
	// stillLaunching is how long after a launch another one is expected.
	stillLaunching = time.Millisecond
	// longestHold is how long a client waits at a time before it looks whether those who
	// claim are alive.
	longestHold = 2 * time.Millisecond
	// longestPace is how long what is in flight may take before it is let alone, and letAlone
	// for how long.
	longestPace, letAlone = time.Second, 10 * time.Second
	// longestSpin is how long the end of a kernel is looked for before the loop sleeps in
	// between: a sleep takes longer than many kernels.
	longestSpin = 500 * time.Microsecond
	// yieldParts is the part of a quantum that may be in flight while others wait.
	yieldParts = 16
	// maxGroup bounds the launches in a group, so that the window holds when kernels become
	// longer.
	maxGroup = 256
)

// newPacer maps what the workers share; nil if the daemon gave nothing.
func newPacer(p *control.Pace, file *os.File) (*pacer, error) {
	if p == nil {
		return nil, nil
	}
	page, err := wire.MapPrecedence(file)
	if err != nil {
		return nil, err
	}
	return &pacer{Pace: *p, page: page, file: file, budget: time.Duration(p.Share * float64(budgetSpan)), asOf: page.Now()}, nil
}

// close gives up all claims.
func (p *pacer) close() {
	if p == nil {
		return
	}
	p.each((*wire.Claim).Leave)
	p.page.Unmap()
	p.file.Close()
}

// each does something with all claims. It may be called by any goroutine.
func (p *pacer) each(f func(*wire.Claim)) {
	for i := range p.claims {
		if c := p.claims[i].Load(); c != nil {
			f(c)
		}
	}
}

// beforeLaunch makes way for others, if it must. Where nobody is about and nobody waits it
// costs the reading of two words.
func (w *worker) beforeLaunch(g *gpu, on device.Stream) error {
	p, number := w.pace, g.place.Index()
	if number >= wire.MaxPrecedence {
		return nil
	}
	if p.Latency {
		p.claim(number)
		return nil
	}
	about := p.page.About(number)
	if !about && !w.core.Activity.Watching {
		if p.window != 0 {
			p.forget()
		}
		return nil
	}
	p.window = 0
	if about && p.page.StillAbout(number, p.page.Now()) {
		w.giveWay(number)
		p.window = p.Window
	} else if w.core.Activity.Watching {
		p.window = p.Quantum / yieldParts
	}
	if p.window == 0 || w.hosts.outstanding() > 0 { // what is in flight may wait for the program
		p.forget()
		return nil
	}
	return w.keepWindow(on)
}

// claim says that a program of class latency has work on a device.
func (p *pacer) claim(number int) {
	p.used.Add(1)
	c := p.claims[number].Load()
	if c == nil {
		if c = p.page.Claim(number, os.Getpid()); c == nil {
			return // all places are taken: nobody makes way for it
		}
		p.claims[number].Store(c)
	}
	p.launched.Store(c.Hold())
}

// isLatency says whether the worker claims devices for its client.
func (p *pacer) isLatency() bool { return p != nil && p.Latency }

// look keeps the claims of a program whose work has not ended, and gives up those of one
// whose work has. A program that does not wait for its work may be about to launch more.
func (p *pacer) look(quiet bool) {
	switch {
	case !p.isLatency():
	case quiet && p.page.Now()-p.launched.Load() > int64(stillLaunching):
		p.each((*wire.Claim).End)
	case !quiet:
		p.each((*wire.Claim).Renew)
	}
}

// waited says that a program of class latency has waited for all of its work.
func (p *pacer) waited() { p.each((*wire.Claim).End) }

// giveWay holds the client back while others claim its device, for no more than its part of
// the time.
func (w *worker) giveWay(number int) {
	p := w.pace
	now := p.page.Now()
	p.refill(now)
	for began := now; p.budget > 0 && !w.inbox.waits() && p.page.Claimed(number, now); {
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

// refill counts the time that has passed.
func (p *pacer) refill(now int64) {
	more := time.Duration(p.Share * float64(now-p.asOf))
	p.budget = min(p.budget+more, time.Duration(p.Share*float64(budgetSpan)))
	p.asOf = now
}

// spend counts that the client was held back. A worker that was stopped meanwhile has not
// waited for others all the while: it owes them no time in return.
func (p *pacer) spend(waited time.Duration) {
	waited = min(waited, budgetSpan)
	p.budget -= waited
	p.held += waited
}

// keepWindow waits until what is in flight leaves room for another launch.
func (w *worker) keepWindow(on device.Stream) error {
	p := w.pace
	if time.Now().Before(p.freeAt) {
		p.forget()
		return nil
	}
	if p.open > 0 && (p.open >= p.groupSize() || p.stream != on) {
		if err := w.closeGroup(); err != nil {
			return err
		}
	}
	for len(p.groups) >= p.allowed() && p.open == 0 {
		over, err := w.groupEnds(p.groups[0])
		if err != nil || !over {
			return err
		}
	}
	return nil
}

// allowed is how many groups may be in flight: two, so that the device has something to do
// while the next is given to it, but one where that is long enough.
func (p *pacer) allowed() int {
	if p.kernel >= p.window/2 {
		return 1
	}
	return 2
}

// groupSize is how many launches make a group of half a window.
func (p *pacer) groupSize() int {
	if p.kernel <= 0 {
		return 1
	}
	return int(min(max(p.window/2/p.kernel, 1), maxGroup))
}

// afterLaunch notes a launch.
func (w *worker) afterLaunch(g *gpu, on device.Stream) error {
	p := w.pace
	if p.window == 0 {
		return nil
	}
	p.open++
	p.stream, p.gpu = on, g
	if p.open >= p.groupSize() {
		return w.closeGroup()
	}
	return nil
}

// closeGroup puts an event behind the launches that are not behind one. The device of these
// launches may be another than the one that the program uses next.
func (w *worker) closeGroup() error {
	p := w.pace
	e, err := p.gpu.spare()
	if err == nil {
		err = p.stream.Record(e)
	}
	if err == nil {
		p.groups = append(p.groups, group{p.gpu, e, p.open, time.Now()})
	}
	p.noneOpen()
	return err
}

// noneOpen says that no launch is without an event behind it.
func (p *pacer) noneOpen() { p.open, p.stream, p.gpu = 0, nil, nil }

// leaves says that the program has destroyed a stream: nothing can be put behind its launches
// any more.
func (p *pacer) leaves(on device.Stream) {
	if p != nil && p.stream == on {
		p.noneOpen()
	}
}

// groupEnds waits for the oldest group. It returns false if the daemon has something to say,
// or if the group takes so long that it may wait for what comes behind it.
func (w *worker) groupEnds(oldest group) (over bool, err error) {
	p := w.pace
	began := time.Now()
	for looks := 0; ; looks++ {
		if done, err := oldest.event.Done(); err != nil {
			p.forget()
			return false, err
		} else if done {
			break
		}
		waited := time.Since(began)
		switch {
		case w.inbox.waits() || w.hosts.outstanding() > 0:
			return false, nil
		case waited > longestPace:
			p.freeAt = time.Now().Add(letAlone)
			p.forget()
			return false, nil
		case waited < min(p.window, longestSpin) || looks < shortWait:
			runtime.Gosched() // the device may be of this process
		default:
			time.Sleep(min(waited/8, time.Millisecond))
		}
	}
	now := time.Now()
	took := now.Sub(later(oldest.given, p.ended)) / time.Duration(oldest.count)
	if p.kernel == 0 {
		p.kernel = took
	}
	p.kernel, p.ended = (3*p.kernel+took)/4, now
	p.groups = p.groups[1:]
	oldest.gpu.giveBack(oldest.event)
	return true, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forget stops looking at what is in flight.
func (p *pacer) forget() {
	for _, g := range p.groups {
		g.gpu.giveBack(g.event)
	}
	p.groups, p.window = nil, 0
	p.noneOpen()
}

// endClaims gives the claims of a program up that waits for nothing any more: one of its
// calls is about to be answered, and if other work is under way the loop looks again.
func (w *worker) endClaims() {
	if quiet, err := w.quiet(); quiet && err == nil {
		w.pace.waited()
	}
}

// claimed is what a program of class latency had launched when it began to wait.
type claimed struct {
	w     *worker
	used  uint64
	alone bool // in one stream, so that all has ended when the wait has
}

// claimedSoFar notes what was launched, for a goroutine that waits for it.
func (w *worker) claimedSoFar() claimed {
	if !w.pace.isLatency() {
		return claimed{}
	}
	streams := 0
	for _, g := range w.gpus {
		streams += len(g.streams) + len(g.leaving)
	}
	return claimed{w, w.pace.used.Load(), streams == 1}
}

// end gives claims up if nothing was launched meanwhile. Where other work may be under way
// the loop looks.
func (c claimed) end() {
	switch {
	case c.w == nil:
	case c.alone && c.w.pace.used.Load() == c.used:
		c.w.pace.waited()
	default:
		c.w.consumer.Wake()
	}
}
