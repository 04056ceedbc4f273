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

// Eager is a connection whose reader can poll for bytes for a while before it sleeps, because
// waking a sleeping reader takes longer than many answers do. Its writer can combine several writes
// into one.
//
// Polling occupies a core. So at most a quarter of the cores poll at a time in a process, and none
// on two cores or fewer, where the processes that the readers wait for need them.
type Eager struct {
	*net.TCPConn
	raw  syscall.RawConn
	idle Idle
	look func(fd uintptr) bool // e.takeBytes, stored to avoid an allocation per read

	// The state of the current read.
	to      []byte
	n       int
	err     error
	asleep  bool // it has stopped polling
	looking bool // it is counted in the global looking

	mu    sync.Mutex
	holds bool   // writes are buffered in held
	held  []byte // the buffered writes
}

// Idle is called by the reader of an Eager when there are no bytes.
type Idle interface {
	// Look is called between two polls, and says whether to poll again. It must not close the
	// connection, because closing waits for the current read.
	Look() bool
	// Sleep is called before the reader sleeps. If the reader may not poll, Look is not called
	// before.
	Sleep()
}

// NewEager makes a TCP connection eager. It returns any other connection unchanged.
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

// WhileIdle sets what the reader of a connection calls when there are no bytes, if the connection
// is eager, or TLS over an eager one. No goroutine may read the connection meanwhile.
func WhileIdle(conn net.Conn, idle Idle) {
	if e := below(conn); e != nil {
		e.idle = idle
	} else if e, ok := conn.(*Eager); ok {
		e.idle = idle
	}
}

// below is the eager connection below TLS; nil if there is none.
func below(conn net.Conn) *Eager {
	over, ok := conn.(interface{ NetConn() net.Conn })
	if !ok {
		return nil
	}
	e, _ := over.NetConn().(*Eager)
	return e
}

// looking is the number of readers of this process that poll, and mostLooking its limit.
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

// SetLookers sets how many readers of this process may poll at a time, and returns the previous
// limit. It is for tests and measurements.
func SetLookers(n int) (before int) { return int(mostLooking.Swap(int32(n))) }

// Read reads bytes, and polls for them first if Idle is set.
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

// takeBytes polls for bytes, and says whether the read is complete. If it returns false, the
// runtime's poller sleeps until the socket is readable and calls it again.
func (e *Eager) takeBytes(fd uintptr) bool {
	for i := 0; ; i++ {
		n, err := syscall.Read(int(fd), e.to)
		if err != syscall.EAGAIN && err != syscall.EINTR {
			e.n, e.err = max(0, n), err
			return true
		}
		switch {
		case e.asleep: // a spurious wake-up: the bytes have already been read
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

// holdAtMost is the size of the write buffer, in bytes.
const holdAtMost = 320 << 10

// Hold buffers writes until Release. TLS writes each of its records, of 16 KiB, separately; one
// long write takes less time.
func (e *Eager) Hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holds = true
	if e.held == nil {
		e.held = make([]byte, 0, holdAtMost)
	}
}

// Release writes what was buffered.
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

// Write writes bytes, or buffers them.
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
