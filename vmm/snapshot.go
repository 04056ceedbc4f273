package vmm

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

var (
	_ encoding.BinaryMarshaler   = (*Space)(nil)
	_ encoding.BinaryUnmarshaler = (*Space)(nil)
)

// ErrSnapshot is wrapped by all errors of UnmarshalBinary.
var ErrSnapshot = errors.New("not a snapshot of a memory space")

// snapshotHead ends with the version. What follows are unsigned varints in
// their shortest form:
//
//	arena address, arena size, log2 of the chunk, limit, joined, number of devices, and of
//	each its number
//	number of needs
//	number of allocations, and of each, in order: bytes between it and the one
//	before, size, need, number of children, and of each child, in order: how
//	many allocations lie between it and the child before
//	rows of chunks until all that allocations touch are told: how many are
//	alike, held, valid, word of the fill plus 1 (0: none), need
//
// Needs (times at which something was last needed) are numbered in their order, from 1
// on; 0 is never. So equal states have equal bytes, however often things happened
// before.
const snapshotHead = "vmm\x05"

// MarshalBinary writes the whole state, so that another process can continue with it.
func (s *Space) MarshalBinary() ([]byte, error) {
	needs := s.needs()
	number := func(needed uint64) uint64 {
		if needed == 0 {
			return 0
		}
		i, _ := slices.BinarySearch(needs, needed)
		return uint64(i) + 1
	}
	out := []byte(snapshotHead)
	put := func(values ...uint64) {
		for _, v := range values {
			out = binary.AppendUvarint(out, v)
		}
	}
	c := s.config
	put(c.Arena.Addr, c.Arena.Size, uint64(s.shift), c.Limit, c.Joined, uint64(len(c.Devices)))
	for _, p := range c.Devices {
		put(uint64(p.Index()))
	}
	put(uint64(len(needs)), uint64(s.allocations.len()))
	before := c.Arena.Addr
	ranks := s.ranks()
	for at := s.allocations.first(); at.get() != nil; at = at.next() {
		a := at.get()
		children := childRanks(a, ranks)
		put(a.Addr-before, a.Size, number(s.lastNeed(a)), uint64(len(children)))
		before = a.end()
		from := 0
		for _, n := range children {
			put(uint64(n - from))
			from = n + 1
		}
	}
	var row chunk
	var count uint64
	for _, c := range s.all() {
		if count > 0 && !alike(c, &row) {
			put(count, uint64(row.held), uint64(row.valid), uint64(row.fill), number(row.needed))
			count = 0
		}
		row = *c
		count++
	}
	if count > 0 {
		put(count, uint64(row.held), uint64(row.valid), uint64(row.fill), number(row.needed))
	}
	return out, nil
}

func alike(a, b *chunk) bool {
	return a.held == b.held && a.valid == b.valid && a.fill == b.fill && a.needed == b.needed
}

// needs returns all times at which something was last needed, ascending.
func (s *Space) needs() []uint64 {
	var times []uint64
	add := func(t uint64) {
		if t > 0 && (len(times) == 0 || times[len(times)-1] != t) {
			times = append(times, t)
		}
	}
	for at := s.allocations.first(); at.get() != nil; at = at.next() {
		add(s.lastNeed(at.get()))
	}
	for _, c := range s.all() {
		add(c.needed)
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// childRanks returns the ranks of the allocations nested in a, ascending.
func childRanks(a *allocation, ranks map[*allocation]int) []int {
	var list []int
	for _, c := range a.children {
		if rank, ok := ranks[c]; ok { // else it was freed
			list = append(list, rank)
		}
	}
	return list
}

// UnmarshalBinary replaces the state by that of a snapshot. It accepts only
// what MarshalBinary writes; on an error the space is as before.
func (s *Space) UnmarshalBinary(data []byte) error {
	r := reader{rest: data}
	fresh, err := r.space()
	if err != nil {
		return fmt.Errorf("%w: %w (at byte %d of %d)", ErrSnapshot, err, len(data)-len(r.rest), len(data))
	}
	*s = *fresh
	return nil
}

// reader decodes a snapshot. It keeps the first error, and returns 0 for everything
// after it.
type reader struct {
	rest []byte
	err  error
	seen []bool // needs, by number
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) number() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 1 && r.rest[n-1] == 0 {
		r.fail("a number is cut off or malformed")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads how many items follow, each of which takes at least one byte. So a damaged count
// cannot cause a large allocation.
func (r *reader) count(what string) int {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.fail("%d %s cannot follow in %d bytes", n, what, len(r.rest))
		return 0
	}
	return int(n)
}

// small reads a number of a device.
func (r *reader) small() int {
	const most = 1 << 30
	n := r.number()
	if n > most {
		r.fail("number %d of a device", n)
		return 0
	}
	return int(n)
}

// need reads the number of a need.
func (r *reader) need() uint64 {
	n := r.number()
	if n >= uint64(len(r.seen)) {
		r.fail("need %d was not announced", n)
		return 0
	}
	r.seen[n] = true
	return n
}

func (r *reader) space() (*Space, error) {
	if len(r.rest) < len(snapshotHead) || string(r.rest[:len(snapshotHead)]) != snapshotHead {
		return nil, fmt.Errorf("it does not begin with %q", snapshotHead)
	}
	r.rest = r.rest[len(snapshotHead):]
	var c Config
	c.Arena.Addr, c.Arena.Size = r.number(), r.number()
	c.Chunk = 1 << min(r.number(), 64) // 0, which is refused, if too large
	c.Limit = r.number()
	c.Joined = r.number()
	for range min(r.count("devices"), maxDevices+1) {
		c.Devices = append(c.Devices, Device(r.small()))
	}
	r.seen = make([]bool, r.count("needs")+1)
	if r.err != nil {
		return nil, r.err
	}
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	s.version = uint64(len(r.seen) - 1)
	r.allocations(s)
	r.chunks(s)
	r.seen[0] = true
	if slices.Contains(r.seen, false) {
		r.fail("a need is announced and not used")
	}
	if len(r.rest) > 0 {
		r.fail("%d bytes are left over", len(r.rest))
	}
	return s, r.err
}

func (r *reader) allocations(s *Space) {
	n := r.count("allocations")
	nested := make([][]int, 0, n)
	list := make([]*allocation, 0, n)
	at := s.config.Arena.Addr
	for range n {
		gap, size, needed := r.number(), r.number(), r.need()
		children := make([]int, r.count("children"))
		from := uint64(0)
		for i := range children {
			from += min(r.number(), uint64(n))
			if from >= uint64(n) {
				r.fail("a child is not among %d allocations", n)
			}
			children[i] = int(from)
			from++
		}
		if gap > s.config.Arena.end()-at {
			r.fail("an allocation is not in the arena")
		}
		if r.err != nil {
			return
		}
		if err := s.Alloc(Range{at + gap, size}); err != nil {
			r.fail("%w", err)
			return
		}
		a := s.around(at + gap)
		a.needed = needed
		at = a.end()
		nested = append(nested, children)
		list = append(list, a)
	}
	for i, children := range nested {
		for _, c := range children {
			list[i].children = append(list[i].children, list[c])
		}
	}
}

func (r *reader) chunks(s *Space) {
	everywhere := uint64(1)<<(len(s.config.Devices)+1) - 1
	left := 0
	var row, before chunk
	first := true
	for _, c := range s.all() {
		if left == 0 {
			count := r.number()
			held, valid, filled, needed := r.number(), r.number(), r.number(), r.need()
			switch {
			case r.err != nil:
			case count == 0 || count > uint64(s.chunks):
				r.fail("a row of %d chunks", count)
			case held&^everywhere != 0 || valid&^held != 0:
				r.fail("chunks that are valid on places %#x and held on %#x of %#x", valid, held, everywhere)
			case filled > uint64(fillOf(math.MaxUint32)):
				r.fail("chunks filled with %#x", filled-1)
			}
			row = chunk{held: places(held), valid: places(valid), fill: fill(filled), needed: needed}
			if !first && alike(&row, &before) {
				r.fail("two rows of chunks are alike")
			}
			if r.err != nil {
				return
			}
			left, before, first = int(count), row, false
		}
		s.set(c, row.held, row.valid, row.fill)
		c.needed = row.needed
		left--
	}
	if left > 0 {
		r.fail("the last row of chunks has %d too many", left)
	}
}
