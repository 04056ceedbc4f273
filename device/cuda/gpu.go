//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"maps"
	"unsafe"

	"muster/device"
)

// gpu is one device of the driver.
type gpu struct {
	handle C.int
	info   device.Info

	takeStdout bool
}

var _ device.Device = (*gpu)(nil)

func newDevice(ordinal int) (*gpu, error) {
	d := &gpu{}
	var name [256]C.char
	var uuid [16]byte
	var memory, granularity C.size_t
	if err := failed(C.mcu_device(C.int(ordinal), &d.handle, &name[0], C.int(len(name)), (*C.uchar)(unsafe.Pointer(&uuid[0])), &memory)); err != nil {
		return nil, err
	}
	attributes := map[int]int{}
	for n := 1; n <= lastAttribute; n++ {
		var v C.int
		if err := failed(C.mcu_device_attribute(d.handle, C.int(n), &v)); err == nil && v != 0 {
			attributes[n] = int(v)
		}
	}
	if attributes[attrVirtualMemory] == 0 {
		return nil, fmt.Errorf("%s cannot map memory at chosen addresses: %w", C.GoString(&name[0]), device.ErrNotSupported)
	}
	if err := failed(C.mcu_granularity(d.handle, &granularity)); err != nil {
		return nil, err
	}
	d.info = describe(C.GoString(&name[0]), uuid, uint64(memory), uint64(granularity), attributes)
	return d, nil
}

// Info describes the device.
func (d *gpu) Info() device.Info {
	info := d.info
	info.Attributes = maps.Clone(info.Attributes)
	return info
}

// Open makes a context of the device and reserves its arena.
func (d *gpu) Open(config device.Config) (device.Context, error) {
	a, g := config.Arena, d.info.Granularity
	if a.Base == 0 || a.Size == 0 || a.Base%g != 0 || a.Size%g != 0 || a.Base+a.Size < a.Base {
		return nil, fmt.Errorf("arena of %d bytes at %#x: give multiples of %d: %w", a.Size, a.Base, g, device.ErrInvalidValue)
	}
	var handle C.mcu_handle
	var stack C.size_t
	if err := failed(C.mcu_context_create(d.handle, &handle, &stack)); err != nil {
		if handle != 0 {
			C.mcu_context_destroy(handle)
		}
		return nil, fmt.Errorf("making a context on %s: %w", d.info.Name, err)
	}
	if err := reserve(handle, a); err != nil {
		C.mcu_context_destroy(handle)
		return nil, err
	}
	c := newContext(d, handle, a, uint64(stack))
	c.touches = config.Touches
	if d.takeStdout && config.Print != nil {
		c.print, c.complain = config.Print, config.Complain
		var err error
		if c.prints, err = takeStdout(); err != nil {
			_ = c.Close()
			return nil, err
		}
		if config.Complain != nil {
			if c.sieve, err = takeStderr(); err != nil {
				_ = c.Close()
				return nil, err
			}
		}
	}
	err := c.moreRings()
	if err == nil {
		err = c.bulkMemory()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// reserve reserves exactly the addresses of an arena. The driver takes the address as
// a hint; it has been seen to follow it if the range is large and free.
func reserve(context C.mcu_handle, a device.Arena) error {
	var got C.uint64_t
	if err := failed(C.mcu_reserve(context, C.uint64_t(a.Base), C.size_t(a.Size), &got)); err != nil {
		return fmt.Errorf("reserving %d bytes of addresses at %#x: %w", a.Size, a.Base, err)
	}
	if uint64(got) == a.Base {
		return nil
	}
	C.mcu_reserve_free(context, got, C.size_t(a.Size))
	return fmt.Errorf("the driver does not give %d bytes of addresses at %#x but at %#x: another context of this process may have them, or the range is too small (64 MiB have been seen to work): %w",
		a.Size, a.Base, uint64(got), device.ErrInvalidValue)
}
