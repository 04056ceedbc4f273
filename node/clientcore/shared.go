package clientcore

import (
	"fmt"
	"slices"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// Name is how other clients of the user find shared memory: whom to ask, and a secret.
type Name [4]uint64

// Shared is memory that several clients have at once, in whole chunks. The directory does not know
// of it: it never moves, every context has it mapped, and all clients that have it see the same
// contents.
type Shared struct {
	Addr, Size uint64
	Name       Name
	Imported   bool
	// Live are the allocations in memory that this client has shared, in order. The memory is
	// closed with the last one.
	Live []vmm.Range
}

// Extent is the address range of the memory.
func (s *Shared) Extent() vmm.Range { return vmm.Range{Addr: s.Addr, Size: s.Size} }

// mostShared bounds what a program can make its worker remember.
const mostShared = 1 << 12

// sharedAt returns the shared memory at an address; nil if there is none.
func (c *Core) sharedAt(addr uint64) *Shared {
	for i := range c.Shared {
		if s := &c.Shared[i]; addr-s.Addr < s.Size {
			return s
		}
	}
	return nil
}

// sharesRange says whether a range is completely in shared memory.
func (c *Core) sharesRange(r vmm.Range) bool {
	s := c.sharedAt(r.Addr)
	return s != nil && r.Size <= s.Size-(r.Addr-s.Addr)
}

// sharedBytes is how much shared memory the client has, its own and that of others. Others' memory
// counts too: the client that made it may be gone, and then those that have it keep it alive.
// Memory that the client has at two addresses counts once.
func (c *Core) sharedBytes() (bytes uint64) {
	seen := make(map[Name]bool, len(c.Shared))
	for i := range c.Shared {
		if s := &c.Shared[i]; !seen[s.Name] {
			seen[s.Name] = true
			bytes += s.Size
		}
	}
	return bytes
}

// has says whether the client has the shared memory of a name, at any address.
func (c *Core) has(name Name) bool {
	return slices.ContainsFunc(c.Shared, func(s Shared) bool { return s.Name == name })
}

// chunked is how many bytes of chunks some allocations take; they must be in order.
func (c *Core) chunked(in []vmm.Range) (bytes uint64) {
	chunk, last := c.config.Chunk, uint64(0)
	for _, a := range in {
		from, to := max(a.Addr/chunk*chunk, last), (a.Addr+a.Size+chunk-1)/chunk*chunk
		if to > from {
			bytes += to - from
			last = to
		}
	}
	return bytes
}

// sharedLive is how much shared memory the client has allocated.
func (c *Core) sharedLive() (bytes uint64) {
	for i := range c.Shared {
		for _, a := range c.Shared[i].Live {
			bytes += a.Size
		}
	}
	return bytes
}

func (c *Core) checkShared(addr, size uint64) (vmm.Range, error) {
	r, arena := vmm.Range{Addr: addr, Size: size}, c.config.Arena
	if size == 0 || (addr|size)%c.config.Chunk != 0 || addr < arena.Addr || size > arena.Size || addr-arena.Addr > arena.Size-size {
		return r, fmt.Errorf("shared memory of %d bytes at %#x: %w", size, addr, ErrProtocol)
	}
	if len(c.Shared) >= mostShared {
		return r, fmt.Errorf("%d pieces of memory are shared: close some: %w", mostShared, device.ErrOutOfMemory)
	}
	return r, nil
}

func overlap(a, b vmm.Range) bool { return a.Addr < b.Addr+b.Size && b.Addr < a.Addr+a.Size }

// allocationsIn returns the allocations in a range. None may lie in it only in part.
func (c *Core) allocationsIn(r vmm.Range) ([]vmm.Range, error) {
	var in []vmm.Range
	for _, a := range c.space.Allocations() {
		if !overlap(a, r) {
			continue
		}
		if a.Addr < r.Addr || a.Addr+a.Size > r.Addr+r.Size {
			return nil, fmt.Errorf("memory at %#x is only half in what is to be shared: %w", a.Addr, ErrProtocol)
		}
		in = append(in, a)
	}
	for i := range c.Shared {
		if overlap(c.Shared[i].Extent(), r) {
			return nil, fmt.Errorf("memory at %#x is shared already: %w", c.Shared[i].Addr, ErrProtocol)
		}
	}
	return in, nil
}

// memShare turns what the client has in some chunks into memory that other clients can have, at the
// same addresses, and answers with its name. In order: a device makes the shared memory; the host
// copies are made valid; the shared memory replaces the client's own, with the contents of the host
// copies.
func (c *Core) memShare(m *Message, d *wire.MemShare) (bool, error) {
	if s := c.sharedAt(d.Addr); s != nil && s.Addr == d.Addr && s.Size == d.Size {
		c.reply(m.Header.Slot, success, (&wire.MemShareReply{A: s.Name[0], B: s.Name[1], C: s.Name[2], D: s.Name[3]}).Append(nil))
		return true, nil
	}
	r, err := c.checkShared(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	in, err := c.allocationsIn(r)
	if err != nil {
		return true, err
	}
	if len(in) == 0 {
		return true, fmt.Errorf("shared memory at %#x: nothing is allocated there: %w", d.Addr, device.ErrInvalidValue)
	}
	if c.Head == nil || c.Head.found == nil { // the range may be larger than what the program has in it
		if ok, err := c.commit(c.onHost() + r.Size - c.chunked(in)); !ok || err != nil {
			return ok, sharing(r.Size, err)
		}
	}
	if ok, err := c.ready(need{}); !ok || err != nil {
		return ok, err
	}
	if c.Head == nil || c.Head.found == nil {
		c.ask(Op{Kind: MakeShared, Place: c.place(), Range: r})
		return false, nil
	}
	if err := c.Head.found.Err; err != nil {
		c.commitLess(c.onHost())
		return true, err
	}
	for _, a := range in {
		if ok, err := c.hostRead(a); !ok || err != nil {
			return ok, err
		}
	}
	var plan vmm.Plan
	for _, a := range in {
		freed, err := c.space.Free(a.Addr)
		if err != nil {
			return true, err
		}
		plan = append(plan, freed...)
	}
	s := Shared{Addr: r.Addr, Size: r.Size, Name: c.Head.found.Name, Live: in}
	c.Shared = append(c.Shared, s)
	c.ask(Op{Kind: Share, Place: c.place(), Range: r, Ranges: in, Plan: plan, Share: s.Name, On: c.config.Reserves})
	return false, nil
}

// sharing adds to an error what failed.
func sharing(size uint64, err error) error {
	if err != nil {
		err = fmt.Errorf("shared memory of %s: %w", sizeOf(size), err)
	}
	return err
}

// memImport maps memory that another client has shared at an address.
func (c *Core) memImport(m *Message, d *wire.MemImport) (bool, error) {
	r, err := c.checkShared(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	in, err := c.allocationsIn(r)
	if err != nil {
		return true, err
	}
	if len(in) > 0 {
		return true, fmt.Errorf("shared memory at %#x: something is allocated there: %w", d.Addr, ErrProtocol)
	}
	s := Shared{Addr: r.Addr, Size: r.Size, Name: Name{d.A, d.B, d.C, d.D}, Imported: true}
	if c.Head == nil || c.Head.found == nil {
		if !c.has(s.Name) {
			if ok, err := c.commit(c.onHost() + r.Size); !ok || err != nil {
				return ok, sharing(r.Size, err)
			}
		}
		if ok, err := c.ready(need{}); !ok || err != nil { // a context checks whether the size is true
			return ok, err
		}
		c.ask(Op{Kind: OpenShared, Range: r, Share: s.Name})
		return false, nil
	}
	if err := c.Head.found.Err; err != nil {
		c.commitLess(c.onHost())
		return true, err
	}
	c.Shared = append(c.Shared, s)
	c.reply(m.Header.Slot, success, nil)
	return true, nil
}

// allocShared notes an allocation in shared memory, whose address the program chose before it knew
// that the memory is shared. It says whether the address is in shared memory.
func (c *Core) allocShared(m *Message, r vmm.Range) (bool, error) {
	s := c.sharedAt(r.Addr)
	if s == nil {
		return false, nil
	}
	if s.Imported || r.Size == 0 || !c.sharesRange(r) || slices.ContainsFunc(s.Live, func(a vmm.Range) bool { return overlap(a, r) }) {
		return true, fmt.Errorf("%d bytes at %#x: something is there: %w", r.Size, r.Addr, device.ErrInvalidValue)
	}
	s.Live = append(s.Live, r)
	c.reply(m.Header.Slot, success, nil)
	return true, nil
}

// freeShared frees an allocation in shared memory, or unmaps another client's memory. It says
// whether the address is in shared memory.
func (c *Core) freeShared(addr uint64) (bool, error) {
	s := c.sharedAt(addr)
	if s == nil {
		return false, nil
	}
	i := slices.IndexFunc(s.Live, func(a vmm.Range) bool { return a.Addr == addr })
	switch {
	case s.Imported && addr != s.Addr, !s.Imported && i < 0:
		return true, fmt.Errorf("no memory begins at %#x: %w", addr, device.ErrInvalidValue)
	case !s.Imported:
		s.Live = slices.Delete(s.Live, i, i+1)
	}
	if len(s.Live) > 0 {
		return true, nil
	}
	c.drainAll()
	c.emit(Op{Kind: CloseShared, Range: s.Extent(), Share: s.Name})
	c.Shared = slices.DeleteFunc(c.Shared, func(o Shared) bool { return o.Addr == s.Addr })
	c.commitLess(c.onHost())
	return true, nil
}

// closeAllShared closes all shared memory.
func (c *Core) closeAllShared() {
	for i := range c.Shared {
		c.emit(Op{Kind: CloseShared, Range: c.Shared[i].Extent(), Share: c.Shared[i].Name})
	}
	c.Shared = nil
}
