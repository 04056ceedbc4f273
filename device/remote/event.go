package remote

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/wire"
	"muster/wire/client"
)

// event stands for a point in the work of a stream.
type event struct {
	device.Watched
	c *Context

	mu     sync.Mutex
	mark   *mark // nil: never recorded
	closed bool
}

var _ device.Event = (*event)(nil)

// mark is one record of an event: it stands for the first number pieces of a stream's work. It uses
// an event at the lender. users counts references: the device.Event, and messages and calls that use
// the mark. When it drops to 0 the lender's event can serve another mark; reused earlier, it would
// stand for other work while a message still refers to it.
type mark struct {
	stream  *stream
	number  uint64       // see progress.issued
	id      uint32       // of the lender's event
	sent    *future      // the record was sent
	hazards []*future    // of the stream at the time of the record; a waiting stream inherits them
	users   atomic.Int32 // references
	asked   atomic.Bool  // a probe was sent
}

// NewEvent makes an event. The lender is told only when it is recorded.
func (c *Context) NewEvent() (device.Event, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &event{c: c}, nil
}

// lenderEvent returns the number of an event at the lender that no mark uses, and whether the caller
// must create it there.
func (c *Context) lenderEvent() (id uint32, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.events); n > 0 {
		id = c.events[n-1]
		c.events = c.events[:n-1]
		return id, false
	}
	return c.last.Add(1), true
}

// leave drops a reference to the mark.
func (m *mark) leave() {
	if m.users.Add(-1) > 0 {
		return
	}
	c := m.stream.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, m.id)
}

// own returns e as this package's type, and refuses events of other contexts.
func (c *Context) own(e device.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own.c != c {
		return nil, fmt.Errorf("an event of another context: %w", device.ErrInvalidValue)
	}
	return own, nil
}

// current returns the event's mark with one more reference, which the caller must leave; nil if the
// event was never recorded.
func (e *event) current() (*mark, error) {
	if err := e.c.check(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("the event: %w", device.ErrClosed)
	}
	if e.mark != nil {
		e.mark.users.Add(1)
	}
	return e.mark, nil
}

// Record lets e stand for the work submitted so far.
func (s *stream) Record(e device.Event) error {
	if err := s.c.check(); err != nil {
		return err
	}
	own, err := s.c.own(e)
	if err != nil {
		return err
	}
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	own.mu.Lock()
	if own.closed {
		own.mu.Unlock()
		return fmt.Errorf("the event: %w", device.ErrClosed)
	}
	id, isNew := s.c.lenderEvent()
	m := &mark{stream: s, number: s.number(), id: id, sent: newFuture(), hazards: s.hazarded()}
	m.users.Store(1)
	before := own.mark
	own.mark = m
	own.mu.Unlock()
	if before != nil {
		before.leave()
	}
	m.users.Add(1)
	return s.submit(job{send: func() error {
		defer m.leave()
		if isNew {
			if err := s.c.post(&wire.EventCreate{Event: id}); err != nil {
				return err
			}
		}
		err := s.c.post(&wire.EventRecord{Event: id, Stream: s.id})
		close(m.sent.done)
		return err
	}}, false)
}

// Wait makes later work of the stream wait for the work that e stands for. Later copies from host
// memory must then also wait for the copies to the host behind e: the stream inherits the hazards of
// the mark.
func (s *stream) Wait(e device.Event) error {
	if err := s.c.check(); err != nil {
		return err
	}
	own, err := s.c.own(e)
	if err != nil {
		return err
	}
	m, err := own.current()
	if err != nil || m == nil {
		return err
	}
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		m.leave()
		return err
	}
	if m.stream == s || m.stream.has(m.number) && len(pending(m.hazards)) == 0 {
		m.leave()
		return nil
	}
	s.number()
	s.inherit(m.hazards)
	return s.submit(job{after: pending([]*future{m.sent}), send: func() error {
		defer m.leave()
		return s.c.post(&wire.StreamWait{Stream: s.id, Event: m.id})
	}}, false)
}

// probe asks the lender, once, to report the end of the work that the mark stands for. If the record
// is still kept here, a goroutine sends the probe after it.
func (m *mark) probe() error {
	if m.asked.Swap(true) {
		return nil
	}
	m.users.Add(1)
	s := m.stream
	send := func() error {
		return s.c.start(&wire.EventSynchronise{Event: m.id}, span{}, func(a client.Answer) {
			m.leave()
			s.answered(m.number, a)
		})
	}
	if m.sent.is() {
		return send()
	}
	s.c.running.Add(1)
	go func() {
		defer s.c.running.Done()
		if s.c.happened([]*future{m.sent}) {
			_ = send()
		}
	}()
	return nil
}

// Done says whether the work that the event stands for is known to have ended. If not, it sends a
// probe, so that a later call finds out.
func (e *event) Done() (bool, error) {
	m, err := e.current()
	if err != nil || m == nil {
		return err == nil, err
	}
	defer m.leave()
	if m.stream.has(m.number) {
		e.c.fetchPrints()
		return true, nil
	}
	return false, m.probe()
}

// Synchronise waits for the work that the event stands for.
func (e *event) Synchronise(ctx context.Context) error {
	m, err := e.current()
	if err != nil || m == nil {
		return err
	}
	defer m.leave()
	done := make(chan struct{})
	m.stream.wait(m.number, func() { close(done) })
	if !m.stream.has(m.number) {
		if err := m.probe(); err != nil {
			return err
		}
	}
	if err := e.c.await(ctx, done); err != nil {
		return err
	}
	e.c.fetchPrints()
	return e.c.check()
}

// Since returns the time between two recorded and ended events, by the lender's clock.
func (e *event) Since(start device.Event) (time.Duration, error) {
	if err := e.c.check(); err != nil {
		return 0, err
	}
	first, err := e.c.own(start)
	if err != nil {
		return 0, err
	}
	var marks [2]*mark
	for i, each := range []*event{first, e} {
		m, err := each.current()
		if err != nil {
			return 0, err
		}
		if m == nil {
			return 0, fmt.Errorf("an event that was never recorded: %w", device.ErrInvalidValue)
		}
		defer m.leave()
		if !m.sent.is() {
			return 0, fmt.Errorf("the time between events: %w", device.ErrNotReady)
		}
		marks[i] = m
	}
	var reply wire.EventElapsedReply
	if err := e.c.demand("the time between events", &wire.EventElapsed{Start: marks[0].id, End: marks[1].id}, &reply); err != nil {
		return 0, err
	}
	if ns := reply.Milliseconds * 1e6; math.Abs(ns) < math.MaxInt64/2 {
		return time.Duration(math.Round(ns)), nil
	}
	e.c.end(lost("the lender tells a time between events that cannot be"))
	return 0, e.c.ended()
}

// Close ends the event.
func (e *event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if e.mark != nil {
		e.mark.leave()
	}
	e.mark = nil
	return nil
}
