//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"

	"muster/device"
)

// echo is the stream on which a context copies data back to the host that it has just got from
// there (CopyInKept): the bus carries both directions at once.
type echo struct {
	mu     sync.Mutex   // held by the one who submits
	stream C.mcu_handle // 0 before the first; it ends with the context
}

// Pieces of a copy in: while the device sends one back, the next comes.
const (
	leastEcho, mostEcho = 1 << 20, 4 << 20
	echoPieces          = 16
)

func echoPiece(size int) int {
	return min(max(size/echoPieces&^(leastEcho-1), leastEcho), mostEcho)
}

// copyInKept is CopyIn, and copies what the device has then to keep.
func (s *stream) copyInKept(dst uint64, src, keep []byte) error {
	if len(keep) != len(src) {
		return fmt.Errorf("%d bytes to be kept in %d: %w", len(src), len(keep), device.ErrInvalidValue)
	}
	if ok, err := s.checkMemory("copy to the device", uint64(len(src)), dst); !ok {
		return err
	}
	if err := s.submitKept(dst, src, keep); err != nil {
		return err
	}
	return s.wrote(dst, uint64(len(src)))
}

func (s *stream) submitKept(dst uint64, src, keep []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c.pinnedParts(src) == nil || s.c.pinnedParts(keep) == nil {
		return fmt.Errorf("keeping a copy of memory that is not pinned, or in such memory: %w", device.ErrNotSupported)
	}
	e := &s.c.echo
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stream == 0 {
		if err := s.c.call(func() C.mcu_result { return C.mcu_stream_create(s.c.handle, 0, &e.stream) }); err != nil {
			return err
		}
	}
	mark, err := s.c.takeMark()
	if err != nil {
		return err
	}
	defer s.c.giveMarks([]C.mcu_handle{mark}) // what waits for it does so for what it stands for now
	size := echoPiece(len(src))
	for at := 0; at < len(src) && err == nil; at += size {
		end := min(at+size, len(src))
		err = s.echoed(e, mark, dst+uint64(at), src[at:end], keep[at:end])
	}
	// Also after an error: nothing that follows may write what is being copied back.
	return errors.Join(err, s.follow(mark, e.stream, s.handle))
}

// echoed submits one piece: to the device in the stream, and back in the other.
func (s *stream) echoed(e *echo, mark C.mcu_handle, dst uint64, src, keep []byte) error {
	if err := s.eachPart(s.c.pinnedParts(src), src, dst, s.copyIn); err != nil {
		return err
	}
	if err := s.follow(mark, s.handle, e.stream); err != nil {
		return err
	}
	return s.eachPart(s.c.pinnedParts(keep), keep, dst, func(addr uint64, part []byte) C.mcu_result {
		return s.copyOutOn(e.stream, addr, part)
	})
}
