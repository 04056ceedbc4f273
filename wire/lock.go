package wire

import "os"

// CreateLock makes a file without a name for processes that take turns: each
// opens it anew, through /proc/self/fd, and locks what it opened.
func CreateLock() (*os.File, error) { return memfd("muster-lock", uint64(os.Getpagesize())) }

// CreateMemory makes a file without a name, in memory, whose size nobody can change.
func CreateMemory(name string, size uint64) (*os.File, error) { return memfd(name, size) }
