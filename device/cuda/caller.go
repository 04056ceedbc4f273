//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
	"time"

	"muster/device"
)

// caller makes the calls of the driver for a context, and knows why the context has ended. The parts
// of a context hold it instead of the context.
type caller struct {
	handle   C.mcu_handle
	asserted func()   // called once the driver says that an assertion has failed, before err is set
	launcher launcher // has its own lock

	// use is held for reading during calls of the driver, and for writing by split and
	// Close, which need that no goroutine calls the driver meanwhile.
	use sync.RWMutex

	mu    sync.Mutex     // guards the fields below; held for moments only
	marks []C.mcu_handle // free events without a time
	err   error          // why the context has ended, or nil
	ended chan struct{}  // closed when err is set
}

// Err returns why the context has ended, or nil.
func (c *caller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end makes err the answer to every call from now on, unless the context has ended before.
func (c *caller) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.ended)
	}
}

// close makes ErrClosed the answer to every call from now on, and says whether the context was sound.
func (c *caller) close() (sound bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sound = c.err == nil; sound {
		close(c.ended)
	}
	c.err = device.ErrClosed
	return sound
}

// call runs a call of the driver, after all launches that were left to the launcher. The caller must
// not hold use.
func (c *caller) call(f func() C.mcu_result) error {
	c.use.RLock()
	defer c.use.RUnlock()
	if err := c.Err(); err != nil {
		return err
	}
	c.launcher.wait()
	return c.answer(f())
}

// answer translates an answer of the driver into the contract's errors. A fault ends
// the context.
func (c *caller) answer(r C.mcu_result) error {
	err := failed(r)
	if err == nil {
		return nil
	}
	if f := err.fault(); f != nil {
		if f.Kind == device.Assert {
			c.asserted()
		}
		c.end(f)
		return c.Err()
	}
	return err
}

// isDone runs a query of the driver. Unlike call it does not wait for the launcher.
func (c *caller) isDone(f func() C.mcu_result) (bool, error) {
	c.use.RLock()
	defer c.use.RUnlock()
	if err := c.Err(); err != nil {
		return false, err
	}
	err := c.answer(f())
	if errors.Is(err, device.ErrNotReady) {
		return false, nil
	}
	return err == nil, err
}

// Waits poll the driver, because its own waits cannot be cancelled. The first eagerLooks
// polls follow each other at once, since most work is short. Then there are naps between
// them, which grow with every looksPerStep polls.
const (
	eagerLooks   = 200
	shortestNap  = 20 * time.Microsecond
	longestNap   = 500 * time.Microsecond
	looksPerStep = 16
)

// wait polls until done returns true or an error, the context ends, or ctx is
// cancelled.
func (c *caller) wait(ctx context.Context, done func() (bool, error)) error {
	nap := shortestNap
	for looks := 1; ; looks++ {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return c.Err()
		default:
		}
		if looks < eagerLooks {
			runtime.Gosched()
			continue
		}
		rest(nap)
		if looks%looksPerStep == 0 {
			nap = min(2*nap, longestNap)
		}
	}
}

// rest sleeps with a system call: in an otherwise idle process Go's timers turn less than a millisecond
// into a whole one.
func rest(moment time.Duration) {
	t := syscall.NsecToTimespec(int64(moment))
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early, which does no harm
}

// takeMark returns an event of the driver without a time. giveMarks gives it back.
func (c *caller) takeMark() (m C.mcu_handle, err error) {
	c.mu.Lock()
	if n := len(c.marks); n > 0 {
		m, c.marks = c.marks[n-1], c.marks[:n-1]
	}
	c.mu.Unlock()
	if m == 0 {
		err = c.call(func() C.mcu_result { return C.mcu_event_create(c.handle, 0, &m) })
	}
	return m, err
}

func (c *caller) giveMarks(marks []C.mcu_handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks = append(c.marks, marks...)
}

func (c *caller) reached(m C.mcu_handle) (bool, error) {
	return c.isDone(func() C.mcu_result { return C.mcu_event_query(c.handle, m) })
}
