// Package turnlock has worker processes that share a software device run kernels one at a time: by locks
// on a file, which end with the process. It knows neither devices nor kernels.
package turnlock

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Turns is a lock between the worker processes that share one software device, so that they run
// kernels one at a time. It locks bytes of a file that all of them have open. The kernel releases
// the locks of a process that dies. A process that is stopped keeps its locks; the daemon finds out
// because its pings are not answered, and kills it.
//
// A process that wants the turn first locks the queue byte, then waits for the turn byte. Otherwise
// a process that unlocks and locks again at once would win against one that sleeps in the kernel,
// and could starve it: now it has to queue behind the process that holds the queue byte.
type Turns struct {
	file *os.File
}

var _ sync.Locker = (*Turns)(nil)

// New makes a lock of an open file. The locks are open-file-description locks (F_OFD_SETLKW),
// so each process needs an open file of its own, as the daemon gives it (wire.OpenLock): two
// processes that share one by inheritance do not exclude each other.
func New(own *os.File) (*Turns, error) {
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

// Unlock gives up the turn.
func (t *Turns) Unlock() { t.set(turnByte, syscall.F_UNLCK) }

func (t *Turns) set(at int64, kind int16) {
	for {
		lock := syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
		err := syscall.FcntlFlock(t.file.Fd(), unix.F_OFD_SETLKW, &lock)
		if err != syscall.EINTR {
			if err != nil {
				panic(fmt.Sprintf("locking a device: %v", err)) // the file is ours and open, so this cannot happen
			}
			return
		}
	}
}
