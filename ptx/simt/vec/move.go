package vec

import "math/bits"

// chunk is the number of lanes that share a base in the compressed form of a
// register: lane i of a chunk holds the base plus i strides.
const chunk = 16

// Expand writes out chunks of 16 lanes: lane i is base[i/16] + stride*(i%16).
// There is a base for every chunk that d begins.
func Expand[L lane](d, base []L, stride L) {
	for c := 0; len(d) > 0; c++ {
		n := min(chunk, len(d))
		x := base[c]
		for i := range d[:n] {
			d[i] = x
			x += stride
		}
		d = d[n:]
	}
}

// Compress is the reverse of Expand: it finds the bases and the stride of a, or
// says that there is no one stride, and then base holds nothing of use.
func Compress[L lane](base, a []L) (stride L, ok bool) {
	if len(a) > 1 {
		stride = a[1] - a[0]
	}
	for c := 0; len(a) > 0; c++ {
		n := min(chunk, len(a))
		x := a[0]
		base[c] = x
		for _, y := range a[:n] {
			if y != x {
				return 0, false
			}
			x += stride
		}
		a = a[n:]
	}
	return stride, true
}

// Blend copies the lanes of s whose bit is set in mask to d. It goes from set bit
// to set bit; masks with all or none set, which are most, cost no more than a copy.
func Blend[L lane](d, s []L, mask []uint64) {
	s = s[:len(d)]
	for w := 0; len(d) > 0; w++ {
		n := min(64, len(d))
		to, from := d[:n], s[:n]
		set := mask[w] & (^uint64(0) >> (64 - n))
		if bits.OnesCount64(set) == n {
			copy(to, from)
		} else {
			for ; set != 0; set &= set - 1 {
				i := bits.TrailingZeros64(set)
				to[i] = from[i]
			}
		}
		d, s = d[n:], s[n:]
	}
}

// Select takes lanes from a where the bit of p is set, else from b.
func Select[L lane](d, a, b []L, p []uint64) {
	a, b = a[:len(d)], b[:len(d)]
	for w := 0; len(d) > 0; w++ {
		n := min(64, len(d))
		to, x, y := d[:n], a[:n], b[:n]
		switch take := p[w]; take {
		case 0:
			copy(to, y)
		case ^uint64(0):
			copy(to, x)
		default:
			for i := range to {
				v := y[i]
				if take&1 != 0 {
					v = x[i]
				}
				to[i] = v
				take >>= 1
			}
		}
		d, a, b = d[n:], a[n:], b[n:]
	}
}
