package fault

import (
	"fmt"

	"muster/device"
)

var _ device.Texturer = (*faultyContext)(nil)

// NewTexture makes a texture, if the wrapped context can.
func (c *faultyContext) NewTexture(t device.Texture, wanted uint64) (uint64, error) {
	inner, ok := c.Context.(device.Texturer)
	if !ok {
		return 0, fmt.Errorf("textures: %w", device.ErrNotSupported)
	}
	if err := c.now("newtexture"); err != nil {
		return 0, err
	}
	handle, err := inner.NewTexture(t, wanted)
	return handle, c.saw(err)
}

// DropTexture destroys a texture, if the wrapped context can.
func (c *faultyContext) DropTexture(handle uint64, surface bool) error {
	inner, ok := c.Context.(device.Texturer)
	if !ok {
		return fmt.Errorf("textures: %w", device.ErrNotSupported)
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.saw(inner.DropTexture(handle, surface))
}
