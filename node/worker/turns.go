package worker

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// Turns lets the processes that stand for one software device run kernels one
// at a time. It locks bytes of a file that all of them have; the system takes
// the locks back from a process that dies. One that is stopped keeps them: the
// daemon finds out by its pings, and kills it.
//
// Who wants the turn first locks the queue's byte, then waits for the turn's
// byte, so that a process which gives the turn back cannot take it again before
// the one that waits.
type Turns struct {
	file *os.File
}

var _ sync.Locker = (*Turns)(nil)

// NewTurns takes turns with a lock file. Locks belong to an open file, so this one
// must be the process's own, as the daemon gives it (wire.OpenLock): those who share
// one do not exclude each other.
func NewTurns(own *os.File) (*Turns, error) {
	if _, err := own.Stat(); err != nil {
		return nil, fmt.Errorf("a device's lock: %w", err)
	}
	return &Turns{own}, nil
}

const turnByte, queueByte = 0, 1

// Lock waits for the turn.
func (t *Turns) Lock() {
	t.set(queueByte, syscall.F_WRLCK)
	t.set(turnByte, syscall.F_WRLCK)
	t.set(queueByte, syscall.F_UNLCK)
}

// Unlock gives the turn back.
func (t *Turns) Unlock() { t.set(turnByte, syscall.F_UNLCK) }

func (t *Turns) set(at int64, kind int16) {
	const ofdSetLockWait = 38 // F_OFD_SETLKW
	for {
		lock := syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
		err := syscall.FcntlFlock(t.file.Fd(), ofdSetLockWait, &lock)
		if err != syscall.EINTR {
			if err != nil {
				panic(fmt.Sprintf("locking a device: %v", err)) // the file is ours and open: cannot be
			}
			return
		}
	}
}
