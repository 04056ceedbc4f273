package clientcore

import (
	"fmt"
	"slices"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// Mapping is memory of the program, a part of the data arena, that kernels access at the program's
// address.
type Mapping struct{ Addr, Offset, Size uint64 }

func (m Mapping) extent() vmm.Range { return vmm.Range{Addr: m.Addr, Size: m.Size} }

// Op returns the operation that gives kernels access.
func (m Mapping) Op() Op {
	return Op{Kind: MapHost, Range: m.extent(), Out: Span{m.Offset, m.Size}}
}

// mostMapped bounds what a program can make its worker remember.
const mostMapped = 1 << 16

func (c *Core) hostMap(m *Message, d *wire.HostMap) (bool, error) {
	const page = 4096
	n := Mapping{d.Addr, d.Offset, d.Size}
	if d.Size == 0 || (d.Addr|d.Offset|d.Size)%page != 0 || d.Addr > 1<<47 || d.Size > 1<<47 || d.Offset > 1<<47 {
		return true, fmt.Errorf("host_map of %d bytes at %d for %#x: %w", d.Size, d.Offset, d.Addr, ErrProtocol)
	}
	if len(c.Mapped) >= mostMapped {
		return true, fmt.Errorf("%d pieces of host memory are mapped: unmap some, or map larger ones: %w", mostMapped, device.ErrOutOfMemory)
	}
	arena := c.config.Arena
	if d.Addr == 0 { // the kernel would map it for a worker that runs as root
		return true, fmt.Errorf("host memory at address 0: %w", device.ErrInvalidValue)
	}
	if d.Addr < arena.Addr+arena.Size && arena.Addr < d.Addr+d.Size {
		return true, fmt.Errorf("host memory at %#x: those are addresses of the device's: %w", d.Addr, device.ErrInvalidValue)
	}
	if slices.ContainsFunc(c.Mapped, func(o Mapping) bool { return d.Addr < o.Addr+o.Size && o.Addr < d.Addr+d.Size }) {
		return true, fmt.Errorf("host memory at %#x: something is mapped there: %w", d.Addr, device.ErrInvalidValue)
	}
	c.Mapped = append(c.Mapped, n)
	c.emit(n.Op())
	c.reply(m.Header.Slot, success, nil)
	return true, nil
}

// hostUnmap waits for running work: kernels may use the memory.
func (c *Core) hostUnmap(_ *Message, d *wire.HostUnmap) (bool, error) {
	for _, m := range c.Mapped {
		if m.Addr != d.Addr {
			continue
		}
		c.drainAll()
		c.emit(Op{Kind: UnmapHost, Range: m.extent()})
		c.unmapped(d.Addr)
		break
	}
	return true, nil
}

func (c *Core) unmapped(addr uint64) {
	c.Mapped = slices.DeleteFunc(c.Mapped, func(m Mapping) bool { return m.Addr == addr })
}

// mapsHost says whether kernels can access a range of the program's memory.
func (c *Core) mapsHost(r vmm.Range) bool {
	return slices.ContainsFunc(c.Mapped, func(m Mapping) bool {
		return r.Addr >= m.Addr && r.Size <= m.Size && r.Addr-m.Addr <= m.Size-r.Size
	})
}
