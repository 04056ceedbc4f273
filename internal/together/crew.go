package together

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// crew are threads that wait for tasks. Go wakes goroutines one after the other, each by the one
// before, and where waking a thread takes as long as copying a megabyte, most of a task is done
// before they are all there. So these threads sleep in a system call, which one other ends for all of
// them at once. To look for the next task for a while before they sleep gained nothing.
//
// One task at a time has the crew: its caller holds owner, sets task and increments number. Helpers
// count themselves into inside before they read task; the caller clears task and waits until inside
// is 0, so that no helper makes a call after Do has returned.
type crew struct {
	owner  sync.Mutex
	made   bool // or could not be; under owner
	wakes  int  // a descriptor from which a helper reads when it sleeps; -1: there is no crew
	task   atomic.Pointer[task]
	number atomic.Uint32
	inside atomic.Int32
	asleep atomic.Int32
}

var theCrew = crew{wakes: -1}

// A caller looks shortCalls times whether the last helper is done before it sleeps, for longCall each
// time.
const (
	shortCalls = 1000
	longCall   = 100 * time.Microsecond
)

// do does a task with the crew; false if it has another, or cannot be made.
func (c *crew) do(t *task) bool {
	if !c.owner.TryLock() {
		return false
	}
	defer c.owner.Unlock()
	if !c.made {
		c.make()
	}
	if c.wakes < 0 {
		return false
	}
	c.task.Store(t)
	c.number.Add(1)
	c.wake()
	defer func() { // also if the caller's own call panics
		c.task.Store(nil)
		for looks := 0; c.inside.Load() > 0; looks++ { // the last calls
			if looks < shortCalls {
				runtime.Gosched()
			} else { // a page may have to come from a disk
				time.Sleep(longCall)
			}
		}
		t.end()
	}()
	t.some()
	return true
}

// make starts the helpers. They live as long as the process.
func (c *crew) make() {
	c.made = true
	fd, err := unix.Eventfd(0, unix.EFD_SEMAPHORE|unix.EFD_CLOEXEC) // each read takes 1
	if err != nil {
		return
	}
	c.wakes = fd
	for range min(runtime.GOMAXPROCS(0)/2, most) - 1 {
		go c.help()
	}
}

// wake ends the sleep of all helpers that sleep, or are about to.
func (c *crew) wake() {
	if n := c.asleep.Swap(0); n > 0 {
		_, _ = syscall.Write(c.wakes, binary.NativeEndian.AppendUint64(nil, uint64(n))) // it cannot be full
	}
}

func (c *crew) help() {
	debug.SetPanicOnFault(true)
	for seen := uint32(0); ; {
		c.sleep(seen)
		seen = c.number.Load()
		c.inside.Add(1)
		if t := c.task.Load(); t != nil {
			t.help()
		}
		c.inside.Add(-1)
	}
}

// sleep returns when another task may have come. A caller of Do that has not seen this helper among
// those asleep has incremented number before, so the helper sees that.
func (c *crew) sleep(seen uint32) {
	c.asleep.Add(1)
	if c.number.Load() != seen && c.stays() {
		return
	}
	buffer := make([]byte, 8)
	for {
		if _, err := syscall.Read(c.wakes, buffer); err != syscall.EINTR {
			return
		}
	}
}

// stays takes one helper back out of those asleep; false if all of them are being woken, and this
// one must read its share.
func (c *crew) stays() bool {
	for n := c.asleep.Load(); n > 0; n = c.asleep.Load() {
		if c.asleep.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}
