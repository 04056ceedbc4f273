package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"muster/node/ask"
)

// makeWay removes what a killed daemon left where the socket is to be: a socket of this
// user at which nobody answers. Anything else may be a file that a user needs, and is
// refused.
//
// The socket is moved aside and compared again before it is removed, since another
// daemon that starts at this moment may have put its own there.
func makeWay(path string) error {
	dead, err := deadSocket(path)
	if err != nil {
		return err
	}
	err = removeSame(path, dead)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the socket of a node that is no more: %w", err)
	}
	return nil
}

// nobodyListens is the error of connecting to a socket; nil if somebody listens there. As with names
// without a file (listenLater), that may be a process that a killed daemon was starting, for a moment.
func nobodyListens(path string) error {
	for end := time.Now().Add(nameWait); ; time.Sleep(nameLook) {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		conn.Close()
		if _, asked := ask.StatusWithin(path, 300*time.Millisecond); asked == nil || time.Now().After(end) {
			return nil
		}
	}
}

// deadSocket says what is at a path, if it is a socket that can be removed.
func deadSocket(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("opening the socket: %w", err)
	}
	const remedy = "give the node's socket a path at which there is nothing"
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, fmt.Errorf("%s is a folder: %s", path, remedy)
	case mode&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("%s is a symbolic link: name the socket itself, or %s", path, remedy)
	case mode.Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is a file, which is left alone: %s", path, remedy)
	}
	switch err := nobodyListens(path); {
	case err == nil:
		return nil, taken(path)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("whether a node answers at %s cannot be told: %w: give this one another socket (--socket)", path, err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != uint32(os.Geteuid()) {
		return nil, fmt.Errorf("nobody answers at %s, but user %d made it: remove it by hand, or give this node another socket (--socket)", path, owner.Uid)
	}
	return info, nil
}

// removeSame removes a socket if it is still the one that was examined.
func removeSame(path string, seen fs.FileInfo) error {
	folder, err := os.MkdirTemp(filepath.Dir(path), ".muster-*")
	if err != nil {
		return err
	}
	aside := filepath.Join(folder, "socket")
	if err := os.Rename(path, aside); err != nil {
		return errors.Join(err, os.Remove(folder))
	}
	if now, err := os.Lstat(aside); err != nil || !sameSocket(now, seen) {
		err = errors.Join(fmt.Errorf("another node starts at %s: give this one another socket (--socket)", path), err, os.Link(aside, path))
		return errors.Join(err, os.Remove(aside), os.Remove(folder))
	}
	return errors.Join(os.Remove(aside), os.Remove(folder))
}

// sameSocket says whether two looks saw the same file. Filesystems reuse the inode
// number of a removed file, so its modification time must match too.
func sameSocket(a, b fs.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }
