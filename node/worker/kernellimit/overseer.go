// Package kernellimit finds kernels that hold a device for longer than they may, from the host. It knows
// launches as groups in streams and the events behind them. It does not know whose kernels they are, nor what
// happens to one that is found.
package kernellimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"muster/device"
)

// Kernels may have a limit on how long each holds a device (control.Serve.KernelTime). A device that can
// stop kernels keeps it (device.Info.StopsKernels), and a kernel that runs for longer ends in a fault as
// any other. On other devices the overseer watches launches from the host. The kernel cannot be ended
// there without the process, so the program is told the result, the daemon the reason, and the process
// ends.

// Overseer watches the launches on devices that cannot stop kernels.
type Overseer struct {
	Means
	limit time.Duration

	mu      sync.Mutex
	flights flights
	watches bool          // the goroutine that decides runs
	asking  chan struct{} // closed when the devices that are being asked have answered; nil: none is asked
}

// Means are what the overseer needs of its worker.
type Means struct {
	Context context.Context          // of the worker
	Go      func(func())             // runs a goroutine that the worker waits for at its end
	Now     func() time.Duration     // the worker's clock
	Block   func(func() error) error // runs what may have to wait for the program
	Waits   func() bool              // kernels may be waiting for the program
	TooLong func(kernel string)      // is called, beside the loop, with a kernel that has run for too long
}

// New makes an overseer of kernels with a limit.
func New(limit time.Duration, by Means) *Overseer { return &Overseer{Means: by, limit: limit} }

// Events are the spare events of a context.
type Events interface {
	Spare() (device.Event, error)
	GiveBack(device.Event)
}

// flights are launches that have not ended, in groups, in the order in which they were submitted.
type flights struct{ groups []*flying }

// flying is a group of launches in one stream.
type flying struct {
	from   Events // of its context
	on     device.Stream
	kernel string // the last of them
	count  int
	since  time.Duration // since when they may hold the device
	mark   device.Event  // recorded behind them; nil: more may join
}

// mostFlying is how many launches share an event: each costs the program about a microsecond. A group
// has as much time as its launches together, so a kernel among short ones may take so many times its
// limit.
const mostFlying = 8

// join adds launches to the open group of their stream, or begins one. It returns a group that no more
// join, and that needs an event behind it before anything else is submitted; nil if none is.
func (f *flights) join(now time.Duration, g Events, on device.Stream, count int, kernel string) (full *flying) {
	for i, group := range slices.Backward(f.groups) {
		if group.on != on || group.mark != nil {
			continue
		}
		// Launches of other streams in between could be what these wait for.
		if group.count < mostFlying && i == len(f.groups)-1 {
			group.count, group.kernel = group.count+count, kernel
			return nil
		}
		full = group
		break
	}
	f.groups = append(f.groups, &flying{from: g, on: on, kernel: kernel, count: count, since: now})
	return full
}

// end removes a group that has ended. Those that were submitted later may have waited for it until now: for the stream, for an event, or for room on the device. Work never waits for what is
// submitted later.
func (f *flights) end(now time.Duration, group *flying) {
	at := slices.Index(f.groups, group)
	if at < 0 {
		return
	}
	f.groups = slices.Delete(f.groups, at, at+1)
	for _, later := range f.groups[at:] {
		later.since = now
	}
}

// wait says that all groups may be waiting for the program at this time.
func (f *flights) wait(now time.Duration) {
	for _, group := range f.groups {
		group.since = now
	}
}

// over returns the oldest group if it has held its device for longer than its launches may; nil if it
// has not. The others may be waiting for it, and are the oldest in their turn.
func (f *flights) over(now, limit time.Duration) *flying {
	if len(f.groups) == 0 || now-f.groups[0].since <= limit*time.Duration(f.groups[0].count) {
		return nil
	}
	return f.groups[0]
}

// Oversee notes launches that the caller is about to submit.
func (o *Overseer) Oversee(g Events, on device.Stream, count int, kernel string) error {
	o.mu.Lock()
	full := o.flights.join(o.Now(), g, on, max(count, 1), kernel)
	if !o.watches {
		o.watches = true
		o.Go(o.watch)
	}
	o.mu.Unlock()
	if full == nil {
		return nil
	}
	e, err := g.Spare()
	if err == nil {
		err = o.Block(func() error { return on.Record(e) })
	}
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.flights.groups, full) { // it has ended meanwhile
		g.GiveBack(e)
		return nil
	}
	full.mark = e
	return nil
}

// watch decides whether a kernel has run for too long. It asks the devices in another goroutine:
// a driver may not answer while the loop waits there for room in a queue, and then nothing has ended.
func (o *Overseer) watch() {
	look := time.NewTicker(min(max(o.limit/16, time.Millisecond), time.Second))
	defer look.Stop()
	for {
		select {
		case <-o.Context.Done():
			return
		case <-look.C:
		}
		o.mu.Lock()
		if o.asking == nil && len(o.flights.groups) > 0 {
			o.asking = make(chan struct{})
			groups, asking := slices.Clone(o.flights.groups), o.asking
			marks := make([]interface{ Done() (bool, error) }, len(groups))
			for i, group := range groups {
				if marks[i] = group.on; group.mark != nil {
					marks[i] = group.mark
				}
			}
			o.Go(func() { o.askEnds(groups, marks, asking) })
		}
		if o.Waits() {
			o.flights.wait(o.Now())
		}
		over := o.flights.over(o.Now(), o.limit)
		o.mu.Unlock()
		if over != nil {
			o.TooLong(over.kernel)
			return
		}
	}
}

// askEnds asks devices which groups have ended. A context that has faulted has ended all of them; the
// loop finds the fault.
func (o *Overseer) askEnds(groups []*flying, marks []interface{ Done() (bool, error) }, asking chan struct{}) {
	var ended []*flying
	for i, group := range groups {
		if done, err := marks[i].Done(); done || err != nil {
			ended = append(ended, group)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, group := range ended {
		o.flights.end(o.Now(), group)
		if group.mark != nil {
			group.from.GiveBack(group.mark)
		}
	}
	o.asking = nil
	close(asking)
}

// Leaves forgets the launches of a context that is about to be closed. No event of it is asked then.
func (o *Overseer) Leaves(g Events) {
	for {
		o.mu.Lock()
		asking := o.asking
		if asking == nil {
			o.flights.groups = slices.DeleteFunc(o.flights.groups, func(f *flying) bool { return f.from == g })
		}
		o.mu.Unlock()
		if asking == nil {
			return
		}
		<-asking
	}
}
