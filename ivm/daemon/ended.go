package daemon

import (
	"os"

	"golang.org/x/sys/unix"
)

// awaitEnd waits until a process has ended, and leaves it to be waited for. It keeps no thread, of
// which Go allows 10,000, where the kernel is 5.10 or later.
func awaitEnd(pid int) {
	if fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK); err == nil {
		f := os.NewFile(uintptr(fd), "process") // is readable when the process has ended
		defer f.Close()
		if raw, err := f.SyscallConn(); err == nil && raw.Read(func(uintptr) bool { return hasEnded(pid, unix.WNOHANG) }) == nil {
			return
		}
	}
	for !hasEnded(pid, 0) {
	}
}

// hasEnded says whether a process has ended. It waits for that, unless told unix.WNOHANG.
func hasEnded(pid, how int) bool {
	var is unix.Siginfo // has a signal's number if the process has ended
	err := unix.Waitid(unix.P_PID, pid, &is, unix.WEXITED|unix.WNOWAIT|how, nil)
	return err != nil && err != unix.EINTR || err == nil && is.Signo != 0
}
