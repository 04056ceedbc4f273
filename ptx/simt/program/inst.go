package program

import "muster/ptx"

// Inst is one instruction of a program. Registers are slots; constants,
// parameters and special registers are slots as well, filled before the
// first instruction, so that no instruction cares what kind its operands are.
// It has a field for each thing that some kind of instruction says: one struct for all
// kinds, so that a program is one slice.
type Inst struct {
	K     any // what it does beyond its registers: a lane kernel, of a shape of package vec, or one of operands.go
	D, D2 int32
	A, B  int32
	C, E  int32
	Imm   int64
	X, Y  int32   // numbers whose meaning depends on the instruction
	List  []int32 // the elements of a vector; -1 for one not wanted
	// Sources are registers of one width that are read, beside a, b, c and e
	Sources []int32

	Ordered uint8 // which order a comparison of integers tests; 0: none
	Do      Operation
	Space   ptx.Space
	Private bool // the destination is private to the basic block: its lanes outside the mask are never read
	Size    uint8
	Mode    uint8 // of shuffles, votes, atomics and so on
	Sync    bool  // volatile or ordered: a loop with it probably waits for another thread
	Negated bool  // the predicate that is read counts inverted
	Touch   Touch // how it accesses memory, for a checker
	Wide    bool  // its registers have 64 bits, where an operation does with both widths: those of list, of an access
	Long    bool  // it may take as long as many others: what it does is charged by gang.did, and a stop comes before it

	Guard    int32 // predicate slot, or -1
	GuardNot bool

	Flow    Flow
	Returns bool  // a valid return address: it stands behind a call
	End     int32 // of the first instruction of a basic block: index of its last
	Target  int32
	Targets []int32
	Back    bool // a target is at or before it: a loop

	Name string           // by which package native knows it: that of the lane kernel, "ld", "st" and so on
	Text *ptx.Instruction // what it comes from
}

// Signed says whether a load extends what it reads with its sign. A register of 32 bits that stands
// for one of 16 (its size is 2) has zeros above these.
func (in *Inst) Signed() bool {
	t := in.Text.Type(0)
	return t.Signed() && !(t.Size() == 2 && in.Size == 2)
}

// Flow says how an instruction ends its basic block.
type Flow uint8

const (
	FlowNone     Flow = iota // it does not end it
	FlowJump                 // to target
	FlowBranch               // to target where predicate a holds
	FlowTable                // to targets[a]
	FlowCall                 // to the function whose address is in a
	FlowReturn               // to the code index in a
	FlowExit                 // the threads end
	FlowTrap                 // the kernel fails
	FlowBarrier              // wait for the threads of the block
	FlowWarp                 // wait for the threads of the warp that the mask names, then run
	FlowWarpWait             // wait until these threads are at any flowWarpWait
)

// Global is a variable of a module that lies in global memory, constants
// included.
type Global struct {
	Name     string
	Address  uint64
	Data     []byte // initial bytes, addresses filled in
	Constant bool
}

// Param is a parameter of a kernel: where it lies in Launch.Params.
type Param struct{ Offset, Size int }

// Comparisons by order, of numbers with or without a sign.
const (
	OrderLess = 1 + iota
	OrderLessEqual
	OrderGreater
	OrderGreaterEqual
	OrderKind   = 7
	OrderSigned = 8
)
