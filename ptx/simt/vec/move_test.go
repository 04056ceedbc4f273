package vec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// movers are the functions of one lane width, plain or in use.
type movers[L lane] struct {
	name     string
	expand   func(d, base []L, stride L)
	compress func(base, a []L) (L, bool)
	blend    func(d, s []L, mask []uint64)
	choice   func(d, a, b []L, p []uint64)
}

func TestMoves(t *testing.T) {
	r := seeded(t)
	checkMovers(t, r, movers[uint32]{"plain, 32 bits", expand[uint32], compress[uint32], blend[uint32], choice[uint32]})
	checkMovers(t, r, movers[uint64]{"plain, 64 bits", expand[uint64], compress[uint64], blend[uint64], choice[uint64]})
	checkMovers(t, r, movers[uint32]{"in use, 32 bits", Expand32, Compress32, Blend32, Select32})
	checkMovers(t, r, movers[uint64]{"in use, 64 bits", Expand64, Compress64, Blend64, Select64})
}

func checkMovers[L lane](t *testing.T, r *rand.Rand, m movers[L]) {
	t.Run(m.name, func(t *testing.T) {
		for _, n := range append([]int{2, 5, 24, 40, 250}, oddLengths...) {
			m.checkExpand(t, r, n)
			m.checkCompressRefuses(t, r, n)
			for _, mask := range masks(r, n) {
				m.checkMasked(t, r, n, mask)
			}
		}
	})
}

func randomLanes[L lane](r *rand.Rand, n int) []L {
	all := make([]L, n, n+guardLanes)
	for i := range all {
		all[i] = L(someBits(r))
	}
	return all
}

// checkGuards makes sure that the room behind a slice is untouched.
func checkGuards[L lane](t *testing.T, what string, s []L) {
	t.Helper()
	for _, x := range s[len(s):cap(s)] {
		if x != 0 {
			t.Errorf("%s of %d lanes wrote behind the last", what, len(s))
			return
		}
	}
}

func masks(r *rand.Rand, n int) [][]uint64 {
	all := make([][]uint64, 4)
	for range words(n) {
		x := r.Uint64()
		for i, word := range []uint64{0, ^uint64(0), x, x & r.Uint64() & r.Uint64()} {
			all[i] = append(all[i], word)
		}
	}
	return all
}

func (m movers[L]) checkExpand(t *testing.T, r *rand.Rand, n int) {
	base := randomLanes[L](r, (n+15)/16)
	stride := L(someBits(r))
	d := randomLanes[L](r, n)
	m.expand(d, base, stride)
	checkGuards(t, "expand", d)
	for i, got := range d {
		if want := base[i/16] + stride*L(i%16); got != want {
			t.Fatalf("expand of %d lanes: lane %d is %#x, want %#x", n, i, got, want)
		}
	}
	back := randomLanes[L](r, len(base))
	got, ok := m.compress(back, d)
	checkGuards(t, "compress", back)
	if n < 2 {
		stride = 0 // there is none to see
	}
	if !ok || got != stride || !slices.Equal(back, base) {
		t.Fatalf("compress of %d lanes = %#x, %v, %#x; want %#x, true, %#x", n, got, ok, back, stride, base)
	}
}

// checkCompressRefuses changes one lane of a regular register at a time.
func (m movers[L]) checkCompressRefuses(t *testing.T, r *rand.Rand, n int) {
	base := randomLanes[L](r, (n+15)/16)
	good := randomLanes[L](r, n)
	m.expand(good, base, L(someBits(r)))
	for i := range good {
		if i%16 == 0 && i+1 == n || n == 2 {
			continue // alone in its chunk; or of two, which always have a stride
		}
		bad := slices.Clone(good)
		bad[i] ^= 1 << r.IntN(32)
		if _, ok := m.compress(base, bad); ok {
			t.Fatalf("compress of %d lanes accepts a wrong lane %d: %#x", n, i, bad)
		}
	}
}

func (m movers[L]) checkMasked(t *testing.T, r *rand.Rand, n int, mask []uint64) {
	a, b := randomLanes[L](r, n), randomLanes[L](r, n)
	want := make([]L, n)
	for i := range want {
		want[i] = b[i]
		if mask[i/64]>>(i%64)&1 != 0 {
			want[i] = a[i]
		}
	}
	d := randomLanes[L](r, n)
	copy(d, b)
	m.blend(d, a, mask)
	checkGuards(t, "blend", d)
	if !slices.Equal(d, want) {
		t.Fatalf("blend of %d lanes by %#x gives %#x, want %#x", n, mask, d, want)
	}
	m.choice(d, a, b, mask)
	checkGuards(t, "select", d)
	if !slices.Equal(d, want) {
		t.Fatalf("select of %d lanes by %#x gives %#x, want %#x", n, mask, d, want)
	}
	overA, overB := slices.Clone(a), slices.Clone(b)
	m.choice(overA, overA, b, mask)
	m.choice(overB, a, overB, mask)
	if !slices.Equal(overA, want) || !slices.Equal(overB, want) {
		t.Fatalf("select of %d lanes by %#x onto a source gives %#x and %#x, want %#x", n, mask, overA, overB, want)
	}
}
