// Package vec holds the lane kernels of the software GPU: pure functions that
// do one operation on many lanes at once, a slice an operand.
//
// It knows numbers only: no instruction, no register, no mask, no memory, no
// thread. Every kernel computes all lanes it is given; which of them count is
// the business of the caller. Kernels never panic on any bits (a division by
// zero has a result), take slices of any length, of which all are as long as
// the destination, and allow the destination to be one of the sources.
//
// Values of 8 and 16 bits live in 32-bit lanes. Floats travel as their bits.
// Masks and predicates are bits, lane i at bit i%64 of word i/64.
package vec

import (
	"fmt"
	"sort"
)

// The shapes of kernels: what goes in and what comes out, by width. The
// destination is first. Where a 64-bit operation takes a count or a position,
// it is 32 bits wide, as in PTX.
type (
	Unary32   func(d, a []uint32)
	Binary32  func(d, a, b []uint32)
	Ternary32 func(d, a, b, c []uint32)
	Quad32    func(d, a, b, c, e []uint32)

	Unary64   func(d, a []uint64)
	Binary64  func(d, a, b []uint64)
	Ternary64 func(d, a, b, c []uint64)

	Widen       func(d []uint64, a []uint32)                // cvt to 64 bits
	Narrow      func(d []uint32, a []uint64)                // cvt to 32 bits, popc.b64
	WidenBinary func(d []uint64, a, b []uint32)             // mul.wide, 32 to 64 bits
	WidenAdd    func(d []uint64, a, b []uint32, c []uint64) // mad.wide
	Shift64     func(d, a []uint64, b []uint32)             // shl.b64
	Extract64   func(d, a []uint64, b, c []uint32)          // bfe.u64
	Insert64    func(d, a, b []uint64, c, e []uint32)       // bfi.b64
	Choose64    func(d, a, b []uint64, c []uint32)          // slct.b64.s32
	Compare32   func(d []uint64, a, b []uint32)             // d is bits
	Compare64   func(d []uint64, a, b []uint64)             // d is bits
	Test32      func(d []uint64, a []uint32)                // testp; d is bits
	Test64      func(d []uint64, a []uint64)                // testp; d is bits
	Carry32     func(d, a, b, c []uint32, in, out []uint64) // add.cc and the like; c only for mad; in and out are bits and may be the same
	Carry64     func(d, a, b, c []uint64, in, out []uint64) // the same, 64 bits wide
)

// kernels has every kernel by its name; with room, because every muster that starts fills it.
var kernels = make(map[string]any, 1600)

// define adds kernels; each has one of the shapes above.
func define(some map[string]any) {
	for name, k := range some {
		defineOne(name, k)
	}
}

func defineOne(name string, kernel any) {
	before := len(kernels)
	if kernels[name] = kernel; len(kernels) == before {
		panic(fmt.Sprintf("vec: kernel %s is defined twice", name))
	}
}

// Kernel returns the kernel with a name, as one of the shapes of this package,
// or nil. Names are those of PTX instructions with all that selects the
// arithmetic and nothing else: "add.b32", "fma.rn.ftz.f32", "cvt.rzi.s32.f64".
func Kernel(name string) any { return kernels[name] }

// Names returns the names of all kernels, sorted.
func Names() []string {
	names := make([]string, 0, len(kernels))
	for name := range kernels {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
