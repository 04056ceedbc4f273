package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/answers"
	"muster/vmm"
)

// A client whose work is on several devices at once needs order between a stream on one device and
// a stream or an event on another, and reports of when kernels ran. Devices cannot wait for each
// other's events, so a goroutine waits for the event of one context and then opens a gate at which
// the stream of the other context waits.

// sequence makes streams wait for work of other streams, in their own context or another.
type sequence struct {
	contexts *contexts
	answers  *answers.Answers
}

// spread is what is known of kernels that have ended.
type spread struct {
	mu    sync.Mutex
	ended []clientcore.KernelEnd
	seen  []clientcore.Seen
	some  atomic.Bool // ended or seen is not empty; read without the lock
}

// gate holds a stream back until it is opened.
type gate struct {
	once sync.Once
	open chan struct{}
}

func (t *gate) pass() { <-t.open }

func (t *gate) opened() { t.once.Do(func() { close(t.open) }) }

// wait makes what is submitted to a stream from now on wait for an event of another context.
// It takes over the event, and returns it to that context's spare events once it has happened.
func (x *sequence) wait(g *gpu, on device.Stream, from *gpu, e device.Event) error {
	if done, err := e.Done(); done || err != nil {
		from.GiveBack(e)
		return err
	}
	x.answers.Crossed()
	if g.callsAlone {
		// A gate is a function that the stream calls. On such a device it would hold up the functions of
		// all other streams, among them those that the other device may wait for in turn. So the loop
		// waits instead: what the event waits for was submitted before, and needs nothing from the loop
		// but what block handles meanwhile.
		err := x.answers.Block(func() error { return e.Synchronise(x.answers.Context) })
		from.GiveBack(e)
		return err
	}
	t := &gate{open: make(chan struct{})}
	g.keepGate(t)
	world := x.answers.Told.Sticky.Current()
	x.answers.Go(func() {
		err := e.Synchronise(x.answers.Context)
		from.GiveBack(e)
		switch {
		case err == nil, x.answers.Context.Err() != nil:
		case x.answers.Gone(err) != nil:
			x.answers.Doom()
			x.answers.Report(world, err)
		default:
			x.answers.Outcome(world, err) // before the gate opens, so that no call succeeds because of what runs behind it
		}
		g.dropGate(t)
		t.opened()
	})
	return x.answers.Block(func() error { return on.Call(t.pass) })
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

// openGates releases all streams that wait for other contexts. The caller is about to close this
// context, and Close waits for its streams.
func (g *gpu) openGates() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.gates {
		t.opened()
	}
}

// after makes a stream wait for what another stream was given so far.
func (x *sequence) after(_ *message, g *gpu, on device.Stream, o *clientcore.Op) error {
	if o.Origin == vmm.Host {
		first, err := g.stream(o.Other)
		if err != nil {
			return err
		}
		return x.answers.Block(func() error {
			if err := first.Record(g.scratch); err != nil {
				return err
			}
			return on.Wait(g.scratch)
		})
	}
	from, err := x.contexts.at(o.Origin)
	if err != nil {
		return err
	}
	first, err := from.stream(o.Other)
	if err != nil {
		return err
	}
	return x.record(g, on, from, first)
}

// forEvent makes a stream wait for the present record of an event. If that is in another context, the
// program may record the event again, so the goroutine must not wait for the event itself: an idle
// stream of that context waits for it, and wait waits for an event behind that.
func (x *sequence) forEvent(_ *message, g *gpu, on device.Stream, o *clientcore.Op) error {
	if o.Origin == vmm.Host {
		id := o.Event // the function may run on when the loop has given up, and the core uses o again
		return x.answers.Block(func() error {
			e, err := g.event(id)
			if err != nil {
				return err
			}
			return on.Wait(e.Event)
		})
	}
	from, err := x.contexts.at(o.Origin)
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
	return x.record(g, on, from, relay)
}

func (x *sequence) record(g *gpu, on device.Stream, from *gpu, first device.Stream) error {
	e, err := from.Spare()
	if err != nil {
		return err
	}
	if err := x.answers.Block(func() error { return first.Record(e) }); err != nil {
		return err
	}
	return x.wait(g, on, from, e)
}

// relay returns an idle stream, for order with other contexts.
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

// timed launches a kernel, and reports to the core how long it ran.
func (l *launches) timed(g *gpu, on device.Stream, o *clientcore.Op, give func() error) error {
	ticket, at := o.Ticket, g.place.Index()
	l.enqueue(g)
	ended := func(took time.Duration) {
		g.dequeue()
		l.spread.add(ticket, at, took)
	}
	timer := on.Can().Time
	if timer == nil || l.tracing.isOn() { // the timeline uses the timer
		begin := time.Now()
		if err := give(); err != nil {
			g.dequeue()
			return err
		}
		return l.answers.Block(func() error { return on.Call(func() { ended(g.since(begin)) }) })
	}
	timer(func(begin, end time.Time, _ uint64) { ended(end.Sub(begin)) })
	err := give()
	timer(nil)
	if err != nil {
		g.dequeue()
	}
	return err
}

// enqueue lets the mappers of other programs know that there is one launch more on a device.
func (l *launches) enqueue(g *gpu) {
	if l.pace == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue == nil && !g.queueless {
		g.queue = l.pace.Queue(g.place.Index())
		g.queueless = g.queue == nil
	}
	g.queue.Add(1)
}

// dequeue says that one has ended. Any goroutine may call it.
func (g *gpu) dequeue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue.Add(-1)
}

// leaveQueue says that no launch is there any more, whatever ends later: the context is closed.
func (g *gpu) leaveQueue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue.Leave()
	g.queue, g.queueless = nil, true
}

// since is how long a kernel ran that was submitted at begin and ends now, assuming that the
// context runs kernels one after the other.
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

// add notes the end of a kernel. Any goroutine may call it.
func (s *spread) add(ticket uint64, device int, took time.Duration) {
	s.mu.Lock()
	s.ended = append(s.ended, clientcore.KernelEnd{Ticket: ticket, Device: device, Took: took})
	s.mu.Unlock()
	s.some.Store(true)
}

// saw notes which memory a kernel used. Any goroutine may call it.
func (s *spread) saw(seen clientcore.Seen) {
	s.mu.Lock()
	s.seen = append(s.seen, seen)
	s.mu.Unlock()
	s.some.Store(true)
}

// tellEnds tells the core which kernels have ended. Only the loop may call it.
func (l *launches) tellEnds() {
	s := &l.spread
	if !s.some.Load() {
		return
	}
	s.mu.Lock()
	ended, seen := s.ended, s.seen
	s.ended, s.seen = nil, nil
	s.some.Store(false)
	s.mu.Unlock()
	l.core.Ran(l.answers.Now(), ended)
	for _, one := range seen {
		l.core.Observed(one)
	}
}
