package worker

import (
	"bytes"
	"context"
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
	"muster/wire/control"
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
			w.mail.sayAll(w.core.Passing(w.now()))
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
			err = w.tracing.read(h, body)
		case h.Op == wire.OpPrintFetch && w.replay == nil: // asked before each function is called
			err = w.replies.printFetch(w.keeper.Latest(), h.Slot, clientcore.Span{Offset: h.Data, Length: h.Length})
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
	ctx   context.Context
	block func(f func() error) error // runs what may wait for a device
	tell  func(n notice)             // tells the loop that a stream is there

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
//
// If the function was handed out, the previous worker gave it to the program, which is running it.
func (t *hosts) call(on device.Stream, cookie uint64, handed bool) error {
	done := t.begin(cookie)
	tell := func() { t.tell(notice{cookie: cookie}) }
	await := func() {
		select {
		case <-done:
		case <-t.ctx.Done():
		}
	}
	err := t.block(func() error {
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
func (t *hosts) awaitWord(on device.Stream, o *clientcore.Op) error {
	words := on.Can()
	if words.WaitWord == nil {
		return errNoWords
	}
	step := *o
	t.begin(o.Cookie)
	err := t.block(func() error {
		if err := words.WaitWord(step.Range.Addr, int(step.Range.Size), step.Word.Value, step.Word.Compare); err != nil {
			return err
		}
		return on.Call(func() { t.tell(notice{cookie: step.Cookie, word: true}) })
	})
	if err != nil {
		t.returned(o.Cookie)
	}
	return err
}

// notice tells the loop something. Of many faults it is not told: it will find them by itself.
func (w *worker) notice(n notice) {
	if n.cookie != 0 || w.notices.Len() < manyNotices {
		w.notices.Put(n)
	}
	w.consumer.Wake()
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

// blockLong is block for waits that may last until kernels have ended.
func (w *worker) blockLong(f func() error) error {
	if !w.core.Working() || w.replay != nil || w.hosts.outstanding() > 0 { // block itself reports while it reads ahead
		return w.block(f)
	}
	w.passing.begin(w.core.Passage())
	err := w.block(f)
	w.core.Passed(w.passing.end())
	return err
}

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
