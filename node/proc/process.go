package proc

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// OwnerOf is the user of a process; false if there is no such process.
func OwnerOf(pid uint32) (uid uint32, ok bool) {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return 0, false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return owner.Uid, true
}

// Start returns when a process was started, in clock ticks since boot. Together
// with its number that identifies a process for as long as the machine runs, since numbers
// alone are reused. It returns false if there is no such process, or only a zombie.
func Start(pid int) (uint64, bool) {
	fields := statOf(pid)
	const state, start = 0, 19
	if len(fields) <= start || fields[state][0] == 'Z' || fields[state][0] == 'X' {
		return 0, false
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	return ticks, err == nil
}

// statOf returns the fields of /proc/PID/stat from the state on; nothing if there is no
// such process.
func statOf(pid int) [][]byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The name in brackets may contain any character, closing brackets included: so the
	// last one counts.
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
}

// IsStopped says whether a process was stopped by a signal or a debugger.
func IsStopped(pid int) bool {
	fields := statOf(pid)
	return len(fields) > 0 && (fields[0][0] == 'T' || fields[0][0] == 't')
}

// Boot identifies this run of the machine: process numbers and start times begin again
// at each.
var Boot = sync.OnceValue(func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(text))
})

// LookTime is how often a process is polled whose end the system does not report to
// this daemon.
const LookTime = 100 * time.Millisecond

func IsRunning(pid int, start uint64) bool {
	ticks, ok := Start(pid)
	return ok && ticks == start
}

// IsExiting says whether a process is about to end: it has closed its files, but still has
// an entry in /proc.
func IsExiting(pid int) bool {
	fields := statOf(pid)
	const flags, exiting = 6, 4 // PF_EXITING
	if len(fields) <= flags {
		return true
	}
	has, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	return err == nil && has&exiting != 0
}

// Open opens a pidfd, which becomes readable when the process has ended.
func Open(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "process"), nil
}

func AwaitEnd(end *os.File, pid int, start uint64) error {
	defer end.Close()
	raw, err := end.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(uintptr) bool { return !IsRunning(pid, start) })
}

// IsOwn says whether a file is this user's and no other user may write to it.
func IsOwn(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && owner.Uid == uint32(os.Geteuid()) && info.Mode().Perm()&0o022 == 0
}

func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
