package clientcore

import (
	"encoding/binary"
	"maps"
	"slices"

	"muster/vmm"
)

// Kernels that follow pointers in memory. Their parameters do not tell what they use. But devices
// that guard launches report what a kernel has used, and stop a kernel before it uses anything
// unexpected. So:
//
//   - A kernel about which nothing is known runs at home, with all memory, and is watched there.
//   - From then on it is expected to use what it used before, what its parameters point to, and what is
//     declared as nested in any of that (wire.MemNest). With that it may run elsewhere, under guard:
//     before it uses anything else it is stopped, the memory is brought, and it goes on (Trapped).
//
// When memory is brought, the directory must be as it was at the launch. So the executor waits for
// a guarded launch before it handles the client's next message, and nothing else runs on that
// device meanwhile. A deadlock is not possible: whatever must end first on another device was
// launched earlier, and waits for neither.

// Guarded is how a launch is watched or guarded.
type Guarded struct {
	// Ranges are what the kernel may use, in whole chunks; or, if it is only watched, the units in
	// which its use is reported.
	Ranges []vmm.Range
	// Traps says that the kernel may use nothing else until Trapped has brought it; otherwise it is
	// only watched.
	Traps  bool
	Kernel Kernel
}

// Kernel identifies a kernel during the life of its module.
type Kernel struct {
	Module   uint64
	Function uint32
}

// watched is what a kernel was seen to use: allocations, by their first address. One that was freed
// is removed when it is next looked up.
type watched struct {
	allocations map[uint64]bool
}

// mostWatched is how many allocations of a kernel are remembered. A kernel that uses more stays at
// home.
const mostWatched = 4096

// guards says whether a kernel can run elsewhere under guard. It cannot if there are variables:
// these are in one context only, and pointers in memory may lead to them.
func (c *Core) guards(f *Function) bool {
	return f.Info.Follows && !c.Modules.hasVariables() && slices.ContainsFunc(c.config.Devices, func(d Device) bool { return d.Guards })
}

// expected returns what a kernel that follows pointers is expected to use, sorted by address; false
// if nothing is known about it.
func (c *Core) expected(k Kernel, params []byte) ([]vmm.Range, bool) {
	m := c.mapping
	seen := m.watched[k]
	if seen == nil && !c.space.Nests(params) {
		return nil, false
	}
	// Reachable reads 8-byte words: the parameters, padded to whole words, and the addresses of the
	// allocations seen before.
	m.words = append(m.words[:0], params...)
	m.words = append(m.words[:len(m.words):len(m.words)], make([]byte, -len(m.words)&7)...)
	if seen != nil {
		if len(seen.allocations) > mostWatched {
			return nil, false
		}
		for _, addr := range slices.Sorted(maps.Keys(seen.allocations)) {
			if r, ok := c.space.Find(addr); !ok || r.Addr != addr {
				delete(seen.allocations, addr)
				continue
			}
			m.words = binary.LittleEndian.AppendUint64(m.words, addr)
		}
	}
	return c.space.Reachable(m.words), true
}

// watch returns how a launch at home is watched; nil if its kernel is known already.
func (c *Core) watch(f *Function, number uint32) *Guarded {
	k := Kernel{f.Module, number}
	if c.mapping == nil || c.mapping.home || c.mapping.watched[k] != nil || len(c.config.Devices) < 2 || !c.guards(f) || !c.config.Devices[c.Lease.Device].Guards {
		return nil
	}
	return &Guarded{Ranges: c.wholeChunks(c.space.Allocations()), Kernel: k}
}

// wholeChunks extends ranges, sorted by address, to whole chunks. Those that share a chunk become
// one.
func (c *Core) wholeChunks(ranges []vmm.Range) []vmm.Range {
	chunk := c.config.Chunk
	var all []vmm.Range
	for _, r := range ranges {
		from, to := r.Addr&^(chunk-1), (r.Addr+r.Size+chunk-1)&^(chunk-1)
		if n := len(all) - 1; n >= 0 && from < all[n].Addr+all[n].Size {
			all[n].Size = max(all[n].Size, to-all[n].Addr)
			continue
		}
		all = append(all, vmm.Range{Addr: from, Size: to - from})
	}
	return all
}

// Seen is what a watched kernel has used.
type Seen struct {
	Kernel Kernel
	Used   []vmm.Range
}

// Observed says what a watched kernel has used. It may be called whenever no operation is being
// performed, and causes none.
func (c *Core) Observed(s Seen) {
	if c.mapping == nil {
		return
	}
	seen := c.mapping.watches(s.Kernel)
	all := c.space.Allocations()
	for _, r := range s.Used {
		i, _ := slices.BinarySearchFunc(all, r.Addr, func(a vmm.Range, addr uint64) int {
			if a.Addr+a.Size <= addr {
				return -1
			}
			return 1
		})
		for ; i < len(all) && all[i].Addr < r.Addr+r.Size; i++ {
			seen.allocations[all[i].Addr] = true
		}
	}
}

// watches returns what is known about a kernel.
func (m *mapped) watches(k Kernel) *watched {
	if m.watched[k] == nil {
		m.watched[k] = &watched{allocations: map[uint64]bool{}}
	}
	return m.watched[k]
}

// Trapped is called when a guarded kernel is about to use unexpected memory. It returns the plan of
// what must be moved first, and the memory that the kernel may then use; false if the client has
// none there. The executor performs the plan while the kernel is stopped, and nothing else runs on
// that device.
func (c *Core) Trapped(at vmm.Place, k Kernel, addr uint64) (vmm.Plan, vmm.Range, bool) {
	if s := c.sharedAt(addr); s != nil { // every context has it
		return nil, vmm.Range{Addr: s.Addr, Size: s.Size}, true
	}
	r, ok := c.space.Find(addr)
	if !ok {
		return nil, r, false
	}
	plan, err := c.space.Prepare(at, []vmm.Range{r}, c.room(at))
	if err != nil {
		return nil, r, false
	}
	c.space.Launched(at, []vmm.Range{r})
	c.count(plan)
	if f := c.further(at.Index()); f != nil {
		f.Moved += plan.Arrives()
	}
	c.mapping.watches(k).allocations[r.Addr] = true
	return plan, c.wholeChunks([]vmm.Range{r})[0], true
}
