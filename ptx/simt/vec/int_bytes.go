package vec

func init() {
	define(map[string]any{
		"prmt.b32":      Ternary32(permute),
		"prmt.f4e.b32":  Ternary32(permuteBy([4]uint32{0x3210, 0x4321, 0x5432, 0x6543})),
		"prmt.b4e.b32":  Ternary32(permuteBy([4]uint32{0x5670, 0x6701, 0x7012, 0x0123})),
		"prmt.rc8.b32":  Ternary32(permuteBy([4]uint32{0x0000, 0x1111, 0x2222, 0x3333})),
		"prmt.ecl.b32":  Ternary32(permuteBy([4]uint32{0x3210, 0x3211, 0x3222, 0x3333})),
		"prmt.ecr.b32":  Ternary32(permuteBy([4]uint32{0x0000, 0x1110, 0x2210, 0x3210})),
		"prmt.rc16.b32": Ternary32(permuteBy([4]uint32{0x1010, 0x3232, 0x1010, 0x3232})),

		"dp4a.s32.s32": Ternary32(dp4a[int8, int8]),
		"dp4a.s32.u32": Ternary32(dp4a[int8, uint8]),
		"dp4a.u32.s32": Ternary32(dp4a[uint8, int8]),
		"dp4a.u32.u32": Ternary32(dp4a[uint8, uint8]),

		"dp2a.lo.s32.s32": Ternary32(dp2aLow[int16, int8]),
		"dp2a.lo.s32.u32": Ternary32(dp2aLow[int16, uint8]),
		"dp2a.lo.u32.s32": Ternary32(dp2aLow[uint16, int8]),
		"dp2a.lo.u32.u32": Ternary32(dp2aLow[uint16, uint8]),
		"dp2a.hi.s32.s32": Ternary32(dp2aHigh[int16, int8]),
		"dp2a.hi.s32.u32": Ternary32(dp2aHigh[int16, uint8]),
		"dp2a.hi.u32.s32": Ternary32(dp2aHigh[uint16, int8]),
		"dp2a.hi.u32.u32": Ternary32(dp2aHigh[uint16, uint8]),

		"cvt.pack.sat.s16.s32":    Binary32(each2(func(a, b uint32) uint32 { return packCut(a, b, 0, 16, true) })),
		"cvt.pack.sat.u16.s32":    Binary32(each2(func(a, b uint32) uint32 { return packCut(a, b, 0, 16, false) })),
		"cvt.pack.sat.s8.s32.b32": Ternary32(each3(func(a, b, c uint32) uint32 { return packCut(a, b, c, 8, true) })),
		"cvt.pack.sat.u8.s32.b32": Ternary32(each3(func(a, b, c uint32) uint32 { return packCut(a, b, c, 8, false) })),
		"cvt.pack.sat.s4.s32.b32": Ternary32(each3(func(a, b, c uint32) uint32 { return packCut(a, b, c, 4, true) })),
		"cvt.pack.sat.u4.s32.b32": Ternary32(each3(func(a, b, c uint32) uint32 { return packCut(a, b, c, 4, false) })),

		"add.b16x2":      Binary32(each2(halves(func(a, b uint32) uint32 { return a + b }))),
		"min.s16x2":      Binary32(each2(halves(minHalf[int16]))),
		"min.u16x2":      Binary32(each2(halves(minHalf[uint16]))),
		"max.s16x2":      Binary32(each2(halves(maxHalf[int16]))),
		"max.u16x2":      Binary32(each2(halves(maxHalf[uint16]))),
		"min.relu.s16x2": Binary32(each2(halves(minRelu[int16]))),
		"max.relu.s16x2": Binary32(each2(halves(maxRelu[int16]))),
		"neg.s16x2":      Unary32(each1(func(a uint32) uint32 { return pack(-a, -(a >> 16)) })),
	})
}

// pick takes four of the eight bytes of b above a. Each four bits of selector
// name a byte; the fourth asks for its sign in all bits instead.
func pick(a, b, selector uint32) uint32 {
	both := uint64(b)<<32 | uint64(a)
	var r uint32
	for i := uint32(0); i < 32; i += 8 {
		s := selector >> (i / 2) & 15
		x := int8(both >> (s & 7 * 8))
		if s&8 != 0 {
			x >>= 7
		}
		r |= uint32(uint8(x)) << i
	}
	return r
}

func permute(d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 { return pick(a, b, c) })
}

// permuteBy makes the modes of prmt that take one of four selectors.
func permuteBy(selectors [4]uint32) Ternary32 {
	return func(d, a, b, c []uint32) {
		a, b, c = a[:len(d)], b[:len(d)], c[:len(d)]
		for i := range d {
			d[i] = pick(a[i], b[i], selectors[c[i]&3])
		}
	}
}

func dp4a[A, B int8 | uint8](d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		x, y := a, b
		sum := int32(A(x)) * int32(B(y))
		sum += int32(A(x>>8)) * int32(B(y>>8))
		sum += int32(A(x>>16)) * int32(B(y>>16))
		sum += int32(A(x>>24)) * int32(B(y>>24))
		return c + uint32(sum)
	})
}

// dp2aLow multiplies the halves of a with the two lower bytes of b.
func dp2aLow[A int16 | uint16, B int8 | uint8](d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		x, y := a, b
		return c + uint32(int32(A(x))*int32(B(y))) + uint32(int32(A(x>>16))*int32(B(y>>8)))
	})
}

// dp2aHigh multiplies the halves of a with the two upper bytes of b.
func dp2aHigh[A int16 | uint16, B int8 | uint8](d, a, b, c []uint32) {
	loop3(d, a, b, c, func(a, b, c uint32) uint32 {
		x, y := a, b>>16
		return c + uint32(int32(A(x))*int32(B(y))) + uint32(int32(A(x>>16))*int32(B(y>>8)))
	})
}

func pack(low, high uint32) uint32 { return high<<16 | low&0xffff }

// halves does an operation on the lower 16 bits with both halves of a lane.
func halves(f func(a, b uint32) uint32) func(a, b uint32) uint32 {
	return func(a, b uint32) uint32 { return pack(f(a, b), f(a>>16, b>>16)) }
}

func minHalf[T int16 | uint16](a, b uint32) uint32 { return uint32(min(T(a), T(b))) }
func maxHalf[T int16 | uint16](a, b uint32) uint32 { return uint32(max(T(a), T(b))) }

// packCut cuts the integers a and b to what a few bits can hold, and puts them below c: b comes
// lowest.
func packCut(a, b, c uint32, width int, signed bool) uint32 {
	low, high := int32(0), int32(1)<<width-1
	if signed {
		low, high = -1<<(width-1), int32(1)<<(width-1)-1
	}
	cut := func(x uint32) uint32 { return uint32(min(max(int32(x), low), high)) & (1<<width - 1) }
	return c<<(2*width) | cut(a)<<width | cut(b)
}
