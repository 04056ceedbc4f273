package agent

import (
	"fmt"
	"syscall"
	"unsafe"
)

// coreMask is a set of cores as the system takes it.
type coreMask [maxPinned / 64]uint64

// maxPinned is the number of cores that can be named.
const maxPinned = 8192

// setAffinity has a thread run on these cores only; 0 is the calling thread.
func setAffinity(thread int, cores []int) error {
	var mask coreMask
	for _, n := range cores {
		if n < 0 || n >= maxPinned {
			return fmt.Errorf("there is no core %d", n)
		}
		mask[n/64] |= 1 << (n % 64)
	}
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(thread), unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	if errno != 0 {
		return errno
	}
	return nil
}

// ownCores lists the cores on which this process may run.
func ownCores() ([]int, error) {
	var mask coreMask
	size, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	if errno != 0 {
		return nil, errno
	}
	var list []int
	for n := range int(size) * 8 {
		if mask[n/64]&(1<<(n%64)) != 0 {
			list = append(list, n)
		}
	}
	return list, nil
}
