package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SendFiles writes bytes, with descriptors beside them.
func SendFiles(conn *net.UnixConn, b []byte, files ...*os.File) error {
	return withNumbers(files, nil, func(fds []int) error {
		var rights []byte
		if len(fds) > 0 {
			rights = syscall.UnixRights(fds...)
		}
		n, _, err := conn.WriteMsgUnix(b, rights, nil)
		if err == nil && n < len(b) {
			err = fmt.Errorf("%d of %d bytes were sent", n, len(b))
		}
		return err
	})
}

// withNumbers calls f with the descriptors before and those of the files. Another goroutine that
// closes a file meanwhile cannot have its number mean something else: f fails before, or the file
// stays open until f has returned.
func withNumbers(files []*os.File, before []int, f func([]int) error) error {
	if len(files) == 0 {
		return f(before)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(uintptr) {
		// Fd also has the file block, as whoever receives it may expect.
		failed = withNumbers(files[1:], append(before, int(files[0].Fd())), f)
	})
	if err != nil {
		return err
	}
	return failed
}

// maxFiles is how many descriptors one message may bring.
const maxFiles = 64

// ReceiveFiles reads bytes and the descriptors beside them. The end of the connection is an error.
func ReceiveFiles(conn *net.UnixConn, b []byte) (int, []*os.File, error) {
	rights := make([]byte, syscall.CmsgSpace(4*maxFiles))
	n, got, flags, _, err := conn.ReadMsgUnix(b, rights)
	if err != nil {
		return 0, nil, err
	}
	files, err := parseRights(rights[:got])
	if err == nil && flags&(syscall.MSG_CTRUNC|syscall.MSG_TRUNC) != 0 {
		err = fmt.Errorf("a message with its descriptors is too long")
	}
	if err == nil && n == 0 && len(b) > 0 {
		err = net.ErrClosed
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return 0, nil, err
	}
	return n, files, nil
}

func parseRights(b []byte) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(b)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// AwaitEnd waits until the other side has closed a connection, or has sent something, which stays
// unread. It never blocks in a system call, even if another process that shares the connection has
// made it blocking.
func AwaitEnd(conn syscall.Conn) (said bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false, err
	}
	var ended error
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		for {
			n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			switch {
			case err == syscall.EINTR:
				continue
			case err == syscall.EAGAIN:
				return false
			}
			said, ended = n > 0, err
			return true
		}
	})
	if err == nil {
		err = ended
	}
	return said, err
}

// CopyOf duplicates the descriptor of a connection, to be sent to another process. The connection
// stays as it is.
func CopyOf(conn syscall.Conn) (*os.File, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, failed := 0, error(nil)
	err = raw.Control(func(from uintptr) { fd, failed = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("copying a descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), "copy"), nil
}
