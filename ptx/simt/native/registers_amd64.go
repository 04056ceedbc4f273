//go:build linux && amd64

package native

import (
	"encoding/binary"
	"slices"

	"muster/ptx/simt/native/asm"
)

// The vector registers within a section's loop. The 32 lanes of a round take two of
// them for a 32-bit value, four for a 64-bit one. A value for which there is no room
// is stored at its place in the gang's arrays, and loaded again from there.

// held is a register of the kernel that is in vector registers.
type held struct {
	ref   Ref
	regs  []int
	dirty bool // the value in memory is older
	last  int  // the instruction of the loop that used it last
}

// event is a use of a register by the loop's instruction at a position.
type event struct {
	at      int
	written bool
}

// uses is what is known of a register during a loop.
type uses struct {
	held   *held // nil if it is not in vector registers
	events []event
	past   int // how many of events lie before the current position
	lastly int // position at which the loop writes the register last
}

type registers struct {
	uses   table[uses]
	taken  [valueRegs]bool
	at     int   // position of the current instruction in the loop
	ending int32 // the instruction behind the section
	spare  []int // from which allocate takes its results
}

// loop emits the instructions that are done for the lanes of each warp.
func (c *compiler) loop(steps []*step, behind int32) {
	c.registers = registers{uses: c.registers.uses, spare: c.spare, ending: behind}
	for _, row := range c.registers.uses {
		for i := range row {
			row[i] = uses{events: row[i].events[:0]}
		}
	}
	note := func(r Ref, at int, written bool) *uses {
		u := c.of(r)
		u.events = append(u.events, event{at, written})
		return u
	}
	for i, s := range steps {
		for _, r := range s.Reads {
			note(r, i, false)
		}
		if s.Guard >= 0 {
			for _, r := range s.Writes {
				note(r, i, false)
			}
		}
		for _, r := range s.Writes {
			note(r, i, true).lastly = i
		}
	}
	for i, s := range steps {
		s.anyNaN = c.hidesNaN(steps, i)
	}
	c.EVEX(asm.Vpbroadcastd, asm.ZMM, zmmNaN, 0, unbroadcast(c.Word32(0x7fffffff)), asm.Masked{})
	c.Purpose(steps[0].index, "loop over warps")
	c.rounds(func() {
		for i, s := range steps {
			c.at = i
			c.Purpose(s.index, "")
			vectorOp(s)(c, s)
			c.release(s.Reads)
			c.release(s.Writes)
		}
	})
}

// rounds emits a loop over the warps of a gang that have active lanes. The body finds
// the mask of the 32 lanes in k1, and that of the upper 16 in k2.
func (c *compiler) rounds(body func()) {
	var top, next asm.Label
	c.Legacy(false, asm.OpXor, regLane, asm.InReg(regLane))
	c.Legacy(false, asm.OpXor, regChunk, asm.InReg(regChunk))
	c.Bind(&top)
	c.Legacy(false, asm.OpMov, asm.RAX, asm.Indexed(regFrame, regChunk, 1, offMask))
	c.Legacy(false, []byte{0x85}, asm.RAX, asm.InReg(asm.RAX)) // test
	c.JumpIf(asm.Equal, &next)
	c.VEX(asm.KmovdFromR, false, kMask, 0, asm.InReg(asm.RAX))
	c.shiftMask(kHigh, kMask, 16)
	op, role := c.Op, c.Role
	body()
	c.Purpose(op, role)
	c.Bind(&next)
	c.Immediate(true, 0, asm.InReg(regLane), 128)
	c.Immediate(true, 0, asm.InReg(regChunk), 2)
	c.Legacy(true, asm.OpCmp, regChunk, asm.At(regFrame, offChunks))
	c.JumpIf(asm.Below, &top)
}

func (c *compiler) shiftMask(to, from, by uint8) {
	c.VEX(asm.Kshiftrd, false, int(to), 0, asm.InReg(int(from)), by)
}

// half returns a mask register with the bits of 16 lanes, given that of 32.
func (c *compiler) half(k uint8, part int) uint8 {
	switch {
	case part == 0:
		return k
	case k == kMask:
		return kHigh
	}
	c.shiftMask(7, k, 16)
	return 7
}

// quarter returns a mask register with the bits of 8 lanes.
func (c *compiler) quarter(k uint8, part int) uint8 {
	if part == 0 {
		return k
	}
	c.shiftMask(7, k, uint8(8*part))
	return 7
}

// partMask is half or quarter, by the width of values.
func (c *compiler) partMask(k uint8, class Class, part int) uint8 {
	if class == Bits64 {
		return c.quarter(k, part)
	}
	return c.half(k, part)
}

// predicate returns where a round's bits of a predicate lie.
func predicate(slot int32) asm.Place { return asm.Indexed(regPreds, regChunk, 1, int(slot)*32) }

// guardMask returns the mask register of the lanes in which an instruction
// runs.
func (c *compiler) guardMask(s *step) uint8 {
	if s.Guard < 0 {
		return kMask
	}
	c.VEX(asm.Kmovd, false, 3, 0, predicate(s.Guard))
	op := asm.Kandd
	if s.GuardNot {
		op.Op = 0x42 // kandnd
	}
	c.VEX(op, true, 3, 3, asm.InReg(kMask))
	return 3
}

// lanes returns where a part of a round's lanes lies in the gang's arrays.
func lanes(r Ref, part int) asm.Place {
	if r.Class == Bits64 {
		return asm.Indexed(regValues64, regLane, 1, int(r.Slot)*Pitch*8+part*64)
	}
	return asm.Indexed(regValues32, regLane, 0, int(r.Slot)*Pitch*4+part*64)
}

func parts(class Class) int {
	if class == Bits64 {
		return 4
	}
	return 2
}

func unbroadcast(p asm.Place) asm.Place {
	p.Bcast = false
	return p
}

// nextUse returns where the loop reads a register next, behind the current position;
// -1 if it writes it first, or never uses it again.
func (c *compiler) nextUse(r Ref) int {
	u := c.of(r)
	for u.past < len(u.events) && u.events[u.past].at <= c.at {
		u.past++
	}
	if u.past == len(u.events) || u.events[u.past].written {
		return -1
	}
	return u.events[u.past].at
}

// of returns what is known of a register.
func (c *compiler) of(r Ref) *uses { return c.registers.uses.at(r) }

// allocate finds n vector registers. If too few are free it evicts values.
func (c *compiler) allocate(n int) []int {
	if len(c.spare) < n {
		c.spare = make([]int, 1024)
	}
	regs := c.spare[:0:n]
	c.spare = c.spare[n:]
	for r := 0; r < valueRegs && len(regs) < n; r++ {
		if !c.taken[r] {
			c.taken[r] = true
			regs = append(regs, r)
		}
	}
	for len(regs) < n {
		c.evict()
		regs = append(regs, c.allocate(n-len(regs))...)
	}
	return regs
}

// evict frees the registers of the value whose next use is farthest (Belady's rule),
// but never one that the current instruction uses.
func (c *compiler) evict() {
	var worst *held
	far := -1
	for _, h := range c.sorted() {
		if h.last == c.at {
			continue
		}
		if next := c.nextUse(h.ref); next > far {
			worst, far = h, next
		}
	}
	if worst == nil {
		panic(tooMany("an instruction needs more registers than there are"))
	}
	if worst.dirty {
		c.spill(worst)
	}
	c.drop(worst)
}

// sorted returns what is held in a fixed order, so that a kernel always becomes the
// same code.
func (c *compiler) sorted() []*held {
	var list []*held
	for _, row := range c.registers.uses {
		for i := range row {
			if h := row[i].held; h != nil {
				list = append(list, h)
			}
		}
	}
	slices.SortFunc(list, func(x, y *held) int { return x.regs[0] - y.regs[0] })
	return list
}

func (c *compiler) drop(h *held) {
	for _, r := range h.regs {
		c.taken[r] = false
	}
	c.of(h.ref).held = nil
}

// spill stores a value's active lanes at its place.
func (c *compiler) spill(h *held) {
	op := asm.Vstore32
	if h.ref.Class == Bits64 {
		op = asm.Vstore64
	}
	for part, r := range h.regs {
		c.EVEX(op, asm.ZMM, r, 0, lanes(h.ref, part), asm.Masked{K: c.partMask(kMask, h.ref.Class, part)})
	}
	h.dirty = false
}

// release frees those of an instruction's registers that the loop does not read
// again. settle has stored what is live behind the loop.
func (c *compiler) release(refs []Ref) {
	for _, r := range refs {
		if h := c.of(r).held; h != nil && c.nextUse(r) < 0 {
			c.drop(h)
		}
	}
}

// get returns the vector registers that hold a source.
func (c *compiler) get(r Ref, k Kind) []int {
	if h := c.of(r).held; h != nil {
		h.last = c.at
		return h.regs
	}
	h := &held{ref: r, last: c.at}
	h.regs = c.allocate(parts(r.Class))
	c.of(r).held = h
	load, one := asm.Vload32, asm.Vpbroadcastd
	if r.Class == Bits64 {
		load, one = asm.Vload64, asm.Vpbroadcastq
	}
	for part, reg := range h.regs {
		switch k.Form {
		case Uniform:
			if part == 0 {
				c.EVEX(one, asm.ZMM, reg, 0, home(r), asm.Masked{})
			} else {
				c.EVEX(asm.Vload64, asm.ZMM, reg, 0, asm.InReg(h.regs[0]), asm.Masked{})
			}
		case Linear, Chunked:
			c.expand(r, k, part, reg)
		default:
			c.EVEX(load, asm.ZMM, reg, 0, lanes(r, part), asm.Masked{})
		}
	}
	return h.regs
}

// expand computes the lanes of a linear or chunked register. It may use rdx.
func (c *compiler) expand(r Ref, k Kind, part, reg int) {
	if k.Form == Linear && c.Several { // all chunks alike
		if r.Class == Bits32 {
			c.EVEX(asm.Vpbroadcastd, asm.ZMM, reg, 0, home(r), asm.Masked{})
			c.EVEX(asm.Vpaddd, asm.ZMM, reg, reg, c.strides(k.Stride), asm.Masked{})
		} else {
			c.EVEX(asm.Vpbroadcastq, asm.ZMM, reg, 0, home(r), asm.Masked{})
			c.EVEX(asm.Vpaddq, asm.ZMM, reg, reg, c.strides64(k.Stride, part%2), asm.Masked{})
		}
		return
	}
	if k.Form == Linear {
		c.Legacy(true, []byte{0x69}, asm.RDX, asm.InReg(regChunk), binary.LittleEndian.AppendUint32(nil, uint32(16*k.Stride))...) // imul
		c.Legacy(r.Class == Bits64, asm.OpAdd, asm.RDX, home(r))
		if r.Class == Bits32 {
			c.EVEX(asm.FromGPR32, asm.ZMM, reg, 0, asm.InReg(asm.RDX), asm.Masked{})
			c.EVEX(asm.Vpaddd, asm.ZMM, reg, reg, c.stridesFrom(16*part, k.Stride), asm.Masked{})
		} else {
			c.EVEX(asm.FromGPR64, asm.ZMM, reg, 0, asm.InReg(asm.RDX), asm.Masked{})
			c.EVEX(asm.Vpaddq, asm.ZMM, reg, reg, c.strides64(k.Stride, part), asm.Masked{})
		}
		return
	}
	if r.Class == Bits32 {
		c.EVEX(asm.Vpbroadcastd, asm.ZMM, reg, 0, asm.Indexed(regBases32, regChunk, 2, int(r.Slot)*ChunkPitch*4+part*4), asm.Masked{})
		if k.Stride != 0 {
			c.EVEX(asm.Vpaddd, asm.ZMM, reg, reg, c.strides(k.Stride), asm.Masked{})
		}
		return
	}
	c.EVEX(asm.Vpbroadcastq, asm.ZMM, reg, 0, asm.Indexed(regBases64, regChunk, 3, int(r.Slot)*ChunkPitch*8+part/2*8), asm.Masked{})
	if k.Stride != 0 {
		c.EVEX(asm.Vpaddq, asm.ZMM, reg, reg, c.strides64(k.Stride, part%2), asm.Masked{})
	}
}

// operand returns a part of a source as the last operand of an instruction: in a
// register, or in memory if loading it into a register would not pay.
func (c *compiler) operand(r Ref, k Kind, part int) asm.Place {
	if c.of(r).held == nil {
		switch {
		case k.Form == Uniform:
			p := home(r)
			p.Bcast = true
			return p
		case k.Form == Vector && c.nextUse(r) < 0:
			return lanes(r, part)
		}
	}
	return asm.InReg(c.get(r, k)[part])
}

// fresh returns vector registers for a destination.
func (c *compiler) fresh(r Ref) []int { return c.allocate(parts(r.Class)) }

// settle ends an instruction whose result for register r is in d: lanes without the
// guard keep the old value, and the last write of a register that is live behind the
// loop is stored, in the active lanes.
func (c *compiler) settle(s *step, r Ref, d []int) {
	if s.Guard >= 0 {
		old := c.get(r, s.old)
		guard := c.guardMask(s)
		blend := asm.Vpblendmd
		if r.Class == Bits64 {
			blend.W = 1
		}
		for part, reg := range d {
			c.EVEX(blend, asm.ZMM, reg, old[part], asm.InReg(reg), asm.Masked{K: c.partMask(guard, r.Class, part)})
		}
	}
	if h := c.of(r).held; h != nil {
		c.drop(h)
	}
	h := &held{ref: r, regs: d, dirty: true, last: c.at}
	c.of(r).held = h
	if c.of(r).lastly == c.at && c.isNeeded(r, c.ending) {
		c.spill(h)
	}
}
