package simt

import (
	"math/bits"

	"muster/ptx/simt/vec"
)

// This file computes with compressed registers that have a stride: what the
// base of each chunk and the common stride of the result are, where it has
// one. Every function returns false if the result has no such form; the
// instruction then runs on all lanes.
//
// Values are modulo 2^32 or 2^64, so sums and products need no care. Wherever
// the result depends on the value as a number, a chunk must not wrap around.

// last is the number of a chunk's last lane.
const last = chunk - 1

func affineAdd32(g *gang, in *inst) bool {
	fa, fb := g.f32[in.a], g.f32[in.b]
	in.k.(vec.Binary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b])
	g.f32[in.d] = form32{compressed, fa.stride + fb.stride}
	return true
}

func affineSub32(g *gang, in *inst) bool {
	fa, fb := g.f32[in.a], g.f32[in.b]
	in.k.(vec.Binary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b])
	g.f32[in.d] = form32{compressed, fa.stride - fb.stride}
	return true
}

// product32 returns the stride of a product, where one factor is uniform.
func (g *gang) product32(a, b int32) (uint32, bool) {
	fa, fb := g.f32[a], g.f32[b]
	switch {
	case fb.bits&uniform != 0:
		return fa.stride * g.c32[b][0], true
	case fa.bits&uniform != 0:
		return fb.stride * g.c32[a][0], true
	}
	return 0, fa.stride|fb.stride == 0
}

func (g *gang) product64(a, b int32) (uint64, bool) {
	fa, fb := g.f64[a], g.f64[b]
	switch {
	case fb.bits&uniform != 0:
		return fa.stride * g.c64[b][0], true
	case fa.bits&uniform != 0:
		return fb.stride * g.c64[a][0], true
	}
	return 0, fa.stride|fb.stride == 0
}

func affineMul32(g *gang, in *inst) bool {
	stride, ok := g.product32(in.a, in.b)
	if ok {
		in.k.(vec.Binary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b])
		g.f32[in.d] = form32{compressed, stride}
	}
	return ok
}

func affineMad32(g *gang, in *inst) bool {
	stride, ok := g.product32(in.a, in.b)
	if ok {
		stride += g.f32[in.c].stride
		in.k.(vec.Ternary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b], g.c32[in.c])
		g.f32[in.d] = form32{compressed, stride}
	}
	return ok
}

func affineShl32(g *gang, in *inst) bool {
	fa, fb := g.f32[in.a], g.f32[in.b]
	if fb.bits&uniform == 0 {
		return false
	}
	stride := fa.stride << g.c32[in.b][0] // Go's shifts clamp as PTX's do
	in.k.(vec.Binary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b])
	g.f32[in.d] = form32{compressed, stride}
	return true
}

// affineShr32 covers lane numbers divided by a power of two: within a chunk
// the quotient is often the same.
func affineShr32(g *gang, in *inst) bool {
	fa := g.f32[in.a]
	if g.f32[in.b].bits&uniform == 0 || int32(fa.stride) < 0 {
		return false
	}
	shift := g.c32[in.b][0]
	for _, base := range g.c32[in.a] {
		end := uint64(base) + last*uint64(fa.stride)
		if end >= 1<<31 || base>>shift != uint32(end)>>shift {
			return false
		}
	}
	in.k.(vec.Binary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b])
	g.f32[in.d] = form32{compressed, 0}
	return true
}

// affineAnd32 covers lane numbers modulo a power of two.
func affineAnd32(g *gang, in *inst) bool {
	x, m := in.a, in.b
	if g.f32[m].bits&uniform == 0 {
		x, m = m, x
	}
	fx := g.f32[x]
	low := g.c32[m][0]
	if g.f32[m].bits&uniform == 0 || low&(low+1) != 0 || int32(fx.stride) < 0 {
		return false
	}
	for _, base := range g.c32[x] {
		if uint64(base)&^uint64(low) != (uint64(base)+last*uint64(fx.stride))&^uint64(low) {
			return false
		}
	}
	in.k.(vec.Binary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b])
	g.f32[in.d] = form32{compressed, fx.stride}
	return true
}

// affineOr32 covers sums of numbers that have no bit in common.
func affineOr32(g *gang, in *inst) bool {
	x, y := in.a, in.b
	if g.f32[y].stride != 0 {
		x, y = y, x
	}
	fx := g.f32[x]
	if g.f32[y].stride != 0 || int32(fx.stride) < 0 {
		return false
	}
	for i, base := range g.c32[x] {
		end := uint64(base) + last*uint64(fx.stride)
		if uint64(g.c32[y][i])&(1<<bits.Len64(end)-1) != 0 || end >= 1<<32 {
			return false
		}
	}
	in.k.(vec.Binary32)(g.c32[in.d], g.c32[in.a], g.c32[in.b])
	g.f32[in.d] = form32{compressed, fx.stride}
	return true
}

func affineAdd64(g *gang, in *inst) bool {
	fa, fb := g.f64[in.a], g.f64[in.b]
	in.k.(vec.Binary64)(g.c64[in.d], g.c64[in.a], g.c64[in.b])
	g.f64[in.d] = form64{compressed, fa.stride + fb.stride}
	return true
}

func affineSub64(g *gang, in *inst) bool {
	fa, fb := g.f64[in.a], g.f64[in.b]
	in.k.(vec.Binary64)(g.c64[in.d], g.c64[in.a], g.c64[in.b])
	g.f64[in.d] = form64{compressed, fa.stride - fb.stride}
	return true
}

func affineMul64(g *gang, in *inst) bool {
	stride, ok := g.product64(in.a, in.b)
	if ok {
		in.k.(vec.Binary64)(g.c64[in.d], g.c64[in.a], g.c64[in.b])
		g.f64[in.d] = form64{compressed, stride}
	}
	return ok
}

func affineMad64(g *gang, in *inst) bool {
	stride, ok := g.product64(in.a, in.b)
	if ok {
		stride += g.f64[in.c].stride
		in.k.(vec.Ternary64)(g.c64[in.d], g.c64[in.a], g.c64[in.b], g.c64[in.c])
		g.f64[in.d] = form64{compressed, stride}
	}
	return ok
}

func affineShl64(g *gang, in *inst) bool {
	fa, fb := g.f64[in.a], g.f32[in.b]
	if fb.bits&uniform == 0 {
		return false
	}
	stride := fa.stride << g.c32[in.b][0]
	in.k.(vec.Shift64)(g.c64[in.d], g.c64[in.a], g.c32[in.b])
	g.f64[in.d] = form64{compressed, stride}
	return true
}

// steady says whether no chunk of a register wraps around as a signed or
// unsigned number, so that it can be widened chunk by chunk.
func (g *gang) steady(slot int32, signed bool) bool {
	step := last * int64(int32(g.f32[slot].stride))
	for _, base := range g.c32[slot] {
		if signed {
			if end := int64(int32(base)) + step; end != int64(int32(end)) {
				return false
			}
		} else if end := int64(base) + step; end != int64(uint32(end)) {
			return false
		}
	}
	return true
}

// wide returns a register's stride as a 64-bit one.
func (g *gang) wide(slot int32) uint64 { return uint64(int64(int32(g.f32[slot].stride))) }

func affineWidenSigned(g *gang, in *inst) bool   { return g.affineWiden(in, true) }
func affineWidenUnsigned(g *gang, in *inst) bool { return g.affineWiden(in, false) }

func (g *gang) affineWiden(in *inst, signed bool) bool {
	if !g.steady(in.a, signed) {
		return false
	}
	in.k.(vec.Widen)(g.c64[in.d], g.c32[in.a])
	g.f64[in.d] = form64{compressed, g.wide(in.a)}
	return true
}

// affineNarrow cuts to 32 bits, which is always right modulo 2^32.
func affineNarrow(g *gang, in *inst) bool {
	stride := uint32(g.f64[in.a].stride)
	in.k.(vec.Narrow)(g.c32[in.d], g.c64[in.a])
	g.f32[in.d] = form32{compressed, stride}
	return true
}

// wideProduct returns the stride of the 64-bit product of two 32-bit values.
func (g *gang) wideProduct(in *inst, signed bool) (uint64, bool) {
	x, u := in.a, in.b
	if g.f32[u].bits&uniform == 0 {
		x, u = u, x
	}
	if g.f32[u].bits&uniform == 0 {
		return 0, g.f32[x].stride|g.f32[u].stride == 0
	}
	if !g.steady(x, signed) {
		return 0, false
	}
	factor := uint64(g.c32[u][0])
	if signed {
		factor = uint64(int64(int32(factor)))
	}
	return g.wide(x) * factor, true
}

func affineMulWideSigned(g *gang, in *inst) bool   { return g.affineMulWide(in, true) }
func affineMulWideUnsigned(g *gang, in *inst) bool { return g.affineMulWide(in, false) }

func (g *gang) affineMulWide(in *inst, signed bool) bool {
	stride, ok := g.wideProduct(in, signed)
	if ok {
		in.k.(vec.WidenBinary)(g.c64[in.d], g.c32[in.a], g.c32[in.b])
		g.f64[in.d] = form64{compressed, stride}
	}
	return ok
}

func affineMadWideSigned(g *gang, in *inst) bool   { return g.affineMadWide(in, true) }
func affineMadWideUnsigned(g *gang, in *inst) bool { return g.affineMadWide(in, false) }

func (g *gang) affineMadWide(in *inst, signed bool) bool {
	stride, ok := g.wideProduct(in, signed)
	if ok {
		stride += g.f64[in.c].stride
		in.k.(vec.WidenAdd)(g.c64[in.d], g.c32[in.a], g.c32[in.b], g.c64[in.c])
		g.f64[in.d] = form64{compressed, stride}
	}
	return ok
}

// affines are the instructions with a rule of this file, by kernel.
var affines = map[string]func(*gang, *inst) bool{
	"add.b32": affineAdd32, "sub.b32": affineSub32, "mul.lo.b32": affineMul32, "mad.lo.b32": affineMad32,
	"shl.b32": affineShl32, "shr.u32": affineShr32, "shr.s32": affineShr32, "and.b32": affineAnd32, "or.b32": affineOr32,
	"add.b64": affineAdd64, "sub.b64": affineSub64, "mul.lo.b64": affineMul64, "mad.lo.b64": affineMad64, "shl.b64": affineShl64,
	"cvt.s64.s32": affineWidenSigned, "cvt.u64.s32": affineWidenSigned,
	"cvt.u64.u32": affineWidenUnsigned, "cvt.s64.u32": affineWidenUnsigned,
	"cvt.u32.u64": affineNarrow, "cvt.s32.s64": affineNarrow, "cvt.u32.s64": affineNarrow, "cvt.s32.u64": affineNarrow,
	"mul.wide.s32": affineMulWideSigned, "mul.wide.u32": affineMulWideUnsigned,
	"mad.wide.s32": affineMadWideSigned, "mad.wide.u32": affineMadWideUnsigned,
}

// Comparisons by order, of numbers with or without a sign.
const (
	orderLess = 1 + iota
	orderLessEqual
	orderGreater
	orderGreaterEqual
	orderKind   = 7
	orderSigned = 8
)

// holds says whether a difference satisfies a comparison.
func holds(order uint8, difference int64) bool {
	switch order & orderKind {
	case orderLess:
		return difference < 0
	case orderLessEqual:
		return difference <= 0
	case orderGreater:
		return difference > 0
	}
	return difference >= 0
}

// compareAffine32 compares chunks by the differences of their first and last
// lanes: in between the answer changes at most once.
func (g *gang) compareAffine32(in *inst) bool {
	signed := in.ordered&orderSigned != 0
	if !g.steady(in.a, signed) || !g.steady(in.b, signed) {
		return false
	}
	step := int64(g.wide(in.a)) - int64(g.wide(in.b))
	b := g.c32[in.b]
	var m mask
	for c, a := range g.c32[in.a] {
		first := int64(a) - int64(b[c])
		if signed {
			first = int64(int32(a)) - int64(int32(b[c]))
		}
		m[c>>2] |= chunkAnswer(in.ordered, first, step) << (c & 3 * chunk)
	}
	g.setPredicate(in.d, m)
	return true
}

// chunkAnswer returns the bits of the lanes for which a comparison holds.
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

// compareAffine64 does the same for numbers that stay away from the ends of
// their range, as indices and addresses do.
func (g *gang) compareAffine64(in *inst) bool {
	sa, sb := int64(g.f64[in.a].stride), int64(g.f64[in.b].stride)
	const far = 1 << 61
	if sa < -far>>8 || sa > far>>8 || sb < -far>>8 || sb > far>>8 {
		return false
	}
	b := g.c64[in.b]
	var m mask
	for c, a := range g.c64[in.a] {
		x, y := int64(a), int64(b[c])
		if x < -far || x > far || y < -far || y > far || in.ordered&orderSigned == 0 && (x < -last*min(sa, 0) || y < -last*min(sb, 0)) {
			return false
		}
		m[c>>2] |= chunkAnswer(in.ordered, x-y, sa-sb) << (c & 3 * chunk)
	}
	g.setPredicate(in.d, m)
	return true
}

func trailing(b uint64) int { return bits.TrailingZeros64(b) }
