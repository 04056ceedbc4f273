//go:build linux && amd64

package asm

import (
	"encoding/binary"
	"fmt"
)

// Processors with AVX2 alone. The compiler makes the same code for them: vectors of
// 512 bits and masks in registers. This file is an assembler that does each of these
// instructions by several of AVX2 and FMA, on vectors of 256 bits, two halves one
// after the other.
//
// The 32 vector registers and the 8 mask registers that the compiler counts with are
// virtual. The vectors that are used most are pairs of ymm registers; the others, and
// all masks, lie in the frame. ymm12 to ymm15 are scratch within one instruction, and
// so are general registers, which are saved in the frame meanwhile. Flags are not
// kept: no instruction of the compiler sets them for one behind a vector instruction,
// but for kortestw.

// The scratch registers. ymmD gets what an instruction computes, ymmX and ymmY are
// its operands if they are not in registers, and third is for everything else.
const (
	ymmD = 12
	ymmX = 13
	ymmT = 14
	ymmY = 15
)

// pairs are the virtual registers that are in ymm registers, two each: code that uses these most
// is fastest.
var pairs = map[int]int{0: 0, 1: 2, 2: 4, 3: 6, 28: 8, 29: 10}

// The vectors behind the 32 virtual registers, in which scalar code finds lanes.
const (
	laneIndices = 32
	laneValues  = 33
)

// ofHalf returns where half of a virtual register is.
func (a *Assembler) ofHalf(v, half int) Place {
	if r, ok := pairs[v]; ok {
		return InReg(r + half)
	}
	return a.Room.behind(offVirtual + v*64 + half*32)
}

func (a *Assembler) ofMask(k int) Place { return a.Room.behind(offMasks + k*8) }

// behind returns the place n bytes behind one in memory.
func (p Place) behind(n int) Place {
	if p.pool > 0 {
		p.pool += int32(n)
	} else {
		p.Disp += int32(n)
	}
	return p
}

// The instructions of AVX and AVX2 that have no counterpart among those of AVX-512.
var (
	vpblendvb    = Coding{1, 3, 0, 0x4c}
	vpcmpeqw     = Coding{1, 1, 0, 0x75}
	vpcmpeqd     = Coding{1, 1, 0, 0x76}
	vpcmpeqq     = Coding{1, 2, 0, 0x29}
	vpcmpgtd     = Coding{1, 1, 0, 0x66}
	vpcmpgtq     = Coding{1, 2, 0, 0x37}
	vpxor        = Coding{1, 1, 0, 0xef}
	vpmaskload   = Coding{1, 2, 0, 0x8c}
	vpmaskstore  = Coding{1, 2, 0, 0x8e}
	vpackssdw    = Coding{1, 1, 0, 0x6b}
	vpacksswb    = Coding{1, 1, 0, 0x63}
	vpermq       = Coding{1, 3, 1, 0x00}
	vshufps      = Coding{0, 1, 0, 0xc6}
	vextracti128 = Coding{1, 3, 0, 0x39}
	vinserti128  = Coding{1, 3, 0, 0x38}
	vpmovmskb    = Coding{1, 1, 0, 0xd7}
	vmovmskps    = Coding{0, 1, 0, 0x50}
	vmovd        = Coding{1, 1, 0, 0x6e}
	vpmuludq     = Coding{1, 1, 0, 0xf4}
	vpsrlvq      = Coding{1, 2, 1, 0x45}
	vcvtdq2ps    = Coding{0, 1, 0, 0x5b}
)

// repeated is a constant of 32 bytes.
func (a *Assembler) repeated(v uint64, bits int) Place {
	var b []byte
	for len(b) < 32 {
		if bits == 32 {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		} else {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return a.Constant(b)
}

// y emits an instruction on 256 bits, x one on 128.
func (a *Assembler) y(c Coding, reg, second int, p Place, imm ...byte) {
	a.vexBytes(c, true, reg, second, p, imm...)
}

func (a *Assembler) x(c Coding, reg, second int, p Place, imm ...byte) {
	a.vexBytes(c, false, reg, second, p, imm...)
}

// g emits an instruction on general registers that no listing shows.
func (a *Assembler) g(wide bool, opcode []byte, reg int, p Place, imm ...byte) {
	wanted := a.Wanted
	a.Wanted = false
	a.Legacy(wide, opcode, reg, p, imm...)
	a.Wanted = wanted
}

// shifted emits a shift by a constant: which is 2 to the right, 6 to the left.
func (a *Assembler) shifted(op uint8, which, to, from int, by byte) {
	a.y(Coding{1, 1, 0, op}, which, to, InReg(from), by)
}

// fetch gets half of an operand into a ymm register, and returns the register: to, or
// the one in which it is anyway.
func (a *Assembler) fetch(to int, p Place, half int, wide bool) int {
	q := a.operandHalf(to, p, half, wide)
	if !q.memory {
		return int(q.reg)
	}
	a.y(Vmovdqu, to, 0, q)
	return to
}

// operandHalf returns half of an operand as the last operand of an instruction. One
// element for all lanes is spread over the scratch register.
func (a *Assembler) operandHalf(scratch int, p Place, half int, wide bool) Place {
	switch {
	case !p.memory:
		return a.ofHalf(int(p.reg), half)
	case p.Bcast:
		p.Bcast = false
		a.y(spreading(wide), scratch, 0, p)
		return InReg(scratch)
	}
	return p.behind(32 * half)
}

func spreading(wide bool) Coding {
	if wide {
		return Coding{1, 2, 0, 0x59}
	}
	return Coding{1, 2, 0, 0x58}
}

// copyTo gets half of an operand into a ymm register, and nowhere else.
func (a *Assembler) copyTo(to int, p Place, half int, wide bool) {
	if r := a.fetch(to, p, half, wide); r != to {
		a.y(Vmovdqu, to, 0, InReg(r))
	}
}

// keep gives half of a virtual register the value of a ymm register.
func (a *Assembler) keep(v, half, from int) {
	switch p := a.ofHalf(v, half); {
	case p.memory:
		a.y(VmovdquStore, from, 0, p)
	case int(p.reg) != from:
		a.y(Vmovdqu, int(p.reg), 0, InReg(from))
	}
}

// selected makes a vector of a mask's bits, for the lanes of a half.
func (a *Assembler) selected(to int, k uint8, half int, wide bool) {
	var bits []byte
	compare := vpcmpeqd
	if wide {
		compare = vpcmpeqq
		for l := range 4 {
			bits = binary.LittleEndian.AppendUint64(bits, 1<<(4*half+l))
		}
	} else {
		for l := range 8 {
			bits = binary.LittleEndian.AppendUint32(bits, 1<<(8*half+l))
		}
	}
	p := a.Constant(bits)
	a.y(spreading(wide), to, 0, a.ofMask(int(k)))
	a.y(Vpand, to, to, p)
	a.y(compare, to, to, p)
}

// settleHalf gives half of a virtual register what is in ymmD, in the lanes that
// the mask selects.
func (a *Assembler) settleHalf(v, half int, m Masked, wide bool) {
	if m.K != 0 {
		a.selected(ymmT, m.K, half, wide)
		if m.Zero {
			a.y(Vpand, ymmD, ymmD, InReg(ymmT))
		} else {
			old := a.fetch(ymmX, InReg(v), half, wide)
			a.y(vpblendvb, ymmD, old, InReg(ymmD), ymmT<<4)
		}
	}
	a.keep(v, half, ymmD)
}

// lanewise are the instructions that AVX2 has, too, for each lane by itself; the value
// says whether one is unary. Those of FMA read their destination.
var lanewise = map[Coding]uint8{}

const (
	binaryLanes = iota + 1
	unaryLanes
	fusedLanes
)

func init() {
	for _, c := range []Coding{
		Vpaddd, Vpaddq, Vpsubd, Vpsubq, Vpmulld, Vpsllvd, Vpsllvq, {1, 2, 0, 0x45}, vpsrlvq, {1, 2, 0, 0x46},
		{1, 1, 0, 0xdb}, {1, 1, 1, 0xdb}, {1, 1, 0, 0xeb}, {1, 1, 1, 0xeb}, {1, 1, 0, 0xef}, {1, 1, 1, 0xef},
		{1, 2, 0, 0x39}, {1, 2, 0, 0x3b}, {1, 2, 0, 0x3d}, {1, 2, 0, 0x3f}, {1, 2, 1, 0x28}, {1, 1, 1, 0xf4},
		{0, 1, 0, 0x58}, {0, 1, 0, 0x5c}, {0, 1, 0, 0x59}, {0, 1, 0, 0x5e}, {1, 1, 1, 0x58}, {1, 1, 1, 0x5c}, {1, 1, 1, 0x59}, {1, 1, 1, 0x5e},
	} {
		lanewise[c] = binaryLanes
	}
	for _, c := range []Coding{{0, 1, 0, 0x51}, vcvtdq2ps, {1, 1, 0, 0x6f}, Vload32, Vload64} {
		lanewise[c] = unaryLanes
	}
	for _, c := range []Coding{{1, 2, 0, 0xa8}, {1, 2, 0, 0xb8}, {1, 2, 1, 0xa8}} {
		lanewise[c] = fusedLanes
	}
}

// short returns the encoding with a VEX prefix. Its W differs: it says nothing about the
// lanes, but for shifts by lane, fused arithmetic and gathers.
func short(c Coding) Coding {
	switch {
	case c == Coding{1, 1, 0, 0x6f}:
		return Vmovdqu // virtual registers are not aligned
	case c.mm == 2 && (c.Op >= 0x45 && c.Op <= 0x47 || c.Op >= 0x90 && c.Op <= 0xbf):
	default:
		c.W = 0
	}
	return c
}

// lanesOf64 says whether the lanes of an instruction have 64 bits.
func lanesOf64(c Coding) bool { return c.W == 1 }

// byHalves emits an instruction with an EVEX prefix by others.
func (a *Assembler) byHalves(c Coding, length uint8, reg, second int, p Place, m Masked, imm []byte) {
	wide := lanesOf64(c)
	halves := 2
	if length == YMM {
		halves = 1
	}
	if emulate := emulated[c]; emulate != nil { // d = x op y, d being none of the others
		for half := range halves {
			x := a.fetch(ymmX, InReg(second), half, wide)
			emulate(a, x, a.fetch(ymmY, p, half, wide))
			a.settleHalf(reg, half, m, wide)
		}
		return
	}
	switch lanewise[c] {
	case binaryLanes, unaryLanes, fusedLanes:
		a.lanewise(c, halves, reg, second, p, m)
		return
	}
	if f := rearranged[c]; f != nil {
		f(a, c, halves, reg, second, p, m, imm)
		return
	}
	panic(fmt.Sprintf("native: no way to do %v with AVX2", c))
}

func (a *Assembler) lanewise(c Coding, halves, reg, second int, p Place, m Masked) {
	wide := lanesOf64(c)
	if (c == Vload32 || c == Vload64) && p.memory && m.K != 0 { // lanes outside the mask must not be read
		for half := range halves {
			a.selected(ymmT, m.K, half, wide)
			load := vpmaskload
			if wide {
				load.W = 1
			}
			a.y(load, ymmD, ymmT, p.behind(32*half))
			a.keep(reg, half, ymmD)
		}
		return
	}
	how := lanewise[c]
	for half := range halves {
		to := ymmD
		if d := a.ofHalf(reg, half); !d.memory && m.K == 0 {
			to = int(d.reg)
		}
		y := a.operandHalf(ymmY, p, half, wide)
		switch how {
		case unaryLanes:
			a.y(short(c), to, 0, y)
		case binaryLanes:
			a.y(short(c), to, a.fetch(ymmX, InReg(second), half, wide), y)
		case fusedLanes:
			a.copyTo(to, InReg(reg), half, wide)
			a.y(short(c), to, a.fetch(ymmX, InReg(second), half, wide), y)
		}
		if to == ymmD {
			a.settleHalf(reg, half, m, wide)
		}
	}
}

// emulated are the instructions on single lanes that AVX2 has not: ymmD = x op y.
var emulated = map[Coding]func(a *Assembler, x, y int){
	Vpmullq: func(a *Assembler, x, y int) {
		a.shifted(0x73, 2, ymmD, x, 32)
		a.y(vpmuludq, ymmD, ymmD, InReg(y))
		a.shifted(0x73, 2, ymmT, y, 32)
		a.y(vpmuludq, ymmT, ymmT, InReg(x))
		a.y(short(Vpaddq), ymmD, ymmD, InReg(ymmT))
		a.shifted(0x73, 6, ymmD, ymmD, 32)
		a.y(vpmuludq, ymmT, x, InReg(y))
		a.y(short(Vpaddq), ymmD, ymmD, InReg(ymmT))
	},
	{1, 2, 1, 0x39}: extreme64(true, false), {1, 2, 1, 0x3b}: extreme64(false, false),
	{1, 2, 1, 0x3d}: extreme64(true, true), {1, 2, 1, 0x3f}: extreme64(false, true),
	{1, 2, 1, 0x46}: func(a *Assembler, x, y int) { // vpsravq: negative numbers are shifted inverted
		a.y(vpxor, ymmD, ymmD, InReg(ymmD))
		a.y(vpcmpgtq, ymmT, ymmD, InReg(x))
		a.y(vpxor, ymmD, x, InReg(ymmT))
		a.y(vpsrlvq, ymmD, ymmD, InReg(y))
		a.y(vpxor, ymmD, ymmD, InReg(ymmT))
	},
	// vcvtudq2ps: both halves of a number convert exactly, and their sum is rounded once.
	{3, 1, 0, 0x7a}: func(a *Assembler, _, y int) {
		a.shifted(0x72, 2, ymmD, y, 16)
		a.y(Vpand, ymmT, y, a.repeated(0xffff, 32))
		a.y(vcvtdq2ps, ymmD, 0, InReg(ymmD))
		a.y(Coding{0, 1, 0, 0x59}, ymmD, ymmD, a.repeated(0x47800000, 32)) // times 65536
		a.y(vcvtdq2ps, ymmT, 0, InReg(ymmT))
		a.y(Coding{0, 1, 0, 0x58}, ymmD, ymmD, InReg(ymmT))
	},
}

// extreme64 is the minimum or maximum of 64-bit integers.
func extreme64(signed, larger bool) func(a *Assembler, x, y int) {
	return func(a *Assembler, x, y int) {
		if signed {
			a.y(vpcmpgtq, ymmT, x, InReg(y))
		} else {
			a.y(vpxor, ymmD, x, a.repeated(1<<63, 64))
			a.y(vpxor, ymmT, y, a.repeated(1<<63, 64))
			a.y(vpcmpgtq, ymmT, ymmD, InReg(ymmT))
		}
		if !larger {
			x, y = y, x
		}
		a.y(vpblendvb, ymmD, y, InReg(x), ymmT<<4)
	}
}

// rearranged are the instructions that move lanes, reach memory or write a mask.
var rearranged map[Coding]func(a *Assembler, c Coding, halves, reg, second int, p Place, m Masked, imm []byte)

func init() {
	type emit = func(a *Assembler, c Coding, halves, reg, second int, p Place, m Masked, imm []byte)
	rearranged = map[Coding]emit{
		Vstore32: (*Assembler).storeHalves, Vstore64: (*Assembler).storeHalves,
		Vpbroadcastd: (*Assembler).spreadHalves, Vpbroadcastq: (*Assembler).spreadHalves,
		{1, 2, 0, 0x7c}: (*Assembler).spreadGeneral, FromGPR64: (*Assembler).spreadGeneral,
		Vpmovsxdq: (*Assembler).widenHalves, Vpmovzxdq: (*Assembler).widenHalves,
		Vpmovqd: (*Assembler).narrowHalves, {1, 3, 1, 0x3a}: (*Assembler).insertHalf, {1, 3, 1, 0x3b}: (*Assembler).extractHalf,
		{1, 2, 0, 0x64}: (*Assembler).blendHalves, {1, 2, 1, 0x64}: (*Assembler).blendHalves,
		{1, 3, 1, 0x25}: (*Assembler).chooseBits,
		{1, 2, 0, 0x90}: (*Assembler).gather32, {1, 2, 0, 0x91}: (*Assembler).gather32From64,
		{1, 2, 1, 0x90}: (*Assembler).gather64, {1, 2, 1, 0x91}: (*Assembler).gather64,
	}
	for _, c := range []Coding{Vpcmpd, Vpcmpud, vpcmpq, Vpcmpuq, {0, 1, 0, 0xc2}, {1, 1, 1, 0xc2}, Vptestmq, {2, 2, 0, 0x27}, {1, 2, 1, 0x26}} {
		rearranged[c] = (*Assembler).compareHalvesOf
	}
	for _, c := range []Coding{{1, 2, 0, 0x21}, {1, 2, 0, 0x23}, {1, 2, 0, 0x31}, {1, 2, 0, 0x33}} {
		rearranged[c] = (*Assembler).loadSmall
	}
	for _, c := range []Coding{{2, 2, 0, 0x31}, {2, 2, 0, 0x33}} {
		rearranged[c] = (*Assembler).storeSmall
	}
	for _, c := range []Coding{{1, 2, 0, 0xa0}, {1, 2, 0, 0xa1}, {1, 2, 1, 0xa0}, {1, 2, 1, 0xa1}} {
		rearranged[c] = (*Assembler).scatter
	}
}

func (a *Assembler) storeHalves(c Coding, halves, reg, _ int, p Place, m Masked, _ []byte) {
	wide := lanesOf64(c)
	for half := range halves {
		from := a.fetch(ymmD, InReg(reg), half, wide)
		to := p.behind(32 * half)
		if m.K == 0 {
			a.y(VmovdquStore, from, 0, to)
			continue
		}
		a.selected(ymmT, m.K, half, wide)
		store := vpmaskstore
		if wide {
			store.W = 1
		}
		a.y(store, from, ymmT, to)
	}
}

// spreadHalves loads one element for all lanes: if there is a mask, only if it selects
// any.
func (a *Assembler) spreadHalves(c Coding, halves, reg, _ int, p Place, m Masked, _ []byte) {
	wide := lanesOf64(c)
	var skip Label
	if m.K != 0 {
		a.y(vpxor, ymmY, ymmY, InReg(ymmY))
		a.testMask(m.K, wide)
		a.skipIf(Equal, &skip)
	}
	a.y(spreading(wide), ymmY, 0, p)
	a.Bind(&skip)
	for half := range halves {
		a.y(Vmovdqu, ymmD, 0, InReg(ymmY))
		a.settleHalf(reg, half, m, wide)
	}
}

// testMask sets the flags by the 8 or 16 bits of a mask that an instruction heeds.
func (a *Assembler) testMask(k uint8, wide bool) {
	if wide {
		a.g(false, []byte{0x80}, 7, a.ofMask(int(k)), 0) // cmp byte
		return
	}
	a.Bytes(0x66)
	a.g(false, []byte{0x81}, 7, a.ofMask(int(k)), 0, 0) // cmp word
}

func (a *Assembler) skipIf(cc uint8, l *Label) {
	a.Bytes(0x0f, 0x80|cc)
	a.Distance(l)
}

func (a *Assembler) spreadGeneral(c Coding, halves, reg, _ int, p Place, _ Masked, _ []byte) {
	wide := lanesOf64(c)
	move := vmovd
	if wide {
		move.W = 1
	}
	a.x(move, ymmD, 0, p)
	a.y(spreading(wide), ymmD, 0, InReg(ymmD))
	for half := range halves {
		a.keep(reg, half, ymmD)
	}
}

func (a *Assembler) widenHalves(c Coding, _, reg, _ int, p Place, _ Masked, _ []byte) {
	if p.memory {
		a.y(c, ymmX, 0, p.behind(16))
		a.y(c, ymmD, 0, p)
	} else {
		from := a.fetch(ymmY, p, 0, false)
		a.y(vextracti128, from, 0, InReg(ymmX), 1)
		a.y(c, ymmX, 0, InReg(ymmX))
		a.y(c, ymmD, 0, InReg(from))
	}
	a.keep(reg, 0, ymmD)
	a.keep(reg, 1, ymmX)
}

// narrowHalves writes the lower half of its destination; no code reads the upper one.
func (a *Assembler) narrowHalves(_ Coding, _, reg, _ int, p Place, _ Masked, _ []byte) {
	low := a.fetch(ymmD, InReg(reg), 0, true)
	a.y(vshufps, ymmD, low, a.ofHalf(reg, 1), 0x88)
	a.y(vpermq, ymmD, 0, InReg(ymmD), 0xd8)
	a.keep(int(p.reg), 0, ymmD)
}

func (a *Assembler) insertHalf(_ Coding, _, reg, second int, p Place, _ Masked, _ []byte) {
	upper := a.fetch(ymmD, p, 0, true)
	if reg != second {
		if upper != ymmD {
			a.y(Vmovdqu, ymmD, 0, InReg(upper))
			upper = ymmD
		}
		a.keep(reg, 0, a.fetch(ymmX, InReg(second), 0, true))
	}
	a.keep(reg, 1, upper)
}

func (a *Assembler) extractHalf(_ Coding, _, reg, _ int, p Place, _ Masked, _ []byte) {
	a.keep(int(p.reg), 0, a.fetch(ymmD, InReg(reg), 1, true))
}

// blendHalves takes the last operand where the mask has lanes, else the second.
func (a *Assembler) blendHalves(c Coding, halves, reg, second int, p Place, m Masked, _ []byte) {
	wide := lanesOf64(c)
	for half := range halves {
		no := a.fetch(ymmX, InReg(second), half, wide)
		yes := a.operandHalf(ymmY, p, half, wide)
		a.selected(ymmT, m.K, half, wide)
		a.y(vpblendvb, ymmD, no, yes, ymmT<<4)
		a.keep(reg, half, ymmD)
	}
}

// chooseBits is vpternlogq with the table of mask ? second : last.
func (a *Assembler) chooseBits(_ Coding, halves, reg, second int, p Place, _ Masked, imm []byte) {
	if imm[0] != 0xca {
		panic("native: a table of vpternlogq that no code uses")
	}
	for half := range halves {
		mask := a.fetch(ymmD, InReg(reg), half, true)
		a.y(Vpandn, ymmT, mask, a.operandHalf(ymmY, p, half, true))
		a.y(Vpand, ymmD, mask, a.ofHalf(second, half))
		a.y(Vpor, ymmD, ymmD, InReg(ymmT))
		a.keep(reg, half, ymmD)
	}
}

// compareHalvesOf writes a mask: the lanes in which a comparison holds.
func (a *Assembler) compareHalvesOf(c Coding, halves, reg, second int, p Place, m Masked, imm []byte) {
	wide := lanesOf64(c) && c.Op != 0x26
	invert := false
	for half, to := range []int{ymmD, ymmT}[:halves] {
		a.copyTo(ymmX, InReg(second), half, wide)
		a.copyTo(ymmY, p, half, wide)
		switch c.Op {
		case 0xc2:
			a.y(short(c), to, ymmX, InReg(ymmY), imm[0])
		case 0x26, 0x27:
			a.y(Vpand, ymmX, ymmX, InReg(ymmY))
			a.y(vpxor, ymmY, ymmY, InReg(ymmY))
			equal := vpcmpeqd
			switch {
			case c.Op == 0x26:
				equal = vpcmpeqw
			case wide:
				equal = vpcmpeqq
			}
			a.y(equal, to, ymmX, InReg(ymmY))
			invert = c.pp == 1
		default:
			invert = a.compareIntegers(to, c, imm[0])
		}
	}
	a.g(true, OpStore, RAX, a.Room.behind(offSaved))
	lanes := int32(1<<16 - 1)
	switch {
	case c.Op == 0x26:
		a.y(vextracti128, ymmD, 0, InReg(ymmT), 1)
		a.x(vpacksswb, ymmD, ymmD, InReg(ymmT))
		a.x(vpmovmskb, RAX, 0, InReg(ymmD))
	case wide:
		lanes = 1<<8 - 1
		a.y(vshufps, ymmD, ymmD, InReg(ymmT), 0x88)
		a.y(vpermq, ymmD, 0, InReg(ymmD), 0xd8)
		a.y(vmovmskps, RAX, 0, InReg(ymmD))
	default:
		a.y(vpackssdw, ymmD, ymmD, InReg(ymmT))
		a.y(vpermq, ymmD, 0, InReg(ymmD), 0xd8)
		a.y(vextracti128, ymmD, 0, InReg(ymmT), 1)
		a.x(vpacksswb, ymmD, ymmD, InReg(ymmT))
		a.x(vpmovmskb, RAX, 0, InReg(ymmD))
	}
	if invert {
		a.g(false, []byte{0x81}, 6, InReg(RAX), binary.LittleEndian.AppendUint32(nil, uint32(lanes))...) // xor
	}
	if m.K != 0 {
		a.g(false, OpAnd, RAX, a.ofMask(int(m.K)))
	}
	a.g(false, OpStore, RAX, a.ofMask(reg))
	a.g(true, OpMov, RAX, a.Room.behind(offSaved))
}

// compareIntegers compares what is in ymmX and ymmY, which it may change. It returns
// whether the answer is inverted.
func (a *Assembler) compareIntegers(to int, c Coding, how byte) bool {
	equal, greater, bits := vpcmpeqd, vpcmpgtd, 32
	if lanesOf64(c) {
		equal, greater, bits = vpcmpeqq, vpcmpgtq, 64
	}
	if c.Op == Vpcmpud.Op && how != 0 && how != 4 {
		sign := a.repeated(1<<(bits-1), bits)
		a.y(vpxor, ymmX, ymmX, sign)
		a.y(vpxor, ymmY, ymmY, sign)
	}
	switch how {
	case 0, 4: // equal, not equal
		a.y(equal, to, ymmX, InReg(ymmY))
	case 1, 5: // less, not less
		a.y(greater, to, ymmY, InReg(ymmX))
	default: // not greater, greater
		a.y(greater, to, ymmX, InReg(ymmY))
	}
	return how == 2 || how == 4 || how == 5
}

// vectorIndex returns an operand of a gather with another register as its index.
func vectorIndex(p Place, index int) Place {
	p.index, p.scale = int8(index), p.scale&^0x80
	return p
}

func (a *Assembler) gather32(c Coding, _, reg, _ int, p Place, m Masked, _ []byte) {
	for half := range 2 {
		index := a.fetch(ymmX, InReg(int(p.index)), half, false)
		a.selected(ymmT, m.K, half, false)
		a.y(vpxor, ymmD, ymmD, InReg(ymmD))
		a.y(c, ymmD, ymmT, vectorIndex(p, index))
		a.keep(reg, half, ymmD)
	}
}

// gather32From64 gets 8 values of 32 bits at places of 64 bits.
func (a *Assembler) gather32From64(c Coding, _, reg, _ int, p Place, m Masked, _ []byte) {
	a.selected(ymmT, m.K, 0, false)
	a.y(vextracti128, ymmT, 0, InReg(ymmY), 1) // the mask of the upper four
	a.y(vpxor, ymmD, ymmD, InReg(ymmD))
	a.y(c, ymmD, ymmT, vectorIndex(p, a.fetch(ymmX, InReg(int(p.index)), 0, true)))
	a.y(vpxor, ymmT, ymmT, InReg(ymmT))
	a.y(c, ymmT, ymmY, vectorIndex(p, a.fetch(ymmX, InReg(int(p.index)), 1, true)))
	a.y(vinserti128, ymmD, ymmD, InReg(ymmT), 1)
	a.keep(reg, 0, ymmD)
}

// gather64 gets values of 64 bits, at places of 64 bits or of 32.
func (a *Assembler) gather64(c Coding, _, reg, _ int, p Place, m Masked, _ []byte) {
	index := int(p.index)
	if c.Op == 0x90 {
		a.copyTo(ymmX, InReg(index), 0, true) // all indices: the destination may be the same register
	}
	for half := range 2 {
		from := ymmX
		if c.Op == 0x91 {
			from = a.fetch(ymmX, InReg(index), half, true)
		} else if half == 1 {
			a.y(vextracti128, ymmX, 0, InReg(ymmX), 1)
		}
		a.selected(ymmT, m.K, half, true)
		a.y(vpxor, ymmD, ymmD, InReg(ymmD))
		a.y(c, ymmD, ymmT, vectorIndex(p, from))
		a.keep(reg, half, ymmD)
	}
}

// inMemory returns where the lanes of a virtual register lie; it stores them to a
// scratch vector if they are in registers.
func (a *Assembler) inMemory(v, scratch int) Place {
	if _, ok := pairs[v]; !ok {
		return a.ofHalf(v, 0)
	}
	for half := range 2 {
		a.y(VmovdquStore, int(a.ofHalf(v, half).reg), 0, a.ofHalf(scratch, half))
	}
	return a.ofHalf(scratch, 0)
}

// eachLane emits code for each lane that a mask selects, in order.
func (a *Assembler) eachLane(k uint8, lanes int, body func(lane int)) {
	for lane := range lanes {
		var skip Label
		a.g(false, []byte{0xf6}, 0, a.ofMask(int(k)).behind(lane/8), 1<<(lane%8)) // test byte
		a.skipIf(Equal, &skip)
		body(lane)
		a.Bind(&skip)
	}
}

// loadSmall loads bytes or halves that lie one behind the other.
func (a *Assembler) loadSmall(c Coding, _, reg, _ int, p Place, m Masked, _ []byte) {
	size, load := 1, OpZx8
	switch c.Op {
	case 0x21:
		load = OpSx8
	case 0x23:
		size, load = 2, OpSx16
	case 0x33:
		size, load = 2, OpZx16
	}
	a.y(vpxor, ymmD, ymmD, InReg(ymmD))
	for half := range 2 {
		a.y(VmovdquStore, ymmD, 0, a.ofHalf(laneValues, half))
	}
	a.g(true, OpStore, RDX, a.Room.behind(offSaved))
	a.eachLane(m.K, 16, func(lane int) {
		a.g(false, load, RDX, p.behind(lane*size))
		a.g(false, OpStore, RDX, a.ofHalf(laneValues, 0).behind(4*lane))
	})
	a.g(true, OpMov, RDX, a.Room.behind(offSaved))
	for half := range 2 {
		a.keep(reg, half, a.fetch(ymmD, InReg(laneValues), half, false))
	}
}

// storeSmall stores the lower bytes or halves of lanes one behind the other.
func (a *Assembler) storeSmall(c Coding, _, reg, _ int, p Place, m Masked, _ []byte) {
	from := a.inMemory(reg, laneValues)
	a.g(true, OpStore, RDX, a.Room.behind(offSaved))
	a.eachLane(m.K, 16, func(lane int) {
		a.g(false, OpMov, RDX, from.behind(4*lane))
		if c.Op == 0x31 {
			a.g(false, []byte{0x88}, RDX, p.behind(lane))
			return
		}
		a.Bytes(0x66)
		a.g(false, OpStore, RDX, p.behind(2*lane))
	})
	a.g(true, OpMov, RDX, a.Room.behind(offSaved))
}

// scatter stores lanes at their places, the last lane last.
func (a *Assembler) scatter(c Coding, _, reg, _ int, p Place, m Masked, _ []byte) {
	places, values := a.inMemory(int(p.index), laneIndices), a.inMemory(reg, laneValues)
	short, wide := c.Op == 0xa0, lanesOf64(c)
	lanes, size := 8, 4
	if wide {
		size = 8
	} else if short {
		lanes = 16
	}
	value := RAX
	if p.base == RAX {
		value = RDI
	}
	a.g(true, OpStore, RDX, a.Room.behind(offSaved))
	a.g(true, OpStore, value, a.Room.behind(offSaved+8))
	a.eachLane(m.K, lanes, func(lane int) {
		if short {
			a.g(true, OpMovsx, RDX, places.behind(4*lane))
		} else {
			a.g(true, OpMov, RDX, places.behind(8*lane))
		}
		a.g(wide, OpMov, value, values.behind(size*lane))
		a.g(wide, OpStore, value, Indexed(int(p.base), RDX, p.scale&^0x80, int(p.Disp)))
	})
	a.g(true, OpMov, value, a.Room.behind(offSaved+8))
	a.g(true, OpMov, RDX, a.Room.behind(offSaved))
}

// isMaskOp says whether an instruction with a VEX prefix is on masks.
func isMaskOp(c Coding) bool {
	switch c.Op {
	case 0x41, 0x42, 0x45, 0x47, 0x4b, 0x90, 0x92, 0x93, 0x98:
		return c.mm == 1
	}
	return c == Coding{1, 3, 0, 0x31}
}

// maskOp emits an instruction on masks by others on general registers.
func (a *Assembler) maskOp(c Coding, reg, second int, p Place, imm []byte) {
	source := p // of kmov: in memory, or a mask
	if !p.memory {
		source = a.ofMask(int(p.reg))
	}
	load := OpMov
	if c == (Coding{0, 1, 0, c.Op}) && c.Op != 0x4b {
		load = OpZx16 // the instructions on 16 bits
	}
	switch c.Op {
	case 0x92:
		a.g(false, OpStore, int(p.reg), a.ofMask(reg))
		return
	case 0x93:
		a.g(false, load, reg, source)
		return
	case 0x98:
		a.testMask(uint8(reg), false)
		return
	}
	a.g(true, OpStore, RAX, a.Room.behind(offSaved))
	switch c.Op {
	case 0x90:
		a.g(false, load, RAX, source)
	case 0x31:
		a.g(false, OpMov, RAX, source)
		a.g(false, []byte{0xc1}, 5, InReg(RAX), imm[0])
	case 0x4b: // the second operand above the last one
		if c.pp == 1 {
			a.g(false, OpZx8, RAX, a.ofMask(second))
			a.g(false, []byte{0xc1}, 4, InReg(RAX), 8)
			a.g(false, []byte{0x8a}, RAX, source)
		} else {
			a.g(false, OpZx16, RAX, a.ofMask(second))
			a.g(false, []byte{0xc1}, 4, InReg(RAX), 16)
			a.Bytes(0x66)
			a.g(false, OpMov, RAX, source)
		}
	default:
		a.g(false, load, RAX, a.ofMask(second))
		if c.Op == 0x42 {
			a.g(false, []byte{0xf7}, 2, InReg(RAX)) // not
		}
		a.g(false, map[uint8][]byte{0x41: OpAnd, 0x42: OpAnd, 0x45: OpOr, 0x47: OpXor}[c.Op], RAX, source)
		if load[0] != OpMov[0] {
			a.g(false, OpZx16, RAX, InReg(RAX))
		}
	}
	a.g(false, OpStore, RAX, a.ofMask(reg))
	a.g(true, OpMov, RAX, a.Room.behind(offSaved))
}
