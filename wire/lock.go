package wire

import (
	"errors"
	"fmt"
	"os"
)

// CreateLock makes a file without a name for a lock between processes. Each process locks a
// description of its own (OpenLock).
func CreateLock() (*os.File, error) { return memfd("muster-lock", uint64(os.Getpagesize())) }

// CreateMemory makes a memory file without a path, sealed so that its size cannot change.
func CreateMemory(name string, size uint64) (*os.File, error) { return memfd(name, size) }

// OpenLock opens a lock again, for one process. A lock belongs to the open file description: if two
// processes shared one, each would hold what the other has locked.
func OpenLock(lock *os.File) (*os.File, error) {
	var f *os.File
	raw, err := lock.SyscallConn()
	if err == nil { // the number stays valid while Control runs
		failed := raw.Control(func(fd uintptr) { f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0) })
		err = errors.Join(failed, err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a device's lock: %w", err)
	}
	return f, nil
}
