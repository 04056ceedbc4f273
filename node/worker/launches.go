package worker

import (
	"log/slog"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/answers"
	"muster/node/worker/kernellimit"
	"muster/node/worker/pace"
	"muster/node/worker/told"
	"muster/node/worker/trace"
	"muster/vmm"
	"muster/wire"
)

// launches launches kernels and graphs: guarded where they may use only some memory, after giving way to other
// clients, and reported where somebody asks how long they ran. The loop owns it.
type launches struct {
	contexts    *contexts
	answers     *answers.Answers
	consumer    *wire.Consumer
	pace        *pace.Pacer // nil: this client never makes way for others
	overseer    *kernellimit.Overseer
	timeline    *trace.Recorder // nil: no timeline was asked for
	core        func() *clientcore.Core
	outstanding func() int  // how many host functions of the program have not returned
	prompt      func() bool // whether launches are to be made at once
	drain       func(g *gpu) error
	move        func(plan vmm.Plan, now bool) ([]clientcore.Leg, error)
	device      func(i int) (device.Device, error)
	do          func(m *message, o *clientcore.Op) error
	perform     func(m *message, ops []clientcore.Op, err error) error
	found       func(world uint64, err error) error // tells the core of a fault
	log         *slog.Logger

	late     []lateLaunch
	spread   spread
	explains int // launches for which the program's user is still to be told the reason for the choice of device
}

// launch launches a kernel.
func (l *launches) launch(m *message, o *clientcore.Op) error {
	if l.explains > 0 {
		l.explain()
	}
	g, err := l.contexts.at(o.Place)
	if err != nil {
		return err
	}
	f, err := g.modules.Function(o)
	if err != nil {
		return err
	}
	on, err := g.stream(o.Stream)
	if err != nil {
		return err
	}
	if o.Guard != nil {
		if o.Guard.Traps {
			return l.guarded(m, g, f, on, o)
		}
		o.How.Guard = l.watching(o.Guard)
	}
	here := g.modules.Here(o)
	if o.Ticket == 0 && l.timeline == nil {
		return l.submit(m, g, f, on, here)
	}
	return l.measured(m, g, f, on, here)
}

// explain tells the program's user to which device the current launch goes, and why.
func (l *launches) explain() {
	d, ok := l.core().Decided()
	if !ok {
		return
	}
	l.explains--
	for _, line := range told.Explained(&d) {
		l.answers.Shared.Notify(line)
	}
}

// measured launches a kernel, and has its time reported to the core or recorded in the timeline.
func (l *launches) measured(m *message, g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	give := func() error { return l.submit(m, g, f, on, o) }
	if l.timeline != nil {
		untraced := give
		give = func() error { return l.timeline.Submit(g, on, operations[o.Kind].recorded, o, untraced) }
	}
	if o.Ticket != 0 {
		return l.timed(g, on, o, give)
	}
	return give()
}

// submit launches a kernel, after giving way to other clients if it must.
func (l *launches) submit(m *message, g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if g.overseen {
		if err := l.overseer.Oversee(g, on, 1, f.Info().Name); err != nil {
			return err
		}
	}
	if l.pace == nil {
		return l.give(m, g, f, on, o)
	}
	if err := l.makeWay(g, on); err != nil {
		return err
	}
	if err := l.give(m, g, f, on, o); err != nil {
		return err
	}
	return l.pace.After(g, on)
}

// makeWay makes the client give way to others before a launch, if it has to.
func (l *launches) makeWay(g *gpu, on device.Stream) error {
	return l.pace.Before(g.place.Index(), on, l.core().Activity.Watching, l.outstanding() > 0)
}
