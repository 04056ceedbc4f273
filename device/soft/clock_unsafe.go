package soft

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime returns how long the calling thread has run on a processor.
func threadTime() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0); failed != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}
