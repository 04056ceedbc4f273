package simt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// outWords is how many words of output the kernels of these tests have.
const outWords = 1024

// hostile is one small kernel: what is around its body is always the same.
// %in and %out are addresses; %t and %flat are the thread's number in its
// block and in the grid, %mine the address of its word of the output.
func hostile(outside, body string) string {
	return ".version 8.0\n.target sm_90\n.address_size 64\n" + outside + `
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.reg .u64 %in, %out, %mine;
	.reg .u32 %t, %c, %flat, %n;
	.reg .b32 %r<16>;
	.reg .b64 %rd<16>;
	.reg .pred %p<8>;
	ld.param.u64 %in, [in];
	ld.param.u64 %out, [out];
	mov.u32 %t, %tid.x;
	mov.u32 %c, %ctaid.x;
	mov.u32 %n, %ntid.x;
	mad.lo.u32 %flat, %c, %n, %t;
	mad.wide.u32 %mine, %flat, 4, %out;
` + body + "\n\tret;\n}\n"
}

// start loads a kernel and prepares it to run on fresh memory.
func start(t *testing.T, source string, grid, block int, l simt.Launch) (*simt.Execution, []byte) {
	t.Helper()
	module, err := ptx.Parse("hostile.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	memory := &testMemory{}
	program, err := simt.Load("hostile.ptx", module, memory.place)
	if err != nil {
		t.Fatal(err)
	}
	in := memory.add(t, inAddress, 4*outWords)
	for i := range outWords {
		binary.LittleEndian.PutUint32(in[4*i:], uint32(i)*3)
	}
	out := memory.add(t, outAddress, 4*outWords)
	memory.add(t, globalAddress, align(memory.globals, 16))
	l.Grid, l.Block = shape.Dim{X: uint32(grid), Y: 1, Z: 1}, shape.Dim{X: uint32(block), Y: 1, Z: 1}
	l.Memory = memory
	l.Params = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, inAddress), outAddress)
	x, err := program.Kernel("run").Start(l)
	if err != nil {
		t.Fatal(err)
	}
	return x, out
}

func word(out []byte, i int) uint32 { return binary.LittleEndian.Uint32(out[4*i:]) }

// expect runs a kernel in gangs of several widths and compares the output of
// all threads.
func expect(t *testing.T, source string, grid, block int, want func(cta, tid int) uint32) {
	t.Helper()
	for _, width := range []int{256, 32} {
		x, out := start(t, source, grid, block, simt.Launch{Width: width})
		if err := x.RunFor(endless); err != nil {
			t.Fatalf("width %d: %v", width, err)
		}
		for i := range grid * block {
			if got, w := word(out, i), want(i/block, i%block); got != w {
				t.Fatalf("width %d: block %d, thread %d: got %#x, want %#x", width, i/block, i%block, got, w)
			}
		}
	}
}

// expectFault runs a kernel that must end with a fault.
func expectFault(t *testing.T, source string, grid, block int, kind simt.FaultKind) {
	t.Helper()
	for _, width := range []int{256, 32} {
		x, _ := start(t, source, grid, block, simt.Launch{Width: width})
		err := x.RunFor(endless)
		var fault *simt.Fault
		if !errors.As(err, &fault) || fault.Kind != kind {
			t.Errorf("width %d: got %v, want a fault: %v", width, err, kind)
		}
	}
}

// Blocks of fewer threads than a chunk have no view of shared memory in
// common, and must not use the one of the access before.
func TestSmallBlocksKeepToTheirSharedMemory(t *testing.T) {
	cells := ".shared .align 8 .b8 cells[256];"
	// The parameters, then shared memory at a place within their size.
	expect(t, hostile(cells, `
	mov.u64 %rd1, in;
	ld.param.u64 %rd2, [%rd1];
	mov.u32 %r1, cells;
	shl.b32 %r4, %t, 2;
	add.u32 %r1, %r1, %r4;
	st.shared.u32 [%r1+4], %flat;
	ld.shared.u32 %r2, [%r1+4];
	cvt.u32.u64 %r3, %rd2;
	add.u32 %r2, %r2, %r3;
	st.global.u32 [%mine], %r2;`), 16, 2, func(cta, tid int) uint32 { return uint32(cta*2 + tid) })
	// Global memory, then an address of shared memory that lies in it.
	for _, instruction := range []string{"ld.shared.u32 %r2, [%rd1];", "st.shared.u32 [%rd1], %r2;"} {
		expectFault(t, hostile(cells, `
	ld.global.u32 %r2, [%mine];
	add.u64 %rd1, %mine, 64;
	`+instruction), 16, 4, simt.IllegalAddress)
	}
}

// The first chunk of a block may have no active lane while the second has.
func TestSharedMemoryOfPartlyActiveBlocks(t *testing.T) {
	body := `
	mov.u32 %r1, cells;
	shl.b32 %r2, %t, STEP;
	add.u32 %r1, %r1, %r2;
	mov.u32 %r3, 0;
	setp.eq.u32 %p1, %c, 0;
	setp.ge.u32 %p2, %t, 16;
	or.pred %p1, %p1, %p2;
	@!%p1 bra DONE;
	add.u32 %r4, %flat, 100;
	st.shared.u32 [%r1], %r4;
	ld.shared.u32 %r3, [%r1];
DONE:
	bar.sync 0;
	ld.shared.u32 %r5, [%r1];
	shl.b32 %r5, %r5, 16;
	or.b32 %r3, %r3, %r5;
	st.global.u32 [%mine], %r3;`
	for _, step := range []string{"2", "3"} {
		source := hostile(".shared .align 8 .b8 cells[512];", strings.Replace(body, "STEP", step, 1))
		for _, block := range []int{32, 64, 48} {
			expect(t, source, 4, block, func(cta, tid int) uint32 {
				if cta == 0 || tid >= 16 {
					v := uint32(cta*block + tid + 100)
					return v | v<<16
				}
				return 0
			})
		}
	}
}

// A load may overwrite its own address.
func TestLoadOverItsAddress(t *testing.T) {
	for _, step := range []int{8, 16, 24, 0} {
		expect(t, hostile("", fmt.Sprintf(`
	mul.wide.u32 %%rd2, %%t, %d;
	add.u64 %%rd1, %%in, %%rd2;
	ld.global.u64 %%rd1, [%%rd1];
	cvt.u32.u64 %%r1, %%rd1;
	st.global.u32 [%%mine], %%r1;`, step)), 3, 64, func(_, tid int) uint32 { return uint32(tid*step/4) * 3 })
	}
	// One address a chunk.
	expect(t, hostile("", `
	shr.u32 %r1, %t, 4;
	mul.wide.u32 %rd1, %r1, 24;
	add.u64 %rd1, %rd1, %in;
	ld.global.u64 %rd1, [%rd1];
	cvt.u32.u64 %r1, %rd1;
	st.global.u32 [%mine], %r1;`), 2, 96, func(_, tid int) uint32 { return uint32(tid/16*6) * 3 })
	// One address a chunk, in two regions.
	expect(t, hostile("", `
	shr.u32 %r1, %t, 4;
	mul.wide.u32 %rd1, %r1, 24;
	setp.ge.u32 %p1, %r1, 2;
	selp.u64 %rd2, %out, %in, %p1;
	add.u64 %rd1, %rd1, %rd2;
	ld.global.u64 %rd1, [%rd1+2048];
	cvt.u32.u64 %r1, %rd1;
	st.global.u32 [%mine], %r1;`), 1, 64, func(_, tid int) uint32 {
		if tid >= 32 {
			return 0
		}
		return uint32(512+tid/16*6) * 3
	})
}

// Generic addresses of a gang may be in several state spaces, each the same
// along a chunk.
func TestGenericAddressesOfSeveralSpaces(t *testing.T) {
	source := hostile(".shared .align 8 .b8 cells[512];", `
	.local .align 8 .b8 own[16];
	mov.u64 %rd1, own;
	cvta.local.u64 %rd1, %rd1;
	mov.u64 %rd2, cells;
	cvta.shared.u64 %rd2, %rd2;
	add.u32 %r1, %flat, 1000;
	st.u32 [%rd1], %r1;
	st.u32 [%rd1+8], %r1;
	setp.eq.u32 %p3, %t, 0;
	@%p3 st.u32 [%rd2], %c;
	bar.sync 0;
	shr.u32 %r2, %t, 4;
	setp.eq.u32 %p1, %r2, 1;
	setp.eq.u32 %p2, %r2, 2;
	selp.u64 %rd3, %rd1, %in, %p1;
	selp.u64 %rd3, %rd2, %rd3, %p2;
	ld.u32 %r3, [%rd3];
	st.global.u32 [%mine], %r3;`)
	expect(t, source, 5, 64, func(cta, tid int) uint32 {
		switch tid / 16 {
		case 1:
			return uint32(1000 + cta*64 + tid)
		case 2:
			return uint32(cta)
		}
		return 0
	})
	// Blocks of 8: a chunk is two blocks. The even pairs of blocks read global memory.
	expect(t, hostile(".shared .align 8 .b8 cells[16];", `
	mov.u64 %rd2, cells;
	cvta.shared.u64 %rd2, %rd2;
	add.u32 %r1, %c, 50;
	st.u32 [%rd2], %r1;
	and.b32 %r2, %c, 2;
	setp.eq.u32 %p1, %r2, 0;
	selp.u64 %rd3, %in, %rd2, %p1;
	ld.u32 %r3, [%rd3];
	st.global.u32 [%mine], %r3;`), 16, 8, func(cta, _ int) uint32 {
		if cta&2 == 0 {
			return 0
		}
		return uint32(cta + 50)
	})
}

// A function that may be called again before it returns keeps its return
// address in memory that the thread can write.
func TestReturnAddressesAreChecked(t *testing.T) {
	function := `
.func (.param .b32 back) deep(.param .b32 n)
{
	.reg .b32 %%r<6>;
	.reg .b64 %%rd<4>;
	.reg .pred %%p;
	ld.param.u32 %%r1, [n];
	setp.eq.u32 %%p, %%r1, 0;
	@%%p bra LAST;
	sub.u32 %%r2, %%r1, 1;
	{
	.param .b32 a;
	.param .b32 b;
	st.param.b32 [a], %%r2;
	call (b), deep, (a);
	ld.param.b32 %%r3, [b];
	}
	add.u32 %%r3, %%r3, %%r1;
	st.param.b32 [back], %%r3;
	ret;
LAST:
	mov.u64 %%rd1, 0;
AGAIN:
	mov.u32 %%r4, %s;
	st.local.u32 [%%rd1], %%r4;
	add.u64 %%rd1, %%rd1, 4;
	setp.lt.u64 %%p, %%rd1, 320;
	@%%p bra AGAIN;
	mov.u32 %%r3, 0;
	st.param.b32 [back], %%r3;
	ret;
}`
	body := `
	.param .b32 a;
	.param .b32 b;
	mov.u32 %r1, 6;
	st.param.b32 [a], %r1;
	call (b), deep, (a);
	ld.param.b32 %r2, [b];
	st.global.u32 [%mine], %r2;`
	for value := range 40 {
		for _, v := range []string{fmt.Sprint(value), fmt.Sprint(-value), "%tid.x", fmt.Sprint(1 << 30)} {
			x, _ := start(t, hostile(fmt.Sprintf(function, v), body), 2, 64, simt.Launch{})
			// Anything but a panic is right: it is the thread's own memory.
			if err := x.RunFor(1 << 12); err != nil && !errors.Is(err, simt.ErrStopped) && !errors.As(err, new(*simt.Fault)) {
				t.Fatal(err)
			}
		}
	}
}

// Load refuses what would make no sense at run time.
func TestLoadRefusesNonsense(t *testing.T) {
	tests := []struct{ outside, body, want string }{
		{"", "bar.popc 0;", "bar.popc"},
		{"", "bar.and 0;", "bar.and"},
		{"", "barrier.or 0;", "barrier.or"},
		{"", "bar.red.sync.pred %p1, 0, %p2;", "bar.red.sync"},
		{"", "ld.param.u32 %r1, [in+9223372036854775807];", "outside the parameters"},
		{"", "ld.param.u32 %r1, [in+9223372036854775804];", "outside the parameters"},
		{"", "ld.param.u32 %r1, [in-4];", "outside the parameters"},
		{"", "ld.param.u32 %r1, [out+8];", "outside the parameters"},
		{"", ".reg .b16 %h; cvt.u32.u64 %h, %rd1;", "fewer bits"},
		{"", ".reg .b16 %h; add.u32 %h, %r1, %r2;", "%h"},
		{"", ".reg .b16 %h; mov.b32 %h, %r1;", "%h"},
		{"", ".reg .b16 %h; ld.global.v2.s16 {%h, %r1}, [%out];", "different width"},
		{"", "vote.sync.any.pred %p1, %p2;", "vote.sync"},
	}
	for _, c := range tests {
		module, err := ptx.Parse("nonsense.ptx", hostile(c.outside, c.body))
		if err == nil {
			_, err = simt.Load("nonsense.ptx", module, (&testMemory{}).place)
		}
		var all ptx.Errors
		if !errors.As(err, &all) || !strings.Contains(err.Error(), c.want) || all[0].Line < 2 {
			t.Errorf("%s: got %v, want an error with %q and a line", c.body, err, c.want)
		}
	}
}

// Functions that call each other along many ways do not take for ever.
func TestManyWaysThroughFunctions(t *testing.T) {
	var b strings.Builder
	for i := 40; i >= 0; i-- {
		for _, side := range []string{"a", "b"} {
			fmt.Fprintf(&b, ".func %s%d()\n{\n", side, i)
			if i < 40 {
				fmt.Fprintf(&b, "\tcall a%d, ();\n\tcall b%d, ();\n", i+1, i+1)
			}
			b.WriteString("\tret;\n}\n")
		}
	}
	start(t, hostile(b.String(), "\tcall a0, ();"), 1, 1, simt.Launch{})
}

// Threads of a gang may wait at different barriers, chosen by a register.
func TestBarriersByRegister(t *testing.T) {
	source := hostile(".shared .align 8 .b8 cells[1024];", `
	shr.u32 %r1, %t, 6;
	add.u32 %r2, %r1, 1;
	mov.u32 %r3, cells;
	shl.b32 %r4, %t, 2;
	add.u32 %r4, %r3, %r4;
	st.shared.u32 [%r4], %flat;
	bar.sync %r2, 64;
	xor.b32 %r5, %t, 33;
	shl.b32 %r5, %r5, 2;
	add.u32 %r5, %r3, %r5;
	ld.shared.u32 %r6, [%r5];
	setp.ne.u32 %p1, %r1, 1;
	bar.red.popc.u32 %r7, %r2, 64, %p1;
	shl.b32 %r7, %r7, 16;
	or.b32 %r6, %r6, %r7;
	st.global.u32 [%mine], %r6;`)
	expect(t, source, 2, 256, func(cta, tid int) uint32 {
		v := uint32(cta*256 + tid ^ 33)
		if tid/64 != 1 {
			v |= 64 << 16
		}
		return v
	})
}

// A parameter of a kernel cannot be written through a generic address.
func TestParametersAreReadOnly(t *testing.T) {
	for _, instruction := range []string{"st.u32 [%rd1], %t;", "atom.add.u32 %r1, [%rd1], %t;", "st.v2.u32 [%rd1], {%t, %t};"} {
		expectFault(t, hostile("", `
	mov.u64 %rd1, in;
	cvta.param.u64 %rd1, %rd1;
	`+instruction), 2, 32, simt.WriteToReadOnly)
	}
}

// printfSource is a kernel that prints its input as the format and its output
// as the arguments.
const printfSource = `
.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.visible .entry run(.param .u64 in, .param .u64 out)
{
	.reg .u64 %rd<4>;
	.param .b64 f;
	.param .b64 a;
	.param .b32 r;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	st.param.b64 [f], %rd1;
	st.param.b64 [a], %rd2;
	call (r), vprintf, (f, a);
	ret;
}`

// runPrintf runs that kernel and returns what it printed, each call by itself.
func runPrintf(t *testing.T, format, args []byte, threads uint32) ([]string, error) {
	t.Helper()
	module, err := ptx.Parse("printf.ptx", printfSource)
	if err != nil {
		t.Fatal(err)
	}
	memory := &testMemory{}
	program, err := simt.Load("printf.ptx", module, memory.place)
	if err != nil {
		t.Fatal(err)
	}
	copy(memory.add(t, inAddress, align(len(format)+1, 16)), format)
	copy(memory.add(t, outAddress, align(len(args)+1, 16)), args)
	var printed []string
	x, err := program.Kernel("run").Start(simt.Launch{
		Grid: shape.Dim{X: 1, Y: 1, Z: 1}, Block: shape.Dim{X: threads, Y: 1, Z: 1}, Memory: memory,
		Params: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, inAddress), outAddress),
		Print:  func(text []byte) { printed = append(printed, string(text)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	err = x.Run()
	return printed, err
}

// Flags mean what they mean in C.
func TestPrintfAsInC(t *testing.T) {
	for _, c := range []struct {
		format string
		value  uint64
		want   string
	}{
		{"%+u|", 5, "5|"}, {"% x|", 255, "ff|"}, {"%+d|", 5, "+5|"}, {"% d|", 5, " 5|"}, {"%#x|", 255, "0xff|"}, {"%#x|", 0, "0|"},
		{"%08.3f|", math.Float64bits(1.5), "0001.500|"}, {"%-8d|", 7, "7       |"}, {"%.3d|", 7, "007|"}, {"%5.3d|", 7, "  007|"},
		{"%e|", math.Float64bits(12345.678), "1.234568e+04|"}, {"%g|", math.Float64bits(1e-5), "1e-05|"}, {"%g|", math.Float64bits(100000), "100000|"},
		{"%G|", math.Float64bits(1e10), "1E+10|"}, {"%hhd|", 200, "-56|"}, {"%hu|", 1<<16 + 3, "3|"}, {"%lld|", 1 << 40, "1099511627776|"},
		{"%c|", 'x', "x|"}, {"%5%|", 0, "%|"}, {"%", 0, "%"}, {"%y", 0, "%y"}, {"%f", math.Float64bits(math.Inf(-1)), "-inf"},
	} {
		got, err := runPrintf(t, []byte(c.format), binary.LittleEndian.AppendUint64(nil, c.value), 1)
		if err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("printf(%q, %#x): got %q, %v, want %q", c.format, c.value, got, err, c.want)
		}
	}
}

// A printf that writes nothing of long strings does not read all of them.
func TestPrintfReadsLittle(t *testing.T) {
	const count = 100
	format := append(bytes.Repeat([]byte("%.0s"), count), "end"...)
	text := bytes.Repeat([]byte("x"), 64<<10)
	args := make([]byte, 8*count)
	for i := 0; i < len(args); i += 8 {
		binary.LittleEndian.PutUint64(args[i:], outAddress+uint64(len(args)))
	}
	printed, err := runPrintf(t, format, append(args, text...), 1)
	if err != nil || len(printed) != 1 || printed[0] != "" {
		t.Errorf("it printed %q, %v", printed, err)
	}
	// As long as they are short, all are printed as in C.
	copy(text[16:], "\x00")
	printed, err = runPrintf(t, format, append(args, text...), 1)
	if err != nil || len(printed) != 1 || printed[0] != "end" {
		t.Errorf("it printed %q, %v", printed, err)
	}
}

// Device printf takes any format without using much memory.
func TestPrintfBounds(t *testing.T) {
	for _, unit := range []string{"%99999d", "%s", "%*d", "%-", "% ", "%#", "%", "%.99999f", "%5.", "%lll"} {
		const size = 256 << 10
		format, args := make([]byte, size), make([]byte, 2*size)
		if unit == "%-" {
			format[0] = '%'
			for i := range format[1:60000] {
				format[1+i] = '-'
			}
		} else {
			copy(format[:60000], strings.Repeat(unit, 60000/len(unit)))
		}
		for i := 0; i < len(args); i += 8 { // each is the format again, or a large number
			binary.LittleEndian.PutUint64(args[i:], inAddress)
		}
		printed, err := runPrintf(t, format, args, 2)
		if err != nil && !errors.As(err, new(*simt.Fault)) {
			t.Fatal(err)
		}
		for _, text := range printed {
			if len(text) > 1<<20 {
				t.Errorf("one printf of %q wrote %d bytes", unit, len(text))
			}
		}
	}
}
