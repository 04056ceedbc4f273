package vec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// FusedOuter is the kernel fma.rn.f32 with its factors written out.
func TestFusedOuter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	special := []uint32{0, 1 << 31, 0x7f800000, 0xff800000, 0x7fc00000, 1, 0x3f800000, 0x00800000}
	value := func() uint32 {
		if rng.IntN(4) == 0 {
			return special[rng.IntN(len(special))]
		}
		return rng.Uint32()
	}
	for chunks := 1; chunks <= 16; chunks++ {
		n := 16 * chunks
		a, b, c := make([]uint32, chunks), make([]uint32, 16), make([]uint32, n)
		fill := func(s []uint32) {
			for i := range s {
				s[i] = value()
			}
		}
		fill(a)
		fill(b)
		fill(c)
		x, y, want := make([]uint32, n), make([]uint32, n), make([]uint32, n)
		for i := range x {
			x[i], y[i] = a[i/16], b[i%16]
		}
		plain["fma.rn.f32"].(Ternary32)(want, x, y, c)
		for name, f := range map[string]func(d, a, b, c []uint32){"plain": fusedOuter, "in use": FusedOuter} {
			got := slices.Clone(c)
			f(got, a, b, got) // into the summand
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d chunks: %#x, want %#x", name, chunks, got, want)
			}
		}
	}
}
