package simt

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
)

// Heap is the memory that kernels allocate from with malloc. Which parts of it are
// in use is written in its first bytes, so whoever saves and moves that memory with
// all other memory of a program has saved the heap. Launches that share the memory
// must share the Heap, whose lock they need.
//
// The first heapHead bytes are a signature, the size, where to search next, and how
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
	heapHead  = 64
	heapUnit  = 16
	heapGroup = 64  // units that share a word of each map
	heapCall  = 256 // what a call counts as for gang.did, beside its search

	// heapPatience bounds the searches of one instruction's lanes, so that a kernel which has made a
	// large heap all holes does not keep its worker for minutes. Where it is used up, malloc finds
	// nothing.
	heapPatience = 1 << 30

	heapSignature = 0x3170_6165_6874_786d // "mxtheap1"
	heapNextAt    = 16
	heapFreeAt    = 24

	// DefaultHeap is the size of the heap where a program asks for no other, as in CUDA.
	DefaultHeap = 8 << 20
	// leastHeap has room for the maps and a group of units.
	leastHeap = 4096
)

// NewHeap returns the heap in size bytes of global memory from base on.
func NewHeap(base, size uint64) *Heap { return &Heap{Base: base, Size: size} }

// heapMap is a heap whose memory is at hand. The heap's lock is held.
type heapMap struct {
	bytes       []byte
	used, first []byte
	units       uint64
	at          uint64 // offset of the first unit
	work        uint64 // of searches, for gang.did
	refused     uint64 // as many units in a row, and more, were not found; 0: nothing was refused
}

// open finds the maps of the heap in its memory, and clears them in one that was
// never used; false if something else is written there.
func (h *Heap) open(memory []byte) (heapMap, bool) {
	groups := (h.Size - heapHead) / (heapGroup*heapUnit + 2*8)
	m := heapMap{bytes: memory, units: groups * heapGroup, at: heapHead + groups*2*8}
	m.used, m.first = memory[heapHead:][:groups*8], memory[heapHead+groups*8:][:groups*8]
	switch binary.LittleEndian.Uint64(memory) {
	case 0:
		clear(m.used)
		clear(m.first)
		binary.LittleEndian.PutUint64(memory[8:], h.Size)
		m.setNext(0)
		m.setFree(m.units)
		binary.LittleEndian.PutUint64(memory, heapSignature)
	case heapSignature:
		return m, binary.LittleEndian.Uint64(memory[8:]) == h.Size && m.next() <= m.units && m.free() <= m.units
	default:
		return m, false
	}
	return m, true
}

func (m *heapMap) next() uint64     { return binary.LittleEndian.Uint64(m.bytes[heapNextAt:]) }
func (m *heapMap) free() uint64     { return binary.LittleEndian.Uint64(m.bytes[heapFreeAt:]) }
func (m *heapMap) setNext(n uint64) { binary.LittleEndian.PutUint64(m.bytes[heapNextAt:], n) }
func (m *heapMap) setFree(n uint64) { binary.LittleEndian.PutUint64(m.bytes[heapFreeAt:], n) }

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

// malloc returns the offset of n free bytes and marks them as used; 0 if there are
// none. The search begins behind the last allocation, so that it is short until the
// heap is nearly full.
func (m *heapMap) malloc(n uint64) uint64 {
	if n == 0 || n > m.units*heapUnit {
		return 0
	}
	need := (n + heapUnit - 1) / heapUnit
	if need > m.free() || m.refused != 0 && need >= m.refused || m.work > heapPatience {
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
	m.work += need / 4 // two maps, a bit each
	mark(m.used, unit, need, true)
	mark(m.first, unit, need, false)
	mark(m.first, unit, 1, true)
	m.setNext(unit + need)
	m.setFree(m.free() - need)
	return m.at + unit*heapUnit
}

// search returns the first of need free units in a row, among those of a range.
func (m *heapMap) search(from, to, need uint64) (uint64, bool) {
	run := uint64(0)
	for unit := from; unit < to; {
		m.work += 8
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

// release frees the allocation at an offset; false if none begins there.
func (m *heapMap) release(at uint64) bool {
	unit := (at - m.at) / heapUnit
	if at < m.at || at%heapUnit != 0 || unit >= m.units || !hasBit(m.used, unit) || !hasBit(m.first, unit) {
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

// onHeap calls do for each active lane, with the heap locked. A fault releases it.
func (g *gang) onHeap(in *inst, do func(m *heapMap, lane int, frame uint64)) {
	h := g.team.x.launch.Heap
	first := g.mask.first()
	r, ok := g.team.x.memory.Find(h.Base)
	if !ok || r.Base+uint64(len(r.Bytes)) < h.Base+h.Size {
		g.fault(in, first, IllegalAddress, h.Base, "the heap is not mapped")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.open(r.Bytes[h.Base-r.Base:][:h.Size])
	if !ok {
		g.fault(in, first, IllegalAddress, h.Base, "a kernel has overwritten the records of the heap")
	}
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			g.did(heapCall)
			do(&m, lane, g.r64.lane(in.A, lane))
		}
	}
	g.did(m.work)
}

// runMalloc: a: frame; list: places of the size and the result in it.
func runMalloc(g *gang, in *inst) {
	h, check := g.team.x.launch.Heap, g.team.x.check
	g.onHeap(in, func(m *heapMap, lane int, frame uint64) {
		size := g.readLocal(in, lane, frame+uint64(in.List[0]), 8)
		addr := m.malloc(size)
		if addr != 0 {
			addr += h.Base
			if check != nil {
				check.allocate(addr, size, fmt.Sprintf("malloc(%d) at line %d", size, in.Text.Pos.Line), false)
			}
		}
		g.writeLocal(in, lane, frame+uint64(in.List[1]), 8, addr)
		if check != nil {
			check.writeLocal(g, lane, frame+uint64(in.List[1]), 8)
		}
	})
}

// runFree: a: frame; list: place of the address in it.
func runFree(g *gang, in *inst) {
	h, check := g.team.x.launch.Heap, g.team.x.check
	g.onHeap(in, func(m *heapMap, lane int, frame uint64) {
		addr := g.readLocal(in, lane, frame+uint64(in.List[0]), 8)
		if addr == 0 {
			return
		}
		if addr-h.Base >= h.Size || !m.release(addr-h.Base) {
			g.fault(in, lane, IllegalAddress, addr, "free is given what malloc has not returned, or what is free already")
		}
		if check != nil {
			check.retire(addr)
		}
	})
}
