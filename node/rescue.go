package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"muster/wire"
	"muster/wire/control"

	"golang.org/x/sys/unix"
)

// A worker that is stopped, or hangs, does not come to the daemon that was started
// again, and yet holds what its client needs to go on in another worker. The daemon
// copies the descriptors out of that process before it kills it. Root may do that, and
// so may the user of both processes, unless the system forbids it.

// rescue takes over what a worker holds that does not come. It returns false if that is
// not possible, or not enough to rebuild the client: then the client ends with the
// worker.
func (d *daemon) rescue(c *client) bool {
	held, err := takeHeld(c.worker, c.held)
	if err != nil {
		d.log.Warn("what a worker holds that does not come cannot be had: its client ends", "client", c.id, "error", err)
		return false
	}
	defer closeHeld(held)
	files := map[string]*os.File{}
	for _, h := range held {
		files[h.Name] = h.File
	}
	kept := keptOf(files)
	if !canOutlive(kept) {
		return false
	}
	b, err := openHeld(files)
	if err != nil {
		d.log.Warn("what a worker holds that does not come is of no use: its client ends", "client", c.id, "error", err)
		return false
	}
	c.conn, c.shared, c.kept = b.program, b.shared, b.kept
	d.handlers.Go(func() { d.accompany(c, b.program, false) })
	return true
}

// takeHeld copies the descriptors of a process that refer to the given files.
func takeHeld(w *workerProcess, files map[string]fileID) ([]control.Held, error) {
	process, err := openProcess(w.pid())
	if err != nil {
		return nil, err
	}
	defer process.Close()
	if !isRunning(w.pid(), w.start) { // the number belongs to another process now
		return nil, os.ErrProcessDone
	}
	numbers := map[fileID]int{}
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.pid()))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var stat syscall.Stat_t
		if n, err := strconv.Atoi(filepath.Base(path)); err == nil && syscall.Stat(path, &stat) == nil {
			numbers[fileID{uint64(stat.Dev), stat.Ino}] = n
		}
	}
	var held []control.Held
	for name, id := range files {
		number, ok := numbers[id]
		if !ok {
			closeHeld(held)
			return nil, fmt.Errorf("it has no %s", name)
		}
		f, err := descriptorOf(process, number, name)
		if err != nil {
			closeHeld(held)
			return nil, fmt.Errorf("the descriptor of the %s: %w", name, err)
		}
		held = append(held, control.Held{Name: name, File: f})
	}
	ids, err := identifyAll(held)
	if err == nil { // the process may have closed and reused a descriptor since it was listed
		err = sameFiles(files, ids, len(held))
	}
	if err != nil {
		closeHeld(held)
		return nil, err
	}
	return held, nil
}

// descriptorOf copies a descriptor of another process.
func descriptorOf(process *os.File, number int, name string) (*os.File, error) {
	raw, err := process.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, failed := 0, error(nil)
	err = raw.Control(func(of uintptr) { fd, failed = unix.PidfdGetfd(int(of), number, 0) })
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil // the system closes it on exec
}

// openHeld opens what a worker holds: the ring, to tell the program of its end, and the
// program's connection; and copies what another worker would need.
func openHeld(files map[string]*os.File) (*homecomer, error) {
	b := &homecomer{}
	shared, err := wire.Map(files["ring"], nil)
	if err != nil {
		return nil, err
	}
	b.shared = shared
	program, err := net.FileConn(files["program"])
	conn, ok := program.(*net.UnixConn) // it is the one that was accepted
	if err == nil && !ok {
		err = errors.New("the program's connection is none")
	}
	b.program = conn
	if kept := keptOf(files); err == nil && canOutlive(kept) {
		b.kept, err = copyHeld(kept)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}
