package worker

import (
	"errors"
	"fmt"

	"muster/device"
	"muster/internal/laps"
	"muster/node/clientcore"
	"muster/node/worker/kernellimit"
	"muster/node/worker/modules"
	"muster/node/worker/pace"
	"muster/vmm"
	"muster/wire/control"
	"muster/wire/timeline"
)

// opener opens the client's contexts, and closes them. The loop owns it.
type opener struct {
	*session
	*life
	mail     *mail
	devices  *devices
	contexts *contexts
	reach    *reach
	commons  *commons
	loader   *loader
	copies   *copies
	overseer *kernellimit.Overseer
	pace     *pace.Pacer
	tracing  *tracing

	prepared *prepared // a device with a context that was made before there was a client; nil: none
}

// open opens a context with the client's modules in it, and all memory of the program that
// kernels may reach.
func (c *opener) open(o *clientcore.Op) (outcome clientcore.Outcome) {
	defer c.tracing.Span(timeline.Open, o.Place)()
	outcome.Err = c.timed(&outcome, func() error { return c.ready(o) })
	return outcome
}

func (c *opener) ready(o *clientcore.Op) error {
	if c.core.HomeDevice() != o.Place.Index() {
		if err := c.openContext(o); err != nil {
			return fmt.Errorf("%v", err) // nothing is lost with it, whatever it was: the device goes back
		}
		return nil
	}
	return c.openContext(o)
}

func (c *opener) openContext(o *clientcore.Op) error {
	took := laps.Begin()
	d, err := c.devices.forContext(o.Place.Index(), c.core.HomeDevice() == o.Place.Index())
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

// used says that the client opens a context on a device. If it is another than the prepared one, the
// prepared context is of no use to this client any more, and only takes memory; nobody waits for its
// end.
func (c *opener) used(place vmm.Place) {
	p := c.prepared
	if p == nil || p.gone {
		return
	}
	if c.devices.opened[place.Index()] == p.device {
		p.gone = true
		return
	}
	discard := p.giveUp(c.log)
	p.ending = true
	c.others.Go(func() {
		discard()
		c.mail.put(discarded{})
	})
}

// discarded tells the loop that the prepared context was closed beside it.
type discarded struct{ control.Forgo }

// forgo gives the prepared context back because the daemon needs its memory. The daemon gives that
// memory to others as soon as it hears Forgone: if the context is still being closed, it hears so
// when that has ended (discarded).
func (c *opener) forgo() {
	if p := c.prepared; p != nil && p.ending {
		return
	}
	c.prepared.giveUp(c.log)()
	c.mail.say(control.Forgone{})
}

// discarded says that the prepared context is closed.
func (c *opener) discarded() {
	c.prepared.ending = false
	c.mail.say(control.Forgone{})
}
