package worker

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/internal/spin"
	"muster/node/clientcore"
	"muster/wire"
)

// block runs f, which may block on the device. While streams wait for host functions of the
// program, f may be waiting for one of them, so block reads messages from the ring meanwhile: one
// of them says that the function has returned.
//
// No wake-up is lost between the two goroutines: this one sets asleep before it checks done and
// sleeps, the other one fills done before it checks asleep. So either this one sees the result, or
// the other one sees asleep and wakes it; and Wake also ends a call of Next that begins later.
func (w *worker) block(f func() error) error {
	if w.hosts.outstanding() == 0 {
		return f()
	}
	done := make(chan error, 1)
	var asleep atomic.Bool // whether this goroutine may be in readAhead, and must be woken
	w.others.Go(func() {
		done <- f()
		if asleep.Load() {
			w.consumer.Wake()
		}
	})
	for looks := 0; ; looks++ {
		var err error
		select {
		case err := <-done:
			return err
		default:
		}
		asleep.Store(looks >= spin.Few)
		if n, ok := w.notices.Take(); ok { // the sender wakes the consumer, which ends readAhead
			err = w.noticedMeanwhile(n)
		} else if looks < spin.Few { // most calls return within that
			runtime.Gosched()
		} else if len(done) == 0 { // f has not ended, or will see asleep
			w.sayAll(w.core.Passing(w.now()))
			err = w.readAhead(longWait)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", err, errEnded) // the client ends, and with it the context, which ends f
		}
	}
}

// longWait is how long block waits for a message at a time, once it has looked spin.Few times.
const longWait = 100 * time.Millisecond

// readAhead waits for messages and takes them from the ring. Those about host functions are handled
// at once; all others are queued in the core.
func (w *worker) readAhead(patience time.Duration) error {
	for ; ; patience = time.Microsecond {
		h, body, err := w.consumer.Next(patience)
		switch {
		case errors.Is(err, wire.ErrTimeout), errors.Is(err, wire.ErrWoken):
			return nil
		case errors.Is(err, wire.ErrStopped):
			return errDaemonEnded
		case err != nil:
		case h.Op == wire.OpTraceRead:
			err = w.traceRead(h, body)
		case h.Op == wire.OpPrintFetch && w.replay == nil: // asked before each function is called
			err = w.printFetch(w.keeper.Latest(), h.Slot, clientcore.Span{Offset: h.Data, Length: h.Length})
		case clientcore.Urgent(h.Op):
			w.replay.noteReturned(h, body)
			err = w.aside(w.core.UrgentMessage(clientcore.Message{Header: h, Body: body}))
		default:
			err = w.putBack(h, body)
		}
		if err != nil {
			return err
		}
	}
}

// putBack queues a message for later. It copies the data and gives staging memory back at once: the
// program may be waiting for that memory before it can report that its host function has returned.
func (w *worker) putBack(h wire.Header, body []byte) error {
	m := clientcore.Message{Header: h, Body: bytes.Clone(body)}
	if h.Op.TakesData() || h.Op.GivesData() {
		data, err := w.shared.Data(h.Data, h.Length)
		if err != nil {
			return err
		}
		switch {
		case h.Op.TakesData() && h.Release != 0:
			m.Data = bytes.Clone(data)
		case h.Op.TakesData():
			m.Data, m.Pinned = data, true
		}
	}
	if m.Data != nil && !m.Pinned {
		w.keeper.Attach(w.keeper.Latest(), m.Data, true)
	}
	w.backlog = append(w.backlog, message{Header: h, Entry: w.keeper.Latest(), HasData: h.Release != 0})
	w.staging.Free(w.staging.Take(h.Release))
	m.Header.Release = 0
	return w.core.Later(m)
}

// hosts are the host functions of the program that streams wait for.
type hosts struct {
	mu      sync.Mutex
	running map[uint64]*hosting // by cookie
	count   atomic.Int32        // of running; read without the lock
}

// hosting is a host function that has not returned.
type hosting struct {
	done    chan struct{} // closed when it has
	release func()        // lets the stream go on then; nil if the stream waits for done
}

// outstanding is how many host functions have not returned.
func (t *hosts) outstanding() int { return int(t.count.Load()) }

// begin registers a function, before its stream can reach it.
func (t *hosts) begin(cookie uint64) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		t.running = map[uint64]*hosting{}
	}
	done := make(chan struct{})
	t.running[cookie] = &hosting{done: done}
	t.count.Store(int32(len(t.running)))
	return done
}

// releases says how to let the stream of a function go on, which replaces what was said before. If the
// function has returned already, it does so.
func (t *hosts) releases(cookie uint64, release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.running[cookie]; h != nil {
		h.release = release
	} else {
		release()
	}
}

// returned lets the stream that waits for a function go on.
func (t *hosts) returned(cookie uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.running[cookie]; h != nil {
		h.end()
		delete(t.running, cookie)
		t.count.Store(int32(len(t.running)))
	}
}

// drop lets all waiting streams go on: their context has failed.
func (t *hosts) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cookie, h := range t.running {
		h.end()
		delete(t.running, cookie)
	}
	t.count.Store(0)
}

func (h *hosting) end() {
	close(h.done)
	if h.release != nil {
		h.release()
	}
}

// call makes a stream wait until the program has run a function. When the stream gets there it
// sends a notice to the loop, which gives the function to the program; returned then lets the
// stream go on. Where the stream cannot be held, a thread of the device's waits for that, and with it
// all that this thread does for other streams.
func (w *worker) call(on device.Stream, cookie uint64) error {
	done := w.hosts.begin(cookie)
	handed := w.replay.wasHanded(cookie) // the previous worker gave it to the program, which is running it
	tell := func() {
		w.notices.Put(notice{cookie: cookie})
		w.consumer.Wake()
	}
	await := func() {
		select {
		case <-done:
		case <-w.ctx.Done():
		}
	}
	err := w.block(func() error {
		hold := on.Can().Hold
		if hold == nil {
			return on.Call(func() {
				if !handed {
					tell()
				}
				await()
			})
		}
		if !handed {
			if err := on.Call(tell); err != nil {
				return err
			}
		}
		if hold(func(release func()) { w.hosts.releases(cookie, release) }) == nil {
			return nil
		}
		return on.Call(await) // which also tells why, if the context has ended
	})
	if err != nil {
		w.hosts.returned(cookie)
	}
	return err
}

// replyAfter answers a call once a stream, all streams, or an event has completed what was
// submitted so far.
func (w *worker) replyAfter(m *message, o *clientcore.Op) error {
	g, err := w.contexts.at(o.Place)
	if err != nil {
		return err
	}
	if over, err := w.waitAgain(g, o); over {
		return err
	}
	if o.OfEvent {
		return w.replyAfterEvent(g, o)
	}
	if o.All {
		return w.replyAfterAll(o)
	}
	on, err := g.stream(o.Stream)
	if err != nil {
		return err
	}
	if over, err := w.soon(on); err != nil {
		return err
	} else if over {
		w.over = len(w.contexts.open) == 1 && len(g.streams) == 1 && len(g.leaving) == 0
		w.answers.Ended(o)
		return nil
	}
	if m.Header.Op.GivesData() {
		return w.answers.LaterOut(g, on, o)
	}
	wait, err := w.answers.Mark(g, on)
	if err != nil {
		return err
	}
	return w.answers.Later(o, wait)
}

func (w *worker) replyAfterAll(o *clientcore.Op) error {
	var all []done
	var owners []*gpu // the contexts of those
	for _, g := range w.contexts.open {
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
	if over, err := w.soon(all...); err != nil {
		return err
	} else if over {
		w.over = len(w.contexts.open) == 1
		w.answers.Ended(o)
		return nil
	}
	waits := make([]func() error, len(all))
	for i, on := range all {
		var err error
		if waits[i], err = w.answers.Mark(owners[i], on.(device.Stream)); err != nil {
			return err
		}
	}
	return w.answers.Later(o, func() error {
		for _, wait := range waits {
			if err := wait(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *worker) replyAfterEvent(g *gpu, o *clientcore.Op) error {
	e, err := g.event(o.Event)
	if err != nil {
		return err
	}
	if over, err := w.soon(e.Event); err != nil {
		return err
	} else if over {
		w.answers.Ended(o)
		return nil
	}
	return w.answers.Later(o, g.waitFor(w.ctx, e))
}

// done is a stream or an event.
type done interface {
	Done() (bool, error)
	Watch() func(limit time.Duration) (bool, error)
}

// soon waits a moment for streams or events to complete, unless the loop has something else to do.
// Most calls wait for work that is nearly complete, and starting a goroutine takes longer than the
// rest of it.
func (w *worker) soon(all ...done) (bool, error) {
	var start time.Time
	moment := spin.Watch + w.copies.inFlight.takes()
	w.copies.inFlight = 0
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
		if w.consumer.Pending() || w.core.Queued() || w.hosts.outstanding() > 0 || w.inbox.Len() > 0 {
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

// Spare returns an unused event.
func (g *gpu) Spare() (device.Event, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.free); n > 0 {
		e := g.free[n-1]
		g.free = g.free[:n-1]
		return e, nil
	}
	return g.context.NewEvent()
}

// GiveBack makes an event available to Spare again.
func (g *gpu) GiveBack(e device.Event) {
	g.mu.Lock()
	g.free = append(g.free, e)
	g.mu.Unlock()
}

// notice tells the loop of a fault.
func (w *worker) notice(n notice) {
	if w.notices.Len() < manyNotices { // otherwise the loop will find the fault by itself
		w.notices.Put(n)
	}
	w.consumer.Wake()
}
