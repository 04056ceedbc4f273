package simt_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensormap"
)

// gpuMap describes a tensor in the input or the output of a program, whose tensor map is a
// parameter of the kernel.
type gpuMap struct {
	Of         string            `json:"of"` // "in" or "out"
	At         uint64            `json:"at"`
	Type       tensormap.Type    `json:"type"`
	Sizes      []uint64          `json:"sizes"`
	Strides    []uint64          `json:"strides"`
	Box        []uint32          `json:"box"`
	Steps      []uint32          `json:"steps"`
	Interleave uint32            `json:"interleave"`
	Swizzle    tensormap.Swizzle `json:"swizzle"`
	Promotion  uint32            `json:"promotion"`
	Fill       uint32            `json:"fill"`

	// In im2col mode, instead of a box.
	Channels uint32  `json:"channels"`
	Pixels   uint32  `json:"pixels"`
	Lower    []int32 `json:"lower"`
	Upper    []int32 `json:"upper"`
}

// encode returns the tensor map of a tensor at an address.
func (g *gpuMap) encode(t *testing.T, address uint64) [tensormap.Size]byte {
	t.Helper()
	m := tensormap.Map{
		Type: g.Type, Rank: len(g.Sizes), Address: address, Interleave: g.Interleave, Swizzle: g.Swizzle, Promotion: g.Promotion, NaN: g.Fill == 1,
	}
	copy(m.Sizes[:], g.Sizes)
	copy(m.Strides[:], g.Strides)
	copy(m.Box[:], g.Box)
	copy(m.Steps[:], g.Steps)
	if m.Im2col = g.Pixels > 0; m.Im2col {
		m.Box[0], m.Pixels = g.Channels, g.Pixels
		copy(m.Lower[:], g.Lower)
		copy(m.Upper[:], g.Upper)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	return m.Encode()
}

// Copies of tensors do what the copy engine of a GPU did.
func TestGPUTensorCopies(t *testing.T) {
	for _, p := range gpuPrograms(t, "tensormap.json.gz") {
		t.Run(p.Name, func(t *testing.T) {
			p.check(t, "interpreted", simt.Launch{Engine: simt.Interpret}, runToEnd)
			p.check(t, "compiled", simt.Launch{Engine: simt.Compile}, runToEnd)
			p.check(t, "stopped", simt.Launch{}, runInParts)
		})
	}
}

// The same copies, element by element: where each element of a box lies in global and in
// shared memory. An H200 lays short rows of swizzled boxes out like this.
type boxModel struct {
	m       *gpuMap
	corner  []int64
	offsets []int64 // in im2col mode
	rows    bool    // gather4 or scatter4: the corner has a column and four rows
	stored  bool    // whole chunks of 16 bytes are written at the end of a row
}

// each calls f for every element of the box: where it lies in the tensor (-1: outside of
// it) and in the box, both in bytes.
func (b *boxModel) each(f func(tensor int64, shared int)) {
	size := int(b.m.Type.Bytes())
	width, rows := int(b.m.Channels), b.columns
	switch {
	case b.rows:
		width, rows = int(b.m.Box[0]), b.named
	case b.m.Pixels == 0:
		width, rows = int(b.m.Box[0]), b.tile
	}
	pitch := width * size
	if b.m.Swizzle > 0 {
		pitch = max(pitch, 16<<b.m.Swizzle)
	}
	number := 0
	rows(func(place []int64) {
		for x := range width {
			place[0] = b.corner[0] + int64(x)
			tensor := int64(0)
			for i, at := range place {
				stride := int64(size)
				if i > 0 {
					stride = int64(b.m.Strides[i-1])
				}
				end := int64(b.m.Sizes[i])
				if chunk := int64(16 / size); i == 0 && b.stored {
					end = (end + chunk - 1) / chunk * chunk
				}
				if at < 0 || at >= end {
					tensor = -1
				} else if tensor >= 0 {
					tensor += at * stride
				}
			}
			shared := number*pitch + x*size
			chunk, line := shared/16%8, shared/128%8
			f(tensor, shared+(chunk^line&(1<<b.m.Swizzle-1)-chunk)*16)
		}
		number++
	})
}

// tile calls f for every row of a box.
func (b *boxModel) tile(f func(place []int64)) {
	counts, total := make([]int, len(b.corner)), 1
	for i := 1; i < len(counts); i++ {
		counts[i] = (int(b.m.Box[i]) + int(b.m.Steps[i]) - 1) / int(b.m.Steps[i])
		total *= counts[i]
	}
	for n := range total {
		place := make([]int64, len(b.corner))
		for i := 1; i < len(place); i++ {
			place[i] = b.corner[i] + int64(n%counts[i])*int64(b.m.Steps[i])
			n /= counts[i]
		}
		f(place)
	}
}

// named calls f for each of the four rows.
func (b *boxModel) named(f func(place []int64)) {
	for _, row := range b.corner[1:] {
		f([]int64{0, row})
	}
}

// columns calls f for every pixel of a column. The manual of PTX defines the places of
// filters: in each dimension of an image they lie from the lower to the upper corner of the
// bounding box, a step apart, and the first one is where the instruction says. The offsets
// move all of them. The number of a pixel says how many places lie before it.
func (b *boxModel) columns(f func(place []int64)) {
	last := len(b.corner) - 1
	for n := range int64(b.m.Pixels) {
		place := make([]int64, last+1)
		for i := 1; i < last; i++ {
			step := int64(b.m.Steps[i])
			begin, end := int64(b.m.Lower[i-1]), int64(b.m.Sizes[i])+int64(b.m.Upper[i-1])
			first := (end - b.corner[i] + step - 1) / step // places in what is left of the first line
			full := (end - begin + step - 1) / step        // in the lines behind it
			if n < first {
				place[i], n = b.corner[i]+n*step, 0
			} else {
				place[i], n = begin+(n-first)%full*step, 1+(n-first)/full
			}
			place[i] += b.offsets[i-1]
		}
		place[last] = b.corner[last] + n*int64(b.m.Steps[last])
		f(place)
	}
}

const tensorKernel = `.version 8.7
.target sm_90
.address_size 64
.shared .align 1024 .b8 cells[%[1]d];
.shared .align 8 .b64 bars;
.visible .entry run(.param .u64 in, .param .u64 out, .param .align 64 .b8 map[128], .param .b32 c0, .param .b32 c1, .param .b32 c2, .param .b32 c3, .param .b32 c4)
{
	.reg .pred %%q;
	.reg .b32 %%s, %%b, %%c<5>;
	.reg .b64 %%in, %%out, %%m;
	ld.param.u64 %%in, [in];
	ld.param.u64 %%out, [out];
	ld.param.b32 %%c0, [c0];
	ld.param.b32 %%c1, [c1];
	ld.param.b32 %%c2, [c2];
	ld.param.b32 %%c3, [c3];
	ld.param.b32 %%c4, [c4];
	mov.b64 %%m, map;
	cvta.param.u64 %%m, %%m;
	mov.u32 %%s, cells;
	mov.u32 %%b, bars;
	mbarrier.init.shared::cta.b64 [%%b], 1;
%[2]s
	ret;
}
`

const tensorLoad = `	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%b], %[1]d;
	cp.async.bulk.tensor.%[2]dd.shared::cluster.global%[5]s.mbarrier::complete_tx::bytes.L2::cache_hint [%%s], [%%m, {%[3]s}], [%%b]%[6]s, 0;
wait:
	mbarrier.try_wait.parity.shared::cta.b64 %%q, [%%b], 0;
	@!%%q bra wait;
	cp.async.bulk.global.shared::cta.bulk_group [%%out], [%%s], %[4]d;`

const tensorStore = `	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%b], %[4]d;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%%s], [%%in], %[4]d, [%%b];
wait:
	mbarrier.try_wait.parity.shared::cta.b64 %%q, [%%b], 0;
	@!%%q bra wait;
	cp.async.bulk.tensor.%[2]dd.global.shared::cta%[5]s.bulk_group [%%m, {%[3]s}], [%%s];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;`

// Random boxes of random tensors come to shared memory, and back, as the model says.
func TestTensorCopies(t *testing.T) { checkTensorCopies(t, 100, randomBox, ".tile", "") }

// So do columns of pixels, in im2col mode.
func TestTensorColumns(t *testing.T) {
	checkTensorCopies(t, 100, randomColumn, ".im2col", ".im2col_no_offs")
}

// So do rows of a matrix, four at a time.
func TestTensorRows(t *testing.T) {
	checkTensorCopies(t, 30, randomRows, ".tile::gather4", ".tile::scatter4")
}

// checkTensorCopies compares copies with the model, under a checker and compiled. It gives the
// coordinates and offsets as literals.
func checkTensorCopies(t *testing.T, rounds int, random func(rng *rand.Rand, room uint64) boxModel, loads, stores string) {
	const seed, room = 11, 1 << 16
	rng := rand.New(rand.NewPCG(seed, seed))
	data, zeros := make([]byte, room), make([]byte, 8)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for round := range rounds {
		b := random(rng, room)
		for _, load := range []bool{true, false} {
			m := b.m
			b := b
			mode, offsets := loads, ""
			if m.Of = "in"; !load {
				m.Of, mode, b.offsets, b.stored = "out", stores, make([]int64, len(b.offsets)), true
				b.corner = slices.Clone(b.corner)
				if b.corner[0] = max(b.corner[0], 0); slices.Min(b.corner) < 0 && !b.rows {
					continue // a fault
				}
			} else if len(b.offsets) > 0 {
				offsets = ", {" + join("%d", b.offsets) + "}"
			}
			length, elements := 0, 0
			b.each(func(_ int64, shared int) { length, elements = max(length, shared+16), elements+1 })
			length = (length + 127) &^ 127
			body := tensorStore
			if load {
				body = tensorLoad
			}
			size, what := int(m.Type.Bytes()), fmt.Sprintf("seed %d, round %d, %+v at %v moved %v, load %v", seed, round, *m, b.corner, b.offsets, load)
			body = fmt.Sprintf(body, elements*size, len(m.Sizes), join("%d", b.corner), length, mode, offsets)
			source := fmt.Sprintf(tensorKernel, length, body)
			c := instructionCase{in: data, outSize: room, memory: &testMemory{}}
			checker, found := tensorChecker()
			out := runTensorKernel(t, &c, source, m, nil, simt.Launch{Check: checker})
			for _, d := range *found {
				t.Errorf("%s: %v", what, d)
			}
			compiled := instructionCase{in: data, outSize: room, memory: &testMemory{}}
			if round%3 == 0 && !bytes.Equal(out, runTensorKernel(t, &compiled, source, m, nil, simt.Launch{Engine: simt.Compile})) {
				t.Errorf("%s: compiled, the result is another one", what)
			}
			written := make([]bool, room)
			b.each(func(tensor int64, shared int) {
				want, got := make([]byte, size), []byte(nil)
				switch {
				case load && tensor >= 0:
					want, got = data[tensor:][:size], out[shared:][:size]
				case load:
					got = out[shared:][:size]
					for i := range want {
						want[i] = []byte{0, 0, 0xf7, 0x7f}[2*int(m.Fill)+i%2]
					}
				case tensor >= 0:
					want, got = data[shared:][:size], out[tensor:][:size]
					written[tensor] = true
				}
				if !slices.Equal(want[:len(got)], got) {
					t.Fatalf("%s: shared byte %d, tensor byte %d: got %x, want %x", what, shared, tensor, got, want)
				}
			})
			for at := 0; !load && at < room; at += size {
				if !written[at] && !bytes.Equal(out[at:][:size], zeros[:size]) {
					t.Fatalf("%s: tensor byte %d was written", what, at)
				}
			}
		}
	}
}

// join writes numbers with commas between them.
func join[T any](format string, all []T) string {
	var s []string
	for _, x := range all {
		s = append(s, fmt.Sprintf(format, x))
	}
	return strings.Join(s, ", ")
}

// tensorChecker returns a checker and what it finds. All memory is taken as written.
func tensorChecker() (*memcheck.Checker, *[]*memcheck.Defect) {
	found := new([]*memcheck.Defect)
	checker := memcheck.New(memcheck.Checks{Race: true}, 0, func(d *memcheck.Defect) { *found = append(*found, d) })
	checker.Allocate(inAddress, 1<<20, "in", true)
	checker.Allocate(outAddress, 1<<20, "out", true)
	return checker, found
}

// The checker finds those that use a box before it has come, and that change it before it
// has been stored.
func TestTensorRaces(t *testing.T) {
	m := &gpuMap{Of: "in", Type: tensormap.F32, Sizes: []uint64{32, 16}, Strides: []uint64{128}, Box: []uint32{16, 4}, Steps: []uint32{1, 1}, Swizzle: tensormap.Swizzle64}
	load := "\tcp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%m, {%c0, %c1}], [%b];\n"
	store := "\tcp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {%c0, %c1}], [%s];\n"
	for body, where := range map[string]string{
		load + "\tld.shared.u32 %c2, [%s+68];":                                                            "in",
		load + "\tst.shared.u32 [%s+252], %c2;":                                                           "in",
		store + "\tst.shared.u32 [%s+16], %c2;":                                                           "out",
		store + "\tld.global.u32 %c2, [%out+640];":                                                        "out",
		store + "\tcp.async.bulk.commit_group;\n\tst.shared.u32 [%s+16], %c2;":                            "out",
		load + "\tcp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;\n\tld.shared.u32 %c2, [%s];": "in",
	} {
		m.Of = where
		checker, found := tensorChecker()
		c := instructionCase{in: bytes.Repeat([]byte{7}, 1<<12), outSize: 1 << 12, memory: &testMemory{}}
		runTensorKernel(t, &c, fmt.Sprintf(tensorKernel, 1024, body), m, []int64{0, 4}, simt.Launch{Check: checker})
		if len(*found) == 0 {
			t.Errorf("nothing was found in\n%s", body)
		}
	}
}

// randomTensor returns a tensor without dimensions.
func randomTensor(rng *rand.Rand) *gpuMap {
	m := &gpuMap{Type: []tensormap.Type{tensormap.U8, tensormap.F16, tensormap.F32, tensormap.F64, tensormap.S32, tensormap.BF16}[rng.IntN(6)], Swizzle: tensormap.Swizzle(rng.IntN(4))}
	if m.Type >= tensormap.F16 {
		m.Fill = uint32(rng.IntN(2))
	}
	return m
}

// grow adds a dimension, and returns how many bytes the tensor has then.
func (g *gpuMap) grow(rng *rand.Rand, n, elements uint64) uint64 {
	if len(g.Sizes) > 0 {
		n = (n+15)&^15 + 16*uint64(rng.IntN(2))
		g.Strides = append(g.Strides, n)
	}
	g.Sizes, g.Steps = append(g.Sizes, elements), append(g.Steps, 1+uint32(rng.IntN(3)))
	return n * elements
}

// row returns how many elements a row of a box has, which the swizzle allows.
func (g *gpuMap) row(rng *rand.Rand) uint32 {
	return uint32(16/g.Type.Bytes()) * (1 + rng.Uint32N(uint32(g.Swizzle.Span()/16)))
}

// column returns where a row of a box begins, at a multiple of 16 bytes.
func (g *gpuMap) column(rng *rand.Rand, end int64) int64 {
	c := rng.Int64N(end+8) - 4
	return c - c%int64(16/g.Type.Bytes())
}

// randomColumn returns a batch of images in a room, and a column of pixels of it.
func randomColumn(rng *rand.Rand, room uint64) boxModel {
	for {
		m := randomTensor(rng)
		rank := 3 + rng.IntN(3)
		n := m.grow(rng, m.Type.Bytes(), 1+rng.Uint64N(40))
		corner, offsets := []int64{m.column(rng, 40)}, []int64{}
		for i := 1; i < rank-1; i++ {
			n = m.grow(rng, n, 1+rng.Uint64N(uint64(24/rank)))
			side := int32(m.Sizes[i])
			lower := rng.Int32N(side+3) - 3
			upper := lower + rng.Int32N(side+3) + 1 - side // the box has at least one place
			m.Lower, m.Upper = append(m.Lower, lower), append(m.Upper, upper)
			corner = append(corner, int64(lower+rng.Int32N(side+upper-lower)))
			offsets = append(offsets, rng.Int64N(4))
		}
		n = m.grow(rng, n, 1+rng.Uint64N(4))
		corner = append(corner, rng.Int64N(6)-1)
		m.Channels, m.Pixels = m.row(rng), 1+rng.Uint32N(100)
		if n <= room {
			return boxModel{m: m, corner: corner, offsets: offsets}
		}
	}
}

// randomRows returns a matrix in a room, and a column and four rows of it.
func randomRows(rng *rand.Rand, room uint64) boxModel {
	m := randomTensor(rng)
	n := m.grow(rng, m.Type.Bytes(), 1+rng.Uint64N(40))
	m.grow(rng, n, 1+rng.Uint64N(12))
	m.Steps = []uint32{1, 1}
	m.Box = []uint32{m.row(rng), 1}
	corner := []int64{m.column(rng, 40)}
	for _, row := range rng.Perm(14)[:4] { // rows that are stored twice would leave open which comes last
		corner = append(corner, int64(row)-1)
	}
	return boxModel{m: m, corner: corner, rows: true}
}

// randomBox returns a tensor in a room, and a box of it.
func randomBox(rng *rand.Rand, room uint64) boxModel {
	for {
		m := randomTensor(rng)
		size, rank := m.Type.Bytes(), 1+rng.IntN(5)
		var corner []int64
		n := size
		for i := range rank {
			n = m.grow(rng, n, 1+uint64(rng.IntN(40/(i+1))))
			m.Box = append(m.Box, 1+uint32(rng.IntN(12/(i+1))))
			corner = append(corner, rng.Int64N(int64(m.Sizes[i])+8)-4)
		}
		m.Box[0] = m.row(rng)
		corner[0] = m.column(rng, int64(m.Sizes[0]))
		if n <= room {
			return boxModel{m: m, corner: corner}
		}
	}
}

func runTensorKernel(t *testing.T, c *instructionCase, source string, m *gpuMap, corner []int64, launch simt.Launch) []byte {
	t.Helper()
	module, err := ptx.Parse("box.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("box.ptx", module, c.memory.place)
	if err != nil {
		t.Fatal(err)
	}
	c.kernel = program.Kernel("run")
	out := c.fill(t, program)
	launch.Grid, launch.Params, launch.Memory = shape.Dim{X: 1, Y: 1, Z: 1}, c.parameters(), c.memory
	if launch.Block.X == 0 {
		launch.Block = launch.Grid
	}
	if m != nil {
		at := uint64(inAddress)
		if m.Of == "out" {
			at = outAddress
		}
		encoded := m.encode(t, at)
		copy(launch.Params[c.kernel.Params[2].Offset:], encoded[:])
	}
	for i, x := range corner {
		binary.LittleEndian.PutUint32(launch.Params[c.kernel.Params[3+i].Offset:], uint32(x))
	}
	x, err := c.kernel.Start(launch)
	if err == nil {
		err = runToEnd(c.kernel, x, c.memory)
	}
	if (err != nil) != (c.faults != "") || err != nil && !strings.Contains(err.Error(), c.faults) {
		t.Fatalf("%+v at %v: %v, want %q", m, corner, err, c.faults)
	}
	return out
}

// squareOf returns a tensor of 16 by 16 elements in the output, in boxes of 16 by 4.
func squareOf(kind tensormap.Type) *gpuMap {
	return &gpuMap{Of: "out", Type: kind, Sizes: []uint64{16, 16}, Strides: []uint64{16 * kind.Bytes()}, Box: []uint32{16, 4}, Steps: []uint32{1, 1}}
}

// A box is combined with what is there, element by element; what is outside of the tensor
// is not.
func TestTensorReductions(t *testing.T) {
	const reduce = `	st.shared.u32 [%%s+%[1]d], %[2]s;
	cp.reduce.async.bulk.tensor.2d.global.shared::cta.%[3]s.bulk_group [%%m, {%%c0, %%c1}], [%%s];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
`
	for _, c := range []struct {
		kind              tensormap.Type
		operation         string
		first, then, want uint32
	}{
		{tensormap.U32, "add", 7, 0xffffffff, 6},
		{tensormap.S32, "max", 7, 0xffffffff, 7},
		{tensormap.U32, "max", 7, 0xffffffff, 0xffffffff},
		{tensormap.U32, "xor", 7, 5, 2},
		{tensormap.S32, "or", 6, 1, 7},
		{tensormap.U32, "inc", 2, 1, 0},
		{tensormap.F32, "add", 0x3f800000, 0x40000000, 0x40400000},
		{tensormap.BF16, "add", 0x3f803f80, 0x40003f80, 0x40404000},
	} {
		place := 3 * 4 // the fourth word of the first row
		body := fmt.Sprintf(reduce, place, fmt.Sprint(c.first), c.operation) + fmt.Sprintf(reduce, place, fmt.Sprint(c.then), c.operation)
		k := instructionCase{outSize: 1 << 12, memory: &testMemory{}}
		m := squareOf(c.kind)
		out := runTensorKernel(t, &k, fmt.Sprintf(tensorKernel, 1024, body), m, []int64{0, 14}, simt.Launch{})
		if got := binary.LittleEndian.Uint32(out[14*int(m.Strides[0])+place:]); got != c.want {
			t.Errorf("%s of type %d: got %#x, want %#x", c.operation, c.kind, got, c.want)
		}
	}
	k := instructionCase{outSize: 1 << 12, memory: &testMemory{}, faults: "operation .min is not supported with the type of the tensor"}
	runTensorKernel(t, &k, fmt.Sprintf(tensorKernel, 1024, fmt.Sprintf(reduce, 0, "1", "min")), squareOf(tensormap.F32), []int64{0, 0}, simt.Launch{})
}

// A store writes whole chunks of 16 bytes, but not beyond the memory that is there.
func TestTensorStoreAtEnd(t *testing.T) {
	for room, want := range map[int]string{500: "\x07\x07\x07\x07", 512: strings.Repeat("\x07", 16)} {
		m := &gpuMap{Of: "out", Type: tensormap.U8, Sizes: []uint64{500}, Box: []uint32{16}, Steps: []uint32{1}}
		c := instructionCase{in: bytes.Repeat([]byte{7}, 128), outSize: room, memory: &testMemory{}}
		out := runTensorKernel(t, &c, fmt.Sprintf(tensorKernel, 128, fmt.Sprintf(tensorStore, 16, 1, "496", 128, "", "")), m, nil, simt.Launch{})
		if got := string(out[496:room]); got != want {
			t.Errorf("the end of %d bytes has %x, want %x", room, got, want)
		}
	}
}

// A copy that cannot be done stops the kernel, with the reason.
func TestTensorFaults(t *testing.T) {
	const load = "\tcp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes [%%s+%d], [%s, {%s}], [%%b];\n"
	outside := squareOf(tensormap.F32)
	outside.Strides[0] = 1 << 20
	for _, c := range []struct {
		m            *gpuMap
		body, faults string
	}{
		{squareOf(tensormap.F32), fmt.Sprintf(load, 1, 0, "%m", "%c0"), "the tensor map is that of a tensor of 2 dimensions"},
		{squareOf(tensormap.F32), fmt.Sprintf(load, 2, 64, "%m", "%c0, %c1"), "boxes are aligned to 128 bytes"},
		{squareOf(tensormap.F32), fmt.Sprintf(load, 2, 1024, "%m", "%c0, %c1"), "illegal address"},
		{squareOf(tensormap.F32), fmt.Sprintf(load, 2, 0, "%m+32", "%c0, %c1"), "tensor maps are aligned to 64 bytes"},
		{squareOf(tensormap.F32), fmt.Sprintf(load, 2, 0, "%in", "%c0, %c1"), "these bytes are no tensor map"},
		{outside, fmt.Sprintf(load, 2, 0, "%m", "%c0, %c1"), "illegal address"},
		{squareOf(tensormap.F32), fmt.Sprintf(load, 2, 0, "%m", "2, %c1"), "illegal instruction in block (0,0,0), thread (0,0,0)"},
	} {
		k := instructionCase{in: bytes.Repeat([]byte{0xff}, 128), outSize: 1 << 12, memory: &testMemory{}, faults: c.faults}
		runTensorKernel(t, &k, fmt.Sprintf(tensorKernel, 1024, c.body), c.m, []int64{0, 0}, simt.Launch{})
	}
}

// What nvcc makes of a kernel with a tensor map among its parameters gives what the program
// (examples/nvcc/tensor.cu) expects: tiles of a matrix with a row added to each, zeros
// where tiles reach beyond the matrix.
func TestTensorMapOfNvcc(t *testing.T) {
	const width, height, tile, rows = 96, 60, 32, 64
	source, err := os.ReadFile("testdata/tensor/bulk.ptx")
	if err != nil {
		t.Fatal(err)
	}
	module, err := ptx.Parse("bulk.ptx", string(source))
	if err != nil {
		t.Fatal(err)
	}
	c := instructionCase{outSize: 4 * width * rows, memory: &testMemory{}}
	for i := range width * height {
		c.in = binary.LittleEndian.AppendUint32(c.in, uint32(i))
	}
	for i := range width {
		c.in = binary.LittleEndian.AppendUint32(c.in, uint32(-10000*i))
	}
	program, err := simt.Load("bulk.ptx", module, c.memory.place)
	if err != nil {
		t.Fatal(err)
	}
	out := c.fill(t, program)
	kernel := program.Kernel("_Z4bulk14CUtensorMap_stPKiPi")
	m := gpuMap{Type: tensormap.S32, Sizes: []uint64{width, height}, Strides: []uint64{4 * width}, Box: []uint32{tile, tile}, Steps: []uint32{1, 1}}
	for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
		clear(out)
		encoded := m.encode(t, inAddress)
		params := binary.LittleEndian.AppendUint64(encoded[:], inAddress+4*width*height)
		params = binary.LittleEndian.AppendUint64(params, outAddress)
		x, err := kernel.Start(simt.Launch{
			Grid: shape.Dim{X: width / tile, Y: rows / tile, Z: 1}, Block: shape.Dim{X: 128, Y: 1, Z: 1}, Params: params, Memory: c.memory, Engine: engine,
		})
		if err == nil {
			err = runToEnd(kernel, x, c.memory)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range width * rows {
			row, col := i/width, i%width
			want := -10000 * col
			if row < height {
				want += row*width + col
			}
			at := (row/tile*(width/tile)+col/tile)*tile*tile + row%tile*tile + col%tile
			if got := int(int32(binary.LittleEndian.Uint32(out[4*at:]))); got != want {
				t.Fatalf("engine %v: row %d, column %d: got %d, want %d", engine, row, col, got, want)
			}
		}
	}
}

// A bulk copy that adds to shared memory tells its mbarrier, too.
func TestBulkReductionTellsMbarrier(t *testing.T) {
	const body = `	st.shared.u32 [%s], 40;
	st.shared.u32 [%s+128], 2;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 16;
	cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%s], [%s+128], 16, [%b];
	mbarrier.test_wait.parity.shared::cta.b64 %q, [%b], 0;
	ld.shared.u32 %c0, [%s];
	@%q st.global.u32 [%out], %c0;`
	k := instructionCase{outSize: 1 << 12, memory: &testMemory{}}
	out := runTensorKernel(t, &k, fmt.Sprintf(tensorKernel, 1024, body), squareOf(tensormap.F32), []int64{0, 0}, simt.Launch{})
	if got := binary.LittleEndian.Uint32(out); got != 42 {
		t.Errorf("got %d, want 42", got)
	}
}
