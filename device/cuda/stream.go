//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"muster/device"
	"muster/internal/together"
)

// stream is a stream of the driver.
type stream struct {
	c *gpuContext
	device.StreamCan
	device.Watched
	queue

	ring   *ring // buffers for host memory that is not pinned; nil until they are needed; guarded by mu
	gate   *gate // what Hold waits for; nil until it is needed; guarded by mu
	silent bool  // parts of the ring were taken that no work of the stream gives back; see drain
}

var _ device.Stream = (*stream)(nil)

// NewStream makes a stream.
func (c *gpuContext) NewStream() (device.Stream, error) { return c.newStreamOf(0) }

// newStreamOf makes a stream with a priority, which the driver clamps to the device's range.
func (c *gpuContext) newStreamOf(priority int) (device.Stream, error) {
	c.sweep()
	s := &stream{c: c, queue: queue{on: &c.caller}}
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

// checkWord returns why a word cannot be written or waited for, or nil.
func (s *stream) checkWord(addr uint64, width int) error {
	if width != 4 && width != 8 || addr%uint64(width) != 0 {
		return fmt.Errorf("a word of %d bytes at %#x: give 4 or 8 bytes, and an address that is a multiple: %w", width, addr, device.ErrInvalidValue)
	}
	if err := s.usable(); err != nil {
		return err
	}
	if !s.c.reachable(addr, uint64(width)) && !s.c.mapsHost(addr, uint64(width)) {
		return fmt.Errorf("a word of %d bytes at %#x: nothing is mapped there: %w", width, addr, device.ErrInvalidValue)
	}
	return nil
}

// writeWord writes a word in the order of the stream.
func (s *stream) writeWord(addr uint64, width int, value uint64) error {
	if err := s.checkWord(addr, width); err != nil {
		return err
	}
	err := s.submit(func() C.mcu_result {
		return C.mcu_write_word(s.c.handle, s.handle, C.uint64_t(addr), C.int(width), C.uint64_t(value))
	})
	if err != nil {
		return err
	}
	return s.wrote(addr, uint64(width))
}

// waitWord makes later work wait until a word satisfies the comparison.
func (s *stream) waitWord(addr uint64, width int, value uint64, c device.Compare) error {
	if c > device.NotAll {
		return fmt.Errorf("waiting for a word with comparison %d: %w", c, device.ErrInvalidValue)
	}
	if err := s.checkWord(addr, width); err != nil {
		return err
	}
	return s.submit(func() C.mcu_result {
		return C.mcu_wait_word(s.c.handle, s.handle, C.uint64_t(addr), C.int(width), C.uint64_t(value), C.uint(c))
	})
}
