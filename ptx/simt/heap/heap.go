// Package heap keeps the books of the memory from which kernels allocate with malloc. It knows bytes
// and offsets; whose they are, and who asks, is its callers' business.
package heap

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// Heap is the memory that kernels allocate from with malloc. Which parts of it are
// in use is written in its first bytes, so whoever saves and moves that memory with
// all other memory of a program has saved the heap. Launches that share the memory
// must share the Heap, whose lock they need.
//
// The first head bytes are a signature, the size, where to search next, and how
// many units are free; zeros stand for a heap that nobody has used yet. Two bit maps
// follow, with a bit for each unit of 16 bytes: whether it is in use, and whether an
// allocation begins there. The units are behind them. There are no addresses in it:
// a kernel that overwrites the maps gets wrong memory of its own heap, but does no
// other harm.
type Heap struct {
	Base, Size uint64

	mu sync.Mutex // held while the maps are read or changed
}

const (
	head  = 64
	Unit  = 16
	group = 64 // units that share a word of each map

	// heapPatience bounds the searches of one instruction's lanes, so that a kernel which has made a
	// large heap all holes does not keep its worker for minutes. Where it is used up, malloc finds
	// nothing.
	patience = 1 << 30

	signature = 0x3170_6165_6874_786d // "mxtheap1"
	nextAt    = 16
	freeAt    = 24

	// DefaultHeap is the size of the heap where a program asks for no other, as in CUDA.
	DefaultSize = 8 << 20
	// leastHeap has room for the maps and a group of units.
	LeastSize = 4096
)

// NewHeap returns the heap in size bytes of global memory from base on.
func New(base, size uint64) *Heap { return &Heap{Base: base, Size: size} }

// Map is a heap whose memory is at hand. The heap's lock is held.
type Map struct {
	bytes       []byte
	used, first []byte
	units       uint64
	at          uint64 // offset of the first unit
	Work        uint64 // of searches, as the copy of so many bytes that takes as long
	refused     uint64 // as many units in a row, and more, were not found; 0: nothing was refused
}

func wordOf(bits []byte, unit uint64) uint64 {
	return binary.LittleEndian.Uint64(bits[unit/64*8:])
}

func hasBit(bits []byte, unit uint64) bool { return bits[unit/8]>>(unit%8)&1 != 0 }

// mark sets or clears the bits of n units.
func mark(all []byte, unit, n uint64, set bool) {
	for end := unit + n; unit < end; {
		k := min(64-unit%64, end-unit)
		m := ^uint64(0) >> (64 - k) << (unit % 64)
		w := wordOf(all, unit) | m
		if !set {
			w &^= m
		}
		binary.LittleEndian.PutUint64(all[unit/64*8:], w)
		unit += k
	}
}

// Use calls do with the heap locked; false if something else than a heap is in its memory.
func (h *Heap) Use(memory []byte, do func(m *Map)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.open(memory)
	if ok {
		do(&m)
	}
	return ok
}

// open finds the maps of the heap in its memory, and clears them in one that was
// never used; false if something else is written there.
func (h *Heap) open(memory []byte) (Map, bool) {
	groups := (h.Size - head) / (group*Unit + 2*8)
	m := Map{bytes: memory, units: groups * group, at: head + groups*2*8}
	m.used, m.first = memory[head:][:groups*8], memory[head+groups*8:][:groups*8]
	switch binary.LittleEndian.Uint64(memory) {
	case 0:
		clear(m.used)
		clear(m.first)
		binary.LittleEndian.PutUint64(memory[8:], h.Size)
		m.setNext(0)
		m.setFree(m.units)
		binary.LittleEndian.PutUint64(memory, signature)
	case signature:
		return m, binary.LittleEndian.Uint64(memory[8:]) == h.Size && m.next() <= m.units && m.free() <= m.units
	default:
		return m, false
	}
	return m, true
}

func (m *Map) next() uint64 { return binary.LittleEndian.Uint64(m.bytes[nextAt:]) }

func (m *Map) free() uint64 { return binary.LittleEndian.Uint64(m.bytes[freeAt:]) }

func (m *Map) setNext(n uint64) { binary.LittleEndian.PutUint64(m.bytes[nextAt:], n) }

func (m *Map) setFree(n uint64) { binary.LittleEndian.PutUint64(m.bytes[freeAt:], n) }

// Malloc returns the offset of n free bytes and marks them as used; 0 if there are
// none. The search begins behind the last allocation, so that it is short until the
// heap is nearly full.
func (m *Map) Malloc(n uint64) uint64 {
	if n == 0 || n > m.units*Unit {
		return 0
	}
	need := (n + Unit - 1) / Unit
	if need > m.free() || m.refused != 0 && need >= m.refused || m.Work > patience {
		return 0 // the lanes of an instruction search a heap that is too full once, not each
	}
	from := m.next()
	unit, ok := m.search(from, m.units, need)
	if !ok {
		unit, ok = m.search(0, min(m.units, from+need-1), need)
	}
	if !ok {
		m.refused = need
		return 0
	}
	m.Work += need / 4 // two maps, a bit each
	mark(m.used, unit, need, true)
	mark(m.first, unit, need, false)
	mark(m.first, unit, 1, true)
	m.setNext(unit + need)
	m.setFree(m.free() - need)
	return m.at + unit*Unit
}

// search returns the first of need free units in a row, among those of a range.
func (m *Map) search(from, to, need uint64) (uint64, bool) {
	run := uint64(0)
	for unit := from; unit < to; {
		m.Work += 8
		left := min(64-unit%64, to-unit)
		w := wordOf(m.used, unit) >> (unit % 64)
		free := min(uint64(bits.TrailingZeros64(w)), left)
		if run += free; run >= need {
			return unit + free - run, true
		}
		unit += free
		if free < left { // a unit that is in use ends the row
			unit += min(uint64(bits.TrailingZeros64(^(w >> free))), left-free)
			run = 0
		}
	}
	return 0, false
}

// Release frees the allocation at an offset; false if none begins there.
func (m *Map) Release(at uint64) bool {
	unit := (at - m.at) / Unit
	if at < m.at || at%Unit != 0 || unit >= m.units || !hasBit(m.used, unit) || !hasBit(m.first, unit) {
		return false
	}
	end := unit + 1
	for end < m.units {
		ends := (^wordOf(m.used, end) | wordOf(m.first, end)) >> (end % 64)
		n := min(uint64(bits.TrailingZeros64(ends)), 64-end%64)
		if end += n; ends != 0 {
			break
		}
	}
	mark(m.used, unit, end-unit, false)
	mark(m.first, unit, 1, false)
	m.setFree(min(m.units, m.free()+end-unit))
	return true
}
