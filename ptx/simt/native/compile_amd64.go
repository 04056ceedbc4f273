//go:build linux && amd64

package native

import (
	"encoding/binary"
	"errors"
	"slices"

	"muster/ptx/simt/native/asm"
)

// The general registers while compiled code runs. rax, rdx and rdi are scratch; rsp
// and rbp are never touched.
const (
	regFrame    = asm.RBX
	regLane     = asm.RCX // the round's first lane, times 4
	regChunk    = asm.RSI // the round's first chunk
	regValues32 = asm.R8
	regValues64 = asm.R9
	regBases32  = asm.R10
	regBases64  = asm.R11
	regForms32  = asm.R12
	regForms64  = asm.R13
	regPreds    = asm.R14
	regWait     = asm.R15 // the last of the frame's Waits
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
// Its many methods are one a kind of instruction, by file: of lanes (vector, with the registers in
// registers), of a value that is the same or linear in all lanes (uniform), of memory, and of the flow
// between blocks (compile, chain). All emit into one code and share its registers.
type compiler struct {
	asm.Assembler
	analysis
	code          *Code
	heads         []asm.Label // by the first instruction of a basic block
	exits         map[exit]*asm.Label
	order         []exit      // the keys of exits, in the order in which the code asked for them
	entries       []entry     // where the caller may enter
	arrivals      []asm.Label // where jumps from other basic blocks come to a block
	merge, remask asm.Label   // routines
	turn          asm.Label   // the routine that begins the next block
	chained       bool        // the code begins the next block itself
	first         int32       // begin of the current basic block
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
	to   *asm.Label
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
	c := &compiler{analysis: analysis{Kernel: k}, heads: make([]asm.Label, len(k.Ops)), arrivals: make([]asm.Label, len(k.Ops)), exits: map[exit]*asm.Label{}}
	c.Assembler.Code = make([]byte, 0, 256*len(k.Ops))
	c.code = &Code{
		heads: fill(len(k.Ops), -1), sections: fill(len(k.Ops), -1), views: fill(len(k.Ops), -1), live: make([][]Value, len(k.Ops)+1), full: make([]bool, len(k.Ops)), left: make([]bool, len(k.Ops)),
	}
	c.Wanted, c.Narrow = k.Listed, k.Narrow || !supported.wide
	c.Room = asm.At(regFrame, offNarrow)
	c.begin()
	c.registers.uses = newTable[uses](&c.slots)
	c.section.seen = newTable[uint8](&c.slots)
	c.findNeeded()
	c.findKinds()
	c.findLoops()
	c.Purpose(-1, "lanes that waited join")
	c.routines()
	c.chained = k.Chained && c.startsFresh()
	if c.chained {
		c.Purpose(-1, "the next block begins")
		c.beginTurn()
	}
	c.walk(c.instruction)
	for i := 0; i < len(c.order); i++ {
		if c.Wanted {
			c.Purpose(c.order[i].at, "return: "+c.order[i].reason.String())
		}
		c.leave(c.order[i])
	}
	for _, e := range c.entries {
		c.Purpose(e.pc, "entry")
		if e.head {
			c.code.heads[e.pc] = c.enter(e.to)
		} else {
			c.code.sections[e.pc] = c.enter(e.to)
		}
	}
	end := len(c.Assembler.Code)
	bytes := c.Finish()
	text, err := newText(bytes)
	if err != nil {
		return nil, err
	}
	c.code.text = text
	c.code.listing = c.Listing(bytes, end)
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
func (c *compiler) exit(e exit) *asm.Label {
	if l := c.exits[e]; l != nil {
		return l
	}
	c.exits[e] = &asm.Label{}
	c.order = append(c.order, e)
	return c.exits[e]
}

func (c *compiler) leave(e exit) {
	c.Bind(c.exits[e])
	if e.undo > 0 {
		c.Immediate(true, 0, asm.At(regFrame, offBudget), e.undo)
	}
	c.store32(offAt, uint32(e.at))
	c.store32(offReason, uint32(e.reason))
	c.Legacy(true, asm.OpSub, regWait, asm.InReg(regFrame))
	c.Legacy(true, asm.OpStore, regWait, asm.At(regFrame, offTop))
	c.Plain("ret", 0xc3)
}

func (c *compiler) store32(offset int, v uint32) {
	c.Legacy(false, []byte{0xc7}, 0, asm.At(regFrame, offset), binary.LittleEndian.AppendUint32(nil, v)...)
}

// head returns the label of a basic block.
func (c *compiler) head(pc int32) *asm.Label { return &c.heads[pc] }

// enter emits an entry: it loads the fixed registers from the frame and jumps to a
// label. No lanes wait at first.
func (c *compiler) enter(l *asm.Label) int32 {
	offset := int32(len(c.Assembler.Code))
	for _, r := range [...][2]int{
		{regValues32, offValues32}, {regValues64, offValues64}, {regBases32, offBases32}, {regBases64, offBases64},
		{regForms32, offForms32}, {regForms64, offForms64}, {regPreds, offPredicates},
	} {
		c.Legacy(true, asm.OpMov, r[0], asm.At(regFrame, r[1]))
	}
	c.Legacy(true, asm.OpLea, regWait, asm.At(regFrame, offWaits))
	c.Jump(l)
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
		c.Purpose(s.index, "")
		c.terminator(s)
	case !c.can(s):
		c.flush(s.index)
		c.Purpose(s.index, "left to the interpreter")
		c.code.left[s.index] = true
		c.Jump(c.exit(exit{reason: Interpret, at: s.index}))
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
	c.Purpose(pc, "begin of a block")
	c.arrive(pc)
	c.Bind(c.head(pc))
	c.entries = append(c.entries, entry{pc, true, c.head(pc)})
	n := c.Ops[pc].End - pc + 1
	if c.needsFull(pc) {
		c.code.full[pc] = true
		c.Immediate(true, 7, asm.At(regFrame, offFull), 0)
		c.JumpIf(asm.Equal, c.exit(exit{reason: Partial, at: pc}))
	}
	c.Immediate(true, 5, asm.At(regFrame, offBudget), n)
	c.JumpIf(asm.Less, c.exit(exit{reason: Exhausted, at: pc, undo: n}))
	c.Legacy(true, []byte{0x69}, asm.RAX, asm.At(regFrame, offLanes), binary.LittleEndian.AppendUint32(nil, uint32(n))...) // imul
	c.Legacy(true, []byte{0x01}, asm.RAX, asm.At(regFrame, offLaneOps))                                                    // add
	if c.Counted {
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offCounts))
		c.Immediate(true, 0, asm.At(asm.RAX, int(pc)*countBytes), 1)
		c.Legacy(true, asm.OpMov, asm.RDI, asm.At(regFrame, offLanes))
		c.Legacy(true, []byte{0x01}, asm.RDI, asm.At(asm.RAX, int(pc)*countBytes+countBytes/2))
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
		c.Immediate(true, 7, asm.At(regFrame, offBarriers), 0)
		c.JumpIf(asm.Equal, finish)
		c.Immediate(true, 7, asm.At(regFrame, offFull), 0)
		c.JumpIf(asm.Equal, finish)
		c.Immediate(false, 7, asm.At(regWait, 0), -1)
		c.JumpIf(asm.NotEqual, finish)
		c.goTo(s.index + 1)
	case FlowExit:
		if c.chained {
			c.takeTurn(finish)
			return
		}
		c.Jump(finish)
	default:
		c.Jump(finish)
	}
}

// branch emits a branch. If lanes part, those that go further down in the code wait
// there for the others, as the interpreter would have it. If the target is a
// barrier, the lanes that go there wait wherever it lies: they cannot pass it before
// the others come.
func (c *compiler) branch(s *step, finish *asm.Label) {
	c.VEX(asm.Vmovdqu, true, 0, 0, asm.At(regPreds, int(s.Op.Sources[0].Slot)*32))
	// Carry is set if the predicate holds in all lanes of the mask, zero if in none.
	c.VEX(asm.Vptest, true, 0, 0, asm.At(regFrame, offMask))
	taken, passed := uint8(asm.Below), uint8(asm.Equal)
	if s.Negated {
		taken, passed = passed, taken
	}
	var goes, stays asm.Label
	c.JumpIf(taken, &goes)
	c.JumpIf(passed, &stays)
	parked := c.Ops[s.Target].Flow == FlowBarrier
	if s.Target > s.index || parked {
		c.part(s.Target, !s.Negated, parked, finish)
		c.Jump(&stays)
	} else {
		c.part(s.index+1, s.Negated, false, finish)
		c.Jump(&goes)
	}
	c.Bind(&goes)
	c.goTo(s.Target)
	c.Bind(&stays)
	c.goTo(s.index + 1)
}

// part makes the lanes in which the predicate in ymm0 holds, or does not hold, wait
// at a basic block: it pushes a Wait, or adds the lanes to the last one if that is
// at the same place. It goes to finish, before anything has changed, if the stack
// is full or if the place lies beyond the bound; the caller then splits the group.
func (c *compiler) part(wait int32, holds, parked bool, finish *asm.Label) {
	var same, done asm.Label
	c.VEX(asm.Vmovdqu, true, 1, 0, asm.At(regFrame, offMask))
	waiting, running := asm.Vpand, asm.Vpandn
	if !holds {
		waiting, running = running, waiting
	}
	c.VEX(waiting, true, 2, 0, asm.InReg(1))
	c.VEX(running, true, 3, 0, asm.InReg(1))
	c.Immediate(false, 7, asm.At(regWait, 0), wait)
	c.JumpIf(asm.Equal, &same)
	c.Legacy(false, asm.OpMov, asm.RAX, asm.At(regWait, waitBound))
	if !parked {
		c.Immediate(false, 7, asm.InReg(asm.RAX), wait)
		c.JumpIf(asm.Less, finish)
		c.Set(asm.RAX, uint64(wait))
	}
	c.Legacy(true, asm.OpLea, asm.RDX, asm.At(regFrame, offWaits+maxWaits*waitBytes))
	c.Legacy(true, asm.OpCmp, regWait, asm.InReg(asm.RDX))
	c.JumpIf(asm.AboveEqual, finish)
	c.Immediate(true, 0, asm.InReg(regWait), int32(waitBytes))
	c.Set(asm.RDX, uint64(wait))
	c.Legacy(false, asm.OpStore, asm.RDX, asm.At(regWait, 0))
	c.Legacy(false, asm.OpStore, asm.RAX, asm.At(regWait, waitBound))
	c.Jump(&done)
	c.Bind(&same)
	c.VEX(asm.Vpor, true, 2, 2, asm.At(regWait, waitMask))
	c.Bind(&done)
	c.VEX(asm.VmovdquStore, true, 2, 0, asm.At(regWait, waitMask))
	c.VEX(asm.VmovdquStore, true, 3, 0, asm.At(regFrame, offMask))
	c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offSplitLimit))
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offSpinLimit))
	c.call(&c.remask)
}

// call emits a jump to a routine that returns by rdx: compiled code has no stack.
func (c *compiler) call(routine *asm.Label) {
	var back asm.Label
	if c.Wanted {
		c.Note(len(c.Assembler.Code), "lea rdx,", true)
	}
	c.Bytes(0x48, 0x8d, 0x15) // lea rdx, [rip + ...]
	c.Distance(&back)
	c.Jump(routine)
	c.Bind(&back)
}

// routines emits what compiled code calls. merge takes the last Wait off the stack
// and adds its lanes to the running ones. remask, into which merge falls, computes
// from Mask what depends on it: ActiveChunks, Full and Lanes.
func (c *compiler) routines() {
	c.Bind(&c.merge)
	c.VEX(asm.Vmovdqu, true, 1, 0, asm.At(regFrame, offMask))
	c.VEX(asm.Vpor, true, 1, 1, asm.At(regWait, waitMask))
	c.VEX(asm.VmovdquStore, true, 1, 0, asm.At(regFrame, offMask))
	c.Immediate(true, 5, asm.InReg(regWait), int32(waitBytes))
	c.Immediate(false, 7, asm.At(regWait, 0), -1)
	c.JumpIf(asm.NotEqual, &c.remask)
	c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offWholeLimit))
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offSpinLimit))
	c.Bind(&c.remask)
	c.VEX(asm.Vmovdqu, true, 0, 0, asm.At(regFrame, offMask))
	c.EVEX(asm.Vptestmw, asm.YMM, 5, 0, asm.InReg(0), asm.Masked{}) // vptestmw: chunks that have lanes
	c.VEX(asm.KmovwToR, false, asm.RAX, 0, asm.InReg(5))
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offActiveChunks))
	c.activeLanes()
	c.Set(asm.RAX, 0)
	c.VEX(asm.Vptest, true, 0, 0, asm.At(regFrame, offLive))
	c.Plain("setb al", 0x0f, 0x92, 0xc0)
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offFull))
	c.Set(asm.RAX, 0)
	for word := range 4 {
		c.Bytes(0xf3) // popcnt
		c.Legacy(true, []byte{0x0f, 0xb8}, asm.RDI, asm.At(regFrame, offMask+8*word))
		c.Legacy(true, asm.OpAdd, asm.RAX, asm.InReg(asm.RDI))
	}
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offLanes))
	c.Plain("jmp rdx", 0xff, 0xe2)
}

// activeLanes computes FirstLane and LastLane: from Mask if the gang has several blocks, else
// from the active chunks, which are in rax.
func (c *compiler) activeLanes() {
	bsf, bsr := []byte{0x0f, 0xbc}, []byte{0x0f, 0xbd}
	if c.Several {
		// The lanes of all chunks together: 256 bits, of which 16 are left.
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offMask))
		for word := 1; word < 4; word++ {
			c.Legacy(true, asm.OpOr, asm.RAX, asm.At(regFrame, offMask+8*word))
		}
		for _, by := range [...]uint8{32, 16} {
			c.Legacy(true, asm.OpMov, asm.RCX, asm.InReg(asm.RAX))
			c.Shift(true, 5, asm.RCX, by)
			c.Legacy(true, asm.OpOr, asm.RAX, asm.InReg(asm.RCX))
		}
		c.Legacy(false, asm.OpZx16, asm.RAX, asm.InReg(asm.RAX))
		c.Legacy(false, bsf, asm.RCX, asm.InReg(asm.RAX))
		c.Legacy(false, bsr, asm.RSI, asm.InReg(asm.RAX))
	} else {
		c.Legacy(true, bsf, asm.RCX, asm.InReg(asm.RAX))
		c.Legacy(true, bsr, asm.RSI, asm.InReg(asm.RAX))
		c.Shift(true, 4, asm.RCX, 4)
		c.Shift(true, 4, asm.RSI, 4)
		c.Immediate(true, 0, asm.InReg(asm.RSI), 15)
	}
	c.Legacy(true, asm.OpStore, asm.RCX, asm.At(regFrame, offFirstLane))
	c.Legacy(true, asm.OpStore, asm.RSI, asm.At(regFrame, offLastLane))
}

// goTo emits the way to another basic block. A jump back counts a round of a loop,
// and returns if the limit is reached.
func (c *compiler) goTo(next int32) {
	if int(next) >= len(c.Ops) {
		c.Jump(c.exit(exit{reason: Next, at: next}))
		return
	}
	if next <= c.first {
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offSpin))
		c.Immediate(true, 0, asm.InReg(asm.RAX), 1)
		c.Legacy(true, asm.OpCmp, asm.RAX, asm.At(regFrame, offSpinLimit))
		c.JumpIf(asm.Greater, c.exit(exit{reason: Loop, at: next}))
		c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offSpin))
	}
	c.Jump(c.arrival(next))
}

// arrival returns the label to which other basic blocks jump to come to this one.
func (c *compiler) arrival(pc int32) *asm.Label { return &c.arrivals[pc] }

// arrive emits what happens between two basic blocks: lanes that wait at the second
// one join, and the code returns if another group has its turn (Bound).
func (c *compiler) arrive(pc int32) {
	var joined asm.Label
	c.Bind(c.arrival(pc))
	c.Immediate(false, 7, asm.At(regWait, 0), pc)
	c.JumpIf(asm.NotEqual, &joined)
	c.call(&c.merge)
	c.Jump(c.arrival(pc)) // there may be more
	c.Bind(&joined)
	c.Immediate(false, 7, asm.At(regWait, waitBound), pc)
	c.JumpIf(asm.LessEqual, c.exit(exit{reason: Next, at: pc}))
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
	here := &asm.Label{}
	c.Bind(here)
	if c.Counted {
		c.Purpose(sec.start, "where it is")
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offPlace))
		c.Legacy(false, []byte{0xc7}, 0, asm.At(asm.RAX, 0), binary.LittleEndian.AppendUint32(nil, uint32(sec.start)|InCode)...)
	}
	c.code.live[sec.start] = sec.before
	c.code.compiled += len(sec.vector)
	for _, s := range sec.scalar {
		role := "check"
		if s.scalar() {
			c.code.compiled++
			role = "once for all lanes"
		}
		c.Purpose(s.index, role)
		c.prepare(s)
	}
	if len(sec.vector) > 0 {
		c.loop(sec.vector, pc)
	}
	c.entries = append(c.entries, entry{sec.start, false, here})
	sec.start = -1
}
