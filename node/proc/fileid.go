package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// FileID identifies a file or a connection for as long as some process has it open.
type FileID struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"number"`
}

func Identify(f *os.File) (FileID, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return FileID{}, err
	}
	var stat syscall.Stat_t
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Fstat(int(fd), &stat) }); err != nil {
		return FileID{}, err
	}
	return FileID{uint64(stat.Dev), stat.Ino}, failed
}

// FindFile opens the file with a given device and inode number that a process has open; nil
// if it has none such.
func FindFile(pid int, want FileID) *os.File {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(folder)
	if err != nil || want == (FileID{}) {
		return nil
	}
	for _, entry := range list {
		path := filepath.Join(folder, entry.Name())
		var stat syscall.Stat_t // looked at before it is opened: opening a pipe or a device may have effects
		if syscall.Stat(path, &stat) != nil || (FileID{uint64(stat.Dev), stat.Ino}) != want {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil
		}
		if id, err := Identify(f); err == nil && id == want {
			return f
		}
		f.Close()
	}
	return nil
}

// CopyOf copies a descriptor of another process.
func CopyOf(process *os.File, number int, name string) (*os.File, error) {
	raw, err := process.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, failed := 0, error(nil)
	err = raw.Control(func(of uintptr) { fd, failed = unix.PidfdGetfd(int(of), number, 0) })
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil // the system closes it on exec
}

func Dup(f *os.File) (copied uintptr, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		var number int
		number, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		copied = uintptr(number)
	})
	return copied, errors.Join(failed, err)
}
