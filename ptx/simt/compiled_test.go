package simt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// vecadd loads that kernel of the corpus.
func vecadd(t *testing.T) *simt.Kernel {
	t.Helper()
	const name = "../testdata/kernels/vecadd.clang19.ptx"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	module, err := ptx.Parse(name, string(text))
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load(name, module, nil)
	if err != nil {
		t.Fatal(err)
	}
	return program.Kernel("vecadd")
}

// runOn runs vecadd over memory that it may leave.
func runOn(t *testing.T, kernel *simt.Kernel, engine simt.Engine, blocks int, a, b, c uint64, n int) error {
	t.Helper()
	x, err := kernel.Start(simt.Launch{
		Engine: engine, Memory: &benchMemory{make([]byte, 1<<16)},
		Grid: shape.Dim{X: uint32(blocks), Y: 1, Z: 1}, Block: shape.Dim{X: 96, Y: 1, Z: 1},
		Params: pack(a, b, c, int32(n)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return x.Run()
}

// Compiled code that reaches outside of memory, or not at a multiple of the
// size, reports the thread, the address and the line that the interpreter does.
func TestCompiledFaults(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	kernel, faults := vecadd(t), 0
	for i := range 400 {
		address := func() uint64 {
			at := benchBase + rng.Uint64N(1<<16-512)&^3
			switch rng.IntN(8) {
			case 0:
				at = benchBase + 1<<16 - rng.Uint64N(1024)&^3 // runs over the end
			case 1:
				at = benchBase - rng.Uint64N(1024)&^3 // begins before it
			case 2:
				at += rng.Uint64N(4)
			}
			return at
		}
		a, b, c, n, blocks := address(), address(), address(), rng.IntN(1000), 1+rng.IntN(8)
		want := runOn(t, kernel, simt.Interpret, blocks, a, b, c, n)
		got := runOn(t, kernel, simt.Compile, blocks, a, b, c, n)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("case %d: %d blocks over %#x, %#x, %#x and %d elements:\n got %v\nwant %v", i, blocks, a, b, c, n, got, want)
		}
		if fault, ok := errors.AsType[*simt.Fault](want); ok && fault.Line != "" {
			faults++
		}
	}
	if faults < 50 {
		t.Fatalf("only %d of 400 launches faulted: the test tests nothing", faults)
	}
}

// floatSource computes with bits that are drawn, among them every kind of
// number that is special.
const floatSource = `.version 8.0
.target sm_90
.address_size 64
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.reg .b32 %%x, %%y, %%z, %%d, %%i;
	.reg .b64 %%rx, %%ry, %%rz, %%rd, %%in, %%out, %%at;
	.reg .pred %%p;
	ld.param.u64 %%in, [in];
	ld.param.u64 %%out, [out];
	mov.u32 %%i, %%tid.x;
	mul.wide.u32 %%at, %%i, 24;
	add.u64 %%in, %%in, %%at;
	mul.wide.u32 %%at, %%i, 8;
	add.u64 %%out, %%out, %%at;
	ld.global.b64 %%rx, [%%in];
	ld.global.b64 %%ry, [%%in+8];
	ld.global.b64 %%rz, [%%in+16];
	cvt.u32.u64 %%x, %%rx;
	cvt.u32.u64 %%y, %%ry;
	cvt.u32.u64 %%z, %%rz;
	mov.b64 %%rd, 0;
	%s
	st.global.b64 [%%out], %%rd;
	ret;
}`

// What compiled code computes of special numbers, subnormal ones and NaN with
// any payload among them, has the interpreter's bits.
func TestCompiledFloats(t *testing.T) {
	var bodies []string
	for _, op := range []string{"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "min.f32", "max.f32", "add.rn.ftz.f32", "mul.rn.ftz.f32"} {
		bodies = append(bodies, op+" %x, %x, %y; cvt.u64.u32 %rd, %x;")
	}
	for _, op := range []string{"sqrt.rn.f32", "rcp.rn.f32", "rsqrt.approx.f32", "neg.f32", "abs.f32", "cvt.rn.f32.s32", "cvt.rn.f32.u32"} {
		bodies = append(bodies, op+" %x, %y; cvt.u64.u32 %rd, %x;")
	}
	for _, op := range []string{"add.rn.f64", "sub.rn.f64", "mul.rn.f64", "div.rn.f64", "min.f64", "max.f64"} {
		bodies = append(bodies, op+" %rd, %rx, %ry;")
	}
	bodies = append(bodies, "fma.rn.f32 %x, %x, %y, %z; cvt.u64.u32 %rd, %x;", "fma.rn.f64 %rd, %rx, %ry, %rz;",
		"fma.rn.f32 %x, %x, %y, %z; mul.rn.f32 %x, %x, %y; add.rn.f32 %x, %x, %z; cvt.u64.u32 %rd, %x;",
		"fma.rn.f32 %x, %x, %y, %z; neg.f32 %d, %x; sub.rn.f32 %x, %x, %d; xor.b32 %x, %x, %d; cvt.u64.u32 %rd, %x;")
	for _, cmp := range []string{"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"} {
		bodies = append(bodies, "setp."+cmp+".f32 %p, %x, %y; selp.b64 %rd, 7, 9, %p;", "setp."+cmp+".f64 %p, %rx, %ry; selp.b64 %rd, 7, 9, %p;")
	}
	special32 := []uint32{0, 1 << 31, 1, 0x80000001, 0x7fffff, 0x800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc12345, 0x7fffffff}
	special64 := []uint64{0, 1 << 63, 1, 1<<63 + 1, 0x3ff0000000000000, 0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001, 0xfff8123456789abc, 0xfff0000000000077}
	rng := rand.New(rand.NewPCG(23, 2))
	var in []byte
	for range 3 * 1024 {
		v := rng.Uint64()
		switch rng.IntN(3) {
		case 0:
			v = uint64(special32[rng.IntN(len(special32))])
		case 1:
			v = special64[rng.IntN(len(special64))]
		}
		in = append(in, pack(v)...)
	}
	for _, body := range bodies {
		p := gpuProgram{Name: body, Source: fmt.Sprintf(floatSource, body), in: in, Size: 8 * 1024, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1024, 1, 1}}
		p.CRC32 = p.results(t, body, simt.Launch{Engine: simt.Interpret}, runToEnd)
		p.check(t, body, simt.Launch{Engine: simt.Compile}, runToEnd)
	}
}
