package vec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMoves(t *testing.T) {
	r := seeded(t)
	t.Run("32 bits", func(t *testing.T) { checkMovers[uint32](t, r) })
	t.Run("64 bits", func(t *testing.T) { checkMovers[uint64](t, r) })
}

func checkMovers[L lane](t *testing.T, r *rand.Rand) {
	for _, n := range append([]int{2, 5, 24, 40, 250}, oddLengths...) {
		checkExpand[L](t, r, n)
		checkCompressRefuses[L](t, r, n)
		for _, mask := range masks(r, n) {
			checkMasked[L](t, r, n, mask)
		}
	}
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

func checkExpand[L lane](t *testing.T, r *rand.Rand, n int) {
	base := randomLanes[L](r, (n+15)/16)
	stride := L(someBits(r))
	d := randomLanes[L](r, n)
	Expand(d, base, stride)
	checkGuards(t, "expand", d)
	for i, got := range d {
		if want := base[i/16] + stride*L(i%16); got != want {
			t.Fatalf("expand of %d lanes: lane %d is %#x, want %#x", n, i, got, want)
		}
	}
	back := randomLanes[L](r, len(base))
	got, ok := Compress(back, d)
	checkGuards(t, "compress", back)
	if n < 2 {
		stride = 0 // there is none to see
	}
	if !ok || got != stride || !slices.Equal(back, base) {
		t.Fatalf("compress of %d lanes = %#x, %v, %#x; want %#x, true, %#x", n, got, ok, back, stride, base)
	}
}

// checkCompressRefuses changes one lane of a regular register at a time.
func checkCompressRefuses[L lane](t *testing.T, r *rand.Rand, n int) {
	base := randomLanes[L](r, (n+15)/16)
	good := randomLanes[L](r, n)
	Expand(good, base, L(someBits(r)))
	for i := range good {
		if i%16 == 0 && i+1 == n || n == 2 {
			continue // alone in its chunk; or of two, which always have a stride
		}
		bad := slices.Clone(good)
		bad[i] ^= 1 << r.IntN(32)
		if _, ok := Compress(base, bad); ok {
			t.Fatalf("compress of %d lanes accepts a wrong lane %d: %#x", n, i, bad)
		}
	}
}

func checkMasked[L lane](t *testing.T, r *rand.Rand, n int, mask []uint64) {
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
	Blend(d, a, mask)
	checkGuards(t, "blend", d)
	if !slices.Equal(d, want) {
		t.Fatalf("blend of %d lanes by %#x gives %#x, want %#x", n, mask, d, want)
	}
	Select(d, a, b, mask)
	checkGuards(t, "select", d)
	if !slices.Equal(d, want) {
		t.Fatalf("select of %d lanes by %#x gives %#x, want %#x", n, mask, d, want)
	}
	overA, overB := slices.Clone(a), slices.Clone(b)
	Select(overA, overA, b, mask)
	Select(overB, a, overB, mask)
	if !slices.Equal(overA, want) || !slices.Equal(overB, want) {
		t.Fatalf("select of %d lanes by %#x onto a source gives %#x and %#x, want %#x", n, mask, overA, overB, want)
	}
}
