package cuda

import (
	"slices"
	"sort"
)

// The driver maps memory in pieces and unmaps only whole ones. Large pieces are mapped
// much faster per byte; small ones can be unmapped in any combination.
const largePiece = 32 << 20

// span is a range of addresses.
type span struct{ from, to uint64 }

func (s span) size() uint64 { return s.to - s.from }

// cut divides a range of whole granules into pieces: large ones where the
// range holds an aligned one, and granules.
func cut(s span, granule uint64) []span {
	large := max(largePiece/granule*granule, granule)
	var pieces []span
	for at := s.from; at < s.to; {
		size := granule
		if at%large == 0 && s.to-at >= large {
			size = large
		}
		pieces = append(pieces, span{at, at + size})
		at += size
	}
	return pieces
}

// pieces are the mapped pieces, sorted by address. They do not overlap.
type pieces []span

// first returns the index of the first piece that ends after an address.
func (p pieces) first(addr uint64) int {
	return sort.Search(len(p), func(i int) bool { return p[i].to > addr })
}

// free says whether nothing is mapped in a range.
func (p pieces) free(s span) bool {
	i := p.first(s.from)
	return i == len(p) || p[i].from >= s.to
}

// covers says whether all of a range is mapped.
func (p pieces) covers(s span) bool {
	at := s.from
	for i := p.first(at); at < s.to; i++ {
		if i == len(p) || p[i].from > at {
			return false
		}
		at = p[i].to
	}
	return true
}

// with returns the pieces with more added, which must follow each other in a free
// range.
func (p pieces) with(more []span) pieces {
	if len(more) == 0 {
		return p
	}
	return slices.Insert(p, p.first(more[0].from), more...)
}

// removal says how to unmap a range.
type removal struct {
	taken []span // whole pieces to unmap, in order and without a gap
	kept  []span // ranges within taken that must stay mapped: at most one at each end
}

// without returns the pieces that unmapping a mapped range leaves untouched, and what to
// do with the others.
func (p pieces) without(s span) (rest pieces, r removal) {
	from := p.first(s.from)
	to := from
	for to < len(p) && p[to].from < s.to {
		to++
	}
	r.taken = slices.Clone(p[from:to])
	if len(r.taken) == 0 {
		return p, r
	}
	if begin := r.taken[0].from; begin < s.from {
		r.kept = append(r.kept, span{begin, s.from})
	}
	if end := r.taken[len(r.taken)-1].to; end > s.to {
		r.kept = append(r.kept, span{s.to, end})
	}
	return slices.Delete(slices.Clone(p), from, to), r
}
