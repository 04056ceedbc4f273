package soft

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"muster/device"
	"muster/ptx/simt"
)

// guard is the memory of a context as a guarded launch sees it. The engine calls Find for the memory around
// an address that it has not used before and keeps the answer. Find answers with allowed memory only, so
// the engine's ordinary bounds check catches every access outside, and allowed accesses cost nothing extra.
//
// Worker threads read parts without a lock. The slice that it points to is never modified; allow stores a
// new one. The *part values are shared between the old slice and the new one, so no touched flag is lost.
type guard struct {
	*memory
	by *device.Guard

	mu    sync.Mutex // serialises allow
	parts atomic.Pointer[[]*part]
}

// part is a range that the launch may use, and whether it did.
type part struct {
	device.Arena
	touched atomic.Bool
}

func newGuard(m *memory, by *device.Guard) *guard {
	g := &guard{memory: m, by: by}
	parts := make([]*part, len(by.Ranges))
	for i, r := range by.Ranges {
		parts[i] = &part{Arena: r}
	}
	g.parts.Store(&parts)
	return g
}

// Find returns the stretch around addr that is both mapped and allowed. It calls Trap, and may wait there
// for memory to be moved, if addr is not allowed yet. No lock is held meanwhile.
func (g *guard) Find(addr uint64) (simt.Region, bool) {
	if !g.arena.at.Contains(addr, 1) {
		return g.memory.Find(addr)
	}
	for {
		if p := g.around(addr); p != nil {
			p.touched.Store(true)
			r, ok := g.memory.Find(addr)
			if !ok {
				return r, false
			}
			from, to := max(r.Base, p.Base), min(r.Base+uint64(len(r.Bytes)), p.Base+p.Size)
			return simt.Region{Base: from, Bytes: r.Bytes[from-r.Base : to-r.Base]}, true
		}
		if g.by.Trap == nil {
			return g.memory.Find(addr)
		}
		more, ok := g.by.Trap(addr)
		if !ok || !more.Contains(addr, 1) {
			return simt.Region{}, false
		}
		g.allow(more)
	}
}

// around returns the allowed range that contains addr; nil if there is none.
func (g *guard) around(addr uint64) *part {
	parts := *g.parts.Load()
	i, _ := slices.BinarySearchFunc(parts, addr, func(p *part, addr uint64) int {
		if p.Base+p.Size <= addr {
			return -1
		}
		return 1
	})
	if i < len(parts) && parts[i].Contains(addr, 1) {
		return parts[i]
	}
	return nil
}

// allow adds a range to what the launch may use. It adds only the gaps between existing parts: parts must
// not overlap, or the binary search in around would fail. Another thread may have allowed the same range
// since this one called Trap.
func (g *guard) allow(more device.Arena) {
	g.mu.Lock()
	defer g.mu.Unlock()
	parts := slices.Clone(*g.parts.Load())
	at, end := more.Base, more.Base+more.Size
	for _, p := range *g.parts.Load() {
		if p.Base+p.Size <= at || p.Base >= end {
			continue
		}
		if p.Base > at {
			parts = append(parts, &part{Arena: device.Arena{Base: at, Size: p.Base - at}})
		}
		at = p.Base + p.Size
	}
	if at < end {
		parts = append(parts, &part{Arena: device.Arena{Base: at, Size: end - at}})
	}
	slices.SortFunc(parts, func(a, b *part) int { return cmp.Compare(a.Base, b.Base) })
	g.parts.Store(&parts)
}

// tell reports the used ranges to Guard.Touched.
func (g *guard) tell() {
	if g == nil || g.by.Touched == nil {
		return
	}
	var used []device.Arena
	for _, p := range *g.parts.Load() {
		if p.touched.Load() {
			used = append(used, p.Arena)
		}
	}
	g.by.Touched(used)
}
