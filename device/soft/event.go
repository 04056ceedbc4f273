package soft

import (
	"context"
	"fmt"
	"sync"
	"time"

	"muster/device"
)

// event stands for the mark that the latest Record put into a stream.
type event struct {
	device.Watched
	c *Context

	mu     sync.Mutex
	mark   *mark // nil before the first record
	closed bool
}

var _ device.Event = (*event)(nil)

// eventOf returns e as this package's type. It refuses closed events, and those of other contexts.
func (c *Context) eventOf(e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own.c != c {
		return nil, fmt.Errorf("an event of another context: %w", device.ErrInvalidValue)
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.closed {
		return nil, fmt.Errorf("event: %w", device.ErrClosed)
	}
	return own, nil
}

func (e *event) current() *mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mark
}

// Done says whether the mark was reached.
func (e *event) Done() (bool, error) {
	if _, err := e.c.eventOf(e); err != nil {
		return false, err
	}
	if err := e.c.Err(); err != nil {
		return false, err
	}
	return e.current().isReached(), nil
}

func (m *mark) isReached() bool {
	if m == nil {
		return true
	}
	select {
	case <-m.reached:
		return true
	default:
		return false
	}
}

// Synchronise waits until the mark is reached.
func (e *event) Synchronise(ctx context.Context) error {
	if _, err := e.c.eventOf(e); err != nil {
		return err
	}
	m := e.current()
	if m == nil {
		return e.c.Err()
	}
	return e.c.await(ctx, m)
}

// Since returns the time from another event to this one.
func (e *event) Since(start device.Event) (time.Duration, error) {
	var at [2]time.Duration
	for i, one := range []device.Event{start, e} {
		own, err := e.c.eventOf(one)
		if err != nil {
			return 0, err
		}
		m := own.current()
		switch {
		case m == nil:
			return 0, fmt.Errorf("an event that was never recorded: %w", device.ErrInvalidValue)
		case !m.isReached():
			if err := e.c.Err(); err != nil {
				return 0, err
			}
			return 0, fmt.Errorf("the event's work has not ended: %w", device.ErrNotReady)
		}
		at[i] = m.at
	}
	return at[1] - at[0], e.c.Err()
}

// Close makes later calls with the event fail. Streams that already wait for its mark go on waiting.
func (e *event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}
