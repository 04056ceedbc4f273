package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/internal/whois"
	"muster/node/ask"
	"muster/node/settings"
)

// listener is the daemon's socket.
type listener struct {
	*net.UnixListener
	path string // "" for one without a file
	file fs.FileInfo
}

// Close closes the socket and removes its file, unless another daemon has put its
// own there.
func (l *listener) Close() error {
	if l.path != "" {
		if now, err := os.Lstat(l.path); err == nil && sameSocket(now, l.file) {
			_ = os.Remove(l.path)
		}
	}
	return l.UnixListener.Close()
}

// Listen opens the daemon's socket. A socket at which no process answers was left by a
// killed daemon, and is replaced.
func Listen(s settings.Socket, mode os.FileMode, log *slog.Logger) (*listener, error) {
	address := &net.UnixAddr{Name: s.Address, Net: "unix"}
	isFile := !strings.HasPrefix(s.Address, "@")
	if isFile {
		if err := checkFolder(filepath.Dir(s.Address), log); err != nil {
			return nil, err
		}
		// The socket is created closed to all others, so that no program can connect
		// before giveAccess has set who may.
		defer syscall.Umask(syscall.Umask(0o177))
	}
	l, err := net.ListenUnix("unix", address)
	switch {
	case !errors.Is(err, syscall.EADDRINUSE):
	case !isFile:
		if l, err = listenLater(address); errors.Is(err, syscall.EADDRINUSE) {
			return nil, taken(s.Address)
		}
	default:
		if err := makeWay(s.Address); err != nil {
			return nil, err
		}
		l, err = net.ListenUnix("unix", address)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the socket: %w", err)
	}
	if !isFile {
		return &listener{UnixListener: l}, nil
	}
	l.SetUnlinkOnClose(false)
	err = giveAccess(s, mode)
	file, lost := os.Lstat(s.Address)
	own := &listener{l, s.Address, file}
	if err = errors.Join(err, lost); err != nil {
		own.Close()
		return nil, err
	}
	return own, nil
}

// How long, and how often, listenLater tries to get an abstract name.
const nameWait, nameLook = 2 * time.Second, 10 * time.Millisecond

// listenLater waits for an abstract name that is taken although no daemon answers at
// it: between fork and exec, a process that a killed daemon was starting still holds
// its socket.
func listenLater(address *net.UnixAddr) (l *net.UnixListener, err error) {
	for end := time.Now().Add(nameWait); ; {
		if _, asked := ask.StatusWithin(address.Name, 300*time.Millisecond); asked == nil {
			return nil, syscall.EADDRINUSE
		}
		l, err = net.ListenUnix("unix", address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
		time.Sleep(nameLook)
	}
}

// taken says that another node is at the address.
func taken(address string) error {
	if s, err := ask.StatusWithin(address, 300*time.Millisecond); err == nil && s.Draining {
		return fmt.Errorf("the node at %s is still shutting down: wait for it, or give this one another socket (--socket)", address)
	}
	return fmt.Errorf("a node answers at %s already: stop it, or give this one another socket (--socket)", address)
}

// checkFolder refuses a folder in which every user can replace the socket, and warns of
// one that belongs to another user. Programs would not trust a socket of another user
// there, but they would not find the node either.
func checkFolder(dir string, log *slog.Logger) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("opening the socket: %w", err)
	}
	mode := info.Mode()
	if mode&os.ModeSticky != 0 {
		return nil
	}
	if mode.Perm()&0o002 != 0 {
		return fmt.Errorf("everybody can write to %s, and so replace the socket there: put it elsewhere, or chmod o-w %s", dir, dir)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.Uid != 0 && owner.Uid != uint32(os.Getuid()) {
		log.Warn("the socket's folder is another user's, who can replace the socket", "folder", dir, "owner", owner.Uid)
	}
	return nil
}

func giveAccess(s settings.Socket, mode os.FileMode) error {
	if s.Group != "" {
		group, err := user.LookupGroup(s.Group)
		if errors.As(err, new(user.UnknownGroupError)) {
			return fmt.Errorf("the socket's group: there is no group %s on this machine: make it with groupadd, or name another (socket.group)", s.Group)
		}
		if err != nil {
			return fmt.Errorf("the socket's group: %w", err)
		}
		gid, err := strconv.Atoi(group.Gid)
		if err != nil {
			return fmt.Errorf("the socket's group: %w", err)
		}
		if err := os.Chown(s.Address, -1, gid); err != nil {
			return fmt.Errorf("giving the socket to group %s: %w", s.Group, err)
		}
	}
	if err := os.Chmod(s.Address, mode); err != nil {
		return fmt.Errorf("setting who may use the socket: %w", err)
	}
	return nil
}

// Peer is who is at the other end of a connection, as the kernel says.
type Peer struct {
	User    settings.Account
	PID     int32
	Address string // on another machine, as the gateway saw it; "" on this one
}

// PeerOf asks the kernel who is at the other end.
func PeerOf(conn *net.UnixConn, names *whois.Names) (Peer, error) {
	who, err := whois.Of(conn)
	if err != nil {
		return Peer{}, err
	}
	return Peer{User: settings.Account{UID: who.Uid, Name: names.Of(who.Uid)}, PID: who.Pid}, nil
}

// Key tells users of the machine apart.
func (p Peer) Key() string { return strconv.FormatUint(uint64(p.User.UID), 10) }

// Pair makes both ends of a connection; the other end is for another process.
func Pair() (own *net.UnixConn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a connection: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "connection")
	defer ours.Close()
	theirs = os.NewFile(uintptr(fds[1]), "connection")
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}
