//go:build goexperiment.simd

package vec

import (
	"simd/archsimd"
	"unsafe"
)

// The vector kernels here do whole vectors only: install gives them slices of
// equal lengths that are a multiple of a vector's, leaves the rest to the
// plain kernel of the same name, and clears the upper halves of the registers,
// without which scalar float code afterwards is several times slower.
//
// For the same reason no kernel shifts all lanes right without a sign, or by a
// count that is not constant: the compiler moves such a count with an old SSE
// instruction, which makes a kernel a hundred times slower (Go 1.26).
func installIntegers() {
	install(vectorArithmetic)
	install(vectorLogic)
	install(vectorBits)
	install(vectorComparisons)
	installConversions()
	if archsimd.X86.AVX512VPOPCNTDQ() {
		install(vectorCounts)
	}
}

// A vector has 16 lanes of 32 bits or 8 of 64; kernels with both widths do 8
// lanes at a time.
const lanes32, lanes64 = 16, 8

func install(kernels map[string]any) {
	for name, kernel := range kernels {
		fast[name] = withTail(kernel, plain[name])
	}
}

func withTail(kernel, rest any) any {
	switch k := kernel.(type) {
	case Unary32:
		return Unary32(withTail1(lanes32, k, rest.(Unary32)))
	case Unary64:
		return Unary64(withTail1(lanes64, k, rest.(Unary64)))
	case Widen:
		return Widen(withTail1(lanes64, k, rest.(Widen)))
	case Narrow:
		return Narrow(withTail1(lanes64, k, rest.(Narrow)))
	case Binary32:
		return Binary32(withTail2(lanes32, k, rest.(Binary32)))
	case Binary64:
		return Binary64(withTail2(lanes64, k, rest.(Binary64)))
	case WidenBinary:
		return WidenBinary(withTail2(lanes64, k, rest.(WidenBinary)))
	case Shift64:
		return Shift64(withTail2(lanes64, k, rest.(Shift64)))
	case Ternary32:
		return Ternary32(withTail3(lanes32, k, rest.(Ternary32)))
	case Ternary64:
		return Ternary64(withTail3(lanes64, k, rest.(Ternary64)))
	case WidenAdd:
		return WidenAdd(withTail3(lanes64, k, rest.(WidenAdd)))
	case Choose64:
		return Choose64(withTail3(lanes64, k, rest.(Choose64)))
	case Quad32:
		return Quad32(withTail4(lanes32, k, rest.(Quad32)))
	case Compare32:
		return Compare32(withTailOfBits(lanes32, k, rest.(Compare32)))
	case Compare64:
		return Compare64(withTailOfBits(lanes64, k, rest.(Compare64)))
	}
	panic("vec: a vector kernel of a shape that install does not know")
}

func withTail1[D, A lane](lanes int, vectors, rest func(d []D, a []A)) func(d []D, a []A) {
	return func(d []D, a []A) {
		n := len(d) &^ (lanes - 1)
		vectors(d[:n], a[:n])
		archsimd.ClearAVXUpperBits()
		if n < len(d) {
			rest(d[n:], a[n:])
		}
	}
}

func withTail2[D, A, B lane](lanes int, vectors, rest func(d []D, a []A, b []B)) func(d []D, a []A, b []B) {
	return func(d []D, a []A, b []B) {
		n := len(d) &^ (lanes - 1)
		vectors(d[:n], a[:n], b[:n])
		archsimd.ClearAVXUpperBits()
		if n < len(d) {
			rest(d[n:], a[n:], b[n:])
		}
	}
}

func withTail3[D, A, B, C lane](lanes int, vectors, rest func(d []D, a []A, b []B, c []C)) func(d []D, a []A, b []B, c []C) {
	return func(d []D, a []A, b []B, c []C) {
		n := len(d) &^ (lanes - 1)
		vectors(d[:n], a[:n], b[:n], c[:n])
		archsimd.ClearAVXUpperBits()
		if n < len(d) {
			rest(d[n:], a[n:], b[n:], c[n:])
		}
	}
}

func withTail4[D, A, B, C, E lane](lanes int, vectors, rest func(d []D, a []A, b []B, c []C, e []E)) func(d []D, a []A, b []B, c []C, e []E) {
	return func(d []D, a []A, b []B, c []C, e []E) {
		n := len(d) &^ (lanes - 1)
		vectors(d[:n], a[:n], b[:n], c[:n], e[:n])
		archsimd.ClearAVXUpperBits()
		if n < len(d) {
			rest(d[n:], a[n:], b[n:], c[n:], e[n:])
		}
	}
}

// withTailOfBits is for results of bits, where the rest of the lanes may
// share a word with the last vector.
func withTailOfBits[A lane](lanes int, vectors, rest func(d []uint64, a, b []A)) func(d []uint64, a, b []A) {
	return func(d []uint64, a, b []A) {
		n := len(a) &^ (lanes - 1)
		vectors(d, a[:n], b[:n])
		archsimd.ClearAVXUpperBits()
		if n == len(a) {
			return
		}
		var bits [1]uint64
		rest(bits[:], a[n:], b[n:])
		if n%64 == 0 {
			d[n/64] = bits[0]
		} else {
			d[n/64] |= bits[0] << (n % 64)
		}
	}
}

// The loads and stores below trust their callers with the bounds: checking
// them costs as much as the arithmetic.

func get32(s []uint32, i int) archsimd.Uint32x16 {
	return archsimd.LoadUint32x16((*[lanes32]uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

func put32(s []uint32, i int, v archsimd.Uint32x16) {
	v.Store((*[lanes32]uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

func get64(s []uint64, i int) archsimd.Uint64x8 {
	return archsimd.LoadUint64x8((*[lanes64]uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 8*i)))
}

func put64(s []uint64, i int, v archsimd.Uint64x8) {
	v.Store((*[lanes64]uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 8*i)))
}

// getHalf and putHalf move 8 lanes of 32 bits, beside as many of 64.
func getHalf(s []uint32, i int) archsimd.Uint32x8 {
	return archsimd.LoadUint32x8((*[lanes64]uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

func putHalf(s []uint32, i int, v archsimd.Uint32x8) {
	v.Store((*[lanes64]uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

func signed32(s []uint32, i int) archsimd.Int32x16 { return get32(s, i).AsInt32x16() }
func signed64(s []uint64, i int) archsimd.Int64x8  { return get64(s, i).AsInt64x8() }

// zeroExtended and signExtended widen 8 lanes.
func zeroExtended(s []uint32, i int) archsimd.Uint64x8 { return getHalf(s, i).ExtendToUint64() }
func signExtended(s []uint32, i int) archsimd.Uint64x8 {
	return getHalf(s, i).AsInt32x8().ExtendToInt64().AsUint64x8()
}

var vectorArithmetic = map[string]any{
	"add.b32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Add(get32(b, i)))
		}
	}),
	"sub.b32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Sub(get32(b, i)))
		}
	}),
	"mul.lo.b32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Mul(get32(b, i)))
		}
	}),
	"mad.lo.b32": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Mul(get32(b, i)).Add(get32(c, i)))
		}
	}),
	"min.s32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).Min(signed32(b, i)).AsUint32x16())
		}
	}),
	"min.u32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Min(get32(b, i)))
		}
	}),
	"max.s32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).Max(signed32(b, i)).AsUint32x16())
		}
	}),
	"max.u32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Max(get32(b, i)))
		}
	}),
	"neg.s32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, archsimd.Uint32x16{}.Sub(get32(a, i)))
		}
	}),
	"abs.s32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).Abs().AsUint32x16())
		}
	}),
	"add.b64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Add(get64(b, i)))
		}
	}),
	"sub.b64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Sub(get64(b, i)))
		}
	}),
	"mul.lo.b64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Mul(get64(b, i)))
		}
	}),
	"mad.lo.b64": Ternary64(func(d, a, b, c []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Mul(get64(b, i)).Add(get64(c, i)))
		}
	}),
	"min.s64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signed64(a, i).Min(signed64(b, i)).AsUint64x8())
		}
	}),
	"min.u64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Min(get64(b, i)))
		}
	}),
	"max.s64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signed64(a, i).Max(signed64(b, i)).AsUint64x8())
		}
	}),
	"max.u64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Max(get64(b, i)))
		}
	}),
	"neg.s64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, archsimd.Uint64x8{}.Sub(get64(a, i)))
		}
	}),
	"abs.s64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signed64(a, i).Abs().AsUint64x8())
		}
	}),

	"mul.wide.s32": WidenBinary(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signExtended(a, i).Mul(signExtended(b, i)))
		}
	}),
	"mul.wide.u32": WidenBinary(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, zeroExtended(a, i).Mul(zeroExtended(b, i)))
		}
	}),
	"mad.wide.s32": WidenAdd(func(d []uint64, a, b []uint32, c []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signExtended(a, i).Mul(signExtended(b, i)).Add(get64(c, i)))
		}
	}),
	"mad.wide.u32": WidenAdd(func(d []uint64, a, b []uint32, c []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, zeroExtended(a, i).Mul(zeroExtended(b, i)).Add(get64(c, i)))
		}
	}),
	"mul.hi.s32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, signExtended(a, i).Mul(signExtended(b, i)).AsInt64x8().ShiftAllRight(32).TruncateToInt32().AsUint32x8())
		}
	}),
	"mul.hi.u32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, zeroExtended(a, i).Mul(zeroExtended(b, i)).AsInt64x8().ShiftAllRight(32).TruncateToInt32().AsUint32x8())
		}
	}),
	"mad.hi.s32": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, signExtended(a, i).Mul(signExtended(b, i)).AsInt64x8().ShiftAllRight(32).TruncateToInt32().AsUint32x8().Add(getHalf(c, i)))
		}
	}),
	"mad.hi.u32": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, zeroExtended(a, i).Mul(zeroExtended(b, i)).AsInt64x8().ShiftAllRight(32).TruncateToInt32().AsUint32x8().Add(getHalf(c, i)))
		}
	}),

	"div.u32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, quotientU(getHalf(a, i), getHalf(b, i)))
		}
	}),
	"div.s32": Binary32(func(d, a, b []uint32) {
		ones := archsimd.BroadcastInt32x8(-1)
		for i := 0; i < len(d); i += lanes64 {
			y := getHalf(b, i).AsInt32x8()
			q := quotientS(getHalf(a, i).AsInt32x8(), y)
			putHalf(d, i, q.Merge(ones, y.NotEqual(archsimd.Int32x8{})).AsUint32x8())
		}
	}),
	"rem.u32": Binary32(func(d, a, b []uint32) {
		ones := archsimd.BroadcastUint32x8(1<<32 - 1)
		for i := 0; i < len(d); i += lanes64 {
			x, y := getHalf(a, i), getHalf(b, i)
			r := x.Sub(quotientU(x, y).Mul(y))
			putHalf(d, i, r.Merge(ones, y.NotEqual(archsimd.Uint32x8{})))
		}
	}),
	"rem.s32": Binary32(func(d, a, b []uint32) {
		ones := archsimd.BroadcastInt32x8(-1)
		for i := 0; i < len(d); i += lanes64 {
			x, y := getHalf(a, i).AsInt32x8(), getHalf(b, i).AsInt32x8()
			r := x.Sub(quotientS(x, y).Mul(y))
			putHalf(d, i, r.Merge(ones, y.NotEqual(archsimd.Int32x8{})).AsUint32x8())
		}
	}),
}

// A quotient of 32-bit integers, computed in 64-bit floats, never rounds up to
// a whole number it has not reached, so cutting it is exact. What does not fit
// (a division by zero, the smallest integer by minus one) becomes all ones
// without a sign, and the smallest integer with one. The smallest integer by
// minus one still leaves the remainder zero, since the product wraps around.

func quotientU(x, y archsimd.Uint32x8) archsimd.Uint32x8 {
	return x.ConvertToFloat64().Div(y.ConvertToFloat64()).ConvertToUint32()
}

func quotientS(x, y archsimd.Int32x8) archsimd.Int32x8 {
	return x.ConvertToFloat64().Div(y.ConvertToFloat64()).ConvertToInt32()
}

// Vector shifts by more than the width give zeros or signs, as in PTX.
var vectorLogic = map[string]any{
	"and.b32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).And(get32(b, i)))
		}
	}),
	"or.b32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Or(get32(b, i)))
		}
	}),
	"xor.b32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Xor(get32(b, i)))
		}
	}),
	"and.b64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).And(get64(b, i)))
		}
	}),
	"or.b64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Or(get64(b, i)))
		}
	}),
	"xor.b64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Xor(get64(b, i)))
		}
	}),
	"not.b32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Not())
		}
	}),
	"not.b64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Not())
		}
	}),
	"shl.b32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).ShiftLeft(get32(b, i)))
		}
	}),
	"shr.s32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).ShiftRight(signed32(b, i)).AsUint32x16())
		}
	}),
	"shr.u32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).ShiftRight(get32(b, i)))
		}
	}),
	"shl.b64": Shift64(func(d, a []uint64, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).ShiftLeft(zeroExtended(b, i)))
		}
	}),
	"shr.s64": Shift64(func(d, a []uint64, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signed64(a, i).ShiftRight(zeroExtended(b, i).AsInt64x8()).AsUint64x8())
		}
	}),
	"shr.u64": Shift64(func(d, a []uint64, b []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).ShiftRight(zeroExtended(b, i)))
		}
	}),
}

var vectorBits = map[string]any{
	"lop3.b32": Quad32(func(d, a, b, c, e []uint32) {
		if len(d) == 0 {
			return
		}
		var first, change [4]archsimd.Uint32x16
		for i := range first {
			off, on := -(e[0] >> (2 * i) & 1), -(e[0] >> (2*i + 1) & 1)
			first[i], change[i] = archsimd.BroadcastUint32x16(off), archsimd.BroadcastUint32x16(off^on)
		}
		first0, first1, first2, first3 := first[0], first[1], first[2], first[3]
		change0, change1, change2, change3 := change[0], change[1], change[2], change[3]
		for i := 0; i < len(d); i += lanes32 {
			x, y, z := get32(a, i), get32(b, i), get32(c, i)
			t0 := first0.Xor(z.And(change0))
			t1 := first1.Xor(z.And(change1))
			t2 := first2.Xor(z.And(change2))
			t3 := first3.Xor(z.And(change3))
			t0 = t0.Xor(y.And(t0.Xor(t1)))
			t2 = t2.Xor(y.And(t2.Xor(t3)))
			put32(d, i, t0.Xor(x.And(t0.Xor(t2))))
		}
	}),
	"shf.l.wrap.b32": Ternary32(func(d, a, b, c []uint32) {
		low, width := archsimd.BroadcastUint32x16(31), archsimd.BroadcastUint32x16(32)
		for i := 0; i < len(d); i += lanes32 {
			n := get32(c, i).And(low)
			put32(d, i, get32(b, i).ShiftLeft(n).Or(get32(a, i).ShiftRight(width.Sub(n))))
		}
	}),
	"shf.r.wrap.b32": Ternary32(func(d, a, b, c []uint32) {
		low, width := archsimd.BroadcastUint32x16(31), archsimd.BroadcastUint32x16(32)
		for i := 0; i < len(d); i += lanes32 {
			n := get32(c, i).And(low)
			put32(d, i, get32(a, i).ShiftRight(n).Or(get32(b, i).ShiftLeft(width.Sub(n))))
		}
	}),
	"shf.l.clamp.b32": Ternary32(func(d, a, b, c []uint32) {
		width := archsimd.BroadcastUint32x16(32)
		for i := 0; i < len(d); i += lanes32 {
			n := get32(c, i).Min(width)
			put32(d, i, get32(b, i).ShiftLeft(n).Or(get32(a, i).ShiftRight(width.Sub(n))))
		}
	}),
	"shf.r.clamp.b32": Ternary32(func(d, a, b, c []uint32) {
		width := archsimd.BroadcastUint32x16(32)
		for i := 0; i < len(d); i += lanes32 {
			n := get32(c, i).Min(width)
			put32(d, i, get32(a, i).ShiftRight(n).Or(get32(b, i).ShiftLeft(width.Sub(n))))
		}
	}),
	"bfe.u32": Ternary32(func(d, a, b, c []uint32) {
		low, width := archsimd.BroadcastUint32x16(0xff), archsimd.BroadcastUint32x16(32)
		for i := 0; i < len(d); i += lanes32 {
			unused := width.Sub(get32(c, i).And(low).Min(width))
			x := get32(a, i).ShiftRight(get32(b, i).And(low))
			put32(d, i, x.ShiftLeft(unused).ShiftRight(unused))
		}
	}),
	"bfe.s32": Ternary32(func(d, a, b, c []uint32) {
		low, width := archsimd.BroadcastInt32x16(0xff), archsimd.BroadcastInt32x16(32)
		for i := 0; i < len(d); i += lanes32 {
			unused := width.Sub(signed32(c, i).And(low).Min(width))
			x := signed32(a, i).ShiftRight(signed32(b, i).And(low))
			put32(d, i, x.ShiftLeft(unused).ShiftRight(unused).AsUint32x16())
		}
	}),
	"bfi.b32": Quad32(func(d, a, b, c, e []uint32) {
		low, one := archsimd.BroadcastUint32x16(0xff), archsimd.BroadcastUint32x16(1)
		for i := 0; i < len(d); i += lanes32 {
			pos := get32(c, i).And(low)
			field := one.ShiftLeft(get32(e, i).And(low)).Sub(one).ShiftLeft(pos)
			put32(d, i, get32(a, i).ShiftLeft(pos).And(field).Or(get32(b, i).AndNot(field)))
		}
	}),
	"prmt.b32": permuteVector,
	"clz.b32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).LeadingZeros())
		}
	}),
	"clz.b64": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, get64(a, i).LeadingZeros().TruncateToUint32())
		}
	}),
	"slct.b16.s32": chooseVector,
	"slct.b32.s32": chooseVector,
	"slct.b64.s32": Choose64(func(d, a, b []uint64, c []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			takeA := signExtended(c, i).AsInt64x8().GreaterEqual(archsimd.Int64x8{})
			put64(d, i, get64(a, i).Merge(get64(b, i), takeA))
		}
	}),
}

var chooseVector = Ternary32(func(d, a, b, c []uint32) {
	for i := 0; i < len(d); i += lanes32 {
		takeA := signed32(c, i).GreaterEqual(archsimd.Int32x16{})
		put32(d, i, get32(a, i).Merge(get32(b, i), takeA))
	}
})

// permuteVector picks a byte of the result at a time: it goes to the top of
// its lane, where its sign is, and moves down as the next ones come in.
var permuteVector = Ternary32(func(d, a, b, c []uint32) {
	three, four, eight := archsimd.BroadcastUint32x16(3), archsimd.BroadcastUint32x16(4), archsimd.BroadcastUint32x16(8)
	sign, top := archsimd.BroadcastInt32x16(31), archsimd.BroadcastUint32x16(0xff000000)
	for i := 0; i < len(d); i += lanes32 {
		low, high, selector := get32(a, i), get32(b, i), get32(c, i)
		var r archsimd.Uint32x16
		for range 4 {
			x := high.Merge(low, selector.And(four).Equal(four))
			x = x.ShiftLeft(three.Sub(selector.And(three)).ShiftAllLeft(3))
			signs := x.AsInt32x16().ShiftRight(sign).AsUint32x16()
			x = signs.Merge(x, selector.And(eight).Equal(eight))
			r = r.ShiftRight(eight).Or(x.And(top))
			selector = selector.ShiftRight(four)
		}
		put32(d, i, r)
	}
})

var vectorCounts = map[string]any{
	"popc.b32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).OnesCount())
		}
	}),
	"popc.b64": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, get64(a, i).OnesCount().TruncateToUint32())
		}
	}),
}

var vectorComparisons = map[string]any{
	"setp.eq.b32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).Equal(get32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ne.b32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).NotEqual(get32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.lt.s32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).Less(signed32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.lt.u32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).Less(get32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.le.s32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).LessEqual(signed32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.le.u32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).LessEqual(get32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.gt.s32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).Greater(signed32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.gt.u32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).Greater(get32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ge.s32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).GreaterEqual(signed32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ge.u32": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).GreaterEqual(get32(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.eq.b64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(get64(a, j).Equal(get64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ne.b64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(get64(a, j).NotEqual(get64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.lt.s64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(signed64(a, j).Less(signed64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.lt.u64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(get64(a, j).Less(get64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.le.s64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(signed64(a, j).LessEqual(signed64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.le.u64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(get64(a, j).LessEqual(get64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.gt.s64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(signed64(a, j).Greater(signed64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.gt.u64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(get64(a, j).Greater(get64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ge.s64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(signed64(a, j).GreaterEqual(signed64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ge.u64": Compare64(func(d []uint64, a, b []uint64) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes64 {
				bits |= uint64(get64(a, j).GreaterEqual(get64(b, j)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),

	// The lower halves compare as whole lanes do once they are the upper ones.
	"setp.eq.b16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).ShiftAllLeft(16).Equal(get32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ne.b16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).ShiftAllLeft(16).NotEqual(get32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.lt.s16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).ShiftAllLeft(16).Less(signed32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.lt.u16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).ShiftAllLeft(16).Less(get32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.le.s16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).ShiftAllLeft(16).LessEqual(signed32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.le.u16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).ShiftAllLeft(16).LessEqual(get32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.gt.s16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).ShiftAllLeft(16).Greater(signed32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.gt.u16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).ShiftAllLeft(16).Greater(get32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ge.s16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(signed32(a, j).ShiftAllLeft(16).GreaterEqual(signed32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
	"setp.ge.u16": Compare32(func(d []uint64, a, b []uint32) {
		for i := 0; i < len(a); i += 64 {
			var bits uint64
			for j := i; j < min(i+64, len(a)); j += lanes32 {
				bits |= uint64(get32(a, j).ShiftAllLeft(16).GreaterEqual(get32(b, j).ShiftAllLeft(16)).ToBits()) << (j - i)
			}
			d[i/64] = bits
		}
	}),
}

// installConversions covers the conversions by what they do to the bits: the
// narrower of the two types decides, or the source where it is the narrower.
func installConversions() {
	kinds := []string{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}
	width := map[string]int{"u8": 8, "s8": 8, "u16": 16, "s16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64}
	for _, to := range kinds {
		for _, from := range kinds {
			name := "cvt." + to + "." + from
			switch {
			case width[to] == 64 && width[from] == 64:
				fast[name] = Unary64(func(d, a []uint64) { copy(d, a) })
			case width[to] == 64:
				fast[name] = withTail(vectorWiden[from], plain[name])
			case width[from] == 64:
				fast[name] = withTail(vectorNarrow[to], plain[name])
			case width[to] == 32 && width[from] == 32:
				fast[name] = Unary32(func(d, a []uint32) { copy(d, a) })
			case to == "u16" && from == "s8":
				// Signed up to 16 bits and then filled with zeros: rare, and plain.
			case width[to] <= width[from]:
				fast[name] = withTail(vectorKeep[to], plain[name])
			default:
				fast[name] = withTail(vectorKeep[from], plain[name])
			}
		}
	}
}

// vectorKeep holds what each type makes of a lane: the bits it keeps, and what
// it fills the rest with.
var vectorKeep = map[string]any{
	"u8": Unary32(func(d, a []uint32) {
		low := archsimd.BroadcastUint32x16(0xff)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).And(low))
		}
	}),
	"s8": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).ShiftAllLeft(24).ShiftAllRight(24).AsUint32x16())
		}
	}),
	"u16": Unary32(func(d, a []uint32) {
		low := archsimd.BroadcastUint32x16(0xffff)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).And(low))
		}
	}),
	"s16": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).ShiftAllLeft(16).ShiftAllRight(16).AsUint32x16())
		}
	}),
}

var vectorWiden = map[string]any{
	"u8": Widen(func(d []uint64, a []uint32) {
		low := archsimd.BroadcastUint64x8(0xff)
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, zeroExtended(a, i).And(low))
		}
	}),
	"s8": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, zeroExtended(a, i).AsInt64x8().ShiftAllLeft(56).ShiftAllRight(56).AsUint64x8())
		}
	}),
	"u16": Widen(func(d []uint64, a []uint32) {
		low := archsimd.BroadcastUint64x8(0xffff)
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, zeroExtended(a, i).And(low))
		}
	}),
	"s16": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, zeroExtended(a, i).AsInt64x8().ShiftAllLeft(48).ShiftAllRight(48).AsUint64x8())
		}
	}),
	"u32": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, zeroExtended(a, i))
		}
	}),
	"s32": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signExtended(a, i))
		}
	}),
}

var vectorNarrow = map[string]any{
	"u8": Narrow(func(d []uint32, a []uint64) {
		low := archsimd.BroadcastUint32x8(0xff)
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, get64(a, i).TruncateToUint32().And(low))
		}
	}),
	"s8": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, signed64(a, i).TruncateToInt32().ShiftAllLeft(24).ShiftAllRight(24).AsUint32x8())
		}
	}),
	"u16": Narrow(func(d []uint32, a []uint64) {
		low := archsimd.BroadcastUint32x8(0xffff)
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, get64(a, i).TruncateToUint32().And(low))
		}
	}),
	"s16": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, signed64(a, i).TruncateToInt32().ShiftAllLeft(16).ShiftAllRight(16).AsUint32x8())
		}
	}),
	"u32": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, get64(a, i).TruncateToUint32())
		}
	}),
	"s32": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, get64(a, i).TruncateToUint32())
		}
	}),
}
