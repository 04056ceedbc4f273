//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"muster/device"
)

// event is an event of the driver, with a time.
type event struct {
	device.Watched
	c      *gpuContext
	number uint64 // of events of the context, in the order in which they were made

	mu       sync.Mutex
	handle   C.mcu_handle // 0 when closed
	recorded bool
}

var _ device.Event = (*event)(nil)

// NewEvent makes an event.
func (c *gpuContext) NewEvent() (device.Event, error) {
	e := &event{c: c}
	e.DoneWithin = e.doneWithin
	if err := c.call(func() C.mcu_result { return C.mcu_event_create(c.handle, 1, &e.handle) }); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.events++
	e.number = c.events
	c.mu.Unlock()
	return e, nil
}

// eventOf returns e as this package's type, and refuses events of other contexts.
func (c *gpuContext) eventOf(e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil || own.c != c {
		return nil, fmt.Errorf("an event of another context: %w", device.ErrInvalidValue)
	}
	return own, nil
}

// use runs f with the event's lock held, so that Close cannot destroy the event meanwhile.
func (e *event) use(f func(handle C.mcu_handle) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.c.Err(); err != nil {
		return err
	}
	if e.handle == 0 {
		return fmt.Errorf("event: %w", device.ErrClosed)
	}
	return f(e.handle)
}

// Done says whether the work has ended.
func (e *event) Done() (bool, error) { return e.c.told(e.query()) }

func (e *event) query() (done bool, err error) {
	err = e.use(func(handle C.mcu_handle) error {
		done, err = e.c.reached(handle)
		return err
	})
	return done && err == nil, err
}

// doneWithin is Done, but polls for up to limit, without leaving the thread.
func (e *event) doneWithin(limit time.Duration) (done bool, err error) {
	err = e.use(func(handle C.mcu_handle) error {
		done, err = e.c.isDone(func() C.mcu_result { return C.mcu_event_watch(e.c.handle, handle, C.int64_t(limit)) })
		return err
	})
	return e.c.told(done && err == nil, err)
}

// Synchronise waits for the work.
func (e *event) Synchronise(ctx context.Context) error { return e.c.wait(ctx, e.Done) }

// Since returns the time from another event to this one.
func (e *event) Since(start device.Event) (time.Duration, error) {
	from, err := e.c.eventOf(start)
	if err != nil {
		return 0, err
	}
	for _, one := range []*event{from, e} {
		err := one.use(func(C.mcu_handle) error {
			if !one.recorded {
				return fmt.Errorf("an event that was never recorded: %w", device.ErrInvalidValue)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	// The driver is always asked about the older event first, so that a.Since(b) is exactly
	// -b.Since(a), and so that two calls take the events' locks in the same order.
	switch {
	case from == e:
		if done, err := e.Done(); err != nil || done {
			return 0, err
		}
		return 0, fmt.Errorf("the event's work has not ended: %w", device.ErrNotReady)
	case from.number < e.number:
		return from.until(e)
	}
	d, err := e.until(from)
	return -d, err
}

// until asks the driver for the time from e to an event that was made later.
func (e *event) until(later *event) (d time.Duration, err error) {
	err = e.use(func(first C.mcu_handle) error {
		return later.use(func(second C.mcu_handle) error {
			var ms C.float
			if err := e.c.call(func() C.mcu_result { return C.mcu_event_elapsed(e.c.handle, first, second, &ms) }); err != nil {
				return err
			}
			d = time.Duration(math.Round(float64(ms) * float64(time.Millisecond)))
			return nil
		})
	})
	return d, err
}

// Close destroys the event. Streams that already wait for it go on waiting.
func (e *event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handle == 0 || e.c.Err() != nil { // the driver destroys it with the context
		return nil
	}
	handle := e.handle
	e.handle = 0
	return e.c.call(func() C.mcu_result { return C.mcu_event_destroy(e.c.handle, handle) })
}
