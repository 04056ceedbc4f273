package clientcore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"muster/wire"
	"muster/wire/control"
)

// step is what every part works with: the client's configuration, and the event that is handled now, with its
// time, the message that it is about, and the operations that it causes.
type step struct {
	stepState
	config setup

	ops     []Op
	asked   Kind // the kind of the operation that asks, if asking
	asking  bool
	calling uint64 // the cookie of the host function that the operations are about; 0: none
	ended   error  // why the client cannot go on
}

type stepState struct {
	Now     Time        // of the last event
	Current wire.Header // of the message handled last, one of whose operations may still fail
}

func (s *step) register(h *handlers) { h[wire.OpPrintFetch] = decoding(s.printFetch) }

func (s *step) save(to *State)   { to.stepState = s.stepState }
func (s *step) load(from *State) { s.stepState = from.stepState }
func (s *step) check() error     { return nil } // also of other parts, unless they have one of their own

func (s *step) start(now Time) {
	s.Now = max(s.Now, now)
	s.ops = s.ops[:0]
}

// emit adds an operation.
func (s *step) emit(o Op) { s.ops = append(s.ops, o) }

// next adds an operation to be filled in by the caller. It is faster than emit, since an Op is
// large.
func (s *step) next(k Kind) *Op {
	if len(s.ops) < cap(s.ops) {
		s.ops = s.ops[:len(s.ops)+1]
		s.ops[len(s.ops)-1] = Op{}
	} else {
		s.ops = append(s.ops, Op{})
	}
	o := &s.ops[len(s.ops)-1]
	o.Kind = k
	return o
}

// ask adds an operation whose outcome decides what comes next. It must be the last of the list.
func (s *step) ask(o Op) {
	s.asked, s.asking = o.Kind, true
	s.ops = append(s.ops, o)
}

// say sends a message to the daemon.
func (s *step) say(m control.ToDaemon) { s.emit(Op{Kind: Say, Message: m}) }

func (s *step) reply(slot int, r Result, payload []byte) {
	if slot >= 0 {
		o := s.next(Reply)
		o.Slot, o.Result, o.Payload = slot, r, payload
	}
}

// write puts as much of data as fits where a message wants it.
func (s *step) write(m *Message, data []byte) {
	data = data[:min(uint64(len(data)), m.Header.Length)]
	s.emit(Op{Kind: Write, Out: Span{m.Header.Data, uint64(len(data))}, Data: data})
}

// aside collects the operations of f apart from those that are being performed.
func (s *step) aside(f func()) []Op {
	ops := s.ops
	s.ops = nil
	f()
	ops, s.ops = s.ops, ops
	return ops
}

// printFetch leaves the answer to the executor, which has the output of kernels.
func (s *step) printFetch(m *Message, _ *wire.PrintFetch) (bool, error) {
	s.emit(Op{Kind: Printed, Slot: m.Header.Slot, Out: Span{m.Header.Data, m.Header.Length}})
	return true, nil
}

// queue is the messages of the client that wait: the one that was begun, and those behind it.
type queue struct {
	*step
	queueState
	reachedStep int   // the step at which the current graph launch waits
	replaced    error // why the last Replace was refused
}

type queueState struct {
	Head    *Head // the message that waits; nil if none does
	Parked  *Head // the same in a client that was restored with its program and is held
	Backlog Backlog
}

// Head is a message that waits.
type Head struct {
	Message Message
	Made    bool // its module is made, but only a device can tell what the module contains

	Finished bool // all earlier work has ended

	Step int `json:",omitempty"` // of a graph launch: number of steps done

	found *Outcome // the answer to what it has asked

	replacement *replacement // not a message, but a client that is to replace this one
}

// Backlog is the queue of messages that were read ahead, in order.
type Backlog struct {
	Messages []Message
	Bytes    int
}

// These bound what a program can send while the worker waits for one of its host functions.
const (
	maxBacklog      = 1 << 18
	maxBacklogBytes = 1 << 30
)

// size is how many bytes of a message are kept, not counting memory of the program that it may
// name.
func (m *Message) size() int {
	if m.Pinned {
		return len(m.Body)
	}
	return len(m.Body) + len(m.Data)
}

func (b *Backlog) next() (Message, bool) {
	if len(b.Messages) == 0 {
		return Message{}, false
	}
	m := b.Messages[0]
	b.Messages[0] = Message{}
	b.Messages = b.Messages[1:]
	b.Bytes -= m.size()
	return m, true
}

func (b *Backlog) add(m Message) error {
	b.Bytes += m.size()
	if len(b.Messages) >= maxBacklog || b.Bytes > maxBacklogBytes {
		return fmt.Errorf("%d messages while a function of the program's was waited for", len(b.Messages)+1)
	}
	m.Owned = true
	b.Messages = append(b.Messages, m)
	return nil
}

// Waits says whether a message waits for the daemon. Then only a message of the daemon helps.
func (q *queue) Waits() bool { return q.Head != nil }

// Queued says whether messages are queued.
func (q *queue) Queued() bool { return len(q.Backlog.Messages) > 0 }

// Later queues a message, which the caller has copied.
func (q *queue) Later(m Message) error { return q.Backlog.add(m) }

// Backlogged returns the headers of the queued messages.
func (q *queue) Backlogged() (all []wire.Header) {
	for i := range q.Backlog.Messages {
		all = append(all, q.Backlog.Messages[i].Header)
	}
	return all
}

// ParkedMessage returns the header of the message that waits for Unpark; false if there is none.
func (q *queue) ParkedMessage() (h wire.Header, parked bool) {
	if q.Parked == nil {
		return h, false
	}
	return q.Parked.Message.Header, true
}

// Waiting returns the headers of the messages that are not answered yet: the parked one, and those
// in the queue.
func (q *queue) Waiting() (all []wire.Header) {
	if h, parked := q.ParkedMessage(); parked {
		all = append(all, h)
	}
	return append(all, q.Backlogged()...)
}

// Replaced says whether no Replace is in progress, and why the last one was refused. A client whose
// replacement was refused is as it was before.
func (q *queue) Replaced() (done bool, refused error) {
	return q.Head == nil || q.Head.replacement == nil, q.replaced
}

// found is the answer to what the message has asked; nil if it has asked nothing yet.
func (q *queue) found() *Outcome {
	if q.Head == nil {
		return nil
	}
	return q.Head.found
}

// waitsAt remembers the step at which a launch waits. It returns false, as handlers do then.
func (q *queue) waitsAt(step int) bool {
	q.reachedStep = step
	if q.Head != nil {
		q.Head.Step = step
	}
	return false
}

// own copies what belongs to the caller of Message. Data in staging memory stay there: the executor
// keeps them as long as the message waits.
func (m *Message) own() {
	if !m.Owned {
		m.Body = bytes.Clone(m.Body)
	}
}

// saved is the messages as they are written, without the program's memory that they name.
func (q queueState) saved() queueState {
	q.Backlog.Messages = slices.Clone(q.Backlog.Messages)
	for i := range q.Backlog.Messages {
		q.Backlog.Messages[i] = q.Backlog.Messages[i].unpinned()
	}
	q.Head, q.Parked = q.Head.saved(), q.Parked.saved()
	return q
}

// saved is the message as it is written. A replacement in progress is dropped: whoever wanted it
// asks again.
func (h *Head) saved() *Head {
	if h == nil || h.replacement != nil {
		return nil
	}
	return &Head{Message: h.Message.unpinned(), Made: h.Made, Finished: h.Finished, Step: h.Step}
}

// unpinned is the message without the program's memory, whose contents count when the message is
// handled.
func (m Message) unpinned() Message {
	if m.Pinned {
		m.Data = nil
	}
	return m
}

// pin gives waiting messages the program's memory that they name.
func (q *queue) pin(find Pinned) error {
	waiting := make([]*Message, 0, len(q.Backlog.Messages)+2)
	for i := range q.Backlog.Messages {
		waiting = append(waiting, &q.Backlog.Messages[i])
	}
	for _, h := range []*Head{q.Head, q.Parked} {
		if h != nil {
			waiting = append(waiting, &h.Message)
		}
	}
	for _, m := range waiting {
		if !m.Pinned {
			continue
		}
		var err error
		if m.Data, err = find(m.Header); err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) load(from *State) { q.queueState = from.queueState }

func (q *queue) save(to *State) { to.queueState = q.queueState }

func (q *queue) check() error {
	bytes := 0
	for _, m := range q.Backlog.Messages {
		bytes += m.size()
	}
	if bytes != q.Backlog.Bytes || len(q.Backlog.Messages) > maxBacklog {
		return fmt.Errorf("%d messages of %d bytes wait, where %d are counted", len(q.Backlog.Messages), bytes, q.Backlog.Bytes)
	}
	for _, h := range []*Head{q.Head, q.Parked} {
		if h != nil && h.Step < 0 {
			return fmt.Errorf("step %d of a graph", h.Step)
		}
	}
	return nil
}

var errDecode = errors.New("a damaged message")

// handler does what a message asks for. It returns false if the message must wait: then it has
// changed nothing that counts, and is called again.
type handler func(*Message) (done bool, err error)

// handlers is the table of them, by kinds of messages. Each part enters its own (register).
type handlers [73]handler

// of returns the handler of a message.
func (h *handlers) of(m *Message) handler {
	if op := int(m.Header.Op); op < len(h) && h[op] != nil {
		return h[op]
	}
	return func(*Message) (bool, error) { return true, fmt.Errorf("no such message: %w", ErrProtocol) }
}

// decoding makes a handler from one that takes the decoded message.
func decoding[M any, P interface {
	*M
	wire.Message
}](f func(*Message, P) (bool, error)) handler {
	return func(m *Message) (bool, error) {
		var d M
		if err := P(&d).Decode(m.Body); err != nil {
			return true, errors.Join(err, errDecode)
		}
		return f(m, &d)
	}
}
