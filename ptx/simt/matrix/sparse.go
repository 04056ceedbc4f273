package matrix

import "muster/ptx/simt/tensor"

// Places says where a warp holds the places of the elements of a sparse matrix. Of
// every four elements of a row that lie side by side only half are in registers. Four
// bits say which: the place of the first in the low two bits, that of the second in the
// high two. An element of TF32 counts as two halves there, and two elements of four bits,
// which are there or left out together, as one.
type Places struct {
	Format     tensor.Format
	Rows, Cols int // cols with what is left out
	Selector   int // which threads of every four hold these bits
}

// unit returns how many elements a place of two bits stands for, and how many places an
// element has.
func (s *Places) unit() (elements, places int) {
	switch s.Format.Bits() {
	case 32:
		return 1, 2
	case 4:
		return 2, 1
	}
	return 1, 1
}

// Selectors returns how many sets of threads can hold the bits of a whole matrix.
func (s *Places) Selectors() int { return 4 / s.holders() }

// holders returns how many threads of every four hold the bits of two rows.
func (s *Places) holders() int { return s.Rows * s.nibbles() * 4 / (8 * 32) }

// nibbles returns how many times four bits a row has.
func (s *Places) nibbles() int {
	elements, places := s.unit()
	return s.Cols * places / elements / 4
}

// holder returns which lane of a warp holds four bits of a row, and where in its
// register: that is how NVIDIA's GPUs want them.
func (s *Places) holder(row, nibble int) (lane, shift int) {
	below, lane := row/8, row%8*4+s.Selector*s.holders()
	switch {
	case s.Format.Bits() > 8: // a register has four for each of the two rows, then the next thread goes on
		return lane + nibble/4, below*16 + nibble%4*4
	default: // a register has eight of one row
		return lane + below + nibble/8*2, nibble % 8 * 4
	}
}

// Picks finds out, of every element that is there, row by row, its place in its row.
// bits are the registers of the warp's lanes that hold the places.
func (s *Places) Picks(bits []uint32, to []int) {
	elements, places := s.unit()
	for i := range to {
		row, column := i/(s.Cols/2), i%(s.Cols/2)
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
