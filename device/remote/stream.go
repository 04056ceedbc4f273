package remote

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"muster/device"
	"muster/device/curesult"
	"muster/wire"
	"muster/wire/client"
)

// stream is a stream at the lender. The submitting goroutine sends the messages of its work at once,
// unless something must happen first: earlier work may still write host memory that this work reads, an
// event to wait for was not recorded at the lender yet, or no buffer is free for data from the
// lender. Such work, and all later work of the stream, is kept here and sent in order by one
// goroutine (sendKept). So the submitter never waits for the lender, and a long copy delays only
// its own stream.
type stream struct {
	c *Context
	device.StreamCan
	device.Watched
	id uint32

	// order is held while work is submitted, so that work is sent in the order of its numbers.
	order  sync.Mutex
	closed bool    // guarded by order
	copied *future // the latest copy to the host; guarded by order

	kept keeper
	progress
}

var _ device.Stream = (*stream)(nil)

// keeper holds the jobs of a stream that wait to be sent, in order. While running is true, new jobs
// must queue up behind them, even if they could be sent at once.
type keeper struct {
	mu      sync.Mutex
	jobs    []job
	running bool
}

// job is work to be sent: send is called once all futures in after have happened.
type job struct {
	after []*future
	send  func() error
}

// NewStream makes a stream.
func (c *Context) NewStream() (device.Stream, error) { return c.newStreamOf(0) }

// newStreamOf makes a stream with a priority.
func (c *Context) newStreamOf(priority int) (device.Stream, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	const nonBlocking = 1
	s := &stream{c: c, id: c.last.Add(1)}
	s.StreamCan = device.StreamCan{CopyTaken: s.copyTaken, CopyFrom: s.copyFrom, WriteWord: s.writeWord, WaitWord: s.waitWord, Notify: s.notify}
	if err := c.post(&wire.StreamCreate{Stream: s.id, Flags: nonBlocking, Priority: int32(priority)}); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s] = true
	return s, nil
}

// --- submitting -------------------------------------------------------------------

// usable returns why the stream takes no work, or nil. The caller must hold order.
func (s *stream) usable() error {
	if err := s.c.check(); err != nil {
		return err
	}
	if s.closed {
		return fmt.Errorf("the stream: %w", device.ErrClosed)
	}
	return nil
}

// submit sends a job at once if it can, and else keeps it for sendKept; it never waits for what j
// waits for. long says that sending may take a while, so that a goroutine should do it. The caller
// must hold order.
func (s *stream) submit(j job, long bool) error {
	k := &s.kept
	k.mu.Lock()
	if !k.running && !long && len(j.after) == 0 {
		k.mu.Unlock()
		return j.send() // no other goroutine sends for this stream: we hold order, and sendKept does not run
	}
	k.jobs = append(k.jobs, j)
	if !k.running {
		k.running = true
		s.c.running.Add(1)
		go s.sendKept()
	}
	k.mu.Unlock()
	return nil
}

// sendKept is the goroutine that sends kept jobs until there are none. It clears running under the
// lock under which it found no job, so no job is left behind.
func (s *stream) sendKept() {
	defer s.c.running.Done()
	k := &s.kept
	for {
		k.mu.Lock()
		if len(k.jobs) == 0 {
			k.running = false
			k.mu.Unlock()
			return
		}
		j := k.jobs[0]
		k.jobs[0] = job{}
		k.jobs = k.jobs[1:]
		k.mu.Unlock()
		if !s.c.happened(j.after) || j.send() != nil {
			k.drop()
			return
		}
	}
}

// busy says whether new jobs must be kept.
func (k *keeper) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running
}

// drop forgets the kept jobs, because the context has ended.
func (k *keeper) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jobs, k.running = nil, false
}

// simple submits work that one message describes.
func (s *stream) simple(m wire.Message) error {
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	s.number()
	return s.submit(job{send: func() error { return s.c.post(m) }}, false)
}

// --- copies -----------------------------------------------------------------------

// inline is how many bytes travel in the message itself, as in the library in C.
const inline = 16 << 10

// CopyIn copies from the host to the device. It reads the bytes before it returns, unless earlier
// work may still write them or there are more than wire.MaxPiece.
func (s *stream) CopyIn(dst uint64, src []byte) error {
	return s.copyIn(dst, src, len(src) > wire.MaxPiece)
}

// copyTaken is CopyIn, but has read src when it returns: if the copy must be kept, it keeps a clone of
// the bytes.
func (s *stream) copyTaken(dst uint64, src []byte) error {
	s.order.Lock()
	kept := s.kept.busy()
	s.order.Unlock()
	if kept || len(s.hazarded()) > 0 {
		return s.copyOwn(dst, bytes.Clone(src))
	}
	return s.copyIn(dst, src, false)
}

func (s *stream) copyIn(dst uint64, src []byte, long bool) error {
	return s.copyAfter(dst, src, long, s.hazarded)
}

// copyOwn copies bytes that only this package refers to, so that no work can write them.
func (s *stream) copyOwn(dst uint64, src []byte) error {
	return s.copyAfter(dst, src, false, func() []*future { return nil })
}

func (s *stream) copyAfter(dst uint64, src []byte, long bool, after func() []*future) error {
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.c.memory.check(dst, uint64(len(src))); err != nil {
		return err
	}
	if len(src) == 0 {
		return nil
	}
	s.number()
	return s.submit(job{after: after(), send: func() error { return s.sendBytes(dst, src) }}, long)
}

// sendBytes sends the bytes of a copy, in pieces.
func (s *stream) sendBytes(dst uint64, src []byte) error {
	if len(src) <= inline {
		return s.c.post(&wire.CopyInline{Dst: dst, Stream: s.id, Data: src})
	}
	if len(src) > wire.MaxPiece {
		return s.sendLong(dst, src)
	}
	s.c.bulk.small()
	return s.c.postData(&wire.CopyIn{Dst: dst, Stream: s.id}, src)
}

// CopyOut copies from the device to the host.
func (s *stream) CopyOut(dst []byte, src uint64) error {
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.c.memory.check(src, uint64(len(dst))); err != nil {
		return err
	}
	if len(dst) == 0 {
		return nil
	}
	s.number()
	there := &arrival{landed: newFuture(), before: s.copied}
	s.copied = there.landed
	s.hazard(there.landed)
	if len(dst) <= wire.BounceBuffer {
		select {
		case at := <-s.c.bounce: // a buffer is free: the copy can be sent at once
			there.left.Store(int64(len(dst)))
			s.c.bulk.small()
			return s.submit(job{send: func() error { return s.fetchPiece(dst, src, at, there, nil) }}, false)
		default:
		}
	}
	there.left.Store(int64(len(dst)))
	return s.submit(job{send: func() error { return s.fetchPieces(dst, src, there) }}, true)
}

// arrival is a copy to the host that is under way.
type arrival struct {
	landed *future
	before *future      // the stream's previous copy to the host: answers may arrive in another order
	left   atomic.Int64 // bytes that have not arrived
}

// isThere notes that all bytes of a copy have arrived. The copy counts as landed when the one before it
// has, so that landed futures of a stream happen in order.
func (a *arrival) isThere(over <-chan struct{}) {
	if a.before == nil || a.before.is() {
		close(a.landed.done)
		return
	}
	go func() { // the goroutine that receives must not wait
		select {
		case <-a.before.done:
			close(a.landed.done)
		case <-over:
		}
	}()
}

// fetchPieces requests all of a copy in pieces, each through a bounce buffer.
func (s *stream) fetchPieces(dst []byte, src uint64, there *arrival) error {
	for len(dst) > 0 {
		n := min(len(dst), wire.BounceBuffer)
		var leave func()
		if s.c.bulk.narrow() {
			n = min(n, narrowPiece)
			if !s.c.bulk.enter(s.c.over) {
				return s.c.ended()
			}
			leave = s.c.bulk.leave
		}
		var at uint64
		select {
		case at = <-s.c.bounce:
		case <-s.c.over:
			return s.c.ended()
		}
		if err := s.fetchPiece(dst[:n], src, at, there, leave); err != nil {
			return err
		}
		dst, src = dst[n:], src+uint64(n)
	}
	return nil
}

// fetchPiece requests one piece through the bounce buffer at offset at, and gives the buffer back when
// the piece has arrived. leave, if not nil, is called then.
func (s *stream) fetchPiece(dst []byte, src, at uint64, there *arrival, leave func()) error {
	c := s.c
	return c.startFetch(&wire.CopyOut{Src: src, Stream: s.id}, span{at, uint64(len(dst))}, func(a client.Answer) {
		if a.Err == nil && a.Result == curesult.Success {
			// No gate: Close unmaps the memory only after all callbacks have returned.
			if data, err := c.guest.Shared.Data(at, uint64(len(dst))); err == nil {
				c.fence()
				copy(dst, data)
				c.fence()
			}
		}
		c.bounce <- at
		if leave != nil {
			leave()
		}
		if a.Err == nil && a.Result != curesult.Success {
			go c.failed("a copy from the device", a.Result)
			return
		}
		if a.Err == nil && there.left.Add(-int64(len(dst))) == 0 {
			there.isThere(c.over)
		}
	})
}

// Copy copies within the device.
func (s *stream) Copy(dst, src, size uint64) error {
	if err := s.c.check(); err != nil {
		return err
	}
	for _, addr := range []uint64{dst, src} {
		if err := s.c.memory.check(addr, size); err != nil {
			return err
		}
	}
	if size == 0 {
		return nil
	}
	return s.simple(&wire.CopyWithin{Dst: dst, Src: src, Size: size, Stream: s.id})
}

// Fill writes count elements of width bytes.
func (s *stream) Fill(dst uint64, value uint32, width int, count uint64) error {
	if err := s.c.check(); err != nil {
		return err
	}
	if width != 1 && width != 2 && width != 4 || dst%uint64(max(1, width)) != 0 || count > 1<<48 {
		return fmt.Errorf("filling %d elements of %d bytes at %#x: %w", count, width, dst, device.ErrInvalidValue)
	}
	if err := s.c.memory.check(dst, count*uint64(width)); err != nil {
		return err
	}
	if count == 0 {
		return nil
	}
	return s.simple(&wire.Fill{Dst: dst, Value: value, Width: uint32(width), Count: count, Height: 1, Stream: s.id})
}

// --- words ------------------------------------------------------------------------

func (s *stream) checkWord(addr uint64, width int) error {
	if err := s.c.check(); err != nil {
		return err
	}
	if width != 4 && width != 8 || addr%uint64(max(1, width)) != 0 {
		return fmt.Errorf("a word of %d bytes at %#x: %w", width, addr, device.ErrInvalidValue)
	}
	return s.c.memory.check(addr, uint64(width))
}

// writeWord writes a word.
func (s *stream) writeWord(addr uint64, width int, value uint64) error {
	if err := s.checkWord(addr, width); err != nil {
		return err
	}
	return s.simple(&wire.StreamWrite{Stream: s.id, Addr: addr, Value: value, Width: uint32(width)})
}

// waitWord makes the stream wait for a word.
func (s *stream) waitWord(addr uint64, width int, value uint64, c device.Compare) error {
	if err := s.checkWord(addr, width); err != nil {
		return err
	}
	if c > device.NotAll {
		return fmt.Errorf("comparison %d: %w", c, device.ErrInvalidValue)
	}
	return s.simple(&wire.StreamAwait{Stream: s.id, Addr: addr, Value: value, Width: uint32(width), Compare: uint32(c), Cookie: s.c.hosts.last.Add(1)})
}

// --- functions of the host ----------------------------------------------------------

// Call runs f when the work before it is done; later work waits for it.
func (s *stream) Call(f func()) error {
	if f == nil {
		return fmt.Errorf("no function: %w", device.ErrInvalidValue)
	}
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	s.number()
	before := s.hazarded()
	returned := newFuture()
	s.hazard(returned)
	cookie, first := s.c.hosts.add(func() {
		// At the lender all earlier work has ended. But this goroutine may run before all answers
		// of earlier copies were handled: wait until their data have landed here.
		if s.c.happened(before) {
			f()
			close(returned.done)
		}
	})
	return s.submit(job{send: func() error {
		if first {
			if err := s.c.nextFunction(); err != nil {
				return err
			}
		}
		return s.c.post(&wire.HostFunction{Stream: s.id, Cookie: cookie})
	}}, false)
}

// nextFunction asks the lender for the next host function to run. The lender answers when a stream
// has reached one; the callback then asks again.
func (c *Context) nextFunction() error {
	return c.start(&wire.HostNext{}, span{}, func(a client.Answer) {
		var reply wire.HostNextReply
		if a.Err != nil || a.Result != curesult.Success || reply.Decode(a.Body) != nil || reply.Cookie == 0 {
			return
		}
		// The receiving goroutine must not wait, and both calls may.
		go func() { _ = c.nextFunction() }()
		go c.runFunction(reply.Cookie)
	})
}

// runFunction runs a host function that its stream has reached, and tells the lender when it has
// returned, so that the stream continues.
func (c *Context) runFunction(cookie uint64) {
	f := c.hosts.take(cookie)
	if f == nil || c.check() != nil {
		return
	}
	c.fence()
	f()
	c.fence()
	_ = c.post(&wire.HostDone{Cookie: cookie})
}

// --- the end of work ------------------------------------------------------------------

// probe asks the lender to report the end of all work so far. The channel is closed then.
func (s *stream) probe() (<-chan struct{}, error) {
	s.order.Lock()
	defer s.order.Unlock()
	done := make(chan struct{})
	return done, s.probeHeld(func() { close(done) })
}

// probeHeld arranges that f is called at the end of all work so far. It sends a message only if no
// earlier probe covers all work. A closed stream was probed by Close, and no longer exists at the
// lender. The caller must hold order.
func (s *stream) probeHeld(f func()) error {
	number, asked := s.probing()
	s.wait(number, f)
	if asked || s.closed || s.has(number) {
		return nil
	}
	return s.submit(job{send: func() error {
		return s.c.start(&wire.StreamSynchronise{Stream: s.id}, span{}, func(a client.Answer) { s.answered(number, a) })
	}}, false)
}

// answered handles the answer to a probe. It runs in the receiving goroutine.
func (s *stream) answered(number uint64, a client.Answer) {
	switch {
	case a.Err != nil: // the connection is gone; the goroutine of session.begin ends the context
	case a.Result != curesult.Success:
		go s.c.failed("work of a stream", a.Result)
	default:
		s.ended(number)
	}
}

// Done says whether all submitted work is known to have ended. If not, it sends a probe, so that a
// later call finds out.
func (s *stream) Done() (bool, error) {
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		return false, err
	}
	number, asked, done := s.standing()
	if done {
		s.c.fetchPrints()
		return true, nil
	}
	if asked {
		return false, nil
	}
	err := s.probeHeld(func() {})
	if done = s.has(number); done {
		s.c.fetchPrints()
	}
	return done, err
}

// Synchronise waits until all work submitted before has ended.
func (s *stream) Synchronise(ctx context.Context) error {
	s.order.Lock()
	err := s.usable()
	done := make(chan struct{})
	if err == nil {
		err = s.probeHeld(func() { close(done) })
	}
	s.order.Unlock()
	if err == nil {
		err = s.c.await(ctx, done)
	}
	if err != nil {
		return err
	}
	s.c.fetchPrints()
	return s.c.check()
}

// notify arranges that f is called when all work so far has ended; later work does not wait for f.
func (s *stream) notify(f func()) error {
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	return s.probeHeld(f)
}

// Close makes the stream refuse more work. Pending work still runs to its end.
func (s *stream) Close() error {
	s.order.Lock()
	defer s.order.Unlock()
	if s.closed {
		return nil
	}
	if err := s.c.check(); err != nil {
		return err
	}
	if err := s.probeHeld(func() {}); err != nil { // after StreamDestroy no probe can be sent
		return err
	}
	s.closed = true
	s.leave()
	return s.submit(job{send: func() error { return s.c.post(&wire.StreamDestroy{Stream: s.id}) }}, false)
}
