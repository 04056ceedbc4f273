package simt_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// The programs of this file see their thread's number twice: as the special
// register, and from memory. If the numbers in memory are shuffled within each
// block, threads change places, and nothing else changes: but registers that
// had equal steps from lane to lane have none any more. So the arithmetic on
// steps and the arithmetic on lanes check each other, and so do all the ways to
// reach memory.

const (
	shuffledWords  = 4096 // of the table that programs read
	shuffledRecord = 128  // bytes of output a thread
)

// shuffledProgram writes a random program.
type shuffledProgram struct {
	*rand.Rand
	b      strings.Builder
	labels int
	loops  int
	top    bool // not within a branch
}

func (p *shuffledProgram) pick(from ...string) string { return from[p.IntN(len(from))] }

func (p *shuffledProgram) emit(format string, args ...any) {
	guard := ""
	if p.IntN(8) == 0 {
		guard = p.pick("@%p0 ", "@!%p1 ", "@%p2 ", "@!%p3 ")
	}
	p.plain("%s"+format, append([]any{guard}, args...)...)
}

func (p *shuffledProgram) plain(format string, args ...any) {
	fmt.Fprintf(&p.b, "\t"+format+";\n", args...)
}

func (p *shuffledProgram) constant() string {
	return p.pick("0", "1", "2", "3", "4", "5", "8", "12", "15", "16", "24", "31", "32", "33", "100", "255", "256", "1023",
		"0x7fffffff", "0x80000000", "0xffffffff", "0xfffffff0", "0x7ffffff0", "0x7fffff00", "0x80000010", "0x10000", "0x55555555", "0x0fffffff")
}

func (p *shuffledProgram) r() string { return fmt.Sprintf("%%r%d", p.IntN(10)) }
func (p *shuffledProgram) d() string { return fmt.Sprintf("%%d%d", p.IntN(6)) }
func (p *shuffledProgram) p() string { return fmt.Sprintf("%%p%d", p.IntN(4)) }

// source is a register, a constant, or the thread's own numbers.
func (p *shuffledProgram) source() string {
	switch p.IntN(6) {
	case 0, 1:
		return p.constant()
	case 2:
		return p.pick("%t", "%c", "%flat", "%n")
	}
	return p.r()
}

func (p *shuffledProgram) wide() string {
	if p.IntN(3) == 0 {
		return p.pick(p.constant(), "0x7fffffffffffffff", "0xffffffffffffffff", "0x100000000", "0xffffffff00000000", "0x1000000000000000")
	}
	return p.d()
}

func (p *shuffledProgram) statement(depth int) {
	switch p.IntN(24) {
	case 0, 1, 2, 3:
		p.emit("%s %s, %s, %s", p.pick("add.u32", "sub.s32", "mul.lo.u32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.u32", "mul.hi.u32", "mul.hi.s32"), p.r(), p.source(), p.source())
	case 4, 5:
		p.emit("%s %s, %s, %s", p.pick("shl.b32", "shr.u32", "shr.s32"), p.r(), p.source(), p.pick("1", "2", "3", "4", "5", "8", "31", "32", "40", p.r()))
	case 6, 7:
		p.emit("mad.lo.s32 %s, %s, %s, %s", p.r(), p.source(), p.source(), p.source())
	case 8, 9:
		p.emit("%s %s, %s, %s", p.pick("mul.wide.u32", "mul.wide.s32"), p.d(), p.source(), p.source())
	case 10:
		p.emit("%s %s, %s, %s, %s", p.pick("mad.wide.u32", "mad.wide.s32"), p.d(), p.source(), p.source(), p.d())
	case 11:
		p.emit("%s %s, %s", p.pick("cvt.u64.u32", "cvt.s64.s32", "cvt.u64.s32", "cvt.s64.u32"), p.d(), p.pick(p.r(), "%t", "%flat"))
	case 12:
		p.emit("%s %s, %s", p.pick("cvt.u32.u64", "cvt.s32.s64"), p.r(), p.d())
	case 13:
		p.emit("%s %s, %s, %s", p.pick("add.s64", "sub.u64", "mul.lo.s64", "and.b64", "or.b64", "xor.b64", "min.u64", "max.s64"), p.d(), p.wide(), p.wide())
	case 14:
		p.emit("%s %s, %s, %s", p.pick("shl.b64", "shr.u64", "shr.s64"), p.d(), p.d(), p.pick("1", "3", "4", "32", "63", "64", p.r()))
	case 15:
		p.emit("setp.%s.%s %s, %s, %s", p.pick("lt", "le", "gt", "ge", "eq", "ne"), p.pick("s32", "u32"), p.p(), p.source(), p.source())
	case 16:
		p.emit("setp.%s.%s %s, %s, %s", p.pick("lt", "le", "gt", "ge", "eq", "ne"), p.pick("s64", "u64"), p.p(), p.wide(), p.wide())
	case 17:
		if p.IntN(2) == 0 {
			p.emit("selp.b32 %s, %s, %s, %s", p.r(), p.source(), p.source(), p.p())
		} else {
			p.emit("selp.b64 %s, %s, %s, %s", p.d(), p.wide(), p.wide(), p.p())
		}
	case 18, 19:
		p.load()
	case 20:
		p.own()
	case 21:
		switch p.IntN(3) {
		case 0:
			p.emit("mov.b32 %s, %s", p.r(), p.source())
		case 1: // a product of what goes along the chunks and what goes along the lanes
			p.plain("and.b32 %%x0, %%t, 15")
			p.plain("mad.wide.u32 %%y0, %%x0, 4, %%in")
			p.plain("shr.u32 %%x1, %%t, 4")
			p.plain("mad.wide.u32 %%y1, %%x1, 4, %%in")
			p.plain("ld.global.b32 %%x2, [%%y0]")
			p.plain("ld.global.b32 %%x3, [%%y1+256]")
			p.emit("fma.rn.f32 %s, %%x2, %%x3, %s", p.r(), p.r())
		case 2:
			p.emit("fma.rn.f32 %s, %s, %s, %s", p.r(), p.r(), p.r(), p.r())
		}
	case 22:
		if depth > 0 {
			p.branch(depth - 1)
		}
	case 23:
		switch {
		case depth > 0 && p.IntN(2) == 0:
			p.loop(depth - 1)
		case p.top && p.IntN(2) == 0:
			p.exchange()
		case p.top && p.IntN(6) == 0:
			p.plain("@%s bra SAVE", p.p())
		default:
			p.call()
		}
	}
}

// load reads the table, with equal steps or not, one value or several.
func (p *shuffledProgram) load() {
	size := p.pick("1", "2", "4", "8", "16")
	p.plain("and.b32 %%x0, %s, 0x7ff", p.source())
	switch p.IntN(3) {
	case 0:
		p.plain("add.u32 %%x0, %%t, %s", p.pick("0", "7", "64"))
	case 1:
		p.plain("mad.lo.u32 %%x0, %%t, %s, %%c", p.pick("0", "1", "2", "3"))
		p.plain("and.b32 %%x0, %%x0, 0x7ff")
	}
	p.plain("mul.wide.u32 %%y0, %%x0, %s", p.pick(size, size, size, "16", "32"))
	p.plain("and.b64 %%y0, %%y0, %d", (4*shuffledWords-16)&^15)
	if size != "16" && p.IntN(2) == 0 {
		p.plain("mul.wide.u32 %%y0, %%x0, %s", size) // without the cut: steps stay what they are
	}
	p.plain("add.u64 %%y0, %%y0, %%in")
	space := p.pick(".global", "", ".global")
	switch size {
	case "1":
		p.emit("ld%s.%s %s, [%%y0]", space, p.pick("u8", "s8"), p.r())
	case "2":
		p.emit("ld%s.%s %s, [%%y0]", space, p.pick("u16", "s16"), p.r())
	case "4":
		if p.IntN(3) == 0 {
			p.emit("ld%s.%s %s, [%%y0]", space, p.pick("u32", "s32"), p.d())
		} else {
			p.emit("ld%s.u32 %s, [%%y0]", space, p.r())
		}
	case "8":
		if p.IntN(3) == 0 {
			p.emit("ld%s.u64 %%y0, [%%y0]", space)
			p.plain("mov.b64 %s, %%y0", p.d())
		} else {
			p.emit("ld%s.u64 %s, [%%y0]", space, p.d())
		}
	default:
		if p.IntN(2) == 0 {
			p.emit("ld%s.v4.u32 {%%r0, %%r3, %%r4, %%r7}, [%%y0]", space)
		} else {
			p.emit("ld%s.v2.u64 {%%d1, %%y0}, [%%y0]", space)
			p.plain("mov.b64 %s, %%y0", p.d())
		}
	}
}

// own writes and reads memory of the thread: local, shared, or its output.
func (p *shuffledProgram) own() {
	switch p.IntN(4) {
	case 0:
		p.plain("and.b32 %%x0, %s, 60", p.source())
		p.plain("mov.u32 %%x1, own")
		p.plain("add.u32 %%x0, %%x0, %%x1")
		p.emit("st.local.u32 [%%x0], %s", p.r())
		p.plain("and.b32 %%x0, %s, 60", p.source())
		p.plain("add.u32 %%x0, %%x0, %%x1")
		p.emit("ld.local.u32 %s, [%%x0]", p.r())
	case 1:
		p.emit("st.shared.%s", p.pick("u32 [%cell], %r1", "u64 [%cell], %d2", "u16 [%cell+2], %r3", "v2.u32 [%cell], {%r4, %r5}"))
		p.emit("ld.shared.%s", p.pick("u32 %r6, [%cell+4]", "u64 %d3, [%cell]", "s16 %r7, [%cell+2]", "u8 %r2, [%cell+5]"))
	case 2:
		p.emit("st.global.u32 [%%mine+120], %s", p.r())
		p.emit("ld.global.u32 %s, [%%mine+120]", p.r())
	case 3: // a generic address, in one of three spaces
		p.plain("mov.u64 %%y0, own")
		p.plain("cvta.local.u64 %%y0, %%y0")
		p.plain("cvt.u64.u32 %%y1, %%cell")
		p.plain("cvta.shared.u64 %%y1, %%y1")
		p.plain("selp.b64 %%y0, %%y0, %%y1, %s", p.p())
		p.plain("add.u64 %%y1, %%mine, 120")
		p.plain("selp.b64 %%y0, %%y0, %%y1, %s", p.p())
		p.emit("st.u32 [%%y0], %s", p.r())
		p.emit("ld.u32 %s, [%%y0]", p.r())
	}
}

// exchange lets the threads of a block read what others wrote.
func (p *shuffledProgram) exchange() {
	p.plain("st.shared.u64 [%%cell], %s", p.d())
	p.plain("bar.sync 0")
	p.plain("xor.b32 %%x0, %%t, %s", p.pick("1", "5", "16", "%c"))
	p.plain("rem.u32 %%x0, %%x0, %%n")
	p.plain("shl.b32 %%x0, %%x0, 3")
	p.plain("mov.u32 %%x1, cells")
	p.plain("add.u32 %%x0, %%x0, %%x1")
	p.plain("ld.shared.u64 %s, [%%x0]", p.d())
	p.plain("bar.sync 0")
}

// call calls a function that calls itself.
func (p *shuffledProgram) call() {
	p.plain("and.b32 %%x0, %s, 3", p.source())
	p.plain("{ .param .b32 a; .param .b64 b; .param .b64 back")
	p.plain("st.param.b32 [a], %%x0")
	p.plain("st.param.b64 [b], %s", p.d())
	p.plain("st.param.b64 [back], %%d0") // what a call under a guard may leave
	p.emit("call (back), mix, (a, b)")
	p.plain("ld.param.b64 %s, [back]; }", p.d())
}

func (p *shuffledProgram) label() string {
	p.labels++
	return fmt.Sprintf("L%d", p.labels)
}

func (p *shuffledProgram) body(depth, n int) {
	top := p.top
	p.top = false
	for range 1 + p.IntN(n) {
		p.statement(depth)
	}
	p.top = top
}

func (p *shuffledProgram) branch(depth int) {
	otherwise, behind := p.label(), p.label()
	p.plain("@%s bra %s", p.p(), otherwise)
	p.body(depth, 5)
	p.plain("bra %s", behind)
	fmt.Fprintf(&p.b, "%s:\n", otherwise)
	p.body(depth, 4)
	fmt.Fprintf(&p.b, "%s:\n", behind)
}

func (p *shuffledProgram) loop(depth int) {
	again := p.label()
	counter := fmt.Sprintf("%%i%d", p.loops)
	p.loops++
	p.plain("and.b32 %s, %s, 3", counter, p.source())
	fmt.Fprintf(&p.b, "%s:\n", again)
	p.body(depth, 5)
	p.plain("sub.s32 %s, %s, 1", counter, counter)
	p.plain("setp.ge.s32 %%p3, %s, 0", counter)
	p.plain("@%%p3 bra %s", again)
}

// mixFunction calls itself a few times; what it needs behind the call is
// different in each activation.
const mixFunction = `
.func (.param .b64 back) mix(.param .b32 a, .param .b64 b)
{
	.reg .b32 %a<4>;
	.reg .b64 %b<6>;
	.reg .pred %q<2>;
	ld.param.u32 %a0, [a];
	ld.param.u64 %b0, [b];
	mad.lo.s64 %b1, %b0, 5, 3;
	and.b64 %b3, %b0, 1;
	setp.ne.s64 %q1, %b3, 0;
	setp.eq.u32 %q0, %a0, 0;
	@%q0 bra DONE;
	sub.u32 %a1, %a0, 1;
	{ .param .b32 x; .param .b64 y; .param .b64 z;
	st.param.b32 [x], %a1;
	st.param.b64 [y], %b1;
	call (z), mix, (x, y);
	ld.param.b64 %b2, [z]; }
	cvt.u64.u32 %b4, %a0;
	xor.b64 %b1, %b1, %b2;
	@%q1 add.u64 %b1, %b1, %b4;
DONE:
	st.param.b64 [back], %b1;
	ret;
}
`

func shuffledSource(seed uint64) string {
	p := &shuffledProgram{Rand: rand.New(rand.NewPCG(seed, 5)), top: true}
	for i := range 10 {
		p.plain("%s", p.pick(fmt.Sprintf("mov.b32 %%r%d, %s", i, p.constant()), fmt.Sprintf("mad.lo.u32 %%r%d, %%t, %s, %s", i, p.constant(), p.constant()),
			fmt.Sprintf("mad.lo.u32 %%r%d, %%flat, %s, %%c", i, p.constant())))
	}
	for i := range 6 {
		p.plain("mad.wide.%s %%d%d, %%t, %s, %d", p.pick("u32", "s32"), i, p.constant(), p.Uint64()>>p.IntN(64)>>1)
	}
	for i := range 4 {
		p.plain("setp.%s.s32 %%p%d, %%r%d, %%r%d", p.pick("lt", "eq", "gt"), i, i, i+4)
	}
	for range 12 + p.IntN(30) {
		p.statement(2)
	}
	p.b.WriteString("SAVE:\n")
	for i := range 10 {
		p.plain("st.global.u32 [%%mine+%d], %%r%d", 4*i, i)
	}
	for i := range 6 {
		p.plain("st.global.u64 [%%mine+%d], %%d%d", 40+8*i, i)
	}
	for i := range 4 {
		p.plain("selp.b32 %%x0, 1, 0, %%p%d", i)
		p.plain("st.global.u32 [%%mine+%d], %%x0", 88+4*i)
	}
	return ".version 8.0\n.target sm_90\n.address_size 64\n.shared .align 8 .b8 cells[8192];\n" + mixFunction + `
.visible .entry run(.param .u64 in, .param .u64 out, .param .u64 numbers, .param .u32 shuffled)
{
	.reg .u64 %in, %out, %mine, %numbers, %y<4>;
	.reg .u32 %t, %c, %flat, %n, %cell, %x<4>, %i<` + fmt.Sprint(p.loops+1) + `>;
	.reg .b32 %r<10>;
	.reg .b64 %d<6>;
	.reg .pred %p<4>;
	.reg .pred %q;
	.local .align 8 .b8 own[64];
	ld.param.u64 %in, [in];
	ld.param.u64 %out, [out];
	ld.param.u64 %numbers, [numbers];
	ld.param.u32 %x0, [shuffled];
	mov.u32 %t, %tid.x;
	mov.u32 %c, %ctaid.x;
	mov.u32 %n, %ntid.x;
	setp.eq.u32 %q, %x0, 0;
	@%q bra STRAIGHT;
	mad.lo.u32 %flat, %c, %n, %t;
	mad.wide.u32 %y0, %flat, 4, %numbers;
	ld.global.u32 %t, [%y0];
STRAIGHT:
	mad.lo.u32 %flat, %c, %n, %t;
	mad.wide.u32 %mine, %flat, ` + fmt.Sprint(shuffledRecord) + `, %out;
	mov.u32 %cell, cells;
	mad.lo.u32 %cell, %t, 8, %cell;
	st.shared.u64 [%cell], %in;
	mov.u32 %x1, own;
	mov.u32 %x0, 0;
CLEAR:
	st.local.u32 [%x1], %x0;
	add.u32 %x1, %x1, 4;
	add.u32 %x0, %x0, 1;
	setp.lt.u32 %q, %x0, 16;
	@%q bra CLEAR;
	bar.sync 0;
` + p.b.String() + "\tret;\n}\n"
}

// shuffledRun runs a program and returns its output.
func shuffledRun(t *testing.T, source string, grid, block int, shuffled bool, seed uint64, l simt.Launch, slice uint64) ([]byte, error) {
	t.Helper()
	module, err := ptx.Parse("shuffled.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("shuffled.ptx", module, (&testMemory{}).place)
	if err != nil {
		t.Fatal(err)
	}
	memory := &testMemory{}
	in := memory.add(t, inAddress, 4*shuffledWords)
	rng := rand.New(rand.NewPCG(seed, 6))
	for i := range in {
		in[i] = byte(rng.Uint32())
	}
	out := memory.add(t, outAddress, grid*block*shuffledRecord)
	numbers := memory.add(t, globalAddress, align(4*grid*block, 16))
	for b := range grid {
		for i, n := range rng.Perm(block) {
			binary.LittleEndian.PutUint32(numbers[4*(b*block+i):], uint32(n))
		}
	}
	params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, inAddress), outAddress), globalAddress)
	flag := uint32(0)
	if shuffled {
		flag = 1
	}
	l.Params = binary.LittleEndian.AppendUint32(params, flag)
	l.Grid, l.Block, l.Memory = shape.Dim{X: uint32(grid), Y: 1, Z: 1}, shape.Dim{X: uint32(block), Y: 1, Z: 1}, memory
	err = runInSlices(t, program.Kernels()[0], l, 1<<22, slice, false)
	return bytes.Clone(out), err
}

// A program does the same whichever lanes its threads are in, whatever the
// width of a gang, and wherever it is stopped.
func TestShuffledThreads(t *testing.T) {
	for seed := range uint64(need.Rounds(20, 60)) {
		if !shuffledCase(t, seed) {
			return
		}
	}
}

func shuffledCase(t *testing.T, seed uint64) bool {
	return t.Run(fmt.Sprint(seed), func(t *testing.T) {
		source := shuffledSource(seed)
		rng := rand.New(rand.NewPCG(seed, 9))
		blocks := []int{1, 3, 8, 16, 20, 32, 33, 48, 64, 100, 128, 256, 257, 300, 512}
		block := blocks[rng.IntN(len(blocks))]
		grid := 1 + rng.IntN(max(1, 600/block))
		want, err := shuffledRun(t, source, grid, block, true, seed, simt.Launch{Width: 32, Engine: simt.Interpret}, 1<<22)
		if err != nil {
			t.Fatalf("shuffled: %v\n%s", err, source)
		}
		for _, way := range []struct {
			name     string
			shuffled bool
			launch   simt.Launch
			slice    uint64
		}{
			{"width 32", false, simt.Launch{Width: 32}, 1 << 22},
			{"width 256", false, simt.Launch{Engine: simt.Interpret}, 1 << 22},
			{"compiled", false, simt.Launch{Engine: simt.Compile}, 1 << 22},
			{"compiled, width 64", true, simt.Launch{Width: 64, Engine: simt.Compile}, 1 << 22},
			{"width 128, two workers", false, simt.Launch{Width: 128, Workers: 2}, 1 << 22},
			{"width 256, shuffled", true, simt.Launch{}, 1 << 22},
			{"stopped", false, simt.Launch{Engine: simt.Compile}, 50 + rng.Uint64N(500)},
		} {
			got, err := shuffledRun(t, source, grid, block, way.shuffled, seed, way.launch, way.slice)
			if err != nil {
				t.Fatalf("%s: %v\n%s", way.name, err, source)
			}
			for i := range got {
				if got[i] != want[i] {
					thread, at := i/shuffledRecord, i%shuffledRecord
					t.Fatalf("%s: grid %d, block %d: thread %d differs at byte %d of its record\n%s", way.name, grid, block, thread, at, source)
				}
			}
		}
	})
}
