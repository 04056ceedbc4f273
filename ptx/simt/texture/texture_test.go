package texture

import (
	"math"
	"testing"
)

// ramp is a texture of four bytes in a row, 0, 51, 102 and 153, read as fractions of 255.
func ramp(t Texture) *Sampler {
	row := []byte{0, 51, 102, 153}
	t.Levels, t.Channels = []Level{{Width: 4, Height: 1, Depth: 1, Pitch: 4, Slice: 4}}, 1
	return &Sampler{T: &t, Dims: 1, Read: func(addr uint64, n int) []byte { return row[addr:][:n] }}
}

func TestSample(t *testing.T) {
	clamped, wrapped := [3]AddressMode{Clamp, Clamp, Clamp}, [3]AddressMode{Wrap, Wrap, Wrap}
	border := [3]AddressMode{Border, Border, Border}
	for _, c := range []struct {
		name string
		t    Texture
		x    float32
		want float32
	}{
		{"nearest", Texture{Address: clamped}, 1.9, 0.2},
		{"beyond the edge", Texture{Address: clamped}, 9, 0.6},
		{"between two", Texture{Address: clamped, Smooth: true}, 2, 0.3},
		{"around", Texture{Address: wrapped, Normalised: true}, 1.3, 0.2},
		{"border", Texture{Address: border, Border: [4]float32{0.7}}, -1, 0.7},
	} {
		s := ramp(c.t)
		v := s.Sample(&s.T.Levels[0], [3]float32{c.x})
		if got := math.Float32frombits(v[0]); math.Abs(float64(got-c.want)) > 1e-6 {
			t.Errorf("%s: got %v at %v, want %v", c.name, got, c.x, c.want)
		}
	}
}
