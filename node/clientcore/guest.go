package clientcore

import (
	"encoding/binary"
	"fmt"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// A guest is another node that uses this client as a device of its own (device/remote). It is a
// client like others: its memory is swapped, its kernels wait for a lease, limits hold. All memory
// that it has mapped is needed by each of its kernels: what a kernel may access is known only where
// its program runs.

// asGuest refuses messages that only guests may send.
func (c *Core) asGuest() error {
	if !c.config.Guest {
		return fmt.Errorf("only a guest may send this: %w", ErrProtocol)
	}
	return nil
}

// whole returns a range of a guest, which must be whole chunks.
func (c *Core) whole(addr, size uint64) (vmm.Range, error) {
	r := vmm.Range{Addr: addr, Size: size}
	arena := c.config.Arena
	switch {
	case size == 0 || (addr|size)%c.config.Chunk != 0, addr < arena.Addr || size > arena.Size || addr-arena.Addr > arena.Size-size:
		return r, fmt.Errorf("%d bytes at %#x: give whole chunks of %d bytes in the arena: %w", size, addr, c.config.Chunk, device.ErrInvalidValue)
	}
	return r, nil
}

// memMap gives a guest memory. Each chunk is an allocation of its own, so that the guest can return
// it in other pieces.
func (c *Core) memMap(m *Message, d *wire.MemMap) (bool, error) {
	if err := c.asGuest(); err != nil {
		return true, err
	}
	r, err := c.whole(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	if limit := c.config.Limit; limit > 0 && r.Size > limit-min(limit, c.space.Allocated()) {
		return true, allocation(r.Size, c.beyondLimit())
	}
	if ok, err := c.commit(c.onHost() + r.Size); !ok || err != nil {
		if err != nil {
			err = allocation(r.Size, err)
		}
		return ok, err
	}
	for at := r.Addr; at < r.Addr+r.Size; at += c.config.Chunk {
		if err := c.space.Alloc(vmm.Range{Addr: at, Size: c.config.Chunk}); err != nil {
			_, wrong := c.freeChunks(vmm.Range{Addr: r.Addr, Size: at - r.Addr}) // nothing has used them, so there is no plan to perform
			if wrong != nil {
				return true, wrong
			}
			return true, err
		}
	}
	if c.config.Reserves {
		c.emit(Op{Kind: Reserve, Range: r})
	}
	c.reply(m.Header.Slot, success, nil)
	return true, nil
}

// freeChunks frees the allocations of a guest in a range.
func (c *Core) freeChunks(r vmm.Range) (plan vmm.Plan, err error) {
	for at := r.Addr; at < r.Addr+r.Size; at += c.config.Chunk {
		part, err := c.space.Free(at)
		if err != nil {
			return plan, err
		}
		plan = append(plan, part...)
	}
	return plan, nil
}

// memUnmap takes memory away from a guest, without waiting for work that uses it.
func (c *Core) memUnmap(_ *Message, d *wire.MemUnmap) (bool, error) {
	if err := c.asGuest(); err != nil {
		return true, err
	}
	r, err := c.whole(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	if err := c.space.Check(r); err != nil {
		return true, err
	}
	plan, err := c.freeChunks(r)
	if err != nil {
		return true, err
	}
	if c.config.Reserves {
		c.emit(Op{Kind: GiveBack, Range: r})
	}
	c.commitLess(c.onHost())
	if len(plan) > 0 {
		c.ask(Op{Kind: Move, Plan: plan, Now: true})
	}
	return true, nil
}

// modulePlace notes where the variables of the module that is loaded next are to be.
func (c *Core) modulePlace(m *Message, d *wire.ModulePlace) (bool, error) {
	if err := c.asGuest(); err != nil {
		return true, err
	}
	if _, loaded := c.Modules.ByID[d.Module]; loaded || len(c.Modules.Places) >= maxObjects {
		return true, fmt.Errorf("module %d is loaded already, or there are too many: %w", d.Module, ErrProtocol)
	}
	globals, err := decodePlaces(m.Data)
	if err != nil {
		return true, err
	}
	if c.Modules.Places == nil {
		c.Modules.Places = map[uint32][]device.Global{}
	}
	c.Modules.Places[d.Module] = globals
	return true, nil
}

// decodePlaces decodes where variables are to be. Without an error it never returns nil: a module
// without variables is placed, too.
func decodePlaces(data []byte) ([]device.Global, error) {
	globals := []device.Global{}
	const head = 8 + 8 + 4 + 4
	le := binary.LittleEndian
	for len(data) > 0 {
		if len(data) < head || uint64(len(data)-head) < uint64(le.Uint32(data[20:])) {
			return nil, fmt.Errorf("the places of variables are cut short: %w", ErrProtocol)
		}
		name := head + int(le.Uint32(data[20:]))
		globals = append(globals, device.Global{Address: le.Uint64(data), Size: le.Uint64(data[8:]), Managed: le.Uint32(data[16:]) != 0, Name: string(data[head:name])})
		data = data[name:]
	}
	return globals, nil
}

// functionTouches tells a guest what memory a kernel uses, as far as the device knows, so that the
// guest's node may run the kernel elsewhere.
func (c *Core) functionTouches(m *Message, d *wire.FunctionTouches) (bool, error) {
	if err := c.asGuest(); err != nil {
		return true, err
	}
	f, ok := c.Modules.Functions[d.Function]
	if !ok {
		return true, fmt.Errorf("function %d: %w", d.Function, ErrProtocol)
	}
	words, known := f.Info.Touches.Words()
	if !known || uint64(len(words)) > m.Header.Length/8 {
		c.reply(m.Header.Slot, success, (&wire.FunctionTouchesReply{}).Append(nil))
		return true, nil
	}
	var data []byte
	for _, w := range words {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	c.write(m, data)
	c.reply(m.Header.Slot, success, (&wire.FunctionTouchesReply{Known: 1, Accesses: uint32(len(words))}).Append(nil))
	return true, nil
}
