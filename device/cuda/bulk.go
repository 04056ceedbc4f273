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

// The submitting goroutine does large copies of memory that is not pinned itself, through a few
// pinned buffers: while the device reads or writes one, threads of the host fill or empty
// another. Host functions in the order of the stream (staged) would cost more than the copies.
// That is possible only on a stream without other work, where the copy's turn is now.
const (
	bulkLeast = 2 << 20 // the smallest copy, in bytes, for which this pays off
	bulkPiece = 4 << 20
	bulkCount = 4
)

// bulk has the buffers for large copies of a context.
type bulk struct {
	mu      sync.Mutex // held during one copy; guards all fields
	memory  []byte     // pinned
	buffers [bulkCount]buffer
	next    int
}

// buffer is a part of the pinned memory. The device has reached mark when it no longer uses the
// buffer; mark is 0 if that is known already.
type buffer struct {
	memory []byte
	mark   C.mcu_handle
}

// bulkTurn says whether a copy is large, and may be done now. The caller must hold s.mu.
func (s *stream) bulkTurn(size int) bool {
	if size < bulkLeast {
		return false
	}
	if s.bulkOnly {
		return true // the pending work reads only buffers, so the caller's memory cannot change
	}
	done, err := s.query()
	return done && err == nil
}

// bulkIn copies to the device. It has read all of src when it returns; the device may still be
// copying the last buffers.
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

// bulkOut copies to the host, and returns when all bytes have arrived. It empties the oldest buffer
// while the device fills the others.
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

// inBulk locks the context's buffers for one copy.
func (s *stream) inBulk(f func(*bulk) error) error {
	b := &s.c.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	return f(b)
}

// bulkMemory pins the buffers, and the words of gates. Open calls it, since pinning takes 10 ms and may wait for
// running kernels; the first copy should not pay for that.
func (c *gpuContext) bulkMemory() error {
	memory, err := c.slab(bulkPiece*bulkCount + gateCount*gateSize)
	if err != nil {
		return err
	}
	c.gates.use(memory[bulkPiece*bulkCount:])
	memory = memory[:bulkPiece*bulkCount]
	c.bulk.memory = memory
	for i, piece := range slices.Collect(slices.Chunk(memory, bulkPiece)) {
		c.bulk.buffers[i].memory = piece
	}
	return nil
}

// slab allocates pinned memory for the context's own use. Close frees it.
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

// freeBuffer returns the next buffer, once the device no longer uses it.
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
