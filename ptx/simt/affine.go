package simt

import (
	"math/bits"

	"muster/ptx/simt/program"
)

// This file computes with linear, periodic and compressed registers: each
// function finds base and stride of the result from those of the sources. It
// returns false if the result has no such form; the instruction then runs on all
// lanes. The caller has checked that all sources are regular and that the
// destination may be written as a whole.
//
// Registers are numbers modulo 2^32 or 2^64. Sums and products of regular
// registers are regular in that arithmetic, so overflow does not matter.
// Instructions that look at a value as a number (shifts right, comparisons,
// conversions to 64 bits) are different: there base + lane*stride must not wrap
// around between the first and the last lane, or the result has two pieces.

// last is the number of a chunk's last lane.
const last = chunk - 1

func regularAdd[T regval](r *file[T], in *inst) bool {
	a, b := &r.form[in.A], &r.form[in.B]
	stride := a.stride + b.stride
	if common := a.bits & b.bits & scalar; common != 0 {
		r.setScalar(in.D, common, a.base+b.base, stride)
		return true
	}
	x, y := r.chunks(in.A), r.chunks(in.B)
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = x[i] + y[i]
	}
	r.setCompressed(in.D, stride)
	return true
}

func regularSub[T regval](r *file[T], in *inst) bool {
	a, b := &r.form[in.A], &r.form[in.B]
	stride := a.stride - b.stride
	if common := a.bits & b.bits & scalar; common != 0 {
		r.setScalar(in.D, common, a.base-b.base, stride)
		return true
	}
	x, y := r.chunks(in.A), r.chunks(in.B)
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = x[i] - y[i]
	}
	r.setCompressed(in.D, stride)
	return true
}

// regularMinus computes less - a: the negative of a if less is 0, its complement
// if less is -1.
func regularMinus[T regval](r *file[T], in *inst, less T) bool {
	a := &r.form[in.A]
	if a.bits&scalar != 0 {
		r.setScalar(in.D, a.bits, less-a.base, -a.stride)
		return true
	}
	stride := -a.stride
	x := r.chunks(in.A)
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = less - x[i]
	}
	r.setCompressed(in.D, stride)
	return true
}

// regularMul multiplies if one factor is uniform, or if both have stride 0 along
// each chunk. A product of two strides would grow with the square of the lane.
func regularMul[T regval](r *file[T], in *inst) bool {
	a, b := r.form[in.A], r.form[in.B]
	x, y := in.A, in.B
	if !b.uniform() {
		a, b, x, y = b, a, y, x
	}
	if !b.uniform() {
		if a.stride|b.stride != 0 {
			return false
		}
		p, q := r.chunks(x), r.chunks(y)
		for i, d := 0, r.bases[in.D]; i < len(d); i++ {
			d[i] = p[i] * q[i]
		}
		r.setCompressed(in.D, 0)
		return true
	}
	if a.bits&scalar != 0 {
		r.setScalar(in.D, a.bits, a.base*b.base, a.stride*b.base)
		return true
	}
	p := r.chunks(x)
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = p[i] * b.base
	}
	r.setCompressed(in.D, a.stride*b.base)
	return true
}

// regularMad multiplies into d, then adds c. If c and d are the same register,
// the product overwrites c: then c must be scalar, so that its copied form is
// enough to add it.
func regularMad[T regval](r *file[T], in *inst) bool {
	c, z := r.form[in.C], in.C
	if z == in.D {
		if c.bits&scalar == 0 {
			return false
		}
		z = -1
	}
	if !regularMul(r, in) {
		return false
	}
	d := &r.form[in.D]
	if common := d.bits & c.bits & scalar; common != 0 {
		r.setScalar(in.D, common, d.base+c.base, d.stride+c.stride)
		return true
	}
	sum := r.chunks(in.D)
	if z < 0 {
		step := chunk * c.stride
		if c.bits&periodic != 0 {
			step = 0
		}
		for i := range sum {
			sum[i] += c.base + T(i)*step
		}
	} else {
		for i, v := range r.chunks(z) {
			sum[i] += v
		}
	}
	r.setCompressed(in.D, d.stride+c.stride)
	return true
}

// shiftLeft shifts by a uniform count. A shift left is a product, so the form
// stays. A Go shift by the width or more gives 0, as PTX wants.
func shiftLeft[T regval](g *gang, r *file[T], in *inst) bool {
	b := &g.r32.form[in.B]
	if !b.uniform() {
		return false
	}
	a, by := r.form[in.A], b.base
	if a.bits&scalar != 0 {
		r.setScalar(in.D, a.bits, a.base<<by, a.stride<<by)
		return true
	}
	x := r.chunks(in.A)
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = x[i] << by
	}
	r.setCompressed(in.D, a.stride<<by)
	return true
}

// shiftRight covers lane numbers divided by a power of two: often all lanes of a
// chunk have one quotient. The stride must be positive and the last lane below
// 2^31. Then the values ascend without a wrap, signed and unsigned shifts agree,
// and equal quotients of the first and the last lane are those of all between.
func shiftRight(g *gang, in *inst) bool {
	r := &g.r32
	a, b := r.form[in.A], &r.form[in.B]
	if !b.uniform() || a.stride == 0 || int32(a.stride) < 0 {
		return false
	}
	by := b.base
	if a.bits&periodic != 0 {
		if end := uint64(a.base) + last*uint64(a.stride); end >= 1<<31 || a.base>>by != uint32(end)>>by {
			return false
		}
		r.setUniform(in.D, a.base>>by)
		return true
	}
	x := r.chunks(in.A)
	for _, base := range x {
		if end := uint64(base) + last*uint64(a.stride); end >= 1<<31 || base>>by != uint32(end)>>by {
			return false
		}
	}
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = x[i] >> by
	}
	r.setCompressed(in.D, 0)
	return true
}

// bitAnd covers lane numbers modulo a power of two, that is, masks of the form
// 2^k-1. If the first and the last lane of a chunk agree in all higher bits, the
// mask subtracts the same number from every lane of the chunk, and the stride stays.
func bitAnd(g *gang, in *inst) bool {
	r := &g.r32
	x, m := in.A, in.B
	if !r.form[m].uniform() {
		x, m = m, x
	}
	a, low := r.form[x], r.form[m].base
	if !r.form[m].uniform() || low&(low+1) != 0 || a.stride == 0 || int32(a.stride) < 0 {
		return false
	}
	if a.bits&periodic != 0 {
		if uint64(a.base)&^uint64(low) != (uint64(a.base)+last*uint64(a.stride))&^uint64(low) {
			return false
		}
		r.setScalar(in.D, periodic, a.base&low, a.stride)
		return true
	}
	c := r.chunks(x)
	for _, base := range c {
		if uint64(base)&^uint64(low) != (uint64(base)+last*uint64(a.stride))&^uint64(low) {
			return false
		}
	}
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = c[i] & low
	}
	r.setCompressed(in.D, a.stride)
	return true
}

// bitOr covers sums of numbers that have no bit in common: x ascends along each
// chunk, and y is the same along it and has no bit as low as any that x may have
// there. Then x|y is x+y, and has the stride of x.
func bitOr(g *gang, in *inst) bool {
	r := &g.r32
	x, y := in.A, in.B
	if r.form[y].stride != 0 {
		x, y = y, x
	}
	a := r.form[x]
	if r.form[y].stride != 0 || a.stride == 0 || int32(a.stride) < 0 {
		return false
	}
	p, q := r.chunks(x), r.chunks(y)
	for i, base := range p {
		end := uint64(base) + last*uint64(a.stride)
		if uint64(q[i])&(1<<bits.Len64(end)-1) != 0 || end >= 1<<32 {
			return false
		}
	}
	for i, d := 0, r.bases[in.D]; i < len(d); i++ {
		d[i] = p[i] | q[i]
	}
	r.setCompressed(in.D, a.stride)
	return true
}

// extend returns a 32-bit value as one of 64 bits.
func extend(v uint32, signed bool) uint64 {
	if signed {
		return uint64(int64(int32(v)))
	}
	return uint64(v)
}

// steady says whether base + steps*stride, and so all values on the way, does not
// wrap around as a signed or unsigned number of 32 bits. The stride is signed.
func steady(base, stride uint32, steps int, signed bool) bool {
	end := int64(extend(base, signed)) + int64(steps)*int64(int32(stride))
	if signed {
		return end == int64(int32(end))
	}
	return end == int64(uint32(end))
}

// wide extends a 32-bit register to 64 bits. It returns the new form, and for a
// compressed one the bases, which lie in scratch until the next call. It fails if
// a chunk wraps around. If only the active lanes matter (the group is not full,
// the destination private), the others may wrap: kernels compute addresses in
// lanes that a bounds check has excluded.
func (g *gang) wide(in *inst, slot int32, signed bool) (f form[uint64], bases []uint64, ok bool) {
	r := &g.r32
	a := r.form[slot]
	stride := uint64(int64(int32(a.stride)))
	if a.uniform() {
		return form[uint64]{scalar, 0, extend(a.base, signed)}, nil, true
	}
	some := !g.full && in.Private // only the active lanes count
	switch {
	case a.bits&periodic != 0:
		first, end := 0, last
		if some {
			first, end = g.activeRange()
		}
		if v := a.base + uint32(first)*a.stride; steady(v, a.stride, end-first, signed) {
			return form[uint64]{periodic, stride, extend(v, signed) - uint64(first)*stride}, nil, true
		}
	case a.bits&linear != 0 && !some && steady(a.base, a.stride, g.width-1, signed):
		return form[uint64]{linear, stride, extend(a.base, signed)}, nil, true
	}
	if some {
		bases, ok = g.wideActive(slot, signed)
		return form[uint64]{compressed, stride, 0}, bases, ok
	}
	bases = g.r64.scratch[2][:g.chunks]
	for i, base := range r.chunks(slot) {
		if !steady(base, a.stride, last, signed) {
			return f, nil, false
		}
		bases[i] = extend(base, signed)
	}
	return form[uint64]{compressed, stride, 0}, bases, true
}

// activeRange returns the first and the last lane number within a chunk that is
// active in at least one chunk.
func (g *gang) activeRange() (first, end int) {
	all := g.mask[0] | g.mask[1] | g.mask[2] | g.mask[3]
	all |= all >> 32
	all |= all >> 16
	all &= 1<<chunk - 1
	return trailing(all), bits.Len64(all) - 1
}

// wideActive is wide for a register of which only the active lanes matter. It
// extends the value of the first active lane and computes the base of the chunk
// back from there.
func (g *gang) wideActive(slot int32, signed bool) (bases []uint64, ok bool) {
	stride := g.r32.form[slot].stride
	bases = g.r64.scratch[2][:g.chunks]
	for i, base := range g.r32.chunks(slot) {
		active := g.mask.chunkBits(i)
		if active == 0 {
			bases[i] = 0
			continue
		}
		first := trailing(active)
		v := base + uint32(first)*stride
		if !steady(v, stride, bits.Len64(active)-1-first, signed) {
			return nil, false
		}
		bases[i] = extend(v, signed) - uint64(first)*uint64(int64(int32(stride)))
	}
	return bases, true
}

// widenRegular converts to 64 bits.
func widenRegular(signed bool) func(g *gang, in *inst) bool {
	return func(g *gang, in *inst) bool {
		f, bases, ok := g.wide(in, in.A, signed)
		if ok {
			copy(g.r64.bases[in.D], bases)
			g.r64.form[in.D] = f
		}
		return ok
	}
}

// narrowRegular truncates to 32 bits. Base and stride modulo 2^32 give the right lanes
// whatever the upper bits are.
func narrowRegular(g *gang, in *inst) bool {
	a := &g.r64.form[in.A]
	if a.bits&scalar != 0 {
		g.r32.setScalar(in.D, a.bits, uint32(a.base), uint32(a.stride))
		return true
	}
	d := g.r32.bases[in.D]
	for i, base := range g.r64.chunks(in.A) {
		d[i] = uint32(base)
	}
	g.r32.setCompressed(in.D, uint32(a.stride))
	return true
}

// mulWide multiplies to 64 bits where one factor is uniform, and adds c if adds is
// set.
func mulWide(signed, adds bool) func(g *gang, in *inst) bool {
	return func(g *gang, in *inst) bool {
		x, u := in.A, in.B
		if !g.r32.form[u].uniform() {
			x, u = u, x
		}
		if !g.r32.form[u].uniform() {
			return false
		}
		factor := extend(g.r32.form[u].base, signed)
		f, bases, ok := g.wide(in, x, signed)
		if !ok {
			return false
		}
		f.base *= factor
		f.stride *= factor
		r := &g.r64
		if adds {
			c := r.form[in.C]
			if common := f.bits & c.bits & scalar; common != 0 {
				r.setScalar(in.D, common, f.base+c.base, f.stride+c.stride)
				return true
			}
			if f.bits&scalar != 0 { // the product has no bases yet
				bases = r.scratch[2][:g.chunks]
				step := chunk * f.stride
				if f.bits&periodic != 0 {
					step = 0
				}
				for i, v := range r.chunks(in.C) {
					bases[i] = v + f.base + uint64(i)*step
				}
			} else {
				for i, v := range r.chunks(in.C) {
					bases[i] = bases[i]*factor + v
				}
			}
			copy(r.bases[in.D], bases)
			r.setCompressed(in.D, f.stride+c.stride)
			return true
		}
		if f.bits&scalar != 0 {
			r.setScalar(in.D, f.bits, f.base, f.stride)
			return true
		}
		for i := range bases {
			bases[i] *= factor
		}
		copy(r.bases[in.D], bases)
		r.form[in.D] = f
		return true
	}
}

// affines are the rules of this file, by the name of the lane kernel that they replace.
var affines = map[string]func(*gang, *inst) bool{
	"add.b32":     func(g *gang, in *inst) bool { return regularAdd(&g.r32, in) },
	"sub.b32":     func(g *gang, in *inst) bool { return regularSub(&g.r32, in) },
	"neg.s32":     func(g *gang, in *inst) bool { return regularMinus(&g.r32, in, 0) },
	"neg.s64":     func(g *gang, in *inst) bool { return regularMinus(&g.r64, in, 0) },
	"not.b32":     func(g *gang, in *inst) bool { return regularMinus(&g.r32, in, 1<<32-1) },
	"not.b64":     func(g *gang, in *inst) bool { return regularMinus(&g.r64, in, 1<<64-1) },
	"mul.lo.b32":  func(g *gang, in *inst) bool { return regularMul(&g.r32, in) },
	"mad.lo.b32":  func(g *gang, in *inst) bool { return regularMad(&g.r32, in) },
	"shl.b32":     func(g *gang, in *inst) bool { return shiftLeft(g, &g.r32, in) },
	"add.b64":     func(g *gang, in *inst) bool { return regularAdd(&g.r64, in) },
	"sub.b64":     func(g *gang, in *inst) bool { return regularSub(&g.r64, in) },
	"mul.lo.b64":  func(g *gang, in *inst) bool { return regularMul(&g.r64, in) },
	"mad.lo.b64":  func(g *gang, in *inst) bool { return regularMad(&g.r64, in) },
	"shl.b64":     func(g *gang, in *inst) bool { return shiftLeft(g, &g.r64, in) },
	"shr.u32":     shiftRight,
	"shr.s32":     shiftRight,
	"and.b32":     bitAnd,
	"or.b32":      bitOr,
	"cvt.s64.s32": widenRegular(true), "cvt.u64.s32": widenRegular(true),
	"cvt.u64.u32": widenRegular(false), "cvt.s64.u32": widenRegular(false),
	"cvt.u32.u64": narrowRegular, "cvt.s32.s64": narrowRegular, "cvt.u32.s64": narrowRegular, "cvt.s32.u64": narrowRegular,
	"mul.wide.s32": mulWide(true, false), "mul.wide.u32": mulWide(false, false),
	"mad.wide.s32": mulWide(true, true), "mad.wide.u32": mulWide(false, true),
}

// holds says whether a difference satisfies a comparison.
func holds(order uint8, difference int64) bool {
	switch order & program.OrderKind {
	case program.OrderLess:
		return difference < 0
	case program.OrderLessEqual:
		return difference <= 0
	case program.OrderGreater:
		return difference > 0
	}
	return difference >= 0
}

// number returns a value and its stride as signed numbers of 64 bits; ok is false
// if the value wraps around within the given steps. 64-bit values must also stay
// below 2^62, so that the difference of two of them fits in an int64; a gang has
// at most 256 lanes, hence the limit of the stride.
func number[T regval](base, stride T, steps int, signed bool) (v, step int64, ok bool) {
	const far = 1 << 61
	if T(0)-1 == T(1<<32-1) {
		return int64(extend(uint32(base), signed)), int64(int32(stride)), steady(uint32(base), uint32(stride), steps, signed)
	}
	v, step = int64(base), int64(stride)
	ok = v > -far && v < far && step > -far>>8 && step < far>>8 && (signed || v >= 0 && v+int64(steps)*step >= 0)
	return v, step, ok
}

// compareRegular compares by order. The difference of two linear registers is
// linear, so its sign changes at most once: the differences of the first and the
// last lane, of the gang or of each chunk, say where.
func compareRegular[T regval](g *gang, r *file[T], in *inst) bool {
	signed := in.Ordered&program.OrderSigned != 0
	fa, fb := r.form[in.A], r.form[in.B]
	if fa.bits&fb.bits&linear != 0 {
		x, sx, ok1 := number(fa.base, fa.stride, g.width-1, signed)
		y, sy, ok2 := number(fb.base, fb.stride, g.width-1, signed)
		if ok1 && ok2 {
			g.setPredicate(in.D, linearAnswer(in.Ordered, x-y, sx-sy, g.width))
			return true
		}
	}
	a, b := r.chunks(in.A), r.chunks(in.B)
	var m mask
	for c := range a {
		x, sx, ok1 := number(a[c], fa.stride, last, signed)
		y, sy, ok2 := number(b[c], fb.stride, last, signed)
		if !ok1 || !ok2 {
			return false
		}
		m[c>>2] |= chunkAnswer(in.Ordered, x-y, sx-sy) << (c & 3 * chunk)
	}
	g.setPredicate(in.D, m)
	return true
}

// comparePeriodic compares the lanes of one chunk and copies the answer to all
// chunks; false if the sources are not periodic.
func comparePeriodic[T regval](g *gang, r *file[T], in *inst, k func(d []uint64, a, b []T)) bool {
	fa, fb := &r.form[in.A], &r.form[in.B]
	if fa.bits&fb.bits&periodic == 0 {
		return false
	}
	x, y := r.scratch[1][:chunk], r.scratch[2][:chunk]
	a, b := fa.base, fb.base
	for l := range x {
		x[l], y[l] = a, b
		a += fa.stride
		b += fb.stride
	}
	k(g.bits[:1], x, y)
	word := g.bits[0] & (1<<chunk - 1)
	word |= word << 16
	word |= word << 32
	g.setPredicate(in.D, mask{word, word, word, word})
	return true
}

// allLanes has a bit for every lane of the widest gang.
var allLanes = mask{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

// linearAnswer returns the lanes of a gang in which a comparison of the
// difference first + lane*step with zero holds.
func linearAnswer(order uint8, first, step int64, width int) mask {
	// All four comparisons become "is it negative?": d <= 0 is d-1 < 0, and > and
	// >= are the opposites of <= and <.
	if kind := order & program.OrderKind; kind == program.OrderLessEqual || kind == program.OrderGreater {
		first--
	}
	opposite := order&program.OrderKind == program.OrderGreater || order&program.OrderKind == program.OrderGreaterEqual
	if end := first + step*int64(width-1); (first < 0) == (end < 0) {
		if first < 0 != opposite {
			return allLanes
		}
		return mask{}
	}
	var n int64 // how many lanes, from the first on, have the sign of the first
	if step > 0 {
		n = (step - 1 - first) / step
	} else {
		n = first/-step + 1
	}
	var m mask
	for i := range m {
		if n >= 64 {
			m[i] = ^uint64(0)
		} else if n > 0 {
			m[i] = 1<<n - 1
		}
		n -= 64
		if first >= 0 != opposite {
			m[i] = ^m[i]
		}
	}
	return m
}

// chunkAnswer is linearAnswer for one chunk: the bits of its 16 lanes.
func chunkAnswer(order uint8, first, step int64) uint64 {
	at0, at15 := holds(order, first), holds(order, first+last*step)
	switch {
	case at0 && at15:
		return 1<<chunk - 1
	case !at0 && !at15:
		return 0
	}
	var b uint64
	for l := range int64(chunk) {
		if holds(order, first+l*step) {
			b |= 1 << l
		}
	}
	return b
}

func trailing(b uint64) int { return bits.TrailingZeros64(b) }
