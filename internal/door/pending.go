package door

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// isPending says whether a connection is waiting to be accepted.
func isPending(s syscall.Conn) bool {
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	ready := 0
	_ = raw.Control(func(fd uintptr) {
		ready, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &unix.Timespec{}, nil)
	})
	return ready == 1
}
