package vec

// FusedOuter is fma.rn.f32 of chunks of 16 lanes where the first factor is one
// value a chunk and the second is the same 16 values in every chunk:
// d[i] = fma(a[i/16], b[i%16], c[i]).
func FusedOuter(d, a, b, c []uint32) { fusedOuterInUse(d, a, b, c) }

var fusedOuterInUse = fusedOuter

func fusedOuter(d, a, b, c []uint32) {
	var x [16]uint32
	for i := 0; i < len(d); i += 16 {
		for l := range x {
			x[l] = a[i/16]
		}
		fmaF32(d[i:i+16], x[:], b[:16], c[i:i+16])
	}
}
