//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"muster/device"
	"muster/device/cuda/ranges"
)

// Map puts memory at an address of the arena.
func (c *gpuContext) Map(addr, size uint64) error {
	return c.place("bytes", addr, size, false, func(sizes []C.size_t) C.mcu_result {
		return C.mcu_map(c.handle, c.dev.handle, C.uint64_t(addr), &sizes[0], C.size_t(len(sizes)))
	})
}

// place maps a range with f, as pieces of the given sizes, or as one piece if whole.
func (c *gpuContext) place(what string, addr, size uint64, whole bool, f func(sizes []C.size_t) C.mcu_result) error {
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
		return fmt.Errorf("mapping %d %s at %#x: something is mapped there: %w", size, what, addr, device.ErrInvalidValue)
	}
	parts := []ranges.Span{s}
	if !whole {
		parts = ranges.Cut(s, c.dev.info.Granularity)
	}
	if err := c.call(func() C.mcu_result { return f(sizesOf(parts)) }); err != nil {
		return fmt.Errorf("mapping %d %s at %#x: %w", size, what, addr, err)
	}
	c.mu.Lock()
	c.mapped = c.mapped.With(parts)
	c.mu.Unlock()
	return nil
}

func sizesOf(parts []ranges.Span) []C.size_t {
	sizes := make([]C.size_t, len(parts))
	for i, p := range parts {
		sizes[i] = C.size_t(p.Size())
	}
	return sizes
}

func (c *gpuContext) checkRange(addr, size uint64) (ranges.Span, error) {
	g := c.dev.info.Granularity
	switch {
	case size == 0 || addr%g != 0 || size%g != 0:
		return ranges.Span{}, fmt.Errorf("%d bytes at %#x: give multiples of %d: %w", size, addr, g, device.ErrInvalidValue)
	case !c.config.Arena.Contains(addr, size):
		return ranges.Span{}, fmt.Errorf("%d bytes at %#x: not within the arena of %d bytes at %#x: %w", size, addr, c.config.Arena.Size, c.config.Arena.Base, device.ErrInvalidValue)
	}
	return ranges.Span{From: addr, To: addr + size}, nil
}

// Unmap takes memory away. It waits for work only if it must split a piece, of which a part stays.
func (c *gpuContext) Unmap(addr, size uint64) error {
	s, err := c.checkRange(addr, size)
	if err != nil {
		return err
	}
	c.unmapped.Add(1)
	c.mapping.Lock()
	defer c.mapping.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	covered := c.mapped.Covers(s)
	rest, r := c.mapped.Without(s)
	if covered && len(r.Kept) == 0 {
		c.mapped = rest
	}
	c.mu.Unlock()
	switch {
	case !covered:
		return fmt.Errorf("unmapping %d bytes at %#x: not all of it is mapped: %w", size, addr, device.ErrInvalidValue)
	case len(r.Kept) == 0:
		return c.call(func() C.mcu_result { return c.unmap(r.Taken) })
	}
	return c.split(rest, r)
}

func (c *gpuContext) unmap(parts []ranges.Span) C.mcu_result {
	sizes := sizesOf(parts)
	return C.mcu_unmap(c.handle, C.uint64_t(parts[0].From), &sizes[0], C.size_t(len(sizes)))
}

// split unmaps pieces of which a part stays. The driver cannot divide a piece, so split copies
// the parts that stay to the host, unmaps the pieces, maps new memory for the parts and
// copies them back. It blocks all calls of the driver, and waits for submitted work: no
// kernel may use the memory meanwhile. The caller must hold c.mapping.
func (c *gpuContext) split(rest ranges.Pieces, r ranges.Removal) error {
	c.use.Lock()
	defer c.use.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	c.launcher.wait()
	if err := c.answer(C.mcu_context_synchronise(c.handle)); err != nil {
		return err
	}
	saved := make([][]byte, len(r.Kept))
	for i, k := range r.Kept {
		saved[i] = make([]byte, k.Size())
		if err := c.answer(C.mcu_read(c.handle, unsafe.Pointer(&saved[i][0]), C.uint64_t(k.From), C.size_t(k.Size()))); err != nil {
			return err
		}
	}
	err := c.answer(c.unmap(r.Taken))
	for i, k := range r.Kept {
		if err != nil {
			break
		}
		parts := ranges.Cut(k, c.dev.info.Granularity)
		sizes := sizesOf(parts)
		if err = c.answer(C.mcu_map(c.handle, c.dev.handle, C.uint64_t(k.From), &sizes[0], C.size_t(len(sizes)))); err != nil {
			break
		}
		rest = rest.With(parts)
		err = c.answer(C.mcu_write(c.handle, C.uint64_t(k.From), unsafe.Pointer(&saved[i][0]), C.size_t(k.Size())))
	}
	c.mu.Lock()
	c.mapped = rest
	c.mu.Unlock()
	if err != nil { // the contents of the parts that should stay are lost
		c.end(&device.Fault{Kind: device.Unspecified, Detail: fmt.Sprintf("memory beside the %d bytes unmapped at %#x could not be kept: %v", r.Taken[0].Size(), r.Taken[0].From, err)})
		return c.Err()
	}
	return nil
}

// reachable says whether a range is mapped in the arena or lies in a variable
// of a module.
func (c *gpuContext) reachable(addr, size uint64) bool {
	if addr+size < addr {
		return false
	}
	s := ranges.Span{From: addr, To: addr + size}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config.Arena.Contains(addr, size) {
		return c.mapped.Covers(s)
	}
	return c.variables.Hold(s)
}

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
	return c.place("bytes of shared memory", addr, size, true, func([]C.size_t) C.mcu_result {
		return C.mcu_shared_map(c.handle, c.dev.handle, C.uint64_t(addr), C.size_t(size), C.int(f.Fd()))
	})
}
