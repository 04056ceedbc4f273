package simt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// wavefrontProgram draws a kernel of the kind that aligns sequences: the threads of a block
// fill a tile in shared memory, go over it in diagonals with a barrier after each, where some
// of them have nothing to do, and write the tile back. Indices rise and fall with the thread,
// and some reach outside the tile, or not at a multiple of four. A block is one warp at most,
// so that its threads go in lock-step and results do not depend on the engine.
func wavefrontProgram(rng *rand.Rand) string {
	pick := func(choices ...string) string { return choices[rng.IntN(len(choices))] }
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\t"+format+";\n", args...) }
	reach := 3000 + rng.IntN(3)*600 // of 4,096 bytes; the rest is for what is added to an index
	rows, stride := 8+rng.IntN(24), 4*(1+rng.IntN(17))
	if rng.IntN(10) == 0 {
		stride += rng.IntN(4)
	}
	for i := range 8 {
		line("ld.global.u32 %%v, [%%at+%d]", 4*rng.IntN(16))
		line("st.shared.u32 [%%own+%d], %%v", 4*i)
	}
	line("bar.sync 0")
	switch rng.IntN(3) {
	case 0:
		line("neg.s32 %%back, %%t")
	case 1:
		line("sub.s32 %%back, %d, %%t", rng.IntN(5))
	default:
		line("mul.lo.s32 %%back, %%t, %s", pick("-1", "-2", "1", "2"))
	}
	line("mov.u32 %%i, 0")
	b.WriteString("again:\n")
	line("add.s32 %%e, %%back, %%i")
	if rng.IntN(5) != 0 { // only threads run whose index is small
		line("setp.%s %%p, %%e, %d", pick("gt.u32", "ge.u32"), 3+rng.IntN(14))
		b.WriteString("\t@%p bra idle;\n")
	} else { // also those that fell below zero, or have what is no longer regular
		line("setp.%s %%p, %%e, %d", pick("lt.u32", "gt.s32", "ne.s32"), 3+rng.IntN(14))
		b.WriteString("\t@%p bra idle;\n")
		if rng.IntN(2) == 0 {
			line("and.b32 %%e, %%e, 31")
		}
	}
	line("mul.wide.%s %%w, %%e, %d", pick("u32", "s32"), stride)
	line("add.s64 %%w, %%w, %%tile")
	line("mad.wide.%s %%w, %%t, %d, %%w", pick("u32", "s32"), 4*rng.IntN(3))
	first := 4 * rng.IntN(8)
	if rng.IntN(8) == 0 {
		first += 3600 // the upper threads, or the later diagonals, reach behind the tile
	}
	for i, offset := range []int{first, first + 4, first + stride, first + 4*rng.IntN(40), first - 4} {
		if i > 1 && rng.IntN(3) == 0 {
			continue
		}
		line("ld.shared.u32 %%x, [%%w+%d]", max(0, offset))
		line("%s %%v, %%v, %%x", pick("add.u32", "max.s32", "xor.b32"))
		if rng.IntN(6) == 0 {
			line("st.shared.u32 [%%w+%d], %%v", first+8)
		}
	}
	line("st.shared.u32 [%%w+%d], %%v", first+4)
	b.WriteString("idle:\n")
	line("bar.sync 0")
	line("add.u32 %%i, %%i, 1")
	line("setp.lt.u32 %%p, %%i, %d", rows)
	b.WriteString("\t@%p bra again;\n")
	for i := range 8 {
		line("ld.shared.u32 %%x, [%%own+%d]", 4*i)
		line("add.u32 %%v, %%v, %%x")
		line("st.global.u32 [%%to+%d], %%v", 4*i)
	}
	return fmt.Sprintf(`.version 8.0
.target sm_90
.address_size 64
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.shared .align 16 .b8 tile[4096];
	.reg .u32 %%t, %%b, %%n, %%g, %%i, %%e, %%v, %%x, %%back;
	.reg .u64 %%in, %%out, %%at, %%to, %%own, %%tile, %%w;
	.reg .pred %%p;
	ld.param.u64 %%in, [in];
	ld.param.u64 %%out, [out];
	mov.u32 %%t, %%tid.x;
	mov.u32 %%b, %%ctaid.x;
	mov.u32 %%n, %%ntid.x;
	mad.lo.u32 %%g, %%b, %%n, %%t;
	mad.wide.u32 %%at, %%g, 4, %%in;
	mad.wide.u32 %%to, %%g, 32, %%out;
	mov.u64 %%tile, tile;
	mad.wide.u32 %%own, %%t, %d, %%tile;
%s	ret;
}`, reach/32/4*4, b.String())
}

// Small blocks, of which a gang has several, and what is alike in all of them: the results
// and the faults of compiled code are the interpreter's, in launches that know where the
// buffers are from earlier ones, too.
func TestSmallBlocks(t *testing.T) {
	count := 30
	if testing.Short() {
		count = 10
	}
	t.Run("wide", func(t *testing.T) { compareSmallBlocks(t, 1, count) })
	simt.CompileNarrow(true)
	defer simt.CompileNarrow(false)
	t.Run("AVX2", func(t *testing.T) { compareSmallBlocks(t, 1, count/2) })
}

func compareSmallBlocks(t *testing.T, seed uint64, count int) {
	faults := 0
	for n := range uint64(count) {
		rng := rand.New(rand.NewPCG(seed, n))
		source := wavefrontProgram(rng)
		module, err := ptx.Parse("small.ptx", source)
		if err != nil {
			t.Fatalf("seed %d, program %d: %v\n%s", seed, n, err, source)
		}
		program, err := simt.Load("small.ptx", module, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, threads := range []uint32{16, 12, 32, 5} {
			blocks := 1 + rng.Uint32N(40)
			const input = 8192
			run := func(engine simt.Engine, workers int) ([]byte, error) {
				memory := &benchMemory{make([]byte, input+32*32*41)}
				for i := range input {
					memory.bytes[i] = byte(i * 7)
				}
				x, err := program.Kernel("run").Start(simt.Launch{Grid: shape.Dim{X: blocks, Y: 1, Z: 1}, Block: shape.Dim{X: threads, Y: 1, Z: 1},
					Memory: memory, Engine: engine, Workers: workers, Params: pack(benchBase, benchBase+uint64(input))})
				if err != nil {
					t.Fatal(err)
				}
				err = x.RunFor(1 << 30)
				return memory.bytes, err
			}
			want, fault := run(simt.Interpret, 1)
			for launch := range 3 {
				workers := 1
				if launch == 2 && fault == nil {
					workers = 2 // of several faults at a time, any may be told
				}
				got, err := run(simt.Compile, workers)
				if !reflect.DeepEqual(err, fault) {
					t.Fatalf("seed %d, program %d, %d blocks of %d, launch %d:\n got %v\nwant %v\n%s", seed, n, blocks, threads, launch, err, fault, source)
				}
				if fault == nil && !bytes.Equal(got, want) {
					t.Fatalf("seed %d, program %d, %d blocks of %d, launch %d: other results than the interpreter's\n%s", seed, n, blocks, threads, launch, source)
				}
			}
			if f, ok := errors.AsType[*simt.Fault](fault); ok && f.Line != "" {
				faults++
			}
		}
	}
	if whole := 4 * count; faults < whole/30 || faults > whole*3/4 {
		t.Fatalf("%d of %d launches faulted: the test does not test what it is for", faults, whole)
	}
}
