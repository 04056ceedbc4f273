package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/vmm"
)

// What a client needs whose work is on several devices at once: order between a stream here and
// a stream or an event there, and word of when kernels ran.

// spread is that of one worker.
type spread struct {
	// crossed says that streams of different devices waited for each other. A fault on one device
	// lets those on others go on that wait for it, so that they do not wait for ever: what they do
	// then is wrong, and nobody may be told that it went well.
	crossed atomic.Bool
	doomed  atomic.Bool // the client is to be rebuilt: no call is answered any more

	mu    sync.Mutex
	ended []clientcore.KernelEnd
	seen  []clientcore.Seen
	some  atomic.Bool // there are any
}

// gate is what a stream waits at until it is opened.
type gate struct {
	once sync.Once
	open chan struct{}
}

func (t *gate) pass() { <-t.open }

func (t *gate) opened() { t.once.Do(func() { close(t.open) }) }

// waitAcross lets what a stream gets next wait for an event of another context. The event is the
// caller's no more: it is given back when it has happened.
func (w *worker) waitAcross(g *gpu, on device.Stream, from *gpu, e device.Event) error {
	if done, err := e.Done(); done || err != nil {
		from.giveBack(e)
		return err
	}
	w.spread.crossed.Store(true)
	t := &gate{open: make(chan struct{})}
	g.keepGate(t)
	world := w.sticky.current()
	w.others.Go(func() {
		err := e.Synchronise(w.ctx)
		from.giveBack(e)
		switch {
		case err == nil, w.ctx.Err() != nil:
		case w.gone(err) != nil:
			w.spread.doomed.Store(true)
			w.notice(notice{world: world, err: err})
		default:
			w.outcome(world, err) // before anybody can think that all is well
		}
		g.dropGate(t)
		t.opened()
	})
	return w.block(func() error { return on.Call(t.pass) })
}

func (g *gpu) keepGate(t *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates == nil {
		g.gates = map[*gate]bool{}
	}
	g.gates[t] = true
}

func (g *gpu) dropGate(t *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.gates, t)
}

// openGates lets all streams go on that wait for other contexts: this one is about to be closed,
// and closing waits for them.
func (g *gpu) openGates() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.gates {
		t.opened()
	}
}

// afterAcross lets the later work of a stream wait for what a stream of another context was given.
func (w *worker) afterAcross(g *gpu, on device.Stream, o *clientcore.Op) error {
	from, err := w.at(o.Origin)
	if err != nil {
		return err
	}
	first, err := from.stream(o.Other)
	if err != nil {
		return err
	}
	return w.recordAcross(g, on, from, first)
}

// waitForEventAcross lets the later work of a stream wait for an event of another context, as that
// is now: another stream waits for it there, and is then waited for.
func (w *worker) waitForEventAcross(g *gpu, on device.Stream, o *clientcore.Op) error {
	from, err := w.at(o.Origin)
	if err != nil {
		return err
	}
	event, err := from.event(o.Event)
	if err != nil {
		return err
	}
	if done, err := event.Done(); done || err != nil {
		return err
	}
	relay, err := from.relay()
	if err != nil {
		return err
	}
	if err := relay.Wait(event.Event); err != nil {
		return err
	}
	return w.recordAcross(g, on, from, relay)
}

func (w *worker) recordAcross(g *gpu, on device.Stream, from *gpu, first device.Stream) error {
	e, err := from.spare()
	if err != nil {
		return err
	}
	if err := w.block(func() error { return first.Record(e) }); err != nil {
		return err
	}
	return w.waitAcross(g, on, from, e)
}

// relay returns a stream without work, for order with other contexts.
func (g *gpu) relay() (device.Stream, error) {
	for _, on := range g.relays {
		if done, err := on.Done(); done || err != nil {
			return on, err
		}
	}
	on, err := g.context.NewStream()
	if err == nil {
		g.relays = append(g.relays, on)
	}
	return on, err
}

// verdict is what a call is told of which nothing went wrong where it waited: something may have
// gone wrong on another device that it counted on.
func (w *worker) verdict(r clientcore.Result) clientcore.Result {
	if w.spread.crossed.Load() {
		if sticky := w.sticky.of(w.sticky.current()); sticky != success {
			return sticky
		}
	}
	return r
}

// placeOf is where the i-th stream or event of an operation is.
func (w *worker) placeOf(g *gpu, o *clientcore.Op, i int) (*gpu, error) {
	if o.At == nil {
		return g, nil
	}
	return w.at(o.At[i])
}

// timedLaunch gives a device a kernel, and has the core told how long it ran.
func (w *worker) timedLaunch(g *gpu, on device.Stream, o *clientcore.Op, give func() error) error {
	ticket, at := o.Ticket, g.place.Index()
	timer, ok := on.(device.Timer)
	if !ok || w.timeline != nil { // the timeline has the timer
		begin := time.Now()
		if err := give(); err != nil {
			return err
		}
		return w.block(func() error { return on.Call(func() { w.spread.add(ticket, at, g.since(begin)) }) })
	}
	timer.Time(func(begin, end time.Time, _ uint64) { w.spread.add(ticket, at, end.Sub(begin)) })
	err := give()
	timer.Time(nil)
	return err
}

// since is how long a kernel ran that was submitted at a time and ends now, if the context has run
// one kernel after the other.
func (g *gpu) since(begin time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if begin.Before(g.lastEnd) {
		begin = g.lastEnd
	}
	g.lastEnd = now
	return now.Sub(begin)
}

// add notes the end of a kernel.
func (s *spread) add(ticket uint64, device int, took time.Duration) {
	s.mu.Lock()
	s.ended = append(s.ended, clientcore.KernelEnd{Ticket: ticket, Device: device, Took: took})
	s.mu.Unlock()
	s.some.Store(true)
}

// saw notes what a kernel used.
func (s *spread) saw(seen clientcore.Seen) {
	s.mu.Lock()
	s.seen = append(s.seen, seen)
	s.mu.Unlock()
	s.some.Store(true)
}

// tellEnds tells the core of kernels that have ended.
func (w *worker) tellEnds() {
	s := &w.spread
	if !s.some.Load() {
		return
	}
	s.mu.Lock()
	ended, seen := s.ended, s.seen
	s.ended, s.seen = nil, nil
	s.some.Store(false)
	s.mu.Unlock()
	w.core.Ran(w.now(), ended)
	for _, one := range seen {
		w.core.Observed(one)
	}
}

// drainAll waits until everything has ended, wherever the client has a context.
func (w *worker) drainAll() error {
	for _, i := range w.placesInOrder() {
		if err := w.drain(w.gpus[i]); err != nil {
			return err
		}
	}
	return nil
}

// placesInOrder are those where the client has a context.
func (w *worker) placesInOrder() []vmm.Place {
	var all []vmm.Place
	for i := range w.serve.Devices {
		if p := vmm.Device(i); w.gpus[p] != nil {
			all = append(all, p)
		}
	}
	return all
}
