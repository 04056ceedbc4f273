package vec

import (
	"math"
	"strings"
	"testing"
)

// isSmall says whether a kernel converts to or from a format of at most 8 bits, or
// to the largest number in place of infinity; the tests here look at these.
func isSmall(name string) bool {
	for _, t := range smallTypes {
		if strings.Contains(name, "."+t.name+"x2") {
			return true
		}
	}
	return strings.Contains(name, ".satfinite.") || strings.Contains(name, ".ue8m0x2")
}

// smallValues lists all numbers of a format that are not negative, as the
// standards write them: the numbers of each exponent one after the other.
func smallValues(exponentBits, fractionBits, bias, count int) []float64 {
	var all []float64
	for e := range 1 << exponentBits {
		for m := range 1 << fractionBits {
			v := 1 + float64(m)/float64(int(1)<<fractionBits)
			at := e
			if e == 0 {
				v, at = v-1, 1
			}
			all = append(all, v*math.Pow(2, float64(at-bias)))
		}
	}
	return all[:count]
}

// Every f16 becomes the nearest number of each format, of two equally near ones
// the even one; and every number of the format comes back.
func TestSmallFloats(t *testing.T) {
	for _, c := range []struct {
		name                             string
		exponent, fraction, bias, values int
		nan                              uint32
		half                             int
	}{
		{"e4m3", 4, 3, 7, 0x7f, 0x7f, 8}, {"e5m2", 5, 2, 15, 0x7c, 0x7f, 8}, {"e2m3", 2, 3, 1, 0x20, 0x1f, 8}, {"e3m2", 3, 2, 3, 0x20, 0x1f, 8}, {"e2m1", 2, 1, 1, 8, 7, 4},
	} {
		values := smallValues(c.exponent, c.fraction, c.bias, c.values)
		sign := uint32(1) << (c.exponent + c.fraction)
		nearest := func(v float64) uint32 {
			best := 0
			for i, x := range values {
				if d, known := math.Abs(x-math.Abs(v)), math.Abs(values[best]-math.Abs(v)); d < known || d == known && i%2 == 0 {
					best = i
				}
			}
			if math.IsInf(v, 0) {
				best = len(values) - 1
			}
			if math.Signbit(v) {
				return sign | uint32(best)
			}
			return uint32(best)
		}
		to, back := kernels["cvt.rn.satfinite."+c.name+"x2.f16x2"].(Unary32), kernels["cvt.rn.f16x2."+c.name+"x2"].(Unary32)
		relu, wide := kernels["cvt.rn.satfinite.relu."+c.name+"x2.f16x2"].(Unary32), kernels["cvt.rn.satfinite."+c.name+"x2.f32"].(Binary32)
		var d, e, f [1]uint32
		for h := range uint32(1 << 16) {
			v := halfValue(h)
			want := c.nan
			if v == v {
				want = nearest(float64(v))
			}
			to(d[:], []uint32{h<<16 | 0x3c00})
			relu(e[:], []uint32{h | 0x3c00<<16})
			wide(f[:], []uint32{math.Float32bits(v)}, []uint32{math.Float32bits(1)})
			one := nearest(1)
			positive := want
			if v == v && h&0x8000 != 0 {
				positive = 0
			}
			if d[0] != want<<c.half|one || e[0] != one<<c.half|positive || f[0] != d[0] {
				t.Fatalf("%s of %#x: %#x, with relu %#x, of f32 %#x, want %#x and %#x", c.name, h, d[0], e[0], f[0], want, positive)
			}
		}
		for code := range values {
			back(d[:], []uint32{uint32(code)<<c.half | uint32(code) | sign})
			if low, high := halfValue(d[0]&0xffff), halfValue(d[0]>>16); float64(high) != values[code] || float64(-low) != values[code] {
				t.Fatalf("%s: %#x came back as %v and %v, want %v", c.name, code, high, low, values[code])
			}
		}
	}
}
