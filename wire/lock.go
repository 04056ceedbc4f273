package wire

import (
	"fmt"
	"os"
)

// CreateLock makes a file without a name for processes that take turns: each has one
// that was opened for it alone (OpenLock), and locks that.
func CreateLock() (*os.File, error) { return memfd("muster-lock", uint64(os.Getpagesize())) }

// CreateMemory makes a file without a name, in memory, whose size nobody can change.
func CreateMemory(name string, size uint64) (*os.File, error) { return memfd(name, size) }

// OpenLock opens a lock anew, for one process. Locks belong to an open file: whoever
// else has this one, or keeps it open, holds what that process has locked.
func OpenLock(lock *os.File) (*os.File, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", lock.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a device's lock: %w", err)
	}
	return f, nil
}
