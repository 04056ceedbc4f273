package vmm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"muster/internal/seeds"
)

// What a plan carries, counted chunk by chunk, equals what Links says of its steps.
func TestLinksAreWhatAPlanCarries(t *testing.T) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 7))
	const chunk = 4096
	for range 300 {
		s, err := New(Config{Arena: Range{1 << 32, 64 * chunk}, Chunk: chunk, Devices: Devices(3), Limit: 64 * chunk})
		if err != nil {
			t.Fatal(err)
		}
		var all []Range
		for at := uint64(0); at < 60; {
			size := 1 + r.Uint64N(4)
			all = append(all, Range{1<<32 + at*chunk, size * chunk})
			if err := s.Alloc(all[len(all)-1]); err != nil {
				t.Fatal(err)
			}
			at += size
		}
		for range 20 {
			at := Device(r.IntN(3))
			var need []Range
			for _, a := range all {
				if r.IntN(3) == 0 {
					need = append(need, a)
				}
			}
			plan, err := s.Prepare(at, need, 24*chunk)
			if err != nil {
				continue
			}
			s.Launched(at, need)
			want := map[[2]Place]uint64{}
			out := map[uint64]Place{}
			taken := map[uint64]bool{}
			each := func(op Op, f func(addr uint64, at Place)) {
				for _, step := range plan {
					for a := step.Range.Addr; step.Op == op && a < step.Range.end(); a += chunk {
						f(a, step.Device)
					}
				}
			}
			each(CopyOut, func(a uint64, at Place) { out[a] = at })
			each(CopyIn, func(a uint64, at Place) {
				from, moved := out[a]
				if !moved {
					from = Host
				}
				taken[a] = true
				want[[2]Place{from, at}] += chunk
			})
			each(CopyOut, func(a uint64, at Place) {
				if !taken[a] {
					want[[2]Place{at, Host}] += chunk
				}
			})
			got := plan.Links()
			for _, l := range got {
				if want[[2]Place{l.From, l.To}] != l.Bytes {
					t.Fatalf("%v: from %v to %v %d bytes, not %d", plan, l.From, l.To, l.Bytes, want[[2]Place{l.From, l.To}])
				}
				delete(want, [2]Place{l.From, l.To})
			}
			if len(want) > 0 || slices.ContainsFunc(got, func(l Link) bool { return l.Bytes == 0 }) {
				t.Fatalf("%v: %v, without %v", plan, got, want)
			}
		}
	}
}
