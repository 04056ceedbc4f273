// Package soft is a GPU made of software: it runs PTX kernels on the host's
// processors, in memory of the host.
//
// It knows device addresses, streams, modules and the engine that runs
// kernels. It must not know who uses it. It reads the clock only to tell the
// time between events and, where the caller passes a clock, to be as slow as the
// device that it models.
//
// Kernels of a device run one at a time. Each gives up its turn after a number of
// instructions, and the waiting kernels of all contexts get turns in order. So a kernel
// that never ends blocks no other, and two clients get half of the device each.
//
// Locks are taken in this order: Context.loading, Context.mu, memory.mu, budget.mu. No lock is
// held while a kernel runs.
package soft

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"muster/device"
	"muster/internal/cputime"
)

// Device is a software GPU.
type Device struct {
	profile Profile
	info    device.Info
	device.DeviceCan
	budget budget
	clock  Clock // never nil
	turns  sync.Locker
	engine turn   // held while a slice of a kernel runs and is paced
	link   turn   // held while a copy waits for its bandwidth
	slice  uint64 // instructions of a gang in one turn; see kernelSlice
	found  func(report string)
}

var _ device.Device = (*Device)(nil)

// Options are what a device can be given beside its profile.
type Options struct {
	// UUID tells devices apart; derived from the profile's name if zero.
	UUID [16]byte
	// Clock slows kernels and copies down to what the profile says, and tells
	// the times of events. Without one everything runs at full speed and
	// events have the system's time.
	Clock Clock
	// Turns is locked while a slice of a kernel runs. Several processes that model
	// one device together share it, so that their kernels take turns; nil where only this
	// process uses the device.
	Turns sync.Locker
	// Found, if not nil, is called with each defect that the profile's checks find. The
	// program gets the same text through Config.Complain.
	Found func(report string)
}

// New makes a device.
func New(p Profile, o Options) (*Device, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if o.UUID == [16]byte{} {
		sum := sha256.Sum256([]byte("software GPU " + p.Name))
		o.UUID = [16]byte(sum[:16])
	}
	d := &Device{
		profile: p,
		info:    p.info(o.UUID),
		budget:  budget{total: p.Memory},
		clock:   o.Clock,
		turns:   o.Turns,
		engine:  newTurn(),
		link:    newTurn(),
		slice:   kernelSlice,
		found:   o.Found,
	}
	d.DeviceCan = device.DeviceCan{Inspect: d.inspect, LoadAt: d.loadAt}
	if p.Check.Memory {
		d.info.Guard = 512
	}
	if d.turns == nil {
		d.turns = noTurns{}
	}
	if d.clock == nil {
		d.clock = SystemClock()
		return d, nil
	}
	d.engine.pace = pace{clock: d.clock, factor: 1/p.Speed - 1}
	if p.Rate > 0 {
		d.engine.pace.factor = 1
	}
	d.slice = uint64(max(1, kernelSlice*p.Speed)) // a turn, with its wait, then takes as long as at full speed
	if p.Rate > 0 {
		d.slice = uint64(min(kernelSlice, max(1, p.Rate*ratedTurn.Seconds()/widestGang)))
	}
	if p.CopyBandwidth > 0 {
		d.link.pace = pace{clock: d.clock, factor: 1}
	}
	return d, nil
}

// Info describes the device.
func (d *Device) Info() device.Info {
	info := d.info
	info.Attributes = maps.Clone(info.Attributes)
	return info
}

// Open makes a context.
func (d *Device) Open(c device.Config) (device.Context, error) {
	a := c.Arena
	switch {
	case a.Size == 0 || a.Base%granule != 0 || a.Size%granule != 0:
		return nil, fmt.Errorf("arena of %d bytes at %#x: give multiples of %d: %w", a.Size, a.Base, granule, device.ErrInvalidValue)
	case a.Base == 0 || a.Base >= maxAddress || a.Size > maxAddress-a.Base || a.Size > math.MaxInt64-granule:
		return nil, fmt.Errorf("arena of %d bytes at %#x: it must lie between %#x and %#x: %w", a.Size, a.Base, granule, uint64(maxAddress), device.ErrInvalidValue)
	}
	if d.profile.OwnProcess && !arenas.take(a) {
		return nil, fmt.Errorf("arena of %d bytes at %#x: another context of this process has it: %w", a.Size, a.Base, device.ErrInvalidValue)
	}
	m, err := newMemory(&d.budget, a)
	if err != nil {
		d.leave(a)
		return nil, err
	}
	return newContext(d, m, c), nil
}

// leave says that no context has an arena any more.
func (d *Device) leave(a device.Arena) {
	if d.profile.OwnProcess {
		arenas.leave(a)
	}
}

// arenas are those of the contexts of this process on devices with Profile.OwnProcess.
var arenas taken

type taken struct {
	mu  sync.Mutex
	all []device.Arena
}

// take notes an arena, unless another one has some of its addresses.
func (t *taken) take(a device.Arena) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.all {
		if a.Base < other.Base+other.Size && other.Base < a.Base+a.Size {
			return false
		}
	}
	t.all = append(t.all, a)
	return true
}

func (t *taken) leave(a device.Arena) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(other device.Arena) bool { return other == a })
}

// With Profile.Rate a turn takes about ratedTurn, if all lanes of the widest gangs are active.
const (
	ratedTurn  = 2 * time.Millisecond
	widestGang = 256
)

// noTurns is the Turns of a device that no other process shares.
type noTurns struct{}

func (noTurns) Lock()   {}
func (noTurns) Unlock() {}

// SystemClock returns the system's monotonic clock.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Now() time.Duration    { return time.Since(c.start) }
func (c systemClock) Sleep(d time.Duration) { time.Sleep(d) }
func (c systemClock) Worked() time.Duration { return cputime.OfThread() }

// worker is a clock that can also tell the CPU time of the calling thread.
type worker interface{ Worked() time.Duration }

// timed runs one slice of a kernel and returns the length of work for which pace.after is to wait.
// pace.after waits factor times that length. The caller must hold the turn d.engine.
//
// The host's other load must not make a slow device slower still. Three cases:
//   - With Profile.Rate (factor 1) the slice should take LaneOps / Rate seconds, where a copy in a
//     kernel counts a lane operation for each byte. timed returns what is left of that after the
//     time that the slice really took.
//   - With one worker, the work is the thread's CPU time, at the kernel's undisturbed speed. The time
//     that the slice took beyond that (kept) comes off the wait: after waits
//     factor * (work - kept/factor) = factor*work - kept.
//   - With several workers, or a clock without CPU time, the share of other load is unknown, and all
//     elapsed time counts as work.
func (d *Device) timed(k *kernel) (time.Duration, error) {
	start, factor := d.clock.Now(), d.engine.pace.factor
	if d.profile.Rate > 0 {
		done := k.execution.Work().LaneOps
		err := k.execution.RunFor(d.slice)
		took := float64(k.execution.Work().LaneOps-done) / d.profile.Rate
		return time.Duration(took*float64(time.Second)) - (d.clock.Now() - start), err
	}
	w, ok := d.clock.(worker)
	if !ok || d.profile.Workers > 1 || factor == 0 {
		err := k.execution.RunFor(d.slice)
		return d.clock.Now() - start, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, done := w.Worked(), k.execution.Work().Instructions
	err := k.execution.RunFor(d.slice)
	work := k.function.undisturbed(w.Worked()-before, k.execution.Work().Instructions-done, d.slice)
	kept := d.clock.Now() - start - work
	return work - time.Duration(float64(kept)/factor), err
}

// undisturbed returns how long the instructions would have taken if no other program used the
// processor's caches. The estimate, f.pace, is the lowest time per instruction of recent slices. It
// grows by 2 % with each slice that is measured, since later parts of a kernel may be slower. Slices
// shorter than a quarter of the full length are too noisy to measure.
func (f *function) undisturbed(worked time.Duration, instructions, slice uint64) time.Duration {
	const forget = 1.02
	if instructions >= max(1, slice/4) {
		each := float64(worked) / float64(instructions)
		if f.pace *= forget; f.pace == 0 || each < f.pace {
			f.pace = each
		}
	}
	if f.pace == 0 {
		return worked
	}
	return min(worked, time.Duration(f.pace*float64(instructions)))
}

// turn is a lock whose waiters get it in order, because senders on a channel queue up. Unlike with
// a mutex, a waiter can give up (take).
type turn struct {
	taken chan struct{} // holds one element while the turn is taken
	pace  pace          // guarded by the turn
}

func newTurn() turn { return turn{taken: make(chan struct{}, 1)} }

// take waits for the turn and returns true, or false if ended is closed first.
func (t *turn) take(ended <-chan struct{}) bool {
	select {
	case t.taken <- struct{}{}:
		return true
	case <-ended:
		return false
	}
}

func (t *turn) give() { <-t.taken }

// pace slows work down by waiting after it.
type pace struct {
	clock  Clock
	factor float64       // the wait is factor times the work's length; 0 for no wait
	owed   time.Duration // wait that is still due; negative if earlier waits were too long
}

// shortestWait is the shortest wait that is made at once. Shorter ones add up in owed first, since
// systems do not sleep that precisely.
const shortestWait = time.Millisecond

// longestSleep is the longest single sleep, and so how long a wait may go on after its context has
// ended.
const longestSleep = 10 * time.Millisecond

// after waits factor times the length of the work, or until the work's context has ended. A sleep
// that turns out too long shortens later waits, by longestSleep at most: without that bound one long
// stall of the host would let the device run at full speed for a long time. The caller must hold the
// turn that p belongs to.
func (p *pace) after(work time.Duration, ended <-chan struct{}) {
	if p.factor == 0 {
		return
	}
	p.owed = max(p.owed+time.Duration(float64(work)*p.factor), -longestSleep)
	for p.owed >= shortestWait {
		select {
		case <-ended:
			p.owed = 0
			return
		default:
		}
		start := p.clock.Now()
		p.clock.Sleep(min(p.owed, longestSleep))
		p.owed -= p.clock.Now() - start
	}
}
