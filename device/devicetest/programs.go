package devicetest

import (
	"math/rand/v2"
	"slices"

	"muster/device"
)

var programTests = []test{
	{"random, undisturbed", always, func(b *bench) { testPrograms(b, false) }},
	{"random, with memory moved and streams held", always, func(b *bench) { testPrograms(b, true) }},
}

const (
	programs      = 8
	programSteps  = 80
	programBlocks = 4 // of reverse
	bufferWords   = 512
	buffers       = 4
)

// program does a random sequence of work on a few buffers, on several streams
// that wait for each other through events. It does the same on plain slices, to
// compare.
type program struct {
	*opened
	r       *rand.Rand
	streams []device.Stream
	model   [buffers][]uint32
	last    [buffers]device.Event // the last work on each buffer
	seen    []sight
}

// sight is a copy to the host, and the bytes that it should have brought.
type sight struct {
	step      int
	got, want []byte
}

func testPrograms(b *bench, disturbed bool) {
	for seed := range uint64(programs) {
		o := b.open()
		p := &program{opened: o, r: rand.New(rand.NewPCG(seed, 0))}
		for range 3 {
			p.streams = append(p.streams, o.newStream())
		}
		for i := range p.model {
			p.model[i] = make([]uint32, bufferWords)
			b.ok(o.stream.Fill(o.mapped(2*uint64(i), o.g), 0, 4, bufferWords))
			p.last[i] = o.newEvent()
		}
		o.finish()
		for step := range programSteps {
			p.step(step)
			if disturbed && p.r.IntN(5) == 0 {
				p.disturb()
			}
		}
		b.ok(o.Synchronise(b.ctx))
		for i, want := range p.model {
			p.seen = append(p.seen, sight{programSteps, o.get(p.buffer(i), 4*bufferWords), bytesOf(want)})
		}
		for _, s := range p.seen {
			if !slices.Equal(s.got, s.want) {
				b.Fatalf("seed %d: step %d brought wrong bytes", seed, s.step)
			}
		}
		b.ok(o.Close())
	}
}

func (p *program) buffer(i int) uint64 { return arenaBase + 2*uint64(i)*p.g }

// on submits work on some buffers to a random stream, after the last work on
// those buffers.
func (p *program) on(work func(s device.Stream), of ...int) {
	p.Helper()
	s := p.streams[p.r.IntN(len(p.streams))]
	for _, i := range of {
		p.ok(s.Wait(p.last[i]))
	}
	work(s)
	e := p.newEvent()
	p.ok(s.Record(e))
	for _, i := range of {
		p.last[i] = e
	}
}

func (p *program) step(n int) {
	p.Helper()
	i := p.r.IntN(buffers)
	at, m := p.buffer(i), p.model[i]
	switch p.r.IntN(6) {
	case 0:
		v := p.r.Uint32()
		p.on(func(s device.Stream) { p.ok(s.Fill(at, v, 4, bufferWords)) }, i)
		for k := range m {
			m[k] = v
		}
	case 1:
		for k := range m {
			m[k] = p.r.Uint32()
		}
		data := bytesOf(m)
		p.on(func(s device.Stream) { p.ok(s.CopyIn(at, data)) }, i)
	case 2:
		to := (i + 1 + p.r.IntN(buffers-1)) % buffers
		p.on(func(s device.Stream) { p.ok(s.Copy(p.buffer(to), at, 4*bufferWords)) }, i, to)
		copy(p.model[to], m)
	case 3:
		add := p.r.Uint32()
		p.on(func(s device.Stream) { p.launch(s, "step", bufferWords/64, 64, at, add, uint32(bufferWords)) }, i)
		for k := range m {
			m[k] = m[k]*3 + add
		}
	case 4:
		const threads = bufferWords / programBlocks
		f := p.function("reverse")
		l := device.Launch{Grid: line(programBlocks), Block: line(threads), Shared: 4 * threads, Params: p.pack(f, at)}
		p.on(func(s device.Stream) { p.ok(s.Launch(f, l)) }, i)
		for part := range slices.Chunk(m, threads) {
			slices.Reverse(part)
		}
	case 5:
		got := make([]byte, 4*bufferWords)
		p.on(func(s device.Stream) { p.ok(s.CopyOut(got, at)) }, i)
		p.seen = append(p.seen, sight{n, got, bytesOf(m)})
	}
}

// disturb does what a runtime does without the program's knowledge.
func (p *program) disturb() {
	p.Helper()
	switch {
	case p.r.IntN(3) == 0:
		i := p.r.IntN(len(p.streams))
		p.ok(p.streams[i].Close())
		p.streams[i] = p.newStream()
	default:
		p.ok(p.Synchronise(p.ctx))
		p.swap(p.r.IntN(buffers))
	}
}

// swap copies a buffer out, unmaps and maps its memory, and copies it in again.
func (p *program) swap(i int) {
	p.Helper()
	s := p.newStream() // the others may be held
	saved := make([]byte, p.g)
	p.ok(s.CopyOut(saved, p.buffer(i)))
	p.ok(s.Synchronise(p.ctx))
	p.ok(p.Unmap(p.buffer(i), p.g))
	p.ok(p.Map(p.buffer(i), p.g))
	p.ok(s.CopyIn(p.buffer(i), saved))
	p.ok(s.Synchronise(p.ctx))
	p.ok(s.Close())
}
