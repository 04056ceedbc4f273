package door

import (
	"syscall"
	"unsafe"
)

// isPending says whether a connection is waiting to be accepted.
func isPending(s syscall.Conn) bool {
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	poll := struct {
		fd              int32
		events, happens int16
	}{events: 1} // POLLIN
	var now syscall.Timespec
	ready := uintptr(0)
	_ = raw.Control(func(fd uintptr) {
		poll.fd = int32(fd)
		ready, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	})
	return ready == 1
}
