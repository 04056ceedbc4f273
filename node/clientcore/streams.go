package clientcore

import (
	"errors"
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

// streams is the client's streams and events.
type streams struct {
	*standing
	streamState
	verdicts *verdicts

	asks []uint32 // of the last Query, reused
}

type streamState struct {
	Streams `json:"Streams"`
	Events  map[uint32]*Event
}

func (ss *streams) register(h *handlers) {
	h[wire.OpStreamCreate] = decoding(ss.streamCreate)
	h[wire.OpStreamDestroy] = decoding(ss.streamDestroy)
	h[wire.OpStreamQuery] = decoding(ss.streamQuery)
	h[wire.OpStreamSynchronise] = decoding(ss.streamSynchronise)
	h[wire.OpStreamWait] = decoding(ss.streamWait)
	h[wire.OpEventCreate] = decoding(ss.eventCreate)
	h[wire.OpEventDestroy] = decoding(ss.eventDestroy)
	h[wire.OpEventRecord] = decoding(ss.eventRecord)
	h[wire.OpEventQuery] = decoding(ss.eventQuery)
	h[wire.OpEventSynchronise] = decoding(ss.eventSynchronise)
	h[wire.OpEventElapsed] = decoding(ss.eventElapsed)
	h[wire.OpSynchronise] = decoding(ss.synchronise)
}

func (ss *streams) save(to *State)   { to.streamState = ss.streamState }
func (ss *streams) load(from *State) { ss.streamState = from.streamState }

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
func (ss *streams) give(id uint32, st *Stream, at vmm.Place) {
	st.Issued++
	if st.At != at {
		ss.moveStream(id, st, at)
	}
	ss.order(id, st)
}

// moveStream makes a stream continue at another place, once its work at the former one has ended.
func (ss *streams) moveStream(id uint32, st *Stream, to vmm.Place) {
	from := st.At
	st.At = to
	if st.Live {
		o := ss.next(After)
		o.Place, o.Stream, o.Other, o.Origin = to, id, id, from
	}
}

// at is where a stream continues if it does not matter: where it is.
func (ss *streams) at(st *Stream, home *Context) vmm.Place {
	if st.Live {
		return st.At
	}
	return home.Place
}

// order emits the waits that the rules of the legacy stream require. The counters tell which of
// them were emitted before, so that no stream waits twice for the same work.
func (ss *streams) order(id uint32, st *Stream) {
	st.Live = true
	legacy := ss.ByID[legacyID]
	if id != legacyID {
		if st.Blocking && legacy.Live && legacy.Issued != st.SawLegacy {
			st.SawLegacy = legacy.Issued
			ss.after(id, st, legacyID, legacy)
		}
		return
	}
	if len(ss.All) == 1 {
		return
	}
	for _, n := range ss.All {
		other := ss.ByID[n]
		if other.Blocking && other.Live && other.Issued != other.LegacySaw {
			other.LegacySaw = other.Issued
			ss.after(legacyID, st, n, other)
		}
	}
}

// after makes the later work of one stream wait for what another was given so far.
func (ss *streams) after(id uint32, st *Stream, other uint32, of *Stream) {
	st.Held = st.Held || of.Held
	o := ss.next(After)
	o.Place, o.Stream, o.Other = st.At, id, other
	if of.At != st.At {
		o.Origin = of.At
	}
}

const nonBlocking = 1

func (ss *streams) streamCreate(_ *Message, d *wire.StreamCreate) (bool, error) {
	if ss.ByID[d.Stream] != nil {
		return true, fmt.Errorf("stream %d is taken: %w", d.Stream, ErrProtocol)
	}
	if len(ss.All) >= maxObjects {
		return true, tooMany("streams")
	}
	ss.ByID[d.Stream] = &Stream{Blocking: d.Flags&nonBlocking == 0, Priority: d.Priority}
	ss.All = append(ss.All, d.Stream)
	return true, nil
}

// Priority is the priority that the program gave a stream.
func (ss *streams) Priority(stream uint32) int {
	if st := ss.ByID[stream]; st != nil {
		return int(st.Priority)
	}
	return 0
}

func (ss *streams) streamDestroy(_ *Message, d *wire.StreamDestroy) (bool, error) {
	if d.Stream == legacyID {
		return true, fmt.Errorf("stream %d cannot be destroyed: %w", d.Stream, ErrProtocol)
	}
	st, err := ss.find(d.Stream)
	if err != nil {
		return true, nil // a fault came before its creation, or a reset before this
	}
	delete(ss.ByID, d.Stream)
	ss.All = slices.DeleteFunc(ss.All, func(n uint32) bool { return n == d.Stream })
	if !st.Live {
		return true, nil
	}
	// The rules of the legacy stream also hold for work that is still in flight.
	if st.Blocking {
		legacy := ss.ByID[legacyID]
		if !legacy.Live {
			legacy.Live, legacy.At = true, st.At
		}
		legacy.Issued++ // so that later work of other streams waits for it too
		if st.Issued != st.LegacySaw {
			ss.after(legacyID, legacy, d.Stream, st)
		}
	}
	ss.Strayed = ss.Strayed || !st.Blocking
	for _, x := range ss.Contexts {
		ss.emit(Op{Kind: LeaveStream, Place: x.Place, Stream: d.Stream})
	}
	return true, nil
}

func (ss *streams) streamQuery(m *Message, d *wire.StreamQuery) (bool, error) {
	st, err := ss.find(d.Stream)
	if err != nil {
		return true, err
	}
	x := ss.anyContext()
	if x == nil {
		ss.reply(m.Header.Slot, success, nil)
		return true, nil
	}
	asked := ss.asks[:0]
	if st.Live {
		asked = append(asked, d.Stream)
	}
	if d.Stream == legacyID { // it is idle when all blocking streams are
		for _, n := range ss.All {
			if other := ss.ByID[n]; other.Blocking && other.Live {
				asked = append(asked, n)
			}
		}
	}
	ss.asks = asked
	o := ss.next(Query)
	o.Place, o.Slot, o.Streams = x.Place, m.Header.Slot, asked
	if len(ss.Contexts) > 1 {
		for _, n := range asked {
			o.At = append(o.At, ss.ByID[n].At)
		}
	}
	return true, nil
}

func (ss *streams) streamSynchronise(m *Message, d *wire.StreamSynchronise) (bool, error) {
	st, err := ss.find(d.Stream)
	if err != nil {
		return true, err
	}
	x := ss.anyContext()
	if x != nil && d.Stream == legacyID { // it is idle only when all blocking streams are; without give, since no other stream need wait for this
		st.At = ss.at(st, x)
		ss.order(legacyID, st)
	}
	if x == nil || !st.Live {
		ss.verdicts.answer(m.Header.Slot)
		return true, nil
	}
	ss.verdicts.replyAfter(st.At, m).Stream = d.Stream
	return true, nil
}

func (ss *streams) synchronise(m *Message, _ *wire.Synchronise) (bool, error) {
	x := ss.anyContext()
	if x == nil {
		ss.verdicts.answer(m.Header.Slot)
		return true, nil
	}
	ss.verdicts.replyAfter(x.Place, m).All = true
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

func (ss *streams) event(id uint32) (*Event, error) {
	if e := ss.Events[id]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("event %d: %w", id, errHandle)
}

// pendingEvents returns the events whose time only the context at a place, or at any place, knows,
// in order, and their places.
func (ss *streams) pendingEvents(of *vmm.Place) (ids []uint32, at []vmm.Place) {
	for _, id := range slices.Sorted(maps.Keys(ss.Events)) {
		if e := ss.Events[id]; e.Pending && (of == nil || e.Place == *of) {
			ids, at = append(ids, id), append(at, e.Place)
		}
	}
	return ids, at
}

func (ss *streams) eventCreate(_ *Message, d *wire.EventCreate) (bool, error) {
	if ss.Events[d.Event] != nil {
		return true, fmt.Errorf("event %d is taken: %w", d.Event, ErrProtocol)
	}
	if len(ss.Events) >= maxObjects {
		return true, tooMany("events")
	}
	ss.Events[d.Event] = &Event{}
	return true, nil
}

func (ss *streams) eventDestroy(_ *Message, d *wire.EventDestroy) (bool, error) {
	e := ss.Events[d.Event]
	if e == nil {
		return true, nil // a fault came before its creation, or a reset before this
	}
	delete(ss.Events, d.Event)
	if e.Live {
		ss.emit(Op{Kind: CloseEvent, Place: e.Place, Event: d.Event})
	}
	return true, nil
}

func (ss *streams) eventRecord(_ *Message, d *wire.EventRecord) (bool, error) {
	e, err := ss.event(d.Event)
	if err != nil {
		return true, err
	}
	st, err := ss.find(d.Stream)
	if err != nil {
		return true, err
	}
	e.Recorded = true
	x := ss.here()
	if x == nil { // all earlier work has ended
		e.Pending, e.At = false, ss.Now
		return true, nil
	}
	at := ss.at(st, x)
	ss.give(d.Stream, st, at)
	if e.Live && e.Place != at {
		ss.emit(Op{Kind: CloseEvent, Place: e.Place, Event: d.Event})
	}
	e.Live, e.Pending, e.Place, e.Held = true, true, at, st.Held
	o := ss.next(Record)
	o.Place, o.Stream, o.Event = at, d.Stream, d.Event
	return true, nil
}

func (ss *streams) streamWait(_ *Message, d *wire.StreamWait) (bool, error) {
	e, err := ss.event(d.Event)
	if err != nil {
		return true, err
	}
	st, err := ss.find(d.Stream)
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
	ss.give(d.Stream, st, at)
	st.Held = st.Held || e.Held
	o := Op{Kind: Wait, Place: at, Stream: d.Stream, Event: d.Event}
	if e.Place != at {
		o.Origin = e.Place
	}
	ss.emit(o)
	return true, nil
}

func (ss *streams) eventQuery(m *Message, d *wire.EventQuery) (bool, error) {
	e, err := ss.event(d.Event)
	if err != nil {
		return true, err
	}
	if e.Pending {
		ss.emit(Op{Kind: QueryEvent, Place: e.Place, Slot: m.Header.Slot, Event: d.Event})
		return true, nil
	}
	ss.reply(m.Header.Slot, success, nil)
	return true, nil
}

func (ss *streams) eventSynchronise(m *Message, d *wire.EventSynchronise) (bool, error) {
	e, err := ss.event(d.Event)
	if err != nil {
		return true, err
	}
	if e.Pending {
		o := ss.verdicts.replyAfter(e.Place, m)
		o.Event, o.OfEvent = d.Event, true
		return true, nil
	}
	ss.verdicts.answer(m.Header.Slot)
	return true, nil
}

func (ss *streams) eventElapsed(m *Message, d *wire.EventElapsed) (bool, error) {
	from, to := ss.Events[d.Start], ss.Events[d.End]
	if from == nil || to == nil || !from.Recorded || !to.Recorded {
		return true, fmt.Errorf("events %d and %d: %w", d.Start, d.End, errHandle)
	}
	if x := ss.anyContext(); x != nil && (from.Pending || to.Pending) {
		ss.emit(Op{Kind: Elapsed, Place: x.Place, Slot: m.Header.Slot,
			Start: Moment{d.Start, from.Pending, from.At, from.Place}, End: Moment{d.End, to.Pending, to.At, to.Place}})
		return true, nil
	}
	ss.reply(m.Header.Slot, success, ElapsedReply(to.At-from.At))
	return true, nil
}

// ElapsedReply is the answer to a call for the time between two events.
func ElapsedReply(d time.Duration) []byte {
	return (&wire.EventElapsedReply{Milliseconds: float64(d) / float64(time.Millisecond)}).Append(nil)
}

func (ss *streams) check() error {
	t := &ss.Streams
	if len(t.All) != len(t.ByID) || len(t.All) == 0 || t.All[0] != legacyID {
		return fmt.Errorf("%d streams of which %d are listed", len(t.ByID), len(t.All))
	}
	seen := map[uint32]bool{}
	for _, id := range t.All {
		if st := t.ByID[id]; st == nil || seen[id] || st.Live && len(ss.Contexts) == 0 {
			return fmt.Errorf("stream %d is none that the client can have", id)
		}
		seen[id] = true
	}
	if ss.Events == nil {
		return errors.New("the table of events is missing")
	}
	for id, e := range ss.Events {
		if e == nil || (e.Live || e.Pending) && len(ss.Contexts) == 0 {
			return fmt.Errorf("event %d is none that the client can have", id)
		}
	}
	return nil
}

// settleStream waits until the earlier work of a stream has ended: it may write or read the program's
// memory that the caller's copy is about to use.
func (ss *streams) settleStream(id uint32, st *Stream) {
	if x := ss.here(); x != nil {
		at := ss.at(st, x)
		ss.give(id, st, at)
		ss.emit(Op{Kind: Settle, Place: at, Stream: id})
	}
}
