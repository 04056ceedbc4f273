package wire

import (
	"syscall"
	"unsafe"
)

// Unread returns how many bytes of what was sent the other side has not received
// yet; they are counted with what the system needs to keep them.
func (c *ControlConn) Unread() (int, error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var unread int32
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&unread)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return int(unread), err
}
