// Package cputime reads how much CPU time a thread has used. It knows nothing of what the thread does.
package cputime

import (
	"syscall"
	"time"
	"unsafe"
)

// OfThread returns the CPU time of the calling thread, or 0 if the system does not tell it. (getrusage
// would tell it at the clock's ticks only.)
func OfThread() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0); failed != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}
