package simt

import (
	"math/bits"

	"muster/ptx/simt/vec"
)

// chunk is the number of lanes that a compressed register describes with one
// base value.
const chunk = 16

// maxWidth is the number of lanes of the widest gang.
const maxWidth = 256

// mask has a bit a lane.
type mask [maxWidth / 64]uint64

func (m *mask) empty() bool { return m[0]|m[1]|m[2]|m[3] == 0 }

func (m *mask) count() int {
	return bits.OnesCount64(m[0]) + bits.OnesCount64(m[1]) + bits.OnesCount64(m[2]) + bits.OnesCount64(m[3])
}

func (m *mask) has(lane int) bool { return m[lane>>6]>>(lane&63)&1 != 0 }
func (m *mask) set(lane int)      { m[lane>>6] |= 1 << (lane & 63) }

func (m *mask) and(o *mask) mask {
	return mask{m[0] & o[0], m[1] & o[1], m[2] & o[2], m[3] & o[3]}
}

func (m *mask) or(o *mask) mask {
	return mask{m[0] | o[0], m[1] | o[1], m[2] | o[2], m[3] | o[3]}
}

func (m *mask) without(o *mask) mask {
	return mask{m[0] &^ o[0], m[1] &^ o[1], m[2] &^ o[2], m[3] &^ o[3]}
}

// chunkBits returns the bits of a chunk's lanes.
func (m *mask) chunkBits(c int) uint64 { return m[c>>2] >> ((c & 3) * chunk) & (1<<chunk - 1) }

// first returns the lowest lane, or -1.
func (m *mask) first() int {
	for w, b := range m {
		if b != 0 {
			return w<<6 + bits.TrailingZeros64(b)
		}
	}
	return -1
}

// lanes returns the mask of lanes [from, to).
func lanes(from, to int) mask {
	var m mask
	for i := from; i < to; i++ {
		m.set(i)
	}
	return m
}

// Registers have two forms, and either or both may be valid. The expanded one
// is a value a lane. The compressed one is a base a chunk and one stride: lane
// l of the chunk is base + l*stride. Addresses, indices and loop counters
// mostly stay compressed, so that arithmetic on them costs a sixteenth, and a
// load knows without looking that it is a plain copy.
const (
	expanded   = 1 << iota
	compressed // stride and bases are valid
	uniform    // compressed, stride 0 and all bases equal
	irregular  // expanded, and known to have no compressed form
)

type form32 struct {
	bits   uint8
	stride uint32
}

type form64 struct {
	bits   uint8
	stride uint64
}

// gang is a set of lanes that run in lock-step, with their registers. The
// lanes are all or some threads of one block, or the threads of several small
// blocks.
type gang struct {
	team   *team
	width  int // lanes, a multiple of chunk
	chunks int

	v32 [][]uint32 // expanded, by slot
	c32 [][]uint32 // compressed: bases
	f32 []form32
	v64 [][]uint64
	c64 [][]uint64
	f64 []form64
	p   []mask
	cc  mask // the carry flag of add.cc and its like

	tmp32 [4][]uint32
	tmp64 [4][]uint64
	bits  mask // scratch of kernels that write bits

	live   mask // lanes that have a thread which has not exited
	groups []group
	cur    int // index of the group that runs

	// Of the running group:
	mask   mask
	full   bool // no live lane is missing
	lo, hi int  // the lanes of the mask lie in [lo, hi), multiples of chunk

	spin     int // how long the running group has kept others waiting
	sync     bool
	favour   int // blocks that a favoured group may still run
	stamp    uint64
	ticks    uint64 // of clock registers
	partial  bool   // the running group stands inside a basic block
	region   regionCache
	local    []uint32 // interleaved: word w of lane l at w*width+l
	blockOf  []int32  // lane -> block within the team
	lanesOf  []mask   // block within the team -> lanes
	threadOf []int32  // lane -> thread within its block, -1 for none
	warp     int      // lanes of a warp: a power of two up to 32
}

func (g *gang) setMask(m mask) {
	g.mask = m
	g.full = m.and(&g.live) == g.live
	g.lo, g.hi = 0, g.width
	if !g.full {
		g.narrow()
	}
}

// narrow fits the window to the mask.
func (g *gang) narrow() {
	lo, hi := 0, g.chunks
	for lo < hi && g.mask.chunkBits(lo) == 0 {
		lo++
	}
	for hi > lo && g.mask.chunkBits(hi-1) == 0 {
		hi--
	}
	g.lo, g.hi = lo*chunk, hi*chunk
}

// expand32 returns a register's value a lane.
func (g *gang) expand32(slot int32) []uint32 {
	v := g.v32[slot]
	if f := &g.f32[slot]; f.bits&expanded == 0 {
		vec.Expand32(v, g.c32[slot], f.stride)
		f.bits |= expanded
	}
	return v
}

func (g *gang) expand64(slot int32) []uint64 {
	v := g.v64[slot]
	if f := &g.f64[slot]; f.bits&expanded == 0 {
		vec.Expand64(v, g.c64[slot], f.stride)
		f.bits |= expanded
	}
	return v
}

// compress32 tries to give a register its compressed form.
func (g *gang) compress32(slot int32) bool {
	f := &g.f32[slot]
	if f.bits&(compressed|irregular) != 0 {
		return f.bits&compressed != 0
	}
	stride, ok := vec.Compress32(g.c32[slot], g.v32[slot])
	if !ok {
		f.bits |= irregular
		return false
	}
	f.stride = stride
	f.bits |= compressed
	if stride == 0 && allEqual(g.c32[slot]) {
		f.bits |= uniform
	}
	return true
}

func (g *gang) compress64(slot int32) bool {
	f := &g.f64[slot]
	if f.bits&(compressed|irregular) != 0 {
		return f.bits&compressed != 0
	}
	stride, ok := vec.Compress64(g.c64[slot], g.v64[slot])
	if !ok {
		f.bits |= irregular
		return false
	}
	f.stride = stride
	f.bits |= compressed
	if stride == 0 && allEqual(g.c64[slot]) {
		f.bits |= uniform
	}
	return true
}

func allEqual[T comparable](s []T) bool {
	for _, v := range s[1:] {
		if v != s[0] {
			return false
		}
	}
	return true
}

// whole says whether an instruction may write its destination without regard
// to lanes outside the mask: because there are none alive, or because nobody
// will look at them.
func (g *gang) whole(in *inst) bool { return in.private || g.full }

// out32 returns where an instruction writes its expanded result: the register
// itself, or a scratch register that commit32 merges.
func (g *gang) out32(in *inst) []uint32 {
	if g.whole(in) {
		g.f32[in.d] = form32{bits: expanded}
		return g.v32[in.d]
	}
	return g.tmp32[0]
}

func (g *gang) commit32(in *inst) {
	if !g.whole(in) {
		d := g.expand32(in.d)
		g.f32[in.d] = form32{bits: expanded}
		lo := g.lo &^ 63
		vec.Blend32(d[lo:g.hi], g.tmp32[0][lo:g.hi], g.mask[lo/64:])
	}
}

func (g *gang) out64(in *inst) []uint64 {
	if g.whole(in) {
		g.f64[in.d] = form64{bits: expanded}
		return g.v64[in.d]
	}
	return g.tmp64[0]
}

func (g *gang) commit64(in *inst) {
	if !g.whole(in) {
		d := g.expand64(in.d)
		g.f64[in.d] = form64{bits: expanded}
		lo := g.lo &^ 63
		vec.Blend64(d[lo:g.hi], g.tmp64[0][lo:g.hi], g.mask[lo/64:])
	}
}

// lane32 returns the value of one lane.
func (g *gang) lane32(slot int32, lane int) uint32 {
	if f := &g.f32[slot]; f.bits&expanded == 0 {
		return g.c32[slot][lane/chunk] + f.stride*uint32(lane%chunk)
	}
	return g.v32[slot][lane]
}

func (g *gang) lane64(slot int32, lane int) uint64 {
	if f := &g.f64[slot]; f.bits&expanded == 0 {
		return g.c64[slot][lane/chunk] + f.stride*uint64(lane%chunk)
	}
	return g.v64[slot][lane]
}

// partial32 prepares a register for writes of single active lanes.
func (g *gang) partial32(in *inst, slot int32) []uint32 {
	if !g.whole(in) {
		g.expand32(slot)
	}
	g.f32[slot] = form32{bits: expanded}
	return g.v32[slot]
}

func (g *gang) partial64(in *inst, slot int32) []uint64 {
	if !g.whole(in) {
		g.expand64(slot)
	}
	g.f64[slot] = form64{bits: expanded}
	return g.v64[slot]
}

// setUniform32 makes a register the same in all lanes.
func (g *gang) setUniform32(slot int32, v uint32) {
	c := g.c32[slot]
	for i := range c {
		c[i] = v
	}
	g.f32[slot] = form32{bits: compressed | uniform}
}

func (g *gang) setUniform64(slot int32, v uint64) {
	c := g.c64[slot]
	for i := range c {
		c[i] = v
	}
	g.f64[slot] = form64{bits: compressed | uniform}
}
