package vmm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// book are the allocations of a client. It knows nothing of chunks.
type book struct {
	arena       Range
	limit       uint64 // bytes that may be allocated; 0: no limit
	together    uint64 // see Config.Joined
	allocations list
	allocated   uint64
	search      uint64 // of Reachable, to know what it has seen
}

// allocation is one allocation of the client.
type allocation struct {
	Range
	needed   uint64 // directory.version when Prepare last needed all of it
	born     uint64 // directory.version when it was made
	children []*allocation
	freed    bool
	seen     uint64 // number of the last search (book.search) that visited it
}

// add adds an allocation at an address that the client chose.
func (b *book) add(r Range, born uint64) error {
	if !b.arena.contains(r) {
		return fmt.Errorf("%w: allocation %v must have a size and lie in the arena %v", ErrInvalid, r, b.arena)
	}
	before := b.allocations.upto(r.Addr)
	if a := before.get(); a != nil && a.end() > r.Addr {
		return fmt.Errorf("%w: %v", ErrOverlap, r)
	}
	if a := before.next().get(); a != nil && a.Addr < r.end() {
		return fmt.Errorf("%w: %v", ErrOverlap, r)
	}
	if limit := b.limit; limit > 0 && r.Size > limit-b.allocated {
		return fmt.Errorf("%w: %d bytes are wanted, %d of %d are left", ErrLimit, r.Size, limit-b.allocated, limit)
	}
	b.allocated += r.Size
	b.allocations.insert(&allocation{Range: r, born: born})
	return nil
}

// remove removes the allocation that starts at addr.
func (b *book) remove(addr uint64) (*allocation, error) {
	a := b.allocations.upto(addr).get()
	if a == nil || a.Addr != addr {
		return nil, fmt.Errorf("%w: %#x is not where one starts", ErrUnknown, addr)
	}
	a.freed = true
	b.allocations.remove(a)
	b.allocated -= a.Size
	return a, nil
}

// around returns the allocation that addr lies in; nil if there is none.
func (b *book) around(addr uint64) *allocation {
	if a := b.allocations.upto(addr).get(); a != nil && addr-a.Addr < a.Size {
		return a
	}
	return nil
}

// joined reports whether an allocation counts as one range with its direct neighbours
// (Config.Joined).
func (b *book) joined(a *allocation) bool { return b.together > 0 && a.Addr >= b.together }

// Find returns the allocation around addr.
func (b *book) Find(addr uint64) (Range, bool) {
	if a := b.around(addr); a != nil {
		return a.Range, true
	}
	return Range{}, false
}

// Check returns ErrBounds for a range that does not lie within one allocation, or within several
// joined ones.
func (b *book) Check(r Range) error {
	a := b.around(r.Addr)
	for rest := r; a != nil && rest.Size > 0 && rest.Size <= ^uint64(0)-rest.Addr; {
		if rest.end() <= a.end() {
			return nil
		}
		rest = Range{Addr: a.end(), Size: rest.end() - a.end()}
		if !b.joined(a) {
			break
		}
		a = b.around(rest.Addr)
	}
	return fmt.Errorf("%w: %v", ErrBounds, r)
}

// Allocated returns the bytes that are allocated.
func (b *book) Allocated() uint64 { return b.allocated }

// Limit returns the bytes that may be allocated; 0 is no limit.
func (b *book) Limit() uint64 { return b.limit }

// Allocations returns all allocations, in order.
func (b *book) Allocations() []Range {
	ranges := make([]Range, 0, b.allocations.len())
	for at := b.allocations.first(); at.get() != nil; at = at.next() {
		ranges = append(ranges, at.get().Range)
	}
	return ranges
}

// Nest declares that the memory around parent holds pointers to the memory around the children: a
// kernel that needs the parent needs the children, too. It replaces what was declared for parent
// before, and holds for each child until that child is freed.
func (b *book) Nest(parent uint64, children []uint64) error {
	p := b.around(parent)
	if p == nil {
		return fmt.Errorf("%w: parent %#x", ErrUnknown, parent)
	}
	nested := make([]*allocation, 0, len(children))
	for _, addr := range children {
		c := b.around(addr)
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
func (b *book) Reachable(params []byte) []Range {
	b.search++
	var found []*allocation
	see := func(a *allocation) {
		if a != nil && !a.freed && a.seen != b.search {
			a.seen = b.search
			found = append(found, a)
		}
	}
	for ; len(params) >= 8; params = params[8:] {
		see(b.around(binary.LittleEndian.Uint64(params)))
	}
	for i := 0; i < len(found); i++ {
		for _, c := range found[i].children {
			see(c)
		}
		if a := found[i]; b.joined(a) {
			see(b.around(a.end()))
			if before := b.around(a.Addr - 1); before != nil && b.joined(before) {
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

// Nests says whether anything is nested in the allocations to which the words of a parameter buffer
// point.
func (b *book) Nests(params []byte) bool {
	for ; len(params) >= 8; params = params[8:] {
		if a := b.around(binary.LittleEndian.Uint64(params)); a != nil && len(a.children) > 0 {
			return true
		}
	}
	return false
}

// ranks maps each allocation to the number of allocations before it.
func (b *book) ranks() map[*allocation]int {
	ranks := make(map[*allocation]int, b.allocations.len())
	for at := b.allocations.first(); at.get() != nil; at = at.next() {
		ranks[at.get()] = len(ranks)
	}
	return ranks
}

func byAddress(list []*allocation) {
	slices.SortFunc(list, func(a, b *allocation) int { return cmp.Compare(a.Addr, b.Addr) })
}
