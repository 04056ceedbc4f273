package simt

import (
	"muster/ptx"
	"muster/ptx/simt/matrix"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensor"
)

// wgmma: four warps multiply a matrix of 64 rows with one that lies in shared
// memory. Each has 16 of the rows, so that none needs the others. On a GPU it goes
// on beside the threads; here it is done at once.

// warpgroup is how many warps do a product together.
const warpgroup = 4

// runGroupProduct: list: d; sources: a, if it is in registers, d, and of wgmma.sp the
// register that says where the elements of a are; a: descriptor of A (or -1), b: that of
// B, c: a predicate, whether d is added to.
func runGroupProduct(g *gang, in *inst) {
	k := in.K.(*matrix.GroupProduct)
	r := &g.r32
	prepareProduct(g, in, r)
	var picks []int
	if k.Places != nil {
		picks = make([]int, k.Left.Rows*k.Left.Cols)
	}
	adds := g.p[in.C]
	if in.Negated {
		adds = g.mask.without(&adds)
	}
	m := &g.matrices
	a, b, c := m.of(0, k.Left), m.of(1, k.Right), m.of(2, k.Sum)
	g.eachWarp(func(base int, active uint32) {
		s := in.Sources
		lane := base + trailing(uint64(active))
		if in.A < 0 {
			gather(r, k.Left, s[:k.Left.Registers], base, active, a)
			s = s[k.Left.Registers:]
		} else {
			first := int(g.threadOf[base]) / shape.WarpSize % warpgroup * k.Left.Rows
			g.readMatrix(in, lane, matrix.Descriptor(g.r64.lane(in.A, lane)), k.A, first, k.Left.Rows, k.Left.Cols, k.ByColumnsA, a)
		}
		g.readMatrix(in, lane, matrix.Descriptor(g.r64.lane(in.B, lane)), k.B, 0, k.N, k.K, k.ByColumnsB, b)
		negate(a, k.A, k.NegateA)
		negate(b, k.B, k.NegateB)
		if adds.has(lane) {
			gather(r, k.Sum, s[:k.Sum.Registers], base, active, c)
		} else {
			clear(c)
		}
		if k.Places != nil {
			k.Places.Picks(r.values[s[k.Sum.Registers]][base:], picks)
			m.unit.MultiplySparse(&k.Product, c, c, a, b, picks)
		} else {
			m.unit.Multiply(&k.Product, c, c, a, b)
		}
		scatter(r, k.Result, in.List, base, active, c)
	})
}

// readMatrix reads lines of a matrix along K from shared memory.
func (g *gang) readMatrix(in *inst, lane int, d matrix.Descriptor, f tensor.Format, first, lines, length int, across bool, to []uint64) {
	at := *in
	at.Space = ptx.SharedSpace
	size := uint64(f.Bits() / 8)
	for i := range lines {
		for j := range length {
			addr := d.Address(uint64(first+i), uint64(j), size, across)
			to[i*length+j] = g.loadElement(&at, lane, addr, 0, f.Bits())
		}
	}
}

func negate(all []uint64, f tensor.Format, wanted bool) {
	if wanted {
		for i := range all {
			all[i] ^= 1 << (f.Bits() - 1)
		}
	}
}
