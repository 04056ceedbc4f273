//go:build goexperiment.simd

package vec

import "simd/archsimd"

func installMovers() {
	expand32, expand64 = expandVector32, expandVector64
	compress32, compress64 = compressVector32, compressVector64
	blend32, blend64 = blendVector32, blendVector64
	select32, select64 = selectVector32, selectVector64
	fusedOuterInUse = fusedOuterVector
}

// A chunk is a vector of 32-bit lanes, and two of 64-bit ones.
var (
	steps32 = [lanes32]uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	steps64 = [lanes64]uint64{0, 1, 2, 3, 4, 5, 6, 7}
)

func expandVector32(d, base []uint32, stride uint32) {
	steps := archsimd.LoadUint32x16(&steps32).Mul(archsimd.BroadcastUint32x16(stride))
	n := len(d) &^ (chunk - 1)
	base = base[:(len(d)+chunk-1)/chunk]
	for i := 0; i < n; i += chunk {
		put32(d, i, archsimd.BroadcastUint32x16(base[i/chunk]).Add(steps))
	}
	archsimd.ClearAVXUpperBits()
	expand(d[n:], base[n/chunk:], stride)
}

func expandVector64(d, base []uint64, stride uint64) {
	steps := archsimd.LoadUint64x8(&steps64).Mul(archsimd.BroadcastUint64x8(stride))
	half := archsimd.BroadcastUint64x8(stride * lanes64)
	n := len(d) &^ (chunk - 1)
	base = base[:(len(d)+chunk-1)/chunk]
	for i := 0; i < n; i += chunk {
		x := archsimd.BroadcastUint64x8(base[i/chunk]).Add(steps)
		put64(d, i, x)
		put64(d, i+lanes64, x.Add(half))
	}
	archsimd.ClearAVXUpperBits()
	expand(d[n:], base[n/chunk:], stride)
}

// irregular says quickly of most registers without a stride that they have
// none, before any vector is set up.
func irregular[L lane](a []L) bool {
	return len(a) >= 4 && (a[2]-a[1] != a[1]-a[0] || a[3]-a[2] != a[1]-a[0])
}

func compressVector32(base, a []uint32) (stride uint32, ok bool) {
	if len(a) < chunk {
		return compress(base, a)
	}
	if irregular(a) {
		return 0, false
	}
	stride = a[1] - a[0]
	steps := archsimd.LoadUint32x16(&steps32).Mul(archsimd.BroadcastUint32x16(stride))
	n := len(a) &^ (chunk - 1)
	base = base[:(len(a)+chunk-1)/chunk]
	ok = true
	for i := 0; i < n && ok; i += chunk {
		x := a[i]
		base[i/chunk] = x
		ok = get32(a, i).NotEqual(archsimd.BroadcastUint32x16(x).Add(steps)).ToBits() == 0
	}
	archsimd.ClearAVXUpperBits()
	return stride, ok && restIsRegular(base[n/chunk:], a[n:], stride)
}

func compressVector64(base, a []uint64) (stride uint64, ok bool) {
	if len(a) < chunk {
		return compress(base, a)
	}
	if irregular(a) {
		return 0, false
	}
	stride = a[1] - a[0]
	steps := archsimd.LoadUint64x8(&steps64).Mul(archsimd.BroadcastUint64x8(stride))
	half := archsimd.BroadcastUint64x8(stride * lanes64)
	n := len(a) &^ (chunk - 1)
	base = base[:(len(a)+chunk-1)/chunk]
	ok = true
	for i := 0; i < n && ok; i += chunk {
		x := a[i]
		base[i/chunk] = x
		want := archsimd.BroadcastUint64x8(x).Add(steps)
		ok = get64(a, i).NotEqual(want).ToBits()|get64(a, i+lanes64).NotEqual(want.Add(half)).ToBits() == 0
	}
	archsimd.ClearAVXUpperBits()
	return stride, ok && restIsRegular(base[n/chunk:], a[n:], stride)
}

// restIsRegular compresses the last, short chunk, whose stride is known.
func restIsRegular[L lane](base, a []L, stride L) bool {
	if len(a) == 0 {
		return true
	}
	base[0] = a[0]
	for i, x := range a {
		if x != a[0]+L(i)*stride {
			return false
		}
	}
	return true
}

func blendVector32(d, s []uint32, mask []uint64) {
	s = s[:len(d)]
	n := len(d) &^ (lanes32 - 1)
	for i := 0; i < n; {
		set, end := mask[i/64], min(i+64, n)
		switch set {
		case 0:
			i = end
		case ^uint64(0):
			i += copy(d[i:end], s[i:end])
		}
		for ; i < end; i += lanes32 {
			put32(d, i, get32(s, i).Merge(get32(d, i), archsimd.Mask32x16FromBits(uint16(set))))
			set >>= lanes32
		}
	}
	archsimd.ClearAVXUpperBits()
	for i := n; i < len(d); i++ {
		if mask[i/64]>>(i%64)&1 != 0 {
			d[i] = s[i]
		}
	}
}

func blendVector64(d, s []uint64, mask []uint64) {
	s = s[:len(d)]
	n := len(d) &^ (lanes64 - 1)
	for i := 0; i < n; {
		set, end := mask[i/64], min(i+64, n)
		switch set {
		case 0:
			i = end
		case ^uint64(0):
			i += copy(d[i:end], s[i:end])
		}
		for ; i < end; i += lanes64 {
			put64(d, i, get64(s, i).Merge(get64(d, i), archsimd.Mask64x8FromBits(uint8(set))))
			set >>= lanes64
		}
	}
	archsimd.ClearAVXUpperBits()
	for i := n; i < len(d); i++ {
		if mask[i/64]>>(i%64)&1 != 0 {
			d[i] = s[i]
		}
	}
}

func selectVector32(d, a, b []uint32, p []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	n := len(d) &^ (lanes32 - 1)
	for i := 0; i < n; {
		takeA := p[i/64]
		for end := min(i+64, n); i < end; i += lanes32 {
			put32(d, i, get32(a, i).Merge(get32(b, i), archsimd.Mask32x16FromBits(uint16(takeA))))
			takeA >>= lanes32
		}
	}
	archsimd.ClearAVXUpperBits()
	selectRest(d, a, b, p, n)
}

func selectVector64(d, a, b []uint64, p []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	n := len(d) &^ (lanes64 - 1)
	for i := 0; i < n; {
		takeA := p[i/64]
		for end := min(i+64, n); i < end; i += lanes64 {
			put64(d, i, get64(a, i).Merge(get64(b, i), archsimd.Mask64x8FromBits(uint8(takeA))))
			takeA >>= lanes64
		}
	}
	archsimd.ClearAVXUpperBits()
	selectRest(d, a, b, p, n)
}

func selectRest[L lane](d, a, b []L, p []uint64, from int) {
	for i := from; i < len(d); i++ {
		x := b[i]
		if p[i/64]>>(i%64)&1 != 0 {
			x = a[i]
		}
		d[i] = x
	}
}
