package devicetest

import "muster/device"

var graphTests = []test{
	{"a graph does what its nodes do", always, testGraph},
	{"a graph becomes another", always, testChangedGraph},
	{"nodes of a graph change", always, testChangedNodes},
	{"wrong graphs", always, testWrongGraphs},
}

// grapher returns what the device can, or skips the test if that is not graphs.
func (b *bench) grapher() *device.DeviceCan {
	can := b.dev.Can()
	if can.NewGraph == nil {
		b.Skip("the backend runs no graphs")
	}
	return can
}

// step is a node with a kernel.
func (o *opened) step(addr uint64, k uint32, after ...int) device.GraphNode {
	f := o.function("step")
	return device.GraphNode{After: after, Function: f, How: device.Launch{Grid: line(1), Block: line(1), Params: o.pack(f, addr, k, uint32(1))}}
}

// A graph of parallel and dependent kernels, a fill and a copy of rows is launched several times. The
// launches run in the order of the stream, and to their end although the graph is closed.
func testGraph(b *bench) {
	g, o := b.grapher(), b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, make([]uint32, 64)...)
	made, err := g.NewGraph(o.Context, []device.GraphNode{
		{To: addr, ToPitch: 16, Width: 16, Height: 1, Value: 2, Element: 4},
		o.step(addr, 1, 0),
		o.step(addr+4, 5, 0),
		{After: []int{1, 2}, To: addr + 64, ToPitch: 32, From: addr, FromPitch: 4, Width: 4, Height: 2},
		o.step(addr+64, 1, 3),
	}, nil)
	b.ok(err)
	other := o.newStream()
	for range 3 {
		o.launch(o.stream, "step", 1, 1, addr+128, uint32(1), uint32(1))
		b.ok(made.Launch(o.stream))
		o.launch(o.stream, "step", 1, 1, addr+64, uint32(0), uint32(1))
	}
	o.finish()
	b.ok(made.Launch(other))
	if !made.Holds() {
		b.Error("nothing has changed, and it does not hold")
	}
	b.ok(made.Close())
	b.refused(made.Launch(other), device.ErrClosed)
	b.ok(other.Synchronise(b.ctx))
	same(b, "words", o.getWords(addr, 4), []uint32{7, 11, 2, 2})
	same(b, "first row", o.getWords(addr+64, 1), []uint32{22})
	same(b, "second row", o.getWords(addr+96, 1), []uint32{11})
	same(b, "kernels around it", o.getWords(addr+128, 1), []uint32{13})
}

// A graph that replaces another does what its own nodes say, whether the two are alike or not.
// Earlier launches of the other are not affected.
func testChangedGraph(b *bench) {
	g, o := b.grapher(), b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, 1, 1)
	var before device.Graph
	for _, nodes := range [][]device.GraphNode{
		{o.step(addr, 1), o.step(addr, 2, 0)},
		{o.step(addr, 3), o.step(addr, 4, 0)},
		{o.step(addr+4, 5), o.step(addr, 6)},
		{{To: addr + 4, ToPitch: 4, From: addr, FromPitch: 4, Width: 4, Height: 1}},
	} {
		made, err := g.NewGraph(o.Context, nodes, before)
		b.ok(err)
		if before != nil {
			b.ok(before.Close())
		}
		b.ok(made.Launch(o.stream))
		before = made
	}
	o.finish()
	b.ok(before.Close())
	same(b, "words", o.getWords(addr, 2), []uint32{((1*3+1)*3+2)*27 + 3*9 + 4*3 + 6, ((1*3+1)*3+2)*27 + 3*9 + 4*3 + 6})
}

// Single nodes change from one graph to the next: parameters, the value of a fill, the destination of
// a copy. Launches made before a change are not affected.
func testChangedNodes(b *bench) {
	g, o := b.grapher(), b.open()
	addr := o.mapped(0, o.g)
	o.putWords(addr, make([]uint32, 16)...)
	var before device.Graph
	var want []uint32
	value := uint32(0)
	for i := range uint64(4) {
		made, err := g.NewGraph(o.Context, []device.GraphNode{
			{To: addr + 4, ToPitch: 4, Width: 4, Height: 1, Value: uint32(i) + 7, Element: 4},
			o.step(addr, uint32(i/2), 0),
			{After: []int{0, 1}, To: addr + 8 + 8*i, ToPitch: 8, From: addr, FromPitch: 8, Width: 8, Height: 1},
		}, before)
		b.ok(err)
		if before != nil {
			b.ok(before.Close())
		}
		b.ok(made.Launch(o.stream))
		before = made
		value = value*3 + uint32(i/2)
		want = append(want, value, uint32(i)+7)
	}
	o.finish()
	b.ok(before.Close())
	same(b, "what each launch has copied", o.getWords(addr+8, 8), want)
}

// NewGraph refuses nodes that cannot be in a graph, and Holds is false once a graph's memory is
// unmapped.
func testWrongGraphs(b *bench) {
	g, o := b.grapher(), b.open()
	addr := o.mapped(0, 2*o.g)
	_, err := g.NewGraph(o.Context, []device.GraphNode{o.step(addr, 1, 0)}, nil)
	b.refused(err, device.ErrInvalidValue)
	_, err = g.NewGraph(o.Context, []device.GraphNode{o.step(addr, 1), o.step(addr, 1, 2), o.step(addr, 1)}, nil)
	b.refused(err, device.ErrInvalidValue)
	short := o.step(addr, 1)
	short.How.Params = short.How.Params[:4]
	_, err = g.NewGraph(o.Context, []device.GraphNode{short}, nil)
	b.refused(err, device.ErrInvalidValue)
	made, err := g.NewGraph(o.Context, []device.GraphNode{{To: addr, ToPitch: 4, Width: 4, Height: 1, Value: 2, Element: 1}}, nil)
	b.ok(err)
	b.ok(made.Launch(o.stream))
	o.finish()
	b.ok(o.Unmap(addr+o.g, o.g))
	if made.Holds() {
		b.Error("memory went, and it holds")
	}
	b.ok(made.Close())
}
