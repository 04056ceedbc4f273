package clientcore

import (
	"encoding/binary"
	"maps"
	"slices"

	"muster/vmm"
)

// Kernels that follow pointers which they find in memory. Nobody can tell from their parameters what they
// use; but devices that guard launches tell what a kernel used, and stop one before it uses what was not
// expected. So:
//
//   - A kernel of which nothing is known runs at home, with all memory, and is watched there.
//   - From then on it is expected to use what it used before, what its parameters point to, and what is
//     declared to be nested in any of that (wire.MemNest). It may run elsewhere with that, under guard:
//     before it uses anything else it stands still, that is brought, and it goes on (Trapped).
//
// The directory must be that of the moment of the launch when something is brought. So a launch under
// guard is waited for before the client's next message is handled, and nothing else runs on its device
// meanwhile: whatever must end first on another device was launched earlier, and waits for neither.

// Guarded is how a launch is watched, or guarded.
type Guarded struct {
	// Ranges are what it may use, in whole chunks, or what is told apart.
	Ranges []vmm.Range
	// Traps says that it may use nothing else before Trapped has brought it; else it is only watched.
	Traps  bool
	Kernel Kernel
}

// Kernel names a kernel over the life of its module.
type Kernel struct {
	Module   uint64
	Function uint32
}

// watched is what a kernel was seen to use: allocations by their first addresses. One that was freed
// is forgotten when it is looked for.
type watched struct {
	allocations map[uint64]bool
}

// mostWatched is how many allocations are remembered of a kernel. One that uses more stays at home.
const mostWatched = 4096

// guards says whether all that is needed to run a kernel under guard elsewhere is there. Variables are in
// one context only, and pointers in memory may lead to them.
func (c *Core) guards(f *Function) bool {
	return f.Info.Follows && !c.Modules.hasVariables() && slices.ContainsFunc(c.config.Devices, func(d Device) bool { return d.Guards })
}

// expected is what a kernel that follows pointers is expected to use, in the order of addresses; false
// if nothing is known of it.
func (c *Core) expected(k Kernel, params []byte) ([]vmm.Range, bool) {
	m := c.mapping
	seen := m.watched[k]
	if seen == nil && !c.space.Nests(params) {
		return nil, false
	}
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

// watch has a launch at home watched, if nothing is known of its kernel yet.
func (c *Core) watch(f *Function, number uint32) *Guarded {
	k := Kernel{f.Module, number}
	if c.mapping == nil || c.mapping.home || c.mapping.watched[k] != nil || len(c.config.Devices) < 2 || !c.guards(f) || !c.config.Devices[c.Lease.Device].Guards {
		return nil
	}
	return &Guarded{Ranges: c.wholeChunks(c.space.Allocations()), Kernel: k}
}

// wholeChunks makes ranges in the order of addresses larger, to whole chunks. Those that share a chunk
// become one.
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

// Seen is what a kernel used that was watched.
type Seen struct {
	Kernel Kernel
	Used   []vmm.Range
}

// Observed says what a kernel used that was watched. It may be called whenever no operation is performed;
// nothing is to be done then.
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

// watches is what is known of a kernel.
func (m *mapped) watches(k Kernel) *watched {
	if m.watched[k] == nil {
		m.watched[k] = &watched{allocations: map[uint64]bool{}}
	}
	return m.watched[k]
}

// Trapped is asked when a launch under guard is about to use memory that was not expected. It returns what
// must be moved first, and the memory that it may use then; false if there is none of the client's. The
// executor performs the plan while the kernel stands still; when it has been told so, nothing else
// runs on that device.
func (c *Core) Trapped(at vmm.Place, k Kernel, addr uint64) (vmm.Plan, vmm.Range, bool) {
	if s := c.sharedAt(addr); s != nil { // it is in every context
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
		f.Moved += plan.Bytes(vmm.CopyIn)
	}
	c.mapping.watches(k).allocations[r.Addr] = true
	return plan, c.wholeChunks([]vmm.Range{r})[0], true
}
