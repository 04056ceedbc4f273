//go:build linux && amd64

package native

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

// pairs are the virtual registers that are in ymm registers, two each.
var pairs = map[int]int{0: 0, 1: 2, 2: 4, 3: 6, zmmT0: 8, zmmT1: 10}

// The vectors behind the 32 virtual registers, in which scalar code finds lanes.
const (
	laneIndices = 32
	laneValues  = 33
)

// ofHalf returns where half of a virtual register is.
func ofHalf(v, half int) place {
	if r, ok := pairs[v]; ok {
		return inReg(r + half)
	}
	return at(regFrame, offVirtual+v*64+half*32)
}

func ofMask(k int) place { return at(regFrame, offMasks+k*8) }

// behind returns the place n bytes behind one in memory.
func (p place) behind(n int) place {
	if p.pool > 0 {
		p.pool += int32(n)
	} else {
		p.disp += int32(n)
	}
	return p
}

// The instructions of AVX and AVX2 that have no counterpart among those of AVX-512.
var (
	vpblendvb    = coding{1, 3, 0, 0x4c}
	vpcmpeqw     = coding{1, 1, 0, 0x75}
	vpcmpeqd     = coding{1, 1, 0, 0x76}
	vpcmpeqq     = coding{1, 2, 0, 0x29}
	vpcmpgtd     = coding{1, 1, 0, 0x66}
	vpcmpgtq     = coding{1, 2, 0, 0x37}
	vpxor        = coding{1, 1, 0, 0xef}
	vpmaskload   = coding{1, 2, 0, 0x8c}
	vpmaskstore  = coding{1, 2, 0, 0x8e}
	vpackssdw    = coding{1, 1, 0, 0x6b}
	vpacksswb    = coding{1, 1, 0, 0x63}
	vpermq       = coding{1, 3, 1, 0x00}
	vshufps      = coding{0, 1, 0, 0xc6}
	vextracti128 = coding{1, 3, 0, 0x39}
	vinserti128  = coding{1, 3, 0, 0x38}
	vpmovmskb    = coding{1, 1, 0, 0xd7}
	vmovmskps    = coding{0, 1, 0, 0x50}
	vmovd        = coding{1, 1, 0, 0x6e}
	vpmuludq     = coding{1, 1, 0, 0xf4}
	vpsrlvq      = coding{1, 2, 1, 0x45}
	vcvtdq2ps    = coding{0, 1, 0, 0x5b}
)

// repeated is a constant of 32 bytes.
func (a *assembler) repeated(v uint64, bits int) place {
	var b []byte
	for len(b) < 32 {
		if bits == 32 {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		} else {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return a.constant(b)
}

// y emits an instruction on 256 bits, x one on 128.
func (a *assembler) y(c coding, reg, second int, p place, imm ...byte) {
	a.vexBytes(c, true, reg, second, p, imm...)
}

func (a *assembler) x(c coding, reg, second int, p place, imm ...byte) {
	a.vexBytes(c, false, reg, second, p, imm...)
}

// g emits an instruction on general registers that no listing shows.
func (a *assembler) g(wide bool, opcode []byte, reg int, p place, imm ...byte) {
	wanted := a.wanted
	a.wanted = false
	a.legacy(wide, opcode, reg, p, imm...)
	a.wanted = wanted
}

// shifted emits a shift by a constant: which is 2 to the right, 6 to the left.
func (a *assembler) shifted(op uint8, which, to, from int, by byte) {
	a.y(coding{1, 1, 0, op}, which, to, inReg(from), by)
}

// fetch gets half of an operand into a ymm register, and returns the register: to, or
// the one in which it is anyway.
func (a *assembler) fetch(to int, p place, half int, wide bool) int {
	q := a.operandHalf(to, p, half, wide)
	if !q.memory {
		return int(q.reg)
	}
	a.y(vmovdqu, to, 0, q)
	return to
}

// operandHalf returns half of an operand as the last operand of an instruction. One
// element for all lanes is spread over the scratch register.
func (a *assembler) operandHalf(scratch int, p place, half int, wide bool) place {
	switch {
	case !p.memory:
		return ofHalf(int(p.reg), half)
	case p.bcast:
		p.bcast = false
		a.y(spreading(wide), scratch, 0, p)
		return inReg(scratch)
	}
	return p.behind(32 * half)
}

func spreading(wide bool) coding {
	if wide {
		return coding{1, 2, 0, 0x59}
	}
	return coding{1, 2, 0, 0x58}
}

// copyTo gets half of an operand into a ymm register, and nowhere else.
func (a *assembler) copyTo(to int, p place, half int, wide bool) {
	if r := a.fetch(to, p, half, wide); r != to {
		a.y(vmovdqu, to, 0, inReg(r))
	}
}

// keep gives half of a virtual register the value of a ymm register.
func (a *assembler) keep(v, half, from int) {
	switch p := ofHalf(v, half); {
	case p.memory:
		a.y(vmovdquStore, from, 0, p)
	case int(p.reg) != from:
		a.y(vmovdqu, int(p.reg), 0, inReg(from))
	}
}

// selected makes a vector of a mask's bits, for the lanes of a half.
func (a *assembler) selected(to int, k uint8, half int, wide bool) {
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
	p := a.constant(bits)
	a.y(spreading(wide), to, 0, ofMask(int(k)))
	a.y(vpand, to, to, p)
	a.y(compare, to, to, p)
}

// settleHalf gives half of a virtual register what is in ymmD, in the lanes that
// the mask selects.
func (a *assembler) settleHalf(v, half int, m masked, wide bool) {
	if m.k != 0 {
		a.selected(ymmT, m.k, half, wide)
		if m.zero {
			a.y(vpand, ymmD, ymmD, inReg(ymmT))
		} else {
			old := a.fetch(ymmX, inReg(v), half, wide)
			a.y(vpblendvb, ymmD, old, inReg(ymmD), ymmT<<4)
		}
	}
	a.keep(v, half, ymmD)
}

// lanewise are the instructions that AVX2 has, too, for each lane by itself; the value
// says whether one is unary. Those of FMA read their destination.
var lanewise = map[coding]uint8{}

const (
	binaryLanes = iota + 1
	unaryLanes
	fusedLanes
)

func init() {
	for _, c := range []coding{
		vpaddd, vpaddq, vpsubd, vpsubq, vpmulld, vpsllvd, vpsllvq, {1, 2, 0, 0x45}, vpsrlvq, {1, 2, 0, 0x46},
		{1, 1, 0, 0xdb}, {1, 1, 1, 0xdb}, {1, 1, 0, 0xeb}, {1, 1, 1, 0xeb}, {1, 1, 0, 0xef}, {1, 1, 1, 0xef},
		{1, 2, 0, 0x39}, {1, 2, 0, 0x3b}, {1, 2, 0, 0x3d}, {1, 2, 0, 0x3f}, {1, 2, 1, 0x28}, {1, 1, 1, 0xf4},
		{0, 1, 0, 0x58}, {0, 1, 0, 0x5c}, {0, 1, 0, 0x59}, {0, 1, 0, 0x5e}, {1, 1, 1, 0x58}, {1, 1, 1, 0x5c}, {1, 1, 1, 0x59}, {1, 1, 1, 0x5e},
	} {
		lanewise[c] = binaryLanes
	}
	for _, c := range []coding{{0, 1, 0, 0x51}, vcvtdq2ps, {1, 1, 0, 0x6f}, vload32, vload64} {
		lanewise[c] = unaryLanes
	}
	for _, c := range []coding{{1, 2, 0, 0xa8}, {1, 2, 0, 0xb8}, {1, 2, 1, 0xa8}} {
		lanewise[c] = fusedLanes
	}
}

// short returns the encoding with a VEX prefix. Its W differs: it says nothing about the
// lanes, but for shifts by lane, fused arithmetic and gathers.
func short(c coding) coding {
	switch {
	case c == coding{1, 1, 0, 0x6f}:
		return vmovdqu // virtual registers are not aligned
	case c.mm == 2 && (c.op >= 0x45 && c.op <= 0x47 || c.op >= 0x90 && c.op <= 0xbf):
	default:
		c.w = 0
	}
	return c
}

// lanesOf64 says whether the lanes of an instruction have 64 bits.
func lanesOf64(c coding) bool { return c.w == 1 }

// byHalves emits an instruction with an EVEX prefix by others.
func (a *assembler) byHalves(c coding, length uint8, reg, second int, p place, m masked, imm []byte) {
	wide := lanesOf64(c)
	halves := 2
	if length == ymm {
		halves = 1
	}
	if emulate := emulated[c]; emulate != nil { // d = x op y, d being none of the others
		for half := range halves {
			x := a.fetch(ymmX, inReg(second), half, wide)
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

func (a *assembler) lanewise(c coding, halves, reg, second int, p place, m masked) {
	wide := lanesOf64(c)
	if (c == vload32 || c == vload64) && p.memory && m.k != 0 { // lanes outside the mask must not be read
		for half := range halves {
			a.selected(ymmT, m.k, half, wide)
			load := vpmaskload
			if wide {
				load.w = 1
			}
			a.y(load, ymmD, ymmT, p.behind(32*half))
			a.keep(reg, half, ymmD)
		}
		return
	}
	how := lanewise[c]
	for half := range halves {
		to := ymmD
		if d := ofHalf(reg, half); !d.memory && m.k == 0 {
			to = int(d.reg)
		}
		y := a.operandHalf(ymmY, p, half, wide)
		switch how {
		case unaryLanes:
			a.y(short(c), to, 0, y)
		case binaryLanes:
			a.y(short(c), to, a.fetch(ymmX, inReg(second), half, wide), y)
		case fusedLanes:
			a.copyTo(to, inReg(reg), half, wide)
			a.y(short(c), to, a.fetch(ymmX, inReg(second), half, wide), y)
		}
		if to == ymmD {
			a.settleHalf(reg, half, m, wide)
		}
	}
}

// emulated are the instructions on single lanes that AVX2 has not: ymmD = x op y.
var emulated = map[coding]func(a *assembler, x, y int){
	vpmullq: func(a *assembler, x, y int) {
		a.shifted(0x73, 2, ymmD, x, 32)
		a.y(vpmuludq, ymmD, ymmD, inReg(y))
		a.shifted(0x73, 2, ymmT, y, 32)
		a.y(vpmuludq, ymmT, ymmT, inReg(x))
		a.y(short(vpaddq), ymmD, ymmD, inReg(ymmT))
		a.shifted(0x73, 6, ymmD, ymmD, 32)
		a.y(vpmuludq, ymmT, x, inReg(y))
		a.y(short(vpaddq), ymmD, ymmD, inReg(ymmT))
	},
	{1, 2, 1, 0x39}: extreme64(true, false), {1, 2, 1, 0x3b}: extreme64(false, false),
	{1, 2, 1, 0x3d}: extreme64(true, true), {1, 2, 1, 0x3f}: extreme64(false, true),
	{1, 2, 1, 0x46}: func(a *assembler, x, y int) { // vpsravq: negative numbers are shifted inverted
		a.y(vpxor, ymmD, ymmD, inReg(ymmD))
		a.y(vpcmpgtq, ymmT, ymmD, inReg(x))
		a.y(vpxor, ymmD, x, inReg(ymmT))
		a.y(vpsrlvq, ymmD, ymmD, inReg(y))
		a.y(vpxor, ymmD, ymmD, inReg(ymmT))
	},
	// vcvtudq2ps: both halves of a number convert exactly, and their sum is rounded once.
	{3, 1, 0, 0x7a}: func(a *assembler, _, y int) {
		a.shifted(0x72, 2, ymmD, y, 16)
		a.y(vpand, ymmT, y, a.repeated(0xffff, 32))
		a.y(vcvtdq2ps, ymmD, 0, inReg(ymmD))
		a.y(coding{0, 1, 0, 0x59}, ymmD, ymmD, a.repeated(0x47800000, 32)) // times 65536
		a.y(vcvtdq2ps, ymmT, 0, inReg(ymmT))
		a.y(coding{0, 1, 0, 0x58}, ymmD, ymmD, inReg(ymmT))
	},
}

// extreme64 is the minimum or maximum of 64-bit integers.
func extreme64(signed, larger bool) func(a *assembler, x, y int) {
	return func(a *assembler, x, y int) {
		if signed {
			a.y(vpcmpgtq, ymmT, x, inReg(y))
		} else {
			a.y(vpxor, ymmD, x, a.repeated(1<<63, 64))
			a.y(vpxor, ymmT, y, a.repeated(1<<63, 64))
			a.y(vpcmpgtq, ymmT, ymmD, inReg(ymmT))
		}
		if !larger {
			x, y = y, x
		}
		a.y(vpblendvb, ymmD, y, inReg(x), ymmT<<4)
	}
}

// rearranged are the instructions that move lanes, reach memory or write a mask.
var rearranged map[coding]func(a *assembler, c coding, halves, reg, second int, p place, m masked, imm []byte)

func init() {
	type emit = func(a *assembler, c coding, halves, reg, second int, p place, m masked, imm []byte)
	rearranged = map[coding]emit{
		vstore32: (*assembler).storeHalves, vstore64: (*assembler).storeHalves,
		vpbroadcastd: (*assembler).spreadHalves, vpbroadcastq: (*assembler).spreadHalves,
		{1, 2, 0, 0x7c}: (*assembler).spreadGeneral, fromGPR64: (*assembler).spreadGeneral,
		vpmovsxdq: (*assembler).widenHalves, vpmovzxdq: (*assembler).widenHalves,
		vpmovqd: (*assembler).narrowHalves, {1, 3, 1, 0x3a}: (*assembler).insertHalf, {1, 3, 1, 0x3b}: (*assembler).extractHalf,
		{1, 2, 0, 0x64}: (*assembler).blendHalves, {1, 2, 1, 0x64}: (*assembler).blendHalves,
		{1, 3, 1, 0x25}: (*assembler).chooseBits,
		{1, 2, 0, 0x90}: (*assembler).gather32, {1, 2, 0, 0x91}: (*assembler).gather32From64,
		{1, 2, 1, 0x90}: (*assembler).gather64, {1, 2, 1, 0x91}: (*assembler).gather64,
	}
	for _, c := range []coding{vpcmpd, vpcmpud, vpcmpq, vpcmpuq, {0, 1, 0, 0xc2}, {1, 1, 1, 0xc2}, vptestmq, {2, 2, 0, 0x27}, {1, 2, 1, 0x26}} {
		rearranged[c] = (*assembler).compareHalvesOf
	}
	for _, c := range []coding{{1, 2, 0, 0x21}, {1, 2, 0, 0x23}, {1, 2, 0, 0x31}, {1, 2, 0, 0x33}} {
		rearranged[c] = (*assembler).loadSmall
	}
	for _, c := range []coding{{2, 2, 0, 0x31}, {2, 2, 0, 0x33}} {
		rearranged[c] = (*assembler).storeSmall
	}
	for _, c := range []coding{{1, 2, 0, 0xa0}, {1, 2, 0, 0xa1}, {1, 2, 1, 0xa0}, {1, 2, 1, 0xa1}} {
		rearranged[c] = (*assembler).scatter
	}
}

func (a *assembler) storeHalves(c coding, halves, reg, _ int, p place, m masked, _ []byte) {
	wide := lanesOf64(c)
	for half := range halves {
		from := a.fetch(ymmD, inReg(reg), half, wide)
		to := p.behind(32 * half)
		if m.k == 0 {
			a.y(vmovdquStore, from, 0, to)
			continue
		}
		a.selected(ymmT, m.k, half, wide)
		store := vpmaskstore
		if wide {
			store.w = 1
		}
		a.y(store, from, ymmT, to)
	}
}

// spreadHalves loads one element for all lanes: if there is a mask, only if it selects
// any.
func (a *assembler) spreadHalves(c coding, halves, reg, _ int, p place, m masked, _ []byte) {
	wide := lanesOf64(c)
	var skip label
	if m.k != 0 {
		a.y(vpxor, ymmY, ymmY, inReg(ymmY))
		a.testMask(m.k, wide)
		a.skipIf(ccEqual, &skip)
	}
	a.y(spreading(wide), ymmY, 0, p)
	a.bind(&skip)
	for half := range halves {
		a.y(vmovdqu, ymmD, 0, inReg(ymmY))
		a.settleHalf(reg, half, m, wide)
	}
}

// testMask sets the flags by the 8 or 16 bits of a mask that an instruction heeds.
func (a *assembler) testMask(k uint8, wide bool) {
	if wide {
		a.g(false, []byte{0x80}, 7, ofMask(int(k)), 0) // cmp byte
		return
	}
	a.bytes(0x66)
	a.g(false, []byte{0x81}, 7, ofMask(int(k)), 0, 0) // cmp word
}

func (a *assembler) skipIf(cc uint8, l *label) {
	a.bytes(0x0f, 0x80|cc)
	a.distance(l)
}

func (a *assembler) spreadGeneral(c coding, halves, reg, _ int, p place, _ masked, _ []byte) {
	wide := lanesOf64(c)
	move := vmovd
	if wide {
		move.w = 1
	}
	a.x(move, ymmD, 0, p)
	a.y(spreading(wide), ymmD, 0, inReg(ymmD))
	for half := range halves {
		a.keep(reg, half, ymmD)
	}
}

func (a *assembler) widenHalves(c coding, _, reg, _ int, p place, _ masked, _ []byte) {
	if p.memory {
		a.y(c, ymmX, 0, p.behind(16))
		a.y(c, ymmD, 0, p)
	} else {
		from := a.fetch(ymmY, p, 0, false)
		a.y(vextracti128, from, 0, inReg(ymmX), 1)
		a.y(c, ymmX, 0, inReg(ymmX))
		a.y(c, ymmD, 0, inReg(from))
	}
	a.keep(reg, 0, ymmD)
	a.keep(reg, 1, ymmX)
}

// narrowHalves writes the lower half of its destination; no code reads the upper one.
func (a *assembler) narrowHalves(_ coding, _, reg, _ int, p place, _ masked, _ []byte) {
	low := a.fetch(ymmD, inReg(reg), 0, true)
	a.y(vshufps, ymmD, low, ofHalf(reg, 1), 0x88)
	a.y(vpermq, ymmD, 0, inReg(ymmD), 0xd8)
	a.keep(int(p.reg), 0, ymmD)
}

func (a *assembler) insertHalf(_ coding, _, reg, second int, p place, _ masked, _ []byte) {
	upper := a.fetch(ymmD, p, 0, true)
	if reg != second {
		if upper != ymmD {
			a.y(vmovdqu, ymmD, 0, inReg(upper))
			upper = ymmD
		}
		a.keep(reg, 0, a.fetch(ymmX, inReg(second), 0, true))
	}
	a.keep(reg, 1, upper)
}

func (a *assembler) extractHalf(_ coding, _, reg, _ int, p place, _ masked, _ []byte) {
	a.keep(int(p.reg), 0, a.fetch(ymmD, inReg(reg), 1, true))
}

// blendHalves takes the last operand where the mask has lanes, else the second.
func (a *assembler) blendHalves(c coding, halves, reg, second int, p place, m masked, _ []byte) {
	wide := lanesOf64(c)
	for half := range halves {
		no := a.fetch(ymmX, inReg(second), half, wide)
		yes := a.operandHalf(ymmY, p, half, wide)
		a.selected(ymmT, m.k, half, wide)
		a.y(vpblendvb, ymmD, no, yes, ymmT<<4)
		a.keep(reg, half, ymmD)
	}
}

// chooseBits is vpternlogq with the table of mask ? second : last.
func (a *assembler) chooseBits(_ coding, halves, reg, second int, p place, _ masked, imm []byte) {
	if imm[0] != 0xca {
		panic("native: a table of vpternlogq that no code uses")
	}
	for half := range halves {
		mask := a.fetch(ymmD, inReg(reg), half, true)
		a.y(vpandn, ymmT, mask, a.operandHalf(ymmY, p, half, true))
		a.y(vpand, ymmD, mask, ofHalf(second, half))
		a.y(vpor, ymmD, ymmD, inReg(ymmT))
		a.keep(reg, half, ymmD)
	}
}

// compareHalvesOf writes a mask: the lanes in which a comparison holds.
func (a *assembler) compareHalvesOf(c coding, halves, reg, second int, p place, m masked, imm []byte) {
	wide := lanesOf64(c) && c.op != 0x26
	invert := false
	for half, to := range []int{ymmD, ymmT}[:halves] {
		a.copyTo(ymmX, inReg(second), half, wide)
		a.copyTo(ymmY, p, half, wide)
		switch c.op {
		case 0xc2:
			a.y(short(c), to, ymmX, inReg(ymmY), imm[0])
		case 0x26, 0x27:
			a.y(vpand, ymmX, ymmX, inReg(ymmY))
			a.y(vpxor, ymmY, ymmY, inReg(ymmY))
			equal := vpcmpeqd
			switch {
			case c.op == 0x26:
				equal = vpcmpeqw
			case wide:
				equal = vpcmpeqq
			}
			a.y(equal, to, ymmX, inReg(ymmY))
			invert = c.pp == 1
		default:
			invert = a.compareIntegers(to, c, imm[0])
		}
	}
	a.g(true, opStore, rax, at(regFrame, offSaved))
	lanes := int32(1<<16 - 1)
	switch {
	case c.op == 0x26:
		a.y(vextracti128, ymmD, 0, inReg(ymmT), 1)
		a.x(vpacksswb, ymmD, ymmD, inReg(ymmT))
		a.x(vpmovmskb, rax, 0, inReg(ymmD))
	case wide:
		lanes = 1<<8 - 1
		a.y(vshufps, ymmD, ymmD, inReg(ymmT), 0x88)
		a.y(vpermq, ymmD, 0, inReg(ymmD), 0xd8)
		a.y(vmovmskps, rax, 0, inReg(ymmD))
	default:
		a.y(vpackssdw, ymmD, ymmD, inReg(ymmT))
		a.y(vpermq, ymmD, 0, inReg(ymmD), 0xd8)
		a.y(vextracti128, ymmD, 0, inReg(ymmT), 1)
		a.x(vpacksswb, ymmD, ymmD, inReg(ymmT))
		a.x(vpmovmskb, rax, 0, inReg(ymmD))
	}
	if invert {
		a.g(false, []byte{0x81}, 6, inReg(rax), binary.LittleEndian.AppendUint32(nil, uint32(lanes))...) // xor
	}
	if m.k != 0 {
		a.g(false, opAnd, rax, ofMask(int(m.k)))
	}
	a.g(false, opStore, rax, ofMask(reg))
	a.g(true, opMov, rax, at(regFrame, offSaved))
}

// compareIntegers compares what is in ymmX and ymmY, which it may change. It returns
// whether the answer is inverted.
func (a *assembler) compareIntegers(to int, c coding, how byte) bool {
	equal, greater, bits := vpcmpeqd, vpcmpgtd, 32
	if lanesOf64(c) {
		equal, greater, bits = vpcmpeqq, vpcmpgtq, 64
	}
	if c.op == vpcmpud.op && how != 0 && how != 4 {
		sign := a.repeated(1<<(bits-1), bits)
		a.y(vpxor, ymmX, ymmX, sign)
		a.y(vpxor, ymmY, ymmY, sign)
	}
	switch how {
	case 0, 4: // equal, not equal
		a.y(equal, to, ymmX, inReg(ymmY))
	case 1, 5: // less, not less
		a.y(greater, to, ymmY, inReg(ymmX))
	default: // not greater, greater
		a.y(greater, to, ymmX, inReg(ymmY))
	}
	return how == 2 || how == 4 || how == 5
}

// vectorIndex returns an operand of a gather with another register as its index.
func vectorIndex(p place, index int) place {
	p.index, p.scale = int8(index), p.scale&^0x80
	return p
}

func (a *assembler) gather32(c coding, _, reg, _ int, p place, m masked, _ []byte) {
	for half := range 2 {
		index := a.fetch(ymmX, inReg(int(p.index)), half, false)
		a.selected(ymmT, m.k, half, false)
		a.y(vpxor, ymmD, ymmD, inReg(ymmD))
		a.y(c, ymmD, ymmT, vectorIndex(p, index))
		a.keep(reg, half, ymmD)
	}
}

// gather32From64 gets 8 values of 32 bits at places of 64 bits.
func (a *assembler) gather32From64(c coding, _, reg, _ int, p place, m masked, _ []byte) {
	a.selected(ymmT, m.k, 0, false)
	a.y(vextracti128, ymmT, 0, inReg(ymmY), 1) // the mask of the upper four
	a.y(vpxor, ymmD, ymmD, inReg(ymmD))
	a.y(c, ymmD, ymmT, vectorIndex(p, a.fetch(ymmX, inReg(int(p.index)), 0, true)))
	a.y(vpxor, ymmT, ymmT, inReg(ymmT))
	a.y(c, ymmT, ymmY, vectorIndex(p, a.fetch(ymmX, inReg(int(p.index)), 1, true)))
	a.y(vinserti128, ymmD, ymmD, inReg(ymmT), 1)
	a.keep(reg, 0, ymmD)
}

// gather64 gets values of 64 bits, at places of 64 bits or of 32.
func (a *assembler) gather64(c coding, _, reg, _ int, p place, m masked, _ []byte) {
	index := int(p.index)
	if c.op == 0x90 {
		a.copyTo(ymmX, inReg(index), 0, true) // all indices: the destination may be the same register
	}
	for half := range 2 {
		from := ymmX
		if c.op == 0x91 {
			from = a.fetch(ymmX, inReg(index), half, true)
		} else if half == 1 {
			a.y(vextracti128, ymmX, 0, inReg(ymmX), 1)
		}
		a.selected(ymmT, m.k, half, true)
		a.y(vpxor, ymmD, ymmD, inReg(ymmD))
		a.y(c, ymmD, ymmT, vectorIndex(p, from))
		a.keep(reg, half, ymmD)
	}
}

// inMemory returns where the lanes of a virtual register lie; it stores them to a
// scratch vector if they are in registers.
func (a *assembler) inMemory(v, scratch int) place {
	if _, ok := pairs[v]; !ok {
		return ofHalf(v, 0)
	}
	for half := range 2 {
		a.y(vmovdquStore, int(ofHalf(v, half).reg), 0, ofHalf(scratch, half))
	}
	return ofHalf(scratch, 0)
}

// eachLane emits code for each lane that a mask selects, in order.
func (a *assembler) eachLane(k uint8, lanes int, body func(lane int)) {
	for lane := range lanes {
		var skip label
		a.g(false, []byte{0xf6}, 0, ofMask(int(k)).behind(lane/8), 1<<(lane%8)) // test byte
		a.skipIf(ccEqual, &skip)
		body(lane)
		a.bind(&skip)
	}
}

// loadSmall loads bytes or halves that lie one behind the other.
func (a *assembler) loadSmall(c coding, _, reg, _ int, p place, m masked, _ []byte) {
	size, load := 1, opZx8
	switch c.op {
	case 0x21:
		load = opSx8
	case 0x23:
		size, load = 2, opSx16
	case 0x33:
		size, load = 2, opZx16
	}
	a.y(vpxor, ymmD, ymmD, inReg(ymmD))
	for half := range 2 {
		a.y(vmovdquStore, ymmD, 0, ofHalf(laneValues, half))
	}
	a.g(true, opStore, rdx, at(regFrame, offSaved))
	a.eachLane(m.k, 16, func(lane int) {
		a.g(false, load, rdx, p.behind(lane*size))
		a.g(false, opStore, rdx, ofHalf(laneValues, 0).behind(4*lane))
	})
	a.g(true, opMov, rdx, at(regFrame, offSaved))
	for half := range 2 {
		a.keep(reg, half, a.fetch(ymmD, inReg(laneValues), half, false))
	}
}

// storeSmall stores the lower bytes or halves of lanes one behind the other.
func (a *assembler) storeSmall(c coding, _, reg, _ int, p place, m masked, _ []byte) {
	from := a.inMemory(reg, laneValues)
	a.g(true, opStore, rdx, at(regFrame, offSaved))
	a.eachLane(m.k, 16, func(lane int) {
		a.g(false, opMov, rdx, from.behind(4*lane))
		if c.op == 0x31 {
			a.g(false, []byte{0x88}, rdx, p.behind(lane))
			return
		}
		a.bytes(0x66)
		a.g(false, opStore, rdx, p.behind(2*lane))
	})
	a.g(true, opMov, rdx, at(regFrame, offSaved))
}

// scatter stores lanes at their places, the last lane last.
func (a *assembler) scatter(c coding, _, reg, _ int, p place, m masked, _ []byte) {
	places, values := a.inMemory(int(p.index), laneIndices), a.inMemory(reg, laneValues)
	short, wide := c.op == 0xa0, lanesOf64(c)
	lanes, size := 8, 4
	if wide {
		size = 8
	} else if short {
		lanes = 16
	}
	value := rax
	if p.base == rax {
		value = rdi
	}
	a.g(true, opStore, rdx, at(regFrame, offSaved))
	a.g(true, opStore, value, at(regFrame, offSaved+8))
	a.eachLane(m.k, lanes, func(lane int) {
		if short {
			a.g(true, opMovsx, rdx, places.behind(4*lane))
		} else {
			a.g(true, opMov, rdx, places.behind(8*lane))
		}
		a.g(wide, opMov, value, values.behind(size*lane))
		a.g(wide, opStore, value, indexed(int(p.base), rdx, p.scale&^0x80, int(p.disp)))
	})
	a.g(true, opMov, value, at(regFrame, offSaved+8))
	a.g(true, opMov, rdx, at(regFrame, offSaved))
}

// isMaskOp says whether an instruction with a VEX prefix is on masks.
func isMaskOp(c coding) bool {
	switch c.op {
	case 0x41, 0x42, 0x45, 0x47, 0x4b, 0x90, 0x92, 0x93, 0x98:
		return c.mm == 1
	}
	return c == coding{1, 3, 0, 0x31}
}

// maskOp emits an instruction on masks by others on general registers.
func (a *assembler) maskOp(c coding, reg, second int, p place, imm []byte) {
	source := p // of kmov: in memory, or a mask
	if !p.memory {
		source = ofMask(int(p.reg))
	}
	load := opMov
	if c == (coding{0, 1, 0, c.op}) && c.op != 0x4b {
		load = opZx16 // the instructions on 16 bits
	}
	switch c.op {
	case 0x92:
		a.g(false, opStore, int(p.reg), ofMask(reg))
		return
	case 0x93:
		a.g(false, load, reg, source)
		return
	case 0x98:
		a.testMask(uint8(reg), false)
		return
	}
	a.g(true, opStore, rax, at(regFrame, offSaved))
	switch c.op {
	case 0x90:
		a.g(false, load, rax, source)
	case 0x31:
		a.g(false, opMov, rax, source)
		a.g(false, []byte{0xc1}, 5, inReg(rax), imm[0])
	case 0x4b: // the second operand above the last one
		if c.pp == 1 {
			a.g(false, opZx8, rax, ofMask(second))
			a.g(false, []byte{0xc1}, 4, inReg(rax), 8)
			a.g(false, []byte{0x8a}, rax, source)
		} else {
			a.g(false, opZx16, rax, ofMask(second))
			a.g(false, []byte{0xc1}, 4, inReg(rax), 16)
			a.bytes(0x66)
			a.g(false, opMov, rax, source)
		}
	default:
		a.g(false, load, rax, ofMask(second))
		if c.op == 0x42 {
			a.g(false, []byte{0xf7}, 2, inReg(rax)) // not
		}
		a.g(false, map[uint8][]byte{0x41: opAnd, 0x42: opAnd, 0x45: opOr, 0x47: opXor}[c.op], rax, source)
		if load[0] != opMov[0] {
			a.g(false, opZx16, rax, inReg(rax))
		}
	}
	a.g(false, opStore, rax, ofMask(reg))
	a.g(true, opMov, rax, at(regFrame, offSaved))
}
