package simt

import (
	"math/bits"

	"muster/ptx"
	"muster/ptx/simt/matrix"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensor"
)

// Matrices that the lanes of a warp hold together, in their registers. All
// instructions of this file are warp instructions: the lanes of a warp come
// together before they run. Lanes without a thread (in a block whose last warp
// is not full) hold zeros, and nothing is stored for them.

// A matrix of 8 by 8 halves lies in a register of each lane of a warp: lane 4r+c
// holds the elements 2c and 2c+1 of row r, the first in its low half.
const (
	matrixSide = 8
	rowLanes   = matrixSide / 2 // that hold a row
)

// matrixLane returns the lane that holds an element, and where in its register.
func matrixLane(row, column int) (lane, shift int) { return row*rowLanes + column/2, column % 2 * 16 }

// runMoveMatrix: d is the transpose of a.
func runMoveMatrix(g *gang, in *inst) {
	var d [maxWidth]uint32
	g.eachWarp(func(base int, active uint32) {
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			for half := range 2 {
				from, shift := matrixLane(lane%rowLanes*2+half, lane/rowLanes)
				if from < g.warp { // else that lane does not exist, and PTX leaves the result undefined
					d[base+lane] |= g.r32.lane(in.A, base+from) >> shift & 0xffff << (16 * half)
				}
			}
		}
	})
	g.writeLanes32(in, in.D, &d)
}

// runStoreMatrix: list: one register for each matrix; lane 8k+r has in a + imm the
// address of row r of matrix k. Transposed, the matrix's columns are stored as
// rows. Elements of missing threads are not stored.
func runStoreMatrix(g *gang, in *inst) {
	g.eachWarp(func(base int, active uint32) {
		for k, slot := range in.List {
			for row := range matrixSide {
				at := k*matrixSide + row
				if active>>at&1 == 0 {
					continue
				}
				addr := g.r64.lane(in.A, base+at) + uint64(in.Imm)
				if addr%(2*matrixSide) != 0 {
					g.fault(in, base+at, MisalignedAddress, addr, "")
				}
				g.storeRow(in, base, active, slot, row, base+at, addr)
			}
		}
	})
}

// storeRow stores a row of a matrix for the lane that gives its address.
func (g *gang) storeRow(in *inst, base int, active uint32, slot int32, row, lane int, addr uint64) {
	for column := range matrixSide {
		from, shift := matrixLane(row, column)
		if in.Mode == program.Transposed {
			from, shift = matrixLane(column, row)
		}
		if active>>from&1 != 0 {
			storeLane(g, in, lane, addr+uint64(2*column), uint16(g.r32.lane(slot, base+from)>>shift))
		}
	}
}

// runLoadMatrix: list: one register for each matrix; lane 8k+r has in a + imm the
// address of row r of matrix k. Transposed, the rows in memory are the matrix's
// columns. All rows of a warp are read before a register is written, since the
// register with the addresses may be among the destinations.
func runLoadMatrix(g *gang, in *inst) {
	var rows [4][matrixSide][matrixSide]uint16
	for _, slot := range in.List {
		if slot >= 0 {
			g.r32.partial(g, in, slot)
		}
	}
	g.eachWarp(func(base int, active uint32) {
		for k := range in.List {
			for row := range matrixSide {
				if at := k*matrixSide + row; active>>at&1 != 0 {
					addr := g.r64.lane(in.A, base+at) + uint64(in.Imm)
					if addr%(2*matrixSide) != 0 {
						g.fault(in, base+at, MisalignedAddress, addr, "")
					}
					for column := range matrixSide {
						rows[k][row][column] = loadLane[uint16](g, in, base+at, addr+uint64(2*column))
					}
				} else {
					rows[k][row] = [matrixSide]uint16{} // no thread gives the address: undefined in PTX
				}
			}
		}
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			row, column := lane/rowLanes, lane%rowLanes*2
			for k, slot := range in.List {
				if slot < 0 {
					continue
				}
				low, high := rows[k][row][column], rows[k][row][column+1]
				if in.Mode == program.Transposed {
					low, high = rows[k][column][row], rows[k][column+1][row]
				}
				g.r32.values[slot][base+lane] = uint32(low) | uint32(high)<<16
			}
		}
	})
}

// matrices is scratch of a gang: the elements of the matrices of the instruction
// that runs, and the unit that multiplies.
type matrices struct {
	unit tensor.Unit
	room [4][]uint64
}

// of returns room for the elements of a matrix.
func (m *matrices) of(i int, f *matrix.Fragment) []uint64 {
	if n := f.Rows * f.Cols; len(m.room[i]) < n {
		m.room[i] = make([]uint64, n)
	}
	return m.room[i][:f.Rows*f.Cols]
}

// runProduct: list: d; sources: those of a, b and c, one behind the other.
func runProduct[T regval](g *gang, in *inst) {
	multiply[T](g, in, in.K.(*matrix.WarpProduct), nil)
}

// runSparseProduct is runProduct with one more source: the register that says where the
// elements of a are.
func runSparseProduct(g *gang, in *inst) {
	k := in.K.(*matrix.SparseProduct)
	multiply[uint32](g, in, k.WarpProduct, &k.Places)
}

// multiply does a product whose matrices the warps hold in registers. places is nil if all
// elements of a are there.
func multiply[T regval](g *gang, in *inst, k *matrix.WarpProduct, places *matrix.Places) {
	r := fileOf[T](g)
	prepareProduct(g, in, r)
	m := &g.matrices
	a, b, c := m.of(0, k.Left), m.of(1, k.Right), m.of(2, k.Sum)
	var picks []int
	if places != nil {
		picks = make([]int, len(a))
	}
	g.eachWarp(func(base int, active uint32) {
		s := in.Sources
		gather(r, k.Left, s[:k.Left.Registers], base, active, a)
		s = s[k.Left.Registers:]
		gather(r, k.Right, s[:k.Right.Registers], base, active, b)
		s = s[k.Right.Registers:]
		gather(r, k.Sum, s[:k.Sum.Registers], base, active, c)
		if places == nil {
			m.unit.Multiply(&k.Product, c, c, a, b)
		} else {
			places.Picks(g.r32.values[s[k.Sum.Registers]][base:], picks)
			m.unit.MultiplySparse(&k.Product, c, c, a, b, picks)
		}
		scatter(r, k.Result, in.List, base, active, c)
	})
}

// prepareProduct gives the registers of a product a value a lane.
func prepareProduct[T regval](g *gang, in *inst, r *file[T]) {
	for _, slot := range in.Sources {
		r.expand(slot)
	}
	for _, slot := range in.List {
		if slot >= 0 {
			r.partial(g, in, slot)
		}
	}
}

// gather reads a matrix from the registers of a warp. The elements of missing
// threads are 0.
func gather[T regval](r *file[T], f *matrix.Fragment, slots []int32, base int, active uint32, to []uint64) {
	if active != 1<<shape.WarpSize-1 {
		clear(to)
	}
	width := f.Format.Bits()
	low := uint64(1)<<width - 1 // for 64 bits the shift gives 0, and 0 - 1 is all ones
	for i, slot := range slots {
		v := r.values[slot]
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			x := uint64(v[base+lane])
			for _, n := range f.Register(i, lane) {
				to[n] = x & low
				x >>= width
			}
		}
	}
}

// scatter writes a matrix to the registers of a warp.
func scatter[T regval](r *file[T], f *matrix.Fragment, slots []int32, base int, active uint32, from []uint64) {
	width := f.Format.Bits()
	for i, slot := range slots {
		if slot < 0 {
			continue
		}
		v := r.values[slot]
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			x := uint64(0)
			for e, n := range f.Register(i, lane) {
				x |= from[n] << (e * width)
			}
			v[base+lane] = T(x)
		}
	}
}

// runLoadFragment: list: registers; a + imm: address; b: register with the distance
// of rows in elements, or -1 if the distance is x.
func runLoadFragment[T regval](g *gang, in *inst) {
	f := in.K.(*matrix.Access)
	r := fileOf[T](g)
	var addr, stride [maxWidth]uint64
	g.fragmentAddresses(in, &addr, &stride)
	for i, slot := range in.List {
		var d []T
		if slot >= 0 {
			d = r.partial(g, in, slot)
		}
		g.eachWarp(func(base int, active uint32) {
			for ; active != 0; active &= active - 1 {
				lane := bits.TrailingZeros32(active)
				x := uint64(0)
				for e, n := range f.Register(i, lane) {
					x |= g.loadElement(in, base+lane, addr[base+lane], f.Offset(int(n), stride[base+lane]), f.Format.Bits()) << (e * f.Format.Bits())
				}
				if d != nil {
					d[base+lane] = T(x)
				}
			}
		})
	}
}

// runStoreFragment: sources: registers; a and b are those of runLoadFragment.
func runStoreFragment[T regval](g *gang, in *inst) {
	f := in.K.(*matrix.Access)
	r := fileOf[T](g)
	var addr, stride [maxWidth]uint64
	g.fragmentAddresses(in, &addr, &stride)
	for i, slot := range in.Sources {
		v := r.expand(slot)
		g.eachWarp(func(base int, active uint32) {
			for ; active != 0; active &= active - 1 {
				lane := bits.TrailingZeros32(active)
				x := uint64(v[base+lane])
				for e, n := range f.Register(i, lane) {
					g.storeElement(in, base+lane, addr[base+lane], f.Offset(int(n), stride[base+lane]), f.Format.Bits(), x>>(e*f.Format.Bits()))
				}
			}
		})
	}
}

// fragmentAddresses copies the addresses and strides of all lanes, since the load
// may overwrite the registers that hold them.
func (g *gang) fragmentAddresses(in *inst, addr, stride *[maxWidth]uint64) {
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			addr[lane], stride[lane] = g.r64.lane(in.A, lane)+uint64(in.Imm), uint64(in.X)
			if in.B >= 0 {
				stride[lane] = uint64(g.r32.lane(in.B, lane))
			}
		}
	}
}

// loadElement reads element n of an array of elements of width bits at addr.
func (g *gang) loadElement(in *inst, lane int, addr, n uint64, width int) uint64 {
	switch width {
	case 64:
		return loadLane[uint64](g, in, lane, addr+8*n)
	case 32:
		return uint64(loadLane[uint32](g, in, lane, addr+4*n))
	case 16:
		return uint64(loadLane[uint16](g, in, lane, addr+2*n))
	}
	bit := n * uint64(width)
	return uint64(loadLane[uint8](g, in, lane, addr+bit/8)) >> (bit % 8) & (1<<width - 1)
}

// storeElement writes element n of an array of elements of width bits at addr;
// width is 16, 32 or 64.
func (g *gang) storeElement(in *inst, lane int, addr, n uint64, width int, x uint64) {
	switch width {
	case 64:
		storeLane(g, in, lane, addr+8*n, x)
	case 32:
		storeLane(g, in, lane, addr+4*n, uint32(x))
	default:
		storeLane(g, in, lane, addr+2*n, uint16(x))
	}
}

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
