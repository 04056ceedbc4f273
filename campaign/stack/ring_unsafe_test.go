package stack

import (
	"syscall"
	"unsafe"
)

// wakeWorker lets the worker look at the ring, if it sleeps.
func (v *vandal) wakeWorker() {
	const wake = 1
	v.u64(atWorkerWaits, 0)
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&v.ring[atWorkerWaits])), wake, 1<<30, 0, 0, 0)
}
