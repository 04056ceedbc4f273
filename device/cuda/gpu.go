//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"maps"
	"sync"
	"unsafe"

	"muster/device"
)

// gpu is one device of the driver.
type gpu struct {
	handle C.int
	info   device.Info
	device.DeviceCan

	takeStdout bool

	mu       sync.Mutex
	prepared *gpuContext // that the next Open takes; nil if there is none
}

var _ device.Device = (*gpu)(nil)

func newDevice(ordinal int) (*gpu, error) {
	d := &gpu{}
	d.DeviceCan = device.DeviceCan{Prepare: d.prepare, Discard: d.discard, NewGraph: d.newGraph}
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

// Open makes a context of the device, or takes the one that was prepared, and reserves its arena.
func (d *gpu) Open(config device.Config) (device.Context, error) {
	a, g := config.Arena, d.info.Granularity
	if a.Base == 0 || a.Size == 0 || a.Base%g != 0 || a.Size%g != 0 || a.Base+a.Size < a.Base {
		return nil, fmt.Errorf("arena of %d bytes at %#x: give multiples of %d: %w", a.Size, a.Base, g, device.ErrInvalidValue)
	}
	if c := d.takePrepared(); c != nil {
		if c.complete(config) == nil {
			return c, nil
		}
		_ = c.Close() // it may have broken while it waited, and another may not
	}
	c, err := d.bare()
	if err != nil {
		return nil, err
	}
	if err := c.complete(config); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// prepare makes a context with everything that does not depend on whose it will be: the next Open
// takes it. Of a context without an arena nothing can be used.
func (d *gpu) prepare(host []byte) error {
	c, err := d.bare()
	if err != nil {
		return err
	}
	if len(host) > 0 {
		_, _ = c.Pin(host) // copies are slower without, and whoever uses the context pins it again
	}
	d.mu.Lock()
	former := d.prepared
	d.prepared = c
	d.mu.Unlock()
	if former != nil {
		return former.Close()
	}
	return nil
}

// discard closes the context that was prepared, if no Open has taken it.
func (d *gpu) discard() error {
	if c := d.takePrepared(); c != nil {
		return c.Close()
	}
	return nil
}

func (d *gpu) takePrepared() *gpuContext {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.prepared
	d.prepared = nil
	return c
}

// bare makes a context that has no arena yet.
func (d *gpu) bare() (*gpuContext, error) {
	var handle C.mcu_handle
	var stack C.size_t
	if err := failed(C.mcu_context_create(d.handle, &handle, &stack)); err != nil {
		if handle != 0 {
			C.mcu_context_destroy(handle)
		}
		return nil, fmt.Errorf("making a context on %s: %w", d.info.Name, err)
	}
	c := newContext(d, handle, uint64(stack))
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

// complete gives a bare context its arena, and where what its kernels print goes.
func (c *gpuContext) complete(config device.Config) error {
	if err := reserve(c.handle, config.Arena); err != nil {
		return err
	}
	c.config, c.output.print, c.output.complain = config, config.Print, config.Complain
	if !c.dev.takeStdout || config.Print == nil {
		return nil
	}
	var err error
	if c.prints, err = takeStdout(); err == nil && config.Complain != nil {
		c.sieve, err = takeStderr()
	}
	return err
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
