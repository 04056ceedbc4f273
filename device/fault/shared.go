package fault

import (
	"fmt"
	"os"

	"muster/device"
)

var _ device.Sharer = (*faultyContext)(nil)

var errNotShared = fmt.Errorf("memory that several processes have: %w", device.ErrNotSupported)

// NewShared is that of the inner context, if it is a Sharer. It counts as "map" for the rules.
func (c *faultyContext) NewShared(size uint64) (*os.File, error) {
	inner, ok := c.Context.(device.Sharer)
	if !ok {
		return nil, errNotShared
	}
	if err := c.now("map"); err != nil {
		return nil, err
	}
	f, err := inner.NewShared(size)
	return f, c.saw(err)
}

// MapShared is that of the inner context, if it is a Sharer. It counts as "map" for the rules.
func (c *faultyContext) MapShared(addr, size uint64, f *os.File) error {
	inner, ok := c.Context.(device.Sharer)
	if !ok {
		return errNotShared
	}
	if err := c.now("map"); err != nil {
		return err
	}
	return c.saw(inner.MapShared(addr, size, f))
}
