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

// event is an event of the driver's, with a time.
type event struct {
	c      *gpuContext
	number uint64 // in the order of making

	mu       sync.Mutex
	handle   C.mcu_handle // 0 when closed
	recorded bool
}

var (
	_ device.Event   = (*event)(nil)
	_ device.Watcher = (*event)(nil)
)

// NewEvent makes an event.
func (c *gpuContext) NewEvent() (device.Event, error) {
	e := &event{c: c}
	if err := c.call(func() C.mcu_result { return C.mcu_event_create(c.handle, 1, &e.handle) }); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.events++
	e.number = c.events
	c.mu.Unlock()
	return e, nil
}

// eventOf returns an event of this context.
func (c *gpuContext) eventOf(e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil || own.c != c {
		return nil, fmt.Errorf("an event of another context: %w", device.ErrInvalidValue)
	}
	return own, nil
}

// use runs f while the event is not closed by others.
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
func (e *event) Done() (done bool, err error) {
	err = e.use(func(handle C.mcu_handle) error {
		done, err = e.c.reached(handle)
		return err
	})
	return done && err == nil, err
}

// DoneWithin is Done, and looks for a while.
func (e *event) DoneWithin(limit time.Duration) (done bool, err error) {
	err = e.use(func(handle C.mcu_handle) error {
		done, err = e.c.isDone(func() C.mcu_result { return C.mcu_event_watch(e.c.handle, handle, C.int64_t(limit)) })
		return err
	})
	return done && err == nil, err
}

// Synchronise waits for the work.
func (e *event) Synchronise(ctx context.Context) error {
	err := e.c.wait(ctx, e.Done)
	if err == nil {
		e.c.printed()
	}
	return err
}

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
	// Always asked in the same order, so that both ways round are alike.
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

// until asks the driver for the time to an event that was made later.
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

// Close forgets the event. Streams that wait for it still do.
func (e *event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handle == 0 || e.c.Err() != nil { // it goes with the context
		return nil
	}
	handle := e.handle
	e.handle = 0
	return e.c.call(func() C.mcu_result { return C.mcu_event_destroy(e.c.handle, handle) })
}
