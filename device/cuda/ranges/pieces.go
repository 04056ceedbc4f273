// Package ranges is the arithmetic of a context's addresses: which pieces of memory are mapped, which variables lie
// where, and which boxes of an array a range of bytes is. It knows numbers alone, and calls no driver.
package ranges

import (
	"slices"
	"sort"
)

// The driver maps memory in pieces and unmaps only whole ones. Large pieces are mapped
// much faster per byte; small ones can be unmapped in any combination.
const Large = 32 << 20

// Span is a range of addresses.
type Span struct{ From, To uint64 }

// Size is how many addresses it has.
func (s Span) Size() uint64 { return s.To - s.From }

// Cut divides a range of whole granules into pieces: large ones where the
// range holds an aligned one, and granules.
func Cut(s Span, granule uint64) []Span {
	large := max(Large/granule*granule, granule)
	var pieces []Span
	for at := s.From; at < s.To; {
		size := granule
		if at%large == 0 && s.To-at >= large {
			size = large
		}
		pieces = append(pieces, Span{at, at + size})
		at += size
	}
	return pieces
}

// Pieces are the mapped pieces, sorted by address. They do not overlap.
type Pieces []Span

// first returns the index of the first piece that ends after an address.
func (p Pieces) first(addr uint64) int {
	return sort.Search(len(p), func(i int) bool { return p[i].To > addr })
}

// Free says whether nothing is mapped in a range.
func (p Pieces) Free(s Span) bool {
	i := p.first(s.From)
	return i == len(p) || p[i].From >= s.To
}

// Covers says whether all of a range is mapped.
func (p Pieces) Covers(s Span) bool {
	at := s.From
	for i := p.first(at); at < s.To; i++ {
		if i == len(p) || p[i].From > at {
			return false
		}
		at = p[i].To
	}
	return true
}

// With returns the pieces with more added, which must follow each other in a free
// range.
func (p Pieces) With(more []Span) Pieces {
	if len(more) == 0 {
		return p
	}
	return slices.Insert(p, p.first(more[0].From), more...)
}

// Removal says how to unmap a range.
type Removal struct {
	Taken []Span // whole pieces to unmap, in order and without a gap
	Kept  []Span // ranges within taken that must stay mapped: at most one at each end
}

// Without returns the pieces that unmapping a mapped range leaves untouched, and what to
// do with the others.
func (p Pieces) Without(s Span) (rest Pieces, r Removal) {
	from := p.first(s.From)
	to := from
	for to < len(p) && p[to].From < s.To {
		to++
	}
	r.Taken = slices.Clone(p[from:to])
	if len(r.Taken) == 0 {
		return p, r
	}
	if begin := r.Taken[0].From; begin < s.From {
		r.Kept = append(r.Kept, Span{begin, s.From})
	}
	if end := r.Taken[len(r.Taken)-1].To; end > s.To {
		r.Kept = append(r.Kept, Span{s.To, end})
	}
	return slices.Delete(slices.Clone(p), from, to), r
}
