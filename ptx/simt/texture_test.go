package simt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"muster/ptx/simt"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/texture"
)

const (
	textureAt  = 0x1000_0000
	argumentAt = 0x2000_0000
	resultAt   = 0x3000_0000
)

type textureTable map[uint64]*texture.Texture

func (t textureTable) Texture(handle uint64) *texture.Texture { return t[handle] }

// textureKernel runs an instruction in each thread, with words of its own as operands:
// %a0 to %a7 are words from argumentAt on, and %v0 to %v3 go to resultAt.
func textureKernel(instruction string) string {
	var b strings.Builder
	b.WriteString(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 handle)\n{\n" +
		"\t.reg .b32 %a<8>; .reg .b32 %v<4>; .reg .b32 %i<4>; .reg .b64 %d<8>; .reg .b64 %h; .reg .b64 %w<4>; .reg .b16 %s<4>;\n" +
		"\tld.param.u64 %h, [handle];\n" +
		"\tmov.u32 %i0, %tid.x; mov.u32 %i1, %ctaid.x; mov.u32 %i2, %ntid.x; mad.lo.u32 %i0, %i1, %i2, %i0;\n" +
		"\tmul.wide.u32 %d0, %i0, 32; add.u64 %d1, %d0, " + fmt.Sprint(uint64(argumentAt)) + ";\n" +
		"\tmul.wide.u32 %d2, %i0, 16; add.u64 %d3, %d2, " + fmt.Sprint(uint64(resultAt)) + ";\n")
	for i := range 8 {
		fmt.Fprintf(&b, "\tld.global.b32 %%a%d, [%%d1+%d];\n", i, 4*i)
	}
	for i := range 4 {
		fmt.Fprintf(&b, "\tmov.b32 %%v%d, 0;\n", i)
	}
	b.WriteString("\t" + instruction + ";\n\tst.global.v4.b32 [%d3], {%v0, %v1, %v2, %v3};\n\tret;\n}\n")
	return b.String()
}

// runTextures runs an instruction on a texture for each of some operands.
func runTextures(t *testing.T, instruction string, texture *texture.Texture, contents []byte, operands [][8]uint32) ([][4]uint32, []byte, error) {
	t.Helper()
	memory := &testMemory{}
	copy(memory.add(t, textureAt, (len(contents)+15)&^15), contents)
	in := memory.add(t, argumentAt, 32*len(operands))
	for i, o := range operands {
		for j, w := range o {
			binary.LittleEndian.PutUint32(in[32*i+4*j:], w)
		}
	}
	out := memory.add(t, resultAt, 16*len(operands))
	kernel := loadText(t, textureKernel(instruction)).Kernel("k")
	x, err := kernel.Start(simt.Launch{
		Grid: shape.Dim{X: uint32(len(operands)), Y: 1, Z: 1}, Block: shape.Dim{X: 1, Y: 1, Z: 1},
		Params: binary.LittleEndian.AppendUint64(nil, 7), Memory: memory, Textures: textureTable{7: texture},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = x.Run()
	results := make([][4]uint32, len(operands))
	for i := range results {
		for j := range 4 {
			results[i][j] = binary.LittleEndian.Uint32(out[16*i+4*j:])
		}
	}
	region, _ := memory.Find(textureAt)
	return results, region.Bytes[:len(contents)], err
}

func floatWords(f ...float32) (w [8]uint32) {
	for i, x := range f {
		w[i] = math.Float32bits(x)
	}
	return w
}

// floats are random elements of f32.
func floats(r *rand.Rand, n int) []byte {
	var b []byte
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(r.Float32()*8-4))
	}
	return b
}

// plain is a texture of f32 as CUDA's programming guide describes reads of it: a function
// of the position, with one value an element. It is written anew here, straight from the
// formulas, for one to three dimensions.
type plain struct {
	size       []int
	value      func(at []int) float64
	mode       texture.AddressMode
	normalised bool
	border     float64
}

func (p plain) at(at []int) float64 {
	in := make([]int, len(at))
	for d, i := range at {
		n := p.size[d]
		switch p.mode {
		case texture.Clamp:
			i = max(0, min(i, n-1))
		case texture.Wrap:
			for i < 0 {
				i += n
			}
			i %= n
		case texture.Mirror: // element -1 is 0 again, n is n-1
			for i < 0 {
				i += 2 * n
			}
			if i %= 2 * n; i >= n {
				i = 2*n - 1 - i
			}
		case texture.Border:
			if i < 0 || i >= n {
				return p.border
			}
		}
		in[d] = i
	}
	return p.value(in)
}

func (p plain) read(x []float32, smooth bool) float64 {
	place := make([]float64, len(x))
	for d := range x {
		place[d] = float64(x[d])
		if p.normalised {
			place[d] *= float64(p.size[d])
		}
		if smooth {
			place[d] -= 0.5
		}
	}
	return p.between(place, nil, smooth)
}

// between filters one dimension after the other, the last first.
func (p plain) between(place []float64, behind []int, smooth bool) float64 {
	if len(place) == 0 {
		return p.at(behind)
	}
	d := len(place) - 1
	i := int(math.Floor(place[d]))
	if !smooth {
		return p.between(place[:d], append([]int{i}, behind...), smooth)
	}
	fraction := math.Round((place[d]-float64(i))*256) / 256
	return (1-fraction)*p.between(place[:d], append([]int{i}, behind...), smooth) +
		fraction*p.between(place[:d], append([]int{i + 1}, behind...), smooth)
}

// Reads of one to three dimensions, filtered and not, with every mode of addressing, are
// what the formulas of CUDA's guide say.
func TestTexturesAreReadAsTheGuideSays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	geometries := []struct{ name, coordinates string }{{"1d", "%a0"}, {"2d", "{%a0, %a1}"}, {"3d", "{%a0, %a1, %a2, %a2}"}}
	sizes := []int{9, 6, 5}
	for dims := 1; dims <= 3; dims++ {
		g, size := geometries[dims-1], sizes[:dims]
		count, steps := 1, make([]int, dims)
		for d, n := range size {
			steps[d] = count
			count *= n
		}
		contents := floats(r, count)
		for mode := texture.Wrap; mode <= texture.Border; mode++ {
			for variant := range 4 {
				smooth, normalised := variant&1 != 0, variant&2 != 0
				if !normalised && (mode == texture.Wrap || mode == texture.Mirror) {
					continue // there is nothing to wrap around
				}
				p := plain{size: size, mode: mode, normalised: normalised, border: 2.5, value: func(at []int) float64 {
					n := 0
					for d, i := range at {
						n += i * steps[d]
					}
					return float64(math.Float32frombits(binary.LittleEndian.Uint32(contents[4*n:])))
				}}
				level := texture.Level{At: textureAt, Width: 9, Height: 1, Depth: 1, Pitch: 36, Slice: 36 * 6}
				if dims > 1 {
					level.Height = 6
				}
				if dims > 2 {
					level.Depth = 5
				}
				texture := &texture.Texture{
					Levels: []texture.Level{level}, Format: texture.F32, Channels: 1, Smooth: smooth, Normalised: normalised,
					Address: [3]texture.AddressMode{mode, mode, mode}, Border: [4]float32{2.5, 2.5, 2.5, 2.5},
				}
				var operands [][8]uint32
				var places [][]float32
				for range 200 {
					x := make([]float32, dims)
					for d := range x {
						x[d] = r.Float32()*3 - 1
						if !normalised {
							x[d] *= float32(size[d])
						}
					}
					places = append(places, x)
					operands = append(operands, floatWords(x...))
				}
				results, _, err := runTextures(t, fmt.Sprintf("tex.%s.v4.f32.f32 {%%v0, %%v1, %%v2, %%v3}, [%%h, %s]", g.name, g.coordinates), texture, contents, operands)
				if err != nil {
					t.Fatal(err)
				}
				for i, got := range results {
					want := p.read(places[i], smooth)
					if f := float64(math.Float32frombits(got[0])); math.Abs(f-want) > 1e-5 {
						t.Fatalf("%s, mode %d, smooth %v, normalised %v, at %v: %v, want %v (seed 1, 2)", g.name, mode, smooth, normalised, places[i], f, want)
					}
				}
			}
		}
	}
}

// Elements are read as what they are, or as fractions of the largest.
func TestTexelsAreConverted(t *testing.T) {
	one := func(f texture.Format, channels int, integers bool) *texture.Texture {
		return &texture.Texture{Levels: []texture.Level{{At: textureAt, Width: 1, Height: 1, Depth: 1, Pitch: 16, Slice: 16}}, Format: f, Channels: channels, Integers: integers}
	}
	bits := math.Float32bits
	for _, tt := range []struct {
		name    string
		texture *texture.Texture
		bytes   []byte
		want    [4]uint32
	}{
		{"u8 as fractions", one(texture.U8, 4, false), []byte{0, 255, 51, 128}, [4]uint32{0, bits(1), bits(0.2), bits(128.0 / 255)}},
		{"u8", one(texture.U8, 4, true), []byte{0, 255, 51, 128}, [4]uint32{0, 255, 51, 128}},
		{"s8 as fractions", one(texture.S8, 4, false), []byte{0x80, 0x81, 127, 0}, [4]uint32{bits(-1), bits(-1), bits(1), 0}},
		{"s8", one(texture.S8, 2, true), []byte{0x80, 127}, [4]uint32{0xffffff80, 127, 0, 1}},
		{"u16 as fractions", one(texture.U16, 2, false), []byte{0xff, 0xff, 0x33, 0x33}, [4]uint32{bits(1), bits(0.2), 0, bits(1)}},
		{"s16 as fractions", one(texture.S16, 2, false), []byte{0x00, 0x80, 0xff, 0x7f}, [4]uint32{bits(-1), bits(1), 0, bits(1)}},
		{"s16", one(texture.S16, 1, true), []byte{0xfe, 0xff}, [4]uint32{0xfffffffe, 0, 0, 1}},
		{"u32", one(texture.U32, 1, false), []byte{1, 2, 3, 4}, [4]uint32{0x04030201, 0, 0, 1}},
		{"f16", one(texture.F16, 4, false), []byte{0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0x00, 0x7c}, [4]uint32{bits(1), bits(-2), bits(1.0 / (1 << 24)), bits(float32(math.Inf(1)))}},
	} {
		results, _, err := runTextures(t, "tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [%h, {%a0}]", tt.texture, tt.bytes, [][8]uint32{{}})
		if err != nil || results[0] != tt.want {
			t.Errorf("%s: %x, %v, want %x", tt.name, results[0], err, tt.want)
		}
	}
	srgb := one(texture.U8, 4, false)
	srgb.SRGB = true
	results, _, err := runTextures(t, "tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%a0}]", srgb, []byte{255, 188, 0, 188}, [][8]uint32{{}})
	if g, a := math.Float32frombits(results[0][1]), math.Float32frombits(results[0][3]); err != nil || results[0][0] != bits(1) || math.Abs(float64(g)-0.5029) > 1e-3 || math.Abs(float64(a)-188.0/255) > 1e-6 {
		t.Errorf("sRGB: %x, %v", results[0], err)
	}
}

// numbered is a texture of u32 whose elements are their places, in order.
func numbered(width, height, depth int) (*texture.Texture, []byte) {
	var b []byte
	for i := range width * height * depth {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return &texture.Texture{
		Levels: []texture.Level{{At: textureAt, Width: width, Height: height, Depth: depth, Pitch: uint64(4 * width), Slice: uint64(4 * width * height)}},
		Format: texture.U32, Channels: 1, Integers: true, Address: [3]texture.AddressMode{texture.Clamp, texture.Clamp, texture.Clamp},
	}, b
}

func TestTextureForms(t *testing.T) {
	layered, layers := numbered(4, 3, 5)
	layered.Layered = true
	cube, faces := numbered(2, 2, 12)
	cube.Cube, cube.Layered, cube.Normalised = true, true, true
	flat, elements := numbered(8, 4, 1)
	buffer, words := numbered(8, 1, 1)
	buffer.Buffer = true
	mipmap, levels := numbered(4, 4, 1)
	mipmap.Normalised, mipmap.Max = true, 10
	mipmap.Levels = append(mipmap.Levels, texture.Level{At: textureAt + 16, Width: 2, Height: 2, Depth: 1, Pitch: 8, Slice: 16},
		texture.Level{At: textureAt + 60, Width: 1, Height: 1, Depth: 1, Pitch: 4, Slice: 4})
	smooth := &texture.Texture{Levels: []texture.Level{{At: textureAt, Width: 2, Height: 1, Depth: 1, Pitch: 8}, {At: textureAt + 8, Width: 1, Height: 1, Depth: 1, Pitch: 4}},
		Format: texture.F32, Channels: 1, Normalised: true, MipSmooth: true, Max: 1, Address: layered.Address}
	ramp := []byte{0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x40} // 0, 1; 4
	f := func(layer uint32, x ...float32) [8]uint32 {
		w := floatWords(append([]float32{0}, x...)...)
		w[0] = layer
		return w
	}
	const all = "{%v0, %v1, %v2, %v3}"
	for _, tt := range []struct {
		name, instruction string
		texture           *texture.Texture
		contents          []byte
		operands          [8]uint32
		want              uint32
	}{
		{"layer of rows", "tex.a1d.v4.u32.f32 " + all + ", [%h, {%a0, %a1}]", layered, layers, f(2, 3.5), 27},
		{"layer", "tex.a2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1, %a2, %a2}]", layered, layers, f(3, 1.5, 2.5), 36 + 9},
		{"layer beyond the last", "tex.a2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1, %a2, %a2}]", layered, layers, f(9, 0, 0), 48},
		{"layer by integers", "tex.a2d.v4.u32.s32 " + all + ", [%h, {%a0, %a1, %a2, %a2}]", layered, layers, [8]uint32{1, 2, 1}, 12 + 6},
		{"cube +x", "tex.cube.v4.u32.f32 " + all + ", [%h, {%a0, %a1, %a2, %a2}]", cube, faces, floatWords(1, 0.5, 0.5), 0},
		{"cube -x", "tex.cube.v4.u32.f32 " + all + ", [%h, {%a0, %a1, %a2, %a2}]", cube, faces, floatWords(-1, 0.5, 0.5), 4 + 1},
		{"cube -y", "tex.cube.v4.u32.f32 " + all + ", [%h, {%a0, %a1, %a2, %a2}]", cube, faces, floatWords(0.5, -1, 0.5), 12 + 1},
		{"cube +z", "tex.cube.v4.u32.f32 " + all + ", [%h, {%a0, %a1, %a2, %a2}]", cube, faces, floatWords(0.5, -0.5, 1), 16 + 3},
		{"second cube", "tex.acube.v4.u32.f32 " + all + ", [%h, {%a0, %a1, %a2, %a3}]", cube, faces, f(1, 0.5, 0.5, -1), 24 + 20},
		{"buffer", "tex.1d.v4.u32.s32 " + all + ", [%h, {%a0}]", buffer, words, [8]uint32{5}, 5},
		{"outside of a buffer", "tex.1d.v4.u32.s32 " + all + ", [%h, {%a0}]", buffer, words, [8]uint32{8}, 0},
		{"base", "tex.base.2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1}]", mipmap, levels, floatWords(0.9, 0), 3},
		{"level", "tex.level.2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1}], %a2", mipmap, levels, floatWords(0.9, 0.9, 1), 4 + 3},
		{"nearest level", "tex.level.2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1}], %a2", mipmap, levels, floatWords(0.9, 0.9, 1.5), 15},
		{"beyond the last level", "tex.level.2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1}], %a2", mipmap, levels, floatWords(0.9, 0.9, 7), 15},
		{"level by steps", "tex.grad.2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1}], {%a2, %a3}, {%a4, %a5}", mipmap, levels, floatWords(0.9, 0.9, 0.5, 0, 0, 0.25), 4 + 3},
		{"between levels", "tex.level.1d.v4.f32.f32 " + all + ", [%h, {%a0}], %a1", smooth, ramp, floatWords(0.9, 0.5), math.Float32bits(2.5)},
		{"gather", "tld4.r.2d.v4.u32.f32 " + all + ", [%h, {%a0, %a1}]", flat, elements, floatWords(3, 2), 18},
		{"destinations are sources", "tex.2d.v4.u32.f32 {%v0, %a1, %a0, %v3}, [%h, {%a0, %a1}]", flat, elements, floatWords(3, 2), 19},
		{"width", "txq.width.b32 %v0, [%h]", flat, elements, [8]uint32{}, 8},
		{"height", "txq.height.b32 %v0, [%h]", flat, elements, [8]uint32{}, 4},
		{"width of a level", "txq.level.width.b32 %v0, [%h], %a0", mipmap, levels, [8]uint32{1}, 2},
		{"levels", "txq.num_mipmap_levels.b32 %v0, [%h]", mipmap, levels, [8]uint32{}, 3},
		{"layers", "txq.array_size.b32 %v0, [%h]", layered, layers, [8]uint32{}, 5},
		{"normalised", "txq.normalized_coords.b32 %v0, [%h]", mipmap, levels, [8]uint32{}, 1},
	} {
		results, _, err := runTextures(t, tt.instruction, tt.texture, tt.contents, [][8]uint32{tt.operands})
		if err != nil || results[0][0] != tt.want {
			t.Errorf("%s: %d, %v, want %d", tt.name, results[0][0], err, tt.want)
		}
	}
	results, _, _ := runTextures(t, "tld4.r.2d.v4.u32.f32 "+all+", [%h, {%a0, %a1}]", flat, elements, [][8]uint32{floatWords(3, 2)})
	if results[0] != [4]uint32{18, 19, 11, 10} {
		t.Errorf("gathered %v", results[0])
	}
}

func TestSurfaces(t *testing.T) {
	surface := func() (*texture.Texture, []byte) {
		s, b := numbered(4, 3, 2)
		s.Surface = true
		return s, b
	}
	s, contents := surface()
	for _, tt := range []struct {
		name, instruction string
		operands          [8]uint32
		want              uint32
		fault             string
	}{
		{"load", "suld.b.2d.b32.trap {%v0}, [%h, {%a0, %a1}]", [8]uint32{8, 1}, 6, ""},
		{"load of a pair", "suld.b.3d.v2.b32.trap {%v1, %v0}, [%h, {%a0, %a1, %a2, %a2}]", [8]uint32{8, 1, 1}, 19, ""},
		{"load of bytes", "suld.b.1d.b8.trap {%s0}, [%h, {%a0}]; cvt.u32.u16 %v0, %s0", [8]uint32{12}, 3, ""},
		{"load of 64 bits", "suld.b.2d.b64.trap {%w0}, [%h, {%a0, %a1}]; shr.u64 %w0, %w0, 32; cvt.u32.u64 %v0, %w0", [8]uint32{8, 2}, 11, ""},
		{"clamped", "suld.b.2d.b32.clamp {%v0}, [%h, {%a0, %a1}]", [8]uint32{400, 0xffffffff}, 3, ""},
		{"zero", "suld.b.2d.b32.zero {%v0}, [%h, {%a0, %a1}]", [8]uint32{16, 1}, 0, ""},
		{"trap", "suld.b.2d.b32.trap {%v0}, [%h, {%a0, %a1}]", [8]uint32{16, 1}, 0, "trap"},
		{"askew", "suld.b.2d.b32.trap {%v0}, [%h, {%a0, %a1}]", [8]uint32{2, 1}, 0, "misaligned"},
		{"layer", "suld.b.a2d.b32.trap {%v0}, [%h, {%a0, %a1, %a2, %a2}]", [8]uint32{1, 4, 2}, 12 + 9, ""},
		{"width", "suq.width.b32 %v0, [%h]", [8]uint32{}, 4, ""},
		{"no texture", "tex.2d.v4.u32.f32 {%v0, %v1, %v2, %v3}, [%h, {%a0, %a1}]", [8]uint32{}, 0, "that of a surface"},
	} {
		results, _, err := runTextures(t, tt.instruction, s, contents, [][8]uint32{tt.operands})
		if tt.fault == "" && (err != nil || results[0][0] != tt.want) || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
			t.Errorf("%s: %d, %v, want %d %s", tt.name, results[0][0], err, tt.want, tt.fault)
		}
	}
	for _, tt := range []struct {
		name, instruction string
		operands          [8]uint32
		at                int // element that changes
		want              uint32
	}{
		{"store", "sust.b.2d.b32.trap [%h, {%a0, %a1}], {%a2}", [8]uint32{4, 2, 99}, 9, 99},
		{"store of a pair", "sust.b.2d.v2.b32.zero [%h, {%a0, %a1}], {%a2, %a3}", [8]uint32{0, 1, 4, 77}, 5, 77},
		{"store of 16 bits", "cvt.u16.u32 %s0, %a2; sust.b.2d.b16.clamp [%h, {%a0, %a1}], {%s0}", [8]uint32{0, 0, 0xbeef}, 0, 0xbeef},
		{"store outside", "sust.b.2d.b32.zero [%h, {%a0, %a1}], {%a2}", [8]uint32{16, 2, 99}, -1, 0},
		{"store in a layer", "sust.b.a1d.b32.trap [%h, {%a0, %a1}], {%a2}", [8]uint32{1, 0, 55}, 12, 55},
	} {
		_, after, err := runTextures(t, tt.instruction, s, contents, [][8]uint32{tt.operands})
		want := slices.Clone(contents)
		if tt.at >= 0 {
			binary.LittleEndian.PutUint32(want[4*tt.at:], tt.want)
		}
		if err != nil || !slices.Equal(after, want) {
			t.Errorf("%s: %v, %v", tt.name, after, err)
		}
	}
}

// A handle that is none stops the kernel, and says so.
func TestNoSuchTexture(t *testing.T) {
	_, _, err := runTextures(t, "add.u64 %h, %h, 1; tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [%h, {%a0}]", &texture.Texture{}, make([]byte, 16), [][8]uint32{{}})
	if err == nil || !strings.Contains(err.Error(), "no texture or surface object has this handle") {
		t.Errorf("got %v", err)
	}
}
