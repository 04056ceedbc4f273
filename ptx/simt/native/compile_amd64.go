//go:build linux && amd64

package native

import (
	"encoding/binary"
	"errors"
	"slices"
)

// The general registers while compiled code runs. rax, rdx and rdi are scratch; rsp
// and rbp are never touched.
const (
	regFrame    = rbx
	regLane     = rcx // the round's first lane, times 4
	regChunk    = rsi // the round's first chunk
	regValues32 = r8
	regValues64 = r9
	regBases32  = r10
	regBases64  = r11
	regForms32  = r12
	regForms64  = r13
	regPreds    = r14
	regWait     = r15 // the last of the frame's Waits
)

// The first 27 vector registers hold the kernel's values. zmmNaN has the canonical
// NaN of f32 while a section loops; the rest are scratch.
const (
	valueRegs = 27
	zmmNaN    = 27
	zmmT0     = 28
	zmmT1     = 29
	zmmT2     = 30
	zmmT3     = 31
)

// Mask registers: k1 is the mask of the round's 32 lanes, k2 that of its second
// half; the rest are scratch.
const (
	kMask = 1
	kHigh = 2
)

// compiler turns a kernel into code.
type compiler struct {
	assembler
	analysis
	code          *Code
	heads         []label // by the first instruction of a basic block
	exits         map[exit]*label
	order         []exit  // the keys of exits, in the order in which the code asked for them
	entries       []entry // where the caller may enter
	arrivals      []label // where jumps from other basic blocks come to a block
	merge, remask label   // routines
	turn          label   // the routine that begins the next block
	chained       bool    // the code begins the next block itself
	first         int32   // begin of the current basic block
	section
	registers
}

// exit is where and why code returns.
type exit struct {
	reason Reason
	at     int32
	undo   int32 // instructions that were charged and will not run: given back to the budget
}

// entry is where code may be entered.
type entry struct {
	pc   int32
	head bool
	to   *label
}

// maxOps is how many instructions a compiled kernel may have.
const maxOps = 20000

// tooMany is the panic of a compiler that has too few registers; Compile recovers.
type tooMany string

// Compile makes code of a kernel: first the kinds of all registers, then the code
// of all instructions in order, then the ways out and in, which need labels of all.
func Compile(k *Kernel) (code *Code, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case tooMany:
			code, err = nil, errors.New(string(r))
		default:
			panic(r)
		}
	}()
	if !Supported() {
		return nil, errors.New("the processor has neither AVX-512 nor AVX2")
	}
	if len(k.Ops) > maxOps {
		return nil, errors.New("the kernel is too large to be compiled")
	}
	c := &compiler{analysis: analysis{Kernel: k}, heads: make([]label, len(k.Ops)), arrivals: make([]label, len(k.Ops)), exits: map[exit]*label{}}
	c.assembler.code = make([]byte, 0, 256*len(k.Ops))
	c.code = &Code{
		heads: fill(len(k.Ops), -1), sections: fill(len(k.Ops), -1), views: fill(len(k.Ops), -1), live: make([][]Value, len(k.Ops)+1), full: make([]bool, len(k.Ops)), left: make([]bool, len(k.Ops)),
	}
	c.wanted, c.narrow = k.Listed, k.Narrow || !supported.wide
	c.begin()
	c.registers.uses = newTable[uses](&c.slots)
	c.section.seen = newTable[uint8](&c.slots)
	c.findNeeded()
	c.findKinds()
	c.findLoops()
	c.purpose(-1, "lanes that waited join")
	c.routines()
	c.chained = k.Chained && c.startsFresh()
	if c.chained {
		c.purpose(-1, "the next block begins")
		c.beginTurn()
	}
	c.walk(c.instruction)
	for i := 0; i < len(c.order); i++ {
		if c.wanted {
			c.purpose(c.order[i].at, "return: "+c.order[i].reason.String())
		}
		c.leave(c.order[i])
	}
	for _, e := range c.entries {
		c.purpose(e.pc, "entry")
		if e.head {
			c.code.heads[e.pc] = c.enter(e.to)
		} else {
			c.code.sections[e.pc] = c.enter(e.to)
		}
	}
	end := len(c.assembler.code)
	bytes := c.finish()
	text, err := newText(bytes)
	if err != nil {
		return nil, err
	}
	c.code.text = text
	c.code.listing = c.notes.listing(bytes, end)
	return c.code, nil
}

func fill(n int, v int32) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// exit returns the label of the code that returns with a reason; leave emits that
// code, once for all jumps to it.
func (c *compiler) exit(e exit) *label {
	if l := c.exits[e]; l != nil {
		return l
	}
	c.exits[e] = &label{}
	c.order = append(c.order, e)
	return c.exits[e]
}

func (c *compiler) leave(e exit) {
	c.bind(c.exits[e])
	if e.undo > 0 {
		c.immediate(true, 0, at(regFrame, offBudget), e.undo)
	}
	c.store32(offAt, uint32(e.at))
	c.store32(offReason, uint32(e.reason))
	c.legacy(true, opSub, regWait, inReg(regFrame))
	c.legacy(true, opStore, regWait, at(regFrame, offTop))
	c.plain("ret", 0xc3)
}

func (c *compiler) store32(offset int, v uint32) {
	c.legacy(false, []byte{0xc7}, 0, at(regFrame, offset), binary.LittleEndian.AppendUint32(nil, v)...)
}

// head returns the label of a basic block.
func (c *compiler) head(pc int32) *label { return &c.heads[pc] }

// enter emits an entry: it loads the fixed registers from the frame and jumps to a
// label. No lanes wait at first.
func (c *compiler) enter(l *label) int32 {
	offset := int32(len(c.assembler.code))
	for _, r := range [...][2]int{
		{regValues32, offValues32}, {regValues64, offValues64}, {regBases32, offBases32}, {regBases64, offBases64},
		{regForms32, offForms32}, {regForms64, offForms64}, {regPreds, offPredicates},
	} {
		c.legacy(true, opMov, r[0], at(regFrame, r[1]))
	}
	c.legacy(true, opLea, regWait, at(regFrame, offWaits))
	c.jump(l)
	return offset
}

// instruction compiles an instruction. An ordinary one joins the open section. One
// that cannot be compiled, or that ends the block, first flushes the section: all
// results are then in memory, where the interpreter expects them.
func (c *compiler) instruction(s *step) {
	if s.Head {
		c.beginBlock(s.index)
	}
	switch {
	case s.Flow != FlowNone:
		c.flush(s.index)
		c.code.live[s.index] = c.values(s.index, true)
		c.purpose(s.index, "")
		c.terminator(s)
	case !c.can(s):
		c.flush(s.index)
		c.purpose(s.index, "left to the interpreter")
		c.code.left[s.index] = true
		c.jump(c.exit(exit{reason: Interpret, at: s.index}))
		c.code.live[s.index] = c.values(s.index, true)
		if s.index < s.End {
			c.open(s.index+1, false)
		}
	default:
		c.add(s)
	}
	if s.Flow == FlowNone && s.index == s.End {
		c.flush(s.index + 1)
		if c.can(s) {
			c.goTo(s.index + 1)
		}
	}
}

// beginBlock emits what a basic block begins with. It returns if live lanes are
// missing and the block writes a uniform or chunked register, which has no lanes of
// its own for those that are missing. Then it charges the budget for the block.
func (c *compiler) beginBlock(pc int32) {
	c.first = pc
	c.purpose(pc, "begin of a block")
	c.arrive(pc)
	c.bind(c.head(pc))
	c.entries = append(c.entries, entry{pc, true, c.head(pc)})
	n := c.Ops[pc].End - pc + 1
	if c.needsFull(pc) {
		c.code.full[pc] = true
		c.immediate(true, 7, at(regFrame, offFull), 0)
		c.jumpIf(ccEqual, c.exit(exit{reason: Partial, at: pc}))
	}
	c.immediate(true, 5, at(regFrame, offBudget), n)
	c.jumpIf(ccLess, c.exit(exit{reason: Exhausted, at: pc, undo: n}))
	c.legacy(true, []byte{0x69}, rax, at(regFrame, offLanes), binary.LittleEndian.AppendUint32(nil, uint32(n))...) // imul
	c.legacy(true, []byte{0x01}, rax, at(regFrame, offLaneOps))                                                    // add
	if c.Counted {
		c.legacy(true, opMov, rax, at(regFrame, offCounts))
		c.immediate(true, 0, at(rax, int(pc)*countBytes), 1)
		c.legacy(true, opMov, rdi, at(regFrame, offLanes))
		c.legacy(true, []byte{0x01}, rdi, at(rax, int(pc)*countBytes+countBytes/2))
	}
	c.open(pc, true)
}

// needsFull says whether a basic block writes a carried register as a whole, that
// is, a uniform or chunked one: the value would change for lanes that are not there.
func (c *compiler) needsFull(pc int32) bool {
	for i := pc; i <= c.Ops[pc].End; i++ {
		for _, r := range c.Ops[i].Writes {
			if r.Class != Predicate && c.isCarried(r) && c.kinds.at(r).Form != Vector {
				return true
			}
		}
	}
	return false
}

// terminator emits the end of a basic block.
func (c *compiler) terminator(s *step) {
	finish := c.exit(exit{reason: Finish, at: s.index})
	switch s.Flow {
	case FlowJump:
		c.goTo(s.Target)
	case FlowBranch:
		c.branch(s, finish)
	case FlowBarrier:
		// If all live threads of the team are in Mask, no thread has to wait.
		c.immediate(true, 7, at(regFrame, offBarriers), 0)
		c.jumpIf(ccEqual, finish)
		c.immediate(true, 7, at(regFrame, offFull), 0)
		c.jumpIf(ccEqual, finish)
		c.immediate(false, 7, at(regWait, 0), -1)
		c.jumpIf(ccNotEqual, finish)
		c.goTo(s.index + 1)
	case FlowExit:
		if c.chained {
			c.takeTurn(finish)
			return
		}
		c.jump(finish)
	default:
		c.jump(finish)
	}
}

// The instructions on masks of a gang.
var (
	vmovdqu      = coding{2, 1, 0, 0x6f}
	vmovdquStore = coding{2, 1, 0, 0x7f}
	vpand        = coding{1, 1, 0, 0xdb}
	vpandn       = coding{1, 1, 0, 0xdf}
	vpor         = coding{1, 1, 0, 0xeb}
	vptest       = coding{1, 2, 0, 0x17}
)

// branch emits a branch. If lanes part, those that go further down in the code wait
// there for the others, as the interpreter would have it. If the target is a
// barrier, the lanes that go there wait wherever it lies: they cannot pass it before
// the others come.
func (c *compiler) branch(s *step, finish *label) {
	c.vex(vmovdqu, true, 0, 0, at(regPreds, int(s.Op.Sources[0].Slot)*32))
	// Carry is set if the predicate holds in all lanes of the mask, zero if in none.
	c.vex(vptest, true, 0, 0, at(regFrame, offMask))
	taken, passed := uint8(ccBelow), uint8(ccEqual)
	if s.Negated {
		taken, passed = passed, taken
	}
	var goes, stays label
	c.jumpIf(taken, &goes)
	c.jumpIf(passed, &stays)
	parked := c.Ops[s.Target].Flow == FlowBarrier
	if s.Target > s.index || parked {
		c.part(s.Target, !s.Negated, parked, finish)
		c.jump(&stays)
	} else {
		c.part(s.index+1, s.Negated, false, finish)
		c.jump(&goes)
	}
	c.bind(&goes)
	c.goTo(s.Target)
	c.bind(&stays)
	c.goTo(s.index + 1)
}

// part makes the lanes in which the predicate in ymm0 holds, or does not hold, wait
// at a basic block: it pushes a Wait, or adds the lanes to the last one if that is
// at the same place. It goes to finish, before anything has changed, if the stack
// is full or if the place lies beyond the bound; the caller then splits the group.
func (c *compiler) part(wait int32, holds, parked bool, finish *label) {
	var same, done label
	c.vex(vmovdqu, true, 1, 0, at(regFrame, offMask))
	waiting, running := vpand, vpandn
	if !holds {
		waiting, running = running, waiting
	}
	c.vex(waiting, true, 2, 0, inReg(1))
	c.vex(running, true, 3, 0, inReg(1))
	c.immediate(false, 7, at(regWait, 0), wait)
	c.jumpIf(ccEqual, &same)
	c.legacy(false, opMov, rax, at(regWait, waitBound))
	if !parked {
		c.immediate(false, 7, inReg(rax), wait)
		c.jumpIf(ccLess, finish)
		c.set(rax, uint64(wait))
	}
	c.legacy(true, opLea, rdx, at(regFrame, offWaits+maxWaits*waitBytes))
	c.legacy(true, opCmp, regWait, inReg(rdx))
	c.jumpIf(ccAboveEqual, finish)
	c.immediate(true, 0, inReg(regWait), int32(waitBytes))
	c.set(rdx, uint64(wait))
	c.legacy(false, opStore, rdx, at(regWait, 0))
	c.legacy(false, opStore, rax, at(regWait, waitBound))
	c.jump(&done)
	c.bind(&same)
	c.vex(vpor, true, 2, 2, at(regWait, waitMask))
	c.bind(&done)
	c.vex(vmovdquStore, true, 2, 0, at(regWait, waitMask))
	c.vex(vmovdquStore, true, 3, 0, at(regFrame, offMask))
	c.legacy(true, opMov, rax, at(regFrame, offSplitLimit))
	c.legacy(true, opStore, rax, at(regFrame, offSpinLimit))
	c.call(&c.remask)
}

// call emits a jump to a routine that returns by rdx: compiled code has no stack.
func (c *compiler) call(routine *label) {
	var back label
	if c.wanted {
		c.note(len(c.assembler.code), "lea rdx,", true)
	}
	c.bytes(0x48, 0x8d, 0x15) // lea rdx, [rip + ...]
	c.distance(&back)
	c.jump(routine)
	c.bind(&back)
}

// routines emits what compiled code calls. merge takes the last Wait off the stack
// and adds its lanes to the running ones. remask, into which merge falls, computes
// from Mask what depends on it: ActiveChunks, Full and Lanes.
func (c *compiler) routines() {
	c.bind(&c.merge)
	c.vex(vmovdqu, true, 1, 0, at(regFrame, offMask))
	c.vex(vpor, true, 1, 1, at(regWait, waitMask))
	c.vex(vmovdquStore, true, 1, 0, at(regFrame, offMask))
	c.immediate(true, 5, inReg(regWait), int32(waitBytes))
	c.immediate(false, 7, at(regWait, 0), -1)
	c.jumpIf(ccNotEqual, &c.remask)
	c.legacy(true, opMov, rax, at(regFrame, offWholeLimit))
	c.legacy(true, opStore, rax, at(regFrame, offSpinLimit))
	c.bind(&c.remask)
	c.vex(vmovdqu, true, 0, 0, at(regFrame, offMask))
	c.evex(coding{1, 2, 1, 0x26}, ymm, 5, 0, inReg(0), masked{}) // vptestmw: chunks that have lanes
	c.vex(coding{0, 1, 0, 0x93}, false, rax, 0, inReg(5))        // kmovw
	c.legacy(true, opStore, rax, at(regFrame, offActiveChunks))
	c.activeLanes()
	c.set(rax, 0)
	c.vex(vptest, true, 0, 0, at(regFrame, offLive))
	c.plain("setb al", 0x0f, 0x92, 0xc0)
	c.legacy(true, opStore, rax, at(regFrame, offFull))
	c.set(rax, 0)
	for word := range 4 {
		c.bytes(0xf3) // popcnt
		c.legacy(true, []byte{0x0f, 0xb8}, rdi, at(regFrame, offMask+8*word))
		c.legacy(true, opAdd, rax, inReg(rdi))
	}
	c.legacy(true, opStore, rax, at(regFrame, offLanes))
	c.plain("jmp rdx", 0xff, 0xe2)
}

// activeLanes computes FirstLane and LastLane: from Mask if the gang has several blocks, else
// from the active chunks, which are in rax.
func (c *compiler) activeLanes() {
	bsf, bsr := []byte{0x0f, 0xbc}, []byte{0x0f, 0xbd}
	if c.Several {
		// The lanes of all chunks together: 256 bits, of which 16 are left.
		c.legacy(true, opMov, rax, at(regFrame, offMask))
		for word := 1; word < 4; word++ {
			c.legacy(true, opOr, rax, at(regFrame, offMask+8*word))
		}
		for _, by := range [...]uint8{32, 16} {
			c.legacy(true, opMov, rcx, inReg(rax))
			c.shift(true, 5, rcx, by)
			c.legacy(true, opOr, rax, inReg(rcx))
		}
		c.legacy(false, opZx16, rax, inReg(rax))
		c.legacy(false, bsf, rcx, inReg(rax))
		c.legacy(false, bsr, rsi, inReg(rax))
	} else {
		c.legacy(true, bsf, rcx, inReg(rax))
		c.legacy(true, bsr, rsi, inReg(rax))
		c.shift(true, 4, rcx, 4)
		c.shift(true, 4, rsi, 4)
		c.immediate(true, 0, inReg(rsi), 15)
	}
	c.legacy(true, opStore, rcx, at(regFrame, offFirstLane))
	c.legacy(true, opStore, rsi, at(regFrame, offLastLane))
}

// goTo emits the way to another basic block. A jump back counts a round of a loop,
// and returns if the limit is reached.
func (c *compiler) goTo(next int32) {
	if int(next) >= len(c.Ops) {
		c.jump(c.exit(exit{reason: Next, at: next}))
		return
	}
	if next <= c.first {
		c.legacy(true, opMov, rax, at(regFrame, offSpin))
		c.immediate(true, 0, inReg(rax), 1)
		c.legacy(true, opCmp, rax, at(regFrame, offSpinLimit))
		c.jumpIf(ccGreater, c.exit(exit{reason: Loop, at: next}))
		c.legacy(true, opStore, rax, at(regFrame, offSpin))
	}
	c.jump(c.arrival(next))
}

// arrival returns the label to which other basic blocks jump to come to this one.
func (c *compiler) arrival(pc int32) *label { return &c.arrivals[pc] }

// arrive emits what happens between two basic blocks: lanes that wait at the second
// one join, and the code returns if another group has its turn (Bound).
func (c *compiler) arrive(pc int32) {
	var joined label
	c.bind(c.arrival(pc))
	c.immediate(false, 7, at(regWait, 0), pc)
	c.jumpIf(ccNotEqual, &joined)
	c.call(&c.merge)
	c.jump(c.arrival(pc)) // there may be more
	c.bind(&joined)
	c.immediate(false, 7, at(regWait, waitBound), pc)
	c.jumpIf(ccLessEqual, c.exit(exit{reason: Next, at: pc}))
}

// section is the instructions of a basic block that are emitted together. First
// come the scalar ones and all checks, in order, then a loop over warps with the
// vector ones. So an instruction before the loop runs before every one in it,
// whatever their order in the kernel; add opens a new section where that would
// change the result.
type section struct {
	start    int32
	before   []Value      // live registers at its start
	scalar   []*step      // done before the loop; vector ones that check are here as well
	vector   []*step      // done in the loop
	seen     table[uint8] // how the section uses a register: read and so on
	spoilt   bool         // a scalar instruction has overwritten a register that the section has read
	stores   bool         // the loop stores to memory
	pointers int          // accesses of the loop that use one of the frame's Pointers or ChunkPointers
}

// How a section uses a register.
const (
	isRead    = 1 << iota // before any instruction of the section wrote it
	isWritten             // by any of its instructions
	isLooked              // read by the loop
	isTouched             // written by the loop
)

// open begins a section.
func (c *compiler) open(pc int32, atHand bool) {
	old := &c.section
	old.seen.clear()
	c.section = section{start: pc, seen: old.seen, scalar: old.scalar[:0], vector: old.vector[:0]}
	c.section.before = c.values(pc, atHand)
}

// add puts an instruction into the section. It opens a new one first if
//   - a scalar instruction writes what the loop of this section reads or writes,
//   - a scalar load would come before a store of the loop,
//   - the address of an access is computed in the loop, so that the check before
//     the loop would see an old one,
//   - a check would come after a scalar instruction that has overwritten a source
//     of the section: after a failed check the interpreter could not run it again.
func (c *compiler) add(s *step) {
	scalar := s.scalar()
	fresh := false
	if scalar {
		for _, r := range s.Writes {
			fresh = fresh || *c.seen.at(r)&(isLooked|isTouched) != 0
		}
		fresh = fresh || s.Name == "ld" && c.stores
	} else {
		// Checks read addresses from memory, before the loop has written them.
		fresh = s.isMemory() && s.sources[0].Form == Vector && *c.seen.at(s.Op.Sources[0])&isTouched != 0
	}
	fresh = fresh || s.checks() && c.spoilt || c.section.pointers == maxPointers && s.hasPointer()
	if fresh {
		c.flush(s.index)
		c.open(s.index, true)
	}
	for _, r := range s.Reads {
		if seen := c.seen.at(r); *seen&isWritten == 0 {
			*seen |= isRead
		}
	}
	for _, r := range s.Writes {
		seen := c.seen.at(r)
		c.spoilt = c.spoilt || scalar && *seen&isRead != 0
		*seen |= isWritten
	}
	if scalar {
		c.section.scalar = append(c.section.scalar, s)
		return
	}
	for _, r := range s.Reads {
		// The loop finds an access that has a pointer by that, whatever becomes of the address.
		if !s.hasPointer() || r != s.Op.Sources[0] || s.Name == "st" && slices.Contains(s.Elements, r) {
			*c.seen.at(r) |= isLooked
		}
	}
	for _, r := range s.Writes {
		*c.seen.at(r) |= isTouched
	}
	c.stores = c.stores || s.Name == "st"
	if s.hasPointer() {
		s.pointer = c.section.pointers
		c.section.pointers++
	}
	c.section.vector = append(c.section.vector, s)
	if s.checks() { // before the loop
		c.section.scalar = append(c.section.scalar, s)
	}
}

// scalar says whether an instruction is done before the loop.
func (s *step) scalar() bool {
	if s.D.Class == Predicate {
		return comparesRegular(s)
	}
	return len(s.Writes) > 0 && s.kind.Form != Vector
}

func (s *step) isMemory() bool { return s.Name == "ld" || s.Name == "st" }

// hasPointer says whether an instruction accesses memory at a linear or chunked address: its
// check leaves in the frame where the lanes reach.
func (s *step) hasPointer() bool {
	return s.isMemory() && (s.sources[0].Form == Linear || s.sources[0].Form == Chunked)
}

// checks says whether an instruction has a check, which may fail.
func (s *step) checks() bool { return s.isMemory() || s.widens() }

// widens says whether an instruction extends a register with a stride to 64 bits, once
// for all lanes: then the register must not wrap around along a chunk, or the gang.
func (s *step) widens() bool {
	if s.kind.Form == Vector {
		return false
	}
	switch s.Name {
	case "cvt.s64.s32", "cvt.u64.s32", "cvt.u64.u32", "cvt.s64.u32", "mul.wide.s32", "mul.wide.u32", "mad.wide.s32", "mad.wide.u32":
		for i, k := range s.sources {
			if s.Op.Sources[i].Class == Bits32 && k.Stride != 0 {
				return true
			}
		}
	}
	return false
}

// flush emits the section; pc is the instruction behind it. Only then is the place
// bound at which the caller may enter.
func (c *compiler) flush(pc int32) {
	sec := &c.section
	if sec.start < 0 {
		return
	}
	here := &label{}
	c.bind(here)
	if c.Counted {
		c.purpose(sec.start, "where it is")
		c.legacy(true, opMov, rax, at(regFrame, offPlace))
		c.legacy(false, []byte{0xc7}, 0, at(rax, 0), binary.LittleEndian.AppendUint32(nil, uint32(sec.start)|InCode)...)
	}
	c.code.live[sec.start] = sec.before
	c.code.compiled += len(sec.vector)
	for _, s := range sec.scalar {
		role := "check"
		if s.scalar() {
			c.code.compiled++
			role = "once for all lanes"
		}
		c.purpose(s.index, role)
		c.prepare(s)
	}
	if len(sec.vector) > 0 {
		c.loop(sec.vector, pc)
	}
	c.entries = append(c.entries, entry{sec.start, false, here})
	sec.start = -1
}
