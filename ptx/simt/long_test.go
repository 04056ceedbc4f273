package simt_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/heap"
	"muster/ptx/simt/shape"
)

// longHead begins a kernel that has many long instructions in one basic block.
const longHead = `.version 8.7
.target sm_90
.address_size 64
.extern .func (.param .b32 back) vprintf (.param .b64 format, .param .b64 args);
.extern .func (.param .b64 back) malloc (.param .b64 size);
.global .align 1 .b8 word[5] = {119, 111, 114, 100, 0};
.shared .align 128 .b8 cells[4096];
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.reg .b32 %s, %n, %v;
	.reg .b64 %in, %out, %at, %d;
	ld.param.u64 %in, [in];
	ld.param.u64 %out, [out];
	mov.u32 %s, cells;
	mov.u32 %n, 7;
	mov.b64 %at, %out;
`

const (
	longRounds = 24
	longBytes  = 4096
	// %v is private to the block, and must survive a stop.
	copyRound = `	st.shared.u32 [%s], %n;
	cp.async.bulk.global.shared::cta.bulk_group [%at], [%s], 4096;
	mul.lo.u32 %v, %n, 3;
	add.u64 %at, %at, 4096;
	cp.async.bulk.global.shared::cta.bulk_group [%at], [%s], 4096;
	add.u64 %at, %at, 4096;
	add.u32 %n, %v, 1;
`
	printRound = `	{ .param .b64 format; .param .b64 args; .param .b32 back;
	mov.b64 %d, word;
	cvta.global.u64 %d, %d;
	st.param.b64 [format], %d;
	st.param.b64 [args], 0;
	call (back), vprintf, (format, args);
	}
`
	mallocRound = `	{ .param .b64 size; .param .b64 back;
	st.param.b64 [size], 64;
	call (back), malloc, (size);
	ld.param.b64 %d, [back];
	}
`
)

// startLong starts a kernel that has the instructions of a round many times in one basic
// block.
func startLong(t *testing.T, round string, launch simt.Launch) (*simt.Kernel, *simt.Execution, []byte, simt.Launch) {
	t.Helper()
	source := longHead + strings.Repeat(round, longRounds) + "\tst.global.u32 [%in], %n;\n\tret;\n}\n"
	module, err := ptx.Parse("long.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	c := instructionCase{in: make([]byte, 128), outSize: 2 * longRounds * longBytes, memory: &testMemory{}}
	program, err := simt.Load("long.ptx", module, c.memory.place)
	if err != nil {
		t.Fatal(err)
	}
	c.kernel = program.Kernel("run")
	out := c.fill(t, program)
	c.memory.add(t, heapAddress, 1<<16)
	launch.Grid, launch.Block = shape.Dim{X: 1, Y: 1, Z: 1}, shape.Dim{X: 1, Y: 1, Z: 1}
	launch.Params, launch.Memory, launch.Heap = c.parameters(), c.memory, heap.New(heapAddress, 1<<16)
	x, err := c.kernel.Start(launch)
	if err != nil {
		t.Fatal(err)
	}
	return c.kernel, x, out, launch
}

// Copies count by their size: a turn does as many as its budget pays for, and one more, also
// where they are all in one basic block. Stopped before any of them and carried on by the
// other engine, the kernel gives the same, and has run as many instructions.
func TestLongInstructionsAreCharged(t *testing.T) {
	_, x, want, _ := startLong(t, copyRound, simt.Launch{Engine: simt.Interpret})
	if err := x.RunFor(endless); err != nil {
		t.Fatal(err)
	}
	all := x.Stats()
	for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
		for _, budget := range []uint64{1, 33, 400, 1 << 14} {
			// A profile needs code of its own in each part.
			profiled := budget == 400
			launch := simt.Launch{Engine: engine}
			if profiled {
				launch.Profile = &simt.Profile{}
			}
			kernel, x, out, launch := startLong(t, copyRound, launch)
			lines := uint64(0)
			done := 0
			for {
				err := x.RunFor(budget)
				copies := 0
				for at := 0; at < len(out) && out[at] != 0; at += longBytes {
					copies++
				}
				if most := int(budget)*256/longBytes + 1; copies-done > most {
					t.Fatalf("%v, budget %d: %d copies in a turn, want at most %d", engine, budget, copies-done, most)
				}
				done = copies
				if profiled {
					for _, l := range launch.Profile.Lines() {
						lines += l.Instructions
					}
				}
				if n := x.Stats().Instructions; profiled && lines != n {
					t.Errorf("%v, budget %d: the lines have %d instructions, the execution %d", engine, budget, lines, n)
				}
				if !errors.Is(err, simt.ErrStopped) {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				state, err := x.Save()
				if err != nil {
					t.Fatal(err)
				}
				if launch.Engine = otherEngine(launch.Engine); profiled {
					launch.Profile = &simt.Profile{}
				}
				if x, err = kernel.Resume(launch, state); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(out, want) {
				t.Errorf("%v, budget %d: the result differs", engine, budget)
			}
			if got := x.Stats(); got != all {
				t.Errorf("%v, budget %d: %+v, without stops %+v", engine, budget, got, all)
			}
		}
	}
}

// A stop comes before the next long instruction of a basic block, not after the last one.
func TestStopBeforeLongInstruction(t *testing.T) {
	for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
		var x *simt.Execution
		prints := 0
		print := func([]byte) {
			prints++
			x.Stop()
		}
		_, x, _, _ = startLong(t, printRound+mallocRound, simt.Launch{Engine: engine, Print: print})
		for turn := 1; ; turn++ {
			err := x.RunFor(endless)
			if prints != min(turn, longRounds) {
				t.Fatalf("%v: %d prints in %d turns", engine, prints, turn)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, simt.ErrStopped) {
				t.Fatal(err)
			}
		}
		if n := x.Stats().Instructions; n < longRounds*2 || n > longRounds*20 {
			t.Errorf("%v: %d instructions", engine, n)
		}
	}
}

// Work has what copies cost beside what ran, the same however often the kernel is stopped.
func TestWorkCountsCopies(t *testing.T) {
	const copies = 2 * longRounds * longBytes / 256 // as instructions of 256 lanes
	for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
		for _, budget := range []uint64{1, 400, endless} {
			_, x, _, _ := startLong(t, copyRound, simt.Launch{Engine: engine})
			err := simt.ErrStopped
			for errors.Is(err, simt.ErrStopped) {
				err = x.RunFor(budget)
			}
			if err != nil {
				t.Fatal(err)
			}
			ran, work := x.Stats(), x.Work()
			if work.Instructions-ran.Instructions != copies || work.LaneOps-ran.LaneOps != 256*copies {
				t.Errorf("%v, budget %d: %+v ran and %+v is the work, want %d more instructions", engine, budget, ran, work, copies)
			}
		}
	}
}

// Calls of the heap count as more than an instruction.
func TestHeapCallsAreCharged(t *testing.T) {
	_, x, _, _ := startLong(t, mallocRound, simt.Launch{})
	turns := 1
	for ; ; turns++ {
		if err := x.RunFor(1); err == nil {
			break
		} else if !errors.Is(err, simt.ErrStopped) {
			t.Fatal(err)
		}
	}
	n := x.Stats().Instructions
	_, x, _, _ = startLong(t, mallocRound, simt.Launch{})
	if err := x.RunFor(n); !errors.Is(err, simt.ErrStopped) {
		t.Errorf("with a budget of its %d instructions the kernel comes to its end (%v)", n, err)
	}
}
