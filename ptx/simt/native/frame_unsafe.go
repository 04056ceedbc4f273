package native

import "unsafe"

// View is a stretch of global memory as compiled code checks it.
type View struct {
	Base, Size uint64
	Ptr        unsafe.Pointer
}

// Frame is what compiled code works on. The offsets of its fields are part of
// the code.
type Frame struct {
	Values32, Values64 unsafe.Pointer // a value a lane; Pitch of them a register
	Bases32, Bases64   unsafe.Pointer // a value a chunk; ChunkPitch of them a register
	Forms32, Forms64   unsafe.Pointer // a structure a register, of which base is the last field
	Predicates         unsafe.Pointer // 32 bytes a register
	Views              *View
	Shared             unsafe.Pointer
	SharedSize         uint64             // of a block
	SharedOffset       [ChunkPitch]uint64 // of each chunk's block from Shared
	Mask               [4]uint64          // lanes that run
	ActiveChunks       uint64             // chunks with such lanes, a bit each
	Chunks             uint64             // of the gang, rounded up to an even number
	Budget             int64
	Spin, SpinLimit    int64
	Full               uint64 // not zero if no live lane is missing from Mask
	Single             uint64 // not zero if code may go on after a basic block
	At                 uint32
	Reason             Reason
	pc                 uintptr // where to enter
}

const (
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
	offChunks       = int(unsafe.Offsetof(Frame{}.Chunks))
	offBudget       = int(unsafe.Offsetof(Frame{}.Budget))
	offSpin         = int(unsafe.Offsetof(Frame{}.Spin))
	offSpinLimit    = int(unsafe.Offsetof(Frame{}.SpinLimit))
	offFull         = int(unsafe.Offsetof(Frame{}.Full))
	offSingle       = int(unsafe.Offsetof(Frame{}.Single))
	offAt           = int(unsafe.Offsetof(Frame{}.At))
	offReason       = int(unsafe.Offsetof(Frame{}.Reason))

	viewBytes = int(unsafe.Sizeof(View{}))
)
