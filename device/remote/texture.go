package remote

import (
	"fmt"

	"muster/device"
	"muster/wire"
)

// textureID names a texture or a surface.
type textureID struct {
	handle  uint64
	surface bool
}

// newTexture makes a texture or a surface.
func (c *Context) newTexture(t device.Texture, wanted uint64) (uint64, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	if err := t.Check(); err != nil {
		return 0, err
	}
	var reply wire.TextureCreateReply
	if err := c.demand("a texture", textureMessage(&t, wanted), &reply); err != nil {
		return 0, err
	}
	if wanted != 0 && reply.Handle != wanted {
		return 0, fmt.Errorf("the lender gives the texture number %d, not %d: %w", reply.Handle, wanted, device.ErrNotSupported)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.textures[textureID{reply.Handle, t.Surface}] = true
	return reply.Handle, nil
}

// dropTexture destroys a texture or a surface.
func (c *Context) dropTexture(handle uint64, surface bool) error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	id := textureID{handle, surface}
	has := c.textures[id]
	delete(c.textures, id)
	c.mu.Unlock()
	if !has {
		return fmt.Errorf("texture %d: %w", handle, device.ErrNotFound)
	}
	return c.post(&wire.TextureDestroy{Handle: handle, Surface: flag(surface)})
}

// textureMessage describes a texture to the lender.
func textureMessage(t *device.Texture, wanted uint64) *wire.TextureCreate {
	m := &wire.TextureCreate{
		Surface: flag(t.Surface), Resource: uint32(t.Resource), Addr: t.Address, Format: t.Format, Channels: t.Channels,
		Width: t.Width, Height: t.Height, Depth: t.Depth, ArrayFlags: t.Flags, Levels: t.Levels, Level: t.Level, Size: t.Size, Pitch: t.Pitch,
		AddressX: t.Sampler.Address[0], AddressY: t.Sampler.Address[1], AddressZ: t.Sampler.Address[2],
		Filter: t.Sampler.Filter, Flags: t.Sampler.Flags, Anisotropy: t.Sampler.Anisotropy, MipFilter: t.Sampler.MipFilter, Bias: t.Sampler.Bias,
		MinLevel: t.Sampler.Min, MaxLevel: t.Sampler.Max,
		BorderR: t.Sampler.Border[0], BorderG: t.Sampler.Border[1], BorderB: t.Sampler.Border[2], BorderA: t.Sampler.Border[3], Wanted: wanted,
	}
	if v := t.View; v != nil {
		m.HasView, m.ViewFormat = 1, uint32(v.Format)
		m.ViewWidth, m.ViewHeight, m.ViewDepth = v.Width, v.Height, v.Depth
		m.FirstLevel, m.LastLevel, m.FirstLayer, m.LastLayer = v.FirstLevel, v.LastLevel, v.FirstLayer, v.LastLayer
	}
	return m
}
