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

// Comparisons of which the answer changes at most once along a chunk that
// does not wrap around.
const (
	orderedSigned = 1 + iota
	orderedUnsigned
)

// compareEnds32 compares the first and the last lane of each chunk, and all
// lanes only where these differ. One side must be the same along the chunk.
func (g *gang) compareEnds32(in *inst, k vec.Compare32) bool {
	signed := in.ordered == orderedSigned
	if g.f32[in.a].stride != 0 && g.f32[in.b].stride != 0 || !g.steady(in.a, signed) || !g.steady(in.b, signed) {
		return false
	}
	a, b := g.c32[in.a], g.c32[in.b]
	sa, sb := g.f32[in.a].stride, g.f32[in.b].stride
	var first, end [maxWidth / chunk]uint32
	ea, eb := first[:len(a)], end[:len(b)]
	for i := range a {
		ea[i], eb[i] = a[i]+last*sa, b[i]+last*sb
	}
	var at0, at15 [1]uint64
	k(at0[:], a, b)
	k(at15[:], ea, eb)
	bits := spread(at0[0])
	for mixed := (at0[0] ^ at15[0]) & (1<<len(a) - 1); mixed != 0; mixed &= mixed - 1 {
		c := trailing(mixed)
		var va, vb [chunk]uint32
		for l := range uint32(chunk) {
			va[l], vb[l] = a[c]+l*sa, b[c]+l*sb
		}
		var out [1]uint64
		k(out[:], va[:], vb[:])
		shift := c % 4 * chunk
		bits[c/4] = bits[c/4]&^(0xffff<<shift) | out[0]&0xffff<<shift
	}
	g.setPredicate(in.d, bits)
	return true
}

func trailing(b uint64) int { return bits.TrailingZeros64(b) }

// compareEnds64 is compareEnds32 for addresses; strides are small there.
func (g *gang) compareEnds64(in *inst, k vec.Compare64) bool {
	sa, sb := g.f64[in.a].stride, g.f64[in.b].stride
	if sa != 0 && sb != 0 {
		return false
	}
	a, b := g.c64[in.a], g.c64[in.b]
	var first, end [maxWidth / chunk]uint64
	ea, eb := first[:len(a)], end[:len(b)]
	for i := range a {
		ea[i], eb[i] = a[i]+last*sa, b[i]+last*sb
		if !ascending(a[i], sa, in.ordered) || !ascending(b[i], sb, in.ordered) {
			return false
		}
	}
	var at0, at15 [1]uint64
	k(at0[:], a, b)
	k(at15[:], ea, eb)
	if (at0[0]^at15[0])&(1<<len(a)-1) != 0 {
		return false
	}
	g.setPredicate(in.d, spread(at0[0]))
	return true
}

// ascending says whether a chunk does not wrap around; falling strides are
// not worth the trouble.
func ascending(base, stride uint64, order uint8) bool {
	if stride == 0 {
		return true
	}
	if stride >= 1<<32 {
		return false
	}
	end := base + last*stride
	if order == orderedSigned {
		return int64(end) > int64(base)
	}
	return end > base
}
