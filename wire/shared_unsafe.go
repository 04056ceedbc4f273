package wire

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// u32 returns a word of the ring's memory.
func (s *Shared) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&s.ring[at])) }

// u64 returns a double word of the ring's memory.
func (s *Shared) u64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&s.ring[at])) }

// slot returns the state of a reply slot.
func (s *Shared) slot(i int) *uint32 { return s.u32(slotsAt + i*slotSize + slotState) }

// u32 and u64 return words of the memory in which programs claim devices.
func (p *Precedence) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&p.memory[at])) }

func (p *Precedence) u64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&p.memory[at])) }

// monotonic is the time of the system's monotonic clock, in nanoseconds.
func monotonic() int64 {
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func futex(word *uint32, operation int, value uint32, timeout *syscall.Timespec) syscall.Errno {
	_, _, errno := syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(operation), uintptr(value), uintptr(unsafe.Pointer(timeout)), 0, 0)
	return errno
}

// yield lets another process have the processor. It returns so soon that the Go scheduler need not
// be told.
func yield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// mapAt maps a part of a file at an address, unless something is mapped there.
func mapAt(fd int, offset, size, address uint64) ([]byte, error) {
	at, _, errno := syscall.Syscall6(syscall.SYS_MMAP, uintptr(address), uintptr(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, uintptr(fd), uintptr(offset))
	if errno != 0 {
		return nil, errno
	}
	if uint64(at) != address { // an old kernel, which takes the address for a hint
		_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, at, uintptr(size), 0)
		return nil, syscall.EEXIST
	}
	// The memory is not Go's, so a pointer may be made from its address.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size), nil
}

func unmapAt(b []byte) error {
	_, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
