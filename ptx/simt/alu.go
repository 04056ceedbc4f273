package simt

import "muster/ptx/simt/vec"

// This file runs the arithmetic instructions, one function a shape of lane
// kernel. All go the same way. Where all sources are linear or compressed, the
// instruction may know the form of the result; if they have no stride, the
// kernel runs on one lane or on the bases. Else it runs on the lanes of the
// window. Sources are expanded before the destination is prepared, since they
// may be the same register.

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
	r32 := &g.r32
	fa := &r32.form[in.a]
	if fa.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride == 0 {
			if fa.bits&linear != 0 {
				r32.one[1][0] = fa.base
				k(r32.one[0], r32.one[1])
				r32.setUniform(in.d, r32.one[0][0])
				return
			}
			k(r32.bases[in.d], r32.chunks(in.a))
			r32.setCompressed(in.d, 0)
			return
		}
	}
	a := r32.expand(in.a)
	d := r32.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	r32.commit(g, in)
}

func runBinary32(g *gang, in *inst) {
	k := in.k.(vec.Binary32)
	r32 := &g.r32
	fa, fb := &r32.form[in.a], &r32.form[in.b]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride == 0 {
			if fa.bits&fb.bits&linear != 0 {
				r32.one[1][0] = fa.base
				r32.one[2][0] = fb.base
				k(r32.one[0], r32.one[1], r32.one[2])
				r32.setUniform(in.d, r32.one[0][0])
				return
			}
			k(r32.bases[in.d], r32.chunks(in.a), r32.chunks(in.b))
			r32.setCompressed(in.d, 0)
			return
		}
	}
	a, b := r32.expand(in.a), r32.expand(in.b)
	d := r32.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	r32.commit(g, in)
}

func runTernary32(g *gang, in *inst) {
	k := in.k.(vec.Ternary32)
	r32 := &g.r32
	fa, fb, fc := &r32.form[in.a], &r32.form[in.b], &r32.form[in.c]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride|fc.stride == 0 {
			if fa.bits&fb.bits&fc.bits&linear != 0 {
				r32.one[1][0] = fa.base
				r32.one[2][0] = fb.base
				r32.one[3][0] = fc.base
				k(r32.one[0], r32.one[1], r32.one[2], r32.one[3])
				r32.setUniform(in.d, r32.one[0][0])
				return
			}
			k(r32.bases[in.d], r32.chunks(in.a), r32.chunks(in.b), r32.chunks(in.c))
			r32.setCompressed(in.d, 0)
			return
		}
	}
	if in.outer && g.outer(in) {
		return
	}
	a, b, c := r32.expand(in.a), r32.expand(in.b), r32.expand(in.c)
	d := r32.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	r32.commit(g, in)
}

func runQuad32(g *gang, in *inst) {
	k := in.k.(vec.Quad32)
	r32 := &g.r32
	fa, fb, fc, fe := &r32.form[in.a], &r32.form[in.b], &r32.form[in.c], &r32.form[in.e]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && fe.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride|fc.stride|fe.stride == 0 {
			if fa.bits&fb.bits&fc.bits&fe.bits&linear != 0 {
				r32.one[1][0] = fa.base
				r32.one[2][0] = fb.base
				r32.one[3][0] = fc.base
				r32.one[4][0] = fe.base
				k(r32.one[0], r32.one[1], r32.one[2], r32.one[3], r32.one[4])
				r32.setUniform(in.d, r32.one[0][0])
				return
			}
			k(r32.bases[in.d], r32.chunks(in.a), r32.chunks(in.b), r32.chunks(in.c), r32.chunks(in.e))
			r32.setCompressed(in.d, 0)
			return
		}
	}
	a, b, c, e := r32.expand(in.a), r32.expand(in.b), r32.expand(in.c), r32.expand(in.e)
	d := r32.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi], e[g.lo:g.hi])
	r32.commit(g, in)
}

func runUnary64(g *gang, in *inst) {
	k := in.k.(vec.Unary64)
	r64 := &g.r64
	fa := &r64.form[in.a]
	if fa.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride == 0 {
			if fa.bits&linear != 0 {
				r64.one[1][0] = fa.base
				k(r64.one[0], r64.one[1])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r64.chunks(in.a))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a := r64.expand(in.a)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	r64.commit(g, in)
}

func runBinary64(g *gang, in *inst) {
	k := in.k.(vec.Binary64)
	r64 := &g.r64
	fa, fb := &r64.form[in.a], &r64.form[in.b]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride == 0 {
			if fa.bits&fb.bits&linear != 0 {
				r64.one[1][0] = fa.base
				r64.one[2][0] = fb.base
				k(r64.one[0], r64.one[1], r64.one[2])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r64.chunks(in.a), r64.chunks(in.b))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b := r64.expand(in.a), r64.expand(in.b)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	r64.commit(g, in)
}

func runTernary64(g *gang, in *inst) {
	k := in.k.(vec.Ternary64)
	r64 := &g.r64
	fa, fb, fc := &r64.form[in.a], &r64.form[in.b], &r64.form[in.c]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride|fc.stride == 0 {
			if fa.bits&fb.bits&fc.bits&linear != 0 {
				r64.one[1][0] = fa.base
				r64.one[2][0] = fb.base
				r64.one[3][0] = fc.base
				k(r64.one[0], r64.one[1], r64.one[2], r64.one[3])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r64.chunks(in.a), r64.chunks(in.b), r64.chunks(in.c))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b, c := r64.expand(in.a), r64.expand(in.b), r64.expand(in.c)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	r64.commit(g, in)
}

func runWiden(g *gang, in *inst) {
	k := in.k.(vec.Widen)
	r32, r64 := &g.r32, &g.r64
	fa := &r32.form[in.a]
	if fa.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride == 0 {
			if fa.bits&linear != 0 {
				r32.one[1][0] = fa.base
				k(r64.one[0], r32.one[1])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r32.chunks(in.a))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a := r32.expand(in.a)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	r64.commit(g, in)
}

func runNarrow(g *gang, in *inst) {
	k := in.k.(vec.Narrow)
	r32, r64 := &g.r32, &g.r64
	fa := &r64.form[in.a]
	if fa.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride == 0 {
			if fa.bits&linear != 0 {
				r64.one[1][0] = fa.base
				k(r32.one[0], r64.one[1])
				r32.setUniform(in.d, r32.one[0][0])
				return
			}
			k(r32.bases[in.d], r64.chunks(in.a))
			r32.setCompressed(in.d, 0)
			return
		}
	}
	a := r64.expand(in.a)
	d := r32.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi])
	r32.commit(g, in)
}

func runWidenBinary(g *gang, in *inst) {
	k := in.k.(vec.WidenBinary)
	r32, r64 := &g.r32, &g.r64
	fa, fb := &r32.form[in.a], &r32.form[in.b]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride == 0 {
			if fa.bits&fb.bits&linear != 0 {
				r32.one[1][0] = fa.base
				r32.one[2][0] = fb.base
				k(r64.one[0], r32.one[1], r32.one[2])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r32.chunks(in.a), r32.chunks(in.b))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b := r32.expand(in.a), r32.expand(in.b)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	r64.commit(g, in)
}

func runWidenAdd(g *gang, in *inst) {
	k := in.k.(vec.WidenAdd)
	r32, r64 := &g.r32, &g.r64
	fa, fb, fc := &r32.form[in.a], &r32.form[in.b], &r64.form[in.c]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if uint64(fa.stride)|uint64(fb.stride)|fc.stride == 0 {
			if fa.bits&fb.bits&fc.bits&linear != 0 {
				r32.one[1][0] = fa.base
				r32.one[2][0] = fb.base
				r64.one[3][0] = fc.base
				k(r64.one[0], r32.one[1], r32.one[2], r64.one[3])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r32.chunks(in.a), r32.chunks(in.b), r64.chunks(in.c))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b, c := r32.expand(in.a), r32.expand(in.b), r64.expand(in.c)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	r64.commit(g, in)
}

func runShift64(g *gang, in *inst) {
	k := in.k.(vec.Shift64)
	r32, r64 := &g.r32, &g.r64
	fa, fb := &r64.form[in.a], &r32.form[in.b]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|uint64(fb.stride) == 0 {
			if fa.bits&fb.bits&linear != 0 {
				r64.one[1][0] = fa.base
				r32.one[2][0] = fb.base
				k(r64.one[0], r64.one[1], r32.one[2])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r64.chunks(in.a), r32.chunks(in.b))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b := r64.expand(in.a), r32.expand(in.b)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi])
	r64.commit(g, in)
}

func runExtract64(g *gang, in *inst) {
	k := in.k.(vec.Extract64)
	r32, r64 := &g.r32, &g.r64
	fa, fb, fc := &r64.form[in.a], &r32.form[in.b], &r32.form[in.c]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|uint64(fb.stride)|uint64(fc.stride) == 0 {
			if fa.bits&fb.bits&fc.bits&linear != 0 {
				r64.one[1][0] = fa.base
				r32.one[2][0] = fb.base
				r32.one[3][0] = fc.base
				k(r64.one[0], r64.one[1], r32.one[2], r32.one[3])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r64.chunks(in.a), r32.chunks(in.b), r32.chunks(in.c))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b, c := r64.expand(in.a), r32.expand(in.b), r32.expand(in.c)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	r64.commit(g, in)
}

func runInsert64(g *gang, in *inst) {
	k := in.k.(vec.Insert64)
	r32, r64 := &g.r32, &g.r64
	fa, fb, fc, fe := &r64.form[in.a], &r64.form[in.b], &r32.form[in.c], &r32.form[in.e]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && fe.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride|uint64(fc.stride)|uint64(fe.stride) == 0 {
			if fa.bits&fb.bits&fc.bits&fe.bits&linear != 0 {
				r64.one[1][0] = fa.base
				r64.one[2][0] = fb.base
				r32.one[3][0] = fc.base
				r32.one[4][0] = fe.base
				k(r64.one[0], r64.one[1], r64.one[2], r32.one[3], r32.one[4])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r64.chunks(in.a), r64.chunks(in.b), r32.chunks(in.c), r32.chunks(in.e))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b, c, e := r64.expand(in.a), r64.expand(in.b), r32.expand(in.c), r32.expand(in.e)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi], e[g.lo:g.hi])
	r64.commit(g, in)
}

func runChoose64(g *gang, in *inst) {
	k := in.k.(vec.Choose64)
	r32, r64 := &g.r32, &g.r64
	fa, fb, fc := &r64.form[in.a], &r64.form[in.b], &r32.form[in.c]
	if fa.bits&regular != 0 && fb.bits&regular != 0 && fc.bits&regular != 0 && g.whole(in) {
		if in.affine != nil && in.affine(g, in) {
			return
		}
		if fa.stride|fb.stride|uint64(fc.stride) == 0 {
			if fa.bits&fb.bits&fc.bits&linear != 0 {
				r64.one[1][0] = fa.base
				r64.one[2][0] = fb.base
				r32.one[3][0] = fc.base
				k(r64.one[0], r64.one[1], r64.one[2], r32.one[3])
				r64.setUniform(in.d, r64.one[0][0])
				return
			}
			k(r64.bases[in.d], r64.chunks(in.a), r64.chunks(in.b), r32.chunks(in.c))
			r64.setCompressed(in.d, 0)
			return
		}
	}
	a, b, c := r64.expand(in.a), r64.expand(in.b), r32.expand(in.c)
	d := r64.out(g, in)
	k(d[g.lo:g.hi], a[g.lo:g.hi], b[g.lo:g.hi], c[g.lo:g.hi])
	r64.commit(g, in)
}

func runCompare32(g *gang, in *inst) {
	k := in.k.(vec.Compare32)
	r := &g.r32
	fa, fb := &r.form[in.a], &r.form[in.b]
	if fa.bits&regular != 0 && fb.bits&regular != 0 {
		if comparePeriodic(g, r, in, k) {
			return
		}
		if in.ordered != 0 && compareRegular(g, r, in) {
			return
		}
		if fa.stride|fb.stride == 0 {
			k(g.bits[:1], r.chunks(in.a), r.chunks(in.b))
			g.setPredicate(in.d, spread(g.bits[0]))
			return
		}
	}
	a, b := r.expand(in.a), r.expand(in.b)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi], b[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runTest32(g *gang, in *inst) {
	k := in.k.(vec.Test32)
	a := g.r32.expand(in.a)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runCarry32(g *gang, in *inst) {
	k := in.k.(vec.Carry32)
	r := &g.r32
	a, b, c := r.expand(in.a), r.expand(in.b), r.expand(in.c)
	d := r.out(g, in)
	g.bits = g.cc
	k(d[:g.width], a, b, c, g.cc[:], g.bits[:])
	r.commit(g, in)
	out, old := g.bits.and(&g.mask), g.cc.without(&g.mask)
	g.cc = out.or(&old)
}

func runCompare64(g *gang, in *inst) {
	k := in.k.(vec.Compare64)
	r := &g.r64
	fa, fb := &r.form[in.a], &r.form[in.b]
	if fa.bits&regular != 0 && fb.bits&regular != 0 {
		if comparePeriodic(g, r, in, k) {
			return
		}
		if in.ordered != 0 && compareRegular(g, r, in) {
			return
		}
		if fa.stride|fb.stride == 0 {
			k(g.bits[:1], r.chunks(in.a), r.chunks(in.b))
			g.setPredicate(in.d, spread(g.bits[0]))
			return
		}
	}
	a, b := r.expand(in.a), r.expand(in.b)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi], b[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runTest64(g *gang, in *inst) {
	k := in.k.(vec.Test64)
	a := g.r64.expand(in.a)
	lo := g.lo &^ 63
	k(g.bits[lo/64:], a[lo:g.hi])
	g.setPredicate(in.d, g.bits)
}

func runCarry64(g *gang, in *inst) {
	k := in.k.(vec.Carry64)
	r := &g.r64
	a, b, c := r.expand(in.a), r.expand(in.b), r.expand(in.c)
	d := r.out(g, in)
	g.bits = g.cc
	k(d[:g.width], a, b, c, g.cc[:], g.bits[:])
	r.commit(g, in)
	out, old := g.bits.and(&g.mask), g.cc.without(&g.mask)
	g.cc = out.or(&old)
}

// outer runs fma.rn.f32 where one factor is the same along each chunk and the
// other in each chunk, as in products of matrices.
func (g *gang) outer(in *inst) bool {
	r := &g.r32
	x, y := in.a, in.b
	if r.form[x].bits&tiled != 0 {
		x, y = y, x
	}
	if f := &r.form[x]; f.bits&regular == 0 || f.stride != 0 || r.form[y].bits&tiled == 0 || g.lo != 0 || g.hi != g.width {
		return false
	}
	a, b, c := r.chunks(x), r.tiles[y], r.expand(in.c)
	d := r.out(g, in)
	vec.FusedOuter(d, a, b, c)
	r.commit(g, in)
	return true
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
