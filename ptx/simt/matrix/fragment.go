package matrix

import (
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensor"
)

// Fragment says how the lanes of a warp hold a matrix: place has, for each
// register, each lane and each element in the register (the lowest bits first),
// the number of that element in the matrix. Several places may hold the same
// element.
type Fragment struct {
	Format     tensor.Format
	Rows, Cols int
	byColumns  bool // elements are numbered column by column, else row by row
	Registers  int
	each       int // elements of a register
	place      []int16
}

// Register returns the elements that a register of a lane holds.
func (f *Fragment) Register(r, lane int) []int16 {
	return f.place[(r*shape.WarpSize+lane)*f.each:][:f.each]
}

// newFragment makes a fragment; at returns row and column of element e in register
// r of a lane.
func newFragment(format tensor.Format, rows, cols, registers int, byColumns bool, at func(r, lane, e int) (row, col int)) *Fragment {
	f := &Fragment{Format: format, Rows: rows, Cols: cols, byColumns: byColumns, Registers: registers, each: max(1, 32/format.Bits())}
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

// The fragments of mma. A group of four lanes holds a row of A, C and D, and a
// column of B. Further registers hold the row eight below, then the columns to the
// right of these.

// left is the fragment of A, and of sums in f16, of which two share a register.
func left(f tensor.Format, rows, cols int) *Fragment {
	each := max(1, 32/f.Bits())
	return newFragment(f, rows, cols, rows*cols/(shape.WarpSize*each), false, func(r, lane, e int) (int, int) {
		below := 0
		if rows == 16 {
			r, below = r/2, r%2*8
		}
		return lane/4 + below, r*4*each + lane%4*each + e
	})
}

// right is the fragment of B, whose elements are numbered column by column.
func right(f tensor.Format, rows, cols int) *Fragment {
	each := max(1, 32/f.Bits())
	return newFragment(f, rows, cols, rows*cols/(shape.WarpSize*each), true, func(r, lane, e int) (int, int) {
		return r*4*each + lane%4*each + e, lane / 4
	})
}

// sums is the fragment of C and D.
func sums(f tensor.Format, rows, cols int) *Fragment {
	if f == tensor.F16 {
		return left(f, rows, cols)
	}
	return newFragment(f, rows, cols, rows*cols/shape.WarpSize, false, func(r, lane, _ int) (int, int) {
		return lane/4 + r/2*8, lane%4*2 + r%2
	})
}

func Tile(f tensor.Format, rows, cols int, byColumns bool) *Fragment {
	each := max(1, 32/f.Bits())
	return tileOf(f, rows, cols, rows*cols/(shape.WarpSize*each), byColumns)
}

// FactorTile is the fragment of A or B. Those of f16 have eight registers, whatever their size.
func FactorTile(f tensor.Format, rows, cols int, byColumns bool) *Fragment {
	if f == tensor.F16 {
		return tileOf(f, rows, cols, 8, byColumns)
	}
	return Tile(f, rows, cols, byColumns)
}

func tileOf(f tensor.Format, rows, cols, registers int, byColumns bool) *Fragment {
	each := max(1, 32/f.Bits())
	return newFragment(f, rows, cols, registers, byColumns, func(r, lane, e int) (int, int) {
		n := ((lane*registers+r)*each + e) % (rows * cols)
		if byColumns {
			return n % rows, n / rows
		}
		return n / cols, n % cols
	})
}

// wideSums is the fragment of the 16 rows of C and D that a warp of wgmma holds:
// fragments of mma, side by side.
func wideSums(f tensor.Format, cols int) *Fragment {
	part := sums(f, 16, 8)
	return newFragment(f, 16, cols, part.Registers*cols/8, false, func(r, lane, e int) (int, int) {
		n := int(part.Register(r%part.Registers, lane)[e])
		return n / 8, n%8 + r/part.Registers*8
	})
}

// Access is how wmma.load and wmma.store move a fragment.
type Access struct {
	*Fragment
	ByColumns bool // in memory
}

// Offset returns where element n lies in memory, counted in elements; stride is
// the distance from one row, or column, to the next.
func (f *Access) Offset(n int, stride uint64) uint64 {
	row, col := n/f.Cols, n%f.Cols
	if f.Fragment.byColumns {
		row, col = n%f.Rows, n/f.Rows
	}
	if f.ByColumns {
		row, col = col, row
	}
	return uint64(row)*stride + uint64(col)
}
