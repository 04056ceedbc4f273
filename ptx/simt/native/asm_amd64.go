//go:build linux && amd64

package native

import (
	"encoding/binary"
	"fmt"
)

// This file is the assembler: it knows how instructions are encoded, not what they
// are used for. Distances of jumps and to constants have 32 bits, so that the length of
// an instruction never depends on them, and one pass suffices.

// Registers by number. General ones, vectors (zmm) and masks (k) count from 0
// each.
const (
	rax = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r8
	r9
	r10
	r11
	r12
	r13
	r14
	r15
)

// place is an operand in a register or in memory.
type place struct {
	memory bool
	reg    uint8
	base   uint8
	index  int8 // register, or -1
	scale  uint8
	disp   int32
	pool   int32 // offset into the constants plus one; base, index and disp do not count then
	bcast  bool  // one element for all lanes
}

func inReg(r int) place { return place{reg: uint8(r)} }

func at(base int, disp int) place {
	return place{memory: true, base: uint8(base), index: -1, disp: int32(disp)}
}

func indexed(base, index int, scale uint8, disp int) place {
	return place{memory: true, base: uint8(base), index: int8(index), scale: scale, disp: int32(disp)}
}

// label is a place in the code. bind fills in the distances of jumps that were
// emitted before it.
type label struct {
	bound bool
	at    int
	waits []int // places of 32-bit distances
}

type assembler struct {
	notes
	narrow bool // for a processor without AVX-512; see narrow_amd64.go
	code   []byte
	consts []byte
	known  map[string]int32 // offsets of the constants in consts, by their bytes
	pooled []poolFix
}

// poolFix is a distance to a constant, counted from the end of an instruction.
type poolFix struct {
	at, end int
	offset  int32
}

// plain emits an instruction that has no other form than these bytes.
func (a *assembler) plain(name string, b ...byte) {
	if a.wanted {
		a.note(len(a.code), name, false)
	}
	a.bytes(b...)
}

func (a *assembler) bytes(b ...byte) { a.code = append(a.code, b...) }
func (a *assembler) imm32(v int32)   { a.code = binary.LittleEndian.AppendUint32(a.code, uint32(v)) }

// constant returns the place of bytes in the pool; all are aligned to their
// size, up to 64.
func (a *assembler) constant(b []byte) place {
	if a.known == nil {
		a.known = map[string]int32{}
	}
	offset, ok := a.known[string(b)]
	if !ok {
		for len(a.consts)%min(64, len(b)) != 0 {
			a.consts = append(a.consts, 0)
		}
		offset = int32(len(a.consts))
		a.consts = append(a.consts, b...)
		a.known[string(b)] = offset
	}
	return place{memory: true, index: -1, pool: offset + 1}
}

func (a *assembler) word32(v uint32) place {
	p := a.constant(binary.LittleEndian.AppendUint32(nil, v))
	p.bcast = true
	return p
}

func (a *assembler) word64(v uint64) place {
	p := a.constant(binary.LittleEndian.AppendUint64(nil, v))
	p.bcast = true
	return p
}

// modrm appends the operand bytes; behind is how many bytes of immediate follow. With
// an EVEX prefix a displacement of 8 bits would count in other units: scaled says so.
func (a *assembler) modrm(reg uint8, p place, behind int, scaled bool) {
	reg = reg & 7 << 3
	if !p.memory {
		a.bytes(0xc0 | reg | p.reg&7)
		return
	}
	if p.pool > 0 {
		a.bytes(0x05 | reg)
		a.pooled = append(a.pooled, poolFix{at: len(a.code), end: len(a.code) + 4 + behind, offset: p.pool - 1})
		a.imm32(0)
		return
	}
	mode := uint8(0x80)
	switch {
	case p.disp == 0 && p.base&7 != rbp:
		mode = 0
	case p.disp == int32(int8(p.disp)) && !scaled:
		mode = 0x40
	}
	switch {
	case p.index >= 0:
		a.bytes(mode|0x04|reg, p.scale<<6|uint8(p.index)&7<<3|p.base&7)
	case p.base&7 == rsp:
		a.bytes(mode|0x04|reg, 0x24)
	default:
		a.bytes(mode | reg | p.base&7)
	}
	switch mode {
	case 0x40:
		a.bytes(uint8(p.disp))
	case 0x80:
		a.imm32(p.disp)
	}
}

// high returns bit 3 of the registers of an operand, as prefixes want them.
func (p *place) high() (x, b uint8) {
	switch {
	case !p.memory:
		return p.reg >> 4 & 1, p.reg >> 3 & 1
	case p.pool > 0:
		return 0, 0
	case p.index >= 0:
		return uint8(p.index) >> 3 & 1, p.base >> 3 & 1
	}
	return 0, p.base >> 3 & 1
}

// legacy emits an instruction on general registers.
func (a *assembler) legacy(wide bool, opcode []byte, reg int, p place, imm ...byte) {
	if a.wanted {
		a.noteGeneral(len(a.code), wide, opcode, reg, p, imm)
	}
	x, b := p.high()
	rex := uint8(reg)>>3&1<<2 | x<<1 | b
	if wide {
		rex |= 8
	}
	if rex != 0 {
		a.bytes(0x40 | rex)
	}
	a.bytes(opcode...)
	a.modrm(uint8(reg), p, len(imm), false)
	a.bytes(imm...)
}

// The two-operand instructions on general registers. The register is the
// destination, or the left side of a comparison.
var (
	opMov   = []byte{0x8b}
	opStore = []byte{0x89} // the operand is the destination
	opAdd   = []byte{0x03}
	opSub   = []byte{0x2b}
	opAnd   = []byte{0x23}
	opOr    = []byte{0x0b}
	opXor   = []byte{0x33}
	opCmp   = []byte{0x3b}
	opMul   = []byte{0x0f, 0xaf}
	opLea   = []byte{0x8d}
	opMovsx = []byte{0x63}       // 32 bits to 64, with its sign
	opZx8   = []byte{0x0f, 0xb6} // bytes and halves to 32 bits
	opZx16  = []byte{0x0f, 0xb7}
	opSx8   = []byte{0x0f, 0xbe}
	opSx16  = []byte{0x0f, 0xbf}
)

// shift emits a shift of a register by a constant; which is 4 to the left, 5
// to the right, 7 with the sign.
func (a *assembler) shift(wide bool, which, reg int, by uint8) {
	a.legacy(wide, []byte{0xc1}, which, inReg(reg), by)
}

// immediate emits add (0), or (1), and (4), sub (5), xor (6) or cmp (7) with a
// constant.
func (a *assembler) immediate(wide bool, which int, p place, v int32) {
	if v == int32(int8(v)) {
		a.legacy(wide, []byte{0x83}, which, p, uint8(v))
		return
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(v))
	a.legacy(wide, []byte{0x81}, which, p, b[:]...)
}

// set makes a register a constant.
func (a *assembler) set(reg int, v uint64) {
	if a.wanted {
		name := names64[reg]
		if v == uint64(uint32(v)) {
			name = names32[reg]
		}
		a.note(len(a.code), fmt.Sprintf("mov %s, %#x", name, v), false)
	}
	if v == uint64(uint32(v)) {
		if reg >= 8 {
			a.bytes(0x41)
		}
		a.bytes(0xb8 | uint8(reg)&7)
		a.imm32(int32(uint32(v)))
		return
	}
	a.bytes(0x48|uint8(reg)>>3, 0xb8|uint8(reg)&7)
	a.code = binary.LittleEndian.AppendUint64(a.code, v)
}

// Conditions of jumps and sets.
const (
	ccBelow        = 2
	ccAboveEqual   = 3
	ccEqual        = 4
	ccNotEqual     = 5
	ccBelowEqual   = 6
	ccAbove        = 7
	ccLess         = 12
	ccGreaterEqual = 13
	ccLessEqual    = 14
	ccGreater      = 15
)

func (a *assembler) jump(l *label) {
	if a.wanted {
		a.note(len(a.code), "jmp", true)
	}
	a.bytes(0xe9)
	a.distance(l)
}

func (a *assembler) jumpIf(cc uint8, l *label) {
	if a.wanted {
		a.note(len(a.code), "j"+conditions[cc], true)
	}
	a.bytes(0x0f, 0x80|cc)
	a.distance(l)
}

func (a *assembler) distance(l *label) {
	at := len(a.code)
	a.imm32(0)
	if l.bound {
		binary.LittleEndian.PutUint32(a.code[at:], uint32(l.at-at-4))
		return
	}
	l.waits = append(l.waits, at)
}

func (a *assembler) bind(l *label) {
	l.bound, l.at = true, len(a.code)
	for _, at := range l.waits {
		binary.LittleEndian.PutUint32(a.code[at:], uint32(l.at-at-4))
	}
	l.waits = nil
}

// coding is how a vector instruction is encoded: prefix (0: none, 1: 66, 2:
// F3, 3: F2), map of opcodes (1: 0F, 2: 0F38, 3: 0F3A), W and opcode.
type coding struct{ pp, mm, w, op uint8 }

// masked says which mask register selects the lanes that an instruction writes; all
// if 0. The other lanes keep their values, or become zero if zero is set.
type masked struct {
	k    uint8
	zero bool
}

// The lengths of vectors.
const (
	xmm = iota
	ymm
	zmm
)

// evex emits an instruction on vectors: reg and second are registers, p the
// last operand.
func (a *assembler) evex(c coding, length uint8, reg, second int, p place, m masked, imm ...byte) {
	if a.wanted {
		a.noteVector(len(a.code), vectorNames, c, length, reg, second, p, m, imm)
	}
	if a.narrow {
		a.byOthers()
		a.byHalves(c, length, reg, second, p, m, imm)
		return
	}
	x, b := p.high()
	r, v := uint8(reg), uint8(second)
	top := v >> 4 & 1
	if p.memory && p.index >= 0 && p.scale&0x80 != 0 { // the index is a vector
		top = uint8(p.index) >> 4 & 1
		p.scale &^= 0x80
	}
	p0 := (^r>>3&1)<<7 | (1^x)<<6 | (1^b)<<5 | (^r>>4&1)<<4 | c.mm
	p1 := c.w<<7 | (^v&15)<<3 | 4 | c.pp
	p2 := length<<5 | (1^top)<<3 | m.k
	if m.zero {
		p2 |= 0x80
	}
	if p.bcast {
		p2 |= 0x10
	}
	a.bytes(0x62, p0, p1, p2, c.op)
	a.modrm(r, p, len(imm), true)
	a.bytes(imm...)
}

// vectorIndexed is a memory operand whose index is a vector register.
func vectorIndexed(base, index int, scale uint8, disp int) place {
	p := indexed(base, index, scale|0x80, disp)
	return p
}

// vex emits an instruction on masks, or on vectors of 256 bits.
func (a *assembler) vex(c coding, long bool, reg, second int, p place, imm ...byte) {
	if a.wanted {
		a.noteVector(len(a.code), shortNames, c, ymm, reg, second, p, masked{}, imm)
	}
	if a.narrow && isMaskOp(c) {
		a.byOthers()
		a.maskOp(c, reg, second, p, imm)
		return
	}
	a.vexBytes(c, long, reg, second, p, imm...)
}

// vexBytes emits an instruction with a VEX prefix.
func (a *assembler) vexBytes(c coding, long bool, reg, second int, p place, imm ...byte) {
	x, b := p.high()
	r := uint8(reg)
	l := uint8(0)
	if long {
		l = 4
	}
	a.bytes(0xc4, (^r>>3&1)<<7|(1^x)<<6|(1^b)<<5|c.mm, c.w<<7|(^uint8(second)&15)<<3|l|c.pp, c.op)
	a.modrm(r, p, len(imm), false)
	a.bytes(imm...)
}

// finish appends the constants behind the code and fills in the distances.
func (a *assembler) finish() []byte {
	for len(a.code)%64 != 0 {
		a.bytes(0xcc)
	}
	begin := len(a.code)
	for _, f := range a.pooled {
		binary.LittleEndian.PutUint32(a.code[f.at:], uint32(begin+int(f.offset)-f.end))
	}
	return append(a.code, a.consts...)
}
