package simt_test

import (
	"bytes"
	"compress/gzip"

	"muster/ptx/simt/shape"

	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/ptx/simt"
)

var (
	randomCount = flag.Int("random-count", 15, "how many random programs to run, a tenth of that in short mode")
	randomFirst = flag.Uint64("random-first", 0, "add this to the seeds of the random programs: others than those of other runs")
	randomFile  = flag.String("random-file", "", "write the random programs and their results to this file, for testdata/gpu/run_programs.py")
)

// Random programs come to the same end whatever the width of a gang, on both engines, and wherever they are stopped.
func TestRandomPrograms(t *testing.T) {
	count := *randomCount
	if testing.Short() {
		count /= 10
	}
	words := randomWords()
	var programs []gpuProgram
	for seed := range uint64(count) {
		p := randomProgram(*randomFirst + seed)
		p.in = words
		t.Run(p.Name, func(t *testing.T) {
			p.CRC32 = p.results(t, "width 32", simt.Launch{Width: 32, Engine: simt.Interpret}, runToEnd)
			p.check(t, "width 256", simt.Launch{Width: 256, Engine: simt.Interpret}, runToEnd)
			p.check(t, "compiled", simt.Launch{Engine: simt.Compile}, runToEnd)
			p.check(t, "compiled, width 96", simt.Launch{Engine: simt.Compile, Width: 96}, runToEnd)
			p.check(t, "stopped", simt.Launch{}, runInParts)
		})
		programs = append(programs, p)
	}
	if *randomFile != "" {
		writePrograms(t, *randomFile, gpuFile{map[string][]byte{"words": words}, programs})
	}
}

// Many more random programs come to the same end on both engines at any width, and if the state
// is carried from one to the other at random instructions; the seeds are others than
// those of TestRandomPrograms.
func TestRandomEngines(t *testing.T) {
	count := 4 * *randomCount
	if testing.Short() {
		count /= 10
	}
	compareEngines(t, firstVaried+*randomFirst, count)
}

// compareEngines runs random programs, the first of them from a seed. It says how far it is in long runs (-v).
func compareEngines(t *testing.T, seed uint64, count int) {
	t.Helper()
	words := randomWords()
	for n := range uint64(count) {
		p := randomProgram(seed + n)
		p.in = words
		p.CRC32 = p.results(t, p.Name, simt.Launch{Engine: simt.Interpret}, runToEnd)
		rng := rand.New(rand.NewPCG(seed+n, 3))
		width := shape.WarpSize * rng.IntN(9) // 0 is the usual one
		p.check(t, fmt.Sprintf("%s, compiled, width %d", p.Name, width), simt.Launch{Engine: simt.Compile, Width: width}, runToEnd)
		width = shape.WarpSize * rng.IntN(9)
		p.check(t, fmt.Sprintf("%s, carried, width %d", p.Name, width), simt.Launch{Engine: simt.Compile, Width: width}, runCarried(rng))
		if t.Failed() {
			t.Fatalf("program %d of %d:\n%s", n, count, p.Source)
		}
		if done := n + 1; done%1000 == 0 {
			t.Logf("%d programs are the same on both engines, from seed %d", done, seed)
		}
	}
}

// runCarried stops the kernel at random instructions, a few times, and goes on from what
// was saved with the other engine.
func runCarried(rng *rand.Rand) runner {
	return func(kernel *simt.Kernel, x *simt.Execution, memory simt.Memory) error {
		engine := simt.Compile
		for range 1 + rng.IntN(4) {
			if err := x.RunFor(1 + rng.Uint64N(1<<rng.IntN(14))); !errors.Is(err, simt.ErrStopped) {
				return err
			}
			state, err := x.Save()
			if err != nil {
				return err
			}
			engine = otherEngine(engine)
			if x, err = kernel.Resume(simt.Launch{Memory: memory, Engine: engine}, state); err != nil {
				return err
			}
		}
		return x.RunFor(1 << 24)
	}
}

func writePrograms(t *testing.T, path string, content gpuFile) {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	if err := json.NewEncoder(zipped).Encode(content); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

// randomWords is the input of all programs: numbers of every size, some floats.
func randomWords() []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	var words []byte
	for i := range 256 {
		word := rng.Uint32() >> rng.IntN(32)
		if i%32 == 0 {
			word = []uint32{0x3f800000, 0x40490fdb, 0xbf000000, 0x7f800000, 0x00000001, 0x80000000, 0x7fc00000, 0xffffffff}[i/32]
		}
		words = binary.LittleEndian.AppendUint32(words, word)
	}
	return words
}

// In the templates below <a/b> is one of the two, and a capital letter an operand:
// R W H F P a register of 32, 64, 16 bits, a float, a predicate; I J K a register
// or a number of 32, 64, 16 bits; N 0 to 31; G a guard or nothing. Whatever a
// program does with them is defined by the ISA: no division by zero, no race.

var arithmeticTemplates = []string{
	"<add/sub/mul.lo/min/max>.<u/s>32 R, R, I",
	"<and/or/xor>.b32 R, R, I",
	"<shl.b32/shr.u32/shr.s32> R, R, I",
	"mad.lo.<u/s>32 R, R, I, I",
	"mul.wide.<u/s>32 W, R, I",
	"mad.wide.<u/s>32 W, R, I, W",
	"<div/rem>.u32 R, R, <3/7/16/65535>",
	"<div/rem>.s32 R, R, <3/10/-7>",
	"<add/sub/mul.lo/min/max>.<u/s>64 W, W, J",
	"<shl.b64/shr.u64/shr.s64> W, W, N",
	"<div/rem>.u64 W, W, <5/8/123456789012>",
	"neg.s64 W, W",
	"<add/sub/mul.lo/min/max>.<u/s>16 H, H, K",
	"<not/popc/brev>.b32 R, R",
	"clz.b64 R, W",
	"bfe.<u/s>32 R, R, N, N",
	"bfi.b32 R, R, R, N, N",
	"prmt.b32 R, R, R, I",
	"lop3.b32 R, R, R, R, <0x96/0xe8/0x1b/0xca>",
	"shf.<l/r>.wrap.b32 R, R, R, I",
	"dp4a.s32.u32 R, R, R, R",
	"sad.u32 R, R, R, R",
	"<mov.b32/cvt.s32.s8/cvt.u32.u16> R, R",
	"mov.b32 R, I",
	"mov.b64 W, J",
	"mov.u32 R, <%tid.x/%tid.y/%ctaid.x/%ntid.x/%laneid>",
	"cvt.u32.u64 R, W",
	"cvt.<s64.s32/u64.u32> W, R",
	"cvt.u16.u32 H, R",
	"cvt.<s32.s16/u32.u16> R, H",
	"mov.b32 {%h0, %h1}, R",
	"mov.b32 R, {H, H}",
	"mov.b64 {%r0, %r1}, W",
	"mov.b64 W, {R, R}",
	"<add.rn/sub.rn/mul.rn/mul.rz/add.rn.ftz/min/max>.f32 F, F, F",
	"fma.<rn/rz/rm/rp>.f32 F, F, F, F",
	"cvt.rn.f32.<u/s>32 F, R",
	"cvt.rzi.<u/s>32.f32 R, F",
	"mov.b32 R, F",
	"setp.<eq/ne/lt/le/gt/ge>.<u/s>32 P, R, I",
	"setp.<lt/ge/ltu/neu>.f32 P, F, F",
	"setp.<eq/lt/gt>.<and/or/xor>.s64 <%p0|%p1/%p2|%p3/%p3|%p0>, W, J, </!>P",
	"selp.b32 R, R, I, P",
}

var memoryTemplates = []string{
	"and.b32 %t, R, 255; mad.wide.u32 %at, %t, 4, %in; G ld.global.u32 R, [%at]",
	"and.b32 %t, R, 127; mad.wide.u32 %at, %t, 8, %in; G ld.global.u64 W, [%at]",
	"and.b32 %t, R, 1023; mad.wide.u32 %at, %t, 1, %in; G ld.global.<u/s>8 R, [%at]",
	"and.b32 %t, R, 63; mad.wide.u32 %at, %t, 16, %in; G ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%at]",
	"and.b32 %t, R, 7; mov.u64 %at, table; mad.wide.u32 %at, %t, 4, %at; G ld.const.u32 R, [%at]",
	"and.b32 %t, R, 3; mad.wide.u32 %at, %t, 4, %lo; G <st.local.u32 [%at], R/ld.local.u32 R, [%at]>",
	"cvta.local.u64 %at, %lo; G st.u16 [%at+<0/2/6>], H; G ld.u64 W, [%at+<0/8>]",
	"G st.shared.u32 [%own+<0/4>], R; ld.shared.u32 R, [%own+<0/4>]",
	"G st.shared.u8 [%own+<0/1/3/6>], R; G ld.shared.s16 R, [%own+<0/2/4/6>]",
	"G atom.shared.<add.u32/max.s32/xor.b32/exch.b32/inc.u32> R, [%own], R",
	"G red.shared.add.u32 [sum], R",
	"G red.shared.max.s32 [sum+4], R",
	"add.cc.u32 %r4, %r4, R; addc.u32 %r5, R, 0",
}

// firstVaried is the first seed whose programs also have the templates below. Those before it stay
// as they are, since some have run on a GPU.
const firstVaried = 1 << 32

var variedArithmetic = []string{
	"bmsk.<clamp/wrap>.b32 R, R, I",
	"szext.<clamp/wrap>.<u/s>32 R, R, I",
	"fns.b32 R, R, N, I",
	"cvt.pack.sat.<u/s>16.s32 R, R, I",
	"cvt.pack.sat.<u8/s8/u4/s4>.s32.b32 R, R, I, R",
	"<mul.hi/mul24.lo/mul24.hi>.<u/s>32 R, R, I",
	"mul.hi.<u/s>64 W, W, J",
	"mad.<hi/lo>.<u/s>32 R, R, I, I",
	"mad.lo.<u/s>64 W, W, J, J",
	"<bfind/bfind.shiftamt>.<u/s>32 R, R",
	"bfind.u64 R, W",
	"popc.b64 R, W",
	"brev.b64 W, W",
	"bfe.<u/s>64 W, W, N, N",
	"bfi.b64 W, W, W, N, N",
	"prmt.b32.<f4e/b4e/rc8/ecl/ecr/rc16> R, R, R, N",
	"<and/or/xor>.b64 W, W, J",
	"<not/cnot>.b64 W, W",
	"abs.s<32 R, R/64 W, W/16 H, H>",
	"shr.<u/s>16 H, H, N",
	"shl.b16 H, H, N",
	"mul.wide.<u/s>16 R, H, K",
	"mad.lo.<u/s>16 H, H, K, K",
	"dp2a.<lo/hi>.s32.u32 R, R, R, R",
	"sad.<s32 R, R, I, R/u64 W, W, J, W>",
	"slct.b32.s32 R, R, I, R",
	"shf.<l/r>.clamp.b32 R, R, R, I",
	"set.<lt/ge/eq>.<u32/s32>.<u32/s32> R, R, I",
	"selp.<b64 W, W, J, P/f32 F, F, F, P/b16 H, H, K, P>",
	"<and/or/xor>.pred P, P, P",
	"not.pred P, P",
	"cvt.sat.<u8/s8/u16/s16>.s32 R, R",
	"cvt.<u8/s8>.u64 R, W",
	"div.<rn/rz>.f32 F, F, F",
	"<sqrt.rn/rcp.rn/sqrt.rz/rcp.rm/abs/neg/cvt.rni.f32/cvt.sat.f32>.f32 F, F",
	"<ex2/lg2/sin/cos/rsqrt/tanh>.approx.f32 F, F",
	"<fma.rn.ftz/fma.rn.sat>.f32 F, F, F, F",
	"<mul.rn.ftz/add.rp/sub.rm/max.ftz/copysign>.f32 F, F, F",
	"testp.<finite/infinite/number/subnormal>.f32 P, F",
	"set.<lt/geu>.u32.f32 R, F, F",
	"<add.rn/sub.rz/mul.rn/mul.rp/div.rn/min/max>.f64 W, W, W",
	"fma.<rn/rz/rm/rp>.f64 W, W, W, W",
	"sqrt.rn.f64 W, W",
	"cvt.rn.f64.<u/s>64 W, W",
	"cvt.f64.f32 W, F",
	"cvt.<rn/rz>.f32.f64 F, W",
	"cvt.<rzi/rni>.<u/s>32.f64 R, W",
	"setp.<lt/ge/neu>.f64 P, W, W",
	"<add/sub/mul/min/max>.<f16x2/bf16x2> R, R, R",
	"fma.rn.<f16x2/bf16x2> R, R, R, R",
	"<add/mul>.f16 H, H, H",
	"cvt.<rn/rz>.f16.f32 H, F",
	"cvt.f32.<f16/bf16> F, H",
	"cvt.rn.<bf16x2/f16x2>.f32 R, F, F",
	"<add/min/max>.<u16x2/s16x2> R, R, R",
}

// variedMemory also uses where the thread writes its registers at the end.
var variedMemory = []string{
	"sub.cc.u32 %r6, %r6, I; subc.cc.u32 %r7, R, I; subc.u32 %r8, R, 0",
	"mad.lo.cc.u32 %r6, R, I, %r6; madc.hi.u32 %r7, R, I, %r7",
	"and.b32 %t, R, 511; mad.wide.u32 %at, %t, 2, %in; G ld.global.<u/s>16 H, [%at]",
	"and.b32 %t, R, 255; mad.wide.u32 %at, %t, 4, %in; G ld.global.f32 F, [%at]",
	"and.b32 %t, R, 63; mad.wide.u32 %at, %t, 16, %in; G ld.global.v2.u64 {%w0, %w1}, [%at]",
	"G st.global.v2.b32 [%to+<0/8/24>], {R, R}; ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%to+<0/16>]",
	"G st.global.b8 [%to+<0/5/9>], R; G st.global.b16 [%to+<2/6/14>], H; ld.global.b64 W, [%to+<0/8>]",
	"st.b64 [%to+16], W; G ld.b32 R, [%to+<16/20>]",
	"G atom.global.<add.u32/max.s32/xor.b32/exch.b32/inc.u32/dec.u32> R, [%to+<0/4>], R",
	"G atom.global.<add.u64/min.s64/and.b64/exch.b64> W, [%to+<0/8>], W",
	"G atom.<global.cas.b32 R, [%to], R, R/shared.cas.b32 R, [%own], R, R>",
	"G atom.global.add.f32 F, [%to+4], F",
	"G atom.shared.add.f32 F, [%own+4], F",
	"G red.global.add.v2.f32 [%to+8], {F, F}",
	"G atom.global.<add/min/max>.noftz.v4.f16 {%h0, %h1, %h2, %h3}, [%to+<0/8>], {H, H, H, H}",
	"st.local.v2.b32 [%lo], {R, R}; G ld.local.<u/s>8 R, [%lo+<0/3/9>]",
}

var variedCollectives = []string{
	"match.any.sync.b32 R, R, %mask",
	"redux.sync.<add.u32/min.s32/max.u32/and.b32/or.b32/xor.b32> R, R, %mask",
	"barrier.sync 1; bar.red.popc.u32 R, 0, P",
	"bar.red.<and/or>.pred P, 0, P",
}

// collectiveTemplates are what all threads of a block do together.
var collectiveTemplates = []string{
	"bar.sync 0",
	"bar.sync 0; ld.shared.u32 R, [sum]; bar.sync 0",
	"vote.sync.ballot.b32 R, P, %mask",
	"vote.sync.<any/all>.pred P, P, %mask",
}

// shuffleTemplates read from every lane, so that no lane may be missing.
var shuffleTemplates = []string{"shfl.sync.<bfly/idx>.b32 R, R, N, 31, %mask"}

// programWriter writes the body of one program.
type programWriter struct {
	*rand.Rand
	strings.Builder
	labels int
	whole  bool // blocks are whole warps

	arithmetic, memory, collective []string // the templates
}

func choose[T any](w *programWriter, from ...T) T { return from[w.IntN(len(from))] }

func (w *programWriter) operand(letter byte) string {
	numbered := func(name string, n int) string { return fmt.Sprintf("%%%s%d", name, w.IntN(n)) }
	number := w.IntN(10) < 3
	switch {
	case letter == 'I' && number:
		return choose(w, "0", "1", "3", "7", "16", "31", "255", "-1", "-7", "65535", "2147483647")
	case letter == 'J' && number:
		return choose(w, "0", "1", "8", "-1", "-5", "4294967296", "123456789012")
	case letter == 'K' && number:
		return choose(w, "0", "1", "2", "255", "-1")
	case letter == 'N':
		return fmt.Sprint(w.IntN(32))
	case letter == 'G':
		return choose(w, "", "", "", "@"+w.operand('P'), "@!"+w.operand('P'))
	}
	switch letter {
	case 'R', 'I':
		return numbered("r", 10)
	case 'W', 'J':
		return numbered("w", 5)
	case 'H', 'K':
		return numbered("h", 4)
	case 'F':
		return numbered("f", 5)
	}
	return numbered("p", 4)
}

// put writes the instructions of a template.
func (w *programWriter) put(template string) {
	for template != "" {
		letter := template[0]
		template = template[1:]
		switch {
		case letter == '<':
			alternatives, rest, _ := strings.Cut(template, ">")
			template = choose(w, strings.Split(alternatives, "/")...) + rest
		case letter >= 'A' && letter <= 'Z':
			w.WriteString(w.operand(letter))
		default:
			w.WriteByte(letter)
		}
	}
	w.WriteString(";\n")
}

// block writes some statements; depth is how many branches and loops are around them.
func (w *programWriter) block(depth, statements int) {
	for range statements {
		at := w.IntN(100)
		switch {
		case at < 62 || depth >= 3 && at < 80:
			w.put("G " + choose(w, w.arithmetic...))
		case at < 78 || depth >= 3:
			w.put(choose(w, w.memory...))
		case at < 88:
			w.branch(depth)
		case at < 94:
			w.loop(depth)
		case at < 95:
			w.jumpTable(depth)
		case at < 97:
			w.WriteString("{\n")
			w.put(".param .b32 a; .param .b32 b; st.param.b32 [a], R; call (b), helper, (a); ld.param.b32 R, [b]")
			w.WriteString("}\n")
		case depth == 0 && w.whole && w.IntN(3) == 0:
			w.put(choose(w, shuffleTemplates...))
		case depth == 0:
			w.put(choose(w, w.collective...))
		}
	}
}

func (w *programWriter) branch(depth int) {
	w.labels++
	label := w.labels
	w.put(fmt.Sprintf("@</!>P bra else%d", label))
	w.block(depth+1, 1+w.IntN(4))
	w.put(fmt.Sprintf("bra end%d", label))
	fmt.Fprintf(w, "else%d:\n", label)
	w.block(depth+1, w.IntN(5))
	fmt.Fprintf(w, "end%d:\n", label)
}

func (w *programWriter) loop(depth int) {
	w.labels++
	label := w.labels
	w.put(fmt.Sprintf("and.b32 %%c%d, R, <1/3/7>", depth))
	fmt.Fprintf(w, "loop%d:\n", label)
	w.block(depth+1, 1+w.IntN(3))
	if w.IntN(5) < 2 {
		w.put(fmt.Sprintf("@P bra done%d", label))
	}
	w.put(fmt.Sprintf("sub.u32 %%c%d, %%c%[1]d, 1; setp.ge.s32 %%q, %%c%[1]d, 0; @%%q bra loop%d", depth, label))
	fmt.Fprintf(w, "done%d:\n", label)
}

func (w *programWriter) jumpTable(depth int) {
	w.labels++
	label := w.labels
	fmt.Fprintf(w, "table%d: .branchtargets a%[1]d, b%[1]d, c%[1]d, b%[1]d;\n", label)
	w.put(fmt.Sprintf("and.b32 %%t, R, 3; brx.idx %%t, table%d", label))
	for _, arm := range []string{"a", "b", "c"} {
		fmt.Fprintf(w, "%s%d:\n", arm, label)
		w.block(depth+1, 1+w.IntN(2))
		if w.IntN(2) == 0 {
			w.put(fmt.Sprintf("bra after%d", label))
		}
	}
	fmt.Fprintf(w, "after%d:\n", label)
}

//go:embed testdata/gpu/random_head.ptx
var randomHead string

// recordSize is what saveRegisters writes for a thread.
const recordSize = 8 * (10 + 5 + 5 + 4 + 1 + 2 + 1)

func randomProgram(seed uint64) gpuProgram {
	w := &programWriter{Rand: rand.New(rand.NewPCG(seed, 2)), arithmetic: arithmeticTemplates, memory: memoryTemplates, collective: collectiveTemplates}
	if seed >= firstVaried {
		w.arithmetic, w.memory, w.collective = slices.Concat(w.arithmetic, variedArithmetic), slices.Concat(w.memory, variedMemory), slices.Concat(w.collective, variedCollectives)
	}
	grid, block := choose[uint32](w, 1, 2, 5, 5), [3]uint32{choose[uint32](w, 1, 7, 31, 32, 33, 64, 96, 130, 256), choose[uint32](w, 1, 1, 2), 1}
	threads := block[0] * block[1]
	w.whole = threads%32 == 0
	sizes := strings.NewReplacer("SLOTS", fmt.Sprint(8*threads), "THREADS", fmt.Sprint(threads), "RECORD", fmt.Sprint(recordSize))
	w.WriteString(sizes.Replace(randomHead))
	for i := range 10 {
		w.put(fmt.Sprintf(choose(w, "mad.lo.u32 %%r%d, %%lin, <0/1/3/17/-1>, %d", "ld.global.u32 %%r%d, [%%in+%d]"), i, 4*w.IntN(256)))
	}
	for i := range 5 {
		w.put(fmt.Sprintf("mul.wide.u32 %%w%d, %%lin, <1/8/1000000007>", i))
		w.put(fmt.Sprintf("<cvt.rn.f32.s32 %%f%d, R/ld.global.f32 %%f%[1]d, [%%in+%d]>", i, 4*w.IntN(256)))
	}
	for i := range 4 {
		w.put(fmt.Sprintf("cvt.u16.u32 %%h%d, R", i))
		w.put(fmt.Sprintf("setp.lt.s32 %%p%d, R, R", i))
	}
	w.block(0, 20+w.IntN(50))
	w.saveRegisters()
	return gpuProgram{
		Name: fmt.Sprintf("random-%d", seed), Source: w.String(), Grid: [3]uint32{grid, 1, 1}, Block: block,
		Inputs: []string{"words"}, Size: int(grid*threads) * recordSize, loaded: new(loadedProgram),
	}
}

// saveRegisters ends the program: each thread writes all that it holds and the words it shares.
func (w *programWriter) saveRegisters() {
	w.put("bar.sync 0")
	at := 0
	save := func(how string, count int) {
		for i := range count {
			w.put(strings.ReplaceAll(how, "#", fmt.Sprint(i)) + fmt.Sprintf("; st.global.u64 [%%to+%d], %%x", at))
			at += 8
		}
	}
	save("cvt.u64.u32 %x, %r#", 10)
	save("mov.b64 %x, %w#", 5)
	save("mov.b32 %t, %f#; cvt.u64.u32 %x, %t", 5)
	save("cvt.u64.u16 %x, %h#", 4)
	save("selp.b64 %x, 1, 0, %p0; @%p1 or.b64 %x, %x, 2; @%p2 or.b64 %x, %x, 4; @%p3 or.b64 %x, %x, 8", 1)
	save("ld.local.u64 %x, [depot+#]", 1)
	save("ld.local.u64 %x, [depot+8]", 1)
	save("ld.shared.v2.u32 {%t, %u}, [sum]; mov.b64 %x, {%t, %u}", 1)
	w.WriteString("ret;\n}\n")
}
