//go:build linux && amd64

package asm

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
	Wanted bool
	Op     int32
	Role   string
	list   []noted
}

// Purpose says what the instructions that follow are for.
func (n *notes) Purpose(op int32, role string) { n.Op, n.Role = op, role }

// Note records an instruction that begins at a place.
func (n *notes) Note(at int, text string, target bool) {
	n.list = append(n.list, noted{at, n.Op, n.Role, text, target})
}

// byOthers says of the last instruction that several others do it.
func (n *notes) byOthers() {
	if n.Wanted {
		n.list[len(n.list)-1].text += ByAVX2
	}
}

// Listing returns the noted instructions with their bytes.
func (n *notes) Listing(code []byte, end int) []Line {
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
var vectorNames = map[Coding]mnemonic{
	Vpaddd: {"vpaddd", ""}, Vpaddq: {"vpaddq", ""}, Vpsubd: {"vpsubd", ""}, Vpsubq: {"vpsubq", ""}, Vpmulld: {"vpmulld", ""}, Vpmullq: {"vpmullq", ""},
	Vload32: {"vmovdqu32", "v-v"}, Vload64: {"vmovdqu64", "v-v"}, Vstore32: {"vmovdqu32", "v-d"}, Vstore64: {"vmovdqu64", "v-d"},
	Vpmovsxdq: {"vpmovsxdq", "v-v"}, Vpmovzxdq: {"vpmovzxdq", "v-v"}, Vpmovqd: {"vpmovqd", "v-d"}, Vpmovdb: {"vpmovdb", "v-d"}, {2, 2, 0, 0x33}: {"vpmovdw", "v-d"},
	{1, 2, 0, 0x21}: {"vpmovsxbd", "v-v"}, {1, 2, 0, 0x23}: {"vpmovsxwd", "v-v"}, Vpmovzxbd: {"vpmovzxbd", "v-v"}, {1, 2, 0, 0x33}: {"vpmovzxwd", "v-v"},
	Vpbroadcastd: {"vpbroadcastd", "v-v"}, Vpbroadcastq: {"vpbroadcastq", "v-v"}, {1, 2, 0, 0x7c}: {"vpbroadcastd", "v-r"}, FromGPR64: {"vpbroadcastq", "v-r"},
	Vpsllvd: {"vpsllvd", ""}, Vpsllvq: {"vpsllvq", ""}, Vpsrlvd: {"vpsrlvd", ""}, Vpsrlvq: {"vpsrlvq", ""}, Vpsravd: {"vpsravd", ""}, Vpsravq: {"vpsravq", ""},
	Vpcmpd: {"vpcmpd", "kvv"}, Vpcmpud: {"vpcmpud", "kvv"}, vpcmpq: {"vpcmpq", "kvv"}, Vpcmpuq: {"vpcmpuq", "kvv"}, Vcmpps: {"vcmpps", "kvv"}, Vcmppd: {"vcmppd", "kvv"},
	Vptestmq: {"vptestmq", "kvv"}, Vptestmw: {"vptestmw", "kvv"}, Vptestnmd: {"vptestnmd", "kvv"},
	Vpandd: {"vpandd", ""}, Vpandq: {"vpandq", ""}, Vpord: {"vpord", ""}, Vporq: {"vporq", ""}, Vpxord: {"vpxord", ""}, Vpxorq: {"vpxorq", ""},
	Vpminsd: {"vpminsd", ""}, Vpminud: {"vpminud", ""}, Vpmaxsd: {"vpmaxsd", ""}, Vpmaxud: {"vpmaxud", ""},
	Vpminsq: {"vpminsq", ""}, Vpminuq: {"vpminuq", ""}, Vpmaxsq: {"vpmaxsq", ""}, Vpmaxuq: {"vpmaxuq", ""},
	Vpmuldq: {"vpmuldq", ""}, Vpmuludq: {"vpmuludq", ""}, Vpternlogq: {"vpternlogq", ""},
	Vaddps: {"vaddps", ""}, Vsubps: {"vsubps", ""}, Vmulps: {"vmulps", ""}, Vdivps: {"vdivps", ""}, Vsqrtps: {"vsqrtps", "v-v"},
	Vaddpd: {"vaddpd", ""}, Vsubpd: {"vsubpd", ""}, Vmulpd: {"vmulpd", ""}, Vdivpd: {"vdivpd", ""},
	Vfmadd213ps: {"vfmadd213ps", ""}, Vfmadd231ps: {"vfmadd231ps", ""}, Vfmadd213pd: {"vfmadd213pd", ""},
	Vcvtdq2ps: {"vcvtdq2ps", "v-v"}, Vcvtudq2ps: {"vcvtudq2ps", "v-v"}, Vmovdqa32: {"vmovdqa32", "v-v"},
	Vpblendmd: {"vpblendmd", ""}, {1, 2, 1, 0x64}: {"vpblendmq", ""}, Vinserti64x4: {"vinserti64x4", ""}, Vextracti64x4: {"vextracti64x4", "v-d"},
	Vpgatherdd: {"vpgatherdd", "v-v"}, Vpgatherdq: {"vpgatherdq", "v-v"}, Vpgatherqd: {"vpgatherqd", "v-v"}, Vpgatherqq: {"vpgatherqq", "v-v"},
	Vpscatterdd: {"vpscatterdd", "v-d"}, Vpscatterdq: {"vpscatterdq", "v-d"}, Vpscatterqd: {"vpscatterqd", "v-d"}, Vpscatterqq: {"vpscatterqq", "v-d"},
}

// shortNames are those with a VEX prefix: on masks, and on 256 bits.
var shortNames = map[Coding]mnemonic{
	Vmovdqu: {"vmovdqu", "v-v"}, VmovdquStore: {"vmovdqu", "v-d"}, Vpand: {"vpand", ""}, Vpandn: {"vpandn", ""}, Vpor: {"vpor", ""}, Vptest: {"vptest", "v-v"},
	Kmovw: {"kmovw", "k-k"}, Kmovd: {"kmovd", "k-k"}, KmovdFromR: {"kmovd", "k-r"}, KmovwToR: {"kmovw", "r-k"}, KmovdToR: {"kmovd", "r-k"},
	Kandw: {"kandw", "kkk"}, Kandd: {"kandd", "kkk"}, {1, 1, 1, 0x42}: {"kandnd", "kkk"}, Korw: {"korw", "kkk"}, Kxorw: {"kxorw", "kkk"},
	{0, 1, 0, 0x42}: {"kandnw", "kkk"}, {0, 1, 0, 0x46}: {"kxnorw", "kkk"},
	Kunpckbw: {"kunpckbw", "kkk"}, Kunpckwd: {"kunpckwd", "kkk"}, Kortestw: {"kortestw", "k-k"}, Kshiftrd: {"kshiftrd", "k-k"},
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
	Conditions = strings.Fields("o no b ae e ne be a s ns p np l ge le g")
	lengths    = [...]string{"xmm", "ymm", "zmm"}
)

// noteGeneral notes an instruction on general registers.
func (a *Assembler) noteGeneral(at int, wide bool, opcode []byte, reg int, p Place, imm []byte) {
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
	a.Note(at, name+" "+strings.Join(append(operands, constant...), ", "), false)
}

// noteVector notes an instruction on vectors or masks.
func (a *Assembler) noteVector(at int, known map[Coding]mnemonic, c Coding, length uint8, reg, second int, p Place, m Masked, imm []byte) {
	x, ok := known[c]
	if !ok {
		x = mnemonic{fmt.Sprintf("(%d.%d.%d.%02x)", c.pp, c.mm, c.W, c.Op), ""}
	}
	if x.operands == "" {
		x.operands = "vvv"
	}
	register := func(letter byte, n int) string {
		switch letter {
		case 'k':
			return fmt.Sprintf("k%d", n)
		case 'r':
			if c.W == 1 {
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
		if p.Bcast {
			text += fmt.Sprintf("{1to%d}", 16>>c.W)
		}
		operands = append(operands, text)
	} else {
		operands = append(operands, register(last, int(p.reg)))
	}
	if last == 'd' { // the last one is the destination, not the first
		operands[0], operands[len(operands)-1] = operands[len(operands)-1], operands[0]
	}
	if m.K != 0 {
		operands[0] += fmt.Sprintf("{k%d}", m.K)
	}
	if m.Zero {
		operands[0] += "{z}"
	}
	a.Note(at, x.name+" "+strings.Join(append(operands, constantText(imm)...), ", "), false)
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
func (p *Place) text(names []string, length string) string {
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
		if p.Disp != 0 {
			s += fmt.Sprintf("%+#x", p.Disp)
		}
	}
	return s + "]"
}
