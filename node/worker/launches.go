package worker

import (
	"errors"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/answers"
	"muster/node/worker/kernellimit"
	"muster/node/worker/told"
	"muster/vmm"
	"muster/wire"
)

// launches launches kernels and graphs: guarded where they may use only some memory, after giving way to other
// clients, and reported where somebody asks how long they ran. The loop owns it.
type launches struct {
	*session
	devices  *devices
	answers  *answers.Answers
	waits    *waits
	moves    *moves
	recovery *recovery
	ops      *executor
	overseer *kernellimit.Overseer

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
	if o.Ticket == 0 && !l.tracing.isOn() {
		return l.submit(m, g, f, on, here)
	}
	return l.measured(m, g, f, on, here)
}

// explain tells the program's user to which device the current launch goes, and why.
func (l *launches) explain() {
	d, ok := l.core.Decided()
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
	if l.tracing.isOn() {
		untraced := give
		give = func() error { return l.tracing.Submit(g, on, l.ops.operations[o.Kind].recorded, o, untraced) }
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
	return l.pace.Before(g.place.Index(), on, l.core.Watched(), l.waits.hosts.outstanding() > 0)
}

// lateLaunch is a launch that a device has accepted but may not have passed to the driver yet
// (device.StreamCan.LaunchLater). A launch call keeps the driver's caller for longer than the loop needs to read
// a message, so the loop reads on meanwhile. The program cannot tell the difference: it learns of a
// refused launch at its next call that has an answer, and before the loop handles such a call it
// asks the device which launches were refused.
type lateLaunch struct {
	gpu     *gpu
	refused func() []device.Refusal
	number  uint64
	message message
}

// mostLate bounds the late launches: the loop keeps an entry for each.
const mostLate = 1024

// give launches a kernel, late if the device can and nothing forbids it.
//
// While a host function is outstanding the launch may block until that function returns, so block
// reads ahead. Otherwise a launch may be late, but not during a replay, not while a rebuilt client
// is unproven, and not if a timeline or a ticket needs the time of this very launch. The last
// argument of LaunchLater says whether another launch follows in the ring; a single launch is made
// at once, since handing it to the other thread takes longer.
func (l *launches) give(m *message, g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if l.waits.hosts.outstanding() > 0 {
		how := o.How
		return l.answers.Block(func() error { return on.Launch(f, how) })
	}
	can := on.Can()
	if can.LaunchLater == nil || l.recovery.replays() || l.recovery.unproven || l.tracing.isOn() || o.Ticket != 0 {
		return on.Launch(f, o.How)
	}
	number, late, err := can.LaunchLater(f, o.How, l.consumer.Follows(wire.OpLaunch))
	if late {
		l.late = append(l.late, lateLaunch{g, can.Refused, number, *m})
	}
	return err
}

// settle waits until the devices have made all launches that they accepted, and handles the
// refused ones. It goes context by context, since Refused answers for one context.
func (l *launches) settle() error {
	for len(l.late) > 0 {
		g := l.late[0].gpu
		var rest, of []lateLaunch
		if len(l.contexts.open) > 1 {
			for _, one := range l.late {
				if one.gpu == g {
					of = append(of, one)
				} else {
					rest = append(rest, one)
				}
			}
		} else {
			of = l.late
		}
		var refused []device.Refusal
		if l.contexts.has(g) { // otherwise the context is closed, and its launches ended with it
			refused = of[0].refused()
		}
		if len(refused) == 0 && rest == nil {
			l.late = l.late[:0]
			return nil
		}
		l.late = rest
		if err := l.refusedLate(of, refused); err != nil {
			return err
		}
	}
	return nil
}

// refusedLate reports the refused launches of a list to the core.
func (l *launches) refusedLate(list []lateLaunch, refused []device.Refusal) error {
	for _, r := range refused {
		var fault *device.Fault
		// A fault is not the refusal of one launch: it concerns the whole context.
		if errors.As(r.Err, &fault) || errors.Is(r.Err, device.ErrClosed) {
			return l.ops.found(l.answers.Told.Sticky.Current(), r.Err)
		}
		for i := range list {
			one := &list[i]
			if one.number != r.Number {
				continue
			}
			ops, err := l.core.RefusedLate(l.answers.Now(), one.message.Header, r.Err)
			if err := l.ops.perform(&one.message, ops, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// watching returns a guard that reports to the core what memory a kernel used.
func (l *launches) watching(g *clientcore.Guarded) *device.Guard {
	kernel := g.Kernel
	return &device.Guard{Ranges: arenas(g.Ranges), Touched: func(used []device.Arena) {
		s := clientcore.Seen{Kernel: kernel}
		for _, r := range used {
			s.Used = append(s.Used, vmm.Range{Addr: r.Base, Size: r.Size})
		}
		l.spread.saw(s)
	}}
}

func arenas(ranges []vmm.Range) []device.Arena {
	all := make([]device.Arena, len(ranges))
	for i, r := range ranges {
		all[i] = device.Arena{Base: r.Addr, Size: r.Size}
	}
	return all
}

// trapped is a thread of a kernel that was stopped before it accesses unexpected memory.
type trapped struct {
	addr uint64
	goes chan<- vmm.Range // what it may use; of size 0 if nothing
}

// guarded launches a kernel that may use only the memory it is expected to use, and waits for
// its end. If the kernel is about to use other memory, it stops, the loop brings that memory, and
// the kernel goes on. Nothing else runs on its device meanwhile: other kernels there would stop
// with it, and if bringing memory had to wait for a kernel on another device that waits for one of
// those, none would ever end.
func (l *launches) guarded(m *message, g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if err := l.waits.drain(g); err != nil {
		return err
	}
	traps := make(chan trapped)
	over := make(chan struct{})
	defer close(over)
	o.How.Guard = &device.Guard{Ranges: arenas(o.Guard.Ranges), Trap: func(addr uint64) (device.Arena, bool) {
		goes := make(chan vmm.Range, 1)
		select {
		case traps <- trapped{addr, goes}:
		case <-over:
			return device.Arena{}, false
		}
		r := <-goes
		return device.Arena{Base: r.Addr, Size: r.Size}, r.Size > 0
	}}
	if err := l.measured(m, g, f, on, g.modules.Here(o)); err != nil {
		return err
	}
	ended := make(chan struct{})
	l.answers.Go(func() {
		defer close(ended)
		_ = g.context.Synchronise(l.answers.Context) // the next wait reports a fault
	})
	for {
		select {
		case t := <-traps:
			r, err := l.bring(g, o.Guard.Kernel, t.addr)
			t.goes <- r
			if err != nil {
				return err
			}
		case <-ended:
			return nil
		}
	}
}

// bring brings the memory that a guarded kernel is about to use. It returns a range of size 0 if
// the client has nothing at the address.
func (l *launches) bring(g *gpu, k clientcore.Kernel, addr uint64) (vmm.Range, error) {
	plan, r, ok := l.core.Trapped(g.place, k, addr)
	if !ok {
		return vmm.Range{}, nil
	}
	for _, step := range plan {
		source := step.Device
		switch step.Op {
		case vmm.CopyOut:
		case vmm.CopyAcross:
			source = step.From
		default:
			continue
		}
		from, err := l.contexts.at(source)
		if err == nil {
			err = l.waits.drain(from)
		}
		if err != nil {
			return vmm.Range{}, err
		}
	}
	_, err := l.moves.move(plan, true)
	return r, err
}

// built is the device's version of a graph of the client.
type built struct {
	run   *clientcore.Run // what it was made of
	graph device.Graph    // nil: the device has refused it
}

// runGraph launches a graph as a whole. Where the device cannot, it submits the graph's nodes one
// after the other to the stream.
func (l *launches) runGraph(m *message, o *clientcore.Op) error {
	g, err := l.contexts.at(o.Place)
	if err != nil {
		return err
	}
	on, err := g.stream(o.Stream)
	if err != nil {
		return err
	}
	// A timeline records each kernel, so it needs single launches. So do shifts: parameters that
	// hold addresses of moved variables are replaced launch by launch.
	var graph device.Graph
	if !l.tracing.isOn() && !g.modules.Shifted() {
		graph = l.graph(g, o)
	}
	if graph == nil {
		return l.runNodes(m, o)
	}
	if g.overseen {
		if err := l.overseer.Oversee(g, on, o.Run.Kernels, "of a graph"); err != nil {
			return err
		}
	}
	if l.pace != nil {
		if err := l.makeWay(g, on); err != nil {
			return err
		}
	}
	if err := graph.Launch(on); err != nil {
		return err
	}
	if l.pace != nil {
		return l.pace.After(g, on)
	}
	return nil
}

// graph returns the device's version of a graph, made or updated if necessary; nil if the device
// cannot.
func (l *launches) graph(g *gpu, o *clientcore.Op) device.Graph {
	b := g.graphs[o.Graph]
	if b != nil && b.run == o.Run && (b.graph == nil || b.graph.Holds()) {
		return b.graph
	}
	var before device.Graph
	if b != nil && b.graph != nil && b.graph.Holds() {
		before = b.graph
	}
	made, err := l.makeGraph(g, o.Run, before)
	g.dropGraph(o.Graph)
	if err != nil {
		l.log.Debug("a graph is run kernel by kernel", "graph", o.Graph, "reason", err)
	}
	if g.graphs == nil {
		g.graphs = map[uint32]*built{}
	}
	g.graphs[o.Graph] = &built{o.Run, made}
	return made
}

func (l *launches) makeGraph(g *gpu, run *clientcore.Run, before device.Graph) (device.Graph, error) {
	d, err := l.devices.at(g.place.Index())
	if err != nil {
		return nil, err
	}
	newGraph := d.Can().NewGraph
	if newGraph == nil {
		return nil, nil
	}
	nodes := make([]device.GraphNode, len(run.Nodes))
	for i := range run.Nodes {
		o := &run.Nodes[i].Op
		n := device.GraphNode{
			After: run.Nodes[i].After, How: o.How, To: o.To.Addr, ToPitch: o.To.Pitch, From: o.From.Addr, FromPitch: o.From.Pitch,
			Width: o.To.Width, Height: o.To.Height, Value: o.Value, Element: o.Width,
		}
		if o.Kind == clientcore.Launch {
			if n.Function, err = g.modules.Function(o); err != nil {
				return nil, err
			}
		}
		nodes[i] = n
	}
	return newGraph(g.context, nodes, before)
}

// runNodes submits the nodes of a graph in the order of the list, which their dependencies allow.
func (l *launches) runNodes(m *message, o *clientcore.Op) error {
	for i := range o.Run.Nodes {
		node := o.Run.Nodes[i].Op
		node.Place, node.Stream = o.Place, o.Stream
		if err := l.ops.operations[node.Kind].do(m, &node); err != nil {
			return err
		}
	}
	return nil
}

// dropGraph closes the device's version of a graph.
func (g *gpu) dropGraph(id uint32) {
	if b := g.graphs[id]; b != nil {
		delete(g.graphs, id)
		if b.graph != nil {
			_ = b.graph.Close() // a fault will be reported to the next submission
		}
	}
}

// dropGraphs closes all graphs: they take device memory that other clients may need now.
func (g *gpu) dropGraphs() {
	for id := range g.graphs {
		g.dropGraph(id)
	}
}
