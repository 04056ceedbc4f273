package device

import (
	"errors"
	"fmt"
)

// The errors that calls return, besides *Fault. Callers test with errors.Is, since
// backends wrap them with details. None of them ends a context.
var (
	ErrOutOfMemory   = errors.New("out of device memory")
	ErrInvalidValue  = errors.New("invalid value")
	ErrInvalidImage  = errors.New("not a usable module image")
	ErrNoKernelImage = errors.New("the image has no code for this device")
	ErrNotFound      = errors.New("not found")
	ErrTooLarge      = errors.New("cooperative launch too large: its blocks cannot all run at the same time")
	ErrNotReady      = errors.New("not ready")
	ErrClosed        = errors.New("already closed")
	ErrNotSupported  = errors.New("not supported by this device")
)

// Finer reasons to refuse an image with PTX, or several images. errors.Is matches each with
// ErrInvalidImage too, so a caller that does not care need not know them.
var (
	ErrInvalidPTX error = imageError("the PTX of the image cannot be used")
	ErrPTXVersion error = imageError("the PTX of the image is of a newer version than the device knows")
	ErrLink       error = imageError("the images cannot be linked")
)

type imageError string

func (e imageError) Error() string { return string(e) }

func (e imageError) Is(target error) bool { return target == ErrInvalidImage }

// FaultKind says what ended a context.
type FaultKind uint8

// The kinds of faults.
const (
	IllegalAddress FaultKind = iota + 1 // memory that is not mapped, or may not be written
	MisalignedAddress
	Trap // the kernel stopped itself
	StackOverflow
	IllegalCall // an indirect call to an address that is no function's
	Deadlock    // the threads of a kernel wait for each other for ever
	DeviceLost  // the device does not answer any more
	Unspecified // the backend knows only that a kernel failed
	Assert      // an assertion in the kernel failed; its text went to Config.Complain
	IllegalInstruction
	Timeout // the kernel ran for longer than it may: Config.Kernels, or the driver's own limit
)

var faultNames = map[FaultKind]string{
	IllegalAddress: "illegal address", MisalignedAddress: "misaligned address", Trap: "trap",
	StackOverflow: "stack overflow", IllegalCall: "illegal call", Deadlock: "deadlock",
	DeviceLost: "device lost", Unspecified: "unspecified failure", Assert: "failed assertion",
	IllegalInstruction: "illegal instruction", Timeout: "timeout",
}

// String returns the kind in words.
func (k FaultKind) String() string {
	if name, ok := faultNames[k]; ok {
		return name
	}
	return fmt.Sprintf("fault %d", uint8(k))
}

// Fault is what ended a context. Backends differ in how much they know: only
// Kind is always set.
type Fault struct {
	Kind   FaultKind
	Kernel string // "" if unknown, or if it was no kernel but a copy

	// Located says that Block and Thread are known, and Address if the kind
	// has one.
	Located       bool
	Block, Thread Dim
	Address       uint64

	Line        int    // in the PTX text; 0 if unknown
	Instruction string // there; "" if unknown
	Detail      string // what else the backend says
}

// Error says what happened and, as far as known, where. It uses the same words as the
// software GPU's engine (simt.Fault).
func (f *Fault) Error() string {
	text := f.Kind.String()
	if f.Located && (f.Kind == IllegalAddress || f.Kind == MisalignedAddress) {
		text += fmt.Sprintf(" %#x", f.Address)
	}
	if f.Kernel != "" {
		text = "kernel " + f.Kernel + ": " + text
	}
	if f.Located && f.Kernel != "" {
		text += fmt.Sprintf(" in block %v, thread %v", f.Block, f.Thread)
	}
	if f.Line > 0 {
		text += fmt.Sprintf(", at line %d", f.Line)
	}
	if f.Instruction != "" {
		text += " (" + f.Instruction + ")"
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}
