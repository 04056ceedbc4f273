// Package texture reads textures by coordinates: which elements, what lies beyond the edges, and
// filters between them. It knows no instruction and no lane; memory is what Sampler.Read finds.
package texture

import (
	"encoding/binary"
	"math"
)

// Texture is memory that kernels read by coordinates, or a surface, which they read and
// write. Its elements lie in global memory, in rows.
type Texture struct {
	Surface  bool
	Levels   []Level // of a mipmap; one if it is none
	Layered  bool    // slices are layers
	Cube     bool    // layers are faces, six a cube
	Buffer   bool    // one row that nothing is outside of but zeros
	Format   Format
	Channels int

	Address    [3]AddressMode
	Smooth     bool // filter between elements
	MipSmooth  bool // and between levels
	Normalised bool // coordinates go from 0 to 1
	Integers   bool // elements stay integers
	SRGB       bool
	Bias       float32
	Min, Max   float32 // levels
	Border     [4]float32
}

// Level is one size of a texture. Sizes are in elements and at least 1.
type Level struct {
	At                   uint64
	Width, Height, Depth int
	Pitch, Slice         uint64 // bytes from row to row and from slice to slice
}

// Format is what a channel of an element is.
type Format uint8

// The formats.
const (
	U8 Format = iota
	U16
	U32
	S8
	S16
	S32
	F16
	F32
)

var formatSizes = [...]int{U8: 1, U16: 2, U32: 4, S8: 1, S16: 2, S32: 4, F16: 2, F32: 4}

// AddressMode says what lies beyond the edges of a texture.
type AddressMode uint8

// The modes, by CUDA's numbers.
const (
	Wrap AddressMode = iota
	Clamp
	Mirror
	Border
)

// Element returns the bytes of an element.
func (t *Texture) Element() int { return formatSizes[t.Format] * t.Channels }

// fractions says whether elements are read as fractions of the largest value.
func (t *Texture) fractions() bool {
	return !t.Integers && (t.Format == U8 || t.Format == U16 || t.Format == S8 || t.Format == S16)
}

// floats says whether elements are read as floats, so that filters can be applied.
func (t *Texture) floats() bool { return t.fractions() || t.Format == F16 || t.Format == F32 }

// Texel is an element as it is read: bits of floats or integers.
type Texel [4]uint32

// decode makes a texel of the bytes of an element. Channels that it has not are 0, and
// the last one is 1, as is usual for colours.
func (t *Texture) decode(b []byte) (v Texel) {
	v[3] = 1
	if t.floats() {
		v[3] = math.Float32bits(1)
	}
	size := formatSizes[t.Format]
	for c := range t.Channels {
		v[c] = t.channel(b[c*size:], c)
	}
	return v
}

func (t *Texture) channel(b []byte, c int) uint32 {
	switch t.Format {
	case U8:
		if t.fractions() {
			f := float32(b[0]) / 255
			if t.SRGB && c < 3 {
				f = linearOfSRGB(f)
			}
			return math.Float32bits(f)
		}
		return uint32(b[0])
	case S8:
		if t.fractions() {
			return math.Float32bits(max(-1, float32(int8(b[0]))/127))
		}
		return uint32(int8(b[0]))
	case U16:
		n := binary.LittleEndian.Uint16(b)
		if t.fractions() {
			return math.Float32bits(float32(n) / 65535)
		}
		return uint32(n)
	case S16:
		n := int16(binary.LittleEndian.Uint16(b))
		if t.fractions() {
			return math.Float32bits(max(-1, float32(n)/32767))
		}
		return uint32(n)
	case F16:
		return math.Float32bits(halfToFloat(binary.LittleEndian.Uint16(b)))
	}
	return binary.LittleEndian.Uint32(b)
}

func linearOfSRGB(f float32) float32 {
	if f <= 0.04045 {
		return f / 12.92
	}
	return float32(math.Pow((float64(f)+0.055)/1.055, 2.4))
}

func halfToFloat(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch exponent {
	case 0:
		f := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// mapped returns the index of an element in a row of n, or false if it is beyond the
// border.
func mapped(mode AddressMode, i int64, n int) (int, bool) {
	size := int64(n)
	if i >= 0 && i < size {
		return int(i), true
	}
	switch mode {
	case Wrap:
		return int(((i % size) + size) % size), true
	case Mirror:
		i = ((i % (2 * size)) + 2*size) % (2 * size)
		if i >= size {
			i = 2*size - 1 - i
		}
		return int(i), true
	case Border:
		return 0, false
	}
	return int(min(max(i, 0), size-1)), true
}

// mode is how coordinates of a dimension beyond the edges are treated: without
// normalised coordinates there is nothing to wrap around or to mirror.
func (t *Texture) mode(dimension int) AddressMode {
	m := t.Address[dimension]
	if !t.Normalised && (m == Wrap || m == Mirror) {
		return Clamp
	}
	return m
}

// floor returns the integer part of a coordinate; what no array is large enough for is
// as good as any place outside.
func floor(x float64) int64 {
	const far = 1 << 30
	if !(x > -far) { // NaN among them
		return -far
	}
	return int64(math.Floor(min(x, far)))
}

// Sampler reads a texture for one lane.
type Sampler struct {
	T     *Texture
	Read  func(addr uint64, n int) []byte
	Dims  int // that are addressed: 1 to 3
	Layer int
}

// Fetch reads the element at a place, after the rules for what is outside.
func (s *Sampler) Fetch(l *Level, at [3]int64) Texel {
	t := s.T
	size := [3]int{l.Width, l.Height, l.Depth}
	var in [3]int
	if t.Buffer && (at[0] < 0 || at[0] >= int64(l.Width)) {
		return Texel{}
	}
	for d := range s.Dims {
		var ok bool
		if in[d], ok = mapped(t.mode(d), at[d], size[d]); !ok {
			return s.border()
		}
	}
	if t.Layered || t.Cube {
		in[2] = s.Layer
	}
	n := t.Element()
	return t.decode(s.Read(l.At+uint64(in[2])*l.Slice+uint64(in[1])*l.Pitch+uint64(in[0]*n), n))
}

func (s *Sampler) border() (v Texel) {
	for c := range v {
		if s.T.floats() {
			v[c] = math.Float32bits(s.T.Border[c])
		} else {
			v[c] = uint32(int64(s.T.Border[c]))
		}
	}
	return v
}

// weight is a fraction as filters use it: 1.8 bits, fixed point.
func weight(x float64) float64 { return math.Floor(x*256+0.5) / 256 }

// Sample reads a level at coordinates, with the filter of the texture.
func (s *Sampler) Sample(l *Level, x [3]float32) Texel {
	place := s.scaled(l, x)
	var at [3]int64
	if !s.T.Smooth || !s.T.floats() || s.T.Buffer {
		for d := range s.Dims {
			at[d] = floor(place[d])
		}
		return s.Fetch(l, at)
	}
	var part [3]float64
	for d := range s.Dims {
		at[d] = floor(place[d] - 0.5)
		part[d] = weight(place[d] - 0.5 - math.Floor(place[d]-0.5))
	}
	var sum [4]float64
	for corner := range 1 << s.Dims {
		w, to := 1.0, at
		for d := range s.Dims {
			if corner>>d&1 != 0 {
				w *= part[d]
				to[d]++
			} else {
				w *= 1 - part[d]
			}
		}
		if w == 0 { // what it has there does not count, be it infinite
			continue
		}
		v := s.Fetch(l, to)
		for c := range sum {
			sum[c] += w * float64(math.Float32frombits(v[c]))
		}
	}
	return floatTexel(sum)
}

func floatTexel(sum [4]float64) (v Texel) {
	for c := range sum {
		v[c] = math.Float32bits(float32(sum[c]))
	}
	return v
}

// scaled returns coordinates in elements.
func (s *Sampler) scaled(l *Level, x [3]float32) (place [3]float64) {
	size := [3]int{l.Width, l.Height, l.Depth}
	for d := range s.Dims {
		place[d] = float64(x[d])
		if s.T.Normalised {
			place[d] *= float64(size[d])
		}
	}
	return place
}

// Gather reads one channel of the four elements that a filter would use.
func (s *Sampler) Gather(l *Level, x [3]float32, channel int) (v Texel) {
	place := s.scaled(l, x)
	i, j := floor(place[0]-0.5), floor(place[1]-0.5)
	for k, at := range [4][3]int64{{i, j + 1}, {i + 1, j + 1}, {i + 1, j}, {i, j}} {
		v[k] = s.Fetch(l, at)[channel]
	}
	return v
}

// Mipmapped reads the level, or between the two levels, that lod says.
func (s *Sampler) Mipmapped(lod float32, read func(l *Level) Texel) Texel {
	t := s.T
	last := len(t.Levels) - 1
	if last == 0 {
		return read(&t.Levels[0])
	}
	where := float64(min(max(lod+t.Bias, t.Min), t.Max))
	where = min(max(where, 0), float64(last))
	if math.IsNaN(where) {
		where = 0
	}
	if !t.MipSmooth || !t.floats() {
		return read(&t.Levels[int(math.Floor(where+0.5))])
	}
	low := int(where)
	part := weight(where - float64(low))
	if part == 0 || low == last {
		return read(&t.Levels[low])
	}
	a, b := read(&t.Levels[low]), read(&t.Levels[low+1])
	var sum [4]float64
	for c := range sum {
		sum[c] = (1-part)*float64(math.Float32frombits(a[c])) + part*float64(math.Float32frombits(b[c]))
	}
	return floatTexel(sum)
}

// LodOf is the level at which steps of the coordinates, in elements of the largest
// level, are one element long.
func (s *Sampler) LodOf(dx, dy [3]float32) float32 {
	length := func(d [3]float32) (sum float64) {
		for _, x := range s.scaled(&s.T.Levels[0], d) {
			sum += x * x
		}
		return math.Sqrt(sum)
	}
	return float32(math.Log2(max(length(dx), length(dy))))
}

// Face turns a direction into a face of a cube and coordinates there.
func Face(x, y, z float32) (n int, s, t float32) {
	abs := func(f float32) float32 { return float32(math.Abs(float64(f))) }
	var m float32
	switch ax, ay, az := abs(x), abs(y), abs(z); {
	case ax >= ay && ax >= az:
		n, m, s, t = 0, ax, -z, -y
		if x < 0 {
			n, s = 1, z
		}
	case ay >= az:
		n, m, s, t = 2, ay, x, z
		if y < 0 {
			n, t = 3, -z
		}
	default:
		n, m, s, t = 4, az, x, -y
		if z < 0 {
			n, s = 5, -x
		}
	}
	return n, (s/m + 1) / 2, (t/m + 1) / 2
}

func (t *Texture) Answer(query string, l *Level) int {
	switch query {
	case "width":
		return l.Width
	case "height":
		return l.Height
	case "depth":
		if t.Layered || t.Cube {
			return 1
		}
		return l.Depth
	case "array_size":
		switch {
		case t.Cube:
			return l.Depth / 6
		case t.Layered:
			return l.Depth
		}
		return 0
	case "num_mipmap_levels":
		return len(t.Levels)
	}
	if t.Normalised {
		return 1
	}
	return 0
}
