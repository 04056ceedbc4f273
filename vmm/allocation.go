package vmm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// allocation is one allocation of the client.
type allocation struct {
	Range
	needed   uint64 // Space.version when Prepare last needed all of it
	born     uint64 // Space.version when it was made
	children []*allocation
	freed    bool
	seen     uint64 // number of the last search (Space.search) that visited it
}

// around returns the allocation that addr lies in; nil if there is none.
func (s *Space) around(addr uint64) *allocation {
	if a := s.allocations.upto(addr).get(); a != nil && addr-a.Addr < a.Size {
		return a
	}
	return nil
}

// joined reports whether an allocation counts as one range with its direct neighbours
// (Config.Joined).
func (s *Space) joined(a *allocation) bool { return s.config.Joined > 0 && a.Addr >= s.config.Joined }

// Alloc adds an allocation at an address that the client chose.
func (s *Space) Alloc(r Range) error {
	if !s.config.Arena.contains(r) {
		return fmt.Errorf("%w: allocation %v must have a size and lie in the arena %v", ErrInvalid, r, s.config.Arena)
	}
	before := s.allocations.upto(r.Addr)
	if a := before.get(); a != nil && a.end() > r.Addr {
		return fmt.Errorf("%w: %v", ErrOverlap, r)
	}
	if a := before.next().get(); a != nil && a.Addr < r.end() {
		return fmt.Errorf("%w: %v", ErrOverlap, r)
	}
	if limit := s.config.Limit; limit > 0 && r.Size > limit-s.allocated {
		return fmt.Errorf("%w: %d bytes are wanted, %d of %d are left", ErrLimit, r.Size, limit-s.allocated, limit)
	}
	s.allocated += r.Size
	s.use(s.span(r))
	s.allocations.insert(&allocation{Range: r, born: s.version})
	return nil
}

// use counts one more allocation in each chunk of a span.
func (s *Space) use(p span) {
	for n := p.first >> pageShift; n <= (p.first+p.count-1)>>pageShift; n++ {
		if s.table[n] == nil {
			s.table[n] = new(page)
		}
	}
	for i, c := range s.in(p) {
		if c.users == 0 {
			s.chunks++
			s.fresh.add(i)
		}
		c.users++
	}
	s.version++
}

// Free removes the allocation that starts at addr. Chunks that no other allocation touches leave
// every place.
func (s *Space) Free(addr uint64) (Plan, error) {
	a := s.allocations.upto(addr).get()
	if a == nil || a.Addr != addr {
		return nil, fmt.Errorf("%w: %#x is not where one starts", ErrUnknown, addr)
	}
	a.freed = true
	s.allocations.remove(a)
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
		s.set(c, 0, 0, 0)
		c.needed = 0
		s.chunks--
	}
	return moves.plan(s), nil
}

// SharedOn returns the devices that map a chunk of r in which other allocations lie too: these
// chunks stay mapped when the allocation of r is freed.
func (s *Space) SharedOn(r Range) (devices []Place) {
	if r.Size == 0 {
		return nil
	}
	var held places
	for _, c := range s.in(s.span(r)) {
		if c.users > 1 {
			held |= c.held &^ hostSlot.bit()
		}
	}
	for ; held != 0; held &= held - 1 {
		devices = append(devices, s.config.Devices[held.first()-1])
	}
	return devices
}

// Find returns the allocation around addr.
func (s *Space) Find(addr uint64) (Range, bool) {
	if a := s.around(addr); a != nil {
		return a.Range, true
	}
	return Range{}, false
}

// Check returns ErrBounds for a range that does not lie within one allocation, or within several
// joined ones.
func (s *Space) Check(r Range) error {
	a := s.around(r.Addr)
	for rest := r; a != nil && rest.Size > 0 && rest.Size <= ^uint64(0)-rest.Addr; {
		if rest.end() <= a.end() {
			return nil
		}
		rest = Range{Addr: a.end(), Size: rest.end() - a.end()}
		if !s.joined(a) {
			break
		}
		a = s.around(rest.Addr)
	}
	return fmt.Errorf("%w: %v", ErrBounds, r)
}

// Allocated returns the bytes that are allocated.
func (s *Space) Allocated() uint64 { return s.allocated }

// Limit returns the bytes that may be allocated; 0 is no limit.
func (s *Space) Limit() uint64 { return s.config.Limit }

// Allocations returns all allocations, in order.
func (s *Space) Allocations() []Range {
	ranges := make([]Range, 0, s.allocations.len())
	for at := s.allocations.first(); at.get() != nil; at = at.next() {
		ranges = append(ranges, at.get().Range)
	}
	return ranges
}

// Nest declares that the memory around parent holds pointers to the memory around the children: a
// kernel that needs the parent needs the children, too. It replaces what was declared for parent
// before, and holds for each child until that child is freed.
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

// Reachable returns the allocations to which the words of a parameter buffer point, at offsets that
// are multiples of 8, those that are joined to them, and everything nested in any of those. It is
// never nil.
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
		if a := found[i]; s.joined(a) {
			see(s.around(a.end()))
			if before := s.around(a.Addr - 1); before != nil && s.joined(before) {
				see(before)
			}
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

// Nests says whether anything is nested in the allocations to which the words of a parameter buffer
// point.
func (s *Space) Nests(params []byte) bool {
	for ; len(params) >= 8; params = params[8:] {
		if a := s.around(binary.LittleEndian.Uint64(params)); a != nil && len(a.children) > 0 {
			return true
		}
	}
	return false
}
