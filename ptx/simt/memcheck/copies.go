package memcheck

import "muster/ptx/simt/shape"

// engines is how many copy engines a block has. In records their threads have numbers after
// those of warps: WarpSize for each engine, one for each warp that starts copies.
const (
	engines     = 8
	GroupEngine = maxWarps
)

// ThreadOf returns the thread of a record; for a copy engine, the first thread of the warp
// that started the copy.
func ThreadOf(r Record) int {
	if t := r.Thread(); t < shape.MaxThreads {
		return t
	}
	return r.Thread() % shape.WarpSize * shape.WarpSize
}

// Mbarrier is the state of an mbarrier: the join of what the warps know that have arrived in the
// current phase, and of those that arrived in completed phases.
type Mbarrier struct {
	Engine        int // the copy engine of its copies
	Arrived, Over Barrier
}

// Mbar returns the state of an mbarrier, and makes it at its first use.
func (b *Block) Mbar(addr uint64) *Mbarrier {
	m := b.Mbars[addr]
	if m == nil {
		if b.Mbars == nil {
			b.Mbars = map[uint64]*Mbarrier{}
		}
		m = &Mbarrier{Engine: GroupEngine + 1 + len(b.Mbars)%(engines-1)}
		b.Mbars[addr] = m
	}
	return m
}

// adds joins what a warp, or another Barrier, knows into c.
func (c *Barrier) adds(behind, fenced *know, observed uint32, warps int) {
	c.Behind.join(behind, warps)
	c.fenced.join(fenced, warps)
	c.observed = max(c.observed, observed)
}

// Phase records that a phase of an mbarrier is complete.
func (m *Mbarrier) Phase(warps int) {
	m.Over.adds(&m.Arrived.Behind, &m.Arrived.fenced, m.Arrived.observed, warps)
	m.Arrived = Barrier{}
}

// unfinished returns the lowest clock of copies that some warp is not ordered after.
func (b *Block) unfinished() uint16 {
	least := uint16(maxClock)
	for e := maxWarps; e < maxWarps+engines; e++ {
		for w := range b.Warps {
			if b.Clock[e] > 0 && b.Seen[w][e] <= b.Clock[e] {
				least = min(least, b.Seen[w][e])
			}
		}
	}
	return least
}

// ArriveAt records that a warp arrives at an mbarrier.
func (b *Block) ArriveAt(w int, addr uint64) {
	b.Advance(w)
	m := b.Mbar(addr)
	m.Arrived.adds(&b.Seen[w], &b.fenced[w], b.observed[w], b.Warps)
	m.Arrived.Behind[w] = b.Clock[w]
}

// Knows makes a warp take over what is joined in c.
func (b *Block) Knows(w int, c *Barrier) {
	b.Advance(w)
	b.Seen[w].join(&c.Behind, b.Warps)
	b.fenced[w].join(&c.fenced, b.Warps)
	b.observed[w] = max(b.observed[w], c.observed)
}

// BeginCopy advances the clock of an engine for a copy that a warp starts, and orders the copy behind
// what the warp is ordered after.
func (b *Block) BeginCopy(e, w int) {
	b.Advance(w)
	if max(b.Clock[e], b.Clock[w]) >= maxClock-1 {
		b.renew()
	}
	b.Clock[e] = max(b.Clock[e], b.Clock[w]) + 1
	b.Seen[e].join(&b.Seen[w], b.Warps)
	b.Seen[e][w] = b.Clock[w]
	b.observed[e] = max(b.observed[e], b.observed[w])
	if b.Mbars == nil {
		b.Mbars = map[uint64]*Mbarrier{} // not nil, so that settle considers the engines
	}
}
