package clientcore

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/vmm"
	"muster/wire"
)

// Streams are the client's queues of work, with CUDA's rules for the legacy default stream: its
// work waits for all blocking streams, and theirs waits for it.
type Streams struct {
	ByID map[uint32]*Stream
	All  []uint32 // in the order of creation
	// Strayed says that a stream was destroyed for whose work no other stream waits.
	Strayed bool `json:",omitempty"`
}

// Stream is a stream of the client.
type Stream struct {
	Blocking bool
	Priority int32
	Live     bool // has had work in an open context
	// At is the place of its last work. Its earlier work elsewhere comes first (moveStream).
	At vmm.Place `json:",omitzero"`

	Issued    uint64 // how much work it was given
	SawLegacy uint64 // the legacy stream's Issued that it already waits for
	LegacySaw uint64 // its own Issued that the legacy stream already waits for

	// Held says that its later work waits for a host function or a word, itself or through other
	// streams. It may be true longer than that, until no function is out.
	Held bool `json:",omitempty"`
}

const legacyID = 0

func newStreams() Streams {
	return Streams{ByID: map[uint32]*Stream{legacyID: {}}, All: []uint32{legacyID}}
}

// forget drops what belonged to a context. All work has ended.
func (t *Streams) forget() {
	t.Strayed = false
	for _, st := range t.ByID {
		st.Live, st.At, st.Held = false, vmm.Host, false
		st.Issued, st.SawLegacy, st.LegacySaw = 0, 0, 0
	}
}

// last says whether what a stream was given last runs after all that any stream was given before.
func (t *Streams) last(id uint32) bool {
	for n, other := range t.ByID {
		ordered := id == legacyID && other.Blocking || n == legacyID && t.ByID[id].Blocking
		if n != id && other.Live && !ordered {
			return false
		}
	}
	return !t.Strayed
}

// held says whether the next work of a stream may have to wait for a host function or a word.
func (t *Streams) held(st *Stream) bool {
	legacy := t.ByID[legacyID]
	if st.Held || st.Blocking && legacy.Held {
		return true
	}
	for _, other := range t.ByID {
		if st == legacy && other.Blocking && other.Held {
			return true
		}
	}
	return false
}

func (t *Streams) find(id uint32) (*Stream, error) {
	st := t.ByID[id]
	if st == nil {
		return nil, fmt.Errorf("stream %d: %w", id, errHandle)
	}
	return st, nil
}

// give notes that a stream gets work at a place. Before the work it emits the waits that the
// stream's order requires: with other streams, and with its own work at another place.
func (c *Core) give(id uint32, st *Stream, at vmm.Place) {
	st.Issued++
	if st.At != at {
		c.moveStream(id, st, at)
	}
	c.order(id, st)
}

// moveStream makes a stream continue at another place, once its work at the former one has ended.
func (c *Core) moveStream(id uint32, st *Stream, to vmm.Place) {
	from := st.At
	st.At = to
	if st.Live {
		o := c.next(After)
		o.Place, o.Stream, o.Other, o.Origin = to, id, id, from
	}
}

// at is where a stream continues if it does not matter: where it is.
func (c *Core) at(st *Stream, home *Context) vmm.Place {
	if st.Live {
		return st.At
	}
	return home.Place
}

// order emits the waits that the rules of the legacy stream require. The counters tell which of
// them were emitted before, so that no stream waits twice for the same work.
func (c *Core) order(id uint32, st *Stream) {
	st.Live = true
	legacy := c.Streams.ByID[legacyID]
	if id != legacyID {
		if st.Blocking && legacy.Live && legacy.Issued != st.SawLegacy {
			st.SawLegacy = legacy.Issued
			c.after(id, st, legacyID, legacy)
		}
		return
	}
	if len(c.Streams.All) == 1 {
		return
	}
	for _, n := range c.Streams.All {
		other := c.Streams.ByID[n]
		if other.Blocking && other.Live && other.Issued != other.LegacySaw {
			other.LegacySaw = other.Issued
			c.after(legacyID, st, n, other)
		}
	}
}

// after makes the later work of one stream wait for what another was given so far.
func (c *Core) after(id uint32, st *Stream, other uint32, of *Stream) {
	st.Held = st.Held || of.Held
	o := c.next(After)
	o.Place, o.Stream, o.Other = st.At, id, other
	if of.At != st.At {
		o.Origin = of.At
	}
}

const nonBlocking = 1

func (c *Core) streamCreate(_ *Message, d *wire.StreamCreate) (bool, error) {
	if c.Streams.ByID[d.Stream] != nil {
		return true, fmt.Errorf("stream %d is taken: %w", d.Stream, ErrProtocol)
	}
	if len(c.Streams.All) >= maxObjects {
		return true, tooMany("streams")
	}
	c.Streams.ByID[d.Stream] = &Stream{Blocking: d.Flags&nonBlocking == 0, Priority: d.Priority}
	c.Streams.All = append(c.Streams.All, d.Stream)
	return true, nil
}

// Priority is the priority that the program gave a stream.
func (c *Core) Priority(stream uint32) int {
	if st := c.Streams.ByID[stream]; st != nil {
		return int(st.Priority)
	}
	return 0
}

func (c *Core) streamDestroy(_ *Message, d *wire.StreamDestroy) (bool, error) {
	if d.Stream == legacyID {
		return true, fmt.Errorf("stream %d cannot be destroyed: %w", d.Stream, ErrProtocol)
	}
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, nil // a fault came before its creation, or a reset before this
	}
	delete(c.Streams.ByID, d.Stream)
	c.Streams.All = slices.DeleteFunc(c.Streams.All, func(n uint32) bool { return n == d.Stream })
	if !st.Live {
		return true, nil
	}
	// The rules of the legacy stream also hold for work that is still in flight.
	if st.Blocking {
		legacy := c.Streams.ByID[legacyID]
		if !legacy.Live {
			legacy.Live, legacy.At = true, st.At
		}
		legacy.Issued++ // so that later work of other streams waits for it too
		if st.Issued != st.LegacySaw {
			c.after(legacyID, legacy, d.Stream, st)
		}
	}
	c.Streams.Strayed = c.Streams.Strayed || !st.Blocking
	for _, x := range c.Contexts {
		c.emit(Op{Kind: LeaveStream, Place: x.Place, Stream: d.Stream})
	}
	return true, nil
}

func (c *Core) streamQuery(m *Message, d *wire.StreamQuery) (bool, error) {
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	x := c.anyContext()
	if x == nil {
		c.reply(m.Header.Slot, success, nil)
		return true, nil
	}
	asked := c.asks[:0]
	if st.Live {
		asked = append(asked, d.Stream)
	}
	if d.Stream == legacyID { // it is idle when all blocking streams are
		for _, n := range c.Streams.All {
			if other := c.Streams.ByID[n]; other.Blocking && other.Live {
				asked = append(asked, n)
			}
		}
	}
	c.asks = asked
	o := c.next(Query)
	o.Place, o.Slot, o.Streams = x.Place, m.Header.Slot, asked
	if len(c.Contexts) > 1 {
		for _, n := range asked {
			o.At = append(o.At, c.Streams.ByID[n].At)
		}
	}
	return true, nil
}

func (c *Core) streamSynchronise(m *Message, d *wire.StreamSynchronise) (bool, error) {
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	x := c.anyContext()
	if x != nil && d.Stream == legacyID { // it is idle only when all blocking streams are; without give, since no other stream need wait for this
		st.At = c.at(st, x)
		c.order(legacyID, st)
	}
	if x == nil || !st.Live {
		c.answer(m.Header.Slot)
		return true, nil
	}
	c.replyAfter(st.At, m).Stream = d.Stream
	return true, nil
}

// replyAfter answers a call once a stream, all streams, or an event has completed what was
// submitted so far.
func (c *Core) replyAfter(at vmm.Place, m *Message) *Op {
	o := c.next(ReplyAfter)
	o.Place, o.Slot, o.Result = at, m.Header.Slot, c.takeFailure()
	return o
}

func (c *Core) synchronise(m *Message, _ *wire.Synchronise) (bool, error) {
	x := c.anyContext()
	if x == nil {
		c.answer(m.Header.Slot)
		return true, nil
	}
	c.replyAfter(x.Place, m).All = true
	return true, nil
}

// Event is an event of the client. While it is pending, a context knows whether and when it
// happened; otherwise it has happened, at At.
type Event struct {
	Live     bool // an open context has it
	Pending  bool
	Recorded bool
	Held     bool `json:",omitempty"` // as its stream was
	At       Time
	Place    vmm.Place `json:",omitzero"` // of that context
}

func (c *Core) event(id uint32) (*Event, error) {
	if e := c.Events[id]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("event %d: %w", id, errHandle)
}

// pendingEvents returns the events whose time only the context at a place, or at any place, knows,
// in order, and their places.
func (c *Core) pendingEvents(of *vmm.Place) (ids []uint32, at []vmm.Place) {
	for _, id := range slices.Sorted(maps.Keys(c.Events)) {
		if e := c.Events[id]; e.Pending && (of == nil || e.Place == *of) {
			ids, at = append(ids, id), append(at, e.Place)
		}
	}
	return ids, at
}

func (c *Core) eventCreate(_ *Message, d *wire.EventCreate) (bool, error) {
	if c.Events[d.Event] != nil {
		return true, fmt.Errorf("event %d is taken: %w", d.Event, ErrProtocol)
	}
	if len(c.Events) >= maxObjects {
		return true, tooMany("events")
	}
	c.Events[d.Event] = &Event{}
	return true, nil
}

func (c *Core) eventDestroy(_ *Message, d *wire.EventDestroy) (bool, error) {
	e := c.Events[d.Event]
	if e == nil {
		return true, nil // a fault came before its creation, or a reset before this
	}
	delete(c.Events, d.Event)
	if e.Live {
		c.emit(Op{Kind: CloseEvent, Place: e.Place, Event: d.Event})
	}
	return true, nil
}

func (c *Core) eventRecord(_ *Message, d *wire.EventRecord) (bool, error) {
	e, err := c.event(d.Event)
	if err != nil {
		return true, err
	}
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	e.Recorded = true
	x := c.here()
	if x == nil { // all earlier work has ended
		e.Pending, e.At = false, c.Now
		return true, nil
	}
	at := c.at(st, x)
	c.give(d.Stream, st, at)
	if e.Live && e.Place != at {
		c.emit(Op{Kind: CloseEvent, Place: e.Place, Event: d.Event})
	}
	e.Live, e.Pending, e.Place, e.Held = true, true, at, st.Held
	o := c.next(Record)
	o.Place, o.Stream, o.Event = at, d.Stream, d.Event
	return true, nil
}

func (c *Core) streamWait(_ *Message, d *wire.StreamWait) (bool, error) {
	e, err := c.event(d.Event)
	if err != nil {
		return true, err
	}
	st, err := c.Streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	if !e.Pending {
		return true, nil
	}
	at := e.Place
	if st.Live {
		at = st.At
	}
	c.give(d.Stream, st, at)
	st.Held = st.Held || e.Held
	o := Op{Kind: Wait, Place: at, Stream: d.Stream, Event: d.Event}
	if e.Place != at {
		o.Origin = e.Place
	}
	c.emit(o)
	return true, nil
}

func (c *Core) eventQuery(m *Message, d *wire.EventQuery) (bool, error) {
	e, err := c.event(d.Event)
	if err != nil {
		return true, err
	}
	if e.Pending {
		c.emit(Op{Kind: QueryEvent, Place: e.Place, Slot: m.Header.Slot, Event: d.Event})
		return true, nil
	}
	c.reply(m.Header.Slot, success, nil)
	return true, nil
}

func (c *Core) eventSynchronise(m *Message, d *wire.EventSynchronise) (bool, error) {
	e, err := c.event(d.Event)
	if err != nil {
		return true, err
	}
	if e.Pending {
		o := c.replyAfter(e.Place, m)
		o.Event, o.OfEvent = d.Event, true
		return true, nil
	}
	c.answer(m.Header.Slot)
	return true, nil
}

func (c *Core) eventElapsed(m *Message, d *wire.EventElapsed) (bool, error) {
	from, to := c.Events[d.Start], c.Events[d.End]
	if from == nil || to == nil || !from.Recorded || !to.Recorded {
		return true, fmt.Errorf("events %d and %d: %w", d.Start, d.End, errHandle)
	}
	if x := c.anyContext(); x != nil && (from.Pending || to.Pending) {
		c.emit(Op{Kind: Elapsed, Place: x.Place, Slot: m.Header.Slot,
			Start: Moment{d.Start, from.Pending, from.At, from.Place}, End: Moment{d.End, to.Pending, to.At, to.Place}})
		return true, nil
	}
	c.reply(m.Header.Slot, success, ElapsedReply(to.At-from.At))
	return true, nil
}

// ElapsedReply is the answer to a call for the time between two events.
func ElapsedReply(d time.Duration) []byte {
	return (&wire.EventElapsedReply{Milliseconds: float64(d) / float64(time.Millisecond)}).Append(nil)
}
