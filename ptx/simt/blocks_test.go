package simt_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// Each case is what threads do between reading in[i] at %at and writing %d, or %v for 64 bits, to out[i]:
// %t is the thread's number, %b its block's, %i its place, and %p is false for the upper half of the
// threads in odd blocks. Of a grid with one block the interpreter runs all accesses, since it has to
// find out what they reach; compiled code has those of the later blocks.
var laterBlocks = []struct{ name, code string }{
	{"a guarded load keeps a constant", `mov.u32 %d, 7; @%p ld.global.u32 %d, [%at];`},
	{"a guarded load keeps what is linear", `mov.u32 %d, %t; @%p ld.global.u32 %d, [%at];`},
	{"a guarded load keeps what is uniform", `add.u32 %d, %b, 3; @%p ld.global.u32 %d, [%at];`},
	{"a guarded load keeps what was computed", `mul.lo.u32 %d, %t, %t; @%p ld.global.u32 %d, [%at];`},
	{"a guarded load of two keeps both", `mov.u32 %d, 7; add.u32 %e, %t, 9; and.b64 %at, %at, -8; @%p ld.global.v2.u32 {%d, %e}, [%at]; add.u32 %d, %d, %e;`},
	{"a guarded load of 64 bits keeps a constant", `mov.u64 %v, 7; and.b64 %at, %at, -8; @%p ld.global.u64 %v, [%at]; cvt.u32.u64 %d, %v; shr.u64 %v, %v, 32; cvt.u32.u64 %e, %v; xor.b32 %d, %d, %e;`},
	{"a guarded load of a byte keeps a constant", `mov.u32 %d, 7; @%p ld.global.u8 %d, [%at];`},
	{"a guarded addition keeps a constant", `mov.u32 %d, 7; @%p add.u32 %d, %t, %t;`},
	{"a descending index times a large literal", `sub.u32 %e, 255, %t; mul.wide.u32 %v, %e, 4294967295; shr.u64 %v, %v, 7; cvt.u32.u64 %d, %v;`},
	{"the same, with an addition", `sub.u32 %e, 255, %t; mov.u64 %v, 5; mad.wide.u32 %v, %e, 4294967295, %v; shr.u64 %v, %v, 7; cvt.u32.u64 %d, %v;`},
	{"a descending index times a negative literal", `sub.s32 %e, 255, %t; mul.wide.s32 %v, %e, -3; shr.s64 %v, %v, 2; cvt.u32.u64 %d, %v;`},
}

func TestLaterBlocks(t *testing.T) {
	for _, c := range laterBlocks {
		t.Run(c.name, func(t *testing.T) {
			source := fmt.Sprintf(`.version 8.0
.target sm_90
.address_size 64
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.reg .u32 %%t, %%b, %%i, %%k, %%d, %%e;
	.reg .u64 %%in, %%out, %%at, %%to, %%v;
	.reg .pred %%p;
	ld.param.u64 %%in, [in];
	ld.param.u64 %%out, [out];
	mov.u32 %%t, %%tid.x;
	mov.u32 %%b, %%ctaid.x;
	mad.lo.u32 %%i, %%b, 256, %%t;
	and.b32 %%k, %%b, 1;
	shl.b32 %%k, %%k, 7;
	sub.u32 %%k, 256, %%k;
	setp.lt.u32 %%p, %%t, %%k;
	mad.wide.u32 %%at, %%i, 4, %%in;
	mad.wide.u32 %%to, %%i, 4, %%out;
	%s
	st.global.u32 [%%to], %%d;
	ret;
}`, c.code)
			module, err := ptx.Parse(c.name, source)
			if err != nil {
				t.Fatal(err)
			}
			program, err := simt.Load(c.name, module, nil)
			if err != nil {
				t.Fatal(err)
			}
			const blocks, threads = 6, 256
			run := func(engine simt.Engine, width int) []byte {
				memory := &benchMemory{make([]byte, 2*4*blocks*threads)}
				for i := range uint32(blocks * threads) {
					binary.LittleEndian.PutUint32(memory.bytes[4*i:], 1000+i)
				}
				x, err := program.Kernel("run").Start(simt.Launch{Grid: shape.Dim{X: blocks, Y: 1, Z: 1}, Block: shape.Dim{X: threads, Y: 1, Z: 1},
					Memory: memory, Engine: engine, Width: width, Params: pack(benchBase, benchBase+uint64(4*blocks*threads))})
				if err != nil {
					t.Fatal(err)
				}
				if err := x.RunFor(^uint64(0)); err != nil {
					t.Fatal(err)
				}
				return memory.bytes
			}
			want := run(simt.Interpret, 0)
			for _, width := range []int{0, 32} {
				got := run(simt.Compile, width)
				for i := 0; i < len(got); i += 4 {
					if !bytes.Equal(got[i:i+4], want[i:i+4]) {
						place := i/4 - blocks*threads
						t.Fatalf("width %d: thread %d of block %d wrote %#x, the interpreter %#x", width, place%threads, place/threads, got[i:i+4], want[i:i+4])
					}
				}
			}
		})
	}
}
