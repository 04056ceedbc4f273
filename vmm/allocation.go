package vmm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// allocation is one of the client's.
type allocation struct {
	Range
	needed   uint64 // when Prepare last needed all of it
	children []*allocation
	freed    bool
	seen     uint64 // the search that saw it last
}

// index returns where the allocation around addr is, or where it would be.
func (s *Space) index(addr uint64) (int, bool) {
	i, exact := slices.BinarySearchFunc(s.allocations, addr, func(a *allocation, addr uint64) int {
		return cmp.Compare(a.Addr, addr)
	})
	if exact {
		return i, true
	}
	if i > 0 && addr-s.allocations[i-1].Addr < s.allocations[i-1].Size {
		return i - 1, true
	}
	return i, false
}

func (s *Space) around(addr uint64) *allocation {
	if i, ok := s.index(addr); ok {
		return s.allocations[i]
	}
	return nil
}

// within returns the allocation that all of r lies in.
func (s *Space) within(r Range) (*allocation, error) {
	if a := s.around(r.Addr); a != nil && a.contains(r) {
		return a, nil
	}
	return nil, fmt.Errorf("%w: %v", ErrBounds, r)
}

// Alloc takes note of an allocation at an address that the client chose.
func (s *Space) Alloc(r Range) error {
	if !s.config.Arena.contains(r) {
		return fmt.Errorf("%w: allocation %v must have a size and lie in the arena %v", ErrInvalid, r, s.config.Arena)
	}
	i, taken := s.index(r.Addr)
	if taken || i < len(s.allocations) && s.allocations[i].Addr < r.end() {
		return fmt.Errorf("%w: %v", ErrOverlap, r)
	}
	if limit := s.config.Limit; limit > 0 && r.Size > limit-s.allocated {
		return fmt.Errorf("%w: %d bytes are wanted, %d of %d are left", ErrLimit, r.Size, limit-s.allocated, limit)
	}
	s.allocations = slices.Insert(s.allocations, i, &allocation{Range: r})
	s.allocated += r.Size
	s.use(s.span(r))
	return nil
}

// use counts one more allocation in each chunk.
func (s *Space) use(p span) {
	for n := p.first >> pageShift; n <= (p.first+p.count-1)>>pageShift; n++ {
		if s.table[n] == nil {
			s.table[n] = new(page)
		}
	}
	for _, c := range s.in(p) {
		if c.users == 0 {
			s.chunks++
		}
		c.users++
	}
	s.version++
}

// Free forgets the allocation that starts at addr. Chunks that no other
// allocation touches leave every place.
func (s *Space) Free(addr uint64) (Plan, error) {
	i, ok := s.index(addr)
	if !ok || s.allocations[i].Addr != addr {
		return nil, fmt.Errorf("%w: %#x is not where one starts", ErrUnknown, addr)
	}
	a := s.allocations[i]
	a.freed = true
	s.allocations = slices.Delete(s.allocations, i, i+1)
	s.allocated -= a.Size
	s.version++
	var moves mover
	for n, c := range s.in(s.span(a.Range)) {
		c.users--
		if c.users > 0 {
			continue
		}
		for rest := c.held; rest != 0; rest &= rest - 1 {
			if p := rest.first(); p == hostSlot {
				moves.add(Discard, hostSlot, n)
			} else {
				moves.add(Unmap, p, n)
			}
		}
		s.set(c, 0, 0)
		c.needed = 0
		s.chunks--
	}
	return moves.plan(s), nil
}

// Find returns the allocation around addr.
func (s *Space) Find(addr uint64) (Range, bool) {
	if a := s.around(addr); a != nil {
		return a.Range, true
	}
	return Range{}, false
}

// Check refuses with ErrBounds what does not lie within one allocation.
func (s *Space) Check(r Range) error {
	_, err := s.within(r)
	return err
}

// Allocated returns the bytes that are allocated.
func (s *Space) Allocated() uint64 { return s.allocated }

// Limit returns the bytes that may be allocated; 0 is no limit.
func (s *Space) Limit() uint64 { return s.config.Limit }

// Allocations returns all allocations, in order.
func (s *Space) Allocations() []Range {
	ranges := make([]Range, len(s.allocations))
	for i, a := range s.allocations {
		ranges[i] = a.Range
	}
	return ranges
}

// Nest declares that the memory around parent holds pointers to the memory
// around the children: who needs it needs them. It replaces what was declared
// for parent before, and holds for each child until that is freed.
func (s *Space) Nest(parent uint64, children []uint64) error {
	p := s.around(parent)
	if p == nil {
		return fmt.Errorf("%w: parent %#x", ErrUnknown, parent)
	}
	nested := make([]*allocation, 0, len(children))
	for _, addr := range children {
		c := s.around(addr)
		if c == nil {
			return fmt.Errorf("%w: child %#x of %#x", ErrUnknown, addr, parent)
		}
		nested = append(nested, c)
	}
	byAddress(nested)
	p.children = slices.Clip(slices.Compact(nested))
	return nil
}

// Reachable returns the allocations that the words of a parameter buffer point
// into, at offsets that are multiples of 8, and all that is nested in those. It
// is never nil.
func (s *Space) Reachable(params []byte) []Range {
	s.search++
	var found []*allocation
	see := func(a *allocation) {
		if a != nil && !a.freed && a.seen != s.search {
			a.seen = s.search
			found = append(found, a)
		}
	}
	for ; len(params) >= 8; params = params[8:] {
		see(s.around(binary.LittleEndian.Uint64(params)))
	}
	for i := 0; i < len(found); i++ {
		for _, c := range found[i].children {
			see(c)
		}
	}
	byAddress(found)
	ranges := make([]Range, len(found))
	for i, a := range found {
		ranges[i] = a.Range
	}
	return ranges
}

func byAddress(list []*allocation) {
	slices.SortFunc(list, func(a, b *allocation) int { return cmp.Compare(a.Addr, b.Addr) })
}
