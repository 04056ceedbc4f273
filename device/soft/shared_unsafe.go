package soft

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memoryFile makes a memfd: a file in memory that is in no folder.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// seal forbids every process that has the file to change its size.
func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

func isSealed(f *os.File) bool {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_SHRINK != 0
}

// mapFile maps a file over reserved addresses.
func mapFile(at []byte, f *os.File) error {
	return mapFixed(at, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED, f.Fd())
}

// mapNothing replaces a mapping by an inaccessible reservation.
func mapNothing(at []byte) error {
	return mapFixed(at, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE, ^uintptr(0))
}

func mapFixed(at []byte, rights, flags int, fd uintptr) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, uintptr(unsafe.Pointer(unsafe.SliceData(at))), uintptr(len(at)), uintptr(rights), uintptr(flags|syscall.MAP_FIXED), fd, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
