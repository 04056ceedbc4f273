package simt

import "muster/ptx/simt/vec"

// This file runs the arithmetic instructions, one function a shape of lane
// kernel. All go the same way: where the sources are compressed without a
// stride the kernel runs on the bases; where they have strides the
// instruction may know the stride of the result; else the kernel runs on the
// lanes of the window. Sources are expanded before the destination is
// prepared, since they may be the same register.

// arithmetic returns the function that runs a kernel, by its shape.
func arithmetic(kernel any) func(*gang, *inst) {
	switch kernel.(type) {
	case vec.Unary32:
		return runUnary32
	case vec.Binary32:
		return runBinary32
	case vec.Ternary32:
		return runTernary32
	case vec.Quad32:
		return runQuad32
	case vec.Unary64:
		return runUnary64
	case vec.Binary64:
		return runBinary64
	case vec.Ternary64:
		return runTernary64
	case vec.Widen:
		return runWiden
	case vec.Narrow:
		return runNarrow
	case vec.WidenBinary:
		return runWidenBinary
	case vec.WidenAdd:
		return runWidenAdd
	case vec.Shift64:
		return runShift64
	case vec.Extract64:
		return runExtract64
	case vec.Insert64:
		return runInsert64
	case vec.Choose64:
		return runChoose64
	case vec.Compare32:
		return runCompare32
	case vec.Compare64:
		return runCompare64
	case vec.Test32:
		return runTest32
	case vec.Test64:
		return runTest64
	case vec.Carry32:
		return runCarry32
	case vec.Carry64:
		return runCarry64
	}
	return nil
}

func runUnary32(g *gang, in *inst) {
	k := in.k.(vec.Unary32)
	fa := g.f32[in.a]
	if fa.bits&compressed != 0 && g.whole(in) {
		if fa.stride == 0 {
			k(g.c32[in.d], g.c32[in.a])
			g.f32[in.d] = form32{bits: compressed | fa.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a := g.expand32(in.a)
	d := g.out32(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	g.commit32(in)
}

func runBinary32(g *gang, in *inst) {
	k := in.k.(vec.Binary32)
	fa, fb := g.f32[in.a], g.f32[in.b]
	if fa.bits&fb.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride == 0 {
			k(g.c32[in.d], g.c32[in.a], g.c32[in.b])
			g.f32[in.d] = form32{bits: compressed | fa.bits&fb.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b := g.expand32(in.a), g.expand32(in.b)
	d := g.out32(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	g.commit32(in)
}

func runTernary32(g *gang, in *inst) {
	k := in.k.(vec.Ternary32)
	fa, fb, fc := g.f32[in.a], g.f32[in.b], g.f32[in.c]
	if fa.bits&fb.bits&fc.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride|fc.stride == 0 {
			k(g.c32[in.d], g.c32[in.a], g.c32[in.b], g.c32[in.c])
			g.f32[in.d] = form32{bits: compressed | fa.bits&fb.bits&fc.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b, c := g.expand32(in.a), g.expand32(in.b), g.expand32(in.c)
	d := g.out32(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	g.commit32(in)
}

func runQuad32(g *gang, in *inst) {
	k := in.k.(vec.Quad32)
	fa, fb, fc, fe := g.f32[in.a], g.f32[in.b], g.f32[in.c], g.f32[in.e]
	if fa.bits&fb.bits&fc.bits&fe.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride|fc.stride|fe.stride == 0 {
			k(g.c32[in.d], g.c32[in.a], g.c32[in.b], g.c32[in.c], g.c32[in.e])
			g.f32[in.d] = form32{bits: compressed | fa.bits&fb.bits&fc.bits&fe.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b, c, e := g.expand32(in.a), g.expand32(in.b), g.expand32(in.c), g.expand32(in.e)
	d := g.out32(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi], e[g.lo:g.hi])
	g.commit32(in)
}

func runUnary64(g *gang, in *inst) {
	k := in.k.(vec.Unary64)
	fa := g.f64[in.a]
	if fa.bits&compressed != 0 && g.whole(in) {
		if fa.stride == 0 {
			k(g.c64[in.d], g.c64[in.a])
			g.f64[in.d] = form64{bits: compressed | fa.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a := g.expand64(in.a)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	g.commit64(in)
}

func runBinary64(g *gang, in *inst) {
	k := in.k.(vec.Binary64)
	fa, fb := g.f64[in.a], g.f64[in.b]
	if fa.bits&fb.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride == 0 {
			k(g.c64[in.d], g.c64[in.a], g.c64[in.b])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b := g.expand64(in.a), g.expand64(in.b)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	g.commit64(in)
}

func runTernary64(g *gang, in *inst) {
	k := in.k.(vec.Ternary64)
	fa, fb, fc := g.f64[in.a], g.f64[in.b], g.f64[in.c]
	if fa.bits&fb.bits&fc.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride|fc.stride == 0 {
			k(g.c64[in.d], g.c64[in.a], g.c64[in.b], g.c64[in.c])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&fc.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b, c := g.expand64(in.a), g.expand64(in.b), g.expand64(in.c)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	g.commit64(in)
}

func runWiden(g *gang, in *inst) {
	k := in.k.(vec.Widen)
	fa := g.f32[in.a]
	if fa.bits&compressed != 0 && g.whole(in) {
		if fa.stride == 0 {
			k(g.c64[in.d], g.c32[in.a])
			g.f64[in.d] = form64{bits: compressed | fa.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a := g.expand32(in.a)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	g.commit64(in)
}

func runNarrow(g *gang, in *inst) {
	k := in.k.(vec.Narrow)
	fa := g.f64[in.a]
	if fa.bits&compressed != 0 && g.whole(in) {
		if fa.stride == 0 {
			k(g.c32[in.d], g.c64[in.a])
			g.f32[in.d] = form32{bits: compressed | fa.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a := g.expand64(in.a)
	d := g.out32(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	g.commit32(in)
}

func runWidenBinary(g *gang, in *inst) {
	k := in.k.(vec.WidenBinary)
	fa, fb := g.f32[in.a], g.f32[in.b]
	if fa.bits&fb.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride == 0 {
			k(g.c64[in.d], g.c32[in.a], g.c32[in.b])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b := g.expand32(in.a), g.expand32(in.b)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	g.commit64(in)
}

func runWidenAdd(g *gang, in *inst) {
	k := in.k.(vec.WidenAdd)
	fa, fb, fc := g.f32[in.a], g.f32[in.b], g.f64[in.c]
	if fa.bits&fb.bits&fc.bits&compressed != 0 && g.whole(in) {
		if uint64(fa.stride)|uint64(fb.stride)|fc.stride == 0 {
			k(g.c64[in.d], g.c32[in.a], g.c32[in.b], g.c64[in.c])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&fc.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b, c := g.expand32(in.a), g.expand32(in.b), g.expand64(in.c)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	g.commit64(in)
}

func runShift64(g *gang, in *inst) {
	k := in.k.(vec.Shift64)
	fa, fb := g.f64[in.a], g.f32[in.b]
	if fa.bits&fb.bits&compressed != 0 && g.whole(in) {
		if fa.stride|uint64(fb.stride) == 0 {
			k(g.c64[in.d], g.c64[in.a], g.c32[in.b])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b := g.expand64(in.a), g.expand32(in.b)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	g.commit64(in)
}

func runExtract64(g *gang, in *inst) {
	k := in.k.(vec.Extract64)
	fa, fb, fc := g.f64[in.a], g.f32[in.b], g.f32[in.c]
	if fa.bits&fb.bits&fc.bits&compressed != 0 && g.whole(in) {
		if fa.stride|uint64(fb.stride)|uint64(fc.stride) == 0 {
			k(g.c64[in.d], g.c64[in.a], g.c32[in.b], g.c32[in.c])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&fc.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b, c := g.expand64(in.a), g.expand32(in.b), g.expand32(in.c)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	g.commit64(in)
}

func runInsert64(g *gang, in *inst) {
	k := in.k.(vec.Insert64)
	fa, fb, fc, fe := g.f64[in.a], g.f64[in.b], g.f32[in.c], g.f32[in.e]
	if fa.bits&fb.bits&fc.bits&fe.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride|uint64(fc.stride)|uint64(fe.stride) == 0 {
			k(g.c64[in.d], g.c64[in.a], g.c64[in.b], g.c32[in.c], g.c32[in.e])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&fc.bits&fe.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b, c, e := g.expand64(in.a), g.expand64(in.b), g.expand32(in.c), g.expand32(in.e)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi], e[g.lo:g.hi])
	g.commit64(in)
}

func runChoose64(g *gang, in *inst) {
	k := in.k.(vec.Choose64)
	fa, fb, fc := g.f64[in.a], g.f64[in.b], g.f32[in.c]
	if fa.bits&fb.bits&fc.bits&compressed != 0 && g.whole(in) {
		if fa.stride|fb.stride|uint64(fc.stride) == 0 {
			k(g.c64[in.d], g.c64[in.a], g.c64[in.b], g.c32[in.c])
			g.f64[in.d] = form64{bits: compressed | fa.bits&fb.bits&fc.bits&uniform}
			return
		}
		if in.affine != nil && in.affine(g, in) {
			return
		}
	}
	a, b, c := g.expand64(in.a), g.expand64(in.b), g.expand32(in.c)
	d := g.out64(in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	g.commit64(in)
}

func runCompare32(g *gang, in *inst) {
	k := in.k.(vec.Compare32)
	fa, fb := g.f32[in.a], g.f32[in.b]
	if fa.bits&fb.bits&compressed != 0 {
		if fa.stride|fb.stride == 0 {
			k(g.bits[:1], g.c32[in.a], g.c32[in.b])
			g.setPredicate(in.d, spread(g.bits[0]))
			return
		}
		if in.ordered != 0 && g.compareAffine32(in) {
			return
		}
	}
	a, b := g.expand32(in.a), g.expand32(in.b)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi], b[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runTest32(g *gang, in *inst) {
	k := in.k.(vec.Test32)
	a := g.expand32(in.a)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runCarry32(g *gang, in *inst) {
	k := in.k.(vec.Carry32)
	a, b, c := g.expand32(in.a), g.expand32(in.b), g.expand32(in.c)
	d := g.out32(in)
	g.bits = g.cc
	k(d[:g.width], a, b, c, g.cc[:], g.bits[:])
	g.commit32(in)
	out, old := g.bits.and(&g.mask), g.cc.without(&g.mask)
	g.cc = out.or(&old)
}

func runCompare64(g *gang, in *inst) {
	k := in.k.(vec.Compare64)
	fa, fb := g.f64[in.a], g.f64[in.b]
	if fa.bits&fb.bits&compressed != 0 {
		if fa.stride|fb.stride == 0 {
			k(g.bits[:1], g.c64[in.a], g.c64[in.b])
			g.setPredicate(in.d, spread(g.bits[0]))
			return
		}
		if in.ordered != 0 && g.compareAffine64(in) {
			return
		}
	}
	a, b := g.expand64(in.a), g.expand64(in.b)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi], b[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runTest64(g *gang, in *inst) {
	k := in.k.(vec.Test64)
	a := g.expand64(in.a)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runCarry64(g *gang, in *inst) {
	k := in.k.(vec.Carry64)
	a, b, c := g.expand64(in.a), g.expand64(in.b), g.expand64(in.c)
	d := g.out64(in)
	g.bits = g.cc
	k(d[:g.width], a, b, c, g.cc[:], g.bits[:])
	g.commit64(in)
	out, old := g.bits.and(&g.mask), g.cc.without(&g.mask)
	g.cc = out.or(&old)
}

// setPredicate writes a predicate's active lanes.
func (g *gang) setPredicate(slot int32, bits mask) {
	d := &g.p[slot]
	for i, m := range g.mask {
		d[i] = d[i]&^m | bits[i]&m
	}
}

// spread makes each of the low 16 bits a chunk's 16 bits.
func spread(b uint64) mask {
	var m mask
	for i := range m {
		for j := range 64 / chunk {
			m[i] |= -(b & 1) & (1<<chunk - 1) << (j * chunk)
			b >>= 1
		}
	}
	return m
}
