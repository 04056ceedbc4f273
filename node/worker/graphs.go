package worker

import (
	"muster/device"
	"muster/node/clientcore"
)

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
	if l.timeline == nil && !g.modules.Shifted() {
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
	d, err := l.device(g.place.Index())
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
		if err := l.do(m, &node); err != nil {
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
