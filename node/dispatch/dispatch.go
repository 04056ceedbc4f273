// Package dispatch tells the dispatcher of package vgpu what happens on the node, and has what it decides
// recorded, written down and performed, in this order. It knows neither clients nor workers: the node
// performs.
package dispatch

import (
	"time"

	"muster/node/loop"
	"muster/node/vgpu"
)

// Node performs what the dispatcher decides.
type Node interface {
	// Decided counts and writes down what an event has led to, before any worker hears of it: so a daemon
	// that is killed in between leaves no worker with a lease that the files do not know.
	Decided(now time.Duration, e vgpu.Event, effects []vgpu.Effect)
	// Perform must not step the dispatcher: events that effects lead to go to Afterwards.
	Perform([]vgpu.Effect)
	// Performed is called when all of an event's effects have been performed. It may step the dispatcher.
	Performed()
}

// Dispatcher is the node's. Only the loop uses it. Of the embedded vgpu.Core use only methods that ask:
// Step replaces Core's.
type Dispatcher struct {
	*vgpu.Core
	loop       *loop.Loop
	node       Node
	record     func(vgpu.Entry)
	Last       vgpu.ClientID // the number of the last client
	waiting    []vgpu.Event  // that effects led to
	performing bool
}

// New makes the node's dispatcher.
func New(core *vgpu.Core, loop *loop.Loop, node Node) *Dispatcher {
	return &Dispatcher{Core: core, loop: loop, node: node, record: func(vgpu.Entry) {}}
}

// Record has everything recorded from now on.
func (d *Dispatcher) Record(put func(vgpu.Entry)) { d.record = put }

// Step tells the dispatcher what happened, and performs what it decides.
func (d *Dispatcher) Step(e vgpu.Event) {
	now := d.loop.Now()
	effects := d.Core.Step(now, e)
	d.record(vgpu.Entry{Now: now, Event: e, Effects: effects})
	d.node.Decided(now, e, effects)
	nested := d.performing
	d.performing = true
	d.node.Perform(effects)
	d.performing = nested
	d.node.Performed()
	d.Afterwards()
}

// Afterwards tells the dispatcher of events, once effects that are being performed have been.
func (d *Dispatcher) Afterwards(events ...vgpu.Event) {
	d.waiting = append(d.waiting, events...)
	for len(d.waiting) > 0 && !d.performing {
		e := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.Step(e)
	}
}

// Tell tells the dispatcher what a person asks for, unless it refuses.
func (d *Dispatcher) Tell(e vgpu.Event) error {
	err := d.Refuses(e)
	if err == nil {
		d.Step(e)
	}
	return err
}

// State is the state of a device.
func (d *Dispatcher) State(id vgpu.DeviceID) vgpu.DeviceState { return d.View().Devices[id].State }

// NewNumber is a number for one more client.
func (d *Dispatcher) NewNumber() vgpu.ClientID {
	d.Last++
	return d.Last
}
