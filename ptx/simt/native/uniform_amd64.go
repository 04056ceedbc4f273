//go:build linux && amd64

package native

import (
	"encoding/binary"
	"slices"
	"strings"

	"muster/ptx/simt/native/asm"
)

// What comes before a section's loop: instructions on uniform values, in general
// registers; instructions on the bases of chunks, all 16 of a gang in one or two
// vectors; and all checks of the section.

// home returns where the value of a uniform register lies: the base field of its
// form, the last of 12 or 24 bytes (memory_unsafe.go of package simt checks that).
func home(r Ref) asm.Place {
	if r.Class == Bits64 {
		return asm.At(regForms64, int(r.Slot)*24+16)
	}
	return asm.At(regForms32, int(r.Slot)*12+8)
}

// bases returns where the bases of chunks lie; part 1 is the second half of
// those of 64 bits.
func bases(r Ref, part int) asm.Place {
	if r.Class == Bits64 {
		return asm.At(regBases64, int(r.Slot)*ChunkPitch*8+part*64)
	}
	return asm.At(regBases32, int(r.Slot)*ChunkPitch*4)
}

// failed is the label to which a failed check jumps: the interpreter runs the
// section again from its first instruction.
func (c *compiler) failed() *asm.Label { return c.exit(exit{reason: Interpret, at: c.section.start}) }

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
			c.Legacy(r.Class == Bits64, asm.OpMov, asm.RAX, home(r))
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
		c.Legacy(r.Class == Bits64, asm.OpStore, asm.RAX, home(r))
		return
	}
	if c.Several {
		k.Stride = 0 // that from chunk to chunk: what is linear is the same in all
	}
	if r.Class == Bits32 {
		c.EVEX(asm.FromGPR32, asm.ZMM, zmmT0, 0, asm.InReg(asm.RAX), asm.Masked{})
		if k.Stride != 0 {
			c.EVEX(asm.Vpaddd, asm.ZMM, zmmT0, zmmT0, c.strides(16*k.Stride), asm.Masked{})
		}
		c.EVEX(asm.Vstore32, asm.ZMM, zmmT0, 0, bases(r, 0), asm.Masked{})
		return
	}
	c.EVEX(asm.FromGPR64, asm.ZMM, zmmT0, 0, asm.InReg(asm.RAX), asm.Masked{})
	for half := range 2 {
		from := zmmT0
		if k.Stride != 0 {
			from = zmmT1
			c.EVEX(asm.Vpaddq, asm.ZMM, from, zmmT0, c.strides64(16*k.Stride, half), asm.Masked{})
		}
		c.EVEX(asm.Vstore64, asm.ZMM, from, 0, bases(r, half), asm.Masked{})
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
		"add.b32": uniformBinary(asm.OpAdd), "add.b64": uniformBinary(asm.OpAdd), "sub.b32": uniformBinary(asm.OpSub), "sub.b64": uniformBinary(asm.OpSub),
		"and.b32": uniformBinary(asm.OpAnd), "and.b64": uniformBinary(asm.OpAnd), "or.b32": uniformBinary(asm.OpOr), "or.b64": uniformBinary(asm.OpOr),
		"xor.b32": uniformBinary(asm.OpXor), "xor.b64": uniformBinary(asm.OpXor), "mul.lo.b32": uniformBinary(asm.OpMul), "mul.lo.b64": uniformBinary(asm.OpMul),
		"mad.lo.b32": uniformMad, "mad.lo.b64": uniformMad, "neg.s32": uniformNegate, "neg.s64": uniformNegate,
		"shl.b32": uniformShift(4), "shl.b64": uniformShift(4), "shr.u32": uniformShift(5), "shr.u64": uniformShift(5),
		"shr.s32": uniformShift(7), "shr.s64": uniformShift(7),
		"cvt.s64.s32": uniformExtend(asm.OpMovsx), "cvt.u64.s32": uniformExtend(asm.OpMovsx), "cvt.u64.u32": uniformExtend(asm.OpMov), "cvt.s64.u32": uniformExtend(asm.OpMov),
		"cvt.u32.u64": uniformNarrow, "cvt.s32.s64": uniformNarrow, "cvt.u32.s64": uniformNarrow, "cvt.s32.u64": uniformNarrow,
		"mul.wide.s32": uniformWide(asm.OpMovsx), "mul.wide.u32": uniformWide(asm.OpMov), "mad.wide.s32": uniformWide(asm.OpMovsx), "mad.wide.u32": uniformWide(asm.OpMov),
	}
}

func uniformBinary(opcode []byte) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.Legacy(s.wide(), asm.OpMov, asm.RAX, home(s.Op.Sources[0]))
		if opcode != nil {
			c.Legacy(s.wide(), opcode, asm.RAX, home(s.Op.Sources[1]))
		}
		c.setUniform(s.D, s.kind)
	}
}

func uniformMad(c *compiler, s *step) {
	c.Legacy(s.wide(), asm.OpMov, asm.RAX, home(s.Op.Sources[0]))
	c.Legacy(s.wide(), asm.OpMul, asm.RAX, home(s.Op.Sources[1]))
	c.Legacy(s.wide(), asm.OpAdd, asm.RAX, home(s.Op.Sources[2]))
	c.setUniform(s.D, s.kind)
}

func uniformNegate(c *compiler, s *step) {
	c.Legacy(s.wide(), asm.OpMov, asm.RAX, home(s.Op.Sources[0]))
	c.Legacy(s.wide(), []byte{0xf7}, 3, asm.InReg(asm.RAX)) // neg
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
		c.Legacy(s.wide(), asm.OpMov, asm.RAX, home(s.Op.Sources[0]))
		switch {
		case by < width:
			c.Shift(s.wide(), which, asm.RAX, uint8(by))
		case which == 7:
			c.Shift(s.wide(), which, asm.RAX, uint8(width-1))
		default:
			c.Set(asm.RAX, 0)
		}
		c.setUniform(s.D, s.kind)
	}
}

func uniformExtend(opcode []byte) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.extend(opcode, asm.RAX, s, 0)
		c.setUniform(s.D, s.kind)
	}
}

// extend gets the base of a 32-bit source, extended to 64 bits, into a register. A
// linear source must not wrap around, as a signed or unsigned number, from the first
// active lane to the last; the base is then the one that gives these lanes their
// values.
func (c *compiler) extend(opcode []byte, to int, s *step, source int) {
	signed := &opcode[0] == &asm.OpMovsx[0]
	r, k := s.Op.Sources[source], s.sources[source]
	if k.Form != Linear {
		c.Legacy(signed, opcode, to, home(r))
		return
	}
	c.ends(r, k, asm.RCX, asm.RDI)
	c.Legacy(false, asm.OpCmp, asm.RDI, asm.InReg(asm.RCX))
	c.JumpIf(descends(k, signed), c.failed())
	c.Legacy(signed, opcode, to, asm.InReg(asm.RCX))
	c.timesStride(true, asm.RCX, offFirstLane, k)
	c.Legacy(true, asm.OpSub, to, asm.InReg(asm.RCX))
}

// ends gets the values of a linear 32-bit register in the first and in the last active
// lane.
func (c *compiler) ends(r Ref, k Kind, first, last int) {
	c.timesStride(false, first, offFirstLane, k)
	c.timesStride(false, last, offLastLane, k)
	c.Legacy(false, asm.OpAdd, first, home(r))
	c.Legacy(false, asm.OpAdd, last, home(r))
}

// timesStride gets the lane at an offset of the frame, times a stride.
func (c *compiler) timesStride(wide bool, to, lane int, k Kind) {
	c.Legacy(wide, []byte{0x69}, to, asm.At(regFrame, lane), binary.LittleEndian.AppendUint32(nil, uint32(k.Stride))...) // imul
}

// descends is the condition under which the last lane, compared with the first, shows
// that a register with a stride wraps around in between.
func descends(k Kind, signed bool) uint8 {
	switch {
	case signed && k.Stride > 0:
		return asm.Less
	case signed:
		return asm.Greater
	case k.Stride > 0:
		return asm.Below
	}
	return asm.Above
}

func uniformNarrow(c *compiler, s *step) {
	c.Legacy(false, asm.OpMov, asm.RAX, home(s.Op.Sources[0]))
	c.setUniform(s.D, s.kind)
}

func uniformWide(opcode []byte) func(*compiler, *step) {
	return func(c *compiler, s *step) {
		c.extend(opcode, asm.RAX, s, 0)
		c.extend(opcode, asm.RDX, s, 1)
		c.Legacy(true, asm.OpMul, asm.RAX, asm.InReg(asm.RDX))
		if len(s.Op.Sources) == 3 {
			c.Legacy(true, asm.OpAdd, asm.RAX, home(s.Op.Sources[2]))
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
		return asm.Equal
	case "ne":
		return asm.NotEqual
	}
	cc := [...]uint8{asm.Below, asm.BelowEqual, asm.Above, asm.AboveEqual}
	if signed {
		cc = [...]uint8{asm.Less, asm.LessEqual, asm.Greater, asm.GreaterEqual}
	}
	return cc[slices.Index([]string{"lt", "le", "gt", "ge"}, cmp)]
}

// compareUniform compares uniform values: all lanes get one answer.
func (c *compiler) compareUniform(s *step) {
	cmp, signed, bits, _ := condition(s.Name)
	wide := bits == "64"
	cc := conditionCode(cmp, signed)
	c.Legacy(wide, asm.OpMov, asm.RDX, home(s.Op.Sources[0]))
	c.Set(asm.RAX, 0)
	c.Legacy(wide, asm.OpCmp, asm.RDX, home(s.Op.Sources[1]))
	c.Plain("set"+asm.Conditions[cc]+" al", 0x0f, 0x90|cc, 0xc0)
	c.Legacy(true, []byte{0xf7}, 3, asm.InReg(asm.RAX)) // neg
	c.setAll(s)
}

// setAll gives all lanes of a predicate the answers in rax, which are those of 64 lanes and
// hold for all others, too: 0 or -1, or those of one chunk repeated.
func (c *compiler) setAll(s *step) {
	c.EVEX(asm.FromGPR64, asm.YMM, zmmT0, 0, asm.InReg(asm.RAX), asm.Masked{}) // vpbroadcastq
	p := asm.At(regPreds, int(s.D.Slot)*32)
	if !s.Private {
		c.EVEX(asm.Vload64, asm.YMM, zmmT1, 0, asm.At(regFrame, offMask), asm.Masked{})
		// Lanes outside the mask keep their bits.
		c.EVEX(asm.Vpternlogq, asm.YMM, zmmT1, zmmT0, p, asm.Masked{}, 0xca) // vpternlogq: mask ? answer : old
		c.EVEX(asm.Vstore64, asm.YMM, zmmT1, 0, p, asm.Masked{})
		return
	}
	c.EVEX(asm.Vstore64, asm.YMM, zmmT0, 0, p, asm.Masked{})
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
			c.VEX(asm.Kunpckbw, true, 4, 5, asm.InReg(4))
		}
		c.VEX(asm.KmovwToR, false, asm.RAX, 0, asm.InReg(4))
		c.Set(asm.RDX, 0x0001000100010001)
		c.Legacy(true, asm.OpMul, asm.RAX, asm.InReg(asm.RDX))
		c.setAll(s)
		return
	}
	var mixed, done asm.Label
	if bits == "32" && cmp != "eq" && cmp != "ne" {
		first, last := [...]int{asm.RAX, asm.RDX}, [...]int{asm.RCX, asm.RSI}
		for i, r := range s.Op.Sources {
			k := s.sources[i]
			if k.Form == Uniform {
				c.Legacy(false, asm.OpMov, first[i], home(r))
				last[i] = first[i]
				continue
			}
			c.ends(r, k, first[i], last[i])
			c.Legacy(false, asm.OpCmp, last[i], asm.InReg(first[i]))
			c.JumpIf(descends(k, signed), &mixed)
		}
		cc := conditionCode(cmp, signed)
		var some asm.Label
		c.Legacy(false, asm.OpCmp, first[0], asm.InReg(first[1]))
		c.JumpIf(cc, &some)
		c.Legacy(false, asm.OpCmp, last[0], asm.InReg(last[1]))
		c.JumpIf(cc, &mixed)
		c.Set(asm.RAX, 0)
		c.setAll(s)
		c.Jump(&done)
		c.Bind(&some)
		c.Legacy(false, asm.OpCmp, last[0], asm.InReg(last[1]))
		c.JumpIf(cc^1, &mixed)                                                      // the opposite
		c.Legacy(true, []byte{0xc7}, 0, asm.InReg(asm.RAX), 0xff, 0xff, 0xff, 0xff) // mov rax, -1
		c.setAll(s)
		c.Jump(&done)
		c.Bind(&mixed)
	}
	c.rounds(func() { c.compareLanes(s, op, how) })
	c.Bind(&done)
}

// compareChunked compares chunked registers. For an order of 32-bit numbers it first
// compares the first and the last lane of each chunk: if no source wraps around
// along a chunk, the answer changes at most once in between. If all active chunks
// have the same answer at both ends, all lanes have it, which is the usual case of a
// bounds check. Else all lanes are compared.
func (c *compiler) compareChunked(s *step) {
	cmp, _, bits, _ := condition(s.Name)
	op, how, _ := comparison(s.Name)
	var mixed, none, done asm.Label
	if bits == "32" && cmp != "eq" && cmp != "ne" {
		for i, r := range s.Op.Sources {
			first, last := zmmT0+i, zmmT2+i
			c.chunkLoad(first, r, s.sources[i], 0)
			stride := s.sources[i].Stride
			if stride == 0 {
				c.EVEX(asm.Vload64, asm.ZMM, last, 0, asm.InReg(first), asm.Masked{})
				continue
			}
			c.EVEX(asm.Vpaddd, asm.ZMM, last, first, c.Word32(uint32(15*stride)), asm.Masked{})
			wrong := byte(1)
			if stride < 0 {
				wrong = 6
			}
			c.EVEX(op, asm.ZMM, 5, last, asm.InReg(first), asm.Masked{}, wrong)
			c.VEX(asm.KmovwToR, false, asm.RAX, 0, asm.InReg(5))
			c.Legacy(true, asm.OpAnd, asm.RAX, asm.At(regFrame, offActiveChunks))
			c.JumpIf(asm.NotEqual, &mixed)
		}
		c.EVEX(op, asm.ZMM, 5, zmmT0, asm.InReg(zmmT1), asm.Masked{}, how)
		c.EVEX(op, asm.ZMM, 6, zmmT2, asm.InReg(zmmT3), asm.Masked{}, how)
		c.Legacy(true, asm.OpMov, asm.RDI, asm.At(regFrame, offActiveChunks))
		c.VEX(asm.Korw, true, 7, 5, asm.InReg(6))
		c.VEX(asm.KmovwToR, false, asm.RAX, 0, asm.InReg(7))
		c.Legacy(false, []byte{0x85}, asm.RDI, asm.InReg(asm.RAX)) // test
		c.JumpIf(asm.Equal, &none)
		c.VEX(asm.Kandw, true, 7, 5, asm.InReg(6))
		c.VEX(asm.KmovwToR, false, asm.RAX, 0, asm.InReg(7))
		c.Legacy(false, asm.OpAnd, asm.RAX, asm.InReg(asm.RDI))
		c.Legacy(false, asm.OpCmp, asm.RAX, asm.InReg(asm.RDI))
		c.JumpIf(asm.NotEqual, &mixed)
		c.Legacy(true, []byte{0xc7}, 0, asm.InReg(asm.RAX), 0xff, 0xff, 0xff, 0xff) // mov rax, -1
		c.setAll(s)
		c.Jump(&done)
		c.Bind(&none)
		c.Set(asm.RAX, 0)
		c.setAll(s)
		c.Jump(&done)
		c.Bind(&mixed)
	}
	c.rounds(func() { c.compareLanes(s, op, how) })
	c.Bind(&done)
}

// compareLanes compares the lanes of a round, in scratch registers only: it runs
// outside the section's loop, where no value is held in registers.
func (c *compiler) compareLanes(s *step, op asm.Coding, how byte) {
	class := s.Op.Sources[0].Class
	for part := range parts(class) {
		c.comparePart(s, op, how, part)
	}
	c.gatherBits(class)
	c.setPredicate(s)
}

// comparePart compares a part of a round's lanes; the answers are in k4 for part 0, and so on.
func (c *compiler) comparePart(s *step, op asm.Coding, how byte, part int) {
	for i, r := range s.Op.Sources {
		k := s.sources[i]
		if k.Form != Uniform {
			c.expand(r, k, part, zmmT0+i)
			continue
		}
		one := asm.Vpbroadcastd
		if r.Class == Bits64 {
			one = asm.Vpbroadcastq
		}
		c.EVEX(one, asm.ZMM, zmmT0+i, 0, home(r), asm.Masked{})
	}
	c.EVEX(op, asm.ZMM, 4+part, zmmT0, asm.InReg(zmmT1), asm.Masked{}, how)
}

// spread is a uniform or chunked register as an operand of an instruction on
// the bases of all chunks.
func (c *compiler) spread(r Ref, k Kind, part int) asm.Place {
	if k.Form == Uniform {
		p := home(r)
		p.Bcast = true
		return p
	}
	return bases(r, part)
}

// chunkLoad gets the bases of a source into a vector register.
func (c *compiler) chunkLoad(reg int, r Ref, k Kind, part int) {
	p := c.spread(r, k, part)
	load, one := asm.Vload32, asm.Vpbroadcastd
	if r.Class == Bits64 {
		load, one = asm.Vload64, asm.Vpbroadcastq
	}
	if p.Bcast {
		p.Bcast = false
		c.EVEX(one, asm.ZMM, reg, 0, p, asm.Masked{})
		return
	}
	c.EVEX(load, asm.ZMM, reg, 0, p, asm.Masked{})
}

// chunkedOp computes the bases of all chunks at once.
func (c *compiler) chunkedOp(s *step) {
	if s.widens() {
		c.checkSteady(s)
	}
	parts, add, sub, mul := 1, asm.Vpaddd, asm.Vpsubd, asm.Vpmulld
	if s.wide() {
		parts, add, sub, mul = 2, asm.Vpaddq, asm.Vpsubq, asm.Vpmullq
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
				c.EVEX(asm.Vpmovqd, asm.ZMM, zmmT1, 0, asm.InReg(zmmT2+half), asm.Masked{})
			}
			c.EVEX(asm.Vinserti64x4, asm.ZMM, d, zmmT2, asm.InReg(zmmT3), asm.Masked{}, 1)
		case "cvt.s64.s32", "cvt.u64.s32", "cvt.u64.u32", "cvt.s64.u32":
			c.chunkWiden(d, src[0], k[0], part, strings.HasSuffix(s.Name, "s32"))
		case "add.b32", "add.b64":
			c.chunkLoad(d, src[0], k[0], part)
			c.EVEX(add, asm.ZMM, d, d, c.spread(src[1], k[1], part), asm.Masked{})
		case "sub.b32", "sub.b64":
			c.chunkLoad(d, src[0], k[0], part)
			c.EVEX(sub, asm.ZMM, d, d, c.spread(src[1], k[1], part), asm.Masked{})
		case "neg.s32", "neg.s64":
			c.EVEX(asm.Vpxord, asm.ZMM, d, d, asm.InReg(d), asm.Masked{})
			c.EVEX(sub, asm.ZMM, d, d, c.spread(src[0], k[0], part), asm.Masked{})
		case "shl.b32", "shl.b64":
			by, _ := c.literal(s, 1)
			c.chunkLoad(d, src[0], k[0], part)
			if s.wide() {
				c.EVEX(asm.Vpsllvq, asm.ZMM, d, d, c.Word64(uint64(by)), asm.Masked{})
			} else {
				c.EVEX(asm.Vpsllvd, asm.ZMM, d, d, c.Word32(uint32(by)), asm.Masked{})
			}
		case "mul.lo.b32", "mul.lo.b64", "mad.lo.b32", "mad.lo.b64":
			c.chunkLoad(d, src[0], k[0], part)
			c.EVEX(mul, asm.ZMM, d, d, c.spread(src[1], k[1], part), asm.Masked{})
			if len(src) == 3 {
				c.EVEX(add, asm.ZMM, d, d, c.spread(src[2], k[2], part), asm.Masked{})
			}
		default: // mul.wide and mad.wide
			signed := strings.HasSuffix(s.Name, "s32")
			c.chunkWiden(d, src[0], k[0], part, signed)
			c.chunkWiden(zmmT2, src[1], k[1], part, signed)
			c.EVEX(asm.Vpmullq, asm.ZMM, d, d, asm.InReg(zmmT2), asm.Masked{})
			if len(src) == 3 {
				c.EVEX(asm.Vpaddq, asm.ZMM, d, d, c.spread(src[2], k[2], part), asm.Masked{})
			}
		}
	}
	for part := range parts {
		store := asm.Vstore32
		if s.wide() {
			store = asm.Vstore64
		}
		c.EVEX(store, asm.ZMM, zmmT0+part, 0, bases(s.D, part), asm.Masked{})
	}
}

// chunkWiden gets half of the bases of a 32-bit source as 64 bits.
func (c *compiler) chunkWiden(reg int, r Ref, k Kind, part int, signed bool) {
	op := asm.Vpmovzxdq
	if signed {
		op = asm.Vpmovsxdq
	}
	if k.Form == Uniform {
		c.EVEX(asm.Vpbroadcastd, asm.ZMM, zmmT3, 0, home(r), asm.Masked{})
		c.EVEX(op, asm.ZMM, reg, 0, asm.InReg(zmmT3), asm.Masked{})
		return
	}
	p := bases(r, 0)
	p.Disp += int32(part) * 32
	c.EVEX(op, asm.ZMM, reg, 0, p, asm.Masked{})
}

// checkSteady emits the check that no active chunk of a source wraps around, as a
// signed or unsigned number. Strides are small enough that a wrap shows in the order
// of the first and the last lane.
func (c *compiler) checkSteady(s *step) {
	compare := asm.Vpcmpud
	if strings.HasSuffix(s.Name, "s32") {
		compare = asm.Vpcmpd
	}
	for i, r := range s.Op.Sources {
		k := s.sources[i]
		if r.Class != Bits32 || k.Stride == 0 {
			continue
		}
		c.EVEX(asm.Vload32, asm.ZMM, zmmT0, 0, bases(r, 0), asm.Masked{})
		c.EVEX(asm.Vpaddd, asm.ZMM, zmmT1, zmmT0, c.Word32(uint32(15*k.Stride)), asm.Masked{})
		wrong := byte(1) // the last lane is less than the first
		if k.Stride < 0 {
			wrong = 6
		}
		c.EVEX(compare, asm.ZMM, 5, zmmT1, asm.InReg(zmmT0), asm.Masked{}, wrong)
		c.VEX(asm.KmovdToR, false, asm.RAX, 0, asm.InReg(5))
		c.Legacy(true, asm.OpAnd, asm.RAX, asm.At(regFrame, offActiveChunks))
		c.JumpIf(asm.NotEqual, c.failed())
	}
}
