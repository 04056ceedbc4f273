package fault

import (
	"os"

	"muster/device"
)

// The wrappers below have what the rules know. Anything else the inner object can, they cannot: it would
// pass the rules by.

// wrap returns what the device can. Loading at an address counts as "load" for the rules.
func (d *Device) wrap(inner *device.DeviceCan) device.DeviceCan {
	can := device.DeviceCan{Inspect: inner.Inspect}
	if inner.LoadAt != nil {
		can.LoadAt = func(c device.Context, image []byte, globals []device.Global) (device.Module, error) {
			own, ok := c.(*faultyContext)
			if !ok {
				return nil, errStranger
			}
			return own.load(func() (device.Module, error) { return inner.LoadAt(own.Context, image, globals) })
		}
	}
	return can
}

// wrap returns what the context can. Mapping host memory counts as "pin" for the rules, and what concerns
// memory that processes share as "map".
func (c *faultyContext) wrap(inner *device.ContextCan) device.ContextCan {
	can := device.ContextCan{Self: inner.Self, SetLimit: inner.SetLimit}
	if inner.MapHost != nil {
		can.MapHost = func(host []byte) (func() error, error) {
			return after(c, "pin", func() (func() error, error) { return inner.MapHost(host) })
		}
	}
	if inner.NewShared != nil {
		can.NewShared = func(size uint64) (*os.File, error) {
			return after(c, "map", func() (*os.File, error) { return inner.NewShared(size) })
		}
		can.MapShared = func(addr, size uint64, f *os.File) error {
			if err := c.now("map"); err != nil {
				return err
			}
			return c.saw(inner.MapShared(addr, size, f))
		}
	}
	if inner.NewTexture != nil {
		can.NewTexture = func(t device.Texture, wanted uint64) (uint64, error) {
			return after(c, "newtexture", func() (uint64, error) { return inner.NewTexture(t, wanted) })
		}
		can.DropTexture = func(handle uint64, surface bool) error {
			if err := c.check(); err != nil {
				return err
			}
			return c.saw(inner.DropTexture(handle, surface))
		}
	}
	return can
}

// wrap returns what the stream can. A copy from another device counts as "copyin" for the rules, writing a
// word as "fill" and waiting for one as "wait".
func (s *stream) wrap(inner *device.StreamCan) (can device.StreamCan) {
	if inner.CopyFrom != nil {
		can.CopyFrom = func(dst uint64, from device.Context, src, size uint64) error {
			return s.submit("copyin", func(verdict) error { return inner.CopyFrom(dst, from, src, size) })
		}
	}
	if inner.WriteWord != nil {
		can.WriteWord = func(addr uint64, width int, value uint64) error {
			return s.submit("fill", func(verdict) error { return inner.WriteWord(addr, width, value) })
		}
		can.WaitWord = func(addr uint64, width int, value uint64, c device.Compare) error {
			return s.submit("wait", func(verdict) error { return inner.WaitWord(addr, width, value, c) })
		}
	}
	return can
}
