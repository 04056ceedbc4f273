package clientcore

import (
	"fmt"
	"slices"

	"muster/device"
	"muster/wire"
)

// moduleLink links the images that were sent into one. The result replaces what was sent, until the
// program has fetched it.
func (c *Core) moduleLink(m *Message, d *wire.ModuleLink) (bool, error) {
	mods := &c.Modules
	if why := mods.Refused[d.Module]; why != nil {
		delete(mods.Refused, d.Module)
		return true, why
	}
	image, sent := mods.Images[d.Module]
	if !sent {
		return true, fmt.Errorf("module %d: nothing was sent that could be linked: %w", d.Module, ErrProtocol)
	}
	if c.Head == nil || c.Head.linked == nil {
		if ok, err := c.ready(need{}); !ok || err != nil {
			c.dropRefused(d.Module, err)
			return ok, err
		}
		c.ask(Op{Kind: Link, Place: c.here().Place, Image: image, On: d.Check != 0})
		return false, nil
	}
	linked := c.Head.linked
	c.dropImage(d.Module)
	err := linked.Err
	if err == nil && len(linked.Image) > maxImages-mods.Kept {
		err = fmt.Errorf("images of more than %d bytes in all: unload modules that are not used: %w", maxImages, device.ErrOutOfMemory)
	}
	if err != nil {
		return true, err
	}
	if d.Check == 0 {
		mods.Kept += len(linked.Image)
		mods.Images[d.Module] = slices.Clip(linked.Image)
	}
	c.reply(m.Header.Slot, success, (&wire.ModuleLinkReply{Size: uint64(len(linked.Image))}).Append(nil))
	return true, nil
}

// dropRefused drops an image after an error, since the program will not ask for it again.
func (c *Core) dropRefused(id uint32, err error) {
	if err != nil {
		c.dropImage(id)
	}
}

// moduleFetch returns a part of an image that a link has made.
func (c *Core) moduleFetch(m *Message, d *wire.ModuleFetch) (bool, error) {
	image, ok := c.Modules.Images[d.Module]
	if !ok || d.Offset > uint64(len(image)) {
		return true, fmt.Errorf("byte %d of the image of module %d: %w", d.Offset, d.Module, errHandle)
	}
	part := image[d.Offset:]
	part = part[:min(uint64(len(part)), m.Header.Length)]
	c.write(m, part)
	c.reply(m.Header.Slot, success, (&wire.ModuleFetchReply{Size: uint32(len(part))}).Append(nil))
	return true, nil
}
