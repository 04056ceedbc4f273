package simt

import (
	"muster/ptx"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensor"
)

// wgmma: four warps multiply a matrix of 64 rows with one that lies in shared
// memory. Each has 16 of the rows, so that none needs the others. On a GPU it goes
// on beside the threads; here it is done at once.

// groupProduct is what wgmma.mma_async does for a warp.
type groupProduct struct {
	matrixProduct
	byColumnsA, byColumnsB bool // how the matrices lie in memory: A with columns, B with rows one behind the other
	negateA, negateB       bool
	places                 *sparsePlaces // of wgmma.sp, which has half of A
}

// warpgroup is how many warps do a product together.
const warpgroup = 4

// matrixDescriptor says where a matrix lies in shared memory: bits 0 to 13 are the
// address, 16 to 29 and 32 to 45 two distances, all in units of 16 bytes, and 62
// and 63 how chunks of 16 bytes are swapped.
type matrixDescriptor uint64

func (d matrixDescriptor) start() uint64   { return uint64(d) & 0x3fff << 4 }
func (d matrixDescriptor) leading() uint64 { return uint64(d) >> 16 & 0x3fff << 4 }
func (d matrixDescriptor) stride() uint64  { return uint64(d) >> 32 & 0x3fff << 4 }
func (d matrixDescriptor) base() uint64    { return uint64(d) >> 49 & 7 }

// swizzle returns how many bytes a row of eight has, of which chunks are swapped; 16
// if none are.
func (d matrixDescriptor) swizzle() uint64 { return [...]uint64{16, 128, 64, 32}[d>>62] }

// address returns where an element lies. Outer is its row of A or its column of B,
// inner its place along K; size is its bytes. Byte for byte along K unless across.
func (d matrixDescriptor) address(outer, inner, size uint64, across bool) uint64 {
	width := d.swizzle()
	var at uint64
	if across {
		line := width / size // elements along the outer dimension
		near, far := d.leading(), d.stride()
		if width == 16 {
			near, far = far, near
		}
		at = outer%line*size + outer/line*near + inner%8*width + inner/8*far
	} else {
		chunk := inner * size / 16
		step := uint64(16)
		if width == 16 {
			step = d.leading()
		}
		at = outer%8*width + outer/8*d.stride() + chunk*step + inner*size%16
	}
	at += d.start()
	if width > 16 {
		row := at>>7 - d.base()
		at ^= row & (width/16 - 1) << 4
	}
	return at
}

// runGroupProduct: list: d; sources: a, if it is in registers, d, and of wgmma.sp the
// register that says where the elements of a are; a: descriptor of A (or -1), b: that of
// B, c: a predicate, whether d is added to.
func runGroupProduct(g *gang, in *inst) {
	k := in.k.(*groupProduct)
	r := &g.r32
	for _, slot := range in.sources {
		r.expand(slot)
	}
	for _, slot := range in.list {
		if slot >= 0 {
			r.partial(g, in, slot)
		}
	}
	var picks []int
	if k.places != nil {
		picks = make([]int, k.a.rows*k.a.cols)
	}
	adds := g.p[in.c]
	if in.negated {
		adds = g.mask.without(&adds)
	}
	m := &g.matrices
	a, b, c := m.of(0, k.a), m.of(1, k.b), m.of(2, k.c)
	g.eachWarp(func(base int, active uint32) {
		s := in.sources
		lane := base + trailing(uint64(active))
		if in.a < 0 {
			gather(r, k.a, s[:k.a.registers], base, active, a)
			s = s[k.a.registers:]
		} else {
			first := int(g.threadOf[base]) / shape.WarpSize % warpgroup * k.a.rows
			g.readMatrix(in, lane, matrixDescriptor(g.r64.lane(in.a, lane)), k.A, first, k.a.rows, k.a.cols, k.byColumnsA, a)
		}
		g.readMatrix(in, lane, matrixDescriptor(g.r64.lane(in.b, lane)), k.B, 0, k.N, k.K, k.byColumnsB, b)
		negate(a, k.A, k.negateA)
		negate(b, k.B, k.negateB)
		if adds.has(lane) {
			gather(r, k.c, s[:k.c.registers], base, active, c)
		} else {
			clear(c)
		}
		if k.places != nil {
			k.places.picks(r.values[s[k.c.registers]][base:], picks)
			m.unit.MultiplySparse(&k.Product, c, c, a, b, picks)
		} else {
			m.unit.Multiply(&k.Product, c, c, a, b)
		}
		scatter(r, k.d, in.list, base, active, c)
	})
}

// readMatrix reads lines of a matrix along K from shared memory.
func (g *gang) readMatrix(in *inst, lane int, d matrixDescriptor, f tensor.Format, first, lines, length int, across bool, to []uint64) {
	at := *in
	at.space = ptx.SharedSpace
	size := uint64(f.Bits() / 8)
	for i := range lines {
		for j := range length {
			addr := d.address(uint64(first+i), uint64(j), size, across)
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
