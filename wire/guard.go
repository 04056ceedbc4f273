package wire

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrNoPage says that mapped memory could not be used because the system had no page for it.
// Files cannot be truncated here (Create seals them), but the kernel also sends SIGBUS if shared
// memory has run out, or if a page is broken.
var ErrNoPage = errors.New("the system has no memory for what is shared with the program")

// Guard calls do, which uses memory shared with another process. If the system has no page for it,
// the error is ErrNoPage, and this process survives. It covers only the goroutine of do, not
// goroutines that do starts.
func Guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface { // as documented in runtime/debug
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
