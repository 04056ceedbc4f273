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
	"muster/internal/mailbox"
	"muster/internal/spin"
	"muster/node/clientcore"
	"muster/node/worker/answers"
	"muster/wire"
	"muster/wire/control"
)

// waits are the loop's waits for devices, and what other goroutines report meanwhile. The loop owns them;
// any goroutine may report.
type waits struct {
	*session
	mail     *mail
	hosts    *hosts
	answers  *answers.Answers
	early    *early
	ops      *executor
	recovery *recovery

	notices *mailbox.Box[notice] // reporters must not block: a driver has one thread for the host functions of all streams
	faults  []notice             // reported while an operation was being performed; hear handles them
	passing passing
}

// notice is what a goroutine beside the loop reports to the loop: a host function that is due, a
// word that arrived, or a fault.
type notice struct {
	cookie uint64 // a stream has reached this host function of the program; 0: a fault
	word   bool   // not a function: the stream's wait for a word (AwaitWord) is over
	world  uint64
	err    error
}

// manyNotices is from how many on faults are not told of: the loop will find them by itself.
const manyNotices = 16

// report tells the loop something. Of many faults it is not told: it will find them by itself.
func (x *waits) report(n notice) {
	if n.cookie != 0 || x.notices.Len() < manyNotices {
		x.notices.Put(n)
	}
	x.consumer.Wake()
}

// noticedMeanwhile handles a notice while an operation is being performed. It cannot report a fault
// to the core then, whose state is between two events, so it keeps the fault for hear.
func (x *waits) noticedMeanwhile(n notice) error {
	if n.cookie != 0 {
		x.answers.CopiesFirst() // the function may read data that finished copies have delivered
		return x.ops.aside(x.core.Reached(n.cookie), nil)
	}
	x.faults = append(x.faults, n)
	return nil
}

// block runs f, which may block on the device. While streams wait for host functions of the
// program, f may be waiting for one of them, so block reads messages from the ring meanwhile: one
// of them says that the function has returned.
//
// No wake-up is lost between the two goroutines: this one sets asleep before it checks done and
// sleeps, the other one fills done before it checks asleep. So either this one sees the result, or
// the other one sees asleep and wakes it; and Wake also ends a call of Next that begins later.
func (x *waits) block(f func() error) error {
	if x.hosts.outstanding() == 0 {
		return f()
	}
	done := make(chan error, 1)
	var asleep atomic.Bool // whether this goroutine may be in early.read, and must be woken
	x.others.Go(func() {
		done <- f()
		if asleep.Load() {
			x.consumer.Wake()
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
		if n, ok := x.notices.Take(); ok { // the sender wakes the consumer, which ends early.read
			err = x.noticedMeanwhile(n)
		} else if looks < spin.Few { // most calls return within that
			runtime.Gosched()
		} else if len(done) == 0 { // f has not ended, or will see asleep
			x.mail.sayAll(x.core.Passing(x.now()))
			err = x.early.read(longWait)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", err, errEnded) // the client ends, and with it the context, which ends f
		}
	}
}

// longWait is how long block waits for a message at a time, once it has looked spin.Few times.
const longWait = 100 * time.Millisecond

// blockLong is block for waits that may last until kernels have ended.
func (x *waits) blockLong(f func() error) error {
	if !x.core.Working() || x.recovery.replays() || x.hosts.outstanding() > 0 { // block itself reports while it reads ahead
		return x.block(f)
	}
	x.passing.begin(x.core.Passage())
	err := x.block(f)
	x.core.Passed(x.passing.end())
	return err
}

// drain waits until all work in the context has ended.
func (x *waits) drain(g *gpu) error {
	return x.blockLong(func() error { return g.context.Synchronise(x.ctx) })
}

// drainAll waits until all work has ended, in every context of the client.
func (x *waits) drainAll() error {
	for _, i := range x.contexts.placesInOrder() {
		if err := x.drain(x.contexts.open[i]); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until a stream has done what it was given.
func (x *waits) settle(on device.Stream) error {
	if done, err := on.Done(); done || err != nil {
		return err
	}
	return x.blockLong(func() error { return on.Synchronise(x.ctx) })
}

// early are the messages that were read before the core could take them. The loop owns it.
type early struct {
	*session
	replies  *replies
	ops      *executor
	recovery *recovery
	messages []message // those that the core has queued, in the same order
}

// read waits for messages and takes them from the ring. Those about host functions are handled
// at once; all others are queued in the core.
func (e *early) read(patience time.Duration) error {
	for ; ; patience = time.Microsecond {
		h, body, err := e.consumer.Next(patience)
		switch {
		case errors.Is(err, wire.ErrTimeout), errors.Is(err, wire.ErrWoken):
			return nil
		case errors.Is(err, wire.ErrStopped):
			return errDaemonEnded
		case err != nil:
		case h.Op == wire.OpTraceRead:
			err = e.tracing.read(h, body)
		case h.Op == wire.OpPrintFetch && !e.recovery.replays(): // asked before each function is called
			err = e.replies.printFetch(e.keeper.Latest(), h.Slot, clientcore.Span{Offset: h.Data, Length: h.Length})
		case clientcore.Urgent(h.Op):
			e.recovery.replay.noteReturned(h, body)
			err = e.ops.aside(e.core.UrgentMessage(clientcore.Message{Header: h, Body: body}))
		default:
			err = e.putBack(h, body)
		}
		if err != nil {
			return err
		}
	}
}

// putBack queues a message for later. It copies the data and gives staging memory back at once: the
// program may be waiting for that memory before it can report that its host function has returned.
func (e *early) putBack(h wire.Header, body []byte) error {
	m := clientcore.Message{Header: h, Body: bytes.Clone(body)}
	if h.Op.TakesData() || h.Op.GivesData() {
		data, err := e.shared.Data(h.Data, h.Length)
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
		e.keeper.Attach(e.keeper.Latest(), m.Data, true)
	}
	e.messages = append(e.messages, message{Header: h, Entry: e.keeper.Latest(), HasData: h.Release != 0})
	e.staging.Free(e.staging.Take(h.Release))
	m.Header.Release = 0
	return e.core.Later(m)
}

// hosts are the host functions of the program that streams wait for.
type hosts struct {
	*session
	waits  *waits
	handed map[uint64]bool // functions that the previous worker has given to the program, during a replay

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

// callFunction makes a stream call a host function of the program.
func (t *hosts) callFunction(_ *message, _ *gpu, on device.Stream, o *clientcore.Op) error {
	if o.Once {
		t.keeper.ExposeByUse("a graph of its has conditions, and is under way") // the log has the work of the conditions, but not its order
		t.keeper.Owe()                                                          // make a base as soon as it is over
	}
	return t.call(on, o.Cookie, t.handed[o.Cookie])
}

// call makes a stream wait until the program has run a function. When the stream gets there it
// sends a notice to the loop, which gives the function to the program; returned then lets the
// stream go on. Where the stream cannot be held, a thread of the device's waits for that, and with it
// all that this thread does for other streams.
//
// If the function was handed out, the previous worker gave it to the program, which is running it.
func (t *hosts) call(on device.Stream, cookie uint64, handed bool) error {
	done := t.begin(cookie)
	tell := func() { t.waits.report(notice{cookie: cookie}) }
	await := func() {
		select {
		case <-done:
		case <-t.ctx.Done():
		}
	}
	err := t.waits.block(func() error {
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
		if hold(func(release func()) { t.releases(cookie, release) }) == nil {
			return nil
		}
		return on.Call(await) // which also tells why, if the context has ended
	})
	if err != nil {
		t.returned(cookie)
	}
	return err
}

// awaitWord makes a stream wait for a word, and tells the core when the wait is over. Later work
// may be what writes the word, so the wait counts as an outstanding host function, and the loop
// reads ahead.
func (t *hosts) awaitWord(_ *message, _ *gpu, on device.Stream, o *clientcore.Op) error {
	words := on.Can()
	if words.WaitWord == nil {
		return errNoWords
	}
	step := *o
	t.begin(o.Cookie)
	err := t.waits.block(func() error {
		if err := words.WaitWord(step.Range.Addr, int(step.Range.Size), step.Word.Value, step.Word.Compare); err != nil {
			return err
		}
		return on.Call(func() { t.waits.report(notice{cookie: step.Cookie, word: true}) })
	})
	if err != nil {
		t.returned(o.Cookie)
	}
	return err
}

// passing reports GPU time to the daemon while the loop waits for kernels, for example when it
// makes a base. So the node's statistics grow while kernels run, and not only when they have ended.
//
// The loop takes along what the core would report (clientcore.Passage), for the timer's goroutine to
// report meanwhile, and hands it back when it goes on: only the loop calls the core.
type passing struct {
	say func(m control.ToDaemon)
	now func() clientcore.Time

	mu    sync.Mutex
	waits bool // the loop is blocked
	takes clientcore.Passage
	timer *time.Timer
}

// tellPassing is the interval of the reports.
const tellPassing = 250 * time.Millisecond

// begin starts the reports.
func (p *passing) begin(takes clientcore.Passage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits, p.takes = true, takes
	if p.timer == nil {
		p.timer = time.AfterFunc(tellPassing, p.report)
	} else {
		p.timer.Reset(tellPassing)
	}
}

// end ends the reports, and returns what is to be handed back to the core.
func (p *passing) end() *clientcore.Passage {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = false
	p.timer.Stop()
	return &p.takes
}

// report reports the GPU time so far. The timer calls it, in a goroutine beside the loop.
func (p *passing) report() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.waits {
		return
	}
	for _, m := range p.takes.Tell(p.now()) {
		p.say(m)
	}
	p.timer.Reset(tellPassing)
}
