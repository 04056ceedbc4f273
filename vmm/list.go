package vmm

import (
	"cmp"
	"slices"
	"sort"
)

// list holds allocations in the order of their addresses, in blocks: adding or
// removing one moves the pointers of one block only. No block is empty.
type list struct {
	blocks [][]*allocation
	count  int
}

const blockMost = 512 // allocations in a block

func (l *list) len() int { return l.count }

// blockOf returns the block that an allocation at addr is in, or would be.
func (l *list) blockOf(addr uint64) int {
	after := sort.Search(len(l.blocks), func(i int) bool { return l.blocks[i][0].Addr > addr })
	return max(0, after-1)
}

// upto returns the position of the last allocation that starts at addr or before; the cursor is
// before the first if there is none.
func (l *list) upto(addr uint64) cursor {
	if l.count == 0 {
		return cursor{l, 0, -1}
	}
	b := l.blockOf(addr)
	i, exact := search(l.blocks[b], addr)
	if !exact {
		i--
	}
	return cursor{l, b, i}
}

func search(block []*allocation, addr uint64) (int, bool) {
	return slices.BinarySearchFunc(block, addr, func(a *allocation, addr uint64) int { return cmp.Compare(a.Addr, addr) })
}

func (l *list) insert(a *allocation) {
	l.count++
	if len(l.blocks) == 0 {
		l.blocks = [][]*allocation{{a}}
		return
	}
	b := l.blockOf(a.Addr)
	i, _ := search(l.blocks[b], a.Addr)
	if len(l.blocks[b]) < blockMost {
		l.blocks[b] = slices.Insert(l.blocks[b], i, a)
		return
	}
	// Most new allocations have the highest address. Then the full block stays full, and the
	// new one begins a block.
	half := blockMost / 2
	if i == blockMost && b == len(l.blocks)-1 {
		half = blockMost
	}
	behind := append(make([]*allocation, 0, blockMost), l.blocks[b][half:]...)
	clear(l.blocks[b][half:])
	l.blocks[b] = l.blocks[b][:half]
	if i < half {
		l.blocks[b] = slices.Insert(l.blocks[b], i, a)
	} else {
		behind = slices.Insert(behind, i-half, a)
	}
	l.blocks = slices.Insert(l.blocks, b+1, behind)
}

func (l *list) remove(a *allocation) {
	b := l.blockOf(a.Addr)
	i, _ := search(l.blocks[b], a.Addr)
	l.blocks[b] = slices.Delete(l.blocks[b], i, i+1)
	l.count--
	if len(l.blocks[b]) == 0 {
		l.blocks = slices.Delete(l.blocks, b, b+1)
		return
	}
	l.join(b)
	l.join(b - 1)
}

// join merges a block with the next if both are small, so that there are never many blocks with few
// allocations each.
func (l *list) join(b int) {
	if b < 0 || b+1 >= len(l.blocks) || len(l.blocks[b])+len(l.blocks[b+1]) > blockMost/2 {
		return
	}
	l.blocks[b] = append(l.blocks[b], l.blocks[b+1]...)
	l.blocks = slices.Delete(l.blocks, b+1, b+2)
}

// cursor is a position in a list. It is valid until the list changes.
type cursor struct {
	list     *list
	block, i int
}

func (l *list) first() cursor { return cursor{l, 0, 0} }

// get returns the allocation there; nil before the first and behind the last.
func (c cursor) get() *allocation {
	if c.i < 0 || c.block >= len(c.list.blocks) {
		return nil
	}
	return c.list.blocks[c.block][c.i]
}

// next is the position after this one.
func (c cursor) next() cursor {
	c.i++
	if c.block < len(c.list.blocks) && c.i == len(c.list.blocks[c.block]) {
		c.block, c.i = c.block+1, 0
	}
	return c
}
