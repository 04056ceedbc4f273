package soft

import (
	"syscall"
	"unsafe"
)

// addressOf returns where bytes lie in the host's memory, which the collector does not
// move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// reserveNear reserves address space of the host, at an address if that is free.
func reserveNear(address, size uint64) ([]byte, error) {
	at, _, errno := syscall.Syscall6(syscall.SYS_MMAP, uintptr(address), uintptr(size), syscall.PROT_NONE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE, ^uintptr(0), 0)
	if errno != 0 {
		return nil, errno
	}
	// The memory is not Go's, so that a pointer may be made of its address.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size), nil
}

// release gives it back.
func release(b []byte) error {
	_, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
