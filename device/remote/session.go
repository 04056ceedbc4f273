package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"muster/device"
	"muster/device/curesult"
	"muster/wire"
	"muster/wire/client"
)

// session is what a context says to its lender and hears from it, and how it ends. It knows
// nothing of streams, modules and memory.
//
// guest.Shared is memory that the session shares with the goroutines of the connection. Every
// access to guest holds gate for reading and first checks closed. Close holds gate for writing when
// it unmaps that memory. Callbacks of answers are an exception: guest.Over is closed only after
// all of them have returned, and Close waits for that.
type session struct {
	guest *client.Direct

	gate   sync.RWMutex
	closed atomic.Bool // Close was called

	over    chan struct{} // closed when the context has ended: closed, faulted or lost
	ending  sync.Once
	faulted sync.Once // the goroutine that fetches the fault's reason was started
	err     error     // set before over is closed, and constant then

	fences atomic.Uint64 // see fence
	bulk   bulk
	bounce chan uint64 // offsets of the free buffers into which the lender's data arrive
	loads  sync.Mutex  // held while a call uses the long buffer (fetch)

	printing        sync.Mutex // serialises calls of print and complain
	print, complain func(text []byte)
}

// begin gives the session its guest and what it does with kernels' text.
func (s *session) begin(guest *client.Direct, config device.Config) {
	s.guest, s.print, s.complain, s.over = guest, config.Print, config.Complain, make(chan struct{})
	s.bulk.init()
	g := guest.Shared.Geometry()
	s.bounce = make(chan uint64, g.Bounce/wire.BounceBuffer)
	for at := uint64(0); at < g.Bounce; at += wire.BounceBuffer {
		s.bounce <- g.Staging + at
	}
	go func() {
		<-guest.Over()
		s.end(lost(guest.Reason()))
	}()
}

// --- the end --------------------------------------------------------------------

// end ends the context. Only the first call has an effect.
func (s *session) end(err error) {
	s.ending.Do(func() {
		s.err = err
		close(s.over)
	})
}

// check returns why the context cannot be used, or nil. The lender announces a fault in shared
// memory, so check sees it without a message. It then waits for fault, which fetches the reason.
func (s *session) check() error {
	if s.closed.Load() {
		return fmt.Errorf("the context: %w", device.ErrClosed)
	}
	select {
	case <-s.over:
		return s.ended()
	default:
	}
	if result := s.status(); result != curesult.Success {
		s.fault(result)
		<-s.over
		return s.ended()
	}
	return nil
}

// ended returns why the context has ended. The caller must know that it has.
func (s *session) ended() error {
	if s.closed.Load() {
		return fmt.Errorf("the context: %w", device.ErrClosed)
	}
	return s.err
}

// status returns the CUDA result of the fault that the lender has announced, or Success.
func (s *session) status() int32 {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed.Load() {
		return curesult.Success
	}
	return s.guest.Shared.Status()
}

// fault ends the context with a fault that the lender has announced. It first fetches what kernels
// have printed: the contract promises that Complain is called before any call answers with the
// fault. That waits for answers, so a goroutine does it.
func (s *session) fault(result int32) {
	s.faulted.Do(func() {
		go func() {
			s.fetchPrints()
			s.end(faultOf(result, s.why()))
		}()
	})
}

// failed ends the context because the lender refused work that it should have accepted: the two
// sides no longer agree on the state of the context.
func (s *session) failed(what string, result int32) {
	if s.status() != curesult.Success || faults[result] != 0 {
		s.fault(result)
		return
	}
	s.faulted.Do(func() {
		go func() {
			s.end(lost(fmt.Sprintf("%v", refused(what, result, s.why()))))
		}()
	})
}

// Err returns what ended the context.
func (s *session) Err() error { return s.check() }

// await waits until done is closed, the context ends, or ctx is cancelled.
func (s *session) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-s.over:
		return s.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// happened waits for futures; false if the context ends first.
func (s *session) happened(all []*future) bool {
	for _, f := range all {
		select {
		case <-f.done:
		case <-s.over:
			return false
		}
	}
	return true
}

// --- talking --------------------------------------------------------------------

// reach runs f, which sends something, while the memory of the connection is there. If the connection
// turns out to be closed, the context ends.
func (s *session) reach(f func(*client.Direct) error) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed.Load() {
		return s.ended()
	}
	if err := f(s.guest); err != nil {
		return s.gone(err)
	}
	return nil
}

// gone ends the context if err says that the connection is closed, and returns the error for the
// caller.
func (s *session) gone(err error) error {
	var closed *wire.ClosedError
	if !errors.As(err, &closed) {
		return err
	}
	s.end(lost(closed.Reason))
	return s.ended()
}

// post sends a message without an answer.
func (s *session) post(m wire.Message) error {
	return s.reach(func(guest *client.Direct) error {
		s.bulk.small()
		return guest.Producer.Post(m)
	})
}

// postData sends a message with data of at most wire.MaxPiece bytes.
func (s *session) postData(m wire.Message, data []byte) error {
	return s.reach(func(guest *client.Direct) error {
		return guest.Producer.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), data)
	})
}

// start sends a call. The receiving goroutine calls done with the answer, so done must not wait; see
// client.Direct.
func (s *session) start(m wire.Message, out span, done func(client.Answer)) error {
	return s.reach(func(guest *client.Direct) error {
		return guest.Start(wire.Header{Op: m.Op(), Data: out.offset, Length: out.length}, m.Append(nil), done)
	})
}

// startFetch is start for calls that bring data to the host. done is called before the callbacks of
// answers that say that later work has ended, so the data have then arrived.
func (s *session) startFetch(m wire.Message, out span, done func(client.Answer)) error {
	return s.reach(func(guest *client.Direct) error {
		return guest.Fetch(wire.Header{Op: m.Op(), Data: out.offset, Length: out.length}, m.Append(nil), done)
	})
}

// span is a part of the shared data arena for the lender's data.
type span struct{ offset, length uint64 }

// outcome is a call that was sent. The fields below done are set before done is closed.
type outcome struct {
	on   *session
	what string
	done chan struct{}

	result int32
	body   []byte
	err    error
}

// ask sends a call without waiting for its answer; outcome.wait does that.
func (s *session) ask(m wire.Message, out span) (*outcome, error) {
	o := &outcome{on: s, what: m.Op().String(), done: make(chan struct{})}
	err := s.start(m, out, func(a client.Answer) {
		o.result, o.err = a.Result, a.Err
		o.body = append(o.body, a.Body...)
		close(o.done)
	})
	return o, err
}

// wait returns the CUDA result of the call, and decodes the reply if it was a success. The error is
// the context's, if that has ended.
func (o *outcome) wait(reply interface{ Decode([]byte) error }) (int32, error) {
	<-o.done
	if o.err != nil {
		return 0, o.on.gone(o.err)
	}
	if o.result != curesult.Success {
		if err := o.on.check(); err != nil { // the call failed because earlier work faulted
			return 0, err
		}
		return o.result, nil
	}
	if reply == nil {
		return 0, nil
	}
	if err := reply.Decode(o.body); err != nil {
		o.on.end(lost(fmt.Sprintf("the lender's answer to %s: %v", o.what, err)))
		return 0, o.on.ended()
	}
	return 0, nil
}

// call sends a call and waits for its answer.
func (s *session) call(m wire.Message, reply interface{ Decode([]byte) error }) (int32, error) {
	o, err := s.ask(m, span{})
	if err != nil {
		return 0, err
	}
	return o.wait(reply)
}

// demand is call, with a refusal turned into an error that has the lender's reason.
func (s *session) demand(what string, m wire.Message, reply interface{ Decode([]byte) error }) error {
	result, err := s.call(m, reply)
	if err != nil {
		return err
	}
	if result == curesult.Success {
		return nil
	}
	return refused(what, result, s.why())
}

// why returns and removes the reasons that the lender has given since the last call; "" if none.
func (s *session) why() string {
	s.printing.Lock()
	defer s.printing.Unlock()
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed.Load() {
		return ""
	}
	return strings.Join(s.guest.Shared.Notices(), "; ")
}

// fence orders accesses to host memory by two goroutines whose only order is that of the lender's
// messages. Go's memory model does not know that order. Two atomic operations on the same variable
// establish it.
func (s *session) fence() { s.fences.Add(1) }

// --- bytes ------------------------------------------------------------------------

// fetch sends a call that returns bytes in the long buffer. size, called after the reply was
// decoded, says how many there are.
func (s *session) fetch(what string, m wire.Message, reply interface{ Decode([]byte) error }, size func() uint64) ([]byte, error) {
	s.loads.Lock()
	defer s.loads.Unlock()
	long := s.long()
	o, err := s.ask(m, long)
	if err != nil {
		return nil, err
	}
	result, err := o.wait(reply)
	if err != nil {
		return nil, err
	}
	if result != curesult.Success {
		return nil, refused(what, result, s.why())
	}
	if size() > long.length {
		return nil, fmt.Errorf("%s: %d bytes, of which %d can be had: %w", what, size(), long.length, device.ErrNotSupported)
	}
	return s.copied(span{long.offset, size()}), nil
}

// long returns the buffer for answers too large for a bounce buffer. The caller must hold loads. It is
// in the part of the arena where programs of this node would have pinned memory; a guest has none.
func (s *session) long() span {
	g := s.guest.Shared.Geometry()
	return span{g.Staging + g.Bounce, client.Long}
}

// copied returns a copy of what the lender has written into a part of the arena.
func (s *session) copied(from span) []byte {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed.Load() {
		return nil
	}
	data, err := s.guest.Shared.Data(from.offset, from.length)
	if err != nil {
		return nil
	}
	return append([]byte(nil), data...)
}

// --- printed text -----------------------------------------------------------------

// fetchPrints passes on all that kernels have printed so far.
func (s *session) fetchPrints() {
	s.printing.Lock()
	defer s.printing.Unlock()
	for rounds := 0; s.printed() && rounds < maxPrintRounds; rounds++ {
		if !s.fetchPrint() {
			return
		}
	}
}

// maxPrintRounds bounds how much text a lender can make this process fetch in one go: more than a
// GPU's printf buffer holds.
const maxPrintRounds = 1 << 10

func (s *session) printed() bool {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return !s.closed.Load() && s.guest.Shared.Print()
}

// fetchPrint passes on one piece of text; false if there was none.
func (s *session) fetchPrint() bool {
	var at uint64
	select {
	case at = <-s.bounce:
	case <-s.guest.Over():
		return false
	}
	var text []byte
	var reply wire.PrintFetchReply
	o, err := s.ask(&wire.PrintFetch{}, span{at, wire.BounceBuffer})
	if err == nil {
		<-o.done
		err = o.err
	}
	if err == nil && o.result == curesult.Success && reply.Decode(o.body) == nil {
		text = s.copied(span{at, min(uint64(reply.Size), wire.BounceBuffer)})
	}
	s.bounce <- at
	if to := s.print; reply.Complaint == 0 && to != nil && len(text) > 0 {
		to(text)
	}
	if to := s.complain; reply.Complaint != 0 && to != nil && len(text) > 0 {
		to(text)
	}
	return len(text) > 0
}
