package worker

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"muster/device"
	"muster/wire"
)

// streams are the client's queues of work, with CUDA's rules for the legacy
// default stream: what is given to it waits for all blocking streams, and they
// wait for it.
type streams struct {
	byID map[uint32]*stream
	all  []*stream // in the order in which they were made

	leaving []device.Stream // destroyed, with work under way
}

type stream struct {
	blocking bool
	device   device.Stream // nil until it has work in the present context

	issued    uint64 // how much work it was given
	sawLegacy uint64 // how much of the legacy stream's it waits for
	legacySaw uint64 // how much of its own the legacy stream waits for
}

const legacyID = 0

func newStreams() streams {
	legacy := &stream{}
	return streams{byID: map[uint32]*stream{legacyID: legacy}, all: []*stream{legacy}}
}

// forget drops what belonged to a context. All work has ended.
func (t *streams) forget() {
	for _, st := range t.all {
		st.device = nil
		st.issued, st.sawLegacy, st.legacySaw = 0, 0, 0
	}
	t.leaving = nil
}

// left says whether the streams that were destroyed have nothing to do any more,
// and closes those of which that is true.
func (t *streams) left() (bool, error) {
	for len(t.leaving) > 0 {
		done, err := t.leaving[0].Done()
		if err != nil || !done {
			return false, err
		}
		if err := t.leaving[0].Close(); err != nil {
			return false, err
		}
		t.leaving = t.leaving[1:]
	}
	return true, nil
}

// give returns the stream of the present context that new work goes to, after
// seeing to its order with others.
func (s *session) give(id uint32) (device.Stream, error) {
	st, err := s.streams.find(id)
	if err != nil {
		return nil, err
	}
	st.issued++
	return s.ordered(st)
}

// ordered returns a stream of the present context, with what it waits for by
// rule.
func (s *session) ordered(st *stream) (device.Stream, error) {
	if st.device == nil {
		var err error
		if st.device, err = s.gpu.context.NewStream(); err != nil {
			return nil, err
		}
	}
	return st.device, s.order(st)
}

func (t *streams) find(id uint32) (*stream, error) {
	st := t.byID[id]
	if st == nil {
		return nil, fmt.Errorf("stream %d: %w", id, errHandle)
	}
	return st, nil
}

func (s *session) order(st *stream) error {
	legacy := s.streams.byID[legacyID]
	if st != legacy {
		if !st.blocking || legacy.device == nil || legacy.issued == st.sawLegacy {
			return nil
		}
		st.sawLegacy = legacy.issued
		return s.after(st, legacy)
	}
	for _, other := range s.streams.all {
		if !other.blocking || other.device == nil || other.issued == other.legacySaw {
			continue
		}
		other.legacySaw = other.issued
		if err := s.after(legacy, other); err != nil {
			return err
		}
	}
	return nil
}

// after lets the later work of one stream wait for what another was given.
func (s *session) after(st, other *stream) error {
	between := s.gpu.scratch
	return s.block(func() error {
		if err := other.device.Record(between); err != nil {
			return err
		}
		return st.device.Wait(between)
	})
}

const nonBlocking = 1

func (s *session) streamCreate(_ wire.Header, m *wire.StreamCreate) error {
	if s.streams.byID[m.Stream] != nil {
		return fmt.Errorf("stream %d is taken: %w", m.Stream, errProtocol)
	}
	if len(s.streams.all) >= maxObjects {
		return tooMany("streams")
	}
	st := &stream{blocking: m.Flags&nonBlocking == 0}
	s.streams.byID[m.Stream] = st
	s.streams.all = append(s.streams.all, st)
	return nil
}

func (s *session) streamDestroy(_ wire.Header, m *wire.StreamDestroy) error {
	if m.Stream == legacyID {
		return fmt.Errorf("stream %d cannot be destroyed: %w", m.Stream, errProtocol)
	}
	st, err := s.streams.find(m.Stream)
	if err != nil {
		return nil // a fault came before its creation, or a reset before its end
	}
	delete(s.streams.byID, m.Stream)
	s.streams.all = slices.DeleteFunc(s.streams.all, func(o *stream) bool { return o == st })
	if st.device == nil {
		return nil
	}
	// Blocking rules hold for what is still under way.
	if st.blocking && st.issued != st.legacySaw {
		legacy := s.streams.byID[legacyID]
		if legacy.device == nil {
			if legacy.device, err = s.gpu.context.NewStream(); err != nil {
				return err
			}
		}
		legacy.issued++ // later work of other streams waits for this, too
		if err := s.after(legacy, st); err != nil {
			return err
		}
	}
	s.streams.leaving = append(s.streams.leaving, st.device)
	_, err = s.streams.left()
	return err
}

// device returns the stream of the present context if it may have work there.
func (s *session) active(id uint32) (*stream, bool, error) {
	st, err := s.streams.find(id)
	if err != nil {
		return nil, false, err
	}
	if s.gpu == nil {
		return st, false, nil
	}
	if id == legacyID { // whoever waits for it waits for all blocking streams; nobody waits for that
		if _, err := s.ordered(st); err != nil {
			return nil, false, err
		}
	}
	return st, st.device != nil, nil
}

func (s *session) streamQuery(h wire.Header, m *wire.StreamQuery) ([]byte, error) {
	st, err := s.streams.find(m.Stream)
	if err != nil || s.gpu == nil {
		return nil, err
	}
	asked := []*stream{st}
	if m.Stream == legacyID { // it has ended when all blocking streams have
		for _, other := range s.streams.all {
			if other.blocking {
				asked = append(asked, other)
			}
		}
	}
	for _, st := range asked {
		if st.device == nil {
			continue
		}
		done, err := st.device.Done()
		if err == nil && !done {
			err = device.ErrNotReady
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (s *session) streamSynchronise(h wire.Header, m *wire.StreamSynchronise) error {
	st, has, err := s.active(m.Stream)
	if err != nil {
		return err
	}
	if !has {
		s.answer(h.Slot, nil)
		return nil
	}
	return s.laterOn(h.Slot, st.device)
}

// laterOn answers a call when streams have done what they were given so far.
func (s *session) laterOn(slot int, on ...device.Stream) error {
	if over, err := s.soon(func() (bool, error) { return allDone(on) }); err != nil {
		return err
	} else if over {
		s.answerNow(slot)
		return nil
	}
	waits := make([]func() error, len(on))
	for i, st := range on {
		var err error
		if waits[i], err = s.mark(st); err != nil {
			return err
		}
	}
	return s.later(slot, func() error {
		for _, wait := range waits {
			if err := wait(); err != nil {
				return err
			}
		}
		return nil
	})
}

func allDone(streams []device.Stream) (bool, error) {
	for _, st := range streams {
		if done, err := st.Done(); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// soon waits for a moment until something is over, unless there is something else
// to do. Most calls wait for what is nearly over, and a goroutine that waits for
// it takes longer.
func (s *session) soon(over func() (bool, error)) (bool, error) {
	var start time.Time
	for {
		if done, err := over(); done || err != nil {
			return done, err
		}
		if s.consumer.Pending() || s.backlog.waits() || s.hosts.outstanding() > 0 {
			return false, nil
		}
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > aMoment {
			return false, nil
		}
		runtime.Gosched() // the device may be of this process
	}
}

const aMoment = 20 * time.Microsecond

// answerNow answers a call that has waited for the device.
func (s *session) answerNow(slot int) {
	s.answer(slot, nil)
	if s.watched.Load() {
		s.consumer.Wake()
	}
}

func (s *session) synchronise(h wire.Header, _ *wire.Synchronise) error {
	if s.gpu == nil {
		s.answer(h.Slot, nil)
		return nil
	}
	if _, err := s.streams.left(); err != nil {
		return err
	}
	all := slices.Clone(s.streams.leaving)
	for _, st := range s.streams.all {
		if st.device != nil {
			all = append(all, st.device)
		}
	}
	return s.laterOn(h.Slot, all...)
}

func (s *session) streamWait(_ wire.Header, m *wire.StreamWait) error {
	e := s.events[m.Event]
	if e == nil {
		return fmt.Errorf("event %d: %w", m.Event, errHandle)
	}
	if _, err := s.streams.find(m.Stream); err != nil || !e.pending {
		return err
	}
	st, err := s.give(m.Stream)
	if err != nil {
		return err
	}
	return s.block(func() error { return st.Wait(e.device) })
}

// event is one of the client's events. It is pending while a context knows its
// state; otherwise what it stands for has ended, at a time.
type event struct {
	device   device.Event
	pending  bool
	recorded bool
	at       time.Time
}

func (s *session) eventCreate(_ wire.Header, m *wire.EventCreate) error {
	if s.events[m.Event] != nil {
		return fmt.Errorf("event %d is taken: %w", m.Event, errProtocol)
	}
	if len(s.events) >= maxObjects {
		return tooMany("events")
	}
	s.events[m.Event] = &event{}
	return nil
}

func (s *session) eventDestroy(_ wire.Header, m *wire.EventDestroy) error {
	e := s.events[m.Event]
	if e == nil {
		return nil // a fault came before its creation, or a reset before its end
	}
	delete(s.events, m.Event)
	if e.device == nil {
		return nil
	}
	return e.device.Close()
}

func (s *session) eventRecord(_ wire.Header, m *wire.EventRecord) error {
	e := s.events[m.Event]
	if e == nil {
		return fmt.Errorf("event %d: %w", m.Event, errHandle)
	}
	if _, err := s.streams.find(m.Stream); err != nil {
		return err
	}
	e.recorded = true
	if s.gpu == nil || !s.lease.held { // everything before has ended
		e.pending, e.at = false, time.Now()
		return nil
	}
	if e.device == nil {
		var err error
		if e.device, err = s.gpu.context.NewEvent(); err != nil {
			return err
		}
	}
	st, err := s.give(m.Stream)
	if err != nil {
		return err
	}
	e.pending = true
	return s.block(func() error { return st.Record(e.device) })
}

func (s *session) eventQuery(_ wire.Header, m *wire.EventQuery) ([]byte, error) {
	e := s.events[m.Event]
	if e == nil {
		return nil, fmt.Errorf("event %d: %w", m.Event, errHandle)
	}
	if !e.pending {
		return nil, nil
	}
	done, err := e.device.Done()
	if err == nil && !done {
		err = device.ErrNotReady
	}
	return nil, err
}

func (s *session) eventSynchronise(h wire.Header, m *wire.EventSynchronise) error {
	e := s.events[m.Event]
	if e == nil {
		return fmt.Errorf("event %d: %w", m.Event, errHandle)
	}
	if !e.pending {
		s.answer(h.Slot, nil)
		return nil
	}
	waits := e.device
	if over, err := s.soon(waits.Done); err != nil {
		return err
	} else if over {
		s.answerNow(h.Slot)
		return nil
	}
	return s.later(h.Slot, func() error { return waits.Synchronise(s.ctx) })
}

func (s *session) eventElapsed(_ wire.Header, m *wire.EventElapsed) ([]byte, error) {
	from, to := s.events[m.Start], s.events[m.End]
	if from == nil || to == nil || !from.recorded || !to.recorded {
		return nil, fmt.Errorf("events %d and %d: %w", m.Start, m.End, errHandle)
	}
	var elapsed time.Duration
	if from.pending && to.pending {
		var err error
		if elapsed, err = to.device.Since(from.device); err != nil {
			return nil, err
		}
	} else {
		start, err := s.gpu.when(from)
		if err != nil {
			return nil, err
		}
		end, err := s.gpu.when(to)
		if err != nil {
			return nil, err
		}
		elapsed = end.Sub(start)
	}
	return (&wire.EventElapsedReply{Milliseconds: float64(elapsed) / float64(time.Millisecond)}).Append(nil), nil
}

// when returns the time of an event.
func (g *gpu) when(e *event) (time.Time, error) {
	if !e.pending {
		return e.at, nil
	}
	since, err := e.device.Since(g.origin)
	return g.opened.Add(since), err
}
