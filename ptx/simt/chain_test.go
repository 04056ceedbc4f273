package simt_test

import (
	"bytes"
	"encoding/binary"
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

// chainSource adds to a word of each block's own: what its shared memory held at its
// begin, which must be nothing, its index, and a sum over its threads. Every third block
// ends early, and in some blocks only some of the threads do.
const chainSource = `.version 7.0
.target sm_70
.address_size 64
.visible .entry run(.param .u64 out, .param .u32 across, .param .u32 plane)
{
	.shared .align 4 .b8 cells[4096];
	.reg .b32 %r<16>;
	.reg .b64 %d<8>;
	.reg .pred %p<4>;
	ld.param.u64 %d0, [out];
	ld.param.u32 %r0, [across];
	ld.param.u32 %r1, [plane];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ctaid.y;
	mov.u32 %r4, %ctaid.z;
	mad.lo.u32 %r5, %r3, %r0, %r2;
	mad.lo.u32 %r5, %r4, %r1, %r5;
	mov.u32 %r6, %tid.x;
	mul.wide.u32 %d1, %r6, 4;
	mov.u64 %d2, cells;
	add.u64 %d2, %d2, %d1;
	ld.shared.u32 %r7, [%d2];
	and.b32 %r8, %r5, 3;
	setp.eq.u32 %p0, %r8, 1;
	@%p0 exit;
	setp.eq.u32 %p1, %r8, 2;
	setp.gt.u32 %p2, %r6, 40;
	and.pred %p1, %p1, %p2;
	@%p1 bra END;
	mad.lo.u32 %r7, %r5, 1000, %r7;
	add.u32 %r7, %r7, %r6;
	st.shared.u32 [%d2], %r7;
	mov.u32 %r9, %ntid.x;
	mad.lo.u32 %r10, %r5, %r9, %r6;
	mul.wide.u32 %d3, %r10, 4;
	add.u64 %d3, %d0, %d3;
	ld.shared.u32 %r11, [%d2];
	st.global.u32 [%d3], %r11;
END:
	ret;
}`

// Compiled code that runs one block behind the other does what the interpreter does:
// whatever the grid, with several workers, and stopped anywhere.
func TestBlocksInARow(t *testing.T) {
	module, err := ptx.Parse("chain.ptx", chainSource)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("chain.ptx", module, nil)
	if err != nil {
		t.Fatal(err)
	}
	const seed = 29
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, grid := range []shape.Dim{{X: 1, Y: 1, Z: 1}, {X: 700, Y: 1, Z: 1}, {X: 5, Y: 7, Z: 1}, {X: 3, Y: 4, Z: 9}, {X: 1, Y: 1, Z: 50}} {
		for _, threads := range []uint32{96, 250, 256, 512} {
			run := func(engine simt.Engine, workers int, stops bool) ([]byte, simt.Stats) {
				memory := &benchMemory{make([]byte, 4*grid.Count()*uint64(threads))}
				for i := range memory.bytes {
					memory.bytes[i] = 0xee
				}
				launch := simt.Launch{Grid: grid, Block: shape.Dim{X: threads, Y: 1, Z: 1}, Memory: memory, Engine: engine, Workers: workers,
					Params: pack(benchBase, grid.X, grid.X*grid.Y)}
				x, err := program.Kernel("run").Start(launch)
				if err != nil {
					t.Fatal(err)
				}
				for {
					budget := ^uint64(0)
					if stops {
						budget = 1 + rng.Uint64N(3000)
					}
					err := x.RunFor(budget)
					if err == nil {
						return memory.bytes, x.Stats()
					}
					if !errors.Is(err, simt.ErrStopped) {
						t.Fatal(err)
					}
					if rng.IntN(4) != 0 {
						continue
					}
					state, err := x.Save()
					if err != nil {
						t.Fatal(err)
					}
					engine = otherEngine(engine)
					if x, err = program.Kernel("run").Resume(simt.Launch{Memory: memory, Engine: engine, Workers: workers}, state); err != nil {
						t.Fatal(err)
					}
				}
			}
			want, stats := run(simt.Interpret, 1, false)
			if first := binary.LittleEndian.Uint32(want); first != 0 {
				t.Fatalf("the first thread wrote %d", first)
			}
			for i, c := range []struct {
				workers int
				stops   bool
			}{{1, false}, {3, false}, {1, true}, {2, true}} {
				got, gotStats := run(simt.Compile, c.workers, c.stops)
				what := fmt.Sprintf("seed %d, grid %v of %d threads, case %d", seed, grid, threads, i)
				if !bytes.Equal(got, want) {
					t.Fatalf("%s: the results differ", what)
				}
				if c.workers == 1 && gotStats != stats {
					t.Errorf("%s: %+v ran, want %+v", what, gotStats, stats)
				}
			}
		}
	}
}

// A kernel that is launched again with other buffers reaches these, not those of the
// launch before: compiled code learns anew where they are, and faults as the interpreter
// does where a buffer is too short.
func TestBuffersOfTheNextLaunch(t *testing.T) {
	const name = "../testdata/kernels/vecadd.clang19.ptx"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	module, err := ptx.Parse(name, string(text))
	if err != nil {
		t.Fatal(err)
	}
	const seed, count = 31, 700
	rng := rand.New(rand.NewPCG(seed, 0))
	memories, programs := [2]*testMemory{}, [2]*simt.Program{}
	base := func(i int) uint64 { return uint64(i+1) << 32 }
	for e := range programs {
		if programs[e], err = simt.Load(name, module, nil); err != nil {
			t.Fatal(err)
		}
		memories[e] = &testMemory{}
		for i := range 6 {
			memories[e].regions = append(memories[e].regions, simt.Region{Base: base(i), Bytes: bytes.Repeat([]byte{byte(i)}, 4*count-i/5*8)})
		}
	}
	for launch := range 60 {
		params := pack(base(rng.IntN(6)), base(rng.IntN(6)), base(rng.IntN(6)), int32(count))
		var faults [2]error
		for e, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
			x, err := programs[e].Kernel("vecadd").Start(simt.Launch{Grid: shape.Dim{X: 6, Y: 1, Z: 1}, Block: shape.Dim{X: 128, Y: 1, Z: 1}, Memory: memories[e], Engine: engine, Params: params})
			if err != nil {
				t.Fatal(err)
			}
			faults[e] = x.Run()
		}
		if !reflect.DeepEqual(faults[0], faults[1]) || !reflect.DeepEqual(memories[0].regions, memories[1].regions) {
			t.Fatalf("seed %d, launch %d: the engines differ: %v, %v", seed, launch, faults[0], faults[1])
		}
	}
}
