package soft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/device"
	"muster/ptx/simt"
	"muster/ptx/simt/program"
)

// stream is a queue of work. While it has work, one goroutine serves it; the goroutine ends with
// the work, so idle streams cost none. Context.mu guards all fields but timed.
type stream struct {
	c *Context
	device.StreamCan
	device.Watched
	queue []work
	head  int // index in queue of the next work; those before it are done and nil

	serving bool // a goroutine (serve, or the caller in copyNow) does the stream's work
	busy    bool // that goroutine may touch device memory now; see Context
	closed  bool
	current work // the work that serving does; nil between two

	// timed is the function given to time; each piece of work keeps the one of its submission. The
	// goroutine that submits work is the only one that uses it, so no lock guards it.
	timed func(begin, end time.Time, bytes uint64)
}

var _ device.Stream = (*stream)(nil)

// time sets the function that is told when work submitted from now on has run.
func (s *stream) time(f func(begin, end time.Time, bytes uint64)) { s.timed = f }

// maxPending is how much work may wait on a stream before submitting waits.
const maxPending = 4096

// work is one element of a stream's queue. The stream's goroutine calls do without a lock; an error
// from it ends the context.
type work interface {
	do(s *stream) error
}

// pending says whether there is work that has not ended. A mark that was reached counts as
// ended even while it is still current: a caller that was woken by the mark must see the
// stream as done. The caller must hold c.mu, as for running, first, usable, push, mark and
// leaveContext below.
func (s *stream) pending() bool {
	if m, ok := s.current.(*mark); ok && m.isReached() {
		return s.head < len(s.queue)
	}
	return s.head < len(s.queue) || s.current != nil
}

// running returns the kernel that is being run, or nil.
func (s *stream) running() *kernel {
	if k, ok := s.current.(*kernel); ok && !k.ended {
		return k
	}
	return nil
}

// first returns the oldest work that has not ended if it is a kernel, or nil. An ended kernel may
// still be current, and so may a mark, which takes no time; then the next in the queue counts.
func (s *stream) first() *kernel {
	switch w := s.current.(type) {
	case nil, *mark:
	case *kernel:
		if !w.ended {
			return w
		}
	default:
		return nil
	}
	if s.head == len(s.queue) {
		return nil
	}
	k, _ := s.queue[s.head].(*kernel)
	return k
}

// submit puts work at the end of the queue, once there is room.
func (s *stream) submit(w work) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && !s.closed && len(s.queue)-s.head >= maxPending {
		c.changed.Wait()
	}
	if err := s.usable(); err != nil {
		return err
	}
	if !s.doNow(w) {
		s.push(w)
	}
	return nil
}

// doNow does quick work in the caller's goroutine if the stream is idle: starting another
// goroutine would take longer than the work. The caller must hold c.mu; copyNow releases it
// during the copy.
func (s *stream) doNow(w work) bool {
	if s.serving || s.head < len(s.queue) || s.mustWait() {
		return false
	}
	switch w := w.(type) {
	case *mark:
		w.reach(s)
		return true
	case *transfer:
		if w.size > quickCopy || w.linked && s.c.dev.link.pace.factor != 0 {
			return false
		}
		s.copyNow(w)
		return true
	}
	return false
}

// quickCopy is the largest copy, in bytes, that the submitting goroutine does itself.
const quickCopy = 1 << 20

// copyNow does a copy in the caller's goroutine, which takes the role of the stream's goroutine
// meanwhile: with serving set, others that submit work only queue it. So c.serving must count it, or
// Close could release the memory during the copy. If work has queued up, the role and its count
// pass to a new goroutine.
func (s *stream) copyNow(t *transfer) {
	c := s.c
	s.serving, s.busy, s.current = true, true, t
	c.serving.Add(1)
	c.mu.Unlock()
	err := t.now(c.mem)
	c.mu.Lock()
	s.serving, s.busy, s.current = false, false, nil
	if err != nil {
		c.endLocked(err)
	}
	switch {
	case s.head < len(s.queue) && c.err == nil: // other goroutines have submitted work meanwhile
		s.serving = true
		go s.serve()
		c.changed.Broadcast()
		return
	case s.closed:
		s.leaveContext()
	}
	s.queue, s.head = nil, 0
	c.changed.Broadcast()
	c.serving.Done()
}

// usable returns why the stream takes no work, or nil.
func (s *stream) usable() error {
	if s.c.err != nil {
		return s.c.err
	}
	if s.closed {
		return fmt.Errorf("stream: %w", device.ErrClosed)
	}
	return nil
}

func (s *stream) push(w work) {
	s.queue = append(s.queue, w)
	if !s.serving {
		s.serving = true
		s.c.serving.Add(1)
		go s.serve()
	}
}

// mark returns a mark behind all pending work. It ignores maxPending, so that a caller can wait for
// a full queue. That adds few entries: the caller blocks until its mark is reached, and callers that
// wait for the same work share one.
func (s *stream) mark() *mark {
	if n := len(s.queue); n > s.head {
		if m, ok := s.queue[n-1].(*mark); ok {
			return m
		}
	}
	m := newMark()
	s.push(m)
	return m
}

// serve is the goroutine of a stream: it does the stream's work until there is none, or until the
// context ends.
func (s *stream) serve() {
	defer s.c.serving.Done()
	for {
		w := s.next()
		if w == nil {
			return
		}
		if err := w.do(s); err != nil {
			s.c.end(err)
		}
	}
}

// next takes work from the queue and makes it current. If there is none, or the context has ended, it
// returns nil and clears serving under the same lock, so that work submitted afterwards gets a new
// goroutine and none is left in the queue. The goroutine must end then.
func (s *stream) next() work {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.current = nil
	if c.err != nil || s.head == len(s.queue) {
		s.queue, s.head, s.serving = nil, 0, false
		if s.closed {
			s.leaveContext()
		}
		return nil
	}
	w := s.queue[s.head]
	s.queue[s.head] = nil
	s.head++
	if s.head >= 64 && 2*s.head >= len(s.queue) {
		s.queue, s.head = slices.Clone(s.queue[s.head:]), 0
	}
	s.current = w
	c.changed.Broadcast()
	return w
}

// leaveContext makes the context forget a stream that is closed and has no
// work.
func (s *stream) leaveContext() {
	s.c.streams = slices.DeleteFunc(s.c.streams, func(o *stream) bool { return o == s })
}

// mustWait says whether still forbids the stream to touch memory now. The caller must
// hold c.mu.
func (s *stream) mustWait() bool { return s.c.pauses > 0 }

// ready waits until the stream may touch memory. The caller must hold c.mu.
func (s *stream) ready() error {
	for s.c.err == nil && s.mustWait() {
		s.c.changed.Wait()
	}
	return s.c.err
}

// enter waits until the stream may touch memory, and marks it as busy. leave undoes that.
func (s *stream) enter() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	err := s.ready()
	s.busy = err == nil
	return err
}

// tryEnter is enter without the wait, for a caller that holds the device's turn: waiting with the
// turn would block the kernels of all contexts.
func (s *stream) tryEnter() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.busy = s.c.err == nil && !s.mustWait()
	return s.busy
}

func (s *stream) leave() {
	s.c.mu.Lock()
	s.busy = false
	s.c.changed.Broadcast()
	s.c.mu.Unlock()
}

// copyPiece is how many bytes are copied between two checks of mustWait. It bounds how long still
// waits for a copy.
const copyPiece = 4 << 20

// transfer is a copy or a fill.
type transfer struct {
	name   string
	size   uint64
	linked bool     // crosses the link between host and device, and so takes its bandwidth
	addrs  []uint64 // device addresses; size bytes at each must be mapped at submission
	piece  func(m *memory, from, to uint64) error
	timed  func(begin, end time.Time, bytes uint64) // see stream.timed; may be nil
}

// now does all of a transfer in one piece. The caller must have marked the stream as busy.
func (t *transfer) now(m *memory) error {
	if t.timed == nil {
		return t.piece(m, 0, t.size)
	}
	begin := time.Now()
	err := t.piece(m, 0, t.size)
	if err == nil {
		t.timed(begin, time.Now(), t.size)
	}
	return err
}

func (t *transfer) do(s *stream) error {
	if t.timed == nil {
		return t.pieces(s)
	}
	begin := time.Now()
	err := t.pieces(s)
	if err == nil {
		t.timed(begin, time.Now(), t.size)
	}
	return err
}

// pieces does a transfer in pieces, so that still can stop the stream between two.
func (t *transfer) pieces(s *stream) error {
	for from := uint64(0); from < t.size; from += copyPiece {
		to := min(from+copyPiece, t.size)
		if err := s.enter(); err != nil {
			return err
		}
		err := t.piece(s.c.mem, from, to)
		s.leave()
		if err != nil {
			return err
		}
		if t.linked {
			s.c.dev.paceCopy(to-from, s.c.ended)
		}
	}
	return nil
}

// paceCopy makes copied bytes take the time that the profile's bandwidth gives them. All copies of
// the device share the link.
func (d *Device) paceCopy(bytes uint64, ended <-chan struct{}) {
	if d.link.pace.factor == 0 || !d.link.take(ended) {
		return
	}
	defer d.link.give()
	d.link.pace.after(time.Duration(float64(bytes)/float64(d.profile.CopyBandwidth)*float64(time.Second)), ended)
}

// submitTransfer checks that all memory is mapped and submits the transfer. The memory may be unmapped
// before the transfer runs; reach makes that a fault.
func (s *stream) submitTransfer(t *transfer) error {
	if t.size == 0 {
		return s.check()
	}
	for _, addr := range t.addrs {
		if _, ok := s.c.mem.bytes(addr, t.size); !ok {
			if err := s.check(); err != nil {
				return err
			}
			return fmt.Errorf("%s of %d bytes at %#x: not all of it is mapped: %w", t.name, t.size, addr, device.ErrInvalidValue)
		}
	}
	t.timed = s.timed
	return s.submit(t)
}

// check is usable for callers without the lock.
func (s *stream) check() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.usable()
}

// reach returns device memory for a running transfer, or a fault if it is no longer mapped.
func reach(m *memory, addr, size uint64) ([]byte, error) {
	b, ok := m.bytes(addr, size)
	if !ok {
		return nil, &device.Fault{Kind: device.IllegalAddress, Located: true, Address: addr, Detail: "a copy's memory was unmapped before the copy was done"}
	}
	return b, nil
}

// CopyIn copies from the host.
func (s *stream) CopyIn(dst uint64, src []byte) error {
	s.c.written(dst, uint64(len(src)))
	return s.submitTransfer(&transfer{name: "copy to the device", size: uint64(len(src)), linked: true, addrs: []uint64{dst},
		piece: func(m *memory, from, to uint64) error {
			b, err := reach(m, dst+from, to-from)
			copy(b, src[from:to])
			return err
		}})
}

// CopyOut copies to the host.
func (s *stream) CopyOut(dst []byte, src uint64) error {
	return s.submitTransfer(&transfer{name: "copy from the device", size: uint64(len(dst)), linked: true, addrs: []uint64{src},
		piece: func(m *memory, from, to uint64) error {
			b, err := reach(m, src+from, to-from)
			copy(dst[from:to], b)
			return err
		}})
}

// Copy copies within the device. Ranges may overlap: dst gets the bytes that src had before. Within
// a piece Go's copy ensures that; the order of the pieces ensures it for the whole.
func (s *stream) Copy(dst, src, size uint64) error {
	backwards := dst != src && dst-src < size // dst begins within src: forwards would overwrite unread bytes
	s.c.written(dst, size)
	return s.submitTransfer(&transfer{name: "copy within the device", size: size, addrs: []uint64{dst, src},
		piece: func(m *memory, from, to uint64) error {
			if backwards {
				from, to = size-to, size-from
			}
			d, err := reach(m, dst+from, to-from)
			if err != nil {
				return err
			}
			b, err := reach(m, src+from, to-from)
			copy(d, b)
			return err
		}})
}

// copyFrom copies from a context of another software GPU, at this device's bandwidth to the host. This
// stream's busy flag does not protect the other context's memory; the contract makes the caller do that.
func (s *stream) copyFrom(dst uint64, from device.Context, src, size uint64) error {
	other, ok := from.Can().Self.(*Context)
	if !ok {
		return fmt.Errorf("copying from a context of another kind: %w", device.ErrNotSupported)
	}
	if _, ok := other.mem.bytes(src, size); !ok {
		return fmt.Errorf("copy of %d bytes at %#x of another device: not all of it is mapped there: %w", size, src, device.ErrInvalidValue)
	}
	s.c.written(dst, size)
	return s.submitTransfer(&transfer{name: "copy from another device", size: size, linked: true, addrs: []uint64{dst},
		piece: func(m *memory, from, to uint64) error {
			d, err := reach(m, dst+from, to-from)
			if err != nil {
				return err
			}
			b, err := reach(other.mem, src+from, to-from)
			copy(d, b)
			return err
		}})
}

// Fill writes the same element many times.
func (s *stream) Fill(dst uint64, value uint32, width int, count uint64) error {
	w := uint64(width)
	switch {
	case width != 1 && width != 2 && width != 4:
		return fmt.Errorf("fill with elements of %d bytes: give 1, 2 or 4: %w", width, device.ErrInvalidValue)
	case dst%w != 0:
		return fmt.Errorf("fill at %#x with elements of %d bytes: give an address that is a multiple: %w", dst, width, device.ErrInvalidValue)
	case count > maxAddress:
		return fmt.Errorf("fill with %d elements: no memory is that large: %w", count, device.ErrInvalidValue)
	}
	var element [4]byte
	binary.LittleEndian.PutUint32(element[:], value)
	s.c.written(dst, count*w)
	return s.submitTransfer(&transfer{name: "fill", size: count * w, addrs: []uint64{dst},
		piece: func(m *memory, from, to uint64) error {
			b, err := reach(m, dst+from, to-from)
			if err != nil {
				return err
			}
			for n := copy(b, element[:w]); n < len(b); n *= 2 {
				copy(b[n:], b[:n])
			}
			return nil
		}})
}

// maxAddress is the end of the addresses that kernels know as global memory.
const maxAddress = program.GlobalEnd

// mark is work without effect: its channel tells waiters that the work before it has ended.
type mark struct {
	reached chan struct{}
	at      time.Duration // set before reached is closed
}

func newMark() *mark { return &mark{reached: make(chan struct{})} }

func (m *mark) do(s *stream) error {
	m.reach(s)
	return nil
}

func (m *mark) reach(s *stream) {
	m.at = s.c.dev.clock.Now()
	close(m.reached)
}

// waiting is work that ends when a mark is reached.
type waiting struct{ until *mark }

func (w waiting) do(s *stream) error {
	select {
	case <-w.until.reached:
		return nil
	case <-s.c.ended:
		return s.c.Err()
	}
}

// Record lets an event stand for the work so far.
func (s *stream) Record(e device.Event) error {
	own, err := s.c.eventOf(e)
	if err != nil {
		return err
	}
	m := newMark()
	if err := s.submit(m); err != nil {
		return err
	}
	own.mu.Lock()
	own.mark = m
	own.mu.Unlock()
	return nil
}

// Wait holds later work back until an event is reached.
func (s *stream) Wait(e device.Event) error {
	own, err := s.c.eventOf(e)
	if err != nil {
		return err
	}
	m := own.current()
	if m.isReached() {
		return s.check()
	}
	return s.submit(waiting{m})
}

// call is a host function as work.
type call func()

func (f call) do(*stream) error {
	f()
	return nil
}

// Call runs a host function in the order of the stream.
func (s *stream) Call(f func()) error {
	if f == nil {
		return fmt.Errorf("calling no function: %w", device.ErrInvalidValue)
	}
	return s.submit(call(f))
}

// hold makes later work wait until it is released.
func (s *stream) hold(given func(release func())) error {
	released := make(chan struct{})
	given(sync.OnceFunc(func() { close(released) }))
	return s.submit(call(func() {
		select {
		case <-released:
		case <-s.c.ended:
		}
	}))
}

// Done says whether all work has ended.
func (s *stream) Done() (bool, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return !s.pending(), s.usable()
}

// Synchronise waits for the work that was submitted.
func (s *stream) Synchronise(ctx context.Context) error {
	c := s.c
	c.mu.Lock()
	if err := s.usable(); err != nil || !s.pending() {
		c.mu.Unlock()
		return err
	}
	m := s.mark()
	c.mu.Unlock()
	return c.await(ctx, m)
}

// Close makes the stream refuse more work. The context forgets the stream when its work has ended.
func (s *stream) Close() error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || s.closed {
		return c.err
	}
	s.closed = true
	if !s.serving {
		s.leaveContext()
	}
	c.changed.Broadcast()
	return nil
}

// kernel is a launch, as work and while it runs.
type kernel struct {
	function  *function
	execution *simt.Execution
	ended     bool          // guarded by Context.mu
	ran       time.Duration // with the device to itself

	timed func(begin, end time.Time, bytes uint64) // see stream.timed; may be nil
	began time.Time                                // of the first slice, if timed is set
	guard *guard                                   // nil: it may use everything
}

// kernelSlice is how many instructions of a gang each worker does before other
// kernels get a turn. That takes a few milliseconds at most.
const kernelSlice = 1 << 14

func (k *kernel) do(s *stream) error {
	for {
		done, err := k.slice(s)
		if done && err == nil {
			k.guard.tell()
		}
		if done && err == nil && k.timed != nil {
			k.timed(k.began, time.Now(), 0)
		}
		if done || err != nil {
			return err
		}
	}
}

// slice waits for a turn on the device and runs a part of the kernel. Locks and turns are taken in
// this order: first the stream must be ready, then the turn among this process's kernels, then the one
// among processes. ready comes first so that a stream that waits does not occupy the turn. still
// may come between ready and tryEnter; the slice then does nothing and do tries again.
func (k *kernel) slice(s *stream) (done bool, err error) {
	c, d := s.c, s.c.dev
	c.mu.Lock()
	err = s.ready()
	c.mu.Unlock()
	if err != nil {
		return false, err
	}
	if !d.engine.take(c.ended) {
		return false, c.Err()
	}
	defer d.engine.give()
	d.turns.Lock()
	defer d.turns.Unlock()
	if !s.tryEnter() {
		return false, c.Err()
	}
	if k.timed != nil && k.began.IsZero() {
		k.began = time.Now()
	}
	began := d.clock.Now()
	work, err := d.timed(k)
	done, err = k.leave(s, err)
	d.engine.pace.after(work, c.ended)
	k.ran += d.clock.Now() - began
	if c.limit.Time > 0 && k.ran > c.limit.Time && !done && err == nil {
		c.end(c.limit.Fault(k.function.info.Name))
		return false, c.Err()
	}
	return done, err
}

// leave records how a slice ended. It sets ended and the context's fault under one lock: a caller
// that sees the kernel ended must also see its fault.
func (k *kernel) leave(s *stream, err error) (done bool, _ error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.busy = false
	c.changed.Broadcast()
	if errors.Is(err, simt.ErrStopped) {
		return false, c.err
	}
	k.ended = true
	if err != nil {
		c.endLocked(faultOf(k.function.info.Name, err))
		return false, c.err
	}
	return true, nil
}
