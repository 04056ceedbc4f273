//go:build goexperiment.simd

package vec

import (
	"math"
	"simd/archsimd"
)

// The float kernels in vectors. A NaN of f32 is made canonical by a merge; in
// f64, where its bits depend on the operands, the plain kernel does any vector
// that has one in its result. Minima are built from compares, since those of
// the processor care neither for NaN nor for the sign of zeros.
func installFloats() {
	install(vectorF32)
	install(vectorFtzF32)
	install(vectorF64)
	install(vectorApproximations)
	install(vectorHalf)
	install(vectorFloatConversions)
	install(comparisons(".f32", Compare32(eqVectorF32), neVectorF32, ltVectorF32, leVectorF32, numVectorF32))
	install(comparisons(".ftz.f32", Compare32(eqVectorFtzF32), neVectorFtzF32, ltVectorFtzF32, leVectorFtzF32, numVectorF32))
	install(comparisons(".f64", Compare64(eqVectorF64), neVectorF64, ltVectorF64, leVectorF64, numVectorF64))
}

func float32s(s []uint32, i int) archsimd.Float32x16 { return get32(s, i).AsFloat32x16() }
func float64s(s []uint64, i int) archsimd.Float64x8  { return get64(s, i).AsFloat64x8() }

// canonVector is the bits of arithmetic results.
func canonVector(x archsimd.Float32x16) archsimd.Uint32x16 {
	return archsimd.BroadcastUint32x16(nan32).Merge(x.AsUint32x16(), x.NotEqual(x))
}

// flushVector is what .ftz does.
func flushVector(x archsimd.Uint32x16) archsimd.Uint32x16 {
	small := x.And(archsimd.BroadcastUint32x16(inf32)).Equal(archsimd.Uint32x16{})
	return x.And(archsimd.BroadcastUint32x16(sign32)).Merge(x, small)
}

func flushedFloat32s(s []uint32, i int) archsimd.Float32x16 {
	return flushVector(get32(s, i)).AsFloat32x16()
}

// hasNaN says whether a result needs the plain kernel.
func hasNaN(x archsimd.Float64x8) bool { return x.NotEqual(x).ToBits() != 0 }

var vectorF32 = map[string]any{
	"add.rn.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).Add(float32s(b, i))))
		}
	}),
	"sub.rn.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).Sub(float32s(b, i))))
		}
	}),
	"mul.rn.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).Mul(float32s(b, i))))
		}
	}),
	"div.rn.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).Div(float32s(b, i))))
		}
	}),
	"fma.rn.f32": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).MulAdd(float32s(b, i), float32s(c, i))))
		}
	}),
	"rcp.rn.f32": Unary32(func(d, a []uint32) {
		one := archsimd.BroadcastFloat32x16(1)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(one.Div(float32s(a, i))))
		}
	}),
	"sqrt.rn.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).Sqrt()))
		}
	}),
	"min.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, minVector(get32(a, i), get32(b, i)))
		}
	}),
	"max.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, maxVector(get32(a, i), get32(b, i)))
		}
	}),
	"neg.f32": Unary32(func(d, a []uint32) {
		sign := archsimd.BroadcastUint32x16(sign32)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Xor(sign))
		}
	}),
	"abs.f32": Unary32(func(d, a []uint32) {
		sign := archsimd.BroadcastUint32x16(sign32)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).AndNot(sign))
		}
	}),
	"copysign.f32": Binary32(func(d, a, b []uint32) {
		sign := archsimd.BroadcastUint32x16(sign32)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(b, i).AndNot(sign).Or(get32(a, i).And(sign)))
		}
	}),
	"slct.b32.f32": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).Merge(get32(b, i), float32s(c, i).GreaterEqual(archsimd.Float32x16{})))
		}
	}),
}

var vectorFtzF32 = map[string]any{
	"add.rn.ftz.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(canonVector(flushedFloat32s(a, i).Add(flushedFloat32s(b, i)))))
		}
	}),
	"sub.rn.ftz.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(canonVector(flushedFloat32s(a, i).Sub(flushedFloat32s(b, i)))))
		}
	}),
	"mul.rn.ftz.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(canonVector(flushedFloat32s(a, i).Mul(flushedFloat32s(b, i)))))
		}
	}),
	"div.rn.ftz.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(canonVector(flushedFloat32s(a, i).Div(flushedFloat32s(b, i)))))
		}
	}),
	"fma.rn.ftz.f32": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(canonVector(flushedFloat32s(a, i).MulAdd(flushedFloat32s(b, i), flushedFloat32s(c, i)))))
		}
	}),
	"rcp.rn.ftz.f32": Unary32(func(d, a []uint32) {
		one := archsimd.BroadcastFloat32x16(1)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(canonVector(one.Div(flushedFloat32s(a, i)))))
		}
	}),
	"sqrt.rn.ftz.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(flushedFloat32s(a, i).Sqrt()))
		}
	}),
	"min.ftz.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, minVector(flushVector(get32(a, i)), flushVector(get32(b, i))))
		}
	}),
	"max.ftz.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, maxVector(flushVector(get32(a, i)), flushVector(get32(b, i))))
		}
	}),
	"neg.ftz.f32": Unary32(func(d, a []uint32) {
		sign := archsimd.BroadcastUint32x16(sign32)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(get32(a, i)).Xor(sign))
		}
	}),
	"abs.ftz.f32": Unary32(func(d, a []uint32) {
		sign := archsimd.BroadcastUint32x16(sign32)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(get32(a, i)).AndNot(sign))
		}
	}),
}

func minVector(x, y archsimd.Uint32x16) archsimd.Uint32x16 {
	f, g := x.AsFloat32x16(), y.AsFloat32x16()
	d := x.Merge(y, f.Less(g))           // y too if x is a NaN
	d = x.Or(y).Merge(d, f.Equal(g))     // -0 before +0
	d = x.Merge(d, g.NotEqual(g))        // x if y is a NaN
	return canonVector(d.AsFloat32x16()) // both are
}

func maxVector(x, y archsimd.Uint32x16) archsimd.Uint32x16 {
	f, g := x.AsFloat32x16(), y.AsFloat32x16()
	d := x.Merge(y, f.Greater(g))
	d = x.And(y).Merge(d, f.Equal(g))
	d = x.Merge(d, g.NotEqual(g))
	return canonVector(d.AsFloat32x16())
}

var vectorF64 = map[string]any{
	"add.rn.f64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i).Add(float64s(b, i))
			if hasNaN(x) {
				addF64(d[i:i+lanes64], a[i:i+lanes64], b[i:i+lanes64])
				continue
			}
			put64(d, i, x.AsUint64x8())
		}
	}),
	"sub.rn.f64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i).Sub(float64s(b, i))
			if hasNaN(x) {
				subF64(d[i:i+lanes64], a[i:i+lanes64], b[i:i+lanes64])
				continue
			}
			put64(d, i, x.AsUint64x8())
		}
	}),
	"mul.rn.f64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i).Mul(float64s(b, i))
			if hasNaN(x) {
				mulF64(d[i:i+lanes64], a[i:i+lanes64], b[i:i+lanes64])
				continue
			}
			put64(d, i, x.AsUint64x8())
		}
	}),
	"div.rn.f64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i).Div(float64s(b, i))
			if hasNaN(x) {
				divF64(d[i:i+lanes64], a[i:i+lanes64], b[i:i+lanes64])
				continue
			}
			put64(d, i, x.AsUint64x8())
		}
	}),
	"fma.rn.f64": Ternary64(func(d, a, b, c []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i).MulAdd(float64s(b, i), float64s(c, i))
			if hasNaN(x) {
				fmaF64(d[i:i+lanes64], a[i:i+lanes64], b[i:i+lanes64], c[i:i+lanes64])
				continue
			}
			put64(d, i, x.AsUint64x8())
		}
	}),
	"rcp.rn.f64": Unary64(func(d, a []uint64) {
		one := archsimd.BroadcastFloat64x8(1)
		for i := 0; i < len(d); i += lanes64 {
			x := one.Div(float64s(a, i))
			if hasNaN(x) {
				rcpF64(d[i:i+lanes64], a[i:i+lanes64])
				continue
			}
			put64(d, i, x.AsUint64x8())
		}
	}),
	"sqrt.rn.f64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i).Sqrt()
			if hasNaN(x) {
				sqrtF64(d[i:i+lanes64], a[i:i+lanes64])
				continue
			}
			put64(d, i, x.AsUint64x8())
		}
	}),
	"min.f64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x, y := get64(a, i), get64(b, i)
			f, g := x.AsFloat64x8(), y.AsFloat64x8()
			if hasNaN(f) || hasNaN(g) {
				minF64(d[i:i+lanes64], a[i:i+lanes64], b[i:i+lanes64])
				continue
			}
			put64(d, i, x.Or(y).Merge(x.Merge(y, f.Less(g)), f.Equal(g)))
		}
	}),
	"max.f64": Binary64(func(d, a, b []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			x, y := get64(a, i), get64(b, i)
			f, g := x.AsFloat64x8(), y.AsFloat64x8()
			if hasNaN(f) || hasNaN(g) {
				maxF64(d[i:i+lanes64], a[i:i+lanes64], b[i:i+lanes64])
				continue
			}
			put64(d, i, x.And(y).Merge(x.Merge(y, f.Greater(g)), f.Equal(g)))
		}
	}),
	"neg.f64": Unary64(func(d, a []uint64) {
		sign := archsimd.BroadcastUint64x8(sign64)
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).Xor(sign))
		}
	}),
	"abs.f64": Unary64(func(d, a []uint64) {
		sign := archsimd.BroadcastUint64x8(sign64)
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).AndNot(sign))
		}
	}),
}

// The approximations do what the plain kernels do, step by step.
var vectorApproximations = map[string]any{
	"div.full.f32":        vectorF32["div.rn.f32"],
	"div.full.ftz.f32":    vectorFtzF32["div.rn.ftz.f32"],
	"rcp.approx.f32":      vectorF32["rcp.rn.f32"],
	"rcp.approx.ftz.f32":  vectorFtzF32["rcp.rn.ftz.f32"],
	"sqrt.approx.f32":     vectorF32["sqrt.rn.f32"],
	"sqrt.approx.ftz.f32": vectorFtzF32["sqrt.rn.ftz.f32"],

	"div.approx.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, divApproxVector(get32(a, i), get32(b, i)))
		}
	}),
	"div.approx.ftz.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(divApproxVector(flushVector(get32(a, i)), flushVector(get32(b, i)))))
		}
	}),
	"rsqrt.approx.f32": Unary32(func(d, a []uint32) {
		one := archsimd.BroadcastFloat32x16(1)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(one.Div(float32s(a, i).Sqrt())))
		}
	}),
	"rsqrt.approx.ftz.f32": Unary32(func(d, a []uint32) {
		one := archsimd.BroadcastFloat32x16(1)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(one.Div(flushedFloat32s(a, i).Sqrt())))
		}
	}),
	"sin.approx.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			x := get32(a, i).AsFloat32x16()
			low, okLow := sinVector(x.GetLo().ConvertToFloat64())
			high, okHigh := sinVector(x.GetHi().ConvertToFloat64())
			if !okLow || !okHigh {
				sinF32(d[i:i+lanes32], a[i:i+lanes32])
				continue
			}
			r := archsimd.Float32x16{}.SetLo(low).SetHi(high).AsUint32x16()
			put32(d, i, r)
		}
	}),
	"sin.approx.ftz.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			x := flushVector(get32(a, i)).AsFloat32x16()
			low, okLow := sinVector(x.GetLo().ConvertToFloat64())
			high, okHigh := sinVector(x.GetHi().ConvertToFloat64())
			if !okLow || !okHigh {
				sinFtzF32(d[i:i+lanes32], a[i:i+lanes32])
				continue
			}
			r := archsimd.Float32x16{}.SetLo(low).SetHi(high).AsUint32x16()
			put32(d, i, flushVector(r))
		}
	}),
	"cos.approx.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			x := get32(a, i).AsFloat32x16()
			low, okLow := cosVector(x.GetLo().ConvertToFloat64())
			high, okHigh := cosVector(x.GetHi().ConvertToFloat64())
			if !okLow || !okHigh {
				cosF32(d[i:i+lanes32], a[i:i+lanes32])
				continue
			}
			r := archsimd.Float32x16{}.SetLo(low).SetHi(high).AsUint32x16()
			put32(d, i, r)
		}
	}),
	"cos.approx.ftz.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			x := flushVector(get32(a, i)).AsFloat32x16()
			low, okLow := cosVector(x.GetLo().ConvertToFloat64())
			high, okHigh := cosVector(x.GetHi().ConvertToFloat64())
			if !okLow || !okHigh {
				cosFtzF32(d[i:i+lanes32], a[i:i+lanes32])
				continue
			}
			r := archsimd.Float32x16{}.SetLo(low).SetHi(high).AsUint32x16()
			put32(d, i, flushVector(r))
		}
	}),
	"lg2.approx.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			r, ok := lg2Vector(get32(a, i))
			if !ok {
				lg2F32(d[i:i+lanes32], a[i:i+lanes32])
				continue
			}
			put32(d, i, r)
		}
	}),
	"lg2.approx.ftz.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			r, ok := lg2Vector(flushVector(get32(a, i)))
			if !ok {
				lg2FtzF32(d[i:i+lanes32], a[i:i+lanes32])
				continue
			}
			put32(d, i, flushVector(r))
		}
	}),
	"ex2.approx.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, exp2Vector(float32s(a, i)))
		}
	}),
	"ex2.approx.ftz.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, flushVector(exp2Vector(flushedFloat32s(a, i))))
		}
	}),
}

func divApproxVector(x, y archsimd.Uint32x16) archsimd.Uint32x16 {
	size := y.AndNot(archsimd.BroadcastUint32x16(sign32))
	large := size.Greater(archsimd.BroadcastUint32x16(0x7e800000)).And(size.Less(archsimd.BroadcastUint32x16(inf32)))
	zero := y.And(archsimd.BroadcastUint32x16(sign32)).AsFloat32x16()
	f := x.AsFloat32x16()
	return canonVector(f.Mul(zero).Merge(f.Div(y.AsFloat32x16()), large))
}

func exp2Vector(x archsimd.Float32x16) archsimd.Uint32x16 {
	least, most := archsimd.BroadcastFloat32x16(ex2Least), archsimd.BroadcastFloat32x16(ex2Most)
	x = least.Merge(x, x.Less(least))
	x = most.Merge(x, x.Greater(most))
	round := archsimd.BroadcastFloat32x16(ex2Round)
	shifted := x.Add(round)
	f := x.Sub(shifted.Sub(round))
	p := archsimd.BroadcastFloat32x16(ex2P5)
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(ex2P4))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(ex2P3))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(ex2P2))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(ex2P1))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(ex2P0))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(1))
	n := shifted.AsInt32x16().Sub(round.AsInt32x16())
	half := n.ShiftAllRight(1)
	bias := archsimd.BroadcastInt32x16(127)
	scale := half.Add(bias).ShiftAllLeft(23).AsFloat32x16()
	rest := n.Sub(half).Add(bias).ShiftAllLeft(23).AsFloat32x16()
	return canonVector(p.Mul(scale).Mul(rest))
}

// sinVector and cosVector say no to angles past the limit.
func sinVector(x archsimd.Float64x8) (archsimd.Float32x8, bool) {
	ok := withinSine(x)
	return sineVector(x).ConvertToFloat32(), ok
}

func cosVector(x archsimd.Float64x8) (archsimd.Float32x8, bool) {
	ok := withinSine(x)
	quarter := sineVector(x.Sub(archsimd.BroadcastFloat64x8(math.Pi / 2)))
	sign := archsimd.BroadcastUint64x8(sign64)
	return quarter.AsUint64x8().Xor(sign).AsFloat64x8().ConvertToFloat32(), ok
}

func withinSine(x archsimd.Float64x8) bool {
	limit := archsimd.BroadcastFloat64x8(sineLimit)
	below := x.Less(limit).ToBits()
	above := x.Greater(archsimd.BroadcastFloat64x8(-sineLimit)).ToBits()
	return below&above == 0xff
}

func sineVector(x archsimd.Float64x8) archsimd.Float64x8 {
	round := archsimd.BroadcastFloat64x8(sineRound)
	shifted := x.Mul(archsimd.BroadcastFloat64x8(sineTurns)).Add(round)
	n := shifted.Sub(round)
	r := x.Sub(n.Mul(archsimd.BroadcastFloat64x8(sinePi)))
	r = r.Sub(n.Mul(archsimd.BroadcastFloat64x8(sinePiLow)))
	u := r.Mul(r)
	p := archsimd.BroadcastFloat64x8(sineP4)
	p = p.Mul(u).Add(archsimd.BroadcastFloat64x8(sineP3))
	p = p.Mul(u).Add(archsimd.BroadcastFloat64x8(sineP2))
	p = p.Mul(u).Add(archsimd.BroadcastFloat64x8(sineP1))
	p = p.Mul(u).Add(archsimd.BroadcastFloat64x8(sineP0))
	p = p.Mul(u).Add(archsimd.BroadcastFloat64x8(1))
	odd := shifted.AsUint64x8().ShiftAllLeft(63)
	return r.Mul(p).AsUint64x8().Xor(odd).AsFloat64x8()
}

// lg2Vector says no to all but positive normal numbers.
func lg2Vector(x archsimd.Uint32x16) (archsimd.Uint32x16, bool) {
	normal := archsimd.BroadcastUint32x16(1 << 23)
	ok := x.Sub(normal).Less(archsimd.BroadcastUint32x16(inf32-1<<23)).ToBits() == 0xffff
	half := archsimd.BroadcastUint32x16(lg2Half)
	one := archsimd.BroadcastFloat32x16(1)
	x = x.Sub(half)
	e := x.AsInt32x16().ShiftAllRight(23).ConvertToFloat32()
	f := x.And(archsimd.BroadcastUint32x16(1<<23 - 1)).Add(half).AsFloat32x16().Sub(one)
	p := archsimd.BroadcastFloat32x16(lg2P8)
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P7))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P6))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P5))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P4))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P3))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P2))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P1))
	p = p.Mul(f).Add(archsimd.BroadcastFloat32x16(lg2P0))
	return p.Mul(f).Add(e).AsUint32x16(), ok
}

// In f16 sums and products of float32 are rounded again, which does no harm; a
// fused sum is rounded to odd first.
var vectorHalf = map[string]any{
	"add.rn.f16": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toHalfVector(lowHalves(a, i).Add(lowHalves(b, i)).AsUint32x16()))
		}
	}),
	"add.rn.f16x2": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			low := toHalfVector(lowHalves(a, i).Add(lowHalves(b, i)).AsUint32x16())
			high := toHalfVector(highHalves(a, i).Add(highHalves(b, i)).AsUint32x16())
			put32(d, i, high.ShiftAllLeft(16).Or(low))
		}
	}),
	"sub.rn.f16": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toHalfVector(lowHalves(a, i).Sub(lowHalves(b, i)).AsUint32x16()))
		}
	}),
	"sub.rn.f16x2": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			low := toHalfVector(lowHalves(a, i).Sub(lowHalves(b, i)).AsUint32x16())
			high := toHalfVector(highHalves(a, i).Sub(highHalves(b, i)).AsUint32x16())
			put32(d, i, high.ShiftAllLeft(16).Or(low))
		}
	}),
	"mul.rn.f16": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toHalfVector(lowHalves(a, i).Mul(lowHalves(b, i)).AsUint32x16()))
		}
	}),
	"mul.rn.f16x2": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			low := toHalfVector(lowHalves(a, i).Mul(lowHalves(b, i)).AsUint32x16())
			high := toHalfVector(highHalves(a, i).Mul(highHalves(b, i)).AsUint32x16())
			put32(d, i, high.ShiftAllLeft(16).Or(low))
		}
	}),
	"fma.rn.f16": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toHalfVector(oddFmaVector(lowHalves(a, i), lowHalves(b, i), lowHalves(c, i))))
		}
	}),
	"fma.rn.f16x2": Ternary32(func(d, a, b, c []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			low := toHalfVector(oddFmaVector(lowHalves(a, i), lowHalves(b, i), lowHalves(c, i)))
			high := toHalfVector(oddFmaVector(highHalves(a, i), highHalves(b, i), highHalves(c, i)))
			put32(d, i, high.ShiftAllLeft(16).Or(low))
		}
	}),
}

func lowHalves(s []uint32, i int) archsimd.Float32x16 {
	return halfVector(get32(s, i)).AsFloat32x16()
}

func highHalves(s []uint32, i int) archsimd.Float32x16 {
	return halfVector(get32(s, i).ShiftRight(archsimd.BroadcastUint32x16(16))).AsFloat32x16()
}

// oddFmaVector is what oddSum is of products of f16, which are exact in
// float32 already.
func oddFmaVector(x, y, c archsimd.Float32x16) archsimd.Uint32x16 {
	one := archsimd.BroadcastUint32x16(1)
	p := x.Mul(y)
	s := p.Add(c)
	v := s.Sub(p)
	rest := p.Sub(s.Sub(v)).Add(c.Sub(v))
	bits := s.AsUint32x16()
	zero := archsimd.Float32x16{}
	inexact := rest.Less(zero).Or(rest.Greater(zero)).And(bits.And(one).Equal(archsimd.Uint32x16{}))
	signs := rest.AsUint32x16().Xor(bits).AsInt32x16()
	grow := signs.GreaterEqual(archsimd.Int32x16{})
	odd := bits.Add(one).Merge(bits.Sub(one), grow)
	return odd.Merge(bits, inexact)
}

var vectorFloatConversions = map[string]any{
	"cvt.rn.f32.s32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).ConvertToFloat32().AsUint32x16())
		}
	}),
	"cvt.rn.f32.u32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).ConvertToFloat32().AsUint32x16())
		}
	}),
	"cvt.rn.f64.s32": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, getHalf(a, i).AsInt32x8().ConvertToFloat64().AsUint64x8())
		}
	}),
	"cvt.rn.f64.u32": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, getHalf(a, i).ConvertToFloat64().AsUint64x8())
		}
	}),
	"cvt.rzi.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(float32s(a, i)))
		}
	}),
	"cvt.rzi.u32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, u32Vector(float32s(a, i)))
		}
	}),
	"cvt.rzi.ftz.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(flushedFloat32s(a, i)))
		}
	}),
	"cvt.rzi.f32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).TruncScaled(0)))
		}
	}),
	"cvt.rni.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(float32s(a, i).RoundToEvenScaled(0)))
		}
	}),
	"cvt.rni.u32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, u32Vector(float32s(a, i).RoundToEvenScaled(0)))
		}
	}),
	"cvt.rni.ftz.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(flushedFloat32s(a, i).RoundToEvenScaled(0)))
		}
	}),
	"cvt.rni.f32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).RoundToEvenScaled(0)))
		}
	}),
	"cvt.rmi.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(float32s(a, i).FloorScaled(0)))
		}
	}),
	"cvt.rmi.u32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, u32Vector(float32s(a, i).FloorScaled(0)))
		}
	}),
	"cvt.rmi.ftz.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(flushedFloat32s(a, i).FloorScaled(0)))
		}
	}),
	"cvt.rmi.f32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).FloorScaled(0)))
		}
	}),
	"cvt.rpi.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(float32s(a, i).CeilScaled(0)))
		}
	}),
	"cvt.rpi.u32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, u32Vector(float32s(a, i).CeilScaled(0)))
		}
	}),
	"cvt.rpi.ftz.s32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, s32Vector(flushedFloat32s(a, i).CeilScaled(0)))
		}
	}),
	"cvt.rpi.f32.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(float32s(a, i).CeilScaled(0)))
		}
	}),
	"cvt.rzi.s32.f64": Narrow(func(d []uint32, a []uint64) {
		most := archsimd.BroadcastFloat64x8(1<<31 - 1)
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i)
			x = most.Merge(x, x.Greater(most))
			putHalf(d, i, x.ConvertToInt32().AsUint32x8()) // the rest of what does not fit has the highest bit alone
		}
	}),
	"cvt.rzi.u32.f64": Narrow(func(d []uint32, a []uint64) {
		zero, top := archsimd.Float64x8{}, archsimd.BroadcastFloat64x8(1<<31)
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i)
			x = zero.Merge(x, x.Less(zero))
			x = top.Merge(x, x.NotEqual(x))
			putHalf(d, i, x.ConvertToUint32()) // what is too large becomes all ones
		}
	}),
	"cvt.rn.f32.u8": Unary32(func(d, a []uint32) {
		low := archsimd.BroadcastUint32x16(0xff)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).And(low).ConvertToFloat32().AsUint32x16())
		}
	}),
	"cvt.rn.f32.u16": Unary32(func(d, a []uint32) {
		low := archsimd.BroadcastUint32x16(0xffff)
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, get32(a, i).And(low).ConvertToFloat32().AsUint32x16())
		}
	}),
	"cvt.rn.f32.s8": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).ShiftAllLeft(24).ShiftAllRight(24).ConvertToFloat32().AsUint32x16())
		}
	}),
	"cvt.rn.f32.s16": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, signed32(a, i).ShiftAllLeft(16).ShiftAllRight(16).ConvertToFloat32().AsUint32x16())
		}
	}),
	"cvt.rn.f64.s64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, signed64(a, i).ConvertToFloat64().AsUint64x8())
		}
	}),
	"cvt.rn.f64.u64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, get64(a, i).ConvertToFloat64().AsUint64x8())
		}
	}),
	"cvt.rn.f32.s64": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, signed64(a, i).ConvertToFloat32().AsUint32x8())
		}
	}),
	"cvt.rn.f32.u64": Narrow(func(d []uint32, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			putHalf(d, i, get64(a, i).ConvertToFloat32().AsUint32x8())
		}
	}),
	"cvt.rzi.s64.f64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, s64Vector(float64s(a, i)))
		}
	}),
	"cvt.rzi.u64.f64": Unary64(func(d, a []uint64) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, u64Vector(float64s(a, i)))
		}
	}),
	"cvt.rzi.s64.f32": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, s64Vector(getHalf(a, i).AsFloat32x8().ConvertToFloat64()))
		}
	}),
	"cvt.rzi.u64.f32": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, u64Vector(getHalf(a, i).AsFloat32x8().ConvertToFloat64()))
		}
	}),
	"cvt.f64.f32": Widen(func(d []uint64, a []uint32) {
		for i := 0; i < len(d); i += lanes64 {
			put64(d, i, getHalf(a, i).AsFloat32x8().ConvertToFloat64().AsUint64x8())
		}
	}),
	"cvt.rn.f32.f64": Narrow(func(d []uint32, a []uint64) {
		nan := archsimd.BroadcastUint32x8(nan32)
		for i := 0; i < len(d); i += lanes64 {
			x := float64s(a, i).ConvertToFloat32()
			putHalf(d, i, nan.Merge(x.AsUint32x8(), x.NotEqual(x)))
		}
	}),
	"cvt.f32.f16": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, halfVector(get32(a, i)))
		}
	}),
	"cvt.f32.bf16": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, canonVector(get32(a, i).ShiftAllLeft(16).AsFloat32x16()))
		}
	}),
	"cvt.rn.f16.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toHalfVector(get32(a, i)))
		}
	}),
	"cvt.rn.bf16.f32": Unary32(func(d, a []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toBrainVector(get32(a, i)))
		}
	}),
	"cvt.rn.f16x2.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toHalfVector(get32(a, i)).ShiftAllLeft(16).Or(toHalfVector(get32(b, i))))
		}
	}),
	"cvt.rn.bf16x2.f32": Binary32(func(d, a, b []uint32) {
		for i := 0; i < len(d); i += lanes32 {
			put32(d, i, toBrainVector(get32(a, i)).ShiftAllLeft(16).Or(toBrainVector(get32(b, i))))
		}
	}),
}

// s32Vector cuts to integers. What does not fit comes out as the highest bit
// alone, which is right for what is too small.
func s32Vector(x archsimd.Float32x16) archsimd.Uint32x16 {
	d := x.ConvertToInt32().AsUint32x16()
	d = archsimd.BroadcastUint32x16(1<<31-1).Merge(d, x.GreaterEqual(archsimd.BroadcastFloat32x16(1<<31)))
	return d.Masked(x.Equal(x))
}

// u32Vector does too; here what does not fit is all ones, which is right for
// what is too large.
func u32Vector(x archsimd.Float32x16) archsimd.Uint32x16 {
	return x.ConvertToUint32().Masked(x.GreaterEqual(archsimd.Float32x16{}))
}

// In 64 bits a NaN becomes the highest bit alone.

func s64Vector(x archsimd.Float64x8) archsimd.Uint64x8 {
	d := x.ConvertToInt64().AsUint64x8()
	return archsimd.BroadcastUint64x8(1<<63-1).Merge(d, x.GreaterEqual(archsimd.BroadcastFloat64x8(1<<63)))
}

func u64Vector(x archsimd.Float64x8) archsimd.Uint64x8 {
	d := x.ConvertToUint64().Masked(x.GreaterEqual(archsimd.Float64x8{}))
	return archsimd.BroadcastUint64x8(1<<63).Merge(d, x.NotEqual(x))
}

func halfVector(x archsimd.Uint32x16) archsimd.Uint32x16 {
	sign := x.ShiftAllLeft(16).And(archsimd.BroadcastUint32x16(sign32))
	rest := x.And(archsimd.BroadcastUint32x16(0x7fff))
	d := rest.ShiftAllLeft(13).AsFloat32x16().Mul(archsimd.BroadcastFloat32x16(0x1p112)).AsUint32x16()
	infinite := archsimd.BroadcastUint32x16(0x7c00)
	d = archsimd.BroadcastUint32x16(inf32).Merge(d, rest.Equal(infinite)).Or(sign)
	return archsimd.BroadcastUint32x16(nan32).Merge(d, rest.Greater(infinite))
}

// toHalfVector rounds in the integers: a half of the last place is added, less
// a little if the last bit is even. Subnormals are rounded by an addition, in
// whose sum they end at the last bit.
func toHalfVector(x archsimd.Uint32x16) archsimd.Uint32x16 {
	one, places := archsimd.BroadcastUint32x16(1), archsimd.BroadcastUint32x16(13)
	size := x.AndNot(archsimd.BroadcastUint32x16(sign32))
	sign := x.Sub(size).ShiftRight(archsimd.BroadcastUint32x16(16))
	even := size.ShiftRight(places).And(one)
	d := size.Sub(archsimd.BroadcastUint32x16(112<<23 - 0xfff)).Add(even).ShiftRight(places)
	half := archsimd.BroadcastFloat32x16(0.5)
	small := size.AsFloat32x16().Add(half).AsUint32x16().Sub(half.AsUint32x16())
	d = small.Merge(d, size.Less(archsimd.BroadcastUint32x16(113<<23)))
	d = archsimd.BroadcastUint32x16(0x7c00).Merge(d, size.GreaterEqual(archsimd.BroadcastUint32x16(143<<23))).Or(sign)
	return archsimd.BroadcastUint32x16(0x7fff).Merge(d, size.Greater(archsimd.BroadcastUint32x16(inf32)))
}

func toBrainVector(x archsimd.Uint32x16) archsimd.Uint32x16 {
	places := archsimd.BroadcastUint32x16(16)
	even := x.ShiftRight(places).And(archsimd.BroadcastUint32x16(1))
	d := x.Add(archsimd.BroadcastUint32x16(0x7fff)).Add(even).ShiftRight(places)
	f := x.AsFloat32x16()
	return archsimd.BroadcastUint32x16(0x7fff).Merge(d, f.NotEqual(f))
}

func eqVectorF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := float32s(a, j), float32s(b, j)
			bits |= uint64(x.Equal(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func neVectorF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := float32s(a, j), float32s(b, j)
			bits |= uint64(x.Less(y).Or(x.Greater(y)).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func ltVectorF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := float32s(a, j), float32s(b, j)
			bits |= uint64(x.Less(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func leVectorF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := float32s(a, j), float32s(b, j)
			bits |= uint64(x.LessEqual(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func numVectorF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := float32s(a, j), float32s(b, j)
			bits |= uint64(x.Equal(x).And(y.Equal(y)).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func eqVectorFtzF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := flushedFloat32s(a, j), flushedFloat32s(b, j)
			bits |= uint64(x.Equal(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func neVectorFtzF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := flushedFloat32s(a, j), flushedFloat32s(b, j)
			bits |= uint64(x.Less(y).Or(x.Greater(y)).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func ltVectorFtzF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := flushedFloat32s(a, j), flushedFloat32s(b, j)
			bits |= uint64(x.Less(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func leVectorFtzF32(d []uint64, a, b []uint32) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes32 {
			x, y := flushedFloat32s(a, j), flushedFloat32s(b, j)
			bits |= uint64(x.LessEqual(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func eqVectorF64(d []uint64, a, b []uint64) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes64 {
			x, y := float64s(a, j), float64s(b, j)
			bits |= uint64(x.Equal(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func neVectorF64(d []uint64, a, b []uint64) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes64 {
			x, y := float64s(a, j), float64s(b, j)
			bits |= uint64(x.Less(y).Or(x.Greater(y)).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func ltVectorF64(d []uint64, a, b []uint64) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes64 {
			x, y := float64s(a, j), float64s(b, j)
			bits |= uint64(x.Less(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func leVectorF64(d []uint64, a, b []uint64) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes64 {
			x, y := float64s(a, j), float64s(b, j)
			bits |= uint64(x.LessEqual(y).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

func numVectorF64(d []uint64, a, b []uint64) {
	for i := 0; i < len(a); i += 64 {
		var bits uint64
		for j := i; j < min(i+64, len(a)); j += lanes64 {
			x, y := float64s(a, j), float64s(b, j)
			bits |= uint64(x.Equal(x).And(y.Equal(y)).ToBits()) << (j - i)
		}
		d[i/64] = bits
	}
}

// fusedOuterVector is fusedOuter; a chunk is a vector.
func fusedOuterVector(d, a, b, c []uint32) {
	row := float32s(b, 0)
	a = a[:len(d)/lanes32]
	for i, x := range a {
		put32(d, i*lanes32, canonVector(row.MulAdd(archsimd.BroadcastUint32x16(x).AsFloat32x16(), float32s(c, i*lanes32))))
	}
	archsimd.ClearAVXUpperBits()
}
