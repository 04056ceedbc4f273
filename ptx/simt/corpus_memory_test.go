package simt_test

import (
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"muster/ptx/simt"
)

// The arena's addresses: any place far from 0 and below simt.GlobalEnd.
const (
	arenaBase = uint64(0x7d00_0000_0000)
	arenaSize = 16 << 20
	arenaGap  = 4096 // unmapped bytes behind every stretch, at least
	unwritten = 0xa5 // what fresh memory and memory that was moved away hold
)

// arena is global memory for tests: named stretches of one anonymous mapping,
// which the race detector leaves alone, with unmapped gaps between them. It
// changes only while no kernel runs.
type arena struct {
	bytes      []byte
	stretches  []stretch // by address
	top        uint64    // offset of the first free byte
	flat       bool      // one region from the first byte to the last, gaps mapped
	generation uint64
	old        [][]byte // mappings moved away from, to be given back at the end
}

// stretch is a piece of the arena that belongs together.
type stretch struct {
	addr      uint64
	size      int
	unordered bool // its bytes may depend on the order of threads
}

var _ simt.Memory = (*arena)(nil)

func mapAnonymous() []byte {
	b, err := syscall.Mmap(-1, 0, arenaSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		panic(fmt.Sprintf("mapping %d bytes for a test: %v", arenaSize, err))
	}
	return b
}

func newArena(flat bool) *arena {
	return &arena{bytes: mapAnonymous(), flat: flat, generation: 1}
}

// Find returns the stretch around an address, or everything if the arena is flat.
func (a *arena) Find(addr uint64) (simt.Region, bool) {
	if a.flat {
		if addr < arenaBase || addr >= arenaBase+a.top {
			return simt.Region{}, false
		}
		return simt.Region{Base: arenaBase, Bytes: a.bytes[:a.top]}, true
	}
	i, exact := slices.BinarySearchFunc(a.stretches, addr, func(s stretch, addr uint64) int {
		switch {
		case addr < s.addr:
			return 1
		case addr >= s.addr+uint64(s.size):
			return -1
		}
		return 0
	})
	if !exact {
		return simt.Region{}, false
	}
	s := a.stretches[i]
	return simt.Region{Base: s.addr, Bytes: a.at(s.addr, s.size)}, true
}

// Generation counts the changes of the map.
func (a *arena) Generation() uint64 { return a.generation }

// at returns the bytes behind an address of the arena.
func (a *arena) at(addr uint64, size int) []byte {
	from := addr - arenaBase
	return a.bytes[from : from+uint64(size) : from+uint64(size)]
}

// reserve maps size bytes behind a gap and fills them with unwritten.
func (a *arena) reserve(size int) uint64 {
	addr := arenaBase + a.top
	end := a.top + uint64(size)
	if end+arenaGap > arenaSize {
		panic(fmt.Sprintf("a test needs more than %d bytes of memory", arenaSize))
	}
	a.top = (end + arenaGap + 255) &^ 255
	a.stretches = append(a.stretches, stretch{addr: addr, size: size})
	a.generation++
	for i, b := 0, a.at(addr, size); i < len(b); i++ {
		b[i] = unwritten
	}
	return addr
}

// remove takes a stretch out of the map.
func (a *arena) remove(addr uint64) {
	a.stretches = slices.DeleteFunc(a.stretches, func(s stretch) bool { return s.addr == addr })
	a.generation++
}

// move puts all memory elsewhere, at the same addresses, and spoils the bytes
// left behind, so that whoever still looks at them is found out.
func (a *arena) move() {
	fresh := mapAnonymous()
	copy(fresh, a.bytes[:a.top])
	for i := range a.bytes[:a.top] {
		a.bytes[i] = unwritten
	}
	a.old = append(a.old, a.bytes)
	a.bytes = fresh
	a.generation++
}

// clone returns an arena of its own with the same contents.
func (a *arena) clone() *arena {
	c := &arena{bytes: mapAnonymous(), stretches: slices.Clone(a.stretches), top: a.top, flat: a.flat, generation: 1}
	copy(c.bytes, a.bytes[:a.top])
	return c
}

// release gives the memory back.
func (a *arena) release() {
	for _, b := range append(a.old, a.bytes) {
		if err := syscall.Munmap(b); err != nil {
			panic(fmt.Sprintf("unmapping a test's memory: %v", err))
		}
	}
	a.old, a.bytes = nil, nil
}

// number is what kernels compute with.
type number interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64
}

// array is a run of numbers in a gpu's memory.
type array[T number] struct {
	addr uint64
	n    int
}

func (a array[T]) address() uint64 { return a.addr }

// from returns the part of the array that starts at an element.
func (a array[T]) from(i int) array[T] {
	return array[T]{a.addr + uint64(i)*uint64(sizeOf[T]()), a.n - i}
}

func sizeOf[T number]() int { return int(unsafe.Sizeof(*new(T))) }

// alloc makes room for n numbers, not written yet.
func alloc[T number](g *gpu, n int) array[T] {
	a := array[T]{g.memory.reserve(n * sizeOf[T]()), n}
	if g.checker != nil {
		g.checker.Allocate(a.addr, uint64(n*sizeOf[T]()), fmt.Sprintf("%T", a), false)
	}
	return a
}

// put makes an array that holds the values.
func put[T number](g *gpu, values []T) array[T] {
	a := alloc[T](g, len(values))
	write(g, a, values)
	return a
}

// zero makes an array of n zeros.
func zero[T number](g *gpu, n int) array[T] { return put(g, make([]T, n)) }

// write stores values at the start of an array.
func write[T number](g *gpu, a array[T], values []T) {
	copy(view(g, a), values)
	if g.checker != nil {
		g.checker.Written(a.addr, uint64(len(values)*sizeOf[T]()))
	}
}

// read returns a copy of an array's contents.
func read[T number](g *gpu, a array[T]) []T { return slices.Clone(view(g, a)) }

func view[T number](g *gpu, a array[T]) []T {
	if a.n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&g.memory.at(a.addr, a.n*sizeOf[T]())[0])), a.n)
}

// unordered marks an array whose contents may depend on the order of threads.
func unordered[T number](g *gpu, a array[T]) array[T] {
	for i := range g.memory.stretches {
		if g.memory.stretches[i].addr == a.addr {
			g.memory.stretches[i].unordered = true
		}
	}
	return a
}
