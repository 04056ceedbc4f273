package timeline

import (
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// origin is a moment on Go's clock and on the system's, which all processes of the
// machine share.
var origin = sync.OnceValues(func() (at time.Time, nanoseconds int64) {
	const monotonic = 1 // CLOCK_MONOTONIC, as the library in C has it
	var t syscall.Timespec
	at = time.Now()
	if _, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&t)), 0); failed != 0 {
		return at, 0
	}
	return at, t.Nano()
})

// At is a time of this process in nanoseconds of CLOCK_MONOTONIC.
func At(t time.Time) int64 {
	at, nanoseconds := origin()
	return nanoseconds + int64(t.Sub(at))
}

// Now is At of the present.
func Now() int64 { return At(time.Now()) }
