package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"muster/wire"
)

// DaemonEnd is the daemon's end of the connection to a worker. Any goroutine may
// send; one receives.
type DaemonEnd struct{ end }

// WorkerEnd is the worker's end. Any goroutine may send; one receives.
type WorkerEnd struct{ end }

// end is what both have.
type end struct {
	conn   *net.UnixConn
	mu     sync.Mutex // held while a message is sent
	buffer []byte     // of the one goroutine that receives
}

// Pair makes both ends: one for this process, and a file for the worker to open
// with OpenWorkerEnd, which the caller closes when the worker has it.
func Pair() (*DaemonEnd, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	own, child := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer own.Close()
	conn, err := open(own)
	if err != nil {
		child.Close()
		return nil, nil, err
	}
	return &DaemonEnd{end{conn: conn}}, child, nil
}

// OpenWorkerEnd opens a worker's end. It keeps a descriptor of its own: f may be
// closed afterwards.
func OpenWorkerEnd(f *os.File) (*WorkerEnd, error) {
	conn, err := open(f)
	if err != nil {
		return nil, err
	}
	return &WorkerEnd{end{conn: conn}}, nil
}

func open(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("opening the control connection: %w", err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("the control connection is no Unix socket")
	}
	return unix, nil
}

// Send tells the worker something. Files come with Serve; one comes with AddDevice,
// Hold, Probe, Checkpoint and Restore.
func (e *DaemonEnd) Send(m ToWorker, files ...*os.File) error { return e.send(m, files) }

// Receive waits for what the worker says. A worker has no descriptors to give:
// a message that brings some is refused.
func (e *DaemonEnd) Receive() (ToDaemon, error) {
	b, files, err := e.receive()
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		closeAll(files)
		return nil, fmt.Errorf("%w: it brings %d descriptors", ErrRefused, len(files))
	}
	return decode[ToDaemon](b, kindsToDaemon)
}

// Send tells the daemon something.
func (e *WorkerEnd) Send(m ToDaemon) error { return e.send(m, nil) }

// Receive waits for what the daemon says. The files that come with it, if any do, are
// the caller's to close.
func (e *WorkerEnd) Receive() (ToWorker, []*os.File, error) {
	b, files, err := e.receive()
	if err != nil {
		return nil, nil, err
	}
	m, err := decode[ToWorker](b, kindsToWorker)
	if err == nil {
		err = checkFiles(m, len(files))
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return m, files, nil
}

// checkFiles refuses descriptors where none belong, and a device without its lock or a
// checkpoint without its file.
// Whether Serve brings as many as it must is for the worker to see.
func checkFiles(m ToWorker, n int) error {
	var right bool
	switch m.(type) {
	case Serve:
		right = true
	case AddDevice, Hold, Probe, Checkpoint, Restore:
		right = n == 1
	default:
		right = n == 0
	}
	if !right {
		return fmt.Errorf("%w: %s brings %d descriptors", ErrRefused, m.Kind(), n)
	}
	return nil
}

// Close ends the connection; the other side notices.
func (e *end) Close() error { return e.conn.Close() }

func (e *end) send(m message, files []*os.File) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return wire.SendFiles(e.conn, b, files...)
}

// receive returns one packet; its bytes are valid until the next.
func (e *end) receive() ([]byte, []*os.File, error) {
	if e.buffer == nil {
		e.buffer = make([]byte, maxMessage)
	}
	n, files, err := wire.ReceiveFiles(e.conn, e.buffer)
	if errors.Is(err, syscall.ECONNRESET) {
		// The other side ended without having read all that it was sent. What it said
		// before that is still to be had.
		n, files, err = wire.ReceiveFiles(e.conn, e.buffer)
	}
	return e.buffer[:n], files, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
