// Package native turns the instructions of a lowered kernel into machine code
// for amd64 processors with AVX-512 or AVX2, and runs it.
//
// It knows registers, lanes and stretches of memory, but no thread, no group
// and no fault: package simt does everything that is not plain computation. Where
// there is something to decide, the machine code returns and says at which
// instruction. The registers that are live there are then exactly as the
// interpreter of package simt would have them, so that it can go on, and enter
// the code again later.
//
// # How a gang is computed
//
// A basic block is compiled as one or more sections. A section first computes,
// once, what is the same for many lanes, then loops over the gang, 32 lanes a
// round: a warp, so that its lanes go in lock-step. All checks of a section come
// before anything that it overwrites and that the interpreter would need to run
// the section again. So if a check fails, the interpreter runs the section from
// its begin, and reports the fault if there is one.
//
// Every register has a kind while compiled code runs (see Kind): one value for all
// lanes, one base for the gang or one for each chunk of 16 lanes, with a constant
// stride, or one value for each lane. These are the interpreter's own forms. The base
// for the gang is that of all lanes in a row if the gang has one block, and that of each
// chunk alike if it has several: so thread numbers of small blocks have one base, too.
// The compiler guesses the kinds from those of the constants; where control flow proves
// a guess wrong, package simt compiles the kernel again without it.
//
// When all threads of a block have ended, the code may begin the next block of the
// grid itself (chain_amd64.go), so that small blocks do not cost a return each.
//
// There is one compiler. It counts with the registers of AVX-512. For a processor that
// has AVX2 alone the assembler does each such instruction by several others
// (asm/narrow_amd64.go).
//
// # What holds of the machine code
//
// It never modifies itself, calls nothing and uses no stack: its pages are written,
// then made executable and read-only (see code_unsafe.go). It returns after
// Frame.Budget instructions at the latest, so that neither the collector nor a
// preemption waits long for it. All memory that it reaches is behind pointers of
// Frame, which the caller keeps alive; an address that the kernel computes is
// compared with the bounds in Frame before it is used.
package native

import "muster/ptx/simt/native/asm"

// Class is the class of a register.
type Class uint8

// The classes.
const (
	None Class = iota
	Bits32
	Bits64
	Predicate
)

// Ref names a register.
type Ref struct {
	Class Class
	Slot  int32
}

// Form is how the lanes of a register relate.
type Form uint8

// The forms; unknown is that of a register before the analysis has seen a write.
const (
	unknown Form = iota
	Uniform      // one value: the base of its form
	Linear       // the base of its form, plus the lane times Stride, which is not 0; in a gang with several blocks, the lane in its chunk
	Chunked      // a base a chunk of 16 lanes, plus the lane in the chunk times Stride
	Vector       // a value a lane
)

// Kind is what compiled code assumes about a register.
type Kind struct {
	Form   Form
	Stride int64
}

// Constant is a register that no instruction writes.
type Constant struct {
	Kind  Kind
	Known bool // it has Value in every launch
	Value uint64
}

// Index is a constant that holds the block's index in the grid, in dimension 0 to 2.
type Index struct {
	Ref
	Dimension int
}

// Space is the memory that a load or store reaches.
type Space uint8

// The spaces.
const (
	NoSpace Space = iota // not compiled
	Global
	Shared
)

// Flow says how an instruction ends its basic block.
type Flow uint8

// The flows. The caller runs those that may change which lanes run together, apart
// from branches.
const (
	FlowNone    Flow = iota // it does not end it
	FlowJump                // to Target
	FlowBranch              // to Target where the first source, a predicate, holds
	FlowBarrier             // wait for all threads of the block
	FlowExit                // the threads end, all that come here
	FlowOther               // the caller knows; Successors says where it may lead
)

// Op is an instruction of a kernel.
type Op struct {
	Name       string // of the lane kernel, or as in compile; empty if it cannot be compiled
	D          Ref
	Sources    []Ref
	Elements   []Ref // of loads and stores; Slot is -1 for one that is not wanted
	Reads      []Ref // all registers that it reads
	Writes     []Ref // all registers that it writes
	Guard      int32 // predicate, or -1: lanes without it keep what they have
	GuardNot   bool
	Negated    bool // the predicate among the sources counts inverted
	InvertA    bool
	InvertB    bool
	Private    bool // the destination is private to the basic block: its lanes outside the mask are never read
	Space      Space
	Imm        int64
	Size       int // bytes of an element
	Signed     bool
	Flow       Flow
	Target     int32
	Successors []int32
	Anywhere   bool  // it may lead to any place: all carried registers count as live behind it
	End        int32 // index of the last instruction of its basic block
	Head       bool  // it is the first one
}

// Kernel is what to compile.
type Kernel struct {
	Ops       []Op
	Constants map[Ref]Constant
	Carried   [Predicate + 1][2]int32 // slots of each class that carry values between basic blocks: first, and behind the last
	Several   bool                    // a gang has the threads of several blocks
	NoShared  bool                    // the lanes of a chunk may have different shared memories
	Chained   bool                    // a gang has one block, so that the code itself may begin the next one
	Indices   []Index                 // if Chained: the constants that differ from one block to the next
	Narrow    bool                    // for AVX2 although the processor has AVX-512
	Listed    bool                    // Code.Listing is wanted
	Counted   bool                    // Frame.Counts and Frame.Place are wanted

	// Guesses that proved wrong: registers that are not linear, but may be chunked;
	// registers that are not uniform or chunked either; and basic blocks, by their
	// first instruction, that ran without all live lanes.
	Uneven    map[Ref]bool
	Irregular map[Ref]bool
	Diverged  map[int32]bool
}

// Value is a register with its kind.
type Value struct {
	Ref
	Kind Kind
	Idle bool // dead for the lanes that come this way; other lanes may need their values in it
}

// Code is a compiled kernel.
type Code struct {
	text     *text
	heads    []int32   // offset of the code of a basic block, by its first instruction; -1 for others
	sections []int32   // offset of the code that begins at an instruction; -1 if none does
	live     [][]Value // by instruction
	views    []int32   // number of the view of a memory instruction, or -1
	count    int       // of views
	full     []bool    // basic blocks that need all live lanes, by their first instruction
	compiled int       // instructions that run in compiled code
	left     []bool    // instructions that are left to the interpreter
	listing  []asm.Line
}

// Listing returns the machine code in the order in which it lies in memory, if the
// kernel was compiled to be listed.
func (c *Code) Listing() []asm.Line { return c.listing }

// Live returns the registers that are live at an instruction where code begins or
// ends, with the kinds that they have there.
func (c *Code) Live(pc int32) []Value { return c.live[pc] }

// Enters says whether code begins at an instruction: with the accounting of its
// basic block (head), or without.
func (c *Code) Enters(pc int32, head bool) bool {
	if head {
		return c.heads[pc] >= 0
	}
	return c.sections[pc] >= 0
}

// Interprets says whether an instruction is left to the interpreter.
func (c *Code) Interprets(pc int32) bool { return c.left[pc] }

// NeedsFull says whether a basic block, given by its first instruction, needs all
// live lanes. The code checks that where it begins a block; a caller that enters a
// block behind its begin must check it.
func (c *Code) NeedsFull(first int32) bool { return c.full[first] }

// View returns which of Frame.Views an instruction uses, or -1.
func (c *Code) View(pc int32) int32 { return c.views[pc] }

// Views returns how many views the code uses.
func (c *Code) Views() int { return c.count }

// Compiled returns how many instructions the code does itself.
func (c *Code) Compiled() int { return c.compiled }

// Reason is why compiled code returned.
type Reason uint32

// The reasons. At is the instruction that they are about.
const (
	Interpret Reason = iota // the instruction must be interpreted; all before it are done
	Finish                  // the instruction ends its basic block, and the caller must decide how; it is counted already
	Next                    // a basic block is done, and the next begins there
	Exhausted               // the budget does not suffice for the basic block that begins there
	Loop                    // the basic block that begins there is a loop's next round, and the limit is reached
	Partial                 // the basic block that begins there needs all live lanes
)

var reasonNames = [...]string{"interpret", "decide", "next block", "budget", "loop limit", "lanes missing"}

// String returns the reason in words.
func (r Reason) String() string { return reasonNames[r] }

// The widths of a gang's arrays, in lanes and chunks, whatever the gang has.
const (
	Pitch      = 256
	ChunkPitch = Pitch / 16
)
