//go:build linux && amd64

package native

import (
	"encoding/binary"
	"slices"
	"strings"
)

// What comes before a section's loop: instructions on uniform values, in general
// registers; instructions on the bases of chunks, all 16 of a gang in one or two
// vectors; and all checks of the section.

// home returns where the value of a uniform register lies: the base field of its
// form, the last of 12 or 24 bytes (compiled_unsafe.go of package simt checks that).
func home(r Ref) place {
	if r.Class == Bits64 {
		return at(regForms64, int(r.Slot)*24+16)
	}
	return at(regForms32, int(r.Slot)*12+8)
}

// bases returns where the bases of chunks lie; part 1 is the second half of
// those of 64 bits.
func bases(r Ref, part int) place {
	if r.Class == Bits64 {
		return at(regBases64, int(r.Slot)*ChunkPitch*8+part*64)
	}
	return at(regBases32, int(r.Slot)*ChunkPitch*4)
}

// failed is the label to which a failed check jumps: the interpreter runs the
// section again from its first instruction.
func (c *compiler) failed() *label { return c.exit(exit{reason: Interpret, at: c.section.start}) }

// prepare emits what an instruction needs before the loop.
func (c *compiler) prepare(s *step) {
	switch {
	case s.isMemory():
		c.checkMemory(s)
		if s.scalar() {
			c.loadUniform(s)
		}
	case s.D.Class == Predicate && s.has(Uniform):
		c.compareUniform(s)
	case s.D.Class == Predicate && s.has(Uniform, Linear):
		c.compareLinear(s)
	case s.D.Class == Predicate:
		c.compareChunked(c.inChunks(s))
	case s.has(Uniform, Linear) && c.uniformly(s):
		uniformOps[s.Name](c, s)
	default:
		c.chunkedOp(c.inChunks(s))
	}
}

// has says whether all sources have one of these forms.
func (s *step) has(forms ...Form) bool {
	for _, k := range s.sources {
		if !slices.Contains(forms, k.Form) {
			return false
		}
	}
	return true
}

// inChunks emits the bases of all chunks of linear sources, and returns the instruction
// with these sources chunked. The arrays of a linear register hold nothing otherwise.
func (c *compiler) inChunks(s *step) *step {
	chunked := *s
	chunked.sources = slices.Clone(s.sources)
	for i, k := range s.sources {
		if k.Form == Linear {
			r := s.Op.Sources[i]
			c.legacy(r.Class == Bits64, opMov, rax, home(r))
			chunked.sources[i].Form = Chunked
			c.setUniform(r, chunked.sources[i])
		}
	}
	return &chunked
}

// setUniform gives a register the base in rax: as its base if it is uniform or
// linear, else as that of the first chunk, from which those of the others follow.
func (c *compiler) setUniform(r Ref, k Kind) {
	if k.Form != Chunked {
		c.legacy(r.Class == Bits64, opStore, rax, home(r))
		return
	}
	if c.Several {
		k.Stride = 0 // that from chunk to chunk: what is linear is the same in all
	}
	if r.Class == Bits32 {
		c.evex(fromGPR32, zmm, zmmT0, 0, inReg(rax), masked{})
		if k.Stride != 0 {
			c.evex(vpaddd, zmm, zmmT0, zmmT0, c.strides(16*k.Stride), masked{})
		}
		c.evex(vstore32, zmm, zmmT0, 0, bases(r, 0), masked{})
		return
	}
	c.evex(fromGPR64, zmm, zmmT0, 0, inReg(rax), masked{})
	for half := range 2 {
		from := zmmT0
		if k.Stride != 0 {
			from = zmmT1
			c.evex(vpaddq, zmm, from, zmmT0, c.strides64(16*k.Stride, half), masked{})
		}
		c.evex(vstore64, zmm, from, 0, bases(r, half), masked{})
	}
}

func (s *step) wide() bool { return s.D.Class == Bits64 }

// uniformOps are the instructions that are done on general registers where all their
// sources are uniform. Those that keep a stride are done so on the bases of linear
// sources, too.
var uniformOps map[string]func(*compiler, *step)

func init() {
	uniformOps = map[string]func(*compiler, *step){
		"mov.b32": uniformBinary(nil), "mov.b64": uniformBinary(nil),
		"add.b32": uniformBinary(opAdd), "add.b64": uniformBinary(opAdd), "sub.b32": uniformBinary(opSub), "sub.b64": uniformBinary(opSub),
		"and.b32": uniformBinary(opAnd), "and.b64": uniformBinary(opAnd), "or.b32": uniformBinary(opOr), "or.b64": uniformBinary(opOr),
		"xor.b32": uniformBinary(opXor), "xor.b64": uniformBinary(opXor), "mul.lo.b32": uniformBinary(opMul), "mul.lo.b64": uniformBinary(opMul),
		"mad.lo.b32": uniformMad, "mad.lo.b64": uniformMad, "neg.s32": uniformNegate, "neg.s64": uniformNegate,
		"shl.b32": uniformShift(4), "shl.b64": uniformShift(4), "shr.u32": uniformShift(5), "shr.u64": uniformShift(5),
		"shr.s32": uniformShift(7), "shr.s64": uniformShift(7),
		"cvt.s64.s32": uniformExtend(opMovsx), "cvt.u64.s32": uniformExtend(opMovsx), "cvt.u64.u32": uniformExtend(opMov), "cvt.s64.u32": uniformExtend(opMov),
		"cvt.u32.u64": uniformNarrow, "cvt.s32.s64": uniformNarrow, "cvt.u32.s64": uniformNarrow, "cvt.s32.u64": uniformNarrow,
		"mul.wide.s32": uniformWide(opMovsx), "mul.wide.u32": uniformWide(opMov), "mad.wide.s32": uniformWide(opMovsx), "mad.wide.u32": uniformWide(opMov),
	}
}

func uniformBinary(opcode []byte) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.legacy(s.wide(), opMov, rax, home(s.Op.Sources[0]))
		if opcode != nil {
			c.legacy(s.wide(), opcode, rax, home(s.Op.Sources[1]))
		}
		c.setUniform(s.D, s.kind)
	}
}

func uniformMad(c *compiler, s *step) {
	c.legacy(s.wide(), opMov, rax, home(s.Op.Sources[0]))
	c.legacy(s.wide(), opMul, rax, home(s.Op.Sources[1]))
	c.legacy(s.wide(), opAdd, rax, home(s.Op.Sources[2]))
	c.setUniform(s.D, s.kind)
}

func uniformNegate(c *compiler, s *step) {
	c.legacy(s.wide(), opMov, rax, home(s.Op.Sources[0]))
	c.legacy(s.wide(), []byte{0xf7}, 3, inReg(rax)) // neg
	c.setUniform(s.D, s.kind)
}

// uniformShift shifts by a literal. PTX clamps the count at the width, the processor
// takes it modulo the width; so larger counts are handled here.
func uniformShift(which int) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		width := uint64(32)
		if s.wide() {
			width = 64
		}
		by := uint64(uint32(c.given.at(s.Op.Sources[1]).Value))
		c.legacy(s.wide(), opMov, rax, home(s.Op.Sources[0]))
		switch {
		case by < width:
			c.shift(s.wide(), which, rax, uint8(by))
		case which == 7:
			c.shift(s.wide(), which, rax, uint8(width-1))
		default:
			c.set(rax, 0)
		}
		c.setUniform(s.D, s.kind)
	}
}

func uniformExtend(opcode []byte) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.extend(opcode, rax, s, 0)
		c.setUniform(s.D, s.kind)
	}
}

// extend gets the base of a 32-bit source, extended to 64 bits, into a register. A
// linear source must not wrap around, as a signed or unsigned number, from the first
// active lane to the last; the base is then the one that gives these lanes their
// values.
func (c *compiler) extend(opcode []byte, to int, s *step, source int) {
	signed := &opcode[0] == &opMovsx[0]
	r, k := s.Op.Sources[source], s.sources[source]
	if k.Form != Linear {
		c.legacy(signed, opcode, to, home(r))
		return
	}
	c.ends(r, k, rcx, rdi)
	c.legacy(false, opCmp, rdi, inReg(rcx))
	c.jumpIf(descends(k, signed), c.failed())
	c.legacy(signed, opcode, to, inReg(rcx))
	c.timesStride(true, rcx, offFirstLane, k)
	c.legacy(true, opSub, to, inReg(rcx))
}

// ends gets the values of a linear 32-bit register in the first and in the last active
// lane.
func (c *compiler) ends(r Ref, k Kind, first, last int) {
	c.timesStride(false, first, offFirstLane, k)
	c.timesStride(false, last, offLastLane, k)
	c.legacy(false, opAdd, first, home(r))
	c.legacy(false, opAdd, last, home(r))
}

// timesStride gets the lane at an offset of the frame, times a stride.
func (c *compiler) timesStride(wide bool, to, lane int, k Kind) {
	c.legacy(wide, []byte{0x69}, to, at(regFrame, lane), binary.LittleEndian.AppendUint32(nil, uint32(k.Stride))...) // imul
}

// descends is the condition under which the last lane, compared with the first, shows
// that a register with a stride wraps around in between.
func descends(k Kind, signed bool) uint8 {
	switch {
	case signed && k.Stride > 0:
		return ccLess
	case signed:
		return ccGreater
	case k.Stride > 0:
		return ccBelow
	}
	return ccAbove
}

func uniformNarrow(c *compiler, s *step) {
	c.legacy(false, opMov, rax, home(s.Op.Sources[0]))
	c.setUniform(s.D, s.kind)
}

func uniformWide(opcode []byte) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.extend(opcode, rax, s, 0)
		c.extend(opcode, rdx, s, 1)
		c.legacy(true, opMul, rax, inReg(rdx))
		if len(s.Op.Sources) == 3 {
			c.legacy(true, opAdd, rax, home(s.Op.Sources[2]))
		}
		c.setUniform(s.D, s.kind)
	}
}

// condition parses the name of a comparison of integers; ok is false for others.
func condition(name string) (cmp string, signed bool, bits string, ok bool) {
	rest, found := strings.CutPrefix(name, "setp.")
	cmp, t, found2 := strings.Cut(rest, ".")
	if !found || !found2 || len(t) < 3 {
		return "", false, "", false
	}
	switch t {
	case "s32", "u32", "b32", "s64", "u64", "b64":
		return cmp, t[0] == 's', t[1:], true
	}
	return "", false, "", false
}

// comparesRegular says whether an instruction compares integers that are
// uniform or chunked.
func comparesRegular(s *step) bool {
	if _, _, _, ok := condition(s.Name); !ok || s.Guard >= 0 {
		return false
	}
	for _, k := range s.sources {
		if k.Form == Vector {
			return false
		}
	}
	return true
}

// conditionCode returns the condition of the processor for a comparison.
func conditionCode(cmp string, signed bool) uint8 {
	switch cmp {
	case "eq":
		return ccEqual
	case "ne":
		return ccNotEqual
	}
	cc := [...]uint8{ccBelow, ccBelowEqual, ccAbove, ccAboveEqual}
	if signed {
		cc = [...]uint8{ccLess, ccLessEqual, ccGreater, ccGreaterEqual}
	}
	return cc[slices.Index([]string{"lt", "le", "gt", "ge"}, cmp)]
}

// compareUniform compares uniform values: all lanes get one answer.
func (c *compiler) compareUniform(s *step) {
	cmp, signed, bits, _ := condition(s.Name)
	wide := bits == "64"
	cc := conditionCode(cmp, signed)
	c.legacy(wide, opMov, rdx, home(s.Op.Sources[0]))
	c.set(rax, 0)
	c.legacy(wide, opCmp, rdx, home(s.Op.Sources[1]))
	c.plain("set"+conditions[cc]+" al", 0x0f, 0x90|cc, 0xc0)
	c.legacy(true, []byte{0xf7}, 3, inReg(rax)) // neg
	c.setAll(s)
}

// setAll gives all lanes of a predicate the answers in rax, which are those of 64 lanes and
// hold for all others, too: 0 or -1, or those of one chunk repeated.
func (c *compiler) setAll(s *step) {
	c.evex(coding{1, 2, 1, 0x7c}, ymm, zmmT0, 0, inReg(rax), masked{}) // vpbroadcastq
	p := at(regPreds, int(s.D.Slot)*32)
	if !s.Private {
		c.evex(coding{2, 1, 1, 0x6f}, ymm, zmmT1, 0, at(regFrame, offMask), masked{})
		// Lanes outside the mask keep their bits.
		c.evex(coding{1, 3, 1, 0x25}, ymm, zmmT1, zmmT0, p, masked{}, 0xca) // vpternlogq: mask ? answer : old
		c.evex(coding{2, 1, 1, 0x7f}, ymm, zmmT1, 0, p, masked{})
		return
	}
	c.evex(coding{2, 1, 1, 0x7f}, ymm, zmmT0, 0, p, masked{})
}

// compareLinear compares uniform and linear registers, as compareChunked does, but by
// the first and the last active lane of the gang. If the gang has several blocks, one
// chunk is compared, and all get its answers.
func (c *compiler) compareLinear(s *step) {
	cmp, signed, bits, _ := condition(s.Name)
	op, how, _ := comparison(s.Name)
	if c.Several {
		c.comparePart(s, op, how, 0)
		if bits == "64" {
			c.comparePart(s, op, how, 1)
			c.vex(coding{1, 1, 0, 0x4b}, true, 4, 5, inReg(4)) // kunpckbw
		}
		c.vex(coding{0, 1, 0, 0x93}, false, rax, 0, inReg(4)) // kmovw
		c.set(rdx, 0x0001000100010001)
		c.legacy(true, opMul, rax, inReg(rdx))
		c.setAll(s)
		return
	}
	var mixed, done label
	if bits == "32" && cmp != "eq" && cmp != "ne" {
		first, last := [...]int{rax, rdx}, [...]int{rcx, rsi}
		for i, r := range s.Op.Sources {
			k := s.sources[i]
			if k.Form == Uniform {
				c.legacy(false, opMov, first[i], home(r))
				last[i] = first[i]
				continue
			}
			c.ends(r, k, first[i], last[i])
			c.legacy(false, opCmp, last[i], inReg(first[i]))
			c.jumpIf(descends(k, signed), &mixed)
		}
		cc := conditionCode(cmp, signed)
		var some label
		c.legacy(false, opCmp, first[0], inReg(first[1]))
		c.jumpIf(cc, &some)
		c.legacy(false, opCmp, last[0], inReg(last[1]))
		c.jumpIf(cc, &mixed)
		c.set(rax, 0)
		c.setAll(s)
		c.jump(&done)
		c.bind(&some)
		c.legacy(false, opCmp, last[0], inReg(last[1]))
		c.jumpIf(cc^1, &mixed)                                              // the opposite
		c.legacy(true, []byte{0xc7}, 0, inReg(rax), 0xff, 0xff, 0xff, 0xff) // mov rax, -1
		c.setAll(s)
		c.jump(&done)
		c.bind(&mixed)
	}
	c.rounds(func() { c.compareLanes(s, op, how) })
	c.bind(&done)
}

// compareChunked compares chunked registers. For an order of 32-bit numbers it first
// compares the first and the last lane of each chunk: if no source wraps around
// along a chunk, the answer changes at most once in between. If all active chunks
// have the same answer at both ends, all lanes have it, which is the usual case of a
// bounds check. Else all lanes are compared.
func (c *compiler) compareChunked(s *step) {
	cmp, _, bits, _ := condition(s.Name)
	op, how, _ := comparison(s.Name)
	var mixed, none, done label
	if bits == "32" && cmp != "eq" && cmp != "ne" {
		for i, r := range s.Op.Sources {
			first, last := zmmT0+i, zmmT2+i
			c.chunkLoad(first, r, s.sources[i], 0)
			stride := s.sources[i].Stride
			if stride == 0 {
				c.evex(vload64, zmm, last, 0, inReg(first), masked{})
				continue
			}
			c.evex(vpaddd, zmm, last, first, c.word32(uint32(15*stride)), masked{})
			wrong := byte(1)
			if stride < 0 {
				wrong = 6
			}
			c.evex(op, zmm, 5, last, inReg(first), masked{}, wrong)
			c.vex(coding{0, 1, 0, 0x93}, false, rax, 0, inReg(5)) // kmovw
			c.legacy(true, opAnd, rax, at(regFrame, offActiveChunks))
			c.jumpIf(ccNotEqual, &mixed)
		}
		c.evex(op, zmm, 5, zmmT0, inReg(zmmT1), masked{}, how)
		c.evex(op, zmm, 6, zmmT2, inReg(zmmT3), masked{}, how)
		c.legacy(true, opMov, rdi, at(regFrame, offActiveChunks))
		c.vex(coding{0, 1, 0, 0x45}, true, 7, 5, inReg(6)) // korw
		c.vex(coding{0, 1, 0, 0x93}, false, rax, 0, inReg(7))
		c.legacy(false, []byte{0x85}, rdi, inReg(rax)) // test
		c.jumpIf(ccEqual, &none)
		c.vex(coding{0, 1, 0, 0x41}, true, 7, 5, inReg(6)) // kandw
		c.vex(coding{0, 1, 0, 0x93}, false, rax, 0, inReg(7))
		c.legacy(false, opAnd, rax, inReg(rdi))
		c.legacy(false, opCmp, rax, inReg(rdi))
		c.jumpIf(ccNotEqual, &mixed)
		c.legacy(true, []byte{0xc7}, 0, inReg(rax), 0xff, 0xff, 0xff, 0xff) // mov rax, -1
		c.setAll(s)
		c.jump(&done)
		c.bind(&none)
		c.set(rax, 0)
		c.setAll(s)
		c.jump(&done)
		c.bind(&mixed)
	}
	c.rounds(func() { c.compareLanes(s, op, how) })
	c.bind(&done)
}

// compareLanes compares the lanes of a round, in scratch registers only: it runs
// outside the section's loop, where no value is held in registers.
func (c *compiler) compareLanes(s *step, op coding, how byte) {
	class := s.Op.Sources[0].Class
	for part := range parts(class) {
		c.comparePart(s, op, how, part)
	}
	c.gatherBits(class)
	c.setPredicate(s)
}

// comparePart compares a part of a round's lanes; the answers are in k4 for part 0, and so on.
func (c *compiler) comparePart(s *step, op coding, how byte, part int) {
	for i, r := range s.Op.Sources {
		k := s.sources[i]
		if k.Form != Uniform {
			c.expand(r, k, part, zmmT0+i)
			continue
		}
		one := vpbroadcastd
		if r.Class == Bits64 {
			one = vpbroadcastq
		}
		c.evex(one, zmm, zmmT0+i, 0, home(r), masked{})
	}
	c.evex(op, zmm, 4+part, zmmT0, inReg(zmmT1), masked{}, how)
}

// The common vector instructions.
var (
	vpaddd       = coding{1, 1, 0, 0xfe}
	vpaddq       = coding{1, 1, 1, 0xd4}
	vpsubd       = coding{1, 1, 0, 0xfa}
	vpsubq       = coding{1, 1, 1, 0xfb}
	vpmulld      = coding{1, 2, 0, 0x40}
	vpmullq      = coding{1, 2, 1, 0x40}
	vload32      = coding{2, 1, 0, 0x6f}
	vload64      = coding{2, 1, 1, 0x6f}
	vstore32     = coding{2, 1, 0, 0x7f}
	vstore64     = coding{2, 1, 1, 0x7f}
	vpmovsxdq    = coding{1, 2, 0, 0x25}
	vpmovzxdq    = coding{1, 2, 0, 0x35}
	vpmovqd      = coding{2, 2, 0, 0x35}
	vpbroadcastd = coding{1, 2, 0, 0x58}
	vpbroadcastq = coding{1, 2, 1, 0x59}
	fromGPR32    = coding{1, 2, 0, 0x7c}
	fromGPR64    = coding{1, 2, 1, 0x7c}
	vpsllvd      = coding{1, 2, 0, 0x47}
	vpsllvq      = coding{1, 2, 1, 0x47}
	vpcmpd       = coding{1, 3, 0, 0x1f}
	vpcmpud      = coding{1, 3, 0, 0x1e}
	vpcmpq       = coding{1, 3, 1, 0x1f}
	vpcmpuq      = coding{1, 3, 1, 0x1e}
	vptestmq     = coding{1, 2, 1, 0x27}
)

// spread is a uniform or chunked register as an operand of an instruction on
// the bases of all chunks.
func (c *compiler) spread(r Ref, k Kind, part int) place {
	if k.Form == Uniform {
		p := home(r)
		p.bcast = true
		return p
	}
	return bases(r, part)
}

// chunkLoad gets the bases of a source into a vector register.
func (c *compiler) chunkLoad(reg int, r Ref, k Kind, part int) {
	p := c.spread(r, k, part)
	load, one := vload32, vpbroadcastd
	if r.Class == Bits64 {
		load, one = vload64, vpbroadcastq
	}
	if p.bcast {
		p.bcast = false
		c.evex(one, zmm, reg, 0, p, masked{})
		return
	}
	c.evex(load, zmm, reg, 0, p, masked{})
}

// chunkedOp computes the bases of all chunks at once.
func (c *compiler) chunkedOp(s *step) {
	if s.widens() {
		c.checkSteady(s)
	}
	parts, add, sub, mul := 1, vpaddd, vpsubd, vpmulld
	if s.wide() {
		parts, add, sub, mul = 2, vpaddq, vpsubq, vpmullq
	}
	src, k := s.Op.Sources, s.sources
	// All parts are read before any is written: the destination may be a source.
	for part := range parts {
		d := zmmT0 + part
		switch s.Name {
		case "mov.b32", "mov.b64":
			c.chunkLoad(d, src[0], k[0], part)
		case "cvt.u32.u64", "cvt.s32.s64", "cvt.u32.s64", "cvt.s32.u64":
			for half := range 2 {
				c.chunkLoad(zmmT1, src[0], k[0], half)
				c.evex(vpmovqd, zmm, zmmT1, 0, inReg(zmmT2+half), masked{})
			}
			c.evex(coding{1, 3, 1, 0x3a}, zmm, d, zmmT2, inReg(zmmT3), masked{}, 1) // vinserti64x4
		case "cvt.s64.s32", "cvt.u64.s32", "cvt.u64.u32", "cvt.s64.u32":
			c.chunkWiden(d, src[0], k[0], part, strings.HasSuffix(s.Name, "s32"))
		case "add.b32", "add.b64":
			c.chunkLoad(d, src[0], k[0], part)
			c.evex(add, zmm, d, d, c.spread(src[1], k[1], part), masked{})
		case "sub.b32", "sub.b64":
			c.chunkLoad(d, src[0], k[0], part)
			c.evex(sub, zmm, d, d, c.spread(src[1], k[1], part), masked{})
		case "neg.s32", "neg.s64":
			c.evex(coding{1, 1, 0, 0xef}, zmm, d, d, inReg(d), masked{}) // vpxord
			c.evex(sub, zmm, d, d, c.spread(src[0], k[0], part), masked{})
		case "shl.b32", "shl.b64":
			by, _ := c.literal(s, 1)
			c.chunkLoad(d, src[0], k[0], part)
			if s.wide() {
				c.evex(vpsllvq, zmm, d, d, c.word64(uint64(by)), masked{})
			} else {
				c.evex(vpsllvd, zmm, d, d, c.word32(uint32(by)), masked{})
			}
		case "mul.lo.b32", "mul.lo.b64", "mad.lo.b32", "mad.lo.b64":
			c.chunkLoad(d, src[0], k[0], part)
			c.evex(mul, zmm, d, d, c.spread(src[1], k[1], part), masked{})
			if len(src) == 3 {
				c.evex(add, zmm, d, d, c.spread(src[2], k[2], part), masked{})
			}
		default: // mul.wide and mad.wide
			signed := strings.HasSuffix(s.Name, "s32")
			c.chunkWiden(d, src[0], k[0], part, signed)
			c.chunkWiden(zmmT2, src[1], k[1], part, signed)
			c.evex(vpmullq, zmm, d, d, inReg(zmmT2), masked{})
			if len(src) == 3 {
				c.evex(vpaddq, zmm, d, d, c.spread(src[2], k[2], part), masked{})
			}
		}
	}
	for part := range parts {
		store := vstore32
		if s.wide() {
			store = vstore64
		}
		c.evex(store, zmm, zmmT0+part, 0, bases(s.D, part), masked{})
	}
}

// chunkWiden gets half of the bases of a 32-bit source as 64 bits.
func (c *compiler) chunkWiden(reg int, r Ref, k Kind, part int, signed bool) {
	op := vpmovzxdq
	if signed {
		op = vpmovsxdq
	}
	if k.Form == Uniform {
		c.evex(vpbroadcastd, zmm, zmmT3, 0, home(r), masked{})
		c.evex(op, zmm, reg, 0, inReg(zmmT3), masked{})
		return
	}
	p := bases(r, 0)
	p.disp += int32(part) * 32
	c.evex(op, zmm, reg, 0, p, masked{})
}

// checkSteady emits the check that no active chunk of a source wraps around, as a
// signed or unsigned number. Strides are small enough that a wrap shows in the order
// of the first and the last lane.
func (c *compiler) checkSteady(s *step) {
	compare := vpcmpud
	if strings.HasSuffix(s.Name, "s32") {
		compare = vpcmpd
	}
	for i, r := range s.Op.Sources {
		k := s.sources[i]
		if r.Class != Bits32 || k.Stride == 0 {
			continue
		}
		c.evex(vload32, zmm, zmmT0, 0, bases(r, 0), masked{})
		c.evex(vpaddd, zmm, zmmT1, zmmT0, c.word32(uint32(15*k.Stride)), masked{})
		wrong := byte(1) // the last lane is less than the first
		if k.Stride < 0 {
			wrong = 6
		}
		c.evex(compare, zmm, 5, zmmT1, inReg(zmmT0), masked{}, wrong)
		c.vex(coding{3, 1, 0, 0x93}, false, rax, 0, inReg(5)) // kmovd
		c.legacy(true, opAnd, rax, at(regFrame, offActiveChunks))
		c.jumpIf(ccNotEqual, c.failed())
	}
}
