//go:build linux && amd64

package asm

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
	RAX = iota
	RCX
	RDX
	RBX
	RSP
	RBP
	RSI
	RDI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
)

// Place is an operand in a register or in memory.
type Place struct {
	memory bool
	reg    uint8
	base   uint8
	index  int8 // register, or -1
	scale  uint8
	Disp   int32
	pool   int32 // offset into the constants plus one; base, index and disp do not count then
	Bcast  bool  // one element for all lanes
}

func InReg(r int) Place { return Place{reg: uint8(r)} }

func At(base int, disp int) Place {
	return Place{memory: true, base: uint8(base), index: -1, Disp: int32(disp)}
}

func Indexed(base, index int, scale uint8, disp int) Place {
	return Place{memory: true, base: uint8(base), index: int8(index), scale: scale, Disp: int32(disp)}
}

// Label is a place in the code. bind fills in the distances of jumps that were
// emitted before it.
type Label struct {
	bound bool
	at    int
	waits []int // places of 32-bit distances
}

// Its many methods are one a form of instruction that compiled kernels need, over two that encode
// (VEX, EVEX).
type Assembler struct {
	notes
	Narrow bool  // for a processor without AVX-512; see narrow_amd64.go
	Room   Place // of a Room, which such code needs
	Code   []byte
	consts []byte
	known  map[string]int32 // offsets of the constants in consts, by their bytes
	pooled []poolFix
}

// poolFix is a distance to a constant, counted from the end of an instruction.
type poolFix struct {
	at, end int
	offset  int32
}

// Plain emits an instruction that has no other form than these bytes.
func (a *Assembler) Plain(name string, b ...byte) {
	if a.Wanted {
		a.Note(len(a.Code), name, false)
	}
	a.Bytes(b...)
}

func (a *Assembler) Bytes(b ...byte) { a.Code = append(a.Code, b...) }
func (a *Assembler) imm32(v int32)   { a.Code = binary.LittleEndian.AppendUint32(a.Code, uint32(v)) }

// Constant returns the place of bytes in the pool; all are aligned to their
// size, up to 64.
func (a *Assembler) Constant(b []byte) Place {
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
	return Place{memory: true, index: -1, pool: offset + 1}
}

func (a *Assembler) Word32(v uint32) Place {
	p := a.Constant(binary.LittleEndian.AppendUint32(nil, v))
	p.Bcast = true
	return p
}

func (a *Assembler) Word64(v uint64) Place {
	p := a.Constant(binary.LittleEndian.AppendUint64(nil, v))
	p.Bcast = true
	return p
}

// modrm appends the operand bytes; behind is how many bytes of immediate follow. With
// an EVEX prefix a displacement of 8 bits would count in other units: scaled says so.
func (a *Assembler) modrm(reg uint8, p Place, behind int, scaled bool) {
	reg = reg & 7 << 3
	if !p.memory {
		a.Bytes(0xc0 | reg | p.reg&7)
		return
	}
	if p.pool > 0 {
		a.Bytes(0x05 | reg)
		a.pooled = append(a.pooled, poolFix{at: len(a.Code), end: len(a.Code) + 4 + behind, offset: p.pool - 1})
		a.imm32(0)
		return
	}
	mode := uint8(0x80)
	switch {
	case p.Disp == 0 && p.base&7 != RBP:
		mode = 0
	case p.Disp == int32(int8(p.Disp)) && !scaled:
		mode = 0x40
	}
	switch {
	case p.index >= 0:
		a.Bytes(mode|0x04|reg, p.scale<<6|uint8(p.index)&7<<3|p.base&7)
	case p.base&7 == RSP:
		a.Bytes(mode|0x04|reg, 0x24)
	default:
		a.Bytes(mode | reg | p.base&7)
	}
	switch mode {
	case 0x40:
		a.Bytes(uint8(p.Disp))
	case 0x80:
		a.imm32(p.Disp)
	}
}

// high returns bit 3 of the registers of an operand, as prefixes want them.
func (p *Place) high() (x, b uint8) {
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

// Legacy emits an instruction on general registers.
func (a *Assembler) Legacy(wide bool, opcode []byte, reg int, p Place, imm ...byte) {
	if a.Wanted {
		a.noteGeneral(len(a.Code), wide, opcode, reg, p, imm)
	}
	x, b := p.high()
	rex := uint8(reg)>>3&1<<2 | x<<1 | b
	if wide {
		rex |= 8
	}
	if rex != 0 {
		a.Bytes(0x40 | rex)
	}
	a.Bytes(opcode...)
	a.modrm(uint8(reg), p, len(imm), false)
	a.Bytes(imm...)
}

// The two-operand instructions on general registers. The register is the
// destination, or the left side of a comparison.
var (
	OpMov   = []byte{0x8b}
	OpStore = []byte{0x89} // the operand is the destination
	OpAdd   = []byte{0x03}
	OpSub   = []byte{0x2b}
	OpAnd   = []byte{0x23}
	OpOr    = []byte{0x0b}
	OpXor   = []byte{0x33}
	OpCmp   = []byte{0x3b}
	OpMul   = []byte{0x0f, 0xaf}
	OpLea   = []byte{0x8d}
	OpMovsx = []byte{0x63}       // 32 bits to 64, with its sign
	OpZx8   = []byte{0x0f, 0xb6} // bytes and halves to 32 bits
	OpZx16  = []byte{0x0f, 0xb7}
	OpSx8   = []byte{0x0f, 0xbe}
	OpSx16  = []byte{0x0f, 0xbf}
)

// Shift emits a shift of a register by a constant; which is 4 to the left, 5
// to the right, 7 with the sign.
func (a *Assembler) Shift(wide bool, which, reg int, by uint8) {
	a.Legacy(wide, []byte{0xc1}, which, InReg(reg), by)
}

// Immediate emits add (0), or (1), and (4), sub (5), xor (6) or cmp (7) with a
// constant.
func (a *Assembler) Immediate(wide bool, which int, p Place, v int32) {
	if v == int32(int8(v)) {
		a.Legacy(wide, []byte{0x83}, which, p, uint8(v))
		return
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(v))
	a.Legacy(wide, []byte{0x81}, which, p, b[:]...)
}

// Set makes a register a constant.
func (a *Assembler) Set(reg int, v uint64) {
	if a.Wanted {
		name := names64[reg]
		if v == uint64(uint32(v)) {
			name = names32[reg]
		}
		a.Note(len(a.Code), fmt.Sprintf("mov %s, %#x", name, v), false)
	}
	if v == uint64(uint32(v)) {
		if reg >= 8 {
			a.Bytes(0x41)
		}
		a.Bytes(0xb8 | uint8(reg)&7)
		a.imm32(int32(uint32(v)))
		return
	}
	a.Bytes(0x48|uint8(reg)>>3, 0xb8|uint8(reg)&7)
	a.Code = binary.LittleEndian.AppendUint64(a.Code, v)
}

// Conditions of jumps and sets.
const (
	Below        = 2
	AboveEqual   = 3
	Equal        = 4
	NotEqual     = 5
	BelowEqual   = 6
	Above        = 7
	Less         = 12
	GreaterEqual = 13
	LessEqual    = 14
	Greater      = 15
)

func (a *Assembler) Jump(l *Label) {
	if a.Wanted {
		a.Note(len(a.Code), "jmp", true)
	}
	a.Bytes(0xe9)
	a.Distance(l)
}

func (a *Assembler) JumpIf(cc uint8, l *Label) {
	if a.Wanted {
		a.Note(len(a.Code), "j"+Conditions[cc], true)
	}
	a.Bytes(0x0f, 0x80|cc)
	a.Distance(l)
}

func (a *Assembler) Distance(l *Label) {
	at := len(a.Code)
	a.imm32(0)
	if l.bound {
		binary.LittleEndian.PutUint32(a.Code[at:], uint32(l.at-at-4))
		return
	}
	l.waits = append(l.waits, at)
}

func (a *Assembler) Bind(l *Label) {
	l.bound, l.at = true, len(a.Code)
	for _, at := range l.waits {
		binary.LittleEndian.PutUint32(a.Code[at:], uint32(l.at-at-4))
	}
	l.waits = nil
}

// Coding is how a vector instruction is encoded: prefix (0: none, 1: 66, 2:
// F3, 3: F2), map of opcodes (1: 0F, 2: 0F38, 3: 0F3A), W and opcode.
type Coding struct{ pp, mm, W, Op uint8 }

// Masked says which mask register selects the lanes that an instruction writes; all
// if 0. The other lanes keep their values, or become zero if Zero is set.
type Masked struct {
	K    uint8
	Zero bool
}

// The lengths of vectors.
const (
	XMM = iota
	YMM
	ZMM
)

// evex emits an instruction on vectors: reg and second are registers, p the
// last operand.
func (a *Assembler) EVEX(c Coding, length uint8, reg, second int, p Place, m Masked, imm ...byte) {
	if a.Wanted {
		a.noteVector(len(a.Code), vectorNames, c, length, reg, second, p, m, imm)
	}
	if a.Narrow {
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
	p1 := c.W<<7 | (^v&15)<<3 | 4 | c.pp
	p2 := length<<5 | (1^top)<<3 | m.K
	if m.Zero {
		p2 |= 0x80
	}
	if p.Bcast {
		p2 |= 0x10
	}
	a.Bytes(0x62, p0, p1, p2, c.Op)
	a.modrm(r, p, len(imm), true)
	a.Bytes(imm...)
}

// VectorIndexed is a memory operand whose index is a vector register.
func VectorIndexed(base, index int, scale uint8, disp int) Place {
	p := Indexed(base, index, scale|0x80, disp)
	return p
}

// vex emits an instruction on masks, or on vectors of 256 bits.
func (a *Assembler) VEX(c Coding, long bool, reg, second int, p Place, imm ...byte) {
	if a.Wanted {
		a.noteVector(len(a.Code), shortNames, c, YMM, reg, second, p, Masked{}, imm)
	}
	if a.Narrow && isMaskOp(c) {
		a.byOthers()
		a.maskOp(c, reg, second, p, imm)
		return
	}
	a.vexBytes(c, long, reg, second, p, imm...)
}

// vexBytes emits an instruction with a VEX prefix.
func (a *Assembler) vexBytes(c Coding, long bool, reg, second int, p Place, imm ...byte) {
	x, b := p.high()
	r := uint8(reg)
	l := uint8(0)
	if long {
		l = 4
	}
	a.Bytes(0xc4, (^r>>3&1)<<7|(1^x)<<6|(1^b)<<5|c.mm, c.W<<7|(^uint8(second)&15)<<3|l|c.pp, c.Op)
	a.modrm(r, p, len(imm), false)
	a.Bytes(imm...)
}

// Finish appends the constants behind the code and fills in the distances.
func (a *Assembler) Finish() []byte {
	for len(a.Code)%64 != 0 {
		a.Bytes(0xcc)
	}
	begin := len(a.Code)
	for _, f := range a.pooled {
		binary.LittleEndian.PutUint32(a.Code[f.at:], uint32(begin+int(f.offset)-f.end))
	}
	return append(a.Code, a.consts...)
}

// The common vector instructions.
var (
	Vpaddd       = Coding{1, 1, 0, 0xfe}
	Vpaddq       = Coding{1, 1, 1, 0xd4}
	Vpsubd       = Coding{1, 1, 0, 0xfa}
	Vpsubq       = Coding{1, 1, 1, 0xfb}
	Vpmulld      = Coding{1, 2, 0, 0x40}
	Vpmullq      = Coding{1, 2, 1, 0x40}
	Vload32      = Coding{2, 1, 0, 0x6f}
	Vload64      = Coding{2, 1, 1, 0x6f}
	Vstore32     = Coding{2, 1, 0, 0x7f}
	Vstore64     = Coding{2, 1, 1, 0x7f}
	Vpmovsxdq    = Coding{1, 2, 0, 0x25}
	Vpmovzxdq    = Coding{1, 2, 0, 0x35}
	Vpmovqd      = Coding{2, 2, 0, 0x35}
	Vpbroadcastd = Coding{1, 2, 0, 0x58}
	Vpbroadcastq = Coding{1, 2, 1, 0x59}
	FromGPR32    = Coding{1, 2, 0, 0x7c}
	FromGPR64    = Coding{1, 2, 1, 0x7c}
	Vpsllvd      = Coding{1, 2, 0, 0x47}
	Vpsllvq      = Coding{1, 2, 1, 0x47}
	Vpcmpd       = Coding{1, 3, 0, 0x1f}
	Vpcmpud      = Coding{1, 3, 0, 0x1e}
	vpcmpq       = Coding{1, 3, 1, 0x1f}
	Vpcmpuq      = Coding{1, 3, 1, 0x1e}
	Vptestmq     = Coding{1, 2, 1, 0x27}
)

// The instructions on masks of a gang.
var (
	Vmovdqu      = Coding{2, 1, 0, 0x6f}
	VmovdquStore = Coding{2, 1, 0, 0x7f}
	Vpand        = Coding{1, 1, 0, 0xdb}
	Vpandn       = Coding{1, 1, 0, 0xdf}
	Vpor         = Coding{1, 1, 0, 0xeb}
	Vptest       = Coding{1, 2, 0, 0x17}
)

// Further instructions on vectors and on masks.
var (
	Kandd         = Coding{1, 1, 1, 0x41}
	Kandw         = Coding{0, 1, 0, 0x41}
	Kmovd         = Coding{1, 1, 1, 0x90}
	KmovdFromR    = Coding{3, 1, 0, 0x92}
	KmovdToR      = Coding{3, 1, 0, 0x93}
	KmovwToR      = Coding{0, 1, 0, 0x93}
	Kmovw         = Coding{0, 1, 0, 0x90}
	Kortestw      = Coding{0, 1, 0, 0x98}
	Korw          = Coding{0, 1, 0, 0x45}
	Kshiftrd      = Coding{1, 3, 0, 0x31}
	Kunpckbw      = Coding{1, 1, 0, 0x4b}
	Kunpckwd      = Coding{0, 1, 0, 0x4b}
	Kxorw         = Coding{0, 1, 0, 0x47}
	Vaddpd        = Coding{1, 1, 1, 0x58}
	Vaddps        = Coding{0, 1, 0, 0x58}
	Vcmppd        = Coding{1, 1, 1, 0xc2}
	Vcmpps        = Coding{0, 1, 0, 0xc2}
	Vcvtdq2ps     = Coding{0, 1, 0, 0x5b}
	Vcvtudq2ps    = Coding{3, 1, 0, 0x7a}
	Vdivpd        = Coding{1, 1, 1, 0x5e}
	Vdivps        = Coding{0, 1, 0, 0x5e}
	Vextracti64x4 = Coding{1, 3, 1, 0x3b}
	Vfmadd213pd   = Coding{1, 2, 1, 0xa8}
	Vfmadd213ps   = Coding{1, 2, 0, 0xa8}
	Vfmadd231ps   = Coding{1, 2, 0, 0xb8}
	Vinserti64x4  = Coding{1, 3, 1, 0x3a}
	Vmovdqa32     = Coding{1, 1, 0, 0x6f}
	Vmulpd        = Coding{1, 1, 1, 0x59}
	Vmulps        = Coding{0, 1, 0, 0x59}
	Vpandd        = Coding{1, 1, 0, 0xdb}
	Vpandq        = Coding{1, 1, 1, 0xdb}
	Vpblendmd     = Coding{1, 2, 0, 0x64}
	Vpgatherdd    = Coding{1, 2, 0, 0x90}
	Vpgatherdq    = Coding{1, 2, 1, 0x90}
	Vpgatherqd    = Coding{1, 2, 0, 0x91}
	Vpgatherqq    = Coding{1, 2, 1, 0x91}
	Vpmaxsd       = Coding{1, 2, 0, 0x3d}
	Vpmaxsq       = Coding{1, 2, 1, 0x3d}
	Vpmaxud       = Coding{1, 2, 0, 0x3f}
	Vpmaxuq       = Coding{1, 2, 1, 0x3f}
	Vpminsd       = Coding{1, 2, 0, 0x39}
	Vpminsq       = Coding{1, 2, 1, 0x39}
	Vpminud       = Coding{1, 2, 0, 0x3b}
	Vpminuq       = Coding{1, 2, 1, 0x3b}
	Vpmovdb       = Coding{2, 2, 0, 0x31}
	Vpmovzxbd     = Coding{1, 2, 0, 0x31}
	Vpmuldq       = Coding{1, 2, 1, 0x28}
	Vpmuludq      = Coding{1, 1, 1, 0xf4}
	Vpord         = Coding{1, 1, 0, 0xeb}
	Vporq         = Coding{1, 1, 1, 0xeb}
	Vpscatterdd   = Coding{1, 2, 0, 0xa0}
	Vpscatterdq   = Coding{1, 2, 1, 0xa0}
	Vpscatterqd   = Coding{1, 2, 0, 0xa1}
	Vpscatterqq   = Coding{1, 2, 1, 0xa1}
	Vpsravd       = Coding{1, 2, 0, 0x46}
	Vpsravq       = Coding{1, 2, 1, 0x46}
	Vpsrlvd       = Coding{1, 2, 0, 0x45}
	Vpsrlvq       = Coding{1, 2, 1, 0x45}
	Vpternlogq    = Coding{1, 3, 1, 0x25}
	Vptestmw      = Coding{1, 2, 1, 0x26}
	Vptestnmd     = Coding{2, 2, 0, 0x27}
	Vpxord        = Coding{1, 1, 0, 0xef}
	Vpxorq        = Coding{1, 1, 1, 0xef}
	Vsqrtps       = Coding{0, 1, 0, 0x51}
	Vsubpd        = Coding{1, 1, 1, 0x5c}
	Vsubps        = Coding{0, 1, 0, 0x5c}
)
