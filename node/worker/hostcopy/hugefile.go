package hostcopy

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hugeFiles is a file system in memory whose files may have huge pages, where a process asks for
// them (madvise). Most systems give none to files of memfd_create. It is not mounted anywhere, and
// disappears with its last file. Only a process that may mount has one.
var hugeFiles = sync.OnceValues(func() (folder int, err error) {
	system, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("opening a file system in memory: %w", err)
	}
	defer syscall.Close(system)
	for _, o := range [][2]string{{"huge", "advise"}, {"size", "0"}, {"mode", "700"}} { // a size of 0: no limit
		if err := unix.FsconfigSetString(system, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("a file system in memory with %s=%s: %w", o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(system); err != nil {
		return -1, fmt.Errorf("making a file system in memory: %w", err)
	}
	made, err := unix.Fsmount(system, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("making a file system in memory: %w", err)
	}
	return made, nil
})

// hugeFile creates a file in memory that may have huge pages.
func hugeFile(size uint64) (*os.File, error) {
	folder, err := hugeFiles()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(folder, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
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
