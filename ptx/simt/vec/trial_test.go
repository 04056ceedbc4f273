package vec

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// trial is one run of a kernel of any shape. Lanes travel as uint64 whatever
// their width, so that one harness serves all shapes.
type trial struct {
	kernel  any
	lanes   int
	sources [][]uint64
	in      []uint64 // carry bits
	alias   int      // the source that is also the destination, or -1
}

// guard is written behind the end of every destination, and must stay.
const guard, guardLanes = 0xdeadbeefdeadbeef, 16

func givesBits(kernel any) bool {
	switch kernel.(type) {
	case Compare32, Compare64, Test32, Test64:
		return true
	}
	return false
}

func takesCarry(kernel any) bool {
	switch kernel.(type) {
	case Carry32, Carry64:
		return true
	}
	return false
}

// widths are those of the destination and the sources, in bits; a destination
// of bits has width 1.
func widths(kernel any) (d int, sources []int) {
	t := reflect.TypeOf(kernel)
	n := t.NumIn()
	if takesCarry(kernel) {
		n -= 2
	}
	for i := 1; i < n; i++ {
		sources = append(sources, t.In(i).Elem().Bits())
	}
	if givesBits(kernel) {
		return 1, sources
	}
	return t.In(0).Elem().Bits(), sources
}

func words(lanes int) int { return (lanes + 63) / 64 }

// slice copies values into a slice of the given element width, with guards
// behind it.
func slice(width int, values []uint64) reflect.Value {
	guarded := append(append([]uint64{}, values...), make([]uint64, guardLanes)...)
	for i := len(values); i < len(guarded); i++ {
		guarded[i] = guard
	}
	if width == 64 {
		return reflect.ValueOf(guarded[:len(values)])
	}
	narrow := make([]uint32, len(guarded))
	for i, v := range guarded {
		narrow[i] = uint32(v)
	}
	return reflect.ValueOf(narrow[:len(values)])
}

// values undoes slice, and reports whether the guards are as they were.
func values(s reflect.Value) (all []uint64, intact bool) {
	n := s.Len()
	whole := s.Slice(0, n+guardLanes)
	intact = true
	for i := range n + guardLanes {
		v := whole.Index(i).Uint()
		if i < n {
			all = append(all, v)
		} else if v != guard && v != guard&0xffffffff {
			intact = false
		}
	}
	return all, intact
}

// run returns the destination, and the carries where the shape has them.
func (t trial) run() (d, carries []uint64, err error) {
	width, from := widths(t.kernel)
	before := make([]uint64, t.lanes)
	if width == 1 {
		width, before = 64, make([]uint64, words(t.lanes))
	}
	for i := range before {
		before[i] = 0x0123456789abcdef // what no kernel may leave or use
	}
	args := []reflect.Value{slice(width, before)}
	for i, w := range from {
		args = append(args, slice(w, t.sources[i][:t.lanes]))
	}
	if t.alias >= 0 {
		args[0] = args[1+t.alias]
	}
	if takesCarry(t.kernel) {
		bits := slice(64, t.in[:words(t.lanes)])
		args = append(args, bits, bits)
		defer func() { carries, _ = values(bits) }()
	}
	reflect.ValueOf(t.kernel).Call(args)
	d, intact := values(args[0])
	if !intact {
		return nil, nil, fmt.Errorf("wrote behind the last lane")
	}
	return d, nil, nil
}

// mustRun fails the test where a kernel writes out of bounds.
func (t trial) mustRun(tb testing.TB, name string) (d, carries []uint64) {
	tb.Helper()
	d, carries, err := t.run()
	if err != nil {
		tb.Fatalf("%s, %d lanes: %v", name, t.lanes, err)
	}
	return d, carries
}

// aliases lists the sources the destination may be, and -1 for none.
func aliases(kernel any) []int {
	all := []int{-1}
	d, from := widths(kernel)
	for i, w := range from {
		if w == d {
			all = append(all, i)
		}
	}
	return all
}

// special bits are at the edges of integers and of floats of all widths.
var special = []uint64{
	0, 1, 2, 3, 7, 8, 15, 16, 17, 23, 24, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256,
	0x7fff, 0x8000, 0x8001, 0xffff, 0x10000, 0x7fffff, 0x800000, 0xffffff,
	0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0x100000000,
	0x7fffffffffffffff, 0x8000000000000000, 0x8000000000000001, 0xfffffffffffffffe, 0xffffffffffffffff,
	0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc12345, 0x7f7fffff, 0x007fffff, 0x4f000000, 0xcf000000, 0x4f800000,
	0x3ff0000000000000, 0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001, 0xfff8000000012345,
	0x7fefffffffffffff, 0x0010000000000000, 0x000fffffffffffff, 0x41e0000000000000, 0x43e0000000000000,
	0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x0400, 0x03ff, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0x7f7f,
	0x3c003c00, 0x7e00fc00, 0x7fc0ff80,
}

// someBits is a mixture that meets the edges often.
func someBits(r *rand.Rand) uint64 {
	switch r.IntN(6) {
	case 0:
		return special[r.IntN(len(special))]
	case 1:
		return special[r.IntN(len(special))] + uint64(r.IntN(5)) - 2
	case 2: // a float of middling size
		return uint64(0x3f800000+r.Uint32N(0x08000000)-0x04000000) | uint64(r.IntN(2))<<31
	case 3:
		return uint64(0x3ff0000000000000) + r.Uint64N(0x0100000000000000) - 0x0080000000000000
	case 4:
		return r.Uint64() >> r.IntN(64)
	}
	return r.Uint64()
}

func manyBits(r *rand.Rand, n int) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = someBits(r)
	}
	return all
}

// operands fills n lanes for a kernel. With n large enough the first lanes of
// two sources meet every pair of special bits.
func operands(r *rand.Rand, name string, n int) (sources [][]uint64, in []uint64) {
	_, from := widths(kernels[name])
	for range from {
		sources = append(sources, manyBits(r, n))
	}
	if pairs := len(special) * len(special); n >= pairs {
		for i := range pairs {
			sources[0][i] = special[i%len(special)]
			if len(from) > 1 {
				sources[1][i] = special[i/len(special)]
			}
		}
	}
	if name == "lop3.b32" { // its table is one for all lanes
		sources[3] = slices.Repeat([]uint64{someBits(r)}, n)
	}
	in = make([]uint64, words(n))
	for i := range in {
		in[i] = r.Uint64()
	}
	return sources, in
}

// manyLanes has room for every pair of special bits and as many others.
var manyLanes = 2*len(special)*len(special) + 5

// oddLengths straddle the sizes of vectors and of words of bits.
var oddLengths = []int{0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 256}

// seeded gives a test its own random numbers, the same in every run.
func seeded(t testing.TB) *rand.Rand {
	const seed = 20260101
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, uint64(len(t.Name()))))
}

// difference is the first index where two slices differ, or -1.
func difference(a, b []uint64) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestKernelsIgnoreTheirDestination runs every kernel on odd
// lengths with the destination among the sources: the lanes must be those of
// a long run into a fresh destination.
func TestKernelsIgnoreTheirDestination(t *testing.T) {
	r := seeded(t)
	const n = 256
	for _, name := range Names() {
		kernel := Kernel(name)
		sources, in := operands(r, name, n)
		whole, _ := trial{kernel, n, sources, in, -1}.mustRun(t, name)
		for _, lanes := range oddLengths {
			want := whole[:min(lanes, len(whole))]
			if givesBits(kernel) {
				want = append([]uint64{}, whole[:words(lanes)]...)
				if lanes%64 != 0 {
					want[len(want)-1] &= 1<<(lanes%64) - 1
				}
			}
			for _, alias := range aliases(kernel) {
				got, _ := trial{kernel, lanes, sources, in, alias}.mustRun(t, name)
				if where := difference(got, want); where >= 0 {
					t.Errorf("%s, %d lanes, destination is source %d: lane or word %d is %#x, want %#x",
						name, lanes, alias, where, got[where], want[where])
				}
			}
		}
	}
}
