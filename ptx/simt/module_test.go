package simt_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
)

// Loading costs in proportion to a module, in time and in memory: four times
// the module allocates and keeps about four times as much. With the square of
// its kernels, or of a chain of calls, it would be sixteen times.
func TestLoadGrowsWithTheModule(t *testing.T) {
	if testing.Short() {
		t.Skip("loads hundreds of functions, by itself")
	}
	for _, c := range []struct {
		name string
		text func(n int) string
	}{
		{"kernels", manyKernels},
		{"chain", oneChain},
		{"shared", func(n int) string { return sharedChain(n, n) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cost := func(n int) (allocated, kept float64) {
				source := c.text(n)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.GC() // what the first one made ready to be freed
				runtime.ReadMemStats(&before)
				program := loadText(t, source)
				runtime.ReadMemStats(&after)
				allocated = float64(after.TotalAlloc - before.TotalAlloc)
				runtime.GC()
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(program)
				runtime.KeepAlive(source)
				return allocated, float64(after.HeapAlloc) - float64(before.HeapAlloc)
			}
			const n = 80
			cost(n) // what is made once
			allocated, kept := cost(n)
			more, moreKept := cost(4 * n)
			if more > 5*allocated || moreKept > 5*kept {
				t.Errorf("%d: %.0f bytes allocated, %.0f kept; %d: %.1f and %.1f times as much", n, allocated, kept, 4*n, more/allocated, moreKept/kept)
			}
		})
	}
}

// runKernels starts kernels of a shared chain in an order and checks what they
// write.
func runKernels(t *testing.T, program *simt.Program, functions int, numbers []int) {
	t.Helper()
	memory := &testMemory{}
	out := memory.add(t, outAddress, 4*outWords)
	for _, i := range numbers {
		clear(out)
		x, err := program.Kernel(fmt.Sprintf("kernel%d", i)).Start(chainLaunch(memory))
		if err == nil {
			err = x.RunFor(endless)
		}
		if err != nil {
			t.Error(err)
			return
		}
		if !chainRight(out, i, functions) {
			t.Errorf("kernel %d: thread 5 wrote %d", i, word(out, 5))
			return
		}
	}
}

func chainLaunch(memory *testMemory) simt.Launch {
	return simt.Launch{Grid: shape.Dim{X: 1, Y: 1, Z: 1}, Block: shape.Dim{X: 64, Y: 1, Z: 1}, Memory: memory, Params: binary.LittleEndian.AppendUint64(nil, outAddress)}
}

// chainRight says whether a kernel of a shared chain left what it should.
func chainRight(out []byte, kernel, functions int) bool {
	for thread := range 64 {
		if word(out, thread) != uint32(thread+1000*kernel+functions) {
			return false
		}
	}
	return true
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Kernels that share functions have code of their own, but not all for ever: a
// program that has launched all of them keeps what there is room for, and a
// kernel that comes back, or goes on from a saved state, does what it did.
func TestLaunchedKernelsTakeBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("launches 700 kernels of 400 functions each")
	}
	const kernels, functions = 350, 400
	before := inUse()
	program := loadText(t, sharedChain(kernels, functions))
	memory := &testMemory{}
	out := memory.add(t, outAddress, 4*outWords)
	x, err := program.Kernel("kernel0").Start(chainLaunch(memory))
	if err != nil {
		t.Fatal(err)
	}
	if err := x.RunFor(3000); !errors.Is(err, simt.ErrStopped) {
		t.Fatal(err)
	}
	state, err := x.Save()
	if err != nil {
		t.Fatal(err)
	}
	runKernels(t, program, functions, numbers(kernels))
	if kept := int64(inUse()) - int64(before); kept > 150<<20 {
		t.Errorf("%d kernels with %d functions keep %d bytes", kernels, functions, kept)
	}
	runKernels(t, program, functions, numbers(kernels))
	x, err = program.Kernel("kernel0").Resume(chainLaunch(memory), state)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.RunFor(endless); err != nil {
		t.Fatal(err)
	}
	if !chainRight(out, 0, functions) {
		t.Errorf("resumed: thread 5 wrote %d", word(out, 5))
	}
}

// The first launches of kernels that share functions may come at the same time,
// also while there is room for the code of none but the last.
func TestKernelsAreFirstLaunchedAtTheSameTime(t *testing.T) {
	const kernels, functions = 12, 40
	for round := range 6 {
		program := loadText(t, sharedChain(kernels, functions))
		if round%2 == 1 {
			program.KeepOneImage()
		}
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() { runKernels(t, program, functions, numbers(kernels)) })
		}
		wg.Wait()
	}
}

// A function that kernels share finds its static shared memory where each of
// them has put it.
func TestSharedFunctionsHaveSharedMemory(t *testing.T) {
	const source = moduleHead + `
.shared .align 4 .b32 common[64];
.func swap(.param .b32 mine)
{
	.shared .align 4 .b32 cells[64];
	.reg .b32 %r<6>;
	.reg .b64 %rd<4>;
	ld.param.b32 %r1, [mine];
	mov.u32 %r2, %tid.x;
	shl.b32 %r3, %r2, 2;
	mov.u32 %r4, cells;
	add.u32 %r4, %r4, %r3;
	st.shared.b32 [%r4], %r1;
	st.shared.b32 [common+4], 77;
	bar.sync 0;
	ret;
}
`
	// The kernels differ in what lies before the function's own.
	kernel := func(name, before, size string) string {
		return ".visible .entry " + name + `(.param .u64 out)
{
	` + before + `
	.reg .b32 %r<8>;
	.reg .b64 %rd<4>;
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, own;
	add.u32 %r3, %r3, %r2;
	st.shared.b32 [%r3], %r1;
	add.u32 %r4, %r1, 500;
	{
	.param .b32 p;
	st.param.b32 [p], %r4;
	call swap, (p);
	}
	ld.shared.b32 %r5, [%r3];
	ld.shared.b32 %r6, [common+4];
	add.u32 %r5, %r5, %r6;
	mov.u32 %r7, ` + size + `;
	add.u32 %r5, %r5, %r7;
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd1, %rd1, %rd2;
	st.global.u32 [%rd1], %r5;
	ret;
}
`
	}
	program := loadText(t, source+kernel("small", ".shared .align 4 .b32 own[64];", "1")+kernel("large", ".shared .align 4 .b32 own[64];\n\t.shared .align 16 .b8 gap[400];\n\t.reg .b32 %g;\n\tmov.u32 %g, gap;", "2"))
	for name, want := range map[string]struct{ bytes, add int }{"small": {3 * 256, 1}, "large": {256 + 400 + 2*256, 2}} {
		k := program.Kernel(name)
		if k.Shared != want.bytes {
			t.Errorf("%s: %d bytes of shared memory, want %d", name, k.Shared, want.bytes)
		}
		memory := &testMemory{}
		out := memory.add(t, outAddress, 4*outWords)
		x, err := k.Start(chainLaunch(memory))
		if err != nil {
			t.Fatal(err)
		}
		if err := x.RunFor(endless); err != nil {
			t.Fatal(err)
		}
		for thread := range 64 {
			if got := word(out, thread); got != uint32(thread+77+want.add) {
				t.Fatalf("%s: thread %d wrote %d", name, thread, got)
			}
		}
	}
}

// What a shared function has that is not supported is told once, with its line,
// when the module is loaded; kernels that do not reach it are fine, and what no
// kernel reaches does not matter.
func TestUnsupportedInSharedFunctions(t *testing.T) {
	bad := strings.Replace(callee("bad", 1), "add.s32", "made.up.s32", 1)
	unreached := strings.Replace(callee("unreached", 1), "add.s32", "made.up.s32", 1)
	source := moduleHead + bad + callee("between", 1, "bad") + unreached +
		caller("first", 0, "between") + caller("second", 0, "bad", "between") + caller("fine", 0)
	module, err := ptx.Parse("shared.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	const want = "shared.ptx:8:2: made.up.s32: this instruction is not supported"
	if _, err = simt.Load("shared.ptx", module, (&testMemory{}).place); err == nil || err.Error() != want {
		t.Errorf("answered %v, want %s", err, want)
	}
	findings, err := program.Check("shared.ptx", module)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{1, 1, 0} {
		if len(findings[i].Errors) != n {
			t.Errorf("%s: %v", findings[i].Kernel, findings[i].Errors)
		}
	}
}

// Only functions can be called.
func TestKernelsCannotBeCalled(t *testing.T) {
	module, err := ptx.Parse("calls.ptx", moduleHead+".entry other()\n{\n\tret;\n}\n.entry run()\n{\n\tcall other, ();\n\tret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	const want = "calls.ptx:10:2: call: other is a kernel: only functions can be called"
	if _, err = simt.Load("calls.ptx", module, (&testMemory{}).place); err == nil || err.Error() != want {
		t.Errorf("answered %v, want %s", err, want)
	}
}
