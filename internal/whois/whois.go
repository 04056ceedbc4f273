// Package whois says who is at the other end of a Unix socket, as the kernel knows it.
//
// It knows nothing of what is said there.
package whois

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
)

// Of returns the process that connected, or that listens, and its effective user.
func Of(conn *net.UnixConn) (*syscall.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("asking who is at the other end: %w", err)
	}
	return peer, nil
}

// RootOrSelf says whether a user is root or the one who runs this process.
func RootOrSelf(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }

// Names remembers the names of users, since looking one up may take long. Its zero value is ready.
type Names struct {
	mu    sync.Mutex
	known map[uint32]string
}

// Of returns a user's name, or the number of one who has none.
func (n *Names) Of(uid uint32) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.known[uid]; ok {
		return name
	}
	name := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	if n.known == nil {
		n.known = map[uint32]string{}
	}
	n.known[uid] = name
	return name
}

// Inode is the number by which the system knows a connection; 0 if it does not tell.
func Inode(conn *net.UnixConn) (number uint64) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		var info syscall.Stat_t
		if syscall.Fstat(int(fd), &info) == nil {
			number = info.Ino
		}
	})
	return number
}
