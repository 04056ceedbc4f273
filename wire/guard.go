package wire

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrNoPage says that memory was mapped and could not be used: the system had no
// page for it. Files cannot be cut off here (Create seals them), but where the
// system promises no more memory than it has, or a page of memory is broken, it
// sends SIGBUS.
var ErrNoPage = errors.New("the system has no memory for what is shared with the program")

// Guard does something with memory that others share. If the system has no page
// for it, the error is ErrNoPage, and this process lives on. It covers what do does
// itself, not goroutines that it starts.
func Guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface { // as package runtime/debug says
			error
			Addr() uintptr
		}:
			err = fmt.Errorf("%w (at %#x: %v)", ErrNoPage, fault.Addr(), fault)
		default:
			panic(fault)
		}
	}()
	return do()
}
