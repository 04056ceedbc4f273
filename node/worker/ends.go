package worker

import (
	"errors"
	"runtime"
	"time"

	"muster/device"
	"muster/internal/spin"
	"muster/node/clientcore"
	"muster/node/worker/answers"
)

// ends answers the messages that wait for streams and events or ask whether they are done, and those for the
// time between two events (ReplyAfter, Query, QueryEvent, Elapsed). The loop owns it.
type ends struct {
	*session
	mail    *mail
	answers *answers.Answers
	waits   *waits
	copies  *copies

	over bool // all work had ended when the last call was answered
}

// replyAfter answers a call once a stream, all streams, or an event has completed what was
// submitted so far.
func (e *ends) replyAfter(m *message, o *clientcore.Op) error {
	g, err := e.contexts.at(o.Place)
	if err != nil {
		return err
	}
	if o.OfEvent {
		return e.replyAfterEvent(g, o)
	}
	if o.All {
		return e.replyAfterAll(o)
	}
	on, err := g.stream(o.Stream)
	if err != nil {
		return err
	}
	if over, err := e.soon(on); err != nil {
		return err
	} else if over {
		e.over = len(e.contexts.open) == 1 && len(g.streams) == 1 && len(g.leaving) == 0
		e.answers.Ended(o)
		return nil
	}
	if m.Header.Op.GivesData() {
		return e.answers.LaterOut(g, on, o)
	}
	wait, err := e.answers.Mark(g, on)
	if err != nil {
		return err
	}
	return e.answers.Later(o, wait)
}

func (e *ends) replyAfterAll(o *clientcore.Op) error {
	var all []done
	var owners []*gpu // the contexts of those
	for _, g := range e.contexts.open {
		if _, err := g.left(); err != nil {
			return err
		}
		for _, on := range g.leaving {
			all = append(all, on)
		}
		for _, on := range g.streams {
			all = append(all, on)
		}
		for len(owners) < len(all) {
			owners = append(owners, g)
		}
	}
	if over, err := e.soon(all...); err != nil {
		return err
	} else if over {
		e.over = len(e.contexts.open) == 1
		e.answers.Ended(o)
		return nil
	}
	waits := make([]func() error, len(all))
	for i, on := range all {
		var err error
		if waits[i], err = e.answers.Mark(owners[i], on.(device.Stream)); err != nil {
			return err
		}
	}
	return e.answers.Later(o, func() error {
		for _, wait := range waits {
			if err := wait(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *ends) replyAfterEvent(g *gpu, o *clientcore.Op) error {
	happens, err := g.event(o.Event)
	if err != nil {
		return err
	}
	if over, err := e.soon(happens.Event); err != nil {
		return err
	} else if over {
		e.answers.Ended(o)
		return nil
	}
	return e.answers.Later(o, g.waitFor(e.ctx, happens))
}

// done is a stream or an event.
type done interface {
	Done() (bool, error)
	Watch() func(limit time.Duration) (bool, error)
}

// soon waits a moment for streams or events to complete, unless the loop has something else to do.
// Most calls wait for work that is nearly complete, and starting a goroutine takes longer than the
// rest of it.
func (e *ends) soon(all ...done) (bool, error) {
	var start time.Time
	moment := spin.Watch + e.copies.inFlight.takes()
	e.copies.inFlight = 0
	for first := 0; ; {
		watched := true
		for ; first < len(all); first++ {
			var over bool
			var err error
			if watch := all[first].Watch(); watch != nil {
				over, err = watch(spin.Look)
			} else {
				over, err = all[first].Done()
				watched = false
			}
			if err != nil {
				return false, err
			}
			if !over {
				break
			}
		}
		if first == len(all) {
			return true, nil
		}
		if e.consumer.Pending() || e.core.Queued() || e.waits.hosts.outstanding() > 0 || e.mail.waits() {
			return false, nil
		}
		if !watched {
			moment = spin.Moment
			runtime.Gosched() // the device may be in this process, and needs the processor
		}
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > moment {
			return false, nil
		}
	}
}

// copying is how many bytes the loop has submitted to be copied between device and host since it
// last waited. How long that takes is known, and short: soon looks for as long.
type copying uint64

const (
	// slowBus is the least speed of a bus, in bytes per microsecond, for which soon looks until a
	// copy has ended.
	slowBus = 20e3
	// longCopy is the longest time that soon looks for the end of copies.
	longCopy = 10 * time.Millisecond
)

func (n copying) takes() time.Duration {
	return min(time.Duration(float64(n)/slowBus)*time.Microsecond, longCopy)
}

// --- questions ---

func (e *ends) query(m *message, g *gpu, o *clientcore.Op) error {
	for i, id := range o.Streams {
		g, err := e.contexts.of(g, o, i)
		if err != nil {
			return err
		}
		on, err := g.stream(id)
		if err != nil {
			return err
		}
		if done, err := on.Done(); err != nil || !done {
			return e.notYet(o, err)
		}
	}
	return e.answerQuery(m, o)
}

func (e *ends) queryEvent(m *message, g *gpu, o *clientcore.Op) error {
	happens, err := g.event(o.Event)
	if err != nil {
		return err
	}
	if done, err := happens.Done(); err != nil || !done {
		return e.notYet(o, err)
	}
	return e.answerQuery(m, o)
}

// notYet tells the program that the work it asked about has not ended, unless there was an error. That is an answer, and
// no refusal: the core may have decided on a move of memory in the same step, which goes on.
func (e *ends) notYet(o *clientcore.Op, err error) error {
	if err == nil {
		e.answers.Tell(o.Slot, clientcore.ResultOf(device.ErrNotReady))
	}
	return err
}

// answerQuery tells the program that the work it asked about has ended.
func (e *ends) answerQuery(m *message, o *clientcore.Op) error {
	e.answers.CopiesFirst()
	e.answers.Saw()
	e.keeper.Saw(m)
	e.answers.Tell(o.Slot, success)
	return nil
}

func (e *ends) elapsed(m *message, _ *gpu, o *clientcore.Op) error {
	elapsed, err := e.contexts.elapsedBetween(o.Start, o.End)
	if errors.Is(err, device.ErrNotReady) {
		return e.notYet(o, nil)
	}
	if err == nil {
		e.answers.CopiesFirst()
		e.keeper.Saw(m)
		e.answers.Shared.Reply(o.Slot, success, clientcore.ElapsedReply(elapsed))
	}
	return err
}

// again replaces an operation that told the program that work had ended. The program does not
// need to hear it again, but it may then have given other streams work that relies on that end, so
// the replay waits until the work has ended here too.
func (e *ends) again(o *clientcore.Op) error {
	g, err := e.contexts.at(o.Place)
	if err != nil {
		return err
	}
	streams := o.Streams
	switch {
	case o.Kind == clientcore.Elapsed:
		return e.happened(o.Start, o.End)
	case o.Kind == clientcore.QueryEvent || o.OfEvent:
		return e.happened(clientcore.Moment{Place: o.Place, Event: o.Event, Pending: true})
	case o.All:
		return e.waits.drainAll()
	case o.Kind == clientcore.ReplyAfter:
		streams = []uint32{o.Stream}
	}
	for i, id := range streams {
		g, err := e.contexts.of(g, o, i)
		if err != nil {
			return err
		}
		on, err := g.stream(id)
		if err != nil {
			return err
		}
		if err := e.waits.settle(on); err != nil {
			return err
		}
	}
	return nil
}

// happened waits for events in any context.
func (e *ends) happened(moments ...clientcore.Moment) error {
	for _, m := range moments {
		if !m.Pending {
			continue
		}
		g, err := e.contexts.at(m.Place)
		if err != nil {
			return err
		}
		happens, err := g.event(m.Event)
		if err == nil {
			err = e.answers.Block(func() error { return happens.Synchronise(e.ctx) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finish waits until all work has ended, however it ends.
func (e *ends) finish(*clientcore.Op) clientcore.Outcome {
	err := e.waits.drainAll()
	if e.answers.Gone(err) == nil {
		e.answers.Outcome(e.answers.Told.Sticky.Current(), err) // so that calls that wait fail
	}
	return clientcore.Outcome{Err: err}
}
