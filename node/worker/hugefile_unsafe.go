package worker

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// System calls that the syscall package has no numbers for. They are the same on all architectures.
const (
	fsOpen   = 430
	fsConfig = 431
	fsMount  = 432
)

// hugeFiles is a file system in memory whose files may have huge pages, where a process asks for
// them (madvise). Most systems give none to files of memfd_create. It is not mounted anywhere, and
// disappears with its last file. Only a process that may mount has one.
var hugeFiles = sync.OnceValues(func() (folder int, err error) {
	system, err := openSystem("tmpfs")
	if err != nil {
		return -1, fmt.Errorf("opening a file system in memory: %w", err)
	}
	defer syscall.Close(system)
	for _, o := range [][2]string{{"huge", "advise"}, {"size", "0"}, {"mode", "700"}} { // a size of 0: no limit
		if err := configure(system, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("a file system in memory with %s=%s: %w", o[0], o[1], err)
		}
	}
	const create = 6
	if _, _, errno := syscall.Syscall6(fsConfig, uintptr(system), create, 0, 0, 0, 0); errno != 0 {
		return -1, fmt.Errorf("making a file system in memory: %w", errno)
	}
	const closed, noSetuid, noDevices, noExec = 1, 2, 4, 8
	made, _, errno := syscall.Syscall(fsMount, uintptr(system), closed, noSetuid|noDevices|noExec)
	if errno != 0 {
		return -1, fmt.Errorf("making a file system in memory: %w", errno)
	}
	return int(made), nil
})

// hugeFile creates a file in memory that may have huge pages.
func hugeFile(size uint64) (*os.File, error) {
	folder, err := hugeFiles()
	if err != nil {
		return nil, err
	}
	const temporary = 0x400000 | syscall.O_DIRECTORY // O_TMPFILE
	fd, err := syscall.Openat(folder, ".", temporary|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "muster-host")
	if err := f.Truncate(int64(size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("making a file of %d bytes in memory: %w", size, err)
	}
	return f, nil
}

// configure sets an option of a file system that is being made.
func configure(system int, key, value string) error {
	const setString = 1
	k, err := syscall.BytePtrFromString(key)
	if err != nil {
		return err
	}
	v, err := syscall.BytePtrFromString(value)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(fsConfig, uintptr(system), setString, uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(v)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// openSystem begins to make a file system of a kind.
func openSystem(kind string) (int, error) {
	const closeOnExec = 1
	name, err := syscall.BytePtrFromString(kind)
	if err != nil {
		return -1, err
	}
	fd, _, errno := syscall.Syscall(fsOpen, uintptr(unsafe.Pointer(name)), closeOnExec, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
