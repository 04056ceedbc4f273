package soft

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime returns the CPU time of the calling thread, or 0 if the system does not tell it.
func threadTime() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0); failed != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}
