//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"os"

	"muster/device"
	"muster/device/cuda/ranges"
)

// newShared makes host memory that the driver can map for several processes and devices, so that
// it stays reachable when its users move to other devices. If the driver cannot do that, it makes
// memory of this device.
func (c *gpuContext) newShared(size uint64) (*os.File, error) {
	if g := c.dev.info.Granularity; size == 0 || size%g != 0 {
		return nil, fmt.Errorf("%d bytes of shared memory: give a multiple of %d: %w", size, g, device.ErrInvalidValue)
	}
	var fd C.int
	err := c.call(func() C.mcu_result { return C.mcu_shared_create(c.handle, c.dev.handle, C.size_t(size), &fd) })
	if err != nil {
		return nil, fmt.Errorf("making %d bytes of shared memory: %w", size, err)
	}
	return os.NewFile(uintptr(fd), "shared memory"), nil
}

// mapShared maps shared memory at an address of the arena, as one piece.
func (c *gpuContext) mapShared(addr, size uint64, f *os.File) error {
	s, err := c.checkRange(addr, size)
	if err != nil {
		return err
	}
	c.mapping.Lock()
	defer c.mapping.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	free := c.mapped.Free(s)
	c.mu.Unlock()
	if !free {
		return fmt.Errorf("mapping %d bytes of shared memory at %#x: something is mapped there: %w", size, addr, device.ErrInvalidValue)
	}
	err = c.call(func() C.mcu_result {
		return C.mcu_shared_map(c.handle, c.dev.handle, C.uint64_t(addr), C.size_t(size), C.int(f.Fd()))
	})
	if err != nil {
		return fmt.Errorf("mapping %d bytes of shared memory at %#x: %w", size, addr, err)
	}
	c.mu.Lock()
	c.mapped = c.mapped.With([]ranges.Span{s})
	c.mu.Unlock()
	return nil
}
