package simt

import (
	"math/bits"

	"muster/ptx/simt/native"
	"muster/ptx/simt/texture"
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

// chunks returns a bit for each chunk that has lanes.
func (m *mask) chunks() uint64 {
	const low = 0x7fff7fff7fff7fff // all bits of four chunks but the highest of each
	var b uint64
	for i, w := range m {
		// Adding 0x7fff carries into a chunk's highest bit if any lower bit is
		// set, and never beyond it. With the highest bit itself that says
		// whether the chunk has lanes; the shift moves it to the lowest bit.
		w = (w&low + low | w) &^ low >> 15
		// Bits 0, 16, 32 and 48 become bits 0 to 3.
		b |= (w | w>>15 | w>>30 | w>>45) & 15 << (4 * i)
	}
	return b
}

// inChunks returns the lowest and the highest place within a chunk that has a lane in any
// of the chunks. The mask must have a lane.
func (m *mask) inChunks() (first, last uint64) {
	b := m[0] | m[1] | m[2] | m[3]
	b |= b >> 32
	b |= b >> 16
	return uint64(bits.TrailingZeros16(uint16(b))), uint64(bits.Len16(uint16(b)) - 1)
}

// first returns the lowest lane, or -1.
func (m *mask) first() int {
	for w, b := range m {
		if b != 0 {
			return w<<6 + bits.TrailingZeros64(b)
		}
	}
	return -1
}

// end returns the lane behind the highest one.
func (m *mask) end() int {
	for w := len(m) - 1; w >= 0; w-- {
		if m[w] != 0 {
			return w<<6 + bits.Len64(m[w])
		}
	}
	return 0
}

// A register has several forms, of which one or more are valid at a time; all
// valid ones describe the same lanes. The expanded form is one value for each
// lane. The compressed form is one base for each chunk and one stride: lane l of
// a chunk is base + l*stride. The linear form is a base and a stride for the
// whole gang; the periodic form is a base and a stride that hold in each chunk.
// A uniform register is both, with stride 0. Addresses, indices and loop counters
// mostly stay in one of these forms: arithmetic on them then costs a few
// operations for the whole gang, and a load knows without looking at the lanes
// that it is a plain copy.
//
// A function that writes one form must make the others invalid (set...); one that
// derives a form from another adds its bit (expand, chunks, regular).
const (
	expanded = 1 << iota
	compressed
	linear
	periodic
	irregular = 1 << 5 // expanded, and found to have no regular form: regular need not look again; saved states have this number

	scalar  = linear | periodic
	regular = compressed | scalar
)

// form says which forms of a register are valid.
type form[T regval] struct {
	bits   uint8
	stride T // of all forms but the expanded one
	base   T // of the linear and the periodic form
}

// uniform says whether all lanes have the same value, base.
func (f *form[T]) uniform() bool { return f.bits&scalar != 0 && f.stride == 0 }

// file is all registers of a width.
type file[T regval] struct {
	values  [][]T // expanded, by slot
	bases   [][]T // compressed
	form    []form[T]
	scratch [3][]T
	one     [5][]T // scratch of one lane

	// Those of package vec for this width. Called directly, as generic functions of generic methods,
	// they make products of matrices in the interpreter 6 % slower.
	widen    func(d, base []T, stride T)
	compress func(base, a []T) (T, bool)
	blend    func(d, s []T, mask []uint64)
}

func newFile[T regval](slots, width int) file[T] {
	r := file[T]{
		widen: vec.Expand[T], compress: vec.Compress[T], blend: vec.Blend[T],
		values: slab[T](slots, width, maxWidth), bases: slab[T](slots, width/chunk, maxWidth/chunk), form: make([]form[T], slots),
	}
	for i := range r.form {
		r.form[i].bits = scalar
	}
	for i := range r.scratch {
		r.scratch[i] = make([]T, width)
	}
	for i := range r.one {
		r.one[i] = make([]T, 1)
	}
	return r
}

// expand returns a register's value a lane.
func (r *file[T]) expand(slot int32) []T {
	v := r.values[slot]
	if f := &r.form[slot]; f.bits&expanded == 0 {
		r.widen(v, r.chunks(slot), f.stride)
		f.bits |= expanded
	}
	return v
}

// chunks returns a register's bases. The register must be linear, periodic or
// compressed.
func (r *file[T]) chunks(slot int32) []T {
	c := r.bases[slot]
	if f := &r.form[slot]; f.bits&compressed == 0 {
		base, step := f.base, chunk*f.stride
		if f.bits&periodic != 0 {
			step = 0
		}
		for i := range c {
			c[i] = base
			base += step
		}
		f.bits |= compressed
	}
	return c
}

// regular says whether a register is regular. For one that is only expanded it
// looks at the lanes, and remembers what it finds.
func (r *file[T]) regular(slot int32) bool {
	f := &r.form[slot]
	if f.bits&(regular|irregular) != 0 {
		return f.bits&regular != 0
	}
	c := r.bases[slot]
	stride, ok := r.compress(c, r.expand(slot))
	if !ok {
		f.bits |= irregular
		return false
	}
	f.stride, f.base = stride, c[0]
	f.bits |= regular
	for i, base := range c {
		if base != c[0]+T(i)*chunk*stride {
			f.bits &^= linear
		}
		if base != c[0] {
			f.bits &^= periodic
		}
	}
	return true
}

// lane returns the value of one lane.
func (r *file[T]) lane(slot int32, lane int) T {
	switch f := &r.form[slot]; {
	case f.bits&linear != 0:
		return f.base + f.stride*T(lane)
	case f.bits&periodic != 0:
		return f.base + f.stride*T(lane%chunk)
	case f.bits&compressed != 0:
		return r.bases[slot][lane/chunk] + f.stride*T(lane%chunk)
	}
	return r.values[slot][lane]
}

func (r *file[T]) setUniform(slot int32, v T) { r.form[slot] = form[T]{bits: scalar, base: v} }

// setScalar makes a register linear, periodic or both, as bits say.
func (r *file[T]) setScalar(slot int32, bits uint8, base, stride T) {
	bits &= scalar
	if stride == 0 {
		bits = scalar
	}
	r.form[slot] = form[T]{bits: bits, base: base, stride: stride}
}

func (r *file[T]) setCompressed(slot int32, stride T) {
	r.form[slot] = form[T]{bits: compressed, stride: stride}
}

func (r *file[T]) setExpanded(slot int32) { r.form[slot] = form[T]{bits: expanded} }

// out returns where an instruction writes its expanded result: to the register
// itself if it may write all lanes, else to scratch lanes, of which commit merges
// the active ones. The caller must expand its sources before it calls out, since
// a source may be the destination.
func (r *file[T]) out(g *gang, in *inst) []T {
	if g.whole(in) {
		r.setExpanded(in.D)
		return r.values[in.D]
	}
	return r.scratch[0]
}

// commit merges the active lanes of the result into the register, unless out
// returned the register itself.
func (r *file[T]) commit(g *gang, in *inst) {
	if !g.whole(in) {
		d := r.expand(in.D)
		r.setExpanded(in.D)
		lo := g.lo &^ 63
		r.blend(d[lo:g.hi], r.scratch[0][lo:g.hi], g.mask[lo/64:])
	}
}

// partial prepares a register for writes of single active lanes: unless the other
// lanes are dead, their values are expanded first. The expanded form is then the
// only valid one.
func (r *file[T]) partial(g *gang, in *inst, slot int32) []T {
	if !g.whole(in) {
		r.expand(slot)
	}
	r.setExpanded(slot)
	return r.values[slot]
}

// copy sets the destination to what register from holds, in the same form if the
// whole register may be written.
func (r *file[T]) copy(g *gang, in *inst, from int32) {
	if f := r.form[from]; f.bits&regular != 0 && g.whole(in) {
		if f.bits&scalar != 0 {
			f.bits &= scalar
		} else {
			copy(r.bases[in.D], r.bases[from])
			f.bits = compressed
		}
		r.form[in.D] = f
		return
	}
	a := r.expand(from)
	d := r.out(g, in)
	copy(d[g.lo:g.hi], a[g.lo:g.hi])
	r.commit(g, in)
}

// gang is a set of lanes that run in lock-step, with their registers. The
// lanes are all or some threads of one block, or the threads of several small
// blocks.
//
// Its many methods are of four kinds: what single instructions do (beside the functions that
// functionOf names), how lanes reach memory (access.go, memory_unsafe.go), which group runs when
// (control.go, barrier.go), and the way into compiled code and back (compiled.go).
type gang struct {
	team *team
	places
	registers
	schedule
	running
	scratch
	compiled

	local     []uint32 // local memory, interleaved: word w of lane l at w*width+l
	localInit []uint8  // for a checker: which bytes of a word of local were written
}

// places says which thread each lane runs. It does not change while the gang exists.
type places struct {
	width    int // lanes, a multiple of chunk
	chunks   int
	warp     int     // lanes of a warp: a power of two up to 32
	blockOf  []int32 // lane -> block within the team
	lanesOf  []mask  // block within the team -> lanes
	threadOf []int32 // lane -> thread within its block; a lane without a thread has a number beyond the last
}

// registers are those of all lanes.
type registers struct {
	r32 file[uint32]
	r64 file[uint64]
	p   []mask
	cc  mask // the carry flag of add.cc and similar instructions; after sub.cc a bit says that nothing was borrowed
}

// schedule says where the lanes stand, and which group runs when.
type schedule struct {
	live    mask // lanes that have a thread which has not exited
	arrived mask // lanes that have arrived at the barrier of their cluster, which others have not reached yet
	groups  []group
	cur     int    // index of the group that runs
	spin    int    // cost of the loops of the running group since it last gave way; see loops
	rounds  int    // how often a group has given way to another since the gang yielded
	sync    bool   // an instruction of this round of a loop has synchronised with memory
	favour  int    // basic blocks that the favoured group, which is the running one, may still run
	stamp   uint64 // counts the times that a group gave way
	ticks   uint64 // of clock registers
	partial bool   // the running group was stopped inside a basic block
}

// running is what follows from the lanes of the running group; setMask computes it.
type running struct {
	mask   mask
	full   bool // the group has all live lanes
	first  int  // lane of the mask
	end    int  // behind its last lane
	count  int  // of its lanes
	lo, hi int  // first and end, rounded to multiples of chunk
}

// scratch is what instructions use while they run.
type scratch struct {
	bits     mask            // of kernels that write bits
	worked   uint64          // what the running long instruction has done; see did
	region   view            // the stretch of global memory that was used last
	reach    access          // of the memory instruction at hand
	texels   []texture.Texel // of the texture instruction at hand
	matrices matrices        // of the matrix instruction at hand
}

// compiled is what the gang has of compiled code.
type compiled struct {
	machine *machine      // owns the code for gangs like this one; nil if the gang is only interpreted
	frame   *native.Frame // of the code
}

func (g *gang) setMask(m mask) {
	g.mask = m
	g.full = m == g.live || m.and(&g.live) == g.live
	g.first, g.end = m.first(), m.end()
	g.count = m.count()
	g.lo, g.hi = g.first&^(chunk-1), (g.end+chunk-1)&^(chunk-1)
}

// solid says whether no lane between the first and the last is missing.
func (g *gang) solid() bool { return g.count == g.end-g.first }

// whole says whether an instruction may write all lanes of its destination,
// whatever the mask: either all live lanes are in the mask, or the destination is
// private to the basic block, so that no other lane's value in it is read again.
func (g *gang) whole(in *inst) bool { return in.Private || g.full }
