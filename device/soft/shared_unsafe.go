package soft

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

var memfdNumber = map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]

const (
	closeOnExec, allowSealing = 1, 2
	addSeals, getSeals        = 1033, 1034
	sealSeal, sealShrink      = 1, 2
	sealGrow                  = 4
)

// memoryFile makes a memfd: a file in memory that is in no folder.
func memoryFile(name string) (*os.File, error) {
	if memfdNumber == 0 {
		return nil, syscall.ENOSYS
	}
	text, err := syscall.BytePtrFromString(name)
	if err != nil {
		return nil, err
	}
	fd, _, errno := syscall.Syscall(memfdNumber, uintptr(unsafe.Pointer(text)), closeOnExec|allowSealing, 0)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, name), nil
}

// seal forbids every process that has the file to change its size.
func seal(f *os.File) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), addSeals, sealShrink|sealGrow|sealSeal); errno != 0 {
		return errno
	}
	return nil
}

func isSealed(f *os.File) bool {
	seals, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), getSeals, 0)
	return errno == 0 && seals&sealShrink != 0
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
