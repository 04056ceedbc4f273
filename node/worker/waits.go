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
	"muster/node/clientcore"
	"muster/wire"
)

// block does what may take long. While functions of the program's wait to be
// called, its messages are read ahead: one of them may say that such a function
// has returned.
func (w *worker) block(f func() error) error {
	if w.hosts.outstanding() == 0 {
		return f()
	}
	done := make(chan error, 1)
	var asleep atomic.Bool // this goroutine, until there is a message or somebody wakes it
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
		case n := <-w.notices: // whoever tells something wakes the consumer
			err = w.noticedMeanwhile(n)
		default:
			asleep.Store(looks >= shortWait)
			switch {
			case looks < shortWait: // most often it takes no longer than that
				runtime.Gosched()
			case len(done) == 0: // f saw that somebody sleeps, or has not ended
				w.sayAll(w.core.Passing(w.now()))
				err = w.readAhead(longWait)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", err, errEnded) // it ends the client, and that ends f
		}
	}
}

// How block waits: so many looks, then for messages, for so long.
const (
	shortWait = 32
	longWait  = 100 * time.Millisecond
)

// readAhead waits for messages and takes them from the ring to be handled later; those about
// the program's own functions are handled now.
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

// putBack keeps a message for later. Staging memory is given back at once: the
// program may wait for it before it says that its function has returned.
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
	if w.journal != nil {
		if m.Data != nil && !m.Pinned {
			w.attachData(w.latestEntry, m.Data)
		}
		w.backlog = append(w.backlog, queued{w.latestEntry, h})
	}
	w.staging.free(w.staging.take(h.Release))
	m.Header.Release = 0
	return w.core.Later(m)
}

// hosts are the program's functions that streams wait for.
type hosts struct {
	mu      sync.Mutex
	running map[uint64]chan struct{} // closed when the function has returned
	count   atomic.Int32             // of them
}

// outstanding is how many functions have not returned.
func (t *hosts) outstanding() int { return int(t.count.Load()) }

// begin makes a function known before its stream arrives there.
func (t *hosts) begin(cookie uint64) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		t.running = map[uint64]chan struct{}{}
	}
	done := make(chan struct{})
	t.running[cookie] = done
	t.count.Store(int32(len(t.running)))
	return done
}

// returned lets the stream of a function go on.
func (t *hosts) returned(cookie uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done := t.running[cookie]; done != nil {
		close(done)
		delete(t.running, cookie)
		t.count.Store(int32(len(t.running)))
	}
}

// drop lets go of all that wait: the context has failed.
func (t *hosts) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cookie, done := range t.running {
		close(done)
		delete(t.running, cookie)
	}
	t.count.Store(0)
}

// call lets a stream wait until the program has run a function.
func (w *worker) call(on device.Stream, cookie uint64) error {
	done := w.hosts.begin(cookie)
	handed := w.replay.wasHanded(cookie)
	err := w.block(func() error {
		return on.Call(func() {
			if handed { // the program runs it
				select {
				case <-done:
				case <-w.ctx.Done():
				}
				return
			}
			select {
			case w.notices <- notice{cookie: cookie}:
				w.consumer.Wake()
			case <-done: // dropped
			case <-w.ctx.Done():
			}
			select {
			case <-done:
			case <-w.ctx.Done():
			}
		})
	})
	if err != nil {
		w.hosts.returned(cookie)
	}
	return err
}

// replyAfter answers a call when streams or an event have done what they were
// given so far.
func (w *worker) replyAfter(o *clientcore.Op) error {
	g, err := w.at(o.Place)
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
		w.over = len(w.gpus) == 1 && len(g.streams) == 1 && len(g.leaving) == 0
		w.answer(o)
		return nil
	}
	if w.header.Op.GivesData() {
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
	var owners []*gpu // of those
	for _, g := range w.gpus {
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
		w.over = len(w.gpus) == 1
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
type done interface{ Done() (bool, error) }

// soon waits for a moment until streams or events are over, unless there is something else
// to do. Most calls wait for what is nearly over, and a goroutine that waits for
// it takes longer.
func (w *worker) soon(all ...done) (bool, error) {
	var start time.Time
	moment := aWatch
	for first := 0; ; {
		watched := true
		for ; first < len(all); first++ {
			var over bool
			var err error
			if d, ok := all[first].(device.Watcher); ok {
				over, err = d.DoneWithin(aLook)
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
		if w.consumer.Pending() || w.core.Queued() || w.hosts.outstanding() > 0 || w.inbox.waits() {
			return false, nil
		}
		if !watched {
			moment = aMoment
			runtime.Gosched() // the device may be of this process
		}
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > moment {
			return false, nil
		}
	}
}

// How long soon waits: for devices of this process, which need it to be over; for others, whose work it
// would take longer to come back to; and for how long it looks at these at a time.
const (
	aMoment = 20 * time.Microsecond
	aWatch  = 250 * time.Microsecond
	aLook   = 4 * time.Microsecond
)

// outs are copies out that are told when they are done. Nobody may hear of the end of
// work before of the copies out that ended earlier: a program of another machine gets
// their data with the answer, and takes what comes after it for the sign that they are
// there.
type outs struct {
	mu   sync.Mutex
	list []*out
	some atomic.Int32 // of them
}

type out struct {
	mark device.Event  // is done when the copy is; in use until the out has left the list
	told chan struct{} // closed when the answer was given
}

// laterOut is later for a copy out.
func (w *worker) laterOut(g *gpu, on device.Stream, o *clientcore.Op) error {
	e, err := g.spare()
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

// outTold notes that a copy out was told.
func (w *worker) outTold(g *gpu, one *out) {
	w.outs.mu.Lock()
	w.outs.list = slices.DeleteFunc(w.outs.list, func(o *out) bool { return o == one })
	w.outs.some.Add(-1)
	w.outs.mu.Unlock()
	close(one.told)
	g.giveBack(one.mark)
}

// outsFirst waits until all copies out were told that are done.
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

// answer answers a call that has waited for the device.
func (w *worker) answer(o *clientcore.Op) {
	w.outsFirst()
	w.sawEnd()
	if w.pace.isLatency() {
		w.endClaims()
	}
	w.tellResult(o.Slot, o.Result)
	if w.watched.Load() {
		w.consumer.Wake()
	}
}

// tellResult answers a call that has waited for the device, or asked it, unless something went wrong
// on another one, and the client is to be rebuilt.
func (w *worker) tellResult(slot int, r clientcore.Result) {
	if !w.spread.doomed.Load() {
		w.shared.Reply(slot, w.verdict(r), nil)
	}
}

// sawEnd notes that somebody has seen the end of work: what kernels took ends there,
// and not when the loop next looks.
func (w *worker) sawEnd() {
	if w.core.Working() {
		w.done.Store(int64(w.now()))
	}
}

// mark returns a function that waits for what a stream was given so far, and for
// nothing that comes later.
func (w *worker) mark(g *gpu, on device.Stream) (wait func() error, err error) {
	e, err := g.spare()
	if err != nil {
		return nil, err
	}
	if err := w.block(func() error { return on.Record(e) }); err != nil {
		return nil, err
	}
	return func() error {
		err := e.Synchronise(w.ctx)
		g.giveBack(e)
		return err
	}, nil
}

// spare returns an event that nobody uses.
func (g *gpu) spare() (device.Event, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.free); n > 0 {
		e := g.free[n-1]
		g.free = g.free[:n-1]
		return e, nil
	}
	return g.context.NewEvent()
}

// giveBack lets others use an event again.
func (g *gpu) giveBack(e device.Event) {
	g.mu.Lock()
	g.free = append(g.free, e)
	g.mu.Unlock()
}

// later answers a call when something has ended. The loop goes on meanwhile.
func (w *worker) later(o *clientcore.Op, wait func() error) error {
	return w.laterThen(o, func() error {
		err := wait()
		w.outsFirst()
		return err
	}, func() {})
}

// laterThen does something when the call was answered, or is not to be.
func (w *worker) laterThen(o *clientcore.Op, wait func() error, then func()) error {
	if w.waiting.Add(1) > wire.Slots {
		return fmt.Errorf("more than %d calls wait for their answers: %w", wire.Slots, clientcore.ErrProtocol)
	}
	world, slot, pending := w.sticky.current(), o.Slot, o.Result
	claimed := w.claimedSoFar()
	w.replies.Add(1)
	w.others.Go(func() {
		defer w.replies.Done()
		defer then()
		err := wait()
		w.done.Store(int64(w.now()))
		w.waiting.Add(-1)
		claimed.end()
		if ended(err) && w.ctx.Err() != nil {
			return // nobody knows what was done; the client hears of the end instead
		}
		if w.gone(err) != nil { // it is answered when the client is rebuilt
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

// reply answers a call. If that is with a fault, the program's user knows why.
func (w *worker) reply(slot int, r clientcore.Result, payload []byte) {
	if r != success {
		w.sticky.explain(w.shared.Status())
	}
	w.shared.Reply(slot, r, payload)
}

// notice tells the loop of a fault.
func (w *worker) notice(n notice) {
	select {
	case w.notices <- n:
	default: // the loop has much to hear, and comes upon the fault itself
	}
	w.consumer.Wake()
}

// outcome is what a call is told that has waited. Every later call must fail
// after a fault, and so must those that were sent already.
func (w *worker) outcome(world uint64, err error) clientcore.Result {
	var fault *device.Fault
	switch {
	case errors.As(err, &fault):
		if w.sticky.set(world, clientcore.ResultOf(err), err.Error()) {
			w.notice(notice{world: world, err: err})
		}
		return clientcore.ResultOf(err)
	case ended(err): // with everything on it, or by a fault
		return w.sticky.of(world)
	}
	return clientcore.ResultOf(err)
}

// sticky is the result that every call answers with after a fault, until a
// reset, for the goroutines beside the loop: they may come upon a fault before
// the core knows of it. The program sees a copy in the memory that it shares with
// the worker; what it writes there is no concern of ours.
type sticky struct {
	tell   func(why string)               // to the program's user
	status func(result clientcore.Result) // to the program

	mu     sync.Mutex
	world  uint64 // counts resets, as the core does: a fault of an earlier world is over
	result clientcore.Result
	why    string
	before clientcore.Result // of the world before
	silent bool              // the client is being rebuilt: the program is told afterwards
	told   bool              // meanwhile its user was told why
}

func (t *sticky) current() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.world
}

// of returns the result of a world, for calls that waited in it.
func (t *sticky) of(world uint64) clientcore.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	if world != t.world {
		return t.before
	}
	return t.result
}

// set makes a result the answer to everything, unless there was a reset since.
func (t *sticky) set(world uint64, r clientcore.Result, why string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if world != t.world {
		return false
	}
	if t.result == success { // the first one counts
		t.result, t.why = r, why
		t.say()
	}
	return true
}

// say tells the program what holds now, and its user why: first, since whoever sees the
// result looks for the reason.
func (t *sticky) say() {
	if t.silent {
		return
	}
	if t.result != success && !t.told && !clientcore.SaidByKernel(t.result) {
		t.tell(t.why)
	}
	t.told = false
	t.status(t.result)
}

// explain tells the user why a call is about to be answered with an error, if the client
// is being rebuilt and the worker before has not told that: the program may end at the
// answer. The status waits for the end of the rebuild. Known is the one that the program
// sees.
func (t *sticky) explain(known clientcore.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silent && !t.told && t.result != success && t.result != known && !clientcore.SaidByKernel(t.result) {
		t.told = true
		t.tell(t.why)
	}
}

// resume begins with what another worker has left, and tells nobody.
func (t *sticky) resume(world uint64, r clientcore.Result, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world, t.result, t.why, t.silent = world, r, why, true
}

// speak tells the program what holds now, unless it knows, and from now on.
func (t *sticky) speak(known clientcore.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silent = false; t.result != known {
		t.say()
	}
}

// clear begins a new world.
func (t *sticky) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world++
	t.before, t.result, t.why, t.told = t.result, success, "", false
	t.say()
}
