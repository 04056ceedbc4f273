package gateway

import (
	"net"
	"syscall"
	"unsafe"
)

// hungUp says whether the peer has closed a TCP connection, even if there are bytes that were not
// read yet. It asks for the state of the connection, since a read would have to take those bytes.
func hungUp(conn net.Conn) bool {
	system, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return true
	}
	const established, tcpInfo = 1, 11
	var info syscall.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, tcpInfo,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	}); err != nil {
		return true
	}
	return errno == 0 && info.State != established
}
