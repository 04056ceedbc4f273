// Package answers answers the program's calls that wait for the device: at once where the work has ended, or
// from a goroutine that waits for its end, so that the worker's loop goes on. It keeps answers in an order from
// which the program may conclude what has ended, and lets none succeed that a fault on another device spoils.
// It calls neither the core nor contexts.
package answers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/pace"
	"muster/node/worker/told"
	"muster/wire"
)

const success clientcore.Result = 0

// Means are what answering needs of the worker.
type Means struct {
	Context context.Context // cancelled when the worker ends
	Go      func(f func())  // runs a goroutine that the worker waits for
	Block   func(f func() error) error
	Now     func() clientcore.Time
	Wake    func() // wakes the loop
	Shared  *wire.Shared
	Told    *told.Told
	Pace    *pace.Pacer
	Streams func() int                    // how many streams may have work
	Quiet   func() (bool, error)          // whether no work is in flight
	Working func() bool                   // whether the core takes the client for busy
	Gone    func(err error) error         // not nil: the next worker answers
	Report  func(world uint64, err error) // tells the loop of a fault
}

// Answers are the answers of one worker. Its loop makes all calls unless they say otherwise.
type Answers struct {
	Means
	outs    outs
	waiting atomic.Int32   // calls that a goroutine will answer
	replies sync.WaitGroup // the goroutines that answer them
	done    atomic.Int64   // the Time at which the end of work was last seen
	watched atomic.Bool    // the loop is to look when a call is answered

	// crossed says that streams of different devices have waited for each other. When one device
	// faults, streams on other devices that wait for it are released, since they would wait for
	// ever. What they do then is wrong, so no call may be answered with success from then on
	// (verdict).
	crossed atomic.Bool
	doomed  atomic.Bool // the client is to be rebuilt: no call is answered any more
}

// Events are the spare events of a context.
type Events interface {
	Spare() (device.Event, error)
	GiveBack(device.Event)
}

// Watch says whether the loop is to look when a call is answered.
func (a *Answers) Watch(on bool) { a.watched.Store(on) }

// Crossed notes that streams of different devices wait for each other.
func (a *Answers) Crossed() { a.crossed.Store(true) }

// Doom lets no call be answered any more: the client is to be rebuilt. Any goroutine may call it.
func (a *Answers) Doom() { a.doomed.Store(true) }

// LastEnd is when the end of work was last seen.
func (a *Answers) LastEnd() clientcore.Time { return clientcore.Time(a.done.Load()) }

// Sent waits until the goroutines that answer have done so. Their work must have been seen to end.
func (a *Answers) Sent() { a.replies.Wait() }

// Settle waits until all calls that waited for the device are answered. The device is idle,
// so the goroutines that answer are about to finish.
func (a *Answers) Settle() {
	for a.waiting.Load() > 0 && a.Context.Err() == nil {
		time.Sleep(20 * time.Microsecond)
	}
}

// Ended answers a call whose work has ended.
func (a *Answers) Ended(o *clientcore.Op) {
	a.CopiesFirst()
	a.Saw()
	a.endClaims()
	a.Tell(o.Slot, o.Result)
	if a.watched.Load() {
		a.Wake()
	}
}

// endClaims ends the claims of a latency-class program before one of its calls is answered, if nothing is in
// flight. If something is, the loop looks again later (observe).
func (a *Answers) endClaims() {
	if !a.Pace.IsLatency() {
		return
	}
	if quiet, err := a.Quiet(); quiet && err == nil {
		a.Pace.Waited()
	}
}

// Tell answers a call that waited for the device or asked it. It says nothing if the client
// is to be rebuilt because of a fault on another device: the next worker answers then.
func (a *Answers) Tell(slot int, r clientcore.Result) {
	if !a.doomed.Load() {
		a.Shared.Reply(slot, a.verdict(r), nil)
	}
}

// Saw notes the time at which the end of work was seen: GPU time is counted up to here, and not
// up to the moment when the loop next looks.
func (a *Answers) Saw() {
	if a.Working() {
		a.done.Store(int64(a.Now()))
	}
}

// Mark returns a function that waits for what a stream was given so far, and for nothing later. It
// records an event, since Synchronise on the stream would also wait for later work.
func (a *Answers) Mark(from Events, on device.Stream) (wait func() error, err error) {
	e, err := from.Spare()
	if err != nil {
		return nil, err
	}
	if err := a.Block(func() error { return on.Record(e) }); err != nil {
		return nil, err
	}
	return func() error {
		err := e.Synchronise(a.Context)
		from.GiveBack(e)
		return err
	}, nil
}

// Later answers a call when wait returns. A goroutine waits, so the loop goes on.
func (a *Answers) Later(o *clientcore.Op, wait func() error) error {
	return a.laterThen(o, func() error {
		err := wait()
		a.CopiesFirst()
		return err
	}, func() {})
}

// laterThen answers a call when wait returns, and calls then once the call was answered or will not
// be. A client has wire.Slots reply slots, so a program that keeps to the protocol never has more
// calls waiting.
func (a *Answers) laterThen(o *clientcore.Op, wait func() error, then func()) error {
	if a.waiting.Add(1) > wire.Slots {
		return fmt.Errorf("more than %d calls wait for their answers: %w", wire.Slots, clientcore.ErrProtocol)
	}
	world, slot, pending := a.Told.Sticky.Current(), o.Slot, o.Result
	claimed := a.Pace.Claimed(a.Streams)
	a.replies.Add(1)
	a.Go(func() {
		defer a.replies.Done()
		defer then()
		err := wait()
		a.done.Store(int64(a.Now()))
		a.waiting.Add(-1)
		if !claimed.End() {
			a.Wake() // the loop looks
		}
		if isEnd(err) && a.Context.Err() != nil {
			return // the outcome is unknown; the program is told that the service has ended
		}
		if a.Gone(err) != nil { // the next worker answers it
			a.Report(world, err)
			return
		}
		r := a.Outcome(world, err)
		if r == success {
			r = a.verdict(pending)
		}
		if a.doomed.Load() {
			return
		}
		a.Reply(slot, r, nil)
		if a.watched.Load() {
			a.Wake()
		}
	})
	return nil
}

// Reply answers a call. Before an error the user is told the reason.
func (a *Answers) Reply(slot int, r clientcore.Result, payload []byte) {
	if r != success {
		a.Told.Sticky.Explain(a.Shared.Status())
	}
	a.Shared.Reply(slot, r, payload)
}

// Outcome is the result of a call that has waited. After a fault it also makes the result sticky,
// before the call is answered: every later call must fail, and so must those that are already in
// the ring.
func (a *Answers) Outcome(world uint64, err error) clientcore.Result {
	var fault *device.Fault
	switch {
	case errors.As(err, &fault):
		if a.Told.Sticky.Set(world, clientcore.ResultOf(err), err.Error()) {
			a.Report(world, err)
		}
		return clientcore.ResultOf(err)
	case isEnd(err): // with all of its work, or because of a fault
		return a.Told.Sticky.Of(world)
	}
	return clientcore.ResultOf(err)
}

// verdict is the result of a call whose own stream or event succeeded: a fault on another device
// that it depended on may still make it fail.
func (a *Answers) verdict(r clientcore.Result) clientcore.Result {
	if a.crossed.Load() {
		if sticky := a.Told.Sticky.Of(a.Told.Sticky.Current()); sticky != success {
			return sticky
		}
	}
	return r
}

// outs are the copies to the program whose end is reported by a goroutine. A program on another
// machine receives the data together with the answer to its copy, and takes any later answer as the
// sign that the data have arrived. So no call may be answered with the end of work before the
// copies that ended earlier have been answered: CopiesFirst waits for those.
type outs struct {
	mu   sync.Mutex
	list []*out
	some atomic.Int32 // len(list), to be read without the lock
}

type out struct {
	mark device.Event  // happens when the copy has ended; in use until this is removed from the list
	told chan struct{} // closed when the answer has been sent
}

// LaterOut is Later for a copy to the program.
func (a *Answers) LaterOut(from Events, on device.Stream, o *clientcore.Op) error {
	e, err := from.Spare()
	if err != nil {
		return err
	}
	if err := a.Block(func() error { return on.Record(e) }); err != nil {
		return err
	}
	one := &out{e, make(chan struct{})}
	a.outs.mu.Lock()
	a.outs.list = append(a.outs.list, one)
	a.outs.some.Add(1)
	a.outs.mu.Unlock()
	err = a.laterThen(o, func() error { return e.Synchronise(a.Context) }, func() { a.outTold(from, one) })
	if err != nil {
		a.outTold(from, one)
	}
	return err
}

// outTold notes that a copy was answered.
func (a *Answers) outTold(from Events, one *out) {
	a.outs.mu.Lock()
	a.outs.list = slices.DeleteFunc(a.outs.list, func(o *out) bool { return o == one })
	a.outs.some.Add(-1)
	a.outs.mu.Unlock()
	close(one.told)
	from.GiveBack(one.mark)
}

// CopiesFirst waits until all copies that have ended are answered.
func (a *Answers) CopiesFirst() {
	if a.outs.some.Load() == 0 {
		return
	}
	a.outs.mu.Lock()
	var done []*out
	for _, o := range a.outs.list {
		if over, err := o.mark.Done(); over || err != nil {
			done = append(done, o)
		}
	}
	a.outs.mu.Unlock()
	for _, o := range done {
		select {
		case <-o.told:
		case <-a.Context.Done():
		}
	}
}

// isEnd says whether an error means only that the context was closed or the worker is ending, which
// is no fault of the work that was waited for.
func isEnd(err error) bool {
	return errors.Is(err, device.ErrClosed) || errors.Is(err, context.Canceled)
}
