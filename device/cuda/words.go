//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"unsafe"

	"muster/device"
)

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

// mapsHost says whether kernels reach host memory at an address (MapHost).
func (c *gpuContext) mapsHost(addr, size uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pins {
		from := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.host))))
		if p.mapped && addr >= from && addr-from <= uint64(len(p.host))-size {
			return true
		}
	}
	return false
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
