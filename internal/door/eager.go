package door

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// Eager is a connection whose reader may look for bytes again and again for a while
// before it sleeps: a reader that sleeps is woken later than many answers come. Its writer
// may have several writes made one.
//
// Looking takes a core. So no more readers of a process look at a time than a quarter of
// its cores, and with two cores none does: those whom they wait for need them.
type Eager struct {
	*net.TCPConn
	raw  syscall.RawConn
	idle Idle
	look func(fd uintptr) bool // takeBytes, made once

	// Of the read under way.
	to      []byte
	n       int
	err     error
	asleep  bool // it has stopped looking
	looking bool // it is one of those that look

	mu    sync.Mutex
	holds bool   // what is written is kept
	held  []byte // that
}

// Idle is what the reader of an Eager does where it finds nothing.
type Idle interface {
	// Look is called between two looks, and says whether there is to be another. It must
	// not close the connection: closing waits for the read under way.
	Look() bool
	// Sleep is called before the reader sleeps, without Look where none may look.
	Sleep()
}

// NewEager makes a connection eager, if it is one of TCP.
func NewEager(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	e := &Eager{TCPConn: tcp, raw: raw}
	e.look = e.takeBytes
	return e
}

// WhileIdle sets what the reader of a connection does when it finds nothing, if the connection is
// eager, or TLS over an eager one. The caller must make sure that no goroutine reads the connection
// meanwhile.
func WhileIdle(conn net.Conn, idle Idle) {
	if e := below(conn); e != nil {
		e.idle = idle
	} else if e, ok := conn.(*Eager); ok {
		e.idle = idle
	}
}

// below is the eager connection that TLS is spoken over; nil if there is none.
func below(conn net.Conn) *Eager {
	over, ok := conn.(interface{ NetConn() net.Conn })
	if !ok {
		return nil
	}
	e, _ := over.NetConn().(*Eager)
	return e
}

// looking is how many readers of this process look, mostLooking how many may.
var (
	looking     atomic.Int32
	mostLooking atomic.Int32
)

func init() { SetLookers(lookersFor(runtime.GOMAXPROCS(0))) }

// lookersFor is how many readers may poll at the same time on this many cores.
func lookersFor(cores int) int {
	if cores <= 2 {
		return 0
	}
	return max(1, cores/4)
}

// SetLookers says how many readers of this process may look at a time, and returns how
// many might before. It is for tests and measurements.
func SetLookers(n int) (before int) { return int(mostLooking.Swap(int32(n))) }

// Read waits for bytes.
func (e *Eager) Read(b []byte) (int, error) {
	if e.idle == nil || len(b) == 0 {
		return e.TCPConn.Read(b)
	}
	e.to, e.n, e.err, e.asleep = b, 0, nil, false
	err := e.raw.Read(e.look)
	e.stopLooking()
	e.to = nil
	switch {
	case err != nil:
		return 0, err
	case e.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: e.LocalAddr(), Addr: e.RemoteAddr(), Err: os.NewSyscallError("read", e.err)}
	case e.n == 0:
		return 0, io.EOF
	}
	return e.n, nil
}

// takeBytes looks for bytes, and says whether the read is over: otherwise the system
// tells when there are some, and it is called again.
func (e *Eager) takeBytes(fd uintptr) bool {
	for i := 0; ; i++ {
		n, err := syscall.Read(int(fd), e.to)
		if err != syscall.EAGAIN && err != syscall.EINTR {
			e.n, e.err = max(0, n), err
			return true
		}
		switch {
		case e.asleep: // the system has told of bytes that are read already
			return false
		case !e.mayLook() || !e.idle.Look():
			e.asleep = true
			e.stopLooking()
			e.idle.Sleep()
			return false
		case i%16 == 15:
			runtime.Gosched()
		}
	}
}

func (e *Eager) mayLook() bool {
	if e.looking {
		return true
	}
	e.looking = looking.Add(1) <= mostLooking.Load()
	if !e.looking {
		looking.Add(-1)
	}
	return e.looking
}

func (e *Eager) stopLooking() {
	if e.looking {
		e.looking = false
		looking.Add(-1)
	}
}

// holdAtMost is how many bytes are kept at most before they are written.
const holdAtMost = 320 << 10

// Hold keeps what is written until Release: TLS writes each of its records, of 16 KiB, by
// itself, and one long write takes less time.
func (e *Eager) Hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holds = true
	if e.held == nil {
		e.held = make([]byte, 0, holdAtMost)
	}
}

// Release writes what was kept.
func (e *Eager) Release() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holds = false
	return e.writeHeld()
}

func (e *Eager) writeHeld() error {
	if len(e.held) == 0 {
		return nil
	}
	_, err := e.TCPConn.Write(e.held)
	e.held = e.held[:0]
	return err
}

// Write writes bytes, or keeps them.
func (e *Eager) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.held)+len(b) > cap(e.held) {
		if err := e.writeHeld(); err != nil {
			return 0, err
		}
	}
	if !e.holds || len(b) > cap(e.held) {
		return e.TCPConn.Write(b)
	}
	e.held = append(e.held, b...)
	return len(b), nil
}
