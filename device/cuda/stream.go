//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"muster/device"
	"muster/internal/together"
)

// stream is a stream of the driver.
type stream struct {
	c *gpuContext
	device.StreamCan
	device.Watched
	closed atomic.Bool

	mu   sync.Mutex // held while submitting, so that the calls of one operation stay together
	ring *ring      // buffers for host memory that is not pinned; nil until they are needed
	gate *gate      // what Hold waits for; nil until it is needed

	// submitted counts what the stream was given: it is raised after each call of the driver that
	// submits. ended is the count up to which all work was seen to have ended. Where the two are
	// equal, waiting need not ask the driver, which takes a microsecond for each stream: programs
	// have dozens of idle ones. Done asks nevertheless, because the driver's answer is how an idle
	// worker learns that its context has failed.
	submitted, ended atomic.Uint64

	bulkOnly bool // all pending work is large copies to the device through bulk buffers
	silent   bool // parts of the ring were taken that no work of the stream gives back; see drain

	life   sync.Mutex   // held while querying the stream without submitting
	handle C.mcu_handle // 0 when destroyed; destroying needs both mu and life
}

var _ device.Stream = (*stream)(nil)

// NewStream makes a stream.
func (c *gpuContext) NewStream() (device.Stream, error) { return c.newStreamOf(0) }

// newStreamOf makes a stream with a priority, which the driver clamps to the device's range.
func (c *gpuContext) newStreamOf(priority int) (device.Stream, error) {
	c.sweep()
	s := &stream{c: c}
	s.DoneWithin = s.doneWithin
	s.StreamCan = device.StreamCan{
		CopyTaken: s.copyTaken, CopyInKept: s.copyInKept, WriteWord: s.writeWord, WaitWord: s.waitWord,
		LaunchLater: s.launchLater, Refused: s.refused, Hold: s.hold,
	}
	if err := c.call(func() C.mcu_result { return C.mcu_stream_create(c.handle, C.int(priority), &s.handle) }); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.streams = append(c.streams, s)
	c.mu.Unlock()
	return s, nil
}

// usable returns why the stream takes no work, or nil.
func (s *stream) usable() error {
	if err := s.c.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return fmt.Errorf("stream: %w", device.ErrClosed)
	}
	return nil
}

// submit runs a call of the driver that submits work. submitLocked is the same for callers that hold
// s.mu.
func (s *stream) submit(f func() C.mcu_result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.submitLocked(f)
}

func (s *stream) submitLocked(f func() C.mcu_result) error {
	s.bulkOnly = false
	if err := s.usable(); err != nil {
		return err
	}
	defer s.submitted.Add(1)
	return s.c.call(f)
}

// idle says whether all work that was submitted to the stream is known to have ended.
func (s *stream) idle() bool { return s.ended.Load() == s.submitted.Load() }

// saw records the answer to a query; count is the value of submitted before the query. The caller must
// hold life, so that ended never goes back.
func (s *stream) saw(count uint64, done bool, err error) (bool, error) {
	if done && err == nil {
		s.ended.Store(count)
	}
	return done, err
}

// checkMemory returns true if a transfer can be submitted. If it returns false, the caller
// must submit nothing and return the error, which is nil for a transfer of no bytes.
func (s *stream) checkMemory(what string, size uint64, addrs ...uint64) (bool, error) {
	if err := s.usable(); err != nil || size == 0 {
		return false, err
	}
	for _, addr := range addrs {
		if !s.c.reachable(addr, size) {
			return false, fmt.Errorf("%s of %d bytes at %#x: not all of it is mapped: %w", what, size, addr, device.ErrInvalidValue)
		}
	}
	return true, nil
}

// CopyIn copies from the host.
func (s *stream) CopyIn(dst uint64, src []byte) error {
	if ok, err := s.checkMemory("copy to the device", uint64(len(src)), dst); !ok {
		return err
	}
	if err := s.submitIn(dst, src); err != nil {
		return err
	}
	return s.wrote(dst, uint64(len(src)))
}

func (s *stream) submitIn(dst uint64, src []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if parts := s.c.pinnedParts(src); parts != nil {
		return s.eachPart(parts, src, dst, s.copyIn)
	}
	if s.bulkTurn(len(src)) {
		return s.bulkIn(dst, src)
	}
	return s.staged(src, func(at int, part []byte, r room) error {
		if err := s.callLocked(func() { together.Copy(r.memory, part) }); err != nil {
			return err
		}
		if err := s.submitLocked(func() C.mcu_result { return s.copyIn(dst+uint64(at), r.memory) }); err != nil {
			return err
		}
		return s.callLocked(r.give)
	})
}

func (s *stream) copyIn(dst uint64, src []byte) C.mcu_result {
	return C.mcu_copy_in(s.c.handle, s.handle, C.uint64_t(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)))
}

// CopyOut copies to the host.
func (s *stream) CopyOut(dst []byte, src uint64) error {
	if ok, err := s.checkMemory("copy from the device", uint64(len(dst)), src); !ok {
		return err
	}
	if err := s.reads(src, uint64(len(dst))); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if parts := s.c.pinnedParts(dst); parts != nil {
		return s.eachPart(parts, dst, src, s.copyOut)
	}
	if s.bulkTurn(len(dst)) {
		return s.bulkOut(dst, src)
	}
	return s.staged(dst, func(at int, part []byte, r room) error {
		if err := s.submitLocked(func() C.mcu_result { return s.copyOut(src+uint64(at), r.memory) }); err != nil {
			return err
		}
		return s.callLocked(func() {
			together.Copy(part, r.memory)
			r.give()
		})
	})
}

func (s *stream) copyOut(src uint64, dst []byte) C.mcu_result {
	return s.copyOutOn(s.handle, src, dst)
}

func (s *stream) copyOutOn(stream C.mcu_handle, src uint64, dst []byte) C.mcu_result {
	return C.mcu_copy_out(s.c.handle, stream, unsafe.Pointer(unsafe.SliceData(dst)), C.uint64_t(src), C.size_t(len(dst)))
}

// eachPart submits a copy between the device and host memory whose parts were pinned separately: the
// driver accepts only one registration per call.
func (s *stream) eachPart(parts []int, host []byte, addr uint64, submit func(addr uint64, part []byte) C.mcu_result) error {
	for _, n := range parts {
		part := host[:n]
		if err := s.submitLocked(func() C.mcu_result { return submit(addr, part) }); err != nil {
			return err
		}
		host, addr = host[n:], addr+uint64(n)
	}
	return nil
}

// copyTaken is CopyIn, but has read src when it returns.
func (s *stream) copyTaken(dst uint64, src []byte) error {
	if ok, err := s.checkMemory("copy to the device", uint64(len(src)), dst); !ok {
		return err
	}
	if err := s.submitTaken(dst, src); err != nil {
		return err
	}
	return s.wrote(dst, uint64(len(src)))
}

func (s *stream) submitTaken(dst uint64, src []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.staged(src, func(at int, part []byte, r room) error {
		together.Copy(r.memory, part)
		s.silent = true
		return s.submitLocked(func() C.mcu_result { return s.copyIn(dst+uint64(at), r.memory) })
	})
}

// Host memory that is not pinned is never passed to the driver: the driver would either
// block the caller until the stream gets there, or read the memory before the copy's turn.
// It goes through pinned buffers (rings) instead. They are pinned in slabs, the first one
// when the context is opened, since pinning may wait for running kernels.
const (
	ringSize     = 2 << 20
	stagedPiece  = 1 << 20
	ringsPerSlab = 8
)

// staged submits a copy of host memory in parts, each through its own room in
// the ring, which work in the stream gives back. The caller must hold s.mu.
func (s *stream) staged(host []byte, submit func(at int, part []byte, r room) error) error {
	if err := s.needRing(); err != nil {
		return err
	}
	for at := 0; at < len(host); at += stagedPiece {
		part := host[at:min(at+stagedPiece, len(host))]
		r, err := s.room(len(part))
		if err != nil {
			return err
		}
		if err := submit(at, part, r); err != nil {
			return err
		}
	}
	return nil
}

// room waits until the ring has room for n bytes. If some rooms are given back by no work of the stream
// (silent), it waits for all work so far, and they are free then.
func (s *stream) room(n int) (r room, err error) {
	r, ok := s.ring.take(n)
	if ok {
		return r, nil
	}
	if s.silent {
		if err := s.drain(); err != nil {
			return r, err
		}
	}
	err = s.c.wait(context.Background(), func() (bool, error) {
		var ok bool
		if r, ok = s.ring.take(n); ok {
			return true, nil
		}
		_, err := s.query() // to learn of a fault, after which no work gives rooms back
		return false, err
	})
	return r, err
}

// drain waits for all work that was submitted to the stream, and then frees the whole ring.
func (s *stream) drain() error {
	m, err := s.c.takeMark()
	if err != nil {
		return err
	}
	end := s.ring.taken
	if err := s.submitLocked(func() C.mcu_result { return C.mcu_event_record(s.c.handle, m, s.handle) }); err != nil {
		return err
	}
	if err := s.c.wait(context.Background(), func() (bool, error) { return s.c.reached(m) }); err != nil {
		return err
	}
	s.c.giveMarks([]C.mcu_handle{m})
	s.ring.given.Store(end)
	s.silent = false
	return nil
}

// needRing gives the stream a ring if it has none. The caller must hold s.mu.
func (s *stream) needRing() error {
	if s.ring != nil {
		return s.usable()
	}
	for s.takeRing(); s.ring == nil; s.takeRing() {
		if err := s.c.moreRings(); err != nil {
			return err
		}
	}
	return s.usable()
}

func (s *stream) takeRing() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.rings); n > 0 {
		s.ring, c.rings = c.rings[n-1], c.rings[:n-1]
	}
}

// moreRings pins another slab and cuts it into rings.
func (c *gpuContext) moreRings() error {
	slab, err := c.slab(ringsPerSlab * ringSize)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for memory := range slices.Chunk(slab, ringSize) {
		c.rings = append(c.rings, &ring{memory: memory})
	}
	return nil
}

// Copy copies within the device.
func (s *stream) Copy(dst, src, size uint64) error {
	if ok, err := s.checkMemory("copy within the device", size, dst, src); !ok {
		return err
	}
	if err := s.reads(src, size); err != nil {
		return err
	}
	err := s.submit(func() C.mcu_result {
		return C.mcu_copy(s.c.handle, s.handle, C.uint64_t(dst), C.uint64_t(src), C.size_t(size))
	})
	if err != nil {
		return err
	}
	return s.wrote(dst, size)
}

// Fill writes the same element many times.
func (s *stream) Fill(dst uint64, value uint32, width int, count uint64) error {
	switch {
	case width != 1 && width != 2 && width != 4:
		return fmt.Errorf("fill with elements of %d bytes: give 1, 2 or 4: %w", width, device.ErrInvalidValue)
	case dst%uint64(width) != 0:
		return fmt.Errorf("fill at %#x with elements of %d bytes: give an address that is a multiple: %w", dst, width, device.ErrInvalidValue)
	case count > math.MaxInt64/4:
		return fmt.Errorf("fill with %d elements: no memory is that large: %w", count, device.ErrInvalidValue)
	}
	if ok, err := s.checkMemory("fill", count*uint64(width), dst); !ok {
		return err
	}
	err := s.submit(func() C.mcu_result {
		return C.mcu_fill(s.c.handle, s.handle, C.uint64_t(dst), C.uint32_t(value), C.int(width), C.size_t(count))
	})
	if err != nil {
		return err
	}
	return s.wrote(dst, count*uint64(width))
}

// Record lets an event stand for the work so far.
func (s *stream) Record(e device.Event) error {
	own, err := s.c.eventOf(e)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.use(func(handle C.mcu_handle) error {
		err := s.submitLocked(func() C.mcu_result { return C.mcu_event_record(s.c.handle, handle, s.handle) })
		own.recorded = own.recorded || err == nil
		return err
	})
}

// Wait makes later work wait for an event's work.
func (s *stream) Wait(e device.Event) error {
	own, err := s.c.eventOf(e)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.use(func(handle C.mcu_handle) error {
		return s.submitLocked(func() C.mcu_result { return C.mcu_stream_wait(s.c.handle, s.handle, handle) })
	})
}

// Call runs a host function in the order of the stream.
func (s *stream) Call(f func()) error {
	if f == nil {
		return fmt.Errorf("calling no function: %w", device.ErrInvalidValue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callLocked(f)
}

func (s *stream) callLocked(f func()) error {
	id := keepCall(s.c, f)
	err := s.submitLocked(func() C.mcu_result { return C.mcu_stream_call(s.c.handle, s.handle, C.uint64_t(id)) })
	if err != nil {
		takeCall(id)
	}
	return err
}

// query asks the driver whether the stream has no pending work. While the launcher has launches that
// are not made, the answer is no without asking: the driver does not know of them yet.
func (s *stream) query() (bool, error) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.handle == 0 {
		return true, s.c.Err()
	}
	count := s.submitted.Load()
	done, err := s.c.isDone(func() C.mcu_result {
		if s.c.launcher.pending() {
			return C.mcu_result{code: notReady}
		}
		return C.mcu_stream_query(s.c.handle, s.handle)
	})
	return s.saw(count, done, err)
}

// Done says whether all work has ended.
func (s *stream) Done() (bool, error) {
	if err := s.usable(); err != nil {
		return false, err
	}
	return s.c.told(s.query())
}

// doneWithin is Done, but polls for up to limit, without leaving the thread.
func (s *stream) doneWithin(limit time.Duration) (bool, error) {
	if err := s.usable(); err != nil {
		return false, err
	}
	return s.c.told(s.poll(limit))
}

// poll is query, but polls for up to limit.
func (s *stream) poll(limit time.Duration) (bool, error) {
	if s.idle() {
		return true, nil
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.handle == 0 {
		return true, s.c.Err()
	}
	count := s.submitted.Load()
	done, err := s.c.isDone(func() C.mcu_result {
		s.c.launcher.wait()
		return C.mcu_stream_watch(s.c.handle, s.handle, C.int64_t(limit))
	})
	return s.saw(count, done, err)
}

// mark records an event behind the work of the stream; 0 if there is no work. The caller
// must give it back with giveMarks. It does not take s.mu, which a submitter may hold for
// a long time.
func (s *stream) mark() (C.mcu_handle, error) {
	if s.idle() {
		return 0, s.c.Err()
	}
	if done, err := s.query(); done || err != nil {
		return 0, err
	}
	m, err := s.c.takeMark()
	if err != nil {
		return 0, err
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.handle != 0 {
		err = s.c.call(func() C.mcu_result { return C.mcu_event_record(s.c.handle, m, s.handle) })
	}
	if s.handle == 0 || err != nil {
		s.c.giveMarks([]C.mcu_handle{m})
		return 0, err
	}
	return m, nil
}

// Synchronise waits for the work that was submitted.
func (s *stream) Synchronise(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	m, err := s.mark()
	if err != nil {
		return err
	}
	if m != 0 {
		defer s.c.giveMarks([]C.mcu_handle{m})
		err = s.c.wait(ctx, func() (bool, error) { return s.c.reached(m) })
	}
	if err == nil {
		s.c.printed()
	}
	return err
}

// Close makes the stream refuse more work. The driver's stream is destroyed only when it has no
// work, so that Synchronise of the context can still wait for it.
func (s *stream) Close() error {
	if err := s.c.Err(); err != nil {
		return err
	}
	s.closed.Store(true)
	s.destroyIfDone()
	return s.c.Err()
}

// destroyIfDone destroys a closed stream that has no work.
func (s *stream) destroyIfDone() {
	if !s.mu.TryLock() { // another goroutine is submitting: the next sweep will try again
		return
	}
	defer s.mu.Unlock()
	if done, err := s.query(); !done || err != nil {
		return
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.handle == 0 {
		return
	}
	if err := s.c.call(func() C.mcu_result { return C.mcu_stream_destroy(s.c.handle, s.handle) }); err != nil {
		return
	}
	s.handle = 0
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = slices.DeleteFunc(c.streams, func(o *stream) bool { return o == s })
	if s.ring != nil {
		s.ring.given.Store(s.ring.taken)
		c.rings = append(c.rings, s.ring)
		s.ring = nil
	}
	if s.gate != nil {
		c.gates.give(s.gate)
		s.gate = nil
	}
}
