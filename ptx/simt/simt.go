// Package simt runs PTX kernels on the CPU, many threads of a block in
// lock-step, as the lanes of a gang.
//
// It knows instructions, lanes, warps, blocks and state spaces. It does not
// know devices, streams or memory owners: the caller that starts a kernel hands
// in the memory that the kernel may reach, and the caller that loads a module
// decides where its variables lie. The package reads no clock, opens no file
// and prints nothing by itself.
package simt

import (
	"errors"
	"fmt"

	"muster/ptx"
	"muster/ptx/simt/heap"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/texture"
)

// Memory is the global memory that a kernel may reach. The owner may map more
// while a kernel runs. It must not unmap anything before Run has returned: gangs
// and compiled code keep pointers into the regions that Find gave them.
type Memory interface {
	// Find returns the whole mapped stretch around an address; ok is false if
	// the address is not mapped. Several workers call it concurrently.
	Find(addr uint64) (r Region, ok bool)
}

// Region is a stretch of global memory. Base and the address of Bytes are
// multiples of 16, and so is its length.
type Region struct {
	Base  uint64
	Bytes []byte
}

// Textures is what a launch knows of textures and surfaces.
type Textures interface {
	// Texture returns the texture or surface of a handle; nil if there is none. It is
	// called by several goroutines at a time.
	Texture(handle uint64) *texture.Texture
}

// Launch says how to run a kernel.
type Launch struct {
	Grid, Block shape.Dim
	Cluster     shape.Dim // blocks that see each other's shared memory; zero: as the kernel was compiled
	Shared      int       // bytes of dynamic shared memory a block
	Params      []byte    // as laid out by Kernel.Params
	Memory      Memory
	Textures    Textures   // nil if there are none
	Heap        *heap.Heap // for kernels that call malloc; the caller maps its memory, with zeros in the first 64 bytes

	// Print receives what device printf writes, one call of Print for each call
	// of printf. Calls are serialised. If Print is nil, the text is dropped.
	Print func(text []byte)
	// Complain receives the messages of failed assertions, one line for each
	// thread. The lock that serialises Print serialises Complain, too.
	Complain func(text []byte)

	Workers     int  // goroutines that run blocks; 1 if 0
	Cooperative bool // all blocks run at the same time and may wait for each other

	// Width is the number of lanes of a gang, a multiple of 32 up to 256; 0 is
	// 256. Results do not depend on it.
	Width int
	// Stack is the bytes a thread has for the frames of called functions;
	// DefaultStack if 0.
	Stack int
	// Engine says what runs the kernel. Results do not depend on it.
	Engine Engine
	// Profile, if set, learns what the launch does, line by line.
	Profile *Profile
	// List asks for Execution.Listings.
	List bool
	// Check, if set, examines every memory access. One worker then runs the
	// kernel, in the interpreter.
	Check *memcheck.Checker
	// Order, if set, returns which block runs n-th; without it the blocks run in
	// order. The results of a correct kernel do not depend on it.
	Order func(n uint64) uint64
}

// ErrStopped is what Run returns when Stop ended it, or RunFor when a worker's
// budget was used up.
var ErrStopped = errors.New("kernel stopped before its end")

// FaultKind says what went wrong in a kernel.
type FaultKind uint8

// The kinds of faults.
const (
	IllegalAddress FaultKind = iota // not mapped, or outside its state space
	MisalignedAddress
	Trapped // by trap
	StackOverflow
	IllegalCall // an indirect call to what is no function
	Deadlock    // all threads of a team wait, and none can go on
	WriteToReadOnly
	Asserted           // an assertion failed
	IllegalInstruction // one with operands that the hardware does not take
)

// Fault is an error of a running kernel, and where it happened.
type Fault struct {
	Kind    FaultKind
	Kernel  string
	Block   shape.Dim
	Thread  shape.Dim
	Address uint64 // of the first two kinds, as the thread used it
	Pos     ptx.Pos
	Line    string // the instruction
	Detail  string
}

var faultNames = [...]string{"illegal address", "misaligned address", "trap", "stack overflow", "illegal call", "deadlock", "write to read-only memory", "failed assertion", "illegal instruction"}

// String returns the kind in words.
func (k FaultKind) String() string { return faultNames[k] }

// Error says what happened, in which thread and at which line.
func (f *Fault) Error() string {
	at := ""
	if f.Kind == IllegalAddress || f.Kind == MisalignedAddress || f.Kind == WriteToReadOnly {
		at = fmt.Sprintf(" %#x", f.Address)
	}
	detail := ""
	if f.Detail != "" {
		detail = ": " + f.Detail
	}
	return fmt.Sprintf("kernel %s: %s%s in block %v, thread %v, at line %d (%s)%s",
		f.Kernel, f.Kind, at, f.Block, f.Thread, f.Pos.Line, f.Line, detail)
}

// Stats counts what an execution did.
type Stats struct {
	Instructions uint64 // of gangs
	LaneOps      uint64 // instructions times the lanes that took part
}
