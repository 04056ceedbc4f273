package worker

import (
	"bytes"
	"encoding/binary"
	"slices"

	"muster/device"
	"muster/wire"
)

// Graphs and words of random programs, and what they do in two streams at once.

// drawn is a graph of the program: what its steps are, and what they do to the model.
type drawn struct {
	id      uint32
	do      []func()
	blocks  []*block
	modules []*counting
}

// uses says whether the graph uses a block or a module.
func (g *drawn) uses(b *block, m *counting) bool {
	return slices.Contains(g.blocks, b) || slices.Contains(g.modules, m)
}

// forget destroys the graphs that use a block or a module which is about to go. Some are destroyed
// while they run.
func (p *program) forget(b *block, m *counting) {
	p.graphs = slices.DeleteFunc(p.graphs, func(g *drawn) bool {
		if g.uses(b, m) {
			p.send(&wire.GraphDestroy{Graph: g.id})
		}
		return g.uses(b, m)
	})
}

// graph draws a graph, draws one anew, or launches one.
func (p *program) graph() {
	if len(p.graphs) == 0 || p.r.IntN(4) == 0 {
		p.draw()
	}
	g := p.graphs[p.r.IntN(len(p.graphs))]
	for range 1 + p.r.IntN(3) {
		p.send(&wire.GraphLaunch{Graph: g.id, Stream: p.stream()})
		for _, do := range g.do {
			do()
		}
	}
}

func (p *program) draw() {
	g := &drawn{id: p.number()}
	if len(p.graphs) > 3 {
		i := p.r.IntN(len(p.graphs))
		g.id = p.graphs[i].id
		p.graphs = slices.Delete(p.graphs, i, i+1)
	}
	var steps []byte
	on := uint32(wire.LaunchStream)
	add := func(m wire.Message, do func(), blocks ...*block) {
		steps = wire.AppendStep(steps, m)
		g.do, g.blocks = append(g.do, do), append(g.blocks, blocks...)
	}
	crosses := func(to uint32) {
		steps = wire.AppendStep(steps, &wire.EventRecord{Event: p.crossing(), Stream: on})
		steps = wire.AppendStep(steps, &wire.StreamWait{Event: p.crossing(), Stream: to})
		on = to
	}
	for range 1 + p.r.IntN(6) {
		if p.r.IntN(4) == 0 && on == wire.LaunchStream {
			crosses(p.aside())
		} else if p.r.IntN(2) == 0 && on != wire.LaunchStream {
			crosses(wire.LaunchStream)
		}
		switch p.r.IntN(4) {
		case 0:
			m, do, b, from := p.someCopy(on)
			if m != nil {
				add(m, do, b, from)
			}
		case 1:
			if m, do, in, out, of := p.someCount(on); m != nil {
				add(m, do, in, out)
				g.modules = append(g.modules, of)
			}
		default:
			m, do, b := p.someFill(on)
			add(m, do, b)
		}
	}
	if on != wire.LaunchStream {
		crosses(wire.LaunchStream)
	}
	for at := 0; at < len(steps) || at == 0; at += 300 { // in pieces that end anywhere
		end := min(at+300, len(steps))
		d := &wire.GraphDefine{Graph: g.id, Steps: steps[at:end]}
		if end < len(steps) {
			d.More = 1
		}
		p.send(d)
	}
	p.graphs = append(p.graphs, g)
}

// aside is a stream that only graphs use.
func (p *program) aside() uint32 {
	p.crossing()
	return p.side
}

// crossing is the event between the streams of graphs.
func (p *program) crossing() uint32 {
	if p.side == 0 {
		p.side, p.cross = p.number(), p.number()
		p.send(&wire.StreamCreate{Stream: p.side, Flags: nonBlocking})
		p.send(&wire.EventCreate{Event: p.cross})
	}
	return p.cross
}

// someFill is a fill of any width, of rows or not, and what it does.
func (p *program) someFill(stream uint32) (*wire.Fill, func(), *block) {
	width := 1 << p.r.IntN(3)
	b, at, n := p.some(width)
	var element [4]byte
	value := p.r.Uint32()
	binary.LittleEndian.PutUint32(element[:], value)
	height, pitch := 1, n
	if p.r.IntN(3) == 0 {
		pitch = width * (1 + p.r.IntN(min(n/width, 2000)))
		height = min(n/pitch, 20)
		n = width * (1 + p.r.IntN(pitch/width))
	}
	row := bytes.Repeat(element[:width], n/width)
	m := &wire.Fill{Dst: b.addr + uint64(at), Pitch: uint64(pitch), Value: value, Width: uint32(width), Count: uint64(n / width), Height: uint64(height), Stream: stream}
	return m, func() {
		for i := range height {
			b.put(at+i*pitch, row)
		}
	}, b
}

// someCopy is a copy within memory, and what it does; nil if none was found.
func (p *program) someCopy(stream uint32) (m *wire.CopyWithin, do func(), b, from *block) {
	b, at, n := p.some(1)
	from, src, most := p.some(1)
	n = min(n, most)
	if from == b && at < src+n && src < at+n {
		return nil, nil, nil, nil
	}
	m = &wire.CopyWithin{Dst: b.addr + uint64(at), Src: from.addr + uint64(src), Size: uint64(n), Stream: stream}
	return m, func() { b.copyFrom(at, from, src, n) }, b, from
}

// someCount is a launch of add_count, and what it does; nil if none was found.
func (p *program) someCount(stream uint32) (l *wire.Launch, do func(), in, out *block, m *counting) {
	if len(p.modules) == 0 {
		return nil, nil, nil, nil, nil
	}
	m = p.modules[p.r.IntN(len(p.modules))]
	in, from, n := p.some(4)
	out, to, most := p.some(4)
	n = min(n/4, most/4, 128)
	if in == out && from != to && from < to+4*n && to < from+4*n {
		return nil, nil, nil, nil, nil
	}
	l = &wire.Launch{Function: m.addCount, Stream: stream, GridX: 1, GridY: 1, GridZ: 1, BlockX: 128, BlockY: 1, BlockZ: 1, Params: params(in.addr+uint64(from), out.addr+uint64(to), n)}
	return l, func() {
		le := binary.LittleEndian
		for i := range n {
			x := le.Uint32(in.data[from+4*i:]) + 3 + m.count
			out.copyFrom(to+4*i, in, from+4*i, 4)
			known := !slices.Contains(in.known[from+4*i:][:4], false)
			le.PutUint32(out.data[to+4*i:], x)
			for k := range 4 {
				out.known[to+4*i+k] = known
			}
		}
		m.count++
	}, in, out, m
}

// words has a stream write a word, and the present one wait for it: for one that was written before,
// or that another stream writes only later.
func (p *program) words() {
	width := 4 << p.r.IntN(2)
	b, at, _ := p.some(8)
	if b.addr%8 != 0 {
		return
	}
	value := p.r.Uint64() | 1 // memory that was never written may be zeros
	word := binary.LittleEndian.AppendUint64(nil, value)[:width]
	addr := b.addr + uint64(at)
	s := p.stream()
	p.mu.Lock()
	p.cookie++
	await := &wire.StreamAwait{Stream: s, Addr: addr, Value: value, Width: uint32(width), Compare: uint32(device.Equal), Cookie: p.cookie}
	p.mu.Unlock()
	write := &wire.StreamWrite{Stream: s, Addr: addr, Value: value, Width: uint32(width)}
	b.put(at, word)
	if p.r.IntN(2) == 0 {
		p.send(write)
		if p.r.IntN(2) == 0 {
			p.send(await)
		}
		return
	}
	write.Stream = p.aside()
	p.joins(s, write.Stream) // the other stream writes when all before has ended
	p.send(await)
	p.send(write)
}

// beside changes a block in another stream while the present one goes on with the other blocks, some
// of which lie in the same chunks.
func (p *program) beside() {
	all := slices.Clone(p.blocks)
	i := p.r.IntN(len(all))
	p.joins(p.current, p.aside())
	p.blocks = all[i : i+1]
	for range 1 + p.r.IntN(3) {
		m, do, b := p.someFill(p.side)
		p.send(m)
		do()
		if at, half := p.r.IntN(2), min(len(b.data)/2, 3000); at == 0 {
			p.send(&wire.CopyWithin{Dst: b.addr + uint64(half), Src: b.addr, Size: uint64(half), Stream: p.side})
			b.copyFrom(half, b, 0, half)
		}
	}
	p.blocks = slices.Delete(slices.Clone(all), i, i+1)
	for range 1 + p.r.IntN(5) {
		[]func(){p.fill, p.copyIn, p.copyOut, p.copyWithin, p.addCount, p.hostFunction}[p.r.IntN(6)]()
	}
	p.joins(p.side, p.current)
	p.blocks = all
}

// joins makes a stream wait for another.
func (p *program) joins(from, to uint32) {
	e := p.number()
	p.send(&wire.EventCreate{Event: e})
	p.send(&wire.EventRecord{Event: e, Stream: from})
	p.send(&wire.StreamWait{Stream: to, Event: e})
	p.send(&wire.EventDestroy{Event: e})
}
