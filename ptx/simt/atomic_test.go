package simt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"muster/ptx/simt"
)

const atomicKernel = `.version 8.1
.target sm_90
.address_size 64
.shared .align 16 .b8 own[16];
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.reg .f32 %%f<4>;
	.reg .b64 %%out, %%own;
	ld.param.u64 %%out, [out];
	mov.f32 %%f0, 0f3f800000;
	mov.f32 %%f1, 0f40000000;
%s
	ret;
}
`

// runAtomics runs instructions on both engines and returns the words at the beginning of the output.
func runAtomics(t *testing.T, body, faults string, words int) [][]uint32 {
	t.Helper()
	var results [][]uint32
	for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
		c := instructionCase{outSize: 64, memory: &testMemory{}, faults: faults}
		out := runTensorKernel(t, &c, fmt.Sprintf(atomicKernel, body), nil, nil, simt.Launch{Engine: engine})
		var got []uint32
		for i := range words {
			got = append(got, binary.LittleEndian.Uint32(out[4*i:]))
		}
		results = append(results, got)
	}
	return results
}

// An atomic operation on a vector may return its results in the registers of its operands or of its
// address, and is aligned as a whole.
func TestVectorAtomics(t *testing.T) {
	const body = `	st.global.v2.f32 [%out], {%f0, %f0};
	atom.global.add.v2.f32 {%f1, %f0}, [%out], {%f0, %f1};
	st.global.v2.f32 [%out+8], {%f0, %f1};`
	want := fmt.Sprint([]uint32{math.Float32bits(2), math.Float32bits(3), math.Float32bits(1), math.Float32bits(1)})
	for _, got := range runAtomics(t, body, "", 4) {
		if fmt.Sprint(got) != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	runAtomics(t, "\tred.global.add.v2.f32 [%out+4], {%f0, %f1};", "misaligned address", 0)
	runAtomics(t, "\tred.global.add.v4.f32 [%out+64], {%f0, %f1, %f0, %f1};", "illegal address", 0)
}

// Sums of subnormal numbers are flushed in global memory, whatever the address is called, and kept in
// shared memory.
func TestAtomicSumsFlushInGlobalMemory(t *testing.T) {
	const body = `	mov.f32 %f2, 0f00000003;
	mov.b64 %own, own;
	st.shared.f32 [%own], %f2;
	st.global.v2.f32 [%out], {%f2, %f2};
	red.global.add.f32 [%out], %f2;
	red.add.f32 [%out+4], %f2;
	atom.shared.add.f32 %f3, [%own], %f2;
	cvta.shared.u64 %own, %own;
	red.add.f32 [%own], %f2;
	ld.f32 %f3, [%own];
	st.global.f32 [%out+8], %f3;`
	for _, got := range runAtomics(t, body, "", 3) {
		if fmt.Sprint(got) != "[0 0 9]" {
			t.Errorf("got %v, want 0, 0 and 9", got)
		}
	}
}
