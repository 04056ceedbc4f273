package node

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownerOf is the user of a process; nobody if there is no such process.
func ownerOf(pid uint32) uint32 {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nobody
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nobody
	}
	return owner.Uid
}

// processStart returns when a process was started, in clock ticks since boot. Together
// with its number that identifies a process for as long as the machine runs, since numbers
// alone are reused. It returns false if there is no such process, or only a zombie.
func processStart(pid int) (uint64, bool) {
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

// isStopped says whether a process was stopped by a signal or a debugger.
func isStopped(pid int) bool {
	fields := statOf(pid)
	return len(fields) > 0 && (fields[0][0] == 'T' || fields[0][0] == 't')
}

// bootID identifies this run of the machine: process numbers and start times begin again
// at each.
var bootID = sync.OnceValue(func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(text))
})

// errUnknownEnd stands for the exit status of a process that this daemon did not start,
// and so cannot wait for.
var errUnknownEnd = errors.New("how is not known: an earlier daemon started it")

// lookTimeAway is how often a process is polled whose end the system does not report to
// this daemon.
const lookTimeAway = 100 * time.Millisecond

// findWorker finds a worker that an earlier daemon started. It returns nil if it has
// ended.
func findWorker(pid int, start uint64, log *slog.Logger) *workerProcess {
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	end, err := openProcess(pid)
	// Opened first and checked then: if a process with this number and start time is there
	// now, it is the one that was opened.
	if ticks, ok := processStart(pid); !ok || ticks != start {
		_ = process.Release()
		if err == nil {
			end.Close()
		}
		return nil
	}
	w := &workerProcess{
		process: process, number: pid, start: start, away: true, ready: true, queue: make(chan parcel, maxQueued),
		words: &words{log: log, room: maxWords}, exited: make(chan struct{}),
	}
	go func() {
		if err == nil {
			err = awaitEnd(end, pid, start)
		}
		if err != nil { // the system has no pidfd
			for isRunning(pid, start) {
				time.Sleep(lookTimeAway)
			}
		}
		w.err = errUnknownEnd
		_ = process.Release() // the handle holds a descriptor
		close(w.exited)
	}()
	return w
}

func isRunning(pid int, start uint64) bool {
	ticks, ok := processStart(pid)
	return ok && ticks == start
}

// isExiting says whether a process is about to end: it has closed its files, but still has
// an entry in /proc.
func isExiting(pid int) bool {
	fields := statOf(pid)
	const flags, exiting = 6, 4 // PF_EXITING
	if len(fields) <= flags {
		return true
	}
	has, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	return err == nil && has&exiting != 0
}

// openProcess opens a pidfd, which becomes readable when the process has ended.
func openProcess(pid int) (*os.File, error) {
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

func awaitEnd(end *os.File, pid int, start uint64) error {
	defer end.Close()
	raw, err := end.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(uintptr) bool { return !isRunning(pid, start) })
}
