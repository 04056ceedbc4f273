//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"muster/internal/together"
)

// Large copies of memory that is not pinned, by whoever submits them: through a few pinned
// buffers that the device reads or writes while threads of the host fill or empty others.
// Calls of the host's in the order of the stream would cost more than the copies. It is
// for streams that have nothing else to do, where now is the copy's turn.
const (
	bulkLeast = 2 << 20 // bytes of a copy for which it pays
	bulkPiece = 4 << 20
	bulkCount = 4
)

// bulk is what large copies of a context go through.
type bulk struct {
	mu      sync.Mutex // held by the one who copies
	memory  []byte     // pinned
	buffers [bulkCount]buffer
	next    int
}

// buffer is a part of the pinned memory. The mark is reached when the device is done with
// it; 0 if it is.
type buffer struct {
	memory []byte
	mark   C.mcu_handle
}

// bulkTurn says whether a large copy may be done now; the stream's lock is held.
func (s *stream) bulkTurn(size int) bool {
	if size < bulkLeast {
		return false
	}
	if s.bulkOnly {
		return true // what is under way reads buffers, and no memory of the caller's
	}
	done, err := s.query()
	return done && err == nil
}

// bulkIn copies to the device. The last of it may be under way when it returns.
func (s *stream) bulkIn(dst uint64, src []byte) error {
	return s.inBulk(func(b *bulk) error {
		for at := 0; at < len(src); at += bulkPiece {
			part := src[at:min(at+bulkPiece, len(src))]
			into, err := s.c.freeBuffer(b)
			if err != nil {
				return err
			}
			together.Copy(into.memory, part)
			err = s.submitLocked(func() C.mcu_result { return s.copyIn(dst+uint64(at), into.memory[:len(part)]) })
			if err == nil {
				err = s.markBuffer(into)
			}
			if err != nil {
				return err
			}
		}
		s.bulkOnly = true
		return nil
	})
}

// bulkOut copies to the host, and returns when everything is there.
func (s *stream) bulkOut(dst []byte, src uint64) error {
	return s.inBulk(func(b *bulk) error {
		parts := make([]part, 0, bulkCount)
		empty := func() error {
			p := parts[0]
			parts = parts[1:]
			if err := s.c.waitBuffer(p.from); err != nil {
				return err
			}
			together.Copy(p.to, p.from.memory[:len(p.to)])
			return nil
		}
		for at := 0; at < len(dst); at += bulkPiece {
			if len(parts) == bulkCount-1 {
				if err := empty(); err != nil {
					return err
				}
			}
			p := part{to: dst[at:min(at+bulkPiece, len(dst))]}
			var err error
			if p.from, err = s.c.freeBuffer(b); err != nil {
				return err
			}
			err = s.submitLocked(func() C.mcu_result { return s.copyOut(src+uint64(at), p.from.memory[:len(p.to)]) })
			if err == nil {
				err = s.markBuffer(p.from)
			}
			if err != nil {
				return err
			}
			parts = append(parts, p)
		}
		for len(parts) > 0 {
			if err := empty(); err != nil {
				return err
			}
		}
		return nil
	})
}

// part is a piece of a copy that the device is writing to a buffer.
type part struct {
	to   []byte
	from *buffer
}

// inBulk has the context's buffers for one copy.
func (s *stream) inBulk(f func(*bulk) error) error {
	b := &s.c.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	return f(b)
}

// bulkMemory pins the buffers, when the context is opened: that takes 10 ms, for which nobody
// should wait later, and it may wait for kernels that run.
func (c *gpuContext) bulkMemory() error {
	memory, err := c.slab(bulkPiece * bulkCount)
	if err != nil {
		return err
	}
	c.bulk.memory = memory
	for i, piece := range slices.Collect(slices.Chunk(memory, bulkPiece)) {
		c.bulk.buffers[i].memory = piece
	}
	return nil
}

// slab pins memory for the context's own use, until it is closed.
func (c *gpuContext) slab(size int) ([]byte, error) {
	var slab unsafe.Pointer
	if err := c.call(func() C.mcu_result { return C.mcu_host_alloc(c.handle, C.size_t(size), &slab) }); err != nil {
		return nil, fmt.Errorf("pinning %d bytes of the host's memory for copies: %w", size, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slabs = append(c.slabs, slab)
	return unsafe.Slice((*byte)(slab), size), nil
}

// freeBuffer returns the next buffer, when the device is done with it.
func (c *gpuContext) freeBuffer(b *bulk) (*buffer, error) {
	free := &b.buffers[b.next%bulkCount]
	b.next++
	return free, c.waitBuffer(free)
}

func (c *gpuContext) waitBuffer(b *buffer) error {
	if b.mark == 0 {
		return nil
	}
	err := c.wait(context.Background(), func() (bool, error) { return c.reached(b.mark) })
	if err == nil {
		c.giveMarks([]C.mcu_handle{b.mark})
		b.mark = 0
	}
	return err
}

// markBuffer notes that the device has a buffer until it has done what the stream was
// given.
func (s *stream) markBuffer(b *buffer) error {
	m, err := s.c.takeMark()
	if err != nil {
		return err
	}
	b.mark = m
	return s.submitLocked(func() C.mcu_result { return C.mcu_event_record(s.c.handle, m, s.handle) })
}
