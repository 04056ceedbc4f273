package clientcore

import (
	"fmt"
	"slices"

	"muster/device"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// memory is the client's memory: the directory of its copies, and what of the program's own memory its
// kernels access.
type memory struct {
	*standing
	memoryState
}

type memoryState struct {
	Heap   uint64    `json:",omitempty"` // bytes of the heap of kernels that call malloc; 0: there is none yet
	Mapped []Mapping // memory of the program that kernels access

	space *vmm.Space
	stats control.Stats
}

func (mem *memory) register(h *handlers) {
	h[wire.OpHostMap] = decoding(mem.hostMap)
	h[wire.OpHostUnmap] = decoding(mem.hostUnmap)
}

func (mem *memory) save(to *State) { to.memoryState = mem.memoryState }
func (mem *memory) load(from *State) {
	mem.memoryState = from.memoryState
	mem.linkPeers()
}

// written notes that memory was written on a device.
func (mem *memory) written(p vmm.Place, r vmm.Range) {
	if mem.space.Check(r) == nil {
		mem.space.Written(p, r)
	}
}

// hostRead makes the host copies of a range valid. It returns false if the message must wait for
// that.
func (mem *memory) hostRead(r vmm.Range) (bool, error) {
	plan, err := mem.space.HostRead(r)
	return err != nil || mem.moved(plan), err
}

// hostWrite prepares the host copies of an area to be written; r is its span.
func (mem *memory) hostWrite(r vmm.Range, a Area) (bool, error) {
	if !a.Dense() { // the bytes between the rows must be kept
		if ok, err := mem.hostRead(r); !ok || err != nil {
			return ok, err
		}
	}
	plan, err := mem.space.HostWrite(r)
	return err != nil || mem.moved(plan), err
}

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

func (mem *memory) hostMap(m *Message, d *wire.HostMap) (bool, error) {
	const page = 4096
	n := Mapping{d.Addr, d.Offset, d.Size}
	if d.Size == 0 || (d.Addr|d.Offset|d.Size)%page != 0 || d.Addr > 1<<47 || d.Size > 1<<47 || d.Offset > 1<<47 {
		return true, fmt.Errorf("host_map of %d bytes at %d for %#x: %w", d.Size, d.Offset, d.Addr, ErrProtocol)
	}
	if len(mem.Mapped) >= mostMapped {
		return true, fmt.Errorf("%d pieces of host memory are mapped: unmap some, or map larger ones: %w", mostMapped, device.ErrOutOfMemory)
	}
	arena := mem.config.Arena
	if d.Addr == 0 { // the kernel would map it for a worker that runs as root
		return true, fmt.Errorf("host memory at address 0: %w", device.ErrInvalidValue)
	}
	if d.Addr < arena.Addr+arena.Size && arena.Addr < d.Addr+d.Size {
		return true, fmt.Errorf("host memory at %#x: those are addresses of the device's: %w", d.Addr, device.ErrInvalidValue)
	}
	if slices.ContainsFunc(mem.Mapped, func(o Mapping) bool { return d.Addr < o.Addr+o.Size && o.Addr < d.Addr+d.Size }) {
		return true, fmt.Errorf("host memory at %#x: something is mapped there: %w", d.Addr, device.ErrInvalidValue)
	}
	mem.Mapped = append(mem.Mapped, n)
	mem.emit(n.Op())
	mem.reply(m.Header.Slot, success, nil)
	return true, nil
}

// hostUnmap waits for running work: kernels may use the memory.
func (mem *memory) hostUnmap(_ *Message, d *wire.HostUnmap) (bool, error) {
	for _, m := range mem.Mapped {
		if m.Addr != d.Addr {
			continue
		}
		mem.drainAll()
		mem.emit(Op{Kind: UnmapHost, Range: m.extent()})
		mem.unmapped(d.Addr)
		break
	}
	return true, nil
}

func (mem *memory) unmapped(addr uint64) {
	mem.Mapped = slices.DeleteFunc(mem.Mapped, func(m Mapping) bool { return m.Addr == addr })
}

// mapsHost says whether kernels can access a range of the program's memory.
func (mem *memory) mapsHost(r vmm.Range) bool {
	return slices.ContainsFunc(mem.Mapped, func(m Mapping) bool {
		return r.Addr >= m.Addr && r.Size <= m.Size && r.Addr-m.Addr <= m.Size-r.Size
	})
}

// heapIn is where a heap of a size lies.
func heapIn(arena vmm.Range, size uint64) vmm.Range {
	at := device.Arena{Base: arena.Addr, Size: arena.Size}.Heap(size)
	return vmm.Range{Addr: at.Base, Size: at.Size}
}

// heapFor is where the heap of a size that the program asked for lies; empty if it cannot be.
func (s *setup) heapFor(size uint64) vmm.Range { return heapIn(s.Arena, size) }

// heap is where the heap is, if there is one.
func (mem *memory) heap() vmm.Range { return mem.config.heapFor(mem.Heap) }

// withHeap adds the heap to ranges that are sorted by address: a kernel may have left pointers to it
// anywhere.
func (mem *memory) withHeap(ranges []vmm.Range) []vmm.Range {
	if mem.Heap == 0 {
		return ranges
	}
	h := mem.heap()
	i, found := slices.BinarySearchFunc(ranges, h, func(r, h vmm.Range) int {
		switch {
		case r.Addr+r.Size <= h.Addr:
			return -1
		case r.Addr >= h.Addr+h.Size:
			return 1
		}
		return 0
	})
	if found {
		ranges[i] = h // it is one allocation
		return ranges
	}
	return slices.Insert(ranges, i, h)
}

// check checks that the heap is an allocation.
func (mem *memory) check() error {
	if mem.Heap == 0 {
		return nil
	}
	if r, ok := mem.space.Find(mem.heap().Addr); !ok || r != mem.heap() || r.Size != mem.Heap {
		return fmt.Errorf("a heap of %d bytes that is not there", mem.Heap)
	}
	return nil
}

// beyondLimit is the error of an allocation that the client's own limit does not allow.
func (mem *memory) beyondLimit() error {
	has := mem.space.Usage().Allocated
	text := fmt.Sprintf("the program sees %s of device memory and has allocated %s of it", sizeOf(mem.config.Limit), sizeOf(has))
	if mem.config.LimitBy != "" {
		text += ": " + mem.config.LimitBy
	}
	return &Failure{Result: outOfMemory, Text: text}
}

// noPlace is the error of an allocation for which the program's library has found no addresses.
func (mem *memory) noPlace(bytes uint64) error {
	if limit := mem.config.Limit; limit > 0 && bytes > limit-mem.space.Usage().Allocated {
		return mem.beyondLimit()
	}
	return &Failure{Result: outOfMemory, Text: "no row of free addresses is so long: the program's other allocations lie between; free some of them"}
}

// moved says whether nothing must be moved; otherwise it has that done, and the message must wait.
func (mem *memory) moved(plan vmm.Plan) bool {
	if len(plan) > 0 {
		mem.count(plan)
		mem.ask(Op{Kind: Move, Plan: plan})
	}
	return len(plan) == 0
}

// swapped adds to the statistics what a plan moves off devices to make room or for a turn, and brings back
// from there. What the host alone had before the client ever left a device is brought for the first time, and
// what a base needs is only copied: neither is swapped.
func (mem *memory) swapped(plan vmm.Plan) {
	mem.stats.SwapOut += plan.Bytes(vmm.CopyOut)
	if mem.stats.Swaps > 0 || mem.stats.SwapOut > 0 {
		mem.stats.SwapIn += plan.Bytes(vmm.CopyIn)
	}
}

// arrived is swapped for a plan that brings memory to a device, for which other memory of the client may give
// way there.
func (mem *memory) arrived(plan vmm.Plan) {
	if plan.Bytes(vmm.Unmap) > 0 {
		mem.stats.Swaps++
	}
	mem.swapped(plan)
}

// count adds what a plan moves to the statistics of links.
func (mem *memory) count(plan vmm.Plan) {
	for _, l := range plan.Links() {
		mem.carried(l.From, l.To, l.Bytes)
	}
}

// carried counts bytes that go from one place to another.
func (mem *memory) carried(from, to vmm.Place, bytes uint64) {
	mem.stats.Links = control.AddLink(mem.stats.Links, control.Link{From: from.Index(), To: to.Index(), Bytes: bytes})
}

// Stats returns what the client has, and what was done for it.
func (mem *memory) Stats() control.Stats {
	u := mem.space.Usage()
	stats := mem.stats
	stats.Links = slices.Clone(mem.stats.Links)
	stats.Allocated, stats.Swapped = u.Allocated, u.HostOnly
	for _, n := range u.Resident {
		stats.Resident += n
	}
	return stats
}

// Dirty is how many bytes of memory have no copy on the host.
func (mem *memory) Dirty() uint64 { return mem.space.Dirty() }

// Held returns the chunks of which the host has a valid copy, in order.
func (mem *memory) Held() []vmm.Range { return mem.space.Held() }

// Allocations returns the client's allocations, in order.
func (mem *memory) Allocations() []vmm.Range { return mem.space.Allocations() }

// linkPeers tells the directory which devices copy to each other without the host.
func (mem *memory) linkPeers() {
	mem.space.Direct(func(p vmm.Place) string {
		if p.Index() >= len(mem.config.Devices) {
			return ""
		}
		return mem.config.Devices[p.Index()].Peers
	})
}

// freeAll frees everything. The plan says what the host may discard.
func (mem *memory) freeAll() (plan vmm.Plan, err error) {
	for _, a := range mem.space.Allocations() {
		freed, err := mem.space.Free(a.Addr)
		if err != nil {
			return nil, err
		}
		plan = append(plan, freed...)
	}
	return plan, nil
}

// reserve has the executor make room for an allocation on the host (Reserve), or give it back (GiveBack).
func (mem *memory) reserve(k Kind, r vmm.Range) {
	if mem.config.Reserves {
		mem.next(k).Range = r
	}
}
