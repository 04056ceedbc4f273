package simt_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
)

const moduleHead = ".version 8.0\n.target sm_90\n.address_size 64\n"

// manyKernels returns a module of n kernels that each do a little by themselves.
func manyKernels(n int) string {
	var b strings.Builder
	b.WriteString(moduleHead)
	for i := range n {
		fmt.Fprintf(&b, `.visible .entry kernel%d(.param .u64 out, .param .u32 n)
{
	.reg .pred %%p<2>;
	.reg .b32 %%r<8>;
	.reg .b64 %%rd<5>;
	ld.param.u64 %%rd1, [out];
	ld.param.u32 %%r1, [n];
	mov.u32 %%r2, %%ctaid.x;
	mov.u32 %%r3, %%ntid.x;
	mov.u32 %%r4, %%tid.x;
	mad.lo.s32 %%r5, %%r2, %%r3, %%r4;
	setp.ge.s32 %%p1, %%r5, %%r1;
	@%%p1 bra DONE;
	cvta.to.global.u64 %%rd2, %%rd1;
	mul.wide.s32 %%rd3, %%r5, 4;
	add.s64 %%rd4, %%rd2, %%rd3;
	add.s32 %%r6, %%r5, %d;
	st.global.u32 [%%rd4], %%r6;
DONE:
	ret;
}
`, i, i)
	}
	return b.String()
}

// callee returns a function that adds a number and calls others for the rest.
func callee(name string, add int, calls ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".func (.param .b32 back) %s(.param .b32 x)\n{\n\t.reg .b32 %%r<4>;\n\tld.param.b32 %%r1, [x];\n\tadd.s32 %%r1, %%r1, %d;\n", name, add)
	for _, other := range calls {
		call(&b, other)
	}
	b.WriteString("\tst.param.b32 [back], %r1;\n\tret;\n}\n")
	return b.String()
}

// call appends a call that replaces %r1.
func call(b *strings.Builder, name string) {
	fmt.Fprintf(b, "\t{\n\t.param .b32 p;\n\t.param .b32 q;\n\tst.param.b32 [p], %%r1;\n\tcall (q), %s, (p);\n\tld.param.b32 %%r1, [q];\n\t}\n", name)
}

// caller returns a kernel that does the same with the thread's number.
func caller(name string, add int, calls ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".visible .entry %s(.param .u64 out)\n{\n\t.reg .b32 %%r<4>;\n\t.reg .b64 %%rd<4>;\n\tmov.u32 %%r1, %%tid.x;\n\tadd.s32 %%r1, %%r1, %d;\n", name, add)
	for _, other := range calls {
		call(&b, other)
	}
	b.WriteString("\tld.param.u64 %rd1, [out];\n\tmov.u32 %r2, %tid.x;\n\tmul.wide.u32 %rd2, %r2, 4;\n\tadd.s64 %rd3, %rd1, %rd2;\n\tst.global.u32 [%rd3], %r1;\n\tret;\n}\n")
	return b.String()
}

// callChain returns functions of which each calls the one before it; each adds 1.
func callChain(n int) string {
	var b strings.Builder
	b.WriteString(callee("f0", 1))
	for i := 1; i < n; i++ {
		b.WriteString(callee(fmt.Sprintf("f%d", i), 1, fmt.Sprintf("f%d", i-1)))
	}
	return b.String()
}

// oneChain returns a module with a kernel at the end of a chain of calls.
func oneChain(n int) string {
	return moduleHead + callChain(n) + caller("kernel0", 0, fmt.Sprintf("f%d", n-1))
}

// sharedChain returns a module whose kernels all stand at the end of one chain
// of calls. Kernel i makes of thread t's number t + 1000 i + functions.
func sharedChain(kernels, functions int) string {
	var b strings.Builder
	b.WriteString(moduleHead + callChain(functions))
	for i := range kernels {
		b.WriteString(caller(fmt.Sprintf("kernel%d", i), 1000*i, fmt.Sprintf("f%d", functions-1)))
	}
	return b.String()
}

// sharedFunctions returns a module whose kernels each call all functions.
func sharedFunctions(kernels, functions int) string {
	var b strings.Builder
	b.WriteString(moduleHead)
	var names []string
	for i := range functions {
		names = append(names, fmt.Sprintf("f%d", i))
		b.WriteString(callee(names[i], i))
	}
	for i := range kernels {
		b.WriteString(caller(fmt.Sprintf("kernel%d", i), i, names...))
	}
	return b.String()
}

// loadText loads a module whose text is right.
func loadText(t testing.TB, source string) *simt.Program {
	t.Helper()
	module, err := ptx.Parse("large.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("large.ptx", module, (&testMemory{}).place)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// inUse returns what is in use after a collection.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkLoad parses and loads large modules, and reports what they keep.
func BenchmarkLoad(b *testing.B) {
	for _, c := range []struct {
		name string
		text func() string
	}{
		{"kernels=1000", func() string { return manyKernels(1000) }},
		{"kernels=8000", func() string { return manyKernels(8000) }},
		{"kernels=100000", func() string { return manyKernels(100000) }},
		{"chain=1000", func() string { return oneChain(1000) }},
		{"chain=8000", func() string { return oneChain(8000) }},
		{"shared=100x100", func() string { return sharedFunctions(100, 100) }},
		{"shared=400x400", func() string { return sharedFunctions(400, 400) }},
		{"sharedchain=400x400", func() string { return sharedChain(400, 400) }},
		{"sharedchain=8000x8000", func() string { return sharedChain(8000, 8000) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			source := c.text()
			before := inUse()
			var program *simt.Program
			for b.Loop() {
				program = loadText(b, source)
			}
			b.ReportMetric(float64(inUse()-before)/1e6, "MB-kept")
			b.SetBytes(int64(len(source)))
			runtime.KeepAlive(program)
		})
	}
}

// BenchmarkFirstLaunches launches all kernels of a module that was just loaded.
func BenchmarkFirstLaunches(b *testing.B) {
	for _, c := range []struct {
		name, source string
		kernels      int
	}{
		{"kernels=1000", manyKernels(1000), 1000},
		{"sharedchain=400x400", sharedChain(400, 400), 400},
	} {
		b.Run(c.name, func(b *testing.B) {
			memory := &testMemory{}
			memory.regions = append(memory.regions, simt.Region{Base: outAddress, Bytes: make([]byte, 4096)})
			for b.Loop() {
				b.StopTimer()
				program := loadText(b, c.source)
				b.StartTimer()
				for _, k := range program.Kernels() {
					l := chainLaunch(memory)
					l.Params = append(l.Params, make([]byte, k.ParamSize-len(l.Params))...)
					x, err := k.Start(l)
					if err == nil {
						err = x.Run()
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*c.kernels), "us/launch")
		})
	}
}
