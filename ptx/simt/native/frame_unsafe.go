package native

import (
	"sync/atomic"
	"unsafe"

	"muster/ptx/simt/native/asm"
)

// View is a stretch of global memory as compiled code checks it.
type View struct {
	Base, Size uint64
	Ptr        unsafe.Pointer
}

// Wait is a set of lanes that parted from the running ones and wait at basic block
// At. When the running lanes come there, the two sets become one again. When the
// running lanes come to Bound or beyond, the code returns: another group stands
// there. The first Wait of a frame is a sentinel without lanes, whose Bound is that
// of the groups outside the code. The others are a stack: later ones wait nearer.
type Wait struct {
	At, Bound int32
	_         [24]byte
	Mask      [4]uint64
}

// maxWaits is how many sets of lanes may wait at a time. If lanes part once more,
// the code returns and the caller makes groups of them.
const maxWaits = 4

// maxPointers is how many accesses at linear or chunked addresses a section may have.
const maxPointers = 64

// Waiting returns the sets of lanes that wait, after compiled code has returned.
func (f *Frame) Waiting() []Wait {
	return f.Waits[1 : 1+(f.Top-uint64(offWaits))/uint64(waitBytes)]
}

// Count is how often a basic block ran, and the sum of its lanes then. The first
// instruction of the block has it.
type Count struct{ Times, Lanes uint64 }

// InCode marks a Place that compiled code has written.
const InCode = 1 << 31

// Frame is what compiled code works on. The caller fills it in before each Run. The
// offsets of its fields are part of the code. Only the gang's worker uses it.
type Frame struct {
	Registers
	Lanes
	Loops
	Blocks
	Observed
	Memory

	At     uint32
	Reason Reason
	pc     uintptr // where to enter

	narrow asm.Room // of code for AVX2
}

// Registers are where those of the gang lie.
type Registers struct {
	Values32, Values64 unsafe.Pointer // a value a lane; Pitch of them a register
	Bases32, Bases64   unsafe.Pointer // a value a chunk; ChunkPitch of them a register
	Forms32, Forms64   unsafe.Pointer // a structure a register, of which base is the last field
	Predicates         unsafe.Pointer // 32 bytes a register
}

// Memory is what the code may reach, and where accesses of the running section reach.
type Memory struct {
	Views         *View
	Shared        unsafe.Pointer
	SharedSize    uint64                          // of a block
	SharedOffset  [ChunkPitch]uint64              // of each chunk's block from Shared
	Pointers      [maxPointers]uint64             // scratch of the code: where lane 0 of an access at a linear address reaches,
	ChunkPointers [maxPointers][ChunkPitch]uint64 // and where lane 0 of each chunk does, of one at a chunked address
}

// Lanes are those that run, and those that wait for them.
type Lanes struct {
	Mask         [4]uint64 // lanes that run
	ActiveChunks uint64    // chunks with such lanes, a bit each
	FirstLane    uint64    // the first lane of the first of them, and the last lane of the last one;
	LastLane     uint64    // in a gang with several blocks, the first and the last place in a chunk at which any lane runs
	Chunks       uint64    // of the gang, rounded up to an even number
	Live         [4]uint64 // lanes that a basic block which needs all lanes needs
	Full         uint64    // not zero if Mask has all of them
	Count        uint64    // lanes of Mask
	Barriers     uint64    // not zero if no other group or gang of the team can be missing at a barrier
	Top          uint64    // where the last of Waits lies, from the begin of the frame
	Waits        [maxWaits + 1]Wait
}

// Loops bounds how long the code runs before it returns.
type Loops struct {
	Budget          int64  // instructions that may still run
	LaneOps         uint64 // instructions times lanes so far
	Spin, SpinLimit int64  // rounds of loops so far; the code returns when they exceed the limit
	WholeLimit      int64  // SpinLimit while no lanes wait
	SplitLimit      int64  // while some do
}

// Blocks is what code needs to begin the next block when all threads of one have ended.
type Blocks struct {
	Turns        *atomic.Uint64 // the next number of a block, for all workers; nil if the caller must begin blocks
	LastTurn     uint64         // numbers at and above it are of no block
	Alone        uint64         // not zero if there is one worker only
	Turn         uint64         // the number of the block that runs
	GridX, GridY uint64
	SharedWords  uint64    // of the block's shared memory, to be cleared
	TurnMask     [4]uint64 // Mask, ActiveChunks and Count at the begin of a block
	TurnChunks   uint64
	TurnLanes    uint64
	Ahead        uint64 // how many threads of the grid lie between a block of this worker and its next one
}

// Observed is what code that is Counted writes for a profile.
type Observed struct {
	Counts *Count  // one for each instruction of the kernel
	Place  *uint32 // gets the first instruction of each section that begins, with InCode
}

const (
	offNarrow       = int(unsafe.Offsetof(Frame{}.narrow))
	offValues32     = int(unsafe.Offsetof(Frame{}.Values32))
	offValues64     = int(unsafe.Offsetof(Frame{}.Values64))
	offBases32      = int(unsafe.Offsetof(Frame{}.Bases32))
	offBases64      = int(unsafe.Offsetof(Frame{}.Bases64))
	offForms32      = int(unsafe.Offsetof(Frame{}.Forms32))
	offForms64      = int(unsafe.Offsetof(Frame{}.Forms64))
	offPredicates   = int(unsafe.Offsetof(Frame{}.Predicates))
	offViews        = int(unsafe.Offsetof(Frame{}.Views))
	offShared       = int(unsafe.Offsetof(Frame{}.Shared))
	offSharedSize   = int(unsafe.Offsetof(Frame{}.SharedSize))
	offSharedOffset = int(unsafe.Offsetof(Frame{}.SharedOffset))
	offMask         = int(unsafe.Offsetof(Frame{}.Mask))
	offActiveChunks = int(unsafe.Offsetof(Frame{}.ActiveChunks))
	offFirstLane    = int(unsafe.Offsetof(Frame{}.FirstLane))
	offLastLane     = int(unsafe.Offsetof(Frame{}.LastLane))
	offPointers     = int(unsafe.Offsetof(Frame{}.Pointers))
	offChunkPtrs    = int(unsafe.Offsetof(Frame{}.ChunkPointers))
	offChunks       = int(unsafe.Offsetof(Frame{}.Chunks))
	offBudget       = int(unsafe.Offsetof(Frame{}.Budget))
	offSpin         = int(unsafe.Offsetof(Frame{}.Spin))
	offSpinLimit    = int(unsafe.Offsetof(Frame{}.SpinLimit))
	offFull         = int(unsafe.Offsetof(Frame{}.Full))
	offWholeLimit   = int(unsafe.Offsetof(Frame{}.WholeLimit))
	offSplitLimit   = int(unsafe.Offsetof(Frame{}.SplitLimit))
	offLive         = int(unsafe.Offsetof(Frame{}.Live))
	offBarriers     = int(unsafe.Offsetof(Frame{}.Barriers))
	offLanes        = int(unsafe.Offsetof(Frame{}.Count))
	offLaneOps      = int(unsafe.Offsetof(Frame{}.LaneOps))
	offTop          = int(unsafe.Offsetof(Frame{}.Top))
	offWaits        = int(unsafe.Offsetof(Frame{}.Waits))
	offTurns        = int(unsafe.Offsetof(Frame{}.Turns))
	offLastTurn     = int(unsafe.Offsetof(Frame{}.LastTurn))
	offAlone        = int(unsafe.Offsetof(Frame{}.Alone))
	offTurn         = int(unsafe.Offsetof(Frame{}.Turn))
	offGridX        = int(unsafe.Offsetof(Frame{}.GridX))
	offGridY        = int(unsafe.Offsetof(Frame{}.GridY))
	offSharedWords  = int(unsafe.Offsetof(Frame{}.SharedWords))
	offTurnMask     = int(unsafe.Offsetof(Frame{}.TurnMask))
	offTurnChunks   = int(unsafe.Offsetof(Frame{}.TurnChunks))
	offTurnLanes    = int(unsafe.Offsetof(Frame{}.TurnLanes))
	offAhead        = int(unsafe.Offsetof(Frame{}.Ahead))
	offCounts       = int(unsafe.Offsetof(Frame{}.Counts))
	offPlace        = int(unsafe.Offsetof(Frame{}.Place))
	offAt           = int(unsafe.Offsetof(Frame{}.At))
	offReason       = int(unsafe.Offsetof(Frame{}.Reason))

	countBytes = int(unsafe.Sizeof(Count{}))

	viewBytes = int(unsafe.Sizeof(View{}))
	waitBytes = int(unsafe.Sizeof(Wait{}))
	waitBound = int(unsafe.Offsetof(Wait{}.Bound))
	waitMask  = int(unsafe.Offsetof(Wait{}.Mask))
)
