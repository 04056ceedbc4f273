package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/device"
	"muster/internal/laps"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/node/worker/kernellimit"
	"muster/node/worker/modules"
	"muster/vmm"
	"muster/wire"
	"muster/wire/timeline"
)

// gpu is an open context on a device, with what the client has there under the core's numbers. The
// loop owns it; only the fields behind mu are used by other goroutines too.
type gpu struct {
	place   vmm.Place
	context device.Context
	modules *modules.Modules
	mover   device.Stream   // carries out the directory's plans (moves)
	scratch device.Event    // for order between two streams, in one step of the loop
	origin  device.Event    // the times of events are measured from it
	opened  clientcore.Time // when origin was recorded

	streams  map[uint32]device.Stream
	priority func(stream uint32) int // the priority that the program gave a stream
	leaving  []device.Stream         // destroyed by the program, with work still in flight
	events   map[uint32]*event
	pinned   map[uint64]bool // granules of the program's memory that are pinned here
	graphs   map[uint32]*built
	hostPins *hostcopy.Pins // host copies that are pinned here

	journalPins map[uint64]journalPin // memory of the journal that is pinned here, by offset

	relays []device.Stream // idle streams that only wait, for order with other contexts

	callsAlone bool // device.Info.CallsAlone
	overseen   bool // kernels have a limit that the device does not keep (overseer)

	mu     sync.Mutex
	free   []device.Event // unused events, for marks
	gates  map[*gate]bool // gates that streams of this context wait at
	echoes map[*echo]bool // copies whose data are not in the journal yet
	queue  *wire.Queue    // where mapped launches in flight are counted for other programs; nil: none yet, or queueless

	queueless bool      // there is no place left, or the context is closed
	lastEnd   time.Time // of the last kernel that since measured
}

// Device is the number of the context's device.
func (g *gpu) Device() int { return g.place.Index() }

// NewEvent makes an event.
func (g *gpu) NewEvent() (device.Event, error) { return g.context.NewEvent() }

// Idle is a stream that has no work but while memory moves.
func (g *gpu) Idle() device.Stream { return g.mover }

// event is an event of the client. Goroutines may wait for it while the program destroys it, so the
// last of them closes it.
type event struct {
	device.Event
	waiters int  // guarded by gpu.mu
	closing bool // the program has destroyed it; guarded by gpu.mu
}

// setLimits sets the limits that the program asked for, if the device has such limits.
func (g *gpu) setLimits(all map[uint32]uint64) error {
	setLimit := g.context.Can().SetLimit
	if setLimit == nil {
		return nil
	}
	for _, limit := range slices.Sorted(maps.Keys(all)) {
		if err := setLimit(int(limit), all[limit]); err != nil {
			return err
		}
	}
	return nil
}

// opener opens the client's contexts, and closes them. The loop owns it.
type opener struct {
	*session
	mail     *mail
	devices  *devices
	reach    *reach
	commons  *commons
	loader   *loader
	copies   *copies
	overseer *kernellimit.Overseer

	prepared *prepared // a device with a context that was made before there was a client; nil: none
}

// open opens a context with the client's modules in it, and all memory of the program that
// kernels may reach.
func (c *opener) open(o *clientcore.Op) (outcome clientcore.Outcome) {
	defer c.tracing.Span(timeline.Open, o.Place)()
	home := c.core.HomeDevice() == o.Place.Index()
	if outcome.Err = c.timed(&outcome, func() error { return c.openContext(o, home) }); outcome.Err != nil && !home {
		outcome.Err = fmt.Errorf("%v", outcome.Err) // nothing is lost with it, whatever it was: the device goes back
	}
	return outcome
}

func (c *opener) openContext(o *clientcore.Op, home bool) error {
	took := laps.Begin()
	d, err := c.devices.forContext(o.Place.Index(), home)
	if err != nil {
		return c.devices.orLost(o.Place.Index(), err)
	}
	c.used(o.Place)
	g := &gpu{place: o.Place, streams: map[uint32]device.Stream{}, events: map[uint32]*event{}, priority: func(stream uint32) int { return c.core.Priority(stream) }}
	g.callsAlone = d.Info().CallsAlone
	g.overseen = c.serve.KernelTime > 0 && !d.Info().StopsKernels
	arena := device.Arena{Base: c.serve.ArenaBase, Size: c.serve.ArenaSize}
	if g.context, err = d.Open(device.Config{
		Arena: arena, Print: c.told.Printed.Print, Complain: c.told.Printed.Complain, Kernels: c.kernelLimit(),
		Touches: c.serve.Mapping != "" || c.serve.Guest, // the mapper of a guest may ask
	}); err != nil {
		return c.devices.orLost(o.Place.Index(), c.unserved(err))
	}
	took.End("context")
	if _, err := g.context.Pin(staged(c.shared)); err != nil {
		c.log.Debug("pinning staging memory", "error", err) // copies are slower without
	}
	took.End("pins")
	err = g.prepare(c.now)
	took.End("streams")
	if err == nil {
		err = g.setLimits(o.Limits)
	}
	if err == nil {
		g.modules = modules.New(d, g.context, g.mover)
		err = g.modules.Replay(c.ctx, o.Modules, o.Anew || c.loader.shifted)
		c.loader.shifted = c.loader.shifted || g.modules.Shifted()
	}
	if err == nil {
		err = c.reach.opened(g, c.core.Mapped)
	}
	if err == nil {
		err = c.commons.opened(g, c.core.Shared)
	}
	if err != nil {
		g.context.Close()
		return err
	}
	took.End("contents")
	c.log.Debug("a context is open", "device", o.Place.Index(), "took", took)
	c.contexts.add(g)
	g.hostPins = c.host.NewPins(g.context.Pin, c.log)
	c.contexts.checking = c.contexts.checking || g.context.Can().Know != nil
	return nil
}

// unserved turns an error of opening a context that MPS may have caused into a fault, so that the
// client is rebuilt in a worker without MPS.
func (c *opener) unserved(err error) error {
	var known *device.Fault
	if !c.sharesFate() || errors.Is(err, device.ErrOutOfMemory) || errors.As(err, &known) {
		return err
	}
	return &device.Fault{Kind: device.Unspecified, Detail: err.Error()}
}

// close closes a context, with everything that is left in it.
func (c *opener) close(p vmm.Place) {
	g := c.drop(p)
	if g == nil {
		return
	}
	if err := g.context.Close(); err != nil {
		c.log.Debug("closing a context", "error", err)
	}
	c.copies.returned(g)
}

// abandon closes a context on a device that may never answer again. Close may hang there, so it
// runs in a goroutine that nobody waits for.
func (c *opener) abandon(p vmm.Place) {
	if g := c.drop(p); g != nil {
		go func() {
			_ = g.context.Close()
			c.copies.returned(g)
		}()
	}
}

// drop removes a context from those that are open, and returns it; nil if there is none. It opens the gates
// first: Close waits for the streams that wait there.
func (c *opener) drop(p vmm.Place) *gpu {
	g := c.contexts.remove(p)
	if g != nil {
		c.tracing.Leaves(g)
		g.hostPins.Drop()
		g.openGates()
		g.leaveQueue()
		if g.overseen {
			c.overseer.Leaves(g)
		}
	}
	c.pace.Forget()
	return g
}

// moverPriority is the highest. NVIDIA's driver puts streams into few queues of the device, and one that
// waits for a host function keeps all in its queue waiting: also the copy that the function waits for. It
// should put streams of different priorities into different queues, and most programs use the lowest.
const moverPriority = -5

func (g *gpu) prepare(now func() clientcore.Time) error {
	var err error
	if g.mover, err = g.newStream(moverPriority); err != nil {
		return err
	}
	if g.scratch, err = g.context.NewEvent(); err != nil {
		return err
	}
	if g.origin, err = g.context.NewEvent(); err != nil {
		return err
	}
	g.opened = now()
	return g.mover.Record(g.origin)
}

// stream returns a stream of the context, created at its first use.
func (g *gpu) stream(id uint32) (device.Stream, error) {
	if on, ok := g.streams[id]; ok {
		return on, nil
	}
	on, err := g.newStream(g.priority(id))
	if err == nil {
		g.streams[id] = on
	}
	return on, err
}

func (g *gpu) newStream(priority int) (device.Stream, error) {
	if of := g.context.Can().NewStreamOf; of != nil && priority != 0 {
		return of(priority)
	}
	return g.context.NewStream()
}

// leaveStream retires a stream that the program destroyed. It is closed once its work has ended.
func (g *gpu) leaveStream(id uint32) error {
	if on, ok := g.streams[id]; ok {
		delete(g.streams, id)
		g.leaving = append(g.leaving, on)
	}
	_, err := g.left()
	return err
}

// left closes retired streams whose work has ended, in order, and says whether none is left.
func (g *gpu) left() (bool, error) {
	for len(g.leaving) > 0 {
		done, err := g.leaving[0].Done()
		if err != nil || !done {
			return false, err
		}
		if err := g.leaving[0].Close(); err != nil {
			return false, err
		}
		g.leaving = g.leaving[1:]
	}
	return true, nil
}

// event returns an event of the context, created at its first use.
func (g *gpu) event(id uint32) (*event, error) {
	if e, ok := g.events[id]; ok {
		return e, nil
	}
	made, err := g.context.NewEvent()
	if err != nil {
		return nil, err
	}
	e := &event{Event: made}
	g.events[id] = e
	return e, nil
}

func (g *gpu) closeEvent(id uint32) error {
	e, ok := g.events[id]
	if !ok {
		return nil
	}
	delete(g.events, id)
	g.mu.Lock()
	e.closing = true
	last := e.waiters == 0
	g.mu.Unlock()
	if last {
		return e.Close()
	}
	return nil
}

// waitFor returns a function that waits for an event. The event stays open until that function
// returns, even if the program destroys it.
func (g *gpu) waitFor(ctx context.Context, e *event) func() error {
	g.mu.Lock()
	e.waiters++
	g.mu.Unlock()
	return func() error {
		err := e.Synchronise(ctx)
		g.mu.Lock()
		e.waiters--
		last := e.closing && e.waiters == 0
		g.mu.Unlock()
		if last {
			_ = e.Close() // no caller is left to hear of an error
		}
		return err
	}
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

// when returns the time of a moment, whose event is in this context.
func (g *gpu) when(m clientcore.Moment) (clientcore.Time, error) {
	if !m.Pending {
		return m.At, nil
	}
	e, err := g.event(m.Event)
	if err != nil {
		return 0, err
	}
	since, err := e.Since(g.origin)
	return g.opened + since, err
}

// quiet says whether no stream of the context has work.
func (g *gpu) quiet() (bool, error) {
	for _, on := range g.streams {
		done, err := on.Done()
		if err != nil || !done {
			return false, err
		}
	}
	return g.left()
}

// makeTextures creates textures in the context, and returns the handle of the last one.
func (g *gpu) makeTextures(all []clientcore.Textured) (handle uint64, err error) {
	on := g.context.Can()
	if on.NewTexture == nil {
		return 0, fmt.Errorf("textures: %w", device.ErrNotSupported)
	}
	for i, t := range all {
		if handle, err = on.NewTexture(t.Texture, t.Handle); err != nil {
			return 0, errors.Join(err, g.dropTextures(all[:i])) // the core relies on all or none
		}
	}
	return handle, nil
}

func (g *gpu) dropTextures(all []clientcore.Textured) error {
	on := g.context.Can()
	if on.DropTexture == nil {
		return fmt.Errorf("textures: %w", device.ErrNotSupported)
	}
	for _, t := range all {
		if err := on.DropTexture(t.Handle, t.Texture.Surface); err != nil {
			return err
		}
	}
	return nil
}
