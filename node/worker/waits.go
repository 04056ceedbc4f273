package worker

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
		w.answer(o)
		return nil
	}
	if m.Header.Op.GivesData() {
		return w.laterOut(g, on, o)
	}
	wait, err := w.mark(g, on)
	if err != nil {
		return err
	}
	return w.later(o, wait)
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
		w.answer(o)
		return nil
	}
	waits := make([]func() error, len(all))
	for i, on := range all {
		var err error
		if waits[i], err = w.mark(owners[i], on.(device.Stream)); err != nil {
			return err
		}
	}
	return w.later(o, func() error {
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
		w.answer(o)
		return nil
	}
	return w.later(o, g.waitFor(w.ctx, e))
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
	moment := spin.Watch + w.copying.takes()
	w.copying = 0
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

// outs are the copies to the program whose end is reported by a goroutine. A program on another
// machine receives the data together with the answer to its copy, and takes any later answer as the
// sign that the data have arrived. So no call may be answered with the end of work before the
// copies that ended earlier have been answered: outsFirst waits for those.
type outs struct {
	mu   sync.Mutex
	list []*out
	some atomic.Int32 // len(list), to be read without the lock
}

type out struct {
	mark device.Event  // happens when the copy has ended; in use until this is removed from the list
	told chan struct{} // closed when the answer has been sent
}

// laterOut is later for a copy to the program.
func (w *worker) laterOut(g *gpu, on device.Stream, o *clientcore.Op) error {
	e, err := g.Spare()
	if err != nil {
		return err
	}
	if err := w.block(func() error { return on.Record(e) }); err != nil {
		return err
	}
	one := &out{e, make(chan struct{})}
	w.outs.mu.Lock()
	w.outs.list = append(w.outs.list, one)
	w.outs.some.Add(1)
	w.outs.mu.Unlock()
	err = w.laterThen(o, func() error { return e.Synchronise(w.ctx) }, func() { w.outTold(g, one) })
	if err != nil {
		w.outTold(g, one)
	}
	return err
}

// outTold notes that a copy was answered.
func (w *worker) outTold(g *gpu, one *out) {
	w.outs.mu.Lock()
	w.outs.list = slices.DeleteFunc(w.outs.list, func(o *out) bool { return o == one })
	w.outs.some.Add(-1)
	w.outs.mu.Unlock()
	close(one.told)
	g.GiveBack(one.mark)
}

// outsFirst waits until all copies that have ended are answered.
func (w *worker) outsFirst() {
	if w.outs.some.Load() == 0 {
		return
	}
	w.outs.mu.Lock()
	var done []*out
	for _, o := range w.outs.list {
		if over, err := o.mark.Done(); over || err != nil {
			done = append(done, o)
		}
	}
	w.outs.mu.Unlock()
	for _, o := range done {
		select {
		case <-o.told:
		case <-w.ctx.Done():
		}
	}
}

// answer answers a call whose work has ended.
func (w *worker) answer(o *clientcore.Op) {
	w.outsFirst()
	w.sawEnd()
	w.endClaims()
	w.tellResult(o.Slot, o.Result)
	if w.watched.Load() {
		w.consumer.Wake()
	}
}

// endClaims ends the claims of a latency-class program before one of its calls is answered, if nothing is in
// flight. If something is, the loop looks again later (observe).
func (w *worker) endClaims() {
	if !w.pace.IsLatency() {
		return
	}
	if quiet, err := w.contexts.quiet(); quiet && err == nil {
		w.pace.Waited()
	}
}

// tellResult answers a call that waited for the device or asked it. It says nothing if the client
// is to be rebuilt because of a fault on another device: the next worker answers then.
func (w *worker) tellResult(slot int, r clientcore.Result) {
	if !w.spread.doomed.Load() {
		w.shared.Reply(slot, w.verdict(r), nil)
	}
}

// sawEnd notes the time at which the end of work was seen: GPU time is counted up to here, and not
// up to the moment when the loop next looks.
func (w *worker) sawEnd() {
	if w.core.Working() {
		w.done.Store(int64(w.now()))
	}
}

// mark returns a function that waits for what a stream was given so far, and for nothing later. It
// records an event, since Synchronise on the stream would also wait for later work.
func (w *worker) mark(g *gpu, on device.Stream) (wait func() error, err error) {
	e, err := g.Spare()
	if err != nil {
		return nil, err
	}
	if err := w.block(func() error { return on.Record(e) }); err != nil {
		return nil, err
	}
	return func() error {
		err := e.Synchronise(w.ctx)
		g.GiveBack(e)
		return err
	}, nil
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

// later answers a call when wait returns. A goroutine waits, so the loop goes on.
func (w *worker) later(o *clientcore.Op, wait func() error) error {
	return w.laterThen(o, func() error {
		err := wait()
		w.outsFirst()
		return err
	}, func() {})
}

// laterThen answers a call when wait returns, and calls then once the call was answered or will not
// be. A client has wire.Slots reply slots, so a program that keeps to the protocol never has more
// calls waiting.
func (w *worker) laterThen(o *clientcore.Op, wait func() error, then func()) error {
	if w.waiting.Add(1) > wire.Slots {
		return fmt.Errorf("more than %d calls wait for their answers: %w", wire.Slots, clientcore.ErrProtocol)
	}
	world, slot, pending := w.told.Sticky.Current(), o.Slot, o.Result
	claimed := w.pace.Claimed(w.contexts.streams)
	w.replies.Add(1)
	w.others.Go(func() {
		defer w.replies.Done()
		defer then()
		err := wait()
		w.done.Store(int64(w.now()))
		w.waiting.Add(-1)
		if !claimed.End() {
			w.consumer.Wake() // the loop looks
		}
		if ended(err) && w.ctx.Err() != nil {
			return // the outcome is unknown; the program is told that the service has ended
		}
		if w.gone(err) != nil { // the next worker answers it
			w.notice(notice{world: world, err: err})
			return
		}
		r := w.outcome(world, err)
		if r == success {
			r = w.verdict(pending)
		}
		if w.spread.doomed.Load() {
			return
		}
		w.reply(slot, r, nil)
		if w.watched.Load() {
			w.consumer.Wake()
		}
	})
	return nil
}

// reply answers a call. Before an error the user is told the reason.
func (w *worker) reply(slot int, r clientcore.Result, payload []byte) {
	if r != success {
		w.told.Sticky.Explain(w.shared.Status())
	}
	w.shared.Reply(slot, r, payload)
}

// notice tells the loop of a fault.
func (w *worker) notice(n notice) {
	if w.notices.Len() < manyNotices { // otherwise the loop will find the fault by itself
		w.notices.Put(n)
	}
	w.consumer.Wake()
}

// outcome is the result of a call that has waited. After a fault it also makes the result sticky,
// before the call is answered: every later call must fail, and so must those that are already in
// the ring.
func (w *worker) outcome(world uint64, err error) clientcore.Result {
	var fault *device.Fault
	switch {
	case errors.As(err, &fault):
		if w.told.Sticky.Set(world, clientcore.ResultOf(err), err.Error()) {
			w.notice(notice{world: world, err: err})
		}
		return clientcore.ResultOf(err)
	case ended(err): // with all of its work, or because of a fault
		return w.told.Sticky.Of(world)
	}
	return clientcore.ResultOf(err)
}
