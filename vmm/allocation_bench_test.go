package vmm

import (
	"fmt"
	"testing"
)

// small is how far apart the library puts small allocations.
const small = 512

// crowded has n small allocations beside each other.
func crowded(t testing.TB, n int) *Space {
	t.Helper()
	s := benchSpace(t, 0, 1)
	for i := range n {
		if err := s.Alloc(smallAt(i)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func smallAt(i int) Range { return Range{0x600000000000 + uint64(i)*small, 256} }

// BenchmarkAllocations measures what an allocation and its end cost beside n others, by its
// position.
func BenchmarkAllocations(b *testing.B) {
	for _, n := range []int{1_000, 25_000, 100_000, 400_000} {
		s := crowded(b, n)
		for _, where := range []struct {
			name string
			at   func(i int) int
		}{
			{"first", func(int) int { return 0 }},
			{"last", func(int) int { return n - 1 }},
			{"any", func(i int) int { return i * 7919 % n }},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, where.name), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					r := smallAt(where.at(i))
					if _, err := s.Free(r.Addr); err != nil {
						b.Fatal(err)
					}
					if err := s.Alloc(r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLaunchAfterAllocation measures what a kernel costs that finds one chunk more than the
// last one did, beside n allocations of a chunk each.
func BenchmarkLaunchAfterAllocation(b *testing.B) {
	for _, n := range []int{1_000, 25_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchSpace(b, n, 1)
			prepare(b, s, Device(0), s.Allocations(), unbounded)
			s.Launched(Device(0), nil)
			more := Range{0x600000000000 + uint64(n)*benchChunk, benchChunk}
			for b.Loop() {
				if err := s.Alloc(more); err != nil {
					b.Fatal(err)
				}
				if _, err := s.PrepareAll(Device(0), unbounded); err != nil {
					b.Fatal(err)
				}
				s.Launched(Device(0), nil)
				if _, err := s.Free(more.Addr); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
