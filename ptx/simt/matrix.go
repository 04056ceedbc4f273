package simt

import (
	"math/bits"

	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensor"
)

// Matrices that the lanes of a warp hold together, in their registers. All
// instructions of this file are warp instructions: the lanes of a warp come
// together before they run. Lanes without a thread (in a block whose last warp
// is not full) hold zeros, and nothing is stored for them.

// transposed is the mode of stmatrix.trans and ldmatrix.trans.
const transposed = 1

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
					d[base+lane] |= g.r32.lane(in.a, base+from) >> shift & 0xffff << (16 * half)
				}
			}
		}
	})
	g.writeLanes32(in, in.d, &d)
}

// runStoreMatrix: list: one register for each matrix; lane 8k+r has in a + imm the
// address of row r of matrix k. Transposed, the matrix's columns are stored as
// rows. Elements of missing threads are not stored.
func runStoreMatrix(g *gang, in *inst) {
	g.eachWarp(func(base int, active uint32) {
		for k, slot := range in.list {
			for row := range matrixSide {
				at := k*matrixSide + row
				if active>>at&1 == 0 {
					continue
				}
				addr := g.r64.lane(in.a, base+at) + uint64(in.imm)
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
		if in.mode == transposed {
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
	for _, slot := range in.list {
		if slot >= 0 {
			g.r32.partial(g, in, slot)
		}
	}
	g.eachWarp(func(base int, active uint32) {
		for k := range in.list {
			for row := range matrixSide {
				if at := k*matrixSide + row; active>>at&1 != 0 {
					addr := g.r64.lane(in.a, base+at) + uint64(in.imm)
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
			for k, slot := range in.list {
				if slot < 0 {
					continue
				}
				low, high := rows[k][row][column], rows[k][row][column+1]
				if in.mode == transposed {
					low, high = rows[k][column][row], rows[k][column+1][row]
				}
				g.r32.values[slot][base+lane] = uint32(low) | uint32(high)<<16
			}
		}
	})
}

// fragment says how the lanes of a warp hold a matrix: place has, for each
// register, each lane and each element in the register (the lowest bits first),
// the number of that element in the matrix. Several places may hold the same
// element.
type fragment struct {
	format     tensor.Format
	rows, cols int
	byColumns  bool // elements are numbered column by column, else row by row
	registers  int
	each       int // elements of a register
	place      []int16
}

// register returns the elements that a register of a lane holds.
func (f *fragment) register(r, lane int) []int16 {
	return f.place[(r*shape.WarpSize+lane)*f.each:][:f.each]
}

// newFragment makes a fragment; at returns row and column of element e in register
// r of a lane.
func newFragment(format tensor.Format, rows, cols, registers int, byColumns bool, at func(r, lane, e int) (row, col int)) *fragment {
	f := &fragment{format: format, rows: rows, cols: cols, byColumns: byColumns, registers: registers, each: max(1, 32/format.Bits())}
	for r := range registers {
		for lane := range shape.WarpSize {
			for e := range f.each {
				row, col := at(r, lane, e)
				n := row*cols + col
				if byColumns {
					n = col*rows + row
				}
				f.place = append(f.place, int16(n))
			}
		}
	}
	return f
}

// matrixProduct is what mma and wmma.mma do.
type matrixProduct struct {
	tensor.Product
	a, b, c, d *fragment
}

// matrices is scratch of a gang: the elements of the matrices of the instruction
// that runs, and the unit that multiplies.
type matrices struct {
	unit tensor.Unit
	room [4][]uint64
}

// of returns room for the elements of a matrix.
func (m *matrices) of(i int, f *fragment) []uint64 {
	if n := f.rows * f.cols; len(m.room[i]) < n {
		m.room[i] = make([]uint64, n)
	}
	return m.room[i][:f.rows*f.cols]
}

// runProduct: list: d; sources: those of a, b and c, one behind the other.
func runProduct[T regval](g *gang, in *inst) {
	k := in.k.(*matrixProduct)
	r := fileOf[T](g)
	for _, slot := range in.sources {
		r.expand(slot)
	}
	for _, slot := range in.list {
		if slot >= 0 {
			r.partial(g, in, slot)
		}
	}
	m := &g.matrices
	a, b, c := m.of(0, k.a), m.of(1, k.b), m.of(2, k.c)
	g.eachWarp(func(base int, active uint32) {
		s := in.sources
		gather(r, k.a, s[:k.a.registers], base, active, a)
		s = s[k.a.registers:]
		gather(r, k.b, s[:k.b.registers], base, active, b)
		gather(r, k.c, s[k.b.registers:], base, active, c)
		m.unit.Multiply(&k.Product, c, c, a, b)
		scatter(r, k.d, in.list, base, active, c)
	})
}

// sparseProduct is what mma.sp does.
type sparseProduct struct {
	*matrixProduct
	places sparsePlaces
}

// sparsePlaces says where a warp holds the places of the elements of a sparse matrix. Of
// every four elements of a row that lie side by side only half are in registers. Four
// bits say which: the place of the first in the low two bits, that of the second in the
// high two. An element of TF32 counts as two halves there, and two elements of four bits,
// which are there or left out together, as one.
type sparsePlaces struct {
	format     tensor.Format
	rows, cols int // cols with what is left out
	selector   int // which threads of every four hold these bits
}

// unit returns how many elements a place of two bits stands for, and how many places an
// element has.
func (s *sparsePlaces) unit() (elements, places int) {
	switch s.format.Bits() {
	case 32:
		return 1, 2
	case 4:
		return 2, 1
	}
	return 1, 1
}

// selectors returns how many sets of threads can hold the bits of a whole matrix.
func (s *sparsePlaces) selectors() int { return 4 / s.holders() }

// holders returns how many threads of every four hold the bits of two rows.
func (s *sparsePlaces) holders() int { return s.rows * s.nibbles() * 4 / (8 * 32) }

// nibbles returns how many times four bits a row has.
func (s *sparsePlaces) nibbles() int {
	elements, places := s.unit()
	return s.cols * places / elements / 4
}

// holder returns which lane of a warp holds four bits of a row, and where in its
// register: that is how NVIDIA's GPUs want them.
func (s *sparsePlaces) holder(row, nibble int) (lane, shift int) {
	below, lane := row/8, row%8*4+s.selector*s.holders()
	switch {
	case s.format.Bits() > 8: // a register has four for each of the two rows, then the next thread goes on
		return lane + nibble/4, below*16 + nibble%4*4
	default: // a register has eight of one row
		return lane + below + nibble/8*2, nibble % 8 * 4
	}
}

// picks finds out, of every element that is there, row by row, its place in its row.
// bits are the registers of the warp's lanes that hold the places.
func (s *sparsePlaces) picks(bits []uint32, to []int) {
	elements, places := s.unit()
	for i := range to {
		row, column := i/(s.cols/2), i%(s.cols/2)
		if places == 2 {
			lane, shift := s.holder(row, column)
			to[i] = 2*column + int(bits[lane]>>shift&2)/2
			continue
		}
		place := column / elements
		lane, shift := s.holder(row, place/2)
		at := place/2*4 + int(bits[lane]>>(shift+place%2*2)&3)
		to[i] = at*elements + column%elements
	}
}

// runSparseProduct: list: d; sources: those of a, b and c, one behind the other, then
// the register that says where the elements of a are.
func runSparseProduct(g *gang, in *inst) {
	k := in.k.(*sparseProduct)
	r := &g.r32
	for _, slot := range in.sources {
		r.expand(slot)
	}
	for _, slot := range in.list {
		if slot >= 0 {
			r.partial(g, in, slot)
		}
	}
	m := &g.matrices
	a, b, c := m.of(0, k.a), m.of(1, k.b), m.of(2, k.c)
	picks := make([]int, len(a))
	g.eachWarp(func(base int, active uint32) {
		s := in.sources
		gather(r, k.a, s[:k.a.registers], base, active, a)
		s = s[k.a.registers:]
		gather(r, k.b, s[:k.b.registers], base, active, b)
		s = s[k.b.registers:]
		gather(r, k.c, s[:k.c.registers], base, active, c)
		k.places.picks(r.values[s[k.c.registers]][base:], picks)
		m.unit.MultiplySparse(&k.Product, c, c, a, b, picks)
		scatter(r, k.d, in.list, base, active, c)
	})
}

// gather reads a matrix from the registers of a warp. The elements of missing
// threads are 0.
func gather[T regval](r *file[T], f *fragment, slots []int32, base int, active uint32, to []uint64) {
	if active != 1<<shape.WarpSize-1 {
		clear(to)
	}
	width := f.format.Bits()
	low := uint64(1)<<width - 1 // for 64 bits the shift gives 0, and 0 - 1 is all ones
	for i, slot := range slots {
		v := r.values[slot]
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			x := uint64(v[base+lane])
			for _, n := range f.register(i, lane) {
				to[n] = x & low
				x >>= width
			}
		}
	}
}

// scatter writes a matrix to the registers of a warp.
func scatter[T regval](r *file[T], f *fragment, slots []int32, base int, active uint32, from []uint64) {
	width := f.format.Bits()
	for i, slot := range slots {
		if slot < 0 {
			continue
		}
		v := r.values[slot]
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			x := uint64(0)
			for e, n := range f.register(i, lane) {
				x |= from[n] << (e * width)
			}
			v[base+lane] = T(x)
		}
	}
}

// fragmentAccess is how wmma.load and wmma.store move a fragment.
type fragmentAccess struct {
	*fragment
	byColumns bool // in memory
}

// offset returns where element n lies in memory, counted in elements; stride is
// the distance from one row, or column, to the next.
func (f *fragmentAccess) offset(n int, stride uint64) uint64 {
	row, col := n/f.cols, n%f.cols
	if f.fragment.byColumns {
		row, col = n%f.rows, n/f.rows
	}
	if f.byColumns {
		row, col = col, row
	}
	return uint64(row)*stride + uint64(col)
}

// runLoadFragment: list: registers; a + imm: address; b: register with the distance
// of rows in elements, or -1 if the distance is x.
func runLoadFragment[T regval](g *gang, in *inst) {
	f := in.k.(*fragmentAccess)
	r := fileOf[T](g)
	var addr, stride [maxWidth]uint64
	g.fragmentAddresses(in, &addr, &stride)
	for i, slot := range in.list {
		var d []T
		if slot >= 0 {
			d = r.partial(g, in, slot)
		}
		g.eachWarp(func(base int, active uint32) {
			for ; active != 0; active &= active - 1 {
				lane := bits.TrailingZeros32(active)
				x := uint64(0)
				for e, n := range f.register(i, lane) {
					x |= g.loadElement(in, base+lane, addr[base+lane], f.offset(int(n), stride[base+lane]), f.format.Bits()) << (e * f.format.Bits())
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
	f := in.k.(*fragmentAccess)
	r := fileOf[T](g)
	var addr, stride [maxWidth]uint64
	g.fragmentAddresses(in, &addr, &stride)
	for i, slot := range in.sources {
		v := r.expand(slot)
		g.eachWarp(func(base int, active uint32) {
			for ; active != 0; active &= active - 1 {
				lane := bits.TrailingZeros32(active)
				x := uint64(v[base+lane])
				for e, n := range f.register(i, lane) {
					g.storeElement(in, base+lane, addr[base+lane], f.offset(int(n), stride[base+lane]), f.format.Bits(), x>>(e*f.format.Bits()))
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
			addr[lane], stride[lane] = g.r64.lane(in.a, lane)+uint64(in.imm), uint64(in.x)
			if in.b >= 0 {
				stride[lane] = uint64(g.r32.lane(in.b, lane))
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
