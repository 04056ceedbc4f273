package simt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensormap"
)

// A warp makes a tensor map field by field, publishes it, and one of its threads copies a
// box with it.
const replaceHead = `.version 8.7
.target sm_90a
.address_size 64
.shared .align 1024 .b8 cells[1024];
.shared .align 128 .b8 made[128];
.shared .align 8 .b64 bars;
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.reg .pred %p, %q;
	.reg .b32 %s, %b, %i, %at, %v<16>;
	.reg .b64 %in, %out, %m, %to, %w<8>;
	ld.param.u64 %in, [in];
	ld.param.u64 %out, [out];
	mov.u32 %s, cells;
	mov.u32 %b, bars;
	mov.u32 %i, %tid.x;
	setp.ne.u32 %p, %i, 0;
	@!%p mbarrier.init.shared::cta.b64 [%b], 1;
	mul.wide.u32 %to, %i, 4;
`

const replaceTail = `
	@%%p bra over;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%b], %[1]d;
	cp.async.bulk.tensor.%[2]dd.shared::cluster.global.mbarrier::complete_tx::bytes [%%s], [%%out, {%[3]s}], [%%b];
wait:
	mbarrier.try_wait.parity.shared::cta.b64 %%q, [%%b], 0;
	@!%%q bra wait;
	add.u64 %%to, %%out, 1024;
	cp.async.bulk.global.shared::cta.bulk_group [%%to], [%%s], 1024;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
over:
	ret;
}
`

// inShared and inGlobal write zeros, then the fields, and order what comes behind after them.
const (
	inShared = `	mov.u32 %%at, made;
	cvt.u64.u32 %%m, %%at;
	add.u64 %%to, %%to, %%m;
	st.shared.b32 [%%to], 0;
	bar.warp.sync 0xffffffff;
	@%%p bra published;
%s
published:
	bar.warp.sync 0xffffffff;
	tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%%out], [made], 128;
	fence.proxy.tensormap::generic.acquire.gpu [%%out], 128;`
	inGlobal = `	mov.b64 %%m, %%out;
	add.u64 %%to, %%to, %%m;
	st.global.b32 [%%to], 0;
	bar.warp.sync 0xffffffff;
	@%%p bra published;
%s
	fence.proxy.tensormap::generic.release.gpu;
published:
	bar.warp.sync 0xffffffff;
	fence.proxy.tensormap::generic.acquire.gpu [%%out], 128;`
)

// ptxTypes are the numbers of types in PTX, where they are not those of the driver.
var ptxTypes = map[tensormap.Type]int{tensormap.F32FTZ: 8, tensormap.F64: 9, tensormap.BF16: 10}

// replacements returns instructions that make a map of zeros that of a tensor.
func replacements(m *gpuMap, address uint64, space string) string {
	var b strings.Builder
	field := func(name, kind, value string) {
		fmt.Fprintf(&b, "\ttensormap.replace.tile.%s%s.b1024.%s [%%m], %s;\n", name, space, kind, value)
	}
	wide := func(v uint64) string {
		fmt.Fprintf(&b, "\tmov.b64 %%w0, %d;\n", v)
		return "%w0"
	}
	narrow := func(v uint64) string {
		fmt.Fprintf(&b, "\tmov.b32 %%v0, %d;\n", v)
		return "%v0"
	}
	kind, renumbered := ptxTypes[m.Type]
	if !renumbered {
		kind = int(m.Type)
	}
	field("global_address", "b64", wide(address))
	field("rank", "b32", narrow(uint64(len(m.Sizes)-1)))
	for i := range m.Sizes {
		field("box_dim", "b32", fmt.Sprint(i, ", ", narrow(uint64(m.Box[i]))))
		field("global_dim", "b32", fmt.Sprint(i, ", ", narrow(m.Sizes[i]&0xffffffff)))
		field("element_stride", "b32", fmt.Sprint(i, ", ", narrow(uint64(m.Steps[i]))))
		if i > 0 {
			field("global_stride", "b64", fmt.Sprint(i-1, ", ", wide(m.Strides[i-1])))
		}
	}
	field("elemtype", "b32", fmt.Sprint(kind))
	field("interleave_layout", "b32", fmt.Sprint(m.Interleave))
	field("swizzle_mode", "b32", fmt.Sprint(uint32(m.Swizzle)))
	field("fill_mode", "b32", fmt.Sprint(m.Fill))
	return b.String()
}

// Kernels make tensor maps, in shared and in global memory, and copy with them. Both
// engines and a checker agree.
func TestReplaceTensorMap(t *testing.T) {
	const seed, room = 3, 1 << 16
	rng := rand.New(rand.NewPCG(seed, seed))
	data := make([]byte, room)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for round := range 24 {
		b := randomBox(rng, room)
		m := b.m
		length, elements := 0, 0
		b.each(func(_ int64, shared int) { length, elements = max(length, shared+16), elements+1 })
		if length > 1024 {
			continue
		}
		text := fmt.Sprintf(inShared, replacements(m, inAddress, ".shared::cta"))
		if round%3 > 0 {
			text = fmt.Sprintf(inGlobal, replacements(m, inAddress, []string{".global", ""}[round%3-1]))
		}
		source := replaceHead + text + fmt.Sprintf(replaceTail, elements*int(m.Type.Bytes()), len(m.Sizes), join("%d", b.corner))
		want := m.encode(t, inAddress)
		for _, launch := range []simt.Launch{{Engine: simt.Interpret}, {Engine: simt.Compile}, {}} {
			found := new([]*memcheck.Defect)
			if launch.Engine == simt.Auto {
				launch.Check, found = tensorChecker()
			}
			launch.Block = shape.Dim{X: 32, Y: 1, Z: 1}
			c := instructionCase{in: data, outSize: room, memory: &testMemory{}}
			out := runTensorKernel(t, &c, source, nil, nil, launch)
			for _, d := range *found {
				t.Errorf("seed %d, round %d: %v", seed, round, d)
			}
			// What the driver writes behind the first 64 bytes is no part of the map for a GPU.
			if !bytes.Equal(out[:64], want[:64]) {
				t.Fatalf("seed %d, round %d, engine %v, %+v: got\n%x, want\n%x", seed, round, launch.Engine, *m, out[:64], want[:64])
			}
			b.each(func(tensor int64, shared int) {
				if got := out[1024+shared:][:m.Type.Bytes()]; tensor >= 0 && !bytes.Equal(got, data[tensor:][:len(got)]) {
					t.Fatalf("seed %d, round %d, engine %v, %+v at %v: shared byte %d, tensor byte %d differ", seed, round, launch.Engine, *m, b.corner, shared, tensor)
				}
			})
		}
	}
}

// The checker finds maps that several threads change, and one place to which two warps copy
// maps.
func TestTensorMapRaces(t *testing.T) {
	for _, body := range []string{
		"\tmov.u32 %at, made;\n\tcvt.u64.u32 %m, %at;\n\ttensormap.replace.tile.rank.shared::cta.b1024.b32 [%m], 1;",
		"\tmov.b64 %m, %out;\n\t@%p tensormap.replace.tile.fill_mode.global.b1024.b32 [%m], 1;",
		"\ttensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%out], [made], 128;",
	} {
		source := replaceHead + body + "\n\tret;\n}\n"
		checker, found := tensorChecker()
		c := instructionCase{in: make([]byte, 1<<12), outSize: 1 << 12, memory: &testMemory{}}
		runTensorKernel(t, &c, source, nil, nil, simt.Launch{Check: checker, Block: shape.Dim{X: 64, Y: 1, Z: 1}})
		if len(*found) == 0 {
			t.Errorf("nothing was found in\n%s", body)
		}
	}
}

// Maps that are not aligned, or that are made wrong, stop the kernel when they are used.
func TestReplaceTensorMapFaults(t *testing.T) {
	for _, c := range []struct{ body, faults string }{
		{"\tadd.u64 %m, %out, 32;\n\ttensormap.replace.tile.rank.global.b1024.b32 [%m], 1;", "tensor maps are aligned to 64 bytes"},
		{"\tmov.b64 %m, 64;\n\ttensormap.replace.tile.rank.global.b1024.b32 [%m], 1;", "illegal address"},
		{"\ttensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%out], [made+64], 128;", "illegal address"},
		{"\ttensormap.replace.tile.rank.global.b1024.b32 [%out], 6;\n\tcp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%out, {0, 0}], [%s];", "these bytes are no tensor map"},
		{"\ttensormap.replace.tile.global_stride.global.b1024.b64 [%out], 0, 8;\n\tcp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%out, {0, 0}], [%s];", "these bytes are no tensor map"},
	} {
		source := replaceHead + c.body + "\n\tret;\n}\n"
		k := instructionCase{in: make([]byte, 128), outSize: 1 << 12, memory: &testMemory{}, faults: c.faults}
		runTensorKernel(t, &k, source, nil, nil, simt.Launch{Block: shape.Dim{X: 32, Y: 1, Z: 1}})
	}
}

// What no tensor map has room for is refused when the kernel is loaded.
func TestReplaceTensorMapRefusals(t *testing.T) {
	for form, want := range map[string]string{
		"tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], 13":                                                                "13 is not a constant from 0 to 12",
		"tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], %r0":                                                               "is not a constant",
		"tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%d0], 4":                                                             "4 is not a constant from 0 to 3",
		"tensormap.replace.tile.box_dim.global.b1024.b32 [%d0], 5, %r0":                                                             "5 is not a constant from 0 to 4",
		"tensormap.replace.tile.global_stride.global.b1024.b64 [%d0], 4, %d1":                                                       "4 is not a constant from 0 to 3",
		"tensormap.replace.tile.global_stride.global.b1024.b32 [%d0], 0, %r1":                                                       "this form is not supported",
		"tensormap.replace.tile.rank.const.b1024.b32 [%d0], 1":                                                                      "modifier .const is not supported",
		"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d0], [%d1], 64":                   "64 bytes are not a tensor map",
		"cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%d0], [%d1, {%r0, %r1}], [%d2], {%h0}": "not for tensors of 2 dimensions",
		"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%d0], [%d1, {%r0, %r1, %r2}], [%d2]":   "operand",
		"cp.async.bulk.tensor.3d.global.shared::cta.im2col.bulk_group [%d1, {%r0, %r1, %r2}], [%d0]":                                "modifier .im2col is not supported",
		"cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group [%d1, {%r0, %r1, %r2, %r3, %r0}], [%d0]":   "not supported",
	} {
		module, err := ptx.Parse("form.ptx", ".version 9.0\n.target sm_100a\n.address_size 64\n.entry k()\n{\n\t.reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %d<4>;\n\t"+form+";\n\tret;\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		_, err = simt.Load("form.ptx", module, (&testMemory{}).place)
		var errs ptx.Errors
		if !errors.As(err, &errs) || !strings.Contains(errs[0].Msg, want) {
			t.Errorf("%s: got %v, want %q", form, err, want)
		}
	}
}

// A column goes through the bounding box of one image, then through that of the next. The
// box reaches one pixel beyond the images, to the left and above, as a filter of three by
// three with padding needs it.
func TestTensorColumnOverImages(t *testing.T) {
	m := &gpuMap{
		Of: "in", Type: tensormap.U32, Sizes: []uint64{4, 4, 4, 2}, Strides: []uint64{16, 64, 256}, Steps: []uint32{1, 1, 1, 1},
		Channels: 4, Pixels: 16, Lower: []int32{-1, -1}, Upper: []int32{-1, -1},
	}
	var data []byte
	for pixel := range uint32(32) { // numbered from 1; each of its channels has the number
		for range 4 {
			data = binary.LittleEndian.AppendUint32(data, pixel+1)
		}
	}
	for _, c := range []struct {
		corner, offsets string
		want            [16]uint32
	}{
		{"0, -1, -1, 0", "0, 0", [16]uint32{0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11}},
		{"0, -1, -1, 0", "1, 1", [16]uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
		{"0, 2, 1, 0", "0, 0", [16]uint32{7, 0, 9, 10, 11, 0, 0, 0, 0, 0, 17, 18, 19, 0, 21, 22}},
		{"0, 2, 2, 1", "2, 1", [16]uint32{}}, // all outside: to the right, then behind the last image
	} {
		body := fmt.Sprintf(tensorLoad, 16*16, 4, c.corner, 256, ".im2col", ", {"+c.offsets+"}")
		k := instructionCase{in: data, outSize: 1 << 12, memory: &testMemory{}}
		out := runTensorKernel(t, &k, fmt.Sprintf(tensorKernel, 256, body), m, nil, simt.Launch{})
		for i, want := range c.want {
			if got := binary.LittleEndian.Uint32(out[16*i:]); got != want {
				t.Errorf("at %s moved by %s: pixel %d is %d, want %d", c.corner, c.offsets, i, got, want)
			}
		}
	}
}

// Columns are combined with the pixels of images.
func TestTensorColumnReductions(t *testing.T) {
	m := &gpuMap{
		Of: "out", Type: tensormap.U32, Sizes: []uint64{4, 5, 3}, Strides: []uint64{16, 80}, Steps: []uint32{1, 2, 1},
		Channels: 4, Pixels: 4, Lower: []int32{0}, Upper: []int32{0},
	}
	const body = `	mov.u32 %c0, 7;
	st.shared.v4.u32 [%s], {%c0, %c0, %c0, %c0};
	st.shared.v4.u32 [%s+16], {%c0, %c0, %c0, %c0};
	st.shared.v4.u32 [%s+32], {%c0, %c0, %c0, %c0};
	st.shared.v4.u32 [%s+48], {%c0, %c0, %c0, %c0};
	cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.im2col_no_offs.bulk_group [%m, {0, 2, 1}], [%s];
	cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.im2col_no_offs.bulk_group [%m, {0, 4, 1}], [%s];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;`
	k := instructionCase{outSize: 1 << 10, memory: &testMemory{}}
	out := runTensorKernel(t, &k, fmt.Sprintf(tensorKernel, 256, body), m, nil, simt.Launch{})
	want := map[int]uint32{5 + 2: 7, 5 + 4: 14, 10 + 0: 14, 10 + 2: 14, 10 + 4: 7}
	for pixel := range 15 {
		for channel := range 4 {
			if got := binary.LittleEndian.Uint32(out[16*pixel+4*channel:]); got != want[pixel] {
				t.Errorf("pixel %d, channel %d: got %d, want %d", pixel, channel, got, want[pixel])
			}
		}
	}
}

// A map of the other mode, and one with more than a row for four rows, stop the kernel.
func TestTensorModeFaults(t *testing.T) {
	columns := &gpuMap{Of: "out", Type: tensormap.F32, Sizes: []uint64{4, 5, 3}, Strides: []uint64{16, 80}, Steps: []uint32{1, 1, 1}, Channels: 4, Pixels: 4, Lower: []int32{0}, Upper: []int32{0}}
	cube := &gpuMap{Of: "out", Type: tensormap.F32, Sizes: []uint64{4, 5, 3}, Strides: []uint64{16, 80}, Steps: []uint32{1, 1, 1}, Box: []uint32{4, 1, 1}}
	for _, c := range []struct {
		m            *gpuMap
		body, faults string
	}{
		{columns, "\tcp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%m, {0, 0, 0}], [%s];", "the tensor map is for im2col mode"},
		{cube, "\tcp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%m, {0, 0, 0}], [%s];", "the tensor map is for tile mode"},
		{squareOf(tensormap.F32), "\tcp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%m, {0, 0, 1, 2, 3}], [%s];", "the box of the tensor map has 4 rows"},
	} {
		k := instructionCase{outSize: 1 << 12, memory: &testMemory{}, faults: c.faults}
		runTensorKernel(t, &k, fmt.Sprintf(tensorKernel, 1024, c.body), c.m, nil, simt.Launch{})
	}
}
