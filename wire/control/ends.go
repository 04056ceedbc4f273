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

// DaemonEnd is the daemon's end of the connection to a worker. Any goroutine may send; only one may
// receive.
type DaemonEnd struct{ end }

// WorkerEnd is the worker's end. Any goroutine may send; only one may receive.
type WorkerEnd struct{ end }

// end is what both ends have in common.
type end struct {
	conn   *net.UnixConn
	mu     sync.Mutex // held while a message is sent
	buffer []byte     // used only by the goroutine that receives
}

// Pair makes both ends: one for this process, and a file that the worker opens with OpenWorkerEnd.
// The caller must close the file when the worker has it.
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

// OpenWorkerEnd opens a worker's end. It duplicates the descriptor: f may be closed afterwards.
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

// Send sends the worker a message. Files come with Serve; exactly one comes with AddDevice, Hold,
// Probe, Checkpoint and Restore, one or none with GrantFurther, and three with Prepare.
func (e *DaemonEnd) Send(m ToWorker, files ...*os.File) error { return e.send(m, files) }

// Receive waits for a message of the worker. A worker has no descriptors to give: a message that
// brings some is refused.
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

// Send sends the daemon a message.
func (e *WorkerEnd) Send(m ToDaemon) error { return e.send(m, nil) }

// Receive waits for a message of the daemon. The caller must close the files that come with it.
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

// preparedFiles is the number of descriptors that come with Prepare.
const preparedFiles = 3

// checkFiles refuses descriptors where none belong, and a device without its lock or a checkpoint
// without its file. The worker itself checks whether Serve brings as many as it needs.
func checkFiles(m ToWorker, n int) error {
	var right bool
	switch m.(type) {
	case Serve:
		right = true
	case AddDevice, Hold, Probe, Checkpoint, Restore:
		right = n == 1
	case GrantFurther:
		right = n <= 1
	case Prepare:
		right = n == preparedFiles
	default:
		right = n == 0
	}
	if !right {
		return fmt.Errorf("%w: %s brings %d descriptors", ErrRefused, m.Kind(), n)
	}
	return nil
}

// CloseWrite says that nothing more is sent; what the worker still says can be received.
func (e *DaemonEnd) CloseWrite() error { return e.conn.CloseWrite() }

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

// receive returns one packet; its bytes are valid until the next call.
func (e *end) receive() ([]byte, []*os.File, error) {
	if e.buffer == nil {
		e.buffer = make([]byte, maxMessage)
	}
	n, files, err := wire.ReceiveFiles(e.conn, e.buffer)
	if errors.Is(err, syscall.ECONNRESET) {
		// The other side ended without having read everything that was sent to it. What it sent
		// before that can still be read.
		n, files, err = wire.ReceiveFiles(e.conn, e.buffer)
	}
	return e.buffer[:n], files, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
