package vgpu_test

import (
	"encoding/binary"
	"time"

	"muster/node/clientcore"
	"muster/wire"
)

// program is what a user runs: it allocates, computes in rounds, reads back and
// compares, and thinks in between. After an error it begins anew.
type program struct {
	fleet  *fleet
	w      *worker
	rounds int
	left   int // rounds
	module byte
	kernel uint64 // numbers of kernels

	chunk [chunks]bool   // that it has allocated, each by itself
	value [chunks]uint64 // what they contain
	then  func(clientcore.Result)
}

func newProgram(f *fleet) *program {
	p := &program{fleet: f, rounds: 2 + f.r.IntN(4)}
	if f.r.IntN(4) == 0 {
		p.module = 1 // it has a variable, and perhaps cannot go everywhere
	}
	return p
}

func (p *program) has(i int) bool { return p.chunk[i] }

// post sends a message that is not answered.
func (p *program) post(m wire.Message) { p.send(m, wire.Header{Slot: -1}, nil) }

func (p *program) send(m wire.Message, h wire.Header, data []byte) {
	h.Op = m.Op()
	p.w.send(clientcore.Message{Header: h, Body: m.Append(nil), Data: data, Owned: true})
}

// call sends a message and goes on with then when it is answered well.
func (p *program) call(m wire.Message, then func()) {
	p.then = func(r clientcore.Result) {
		if r != 0 {
			p.failed(r)
			return
		}
		then()
	}
	p.send(m, wire.Header{Slot: 1, Length: 64}, nil)
}

func (p *program) answered(r clientcore.Result) {
	then := p.then
	if then == nil {
		p.fleet.fatalf("client %d is answered, and has not asked", p.w.id)
	}
	p.then = nil
	then(r)
}

// failed begins anew, after an error of a device, or when none was left.
func (p *program) failed(r clientcore.Result) {
	f := p.fleet
	f.restarts++
	if !f.cfg.faults {
		f.fatalf("client %d is told %d, and nothing has failed", p.w.id, r)
	}
	f.after(f.between(0, 50*time.Millisecond), func() {
		if p.w.dead {
			return
		}
		p.then = func(r clientcore.Result) {
			if r != 0 {
				p.fleet.fatalf("client %d cannot be reset: %d", p.w.id, r)
			}
			p.begin()
		}
		p.send(&wire.Reset{}, wire.Header{Slot: 1}, nil)
	})
}

func (p *program) start(w *worker) {
	p.w = w
	p.begin()
}

func (p *program) begin() {
	p.chunk, p.left = [chunks]bool{}, p.rounds
	p.send(&wire.ModuleData{Module: 1}, wire.Header{Slot: -1, Length: 2}, []byte{1, p.module})
	p.call(&wire.ModuleLoad{Module: 1}, func() {
		p.call(&wire.ModuleFunction{Module: 1, Function: 1, Name: "k"}, func() { p.allocate(1+p.fleet.r.IntN(8), p.round) })
	})
}

// allocate allocates so many chunks, and writes them.
func (p *program) allocate(n int, then func()) {
	i := p.free()
	if n == 0 || i < 0 {
		then()
		return
	}
	p.call(&wire.MemAlloc{Addr: addrOf(i), Size: chunkSize}, func() {
		p.chunk[i] = true
		p.fill(i)
		p.allocate(n-1, then)
	})
}

// free finds a chunk that is not allocated; -1 for none.
func (p *program) free() int {
	const most = 14 // so that every client fits on every device
	n, free := 0, -1
	for i, has := range p.chunk {
		if has {
			n++
		} else if free < 0 {
			free = i
		}
	}
	if n >= most {
		return -1
	}
	return free
}

func (p *program) fill(i int) {
	v := p.fleet.r.Uint32()
	p.value[i] = uint64(v)
	p.post(&wire.Fill{Dst: addrOf(i), Pitch: chunkSize, Value: v, Width: 4, Count: chunkSize / 4, Height: 1})
}

// round computes, and goes on with comparing.
func (p *program) round() {
	r := p.fleet.r
	if p.left--; p.left < 0 {
		p.finish()
		return
	}
	for range 1 + r.IntN(4) {
		p.launch(p.fleet.between(100*time.Microsecond, 20*time.Millisecond))
		if i := r.IntN(chunks); p.chunk[i] && r.IntN(2) == 0 {
			p.fill(i)
		}
	}
	p.call(&wire.Synchronise{}, p.compare)
}

func (p *program) launch(work time.Duration) {
	p.kernel = uint64(p.fleet.r.Uint32())
	params := make([]byte, 24)
	binary.LittleEndian.PutUint64(params, arenaBase)
	binary.LittleEndian.PutUint64(params[8:], p.kernel)
	binary.LittleEndian.PutUint64(params[16:], uint64(work))
	for i, has := range p.chunk {
		if has {
			p.value[i] = mix(p.value[i], p.kernel)
		}
	}
	p.post(&wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: params})
}

// compare reads a chunk back.
func (p *program) compare() {
	i := p.fleet.r.IntN(chunks)
	for !p.chunk[i] {
		i = (i + 1) % chunks
	}
	p.then = func(r clientcore.Result) {
		switch {
		case r != 0:
			p.failed(r)
		case p.w.read != p.value[i]:
			p.fleet.fatalf("client %d reads %#x in chunk %d, where %#x was written", p.w.id, p.w.read, i, p.value[i])
		default:
			p.think()
		}
	}
	p.send(&wire.CopyOut{Src: addrOf(i)}, wire.Header{Slot: 1, Length: chunkSize}, nil)
}

// think does something else for a while, and then perhaps with other memory.
func (p *program) think() {
	f := p.fleet
	if f.r.IntN(4) == 0 {
		p.post(&wire.SyncPoint{})
	}
	long := 2 * time.Millisecond
	if f.r.IntN(2) == 0 {
		long = 60 * time.Millisecond
	}
	f.after(f.between(0, long), func() {
		if p.w.dead {
			return
		}
		switch f.r.IntN(4) {
		case 0:
			p.allocate(1+f.r.IntN(3), p.round)
		case 1:
			p.freeOne()
			p.round()
		default:
			p.round()
		}
	})
}

func (p *program) freeOne() {
	n := 0
	for _, has := range p.chunk {
		if has {
			n++
		}
	}
	for i, has := range p.chunk {
		if has && n > 1 {
			p.chunk[i] = false
			p.post(&wire.MemFree{Addr: addrOf(i)})
			return
		}
	}
}

func (p *program) finish() {
	p.fleet.finished++
	p.fleet.end(p.w)
}

func addrOf(i int) uint64 { return arenaBase + uint64(i)*chunkSize }

func wordAt(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

// mix is what a kernel makes of a word.
func mix(v, kernel uint64) uint64 { return (v ^ kernel) * 0x9e3779b97f4a7c15 }
