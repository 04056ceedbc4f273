//go:build linux && amd64

package native

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// This file writes machine code down for people. The assembler notes every
// instruction as it emits it, if Kernel.Listed asks for that: disassemblers for Go
// know nothing of AVX-512, and here it is known what each instruction is for.

// noted is an instruction that was emitted.
type noted struct {
	at     int
	op     int32  // what it is for, as in Line
	role   string // as in Line
	text   string
	target bool // its last four bytes are a distance to a place in the code
}

// notes is what the assembler keeps for a listing. The zero value keeps nothing.
type notes struct {
	wanted bool
	op     int32
	role   string
	list   []noted
}

// purpose says what the instructions that follow are for.
func (n *notes) purpose(op int32, role string) { n.op, n.role = op, role }

// note records an instruction that begins at a place.
func (n *notes) note(at int, text string, target bool) {
	n.list = append(n.list, noted{at, n.op, n.role, text, target})
}

// byOthers says of the last instruction that several others do it.
func (n *notes) byOthers() {
	if n.wanted {
		n.list[len(n.list)-1].text += ByAVX2
	}
}

// listing returns the noted instructions with their bytes.
func (n *notes) listing(code []byte, end int) []Line {
	lines := make([]Line, 0, len(n.list))
	for i, x := range n.list {
		next := end
		if i+1 < len(n.list) {
			next = n.list[i+1].at
		}
		l := Line{Offset: x.at, Bytes: append([]byte(nil), code[x.at:next]...), Text: x.text, Op: x.op, Role: x.role}
		if x.target {
			distance := int32(binary.LittleEndian.Uint32(code[next-4:]))
			l.Text += fmt.Sprintf(" %04x", next+int(distance))
		}
		lines = append(lines, l)
	}
	return lines
}

// mnemonic is the name of an instruction, and what its operands are: in turn reg,
// second and the last one, each a letter of operandNames, or - if it has none.
type mnemonic struct{ name, operands string }

// vectorNames are the instructions with an EVEX prefix that the compiler emits.
var vectorNames = map[coding]mnemonic{
	vpaddd: {"vpaddd", ""}, vpaddq: {"vpaddq", ""}, vpsubd: {"vpsubd", ""}, vpsubq: {"vpsubq", ""}, vpmulld: {"vpmulld", ""}, vpmullq: {"vpmullq", ""},
	vload32: {"vmovdqu32", "v-v"}, vload64: {"vmovdqu64", "v-v"}, vstore32: {"vmovdqu32", "v-d"}, vstore64: {"vmovdqu64", "v-d"},
	vpmovsxdq: {"vpmovsxdq", "v-v"}, vpmovzxdq: {"vpmovzxdq", "v-v"}, vpmovqd: {"vpmovqd", "v-d"}, {2, 2, 0, 0x31}: {"vpmovdb", "v-d"}, {2, 2, 0, 0x33}: {"vpmovdw", "v-d"},
	{1, 2, 0, 0x21}: {"vpmovsxbd", "v-v"}, {1, 2, 0, 0x23}: {"vpmovsxwd", "v-v"}, {1, 2, 0, 0x31}: {"vpmovzxbd", "v-v"}, {1, 2, 0, 0x33}: {"vpmovzxwd", "v-v"},
	vpbroadcastd: {"vpbroadcastd", "v-v"}, vpbroadcastq: {"vpbroadcastq", "v-v"}, {1, 2, 0, 0x7c}: {"vpbroadcastd", "v-r"}, fromGPR64: {"vpbroadcastq", "v-r"},
	vpsllvd: {"vpsllvd", ""}, vpsllvq: {"vpsllvq", ""}, {1, 2, 0, 0x45}: {"vpsrlvd", ""}, {1, 2, 1, 0x45}: {"vpsrlvq", ""}, {1, 2, 0, 0x46}: {"vpsravd", ""}, {1, 2, 1, 0x46}: {"vpsravq", ""},
	vpcmpd: {"vpcmpd", "kvv"}, vpcmpud: {"vpcmpud", "kvv"}, vpcmpq: {"vpcmpq", "kvv"}, vpcmpuq: {"vpcmpuq", "kvv"}, {0, 1, 0, 0xc2}: {"vcmpps", "kvv"}, {1, 1, 1, 0xc2}: {"vcmppd", "kvv"},
	vptestmq: {"vptestmq", "kvv"}, {1, 2, 1, 0x26}: {"vptestmw", "kvv"}, {2, 2, 0, 0x27}: {"vptestnmd", "kvv"},
	{1, 1, 0, 0xdb}: {"vpandd", ""}, {1, 1, 1, 0xdb}: {"vpandq", ""}, {1, 1, 0, 0xeb}: {"vpord", ""}, {1, 1, 1, 0xeb}: {"vporq", ""}, {1, 1, 0, 0xef}: {"vpxord", ""}, {1, 1, 1, 0xef}: {"vpxorq", ""},
	{1, 2, 0, 0x39}: {"vpminsd", ""}, {1, 2, 0, 0x3b}: {"vpminud", ""}, {1, 2, 0, 0x3d}: {"vpmaxsd", ""}, {1, 2, 0, 0x3f}: {"vpmaxud", ""},
	{1, 2, 1, 0x39}: {"vpminsq", ""}, {1, 2, 1, 0x3b}: {"vpminuq", ""}, {1, 2, 1, 0x3d}: {"vpmaxsq", ""}, {1, 2, 1, 0x3f}: {"vpmaxuq", ""},
	{1, 2, 1, 0x28}: {"vpmuldq", ""}, {1, 1, 1, 0xf4}: {"vpmuludq", ""}, {1, 3, 1, 0x25}: {"vpternlogq", ""},
	{0, 1, 0, 0x58}: {"vaddps", ""}, {0, 1, 0, 0x5c}: {"vsubps", ""}, {0, 1, 0, 0x59}: {"vmulps", ""}, {0, 1, 0, 0x5e}: {"vdivps", ""}, {0, 1, 0, 0x51}: {"vsqrtps", "v-v"},
	{1, 1, 1, 0x58}: {"vaddpd", ""}, {1, 1, 1, 0x5c}: {"vsubpd", ""}, {1, 1, 1, 0x59}: {"vmulpd", ""}, {1, 1, 1, 0x5e}: {"vdivpd", ""},
	{1, 2, 0, 0xa8}: {"vfmadd213ps", ""}, {1, 2, 0, 0xb8}: {"vfmadd231ps", ""}, {1, 2, 1, 0xa8}: {"vfmadd213pd", ""},
	{0, 1, 0, 0x5b}: {"vcvtdq2ps", "v-v"}, {3, 1, 0, 0x7a}: {"vcvtudq2ps", "v-v"}, {1, 1, 0, 0x6f}: {"vmovdqa32", "v-v"},
	{1, 2, 0, 0x64}: {"vpblendmd", ""}, {1, 2, 1, 0x64}: {"vpblendmq", ""}, {1, 3, 1, 0x3a}: {"vinserti64x4", ""}, {1, 3, 1, 0x3b}: {"vextracti64x4", "v-d"},
	{1, 2, 0, 0x90}: {"vpgatherdd", "v-v"}, {1, 2, 1, 0x90}: {"vpgatherdq", "v-v"}, {1, 2, 0, 0x91}: {"vpgatherqd", "v-v"}, {1, 2, 1, 0x91}: {"vpgatherqq", "v-v"},
	{1, 2, 0, 0xa0}: {"vpscatterdd", "v-d"}, {1, 2, 1, 0xa0}: {"vpscatterdq", "v-d"}, {1, 2, 0, 0xa1}: {"vpscatterqd", "v-d"}, {1, 2, 1, 0xa1}: {"vpscatterqq", "v-d"},
}

// shortNames are those with a VEX prefix: on masks, and on 256 bits.
var shortNames = map[coding]mnemonic{
	vmovdqu: {"vmovdqu", "v-v"}, vmovdquStore: {"vmovdqu", "v-d"}, vpand: {"vpand", ""}, vpandn: {"vpandn", ""}, vpor: {"vpor", ""}, vptest: {"vptest", "v-v"},
	{0, 1, 0, 0x90}: {"kmovw", "k-k"}, {1, 1, 1, 0x90}: {"kmovd", "k-k"}, {3, 1, 0, 0x92}: {"kmovd", "k-r"}, {0, 1, 0, 0x93}: {"kmovw", "r-k"}, {3, 1, 0, 0x93}: {"kmovd", "r-k"},
	{0, 1, 0, 0x41}: {"kandw", "kkk"}, {1, 1, 1, 0x41}: {"kandd", "kkk"}, {1, 1, 1, 0x42}: {"kandnd", "kkk"}, {0, 1, 0, 0x45}: {"korw", "kkk"}, {0, 1, 0, 0x47}: {"kxorw", "kkk"},
	{0, 1, 0, 0x42}: {"kandnw", "kkk"}, {0, 1, 0, 0x46}: {"kxnorw", "kkk"},
	{1, 1, 0, 0x4b}: {"kunpckbw", "kkk"}, {0, 1, 0, 0x4b}: {"kunpckwd", "kkk"}, {0, 1, 0, 0x98}: {"kortestw", "k-k"}, {1, 3, 0, 0x31}: {"kshiftrd", "k-k"},
}

// generalNames are the instructions on general registers, by their opcode. Where
// an opcode stands for several, reg chooses among the words.
var generalNames = map[string]string{
	"\x8b": "mov", "\x89": "mov", "\x03": "add", "\x2b": "sub", "\x23": "and", "\x0b": "or", "\x33": "xor", "\x3b": "cmp", "\x01": "add", "\x85": "test",
	"\x0f\xaf": "imul", "\x0f\xc1": "xadd", "\x69": "imul", "\x8d": "lea", "\x63": "movsxd", "\x0f\xb6": "movzx", "\x0f\xb7": "movzx", "\x0f\xbe": "movsx", "\x0f\xbf": "movsx", "\x0f\xb8": "popcnt",
	"\x81": "add or adc sbb and sub xor cmp", "\x83": "add or adc sbb and sub xor cmp", "\x0f\xbc": "bsf", "\x0f\xbd": "bsr", "\x0f\x18": "prefetchnta prefetcht0",
	"\xc1": "rol ror rcl rcr shl shr sal sar", "\xf7": "test test not neg mul imul div idiv", "\xc7": "mov",
}

// grouped are the opcodes whose reg is no operand.
var grouped = map[string]bool{"\x81": true, "\x83": true, "\x0f\x18": true, "\xc1": true, "\xf7": true, "\xc7": true}

var (
	names64    = strings.Fields("rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15")
	names32    = strings.Fields("eax ecx edx ebx esp ebp esi edi r8d r9d r10d r11d r12d r13d r14d r15d")
	conditions = strings.Fields("o no b ae e ne be a s ns p np l ge le g")
	lengths    = [...]string{"xmm", "ymm", "zmm"}
)

// noteGeneral notes an instruction on general registers.
func (a *assembler) noteGeneral(at int, wide bool, opcode []byte, reg int, p place, imm []byte) {
	names := names32
	if wide {
		names = names64
	}
	key := string(opcode)
	if key == "\x0f\xb8" {
		at-- // the prefix belongs to it
	}
	words := strings.Fields(generalNames[key])
	name := "?"
	if len(words) > 0 {
		name = words[0]
	}
	operands := []string{names[reg], p.text(names, "")}
	switch {
	case grouped[key]:
		if len(words) > 1 {
			name = words[reg]
		}
		operands = operands[1:]
		if p.memory && key != "\x0f\x18" { // no register tells how long the operand is
			operands[0] = map[bool]string{false: "dword ptr ", true: "qword ptr "}[wide] + operands[0]
		}
	case key == "\x89" || key == "\x01":
		operands[0], operands[1] = operands[1], operands[0]
	}
	constant := constantText(imm)
	if key == "\x83" { // the processor extends this byte with its sign
		constant = []string{fmt.Sprint(int8(imm[0]))}
	}
	a.note(at, name+" "+strings.Join(append(operands, constant...), ", "), false)
}

// noteVector notes an instruction on vectors or masks.
func (a *assembler) noteVector(at int, known map[coding]mnemonic, c coding, length uint8, reg, second int, p place, m masked, imm []byte) {
	x, ok := known[c]
	if !ok {
		x = mnemonic{fmt.Sprintf("(%d.%d.%d.%02x)", c.pp, c.mm, c.w, c.op), ""}
	}
	if x.operands == "" {
		x.operands = "vvv"
	}
	register := func(letter byte, n int) string {
		switch letter {
		case 'k':
			return fmt.Sprintf("k%d", n)
		case 'r':
			if c.w == 1 {
				return names64[n]
			}
			return names32[n]
		}
		return fmt.Sprintf("%s%d", lengths[length], n)
	}
	last := x.operands[2]
	operands := []string{register(x.operands[0], reg)}
	if x.operands[1] != '-' {
		operands = append(operands, register(x.operands[1], second))
	}
	if p.memory {
		text := p.text(nil, lengths[length])
		if p.bcast {
			text += fmt.Sprintf("{1to%d}", 16>>c.w)
		}
		operands = append(operands, text)
	} else {
		operands = append(operands, register(last, int(p.reg)))
	}
	if last == 'd' { // the last one is the destination, not the first
		operands[0], operands[len(operands)-1] = operands[len(operands)-1], operands[0]
	}
	if m.k != 0 {
		operands[0] += fmt.Sprintf("{k%d}", m.k)
	}
	if m.zero {
		operands[0] += "{z}"
	}
	a.note(at, x.name+" "+strings.Join(append(operands, constantText(imm)...), ", "), false)
}

// constantText writes the constant behind an instruction, if there is one: four bytes are a number
// with its sign, and one byte is a count or chooses what is done.
func constantText(imm []byte) []string {
	switch len(imm) {
	case 0:
		return nil
	case 4:
		return []string{fmt.Sprintf("%d", int32(binary.LittleEndian.Uint32(imm)))}
	}
	return []string{fmt.Sprintf("%d", imm[0])}
}

// text writes an operand; names are those of general registers, length that of vectors,
// which an index may be.
func (p *place) text(names []string, length string) string {
	if !p.memory {
		return names[p.reg]
	}
	s := "["
	switch {
	case p.pool > 0:
		s += fmt.Sprintf("constants+%#x", p.pool-1)
	default:
		s += names64[p.base]
		if p.index >= 0 {
			index := fmt.Sprintf("%s%d", length, p.index)
			if p.scale&0x80 == 0 {
				index = names64[p.index]
			}
			s += fmt.Sprintf("+%s*%d", index, 1<<(p.scale&3))
		}
		if p.disp != 0 {
			s += fmt.Sprintf("%+#x", p.disp)
		}
	}
	return s + "]"
}
