package worker

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/internal/seeds"
	"muster/wire"
)

// graphingDevice is a software GPU that runs graphs as NVIDIA's driver does: it is given all
// of one, and then launches of it.
type graphingDevice struct {
	*checkedPlacer
	counts *graphCounts
}

type graphCounts struct {
	made, launched, closed atomic.Int32
	stale                  atomic.Bool // what was made does not hold, once
	refuses                atomic.Bool
}

func (d *graphingDevice) Can() *device.DeviceCan {
	can := *d.checkedPlacer.Can()
	can.NewGraph = d.newGraph
	return &can
}

func (d *graphingDevice) newGraph(_ device.Context, nodes []device.GraphNode, _ device.Graph) (device.Graph, error) {
	if d.counts.refuses.Load() {
		return nil, errors.New("no such graph")
	}
	d.counts.made.Add(1)
	return &inlineGraph{nodes, d.counts}, nil
}

// inlineGraph does what its nodes do, one behind the other.
type inlineGraph struct {
	nodes  []device.GraphNode
	counts *graphCounts
}

func (g *inlineGraph) Holds() bool { return !g.counts.stale.CompareAndSwap(true, false) }
func (g *inlineGraph) Close() error {
	g.counts.closed.Add(1)
	return nil
}

func (g *inlineGraph) Launch(on device.Stream) error {
	g.counts.launched.Add(1)
	for i := range g.nodes {
		if err := submitNode(on, &g.nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func submitNode(on device.Stream, n *device.GraphNode) error {
	if n.Function != nil {
		return on.Launch(n.Function, n.How)
	}
	for row := range n.Height {
		var err error
		if to := n.To + row*n.ToPitch; n.Element != 0 {
			err = on.Fill(to, n.Value, n.Element, n.Width/uint64(n.Element))
		} else {
			err = on.Copy(to, n.From+row*n.FromPitch, n.Width)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// graphProgram launches a graph again and again: sums in two streams that wait for each other,
// fills, and copies of rows. Its parameters change now and then.
type graphProgram struct {
	*vectors
	d     uint64
	whole bool // by one message each
}

const (
	theGraph          = 5
	sideStream        = 2
	forkEvent, joined = 3, 4
)

func newGraphProgram(t *testing.T, o options, n int, whole bool) *graphProgram {
	p := &graphProgram{vectors: newVectors(newClient(t, o), n), whole: whole}
	p.d = p.alloc(uint64(4 * n))
	p.in(p.d, floats(n, func(i int) float32 { return 3 }))
	p.in(p.a, floats(n, func(i int) float32 { return float32(i % 17) }))
	p.in(p.b, floats(n, func(i int) float32 { return 1 }))
	p.in(p.c, floats(n, func(i int) float32 { return 2 }))
	p.post(&wire.StreamCreate{Stream: sideStream, Flags: nonBlocking})
	p.post(&wire.EventCreate{Event: forkEvent})
	p.post(&wire.EventCreate{Event: joined})
	return p
}

// steps are what the graph does, in a stream.
func (p *graphProgram) steps(round int, stream uint32) []wire.Message {
	sum := func(x, y, z uint64, on uint32) *wire.Launch {
		return &wire.Launch{Function: p.function, Stream: on, GridX: uint32(p.n+255) / 256, GridY: 1, GridZ: 1, BlockX: 256, BlockY: 1, BlockZ: 1, Params: params(x, y, z, p.n)}
	}
	return []wire.Message{
		sum(p.a, p.b, p.c, stream),
		&wire.EventRecord{Event: forkEvent, Stream: stream},
		&wire.StreamWait{Stream: sideStream, Event: forkEvent},
		sum(p.b, p.c, p.b, sideStream),
		&wire.CopyWithin2D{Dst: p.a, DstPitch: 64, Src: p.c + 16, SrcPitch: 32, Width: 16, Height: 4, Stream: stream},
		&wire.Fill{Dst: p.a + 256, Pitch: 64, Value: 0x3f80_0000 + uint32(round)<<16, Width: 4, Count: 8, Height: 3, Stream: stream},
		&wire.EventRecord{Event: joined, Stream: sideStream},
		&wire.StreamWait{Stream: stream, Event: joined},
		&wire.CopyWithin{Dst: p.c, Src: p.b, Size: 64, Stream: stream},
		sum(p.a, p.b, p.a, stream),
		sum(p.b, p.d, p.d, stream),
	}
}

func (p *graphProgram) define(round int) {
	p.t.Helper()
	var steps []byte
	for _, m := range p.steps(round, wire.LaunchStream) {
		steps = wire.AppendStep(steps, m)
	}
	for at := 0; at < len(steps); at += 300 { // in pieces that end anywhere
		end := min(at+300, len(steps))
		d := &wire.GraphDefine{Graph: theGraph, Steps: steps[at:end]}
		if end < len(steps) {
			d.More = 1
		}
		p.post(d)
	}
}

// run launches the graph and returns all memory.
func (p *graphProgram) run(rounds int) []byte {
	p.t.Helper()
	for round := range rounds {
		if round%4 == 0 && p.whole {
			p.define(round / 4)
		}
		if p.whole {
			p.post(&wire.GraphLaunch{Graph: theGraph})
			continue
		}
		for _, m := range p.steps(round/4, 0) {
			p.post(m)
		}
	}
	p.must(&wire.Synchronise{}, nil)
	size := uint64(4 * p.n)
	return bytes.Join([][]byte{p.out(p.a, size), p.out(p.b, size), p.out(p.c, size), p.out(p.d, size)}, nil)
}

// A graph that is launched by one message does what its messages do: on devices that know no
// graphs and on those that do, where memory does not fit, while the client is saved and
// restored, and while its workers are killed.
func TestGraphsDoWhatTheirStepsDo(t *testing.T) {
	const n, rounds = 600_000, 6
	want := newGraphProgram(t, options{}, n, false).run(rounds)
	small := []soft.Profile{{Name: "small", Memory: 14 * mib, Speed: 1, Workers: 1}}
	seed, _ := seeds.First(t)
	for _, x := range []struct {
		name string
		o    options
		runs bool // as a whole, at least once
	}{
		{"steps", options{}, false},
		{"small", options{devices: small, lenient: true}, false},
		{"graphs", options{graphs: &graphCounts{}}, true},
		{"saved", options{graphs: &graphCounts{}, saves: rand.New(rand.NewPCG(seed, 1))}, true},
		{"killed", options{dies: rand.New(rand.NewPCG(seed, 2)), lives: 30}, false},
		{"killed with graphs", options{graphs: &graphCounts{}, dies: rand.New(rand.NewPCG(seed, 3)), lives: 20}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Logf("seed %d", seed)
			if got := newGraphProgram(t, x.o, n, true).run(rounds); !bytes.Equal(got, want) {
				t.Error("the memory is not what single messages make of it")
			}
			if g := x.o.graphs; x.runs && (g.launched.Load() == 0 || g.made.Load() == 0) {
				t.Errorf("%d graphs were made and %d launched", g.made.Load(), g.launched.Load())
			}
		})
	}
}

// What a device has made of a graph is used until it does not hold, and closed when the graph is
// destroyed, although it may still run.
func TestGraphsOfDevicesEnd(t *testing.T) {
	counts := &graphCounts{}
	p := newGraphProgram(t, options{graphs: counts}, 1000, true)
	p.define(0)
	check := func(made, launched, closed int32) {
		t.Helper()
		p.must(&wire.Synchronise{}, nil)
		if got := fmt.Sprint(counts.made.Load(), counts.launched.Load(), counts.closed.Load()); got != fmt.Sprint(made, launched, closed) {
			t.Errorf("made, launched and closed %s, want %d %d %d", got, made, launched, closed)
		}
	}
	launch := func(times int) {
		for range times {
			p.post(&wire.GraphLaunch{Graph: theGraph})
		}
	}
	launch(1)
	check(0, 0, 0)
	launch(3)
	check(1, 3, 0)
	counts.stale.Store(true)
	launch(2)
	check(2, 5, 1)
	p.define(1)
	check(2, 5, 1)
	launch(2) // it takes the place of the one before
	check(3, 7, 2)
	p.revoke("idle")
	launch(3) // the first brings the memory back
	check(4, 10, 3)
	launch(1)
	p.post(&wire.GraphDestroy{Graph: theGraph})
	check(4, 11, 4)
	counts.refuses.Store(true) // then it is done node by node
	p.define(2)
	launch(3)
	check(4, 11, 4)
	p.post(&wire.GraphDefine{Graph: 6}) // with nothing in it
	p.post(&wire.GraphLaunch{Graph: 6})
	check(4, 11, 4)
}

// A client cannot have its worker keep any amount of graphs.
func TestGraphsAreBounded(t *testing.T) {
	c := newClient(t, options{})
	step := wire.AppendStep(nil, &wire.Launch{Function: 1, Params: make([]byte, 60<<10)})
	for i := range uint32(wire.MaxSteps / len(step)) {
		c.post(&wire.GraphDefine{Graph: i, Steps: step})
	}
	c.must(&wire.Synchronise{}, nil)
	c.post(&wire.GraphDefine{Graph: 1 << 20, Steps: step})
	if r := c.call(&wire.Synchronise{}, nil); r != outOfMemory {
		t.Errorf("one graph too many: %d", r)
	}
	c.post(&wire.GraphDestroy{Graph: 0})
	c.post(&wire.GraphDefine{Graph: 1 << 20, Steps: step})
	c.must(&wire.Synchronise{}, nil)
	c.post(&wire.GraphLaunch{Graph: 1 << 20}) // of a kernel that there is not
	if r := c.call(&wire.Synchronise{}, nil); r != invalidHandle {
		t.Errorf("a graph with a kernel of nobody's: %d", r)
	}
}
