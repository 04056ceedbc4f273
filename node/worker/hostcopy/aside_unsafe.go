package hostcopy

import (
	"syscall"
	"unsafe"

	"muster/wire"
)

// asideBase is where a worker maps what is as large as an arena, up to terabytes. Kernels reach memory of
// the program at the program's own addresses, which the worker must then have free. Programs have
// theirs where the kernel puts mappings for which nobody names an address, and so would the worker:
// two mappings of a terabyte there would take half of all addresses that a program may come with.
const (
	asideBase  = 0x4000_0000_0000
	asideTries = 8
)

// mapAside maps memory at addresses that programs hardly use, if there are any, and otherwise anywhere.
func mapAside(fd int, size uint64, protection, flags int) ([]byte, error) {
	const step, fixedNoReplace = 1 << 40, 0x100000
	for i := range uintptr(asideTries) {
		if b, err := mmap(asideBase+i*step, fd, size, protection, flags|fixedNoReplace); err == nil {
			if wire.AddressOf(b)>>40 == uint64((asideBase+i*step)>>40) {
				return b, nil
			}
			_ = wire.UnmapAt(b) // an old kernel, which takes the address for a hint
		}
	}
	return mmap(0, fd, size, protection, flags)
}

func mmap(address uintptr, fd int, size uint64, protection, flags int) ([]byte, error) {
	at, _, errno := syscall.Syscall6(syscall.SYS_MMAP, address, uintptr(size), uintptr(protection), uintptr(flags), uintptr(fd), 0)
	if errno != 0 {
		return nil, errno
	}
	// The memory is not Go's, so a pointer may be made from its address.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size), nil
}
