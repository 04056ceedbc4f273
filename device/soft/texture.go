package soft

import (
	"fmt"
	"maps"
	"math"

	"muster/device"
	"muster/ptx/simt/texture"
)

// textures are the texture and surface objects of a context, by their handles. A table that
// kernels can see is never modified: changes store a modified copy.
type textures map[uint64]*texture.Texture

// Texture returns the object with a handle, for running kernels; nil if there is none.
func (c *Context) Texture(handle uint64) *texture.Texture {
	if all := c.textures.Load(); all != nil {
		return (*all)[handle]
	}
	return nil
}

// newTexture makes a texture or a surface. Any free number can be its handle.
func (c *Context) newTexture(t device.Texture, wanted uint64) (uint64, error) {
	made, err := textureOf(&t)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	all := c.changedTextures()
	for handle := uint64(1); wanted == 0; handle++ {
		if all[handle] == nil {
			wanted = handle
		}
	}
	if all[wanted] != nil {
		return 0, fmt.Errorf("handle %d is that of another texture: %w", wanted, device.ErrInvalidValue)
	}
	all[wanted] = made
	c.textures.Store(&all)
	return wanted, nil
}

// dropTexture destroys a texture or a surface.
func (c *Context) dropTexture(handle uint64, surface bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	all := c.changedTextures()
	if all[handle] == nil || all[handle].Surface != surface {
		return fmt.Errorf("texture %d: %w", handle, device.ErrNotFound)
	}
	delete(all, handle)
	c.textures.Store(&all)
	return nil
}

// changedTextures returns a copy of the table for the caller to modify and store. The caller must
// hold c.mu.
func (c *Context) changedTextures() textures {
	if old := c.textures.Load(); old != nil {
		return maps.Clone(*old)
	}
	return textures{}
}

var formats = map[uint32]texture.Format{
	0x01: texture.U8, 0x02: texture.U16, 0x03: texture.U32, 0x08: texture.S8, 0x09: texture.S16, 0x0a: texture.S32, 0x10: texture.F16, 0x20: texture.F32,
}

// viewFormats are the formats of views in the order of their numbers, from 1 on, each with
// one, two and four channels.
var viewFormats = [...]texture.Format{texture.U8, texture.S8, texture.U16, texture.S16, texture.U32, texture.S32, texture.F16, texture.F32}

// textureOf translates a texture of the contract into the engine's.
func textureOf(t *device.Texture) (*texture.Texture, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	s := &t.Sampler
	if s.Flags&device.TextureSeamless != 0 {
		return nil, fmt.Errorf("a cube map that is filtered across its edges: %w", device.ErrNotSupported)
	}
	made := &texture.Texture{
		Surface: t.Surface, Format: formats[t.Format], Channels: int(t.Channels),
		Layered: t.Flags&device.ArrayLayered != 0, Cube: t.Flags&device.ArrayCube != 0, Buffer: t.Resource == device.LinearResource,
		Smooth: s.Filter == 1, MipSmooth: s.MipFilter == 1,
		Normalised: s.Flags&device.TextureNormalised != 0, Integers: s.Flags&device.TextureIntegers != 0, SRGB: s.Flags&device.TextureSRGB != 0,
		Bias: math.Float32frombits(s.Bias), Min: math.Float32frombits(s.Min), Max: math.Float32frombits(s.Max),
	}
	for i, mode := range s.Address {
		made.Address[i] = texture.AddressMode(mode)
	}
	for i, b := range s.Border {
		made.Border[i] = math.Float32frombits(b)
	}
	made.Levels = levelsOf(t)
	if t.View != nil {
		return made, narrow(made, t)
	}
	return made, nil
}

func levelsOf(t *device.Texture) []texture.Level {
	element := device.ElementSize(t.Format, t.Channels)
	switch t.Resource {
	case device.LinearResource:
		return []texture.Level{{At: t.Address, Width: int(t.Size / element), Height: 1, Depth: 1}}
	case device.PitchResource:
		return []texture.Level{{At: t.Address, Width: int(t.Width), Height: int(max(1, t.Height)), Depth: 1, Pitch: t.Pitch}}
	}
	all, _ := t.ArrayLevels()
	if t.Resource == device.ArrayResource {
		all = all[t.Level : t.Level+1]
	}
	var levels []texture.Level
	for _, l := range all {
		pitch := l.Width * element
		levels = append(levels, texture.Level{
			At: t.Address + l.Offset, Width: int(l.Width), Height: int(l.Height), Depth: int(l.Depth), Pitch: pitch, Slice: pitch * l.Height,
		})
	}
	return levels
}

// narrow applies the view of t: another format of the same element size, and a range of levels and
// layers.
func narrow(made *texture.Texture, t *device.Texture) error {
	v := t.View
	if v.Format != 0 {
		n := v.Format - 1
		if n < 0 || n/3 >= len(viewFormats) {
			return fmt.Errorf("a view of format %#x: %w", v.Format, device.ErrNotSupported)
		}
		made.Format, made.Channels = viewFormats[n/3], []int{1, 2, 4}[n%3]
		if made.Element() != int(device.ElementSize(t.Format, t.Channels)) {
			return fmt.Errorf("a view whose elements have another size: %w", device.ErrInvalidValue)
		}
	}
	if int(v.LastLevel) >= len(made.Levels) || v.FirstLevel > v.LastLevel {
		return fmt.Errorf("a view of levels %d to %d of %d: %w", v.FirstLevel, v.LastLevel, len(made.Levels), device.ErrInvalidValue)
	}
	made.Levels = made.Levels[v.FirstLevel : v.LastLevel+1]
	if !made.Layered && !made.Cube {
		return nil
	}
	for i := range made.Levels {
		l := &made.Levels[i]
		if int(v.LastLayer) >= l.Depth || v.FirstLayer > v.LastLayer {
			return fmt.Errorf("a view of layers %d to %d of %d: %w", v.FirstLayer, v.LastLayer, l.Depth, device.ErrInvalidValue)
		}
		l.At += uint64(v.FirstLayer) * l.Slice
		l.Depth = int(v.LastLayer-v.FirstLayer) + 1
	}
	return nil
}

// textureLimits are the largest textures and surfaces, as current GPUs have them, by the
// numbers of CUdevice_attribute.
var textureLimits = map[int]int{
	21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, // 1-D, 2-D, 3-D
	27: 32768, 28: 32768, 29: 2048, 42: 32768, 43: 2048, // layered 2-D and 1-D
	30: 512, 44: 1, 45: 32768, 46: 32768, // alignment of surfaces; gathers
	47: 16384, 48: 16384, 49: 16384, 52: 32768, 53: 32768, 54: 2046, // cubes
	55: 32768, 56: 131072, 57: 65536, 58: 16384, 59: 16384, 60: 16384, // surfaces
	61: 32768, 62: 2048, 63: 32768, 64: 32768, 65: 2048, 66: 32768, 67: 32768, 68: 2046,
	69: 1 << 28, 70: 131072, 71: 65000, 72: 2097120, // of linear and pitched memory
	73: 32768, 74: 32768, 77: 32768, // mipmaps
}
