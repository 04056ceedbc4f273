package daemon

import (
	"os"
	"syscall"
	"unsafe"
)

// awaitEnd waits until a process has ended, and leaves it to be waited for. It keeps no thread, of
// which Go allows 10,000, where the kernel is 5.10 or later.
func awaitEnd(pid int) {
	const pidfdOpen = 434
	if fd, _, errno := syscall.Syscall(pidfdOpen, uintptr(pid), syscall.O_NONBLOCK, 0); errno == 0 {
		f := os.NewFile(fd, "process") // is readable when the process has ended
		defer f.Close()
		if raw, err := f.SyscallConn(); err == nil && raw.Read(func(uintptr) bool { return hasEnded(pid, noHang) }) == nil {
			return
		}
	}
	for !hasEnded(pid, 0) {
	}
}

// hasEnded says whether a process has ended. It waits for that, unless told noHang.
func hasEnded(pid, how int) bool {
	const byPID, exited, noWait = 1, 4, 0x01000000
	var is [32]uint32 // a siginfo_t, which begins with the number of a signal if the process has ended
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), uintptr(unsafe.Pointer(&is)), uintptr(exited|noWait|how), 0, 0)
	return errno != 0 && errno != syscall.EINTR || errno == 0 && is[0] != 0
}

const noHang = 1
