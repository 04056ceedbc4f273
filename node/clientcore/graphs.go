package clientcore

import (
	"fmt"
	"maps"
	"slices"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// Graphs. The program's library sends once what the launch of a graph does (wire.GraphDefine): the
// messages that it would send for it, called steps, in an order that their dependencies allow. A
// launch is then a single message, and is done in one of two ways.
//
//   - Step by step, each as if it were a message of its own. That is always correct, and
//     the only way on devices that do not run graphs.
//   - As a whole (Run), if the device runs graphs by itself, everything the client has is
//     on it, and single kernels are of no interest. Streams and events between the steps
//     become dependencies.
//
// A launch that must wait in the middle, for example for memory, remembers how many of its steps
// are done (Head.Step). Everything else is in the message and in the definition.

// graphs is the definitions of graphs, and launches them.
type graphs struct {
	*standing
	Graphs   map[uint32]*Graph
	queue    *queue
	streams  *streams
	hosts    *hosts
	memory   *memory
	shared   *shared
	modules  *modules
	textures *textures
	mapped   *mapped
	activity *activity
	arrival  *arrival
	copies   *copies
	launches *launches

	graphBytes int // size of all definitions
}

func (gs *graphs) register(h *handlers) {
	h[wire.OpGraphDefine] = decoding(gs.graphDefine)
	h[wire.OpGraphLaunch] = decoding(gs.graphLaunch)
	h[wire.OpGraphDestroy] = decoding(gs.graphDestroy)
}

func (gs *graphs) save(to *State) { to.Graphs = gs.Graphs }
func (gs *graphs) load(from *State) {
	gs.Graphs, gs.graphBytes = from.Graphs, 0
	for _, g := range gs.Graphs {
		if g != nil { // else it is damaged, which check reports
			gs.graphBytes += len(g.Steps)
		}
	}
}

// Graph is the definition of a graph.
type Graph struct {
	Steps []byte
	More  bool `json:",omitempty"` // the rest has not arrived yet

	Launches int  `json:",omitempty"` // done step by step, also under earlier definitions
	Whole    bool `json:",omitempty"` // contexts may have it as a whole

	steps  []wire.Message // decoded Steps, once complete
	run    *Run           // nil if it was not made, or cannot be
	single bool           // it cannot be made
}

// Run is a graph as a device runs it. A graph that is defined again gets another Run.
type Run struct {
	Nodes   []Node
	Kernels int

	functions []uint32
	ranges    []vmm.Range // that copies and fills use
}

// Node is one operation of a graph: Launch, Copy or Fill. Its Stream is ignored.
type Node struct {
	Op    Op
	After []int // earlier nodes in the list that must end before this one begins
}

const (
	// mostAtOnce is how many operations are emitted before the executor is asked to go on, to bound
	// the list.
	mostAtOnce = 256
	// mostNodes bounds the nodes of all graphs of a client that devices run by themselves, and
	// mostLinks the dependencies of one graph.
	mostNodes, mostLinks = 1 << 16, 1 << 18
	// runsAfter is after how many launches a graph is run as a whole: building it does not pay for
	// a graph that is launched once.
	runsAfter = 1
)

func (gs *graphs) graphDefine(_ *Message, d *wire.GraphDefine) (bool, error) {
	g := gs.Graphs[d.Graph]
	if g == nil || !g.More {
		if g == nil && len(gs.Graphs) >= maxObjects {
			return true, tooMany("graphs")
		}
		g = gs.redefined(d.Graph, g)
	}
	if len(d.Steps) > wire.MaxSteps-gs.graphBytes {
		gs.dropGraph(d.Graph)
		gs.dropRun(d.Graph, g)
		return true, fmt.Errorf("graphs of more than %d bytes: destroy those not used: %w", wire.MaxSteps, device.ErrOutOfMemory)
	}
	if gs.Graphs == nil {
		gs.Graphs = map[uint32]*Graph{}
	}
	g.Steps = append(g.Steps, d.Steps...)
	gs.graphBytes += len(d.Steps)
	g.More = d.More != 0
	gs.Graphs[d.Graph] = g
	if err := g.decode(); err != nil {
		return true, fmt.Errorf("%w: %w", err, ErrProtocol)
	}
	return true, nil
}

// redefined returns an empty definition that replaces an earlier one. Devices may update what they
// have built of that one.
func (gs *graphs) redefined(id uint32, before *Graph) *Graph {
	if before == nil {
		return &Graph{}
	}
	delete(gs.Graphs, id)
	gs.graphBytes -= len(before.Steps)
	return &Graph{Launches: before.Launches, Whole: before.Whole}
}

// decode decodes the steps of a complete definition.
func (g *Graph) decode() (err error) {
	if !g.More {
		g.steps, err = wire.DecodeSteps(g.Steps)
	}
	return err
}

func (gs *graphs) graphDestroy(_ *Message, d *wire.GraphDestroy) (bool, error) {
	gs.dropGraph(d.Graph) // there may be none, after a fault or a reset
	return true, nil
}

// dropGraph forgets a definition, and what devices have built of it.
func (gs *graphs) dropGraph(id uint32) {
	g := gs.Graphs[id]
	if g == nil {
		return
	}
	delete(gs.Graphs, id)
	gs.graphBytes -= len(g.Steps)
	gs.dropRun(id, g)
}

func (gs *graphs) dropRun(id uint32, g *Graph) {
	for _, x := range gs.Contexts {
		if g.Whole {
			gs.emit(Op{Kind: DropGraph, Place: x.Place, Graph: id})
		}
	}
	g.run, g.Whole = nil, false
}

// dropRuns forgets what was built of all graphs, because their kernels may be gone.
func (gs *graphs) dropRuns() {
	for _, id := range slices.Sorted(maps.Keys(gs.Graphs)) {
		g := gs.Graphs[id]
		gs.dropRun(id, g)
		g.single = false
	}
}

// graphLaunch launches a graph in a stream.
func (gs *graphs) graphLaunch(m *Message, d *wire.GraphLaunch) (bool, error) {
	g := gs.Graphs[d.Graph]
	if g == nil || g.More {
		return true, fmt.Errorf("graph %d: %w", d.Graph, errHandle)
	}
	st, err := gs.streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	step := 0
	if gs.queue.Head != nil {
		step = gs.queue.Head.Step
	}
	if step == 0 && gs.runsWhole(g) {
		gs.runGraph(d, st, g)
		return true, nil
	}
	for performed := len(gs.ops); step < len(g.steps); step++ {
		// An operation that asks must not follow operations that may fail. While everything is on
		// the device no step asks, so steps can be collected; otherwise those before are performed
		// first. And a guarded kernel needs the directory as of its own launch.
		if n := len(gs.ops) - performed; n >= mostAtOnce || n > 0 && (gs.mapped != nil || !gs.arrival.isReady()) {
			gs.ask(Op{Kind: GoOn})
			return gs.queue.waitsAt(step), nil
		}
		done, err := gs.doStep(m, g.steps[step], d.Stream)
		if err != nil {
			return true, err
		}
		if !done {
			return gs.queue.waitsAt(step), nil
		}
		gs.mapped.chooseAnew() // the choice was for this step
	}
	g.Launches++
	return true, nil
}

// doStep does one step of a graph.
func (gs *graphs) doStep(m *Message, s wire.Message, stream uint32) (bool, error) {
	in := func(named uint32) uint32 {
		if named == wire.LaunchStream {
			return stream
		}
		return named
	}
	switch d := s.(type) {
	case *wire.Launch:
		l := *d
		l.Stream = in(d.Stream)
		return gs.launches.launch(m, &l)
	case *wire.CopyWithin:
		l := *d
		l.Stream = in(d.Stream)
		return gs.copies.copyWithinMessage(m, &l)
	case *wire.CopyWithin2D:
		l := *d
		l.Stream = in(d.Stream)
		return gs.copies.copyWithin2D(m, &l)
	case *wire.Fill:
		l := *d
		l.Stream = in(d.Stream)
		return gs.copies.fill(m, &l)
	case *wire.EventRecord:
		return gs.streams.eventRecord(m, &wire.EventRecord{Event: d.Event, Stream: in(d.Stream)})
	case *wire.StreamWait:
		return gs.streams.streamWait(m, &wire.StreamWait{Stream: in(d.Stream), Event: d.Event})
	}
	return true, fmt.Errorf("%v in a graph: %w", s.Op(), ErrProtocol)
}

// runsWhole says whether a launch is given to the device as a whole.
func (gs *graphs) runsWhole(g *Graph) bool {
	if g.Launches < runsAfter || g.single || gs.mapped != nil || len(gs.Contexts) != 1 || len(gs.textures.Textures) > 0 || gs.hosts.Outstanding() > 0 ||
		!gs.arrival.isReady() || !gs.config.Devices[gs.Lease.Device].Graphs {
		return false
	}
	if g.run == nil {
		if g.run = gs.makeRun(g); g.run == nil {
			g.single = true
			return false
		}
	}
	for _, r := range g.run.ranges {
		if gs.memory.space.Check(r) != nil {
			return false
		}
	}
	for _, n := range g.run.functions {
		if f := gs.modules.Functions[n]; gs.modules.usable(&f) != nil {
			return false
		}
	}
	return true
}

// runGraph launches a graph as a whole.
func (gs *graphs) runGraph(d *wire.GraphLaunch, st *Stream, g *Graph) {
	gs.begun()
	at := gs.place()
	for range g.run.Kernels {
		gs.activity.launched(true)
	}
	gs.streams.give(d.Stream, st, at)
	if g.run.Kernels > 0 {
		gs.memory.space.Launched(at, nil)
	} else {
		for _, r := range g.run.ranges {
			gs.memory.written(at, r)
		}
	}
	o := gs.next(RunGraph)
	o.Place, o.Stream, o.Graph, o.Run = at, d.Stream, d.Graph, g.run
	g.Whole = true
}

// makeRun builds a Run from the steps of a graph. It returns nil if that is not possible; the
// steps, done one by one, then report any error.
func (gs *graphs) makeRun(g *Graph) *Run {
	nodes := 0
	for _, other := range gs.Graphs {
		if other.run != nil {
			nodes += len(other.run.Nodes)
		}
	}
	if len(g.steps) > mostNodes-nodes {
		return nil
	}
	b := runBuilder{graphs: gs, run: &Run{}, ends: map[uint32][]int{}, events: map[uint32][]int{}, seen: map[uint32]bool{}}
	for _, s := range g.steps {
		if !b.add(s) {
			return nil
		}
	}
	if len(b.run.Nodes) == 0 {
		return nil
	}
	return b.run
}

// runBuilder builds a Run. The next node of a stream depends on the last node of that stream.
type runBuilder struct {
	*graphs
	run    *Run
	ends   map[uint32][]int // nodes that the next node of a stream depends on
	events map[uint32][]int // nodes that an event stands for
	seen   map[uint32]bool  // functions in run.functions
	links  int
}

// add adds a step. It returns false if no device could do it within a graph.
func (b *runBuilder) add(s wire.Message) bool {
	switch d := s.(type) {
	case *wire.Launch:
		f, ok := b.modules.Functions[d.Function]
		if !ok || len(d.Params) != f.Info.ParamSize {
			return false
		}
		if !b.seen[d.Function] {
			b.seen[d.Function] = true
			b.run.functions = append(b.run.functions, d.Function)
		}
		b.run.Kernels++
		return b.node(d.Stream, Op{Kind: Launch, Module: f.Module, Function: d.Function, Name: f.Info.Name, How: howOf(d)})
	case *wire.CopyWithin:
		return b.copies(d.Stream, line(d.Dst, d.Size), line(d.Src, d.Size))
	case *wire.CopyWithin2D:
		return b.copies(d.Stream, Area{d.Dst, d.DstPitch, d.Width, d.Height}, Area{d.Src, d.SrcPitch, d.Width, d.Height})
	case *wire.Fill:
		to, err := filled(d)
		if err != nil {
			return false
		}
		if to.Width == 0 || to.Height == 0 {
			return true
		}
		return b.uses(to) && b.node(d.Stream, Op{Kind: Fill, To: to, Value: d.Value, Width: int(d.Width)})
	case *wire.EventRecord:
		b.events[d.Event] = slices.Clone(b.ends[d.Stream])
		return b.linked(len(b.ends[d.Stream]))
	case *wire.StreamWait:
		ended, ok := b.events[d.Event]
		if !ok { // it may have been recorded outside the graph
			return false
		}
		for _, n := range ended {
			if !slices.Contains(b.ends[d.Stream], n) {
				b.ends[d.Stream] = append(b.ends[d.Stream], n)
			}
		}
		return b.linked(len(ended))
	}
	return false
}

func (b *runBuilder) copies(stream uint32, to, from Area) bool {
	if to.Width == 0 || to.Height == 0 {
		return true
	}
	return b.uses(to) && b.uses(from) && b.node(stream, Op{Kind: Copy, To: to, From: from})
}

// uses notes that a copy or a fill uses memory, which must be the client's own.
func (b *runBuilder) uses(a Area) bool {
	r, err := a.Span()
	if err != nil || b.memory.space.Check(r) != nil || b.shared.sharesRange(r) {
		return false
	}
	b.run.ranges = append(b.run.ranges, r)
	return true
}

// node adds a node that depends on what its stream was given so far.
func (b *runBuilder) node(stream uint32, o Op) bool {
	after := b.ends[stream]
	b.ends[stream] = []int{len(b.run.Nodes)}
	b.run.Nodes = append(b.run.Nodes, Node{Op: o, After: after})
	return b.linked(len(after))
}

// linked counts dependencies, of which a hostile definition could have very many.
func (b *runBuilder) linked(n int) bool {
	b.links += n
	return b.links <= mostLinks
}

// check decodes and checks the definitions of a restored client.
func (gs *graphs) check() error {
	for id, g := range gs.Graphs {
		if g == nil {
			return fmt.Errorf("graph %d is nothing", id)
		}
		if err := g.decode(); err != nil {
			return fmt.Errorf("graph %d: %w", id, err)
		}
	}
	if n := gs.graphBytes; n > wire.MaxSteps {
		return fmt.Errorf("%d bytes of graphs, where %d is the most", n, wire.MaxSteps)
	}
	return nil
}

// Blobs is how many bytes of a base are images, contents of variables and graphs, as far as the
// core knows.
func (gs *graphs) Blobs() int { return gs.modules.Kept + gs.modules.Contents + gs.graphBytes }
