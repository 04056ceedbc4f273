// Package soft is a GPU made of software: it runs PTX kernels on the host's
// processors, in memory of the host's.
//
// It knows device addresses, streams, modules and the engine that runs
// kernels. It must not know who uses it, and reads the clock only to tell the
// time between events and, where a clock is handed in, to be as slow as the
// device that it stands for.
//
// Kernels of a device run one at a time and take turns after a number of
// instructions, whoever launched them, so that a kernel that does not end
// keeps nobody from going on and two users get half of the device each.
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
	"sync"
	"time"

	"muster/device"
)

// Device is a software GPU.
type Device struct {
	profile Profile
	info    device.Info
	budget  budget
	clock   Clock // never nil
	turns   sync.Locker
	engine  turn // for kernels
	link    turn // for copies that are paced
	slice   uint64
	found   func(report string)
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
	// Turns is held while a part of a kernel runs, so that several processes
	// can stand for one device together; nil where one process is the device.
	Turns sync.Locker
	// Found is told of each defect that the profile's checks find, beside the program;
	// nil: nobody is.
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
	d.slice = uint64(max(1, kernelSlice*p.Speed)) // so that a turn, with its wait, is as long as elsewhere
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
	m, err := newMemory(&d.budget, a)
	if err != nil {
		return nil, err
	}
	return newContext(d, m, c), nil
}

// With a rate a turn takes about so long, if all lanes of the widest gangs take part.
const (
	ratedTurn  = 2 * time.Millisecond
	widestGang = 256
)

// noTurns is for a device that nobody else stands for.
type noTurns struct{}

func (noTurns) Lock()   {}
func (noTurns) Unlock() {}

// SystemClock returns the system's monotonic clock.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Now() time.Duration    { return time.Since(c.start) }
func (c systemClock) Sleep(d time.Duration) { time.Sleep(d) }
func (c systemClock) Worked() time.Duration { return threadTime() }

// worker is a clock that also tells how long the calling thread has worked, not
// counting when others had its processor.
type worker interface{ Worked() time.Duration }

// timed runs a part of a kernel and returns for how long that counts. A slow
// device must not become slower still because the machine has other things to
// do: only what the thread worked counts, at the speed that the kernel has when
// it is not disturbed, and time for which it could not work is taken off the wait
// that follows. With several processors at work that cannot be told, and all of
// the time counts. With a rate the operations decide, and what is left of their time
// is to be waited for. Who calls has the turn.
func (d *Device) timed(k *kernel) (time.Duration, error) {
	start, factor := d.clock.Now(), d.engine.pace.factor
	if d.profile.Rate > 0 {
		done := k.execution.Stats().LaneOps
		err := k.execution.RunFor(d.slice)
		took := float64(k.execution.Stats().LaneOps-done) / d.profile.Rate
		return time.Duration(took*float64(time.Second)) - (d.clock.Now() - start), err
	}
	w, ok := d.clock.(worker)
	if !ok || d.profile.Workers > 1 || factor == 0 {
		err := k.execution.RunFor(d.slice)
		return d.clock.Now() - start, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, done := w.Worked(), k.execution.Stats().Instructions
	err := k.execution.RunFor(d.slice)
	work := k.function.undisturbed(w.Worked()-before, k.execution.Stats().Instructions-done, d.slice)
	kept := d.clock.Now() - start - work
	return work - time.Duration(float64(kept)/factor), err
}

// undisturbed is how long a number of instructions takes when nothing else uses
// the processor's caches: as few nanoseconds each as were seen lately.
func (f *function) undisturbed(worked time.Duration, instructions, slice uint64) time.Duration {
	const forget = 1.02 // the parts of a kernel differ
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

// turn is what one user has at a time; those who wait get it in order.
type turn struct {
	taken chan struct{}
	pace  pace // used by who has the turn
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

// pace makes work take longer than it takes by itself.
type pace struct {
	clock  Clock
	factor float64       // how many times its length to wait after work; 0 for no wait
	owed   time.Duration // not waited for yet
}

// Waits shorter than this are gathered, since no system sleeps so precisely.
const shortestWait = time.Millisecond

// longestSleep is how long a wait may go on after its context has ended.
const longestSleep = 10 * time.Millisecond

// after waits as long as is due after work of a length, or until the context
// of the work has ended: nobody waits for its sake any more. Waits that turned
// out too long are made good for later, within bounds.
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
