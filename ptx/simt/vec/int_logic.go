package vec

import "math/bits"

func init() {
	define(map[string]any{
		"and.b32":  Binary32(and[uint32]),
		"and.b64":  Binary64(and[uint64]),
		"or.b32":   Binary32(or[uint32]),
		"or.b64":   Binary64(or[uint64]),
		"xor.b32":  Binary32(xor[uint32]),
		"xor.b64":  Binary64(xor[uint64]),
		"not.b16":  Unary32(not[uint32, uint16]),
		"not.b32":  Unary32(not[uint32, uint32]),
		"not.b64":  Unary64(not[uint64, uint64]),
		"cnot.b16": Unary32(cnot[uint32, uint16]),
		"cnot.b32": Unary32(cnot[uint32, uint32]),
		"cnot.b64": Unary64(cnot[uint64, uint64]),
		"lop3.b32": Quad32(lop3),

		"shl.b16": Binary32(shl[uint32, uint16]),
		"shl.b32": Binary32(shl[uint32, uint32]),
		"shl.b64": Shift64(shl[uint64, uint64]),
		"shr.s16": Binary32(shr[uint32, uint16, int16]),
		"shr.u16": Binary32(shr[uint32, uint16, uint16]),
		"shr.s32": Binary32(shr[uint32, uint32, int32]),
		"shr.u32": Binary32(shr[uint32, uint32, uint32]),
		"shr.s64": Shift64(shr[uint64, uint64, int64]),
		"shr.u64": Shift64(shr[uint64, uint64, uint64]),

		"shf.l.wrap.b32":  Ternary32(funnelLeftWrap),
		"shf.r.wrap.b32":  Ternary32(funnelRightWrap),
		"shf.l.clamp.b32": Ternary32(funnelLeftClamp),
		"shf.r.clamp.b32": Ternary32(funnelRightClamp),

		"popc.b32":           Unary32(popc32),
		"popc.b64":           Narrow(popc64),
		"clz.b32":            Unary32(clz32),
		"clz.b64":            Narrow(clz64),
		"brev.b32":           Unary32(each1(bits.Reverse32)),
		"brev.b64":           Unary64(each1(bits.Reverse64)),
		"bfind.s32":          Unary32(each1(bfindS32)),
		"bfind.u32":          Unary32(each1(bfindU32)),
		"bfind.s64":          Narrow(each1(bfindS64)),
		"bfind.u64":          Narrow(each1(bfindU64)),
		"bfind.shiftamt.s32": Unary32(each1(shiftAmount(bfindS32, 31))),
		"bfind.shiftamt.u32": Unary32(each1(shiftAmount(bfindU32, 31))),
		"bfind.shiftamt.s64": Narrow(each1(shiftAmount(bfindS64, 63))),
		"bfind.shiftamt.u64": Narrow(each1(shiftAmount(bfindU64, 63))),

		"bfe.s32": Ternary32(extract[uint32, int32]),
		"bfe.u32": Ternary32(extract[uint32, uint32]),
		"bfe.s64": Extract64(extract[uint64, int64]),
		"bfe.u64": Extract64(extract[uint64, uint64]),
		"bfi.b32": Quad32(insert[uint32]),
		"bfi.b64": Insert64(insert[uint64]),

		"bmsk.clamp.b32":  Binary32(each2(maskClamp)),
		"bmsk.wrap.b32":   Binary32(each2(func(pos, width uint32) uint32 { return maskClamp(pos&31, width&31) })),
		"szext.clamp.s32": Binary32(each2(extendSigned)),
		"szext.clamp.u32": Binary32(each2(extendUnsigned)),
		"szext.wrap.s32":  Binary32(each2(func(x, width uint32) uint32 { return extendSigned(x, width&31) })),
		"szext.wrap.u32":  Binary32(each2(func(x, width uint32) uint32 { return extendUnsigned(x, width&31) })),
		"fns.b32":         Ternary32(each3(nthSet)),

		"slct.b16.s32": Ternary32(choose[uint32]),
		"slct.b32.s32": Ternary32(choose[uint32]),
		"slct.b64.s32": Choose64(choose[uint64]),
	})
}

func and[L lane](d, a, b []L) { loop2(d, a, b, func(a, b L) L { return a & b }) }

func or[L lane](d, a, b []L) { loop2(d, a, b, func(a, b L) L { return a | b }) }

func xor[L lane](d, a, b []L) { loop2(d, a, b, func(a, b L) L { return a ^ b }) }

func not[L lane, V unsigned](d, a []L) { loop1(d, a, func(a L) L { return L(^V(a)) }) }

func cnot[L lane, V unsigned](d, a []L) {
	loop1(d, a, func(a L) L {
		var r L
		if V(a) == 0 {
			r = 1
		}
		return r
	})
}

// lop3 looks each bit of the result up in a table of eight, by the bits of a,
// b and c. The table is the same in all lanes, so its entries become masks,
// and the look-up a tree of choices: by c, then by b, then by a.
func lop3(d, a, b, c, e []uint32) {
	if len(d) == 0 {
		return
	}
	var first, change [4]uint32 // the entry for c = 0, and what c = 1 changes
	for i := range first {
		off, on := -(e[0] >> (2 * i) & 1), -(e[0] >> (2*i + 1) & 1)
		first[i], change[i] = off, off^on
	}
	a, b, c = a[:len(d)], b[:len(d)], c[:len(d)]
	for i := range d {
		x, y, z := a[i], b[i], c[i]
		t0 := first[0] ^ z&change[0]
		t1 := first[1] ^ z&change[1]
		t2 := first[2] ^ z&change[2]
		t3 := first[3] ^ z&change[3]
		t0 ^= y & (t0 ^ t1)
		t2 ^= y & (t2 ^ t3)
		d[i] = t0 ^ x&(t0^t2)
	}
}

// shl and shr need no clamp of the count: a Go shift by more than the width
// gives what PTX wants.
func shl[L lane, V unsigned](d, a []L, b []uint32) {
	loop2(d, a, b, func(a L, b uint32) L { return L(V(a) << b) })
}

func shr[L lane, V unsigned, T integer](d, a []L, b []uint32) {
	loop2(d, a, b, func(a L, b uint32) L { return L(V(T(a) >> b)) })
}

// The funnel shifts move the 64 bits of b above a.

func funnelLeftWrap(d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		both := uint64(b)<<32 | uint64(a)
		return uint32(both << (c & 31) >> 32)
	})
}

func funnelRightWrap(d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		both := uint64(b)<<32 | uint64(a)
		return uint32(both >> (c & 31))
	})
}

func funnelLeftClamp(d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		both := uint64(b)<<32 | uint64(a)
		return uint32(both << min(c, 32) >> 32)
	})
}

func funnelRightClamp(d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		both := uint64(b)<<32 | uint64(a)
		return uint32(both >> min(c, 32))
	})
}

func popc32(d, a []uint32) { loop1(d, a, func(a uint32) uint32 { return uint32(bits.OnesCount32(a)) }) }

func popc64(d []uint32, a []uint64) {
	loop1(d, a, func(a uint64) uint32 { return uint32(bits.OnesCount64(a)) })
}

func clz32(d, a []uint32) {
	loop1(d, a, func(a uint32) uint32 { return uint32(bits.LeadingZeros32(a)) })
}

func clz64(d []uint32, a []uint64) {
	loop1(d, a, func(a uint64) uint32 { return uint32(bits.LeadingZeros64(a)) })
}

// bfind finds the highest bit that is not the sign; without any it gives all
// ones, which is what a length of 0 less 1 is.
func bfindU32(a uint32) uint32 { return uint32(bits.Len32(a) - 1) }
func bfindU64(a uint64) uint32 { return uint32(bits.Len64(a) - 1) }
func bfindS32(a uint32) uint32 { return bfindU32(a ^ uint32(int32(a)>>31)) }
func bfindS64(a uint64) uint32 { return bfindU64(a ^ uint64(int64(a)>>63)) }

// shiftAmount turns a position into the left shift that brings the bit there
// to the top.
func shiftAmount[A lane](find func(A) uint32, top uint32) func(A) uint32 {
	return func(a A) uint32 {
		at := find(a)
		if at == ^uint32(0) {
			return at
		}
		return top - at
	}
}

// widthOf is the number of bits of a lane.
func widthOf[L lane]() uint32 { return uint32(bits.OnesCount64(uint64(^L(0)))) }

// extract takes c bits of a from position b up. T has the sign that fills
// what the field lacks: the field's highest bit, or a's where the field
// reaches beyond.
func extract[L lane, T integer](d, a []L, b, c []uint32) {
	a, b, c = a[:len(d)], b[:len(d)], c[:len(d)]
	width := widthOf[L]()
	for i := range d {
		pos, unused := b[i]&0xff, width-min(c[i]&0xff, width)
		d[i] = L(T(L(T(a[i])>>pos)<<unused) >> unused)
	}
}

// insert puts the lowest e bits of a into b, from position c up; what reaches
// beyond the top is lost.
func insert[L lane](d, a, b []L, c, e []uint32) {
	loop4(d, a, b, c, e, func(a, b L, c, e uint32) L {
		pos, length := c&0xff, e&0xff
		field := (L(1)<<length - 1) << pos
		return b&^field | a<<pos&field
	})
}

// choose takes a where c is not negative, else b.
func choose[L lane](d, a, b []L, c []uint32) {
	loop3(d, a, b, c, func(a, b L, c uint32) L {
		x := b
		if int32(c) >= 0 {
			x = a
		}
		return x
	})
}

// maskClamp returns ones from a position on. Bits beyond the last one are cut off.
func maskClamp(pos, width uint32) uint32 {
	return uint32((uint64(1)<<min(width, 32) - 1) << min(pos, 32))
}

// extendUnsigned returns the lowest bits of x.
func extendUnsigned(x, width uint32) uint32 { return x & maskClamp(0, width) }

// extendSigned returns the lowest bits of x as a signed number.
func extendSigned(x, width uint32) uint32 {
	if width == 0 {
		return 0
	}
	unused := 32 - min(width, 32)
	return uint32(int32(x<<unused) >> unused)
}

// nthSet finds a bit of a mask that is set: the one at base, or the offset-th from there
// on, upwards or, if it is negative, downwards. It returns all ones if there is none.
func nthSet(mask, base, offset uint32) uint32 {
	pos, step, left := int64(base), int64(1), int64(int32(offset))
	switch {
	case left == 0:
		if base < 32 && mask>>base&1 != 0 {
			return base
		}
		return 0xffffffff
	case left < 0:
		step, left = -1, -left
	}
	for ; pos >= 0 && pos < 32; pos += step {
		if mask>>pos&1 != 0 {
			if left--; left == 0 {
				return uint32(pos)
			}
		}
	}
	return 0xffffffff
}
