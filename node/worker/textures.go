package worker

import (
	"errors"
	"fmt"

	"muster/device"
	"muster/node/clientcore"
)

// makeTextures creates textures in the context, and returns the handle of the last one.
func (g *gpu) makeTextures(all []clientcore.Textured) (handle uint64, err error) {
	on, ok := g.context.(device.Texturer)
	if !ok {
		return 0, fmt.Errorf("textures: %w", device.ErrNotSupported)
	}
	for i, t := range all {
		if handle, err = on.NewTexture(t.Texture, t.Handle); err != nil {
			return 0, errors.Join(err, g.dropTextures(all[:i])) // the core relies on all or none
		}
	}
	return handle, nil
}

func (g *gpu) dropTextures(all []clientcore.Textured) error {
	on, ok := g.context.(device.Texturer)
	if !ok {
		return fmt.Errorf("textures: %w", device.ErrNotSupported)
	}
	for _, t := range all {
		if err := on.DropTexture(t.Handle, t.Texture.Surface); err != nil {
			return err
		}
	}
	return nil
}
