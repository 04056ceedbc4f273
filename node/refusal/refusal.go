// Package refusal is what programs are told that are not served, with the value of CUresult that
// their library returns. It knows nothing of why they are not served.
package refusal

import (
	"fmt"

	"muster/wire"
)

// The values of CUresult that the daemon refuses with.
const (
	OutOfMemory    = 2
	NoDevice       = 100
	InvalidDevice  = 101
	NotReady       = 600 // the library tries again
	NotPermitted   = 800
	SystemNotReady = 802
	Mismatch       = 803
)

// New is a refusal with one of these results and a reason.
func New(result int32, format string, args ...any) *wire.Refused {
	return &wire.Refused{Result: result, Reason: fmt.Sprintf(format, args...)}
}

// refusal is a refusal that another error is the reason for.
type refusal struct {
	*wire.Refused
	cause error
}

func (r refusal) Unwrap() []error { return []error{r.Refused, r.cause} }

// Because is New with err as the reason.
func Because(err error, result int32, format string, args ...any) error {
	return refusal{New(result, format, args...), err}
}

// ErrShuttingDown is what everybody is told while the node ends.
var ErrShuttingDown = New(SystemNotReady, "the node is shutting down")

// ErrHandingOver is what programs are told that connect during a handover. The library
// tries again.
var ErrHandingOver = New(NotReady, "the node is being started again: try again")

// ErrNoDevices is what programs are told while there are none.
var ErrNoDevices = New(NoDevice, "the node has no devices at present: ask the administrator to add one (muster device add)")
