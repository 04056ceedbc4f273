package simt

import "muster/ptx"

// Asynchronous instructions under a checker, in launches without clusters.
//
// Bulk copies are the accesses of copy engines, which have clocks as warps have: a
// copy is ordered behind all that the warp knew that began it, and nobody is ordered
// behind the copy, its own thread neither, before he has waited for the mbarrier that
// the copy tells, or for the group. A block has a few engines: one for groups, and
// mbarriers share the others. Who has waited for a copy is ordered behind earlier
// copies of the same engine too, so that races may be missed, but none is made up.
//
// Mbarriers order as barriers do: who finds a phase over is ordered behind those that
// arrived for it. Products of matrices (wgmma) count as reads of their warps when
// they begin.

// engines is how many copy engines a block has. Their threads are numbered behind
// those of warps: WarpSize for each engine, one for each warp that begins copies.
const (
	engines     = 8
	groupEngine = maxWarps
)

// threadOf returns the thread of a record; of a copy engine, the first of the warp
// that began the copy.
func threadOf(r record) int {
	if t := r.thread(); t < MaxThreads {
		return t
	}
	return r.thread() % WarpSize * WarpSize
}

func (s *site) isAsync() bool { return s.touch >= touchMbarrier && s.touch < touchOther }

// mbarCheck is what those know together that arrive at an mbarrier, and what those
// know that found a phase over.
type mbarCheck struct {
	engine        int // that serves its copies
	arrived, over barCheck
}

// mbar returns what is known of an mbarrier.
func (b *blockCheck) mbar(addr uint64) *mbarCheck {
	m := b.mbars[addr]
	if m == nil {
		if b.mbars == nil {
			b.mbars = map[uint64]*mbarCheck{}
		}
		m = &mbarCheck{engine: groupEngine + 1 + len(b.mbars)%(engines-1)}
		b.mbars[addr] = m
	}
	return m
}

// adds joins what a warp, or others together, know.
func (c *barCheck) adds(behind, fenced *know, observed uint32, warps int) {
	c.behind.join(behind, warps)
	c.fenced.join(fenced, warps)
	c.observed = max(c.observed, observed)
}

// phase notes that a phase of an mbarrier is over.
func (m *mbarCheck) phase(warps int) {
	m.over.adds(&m.arrived.behind, &m.arrived.fenced, m.arrived.observed, warps)
	m.arrived = barCheck{}
}

// unfinished returns the least clock of copies that not all warps are ordered behind.
func (b *blockCheck) unfinished() uint16 {
	least := uint16(maxClock)
	for e := maxWarps; e < maxWarps+engines; e++ {
		for w := range b.warps {
			if b.clock[e] > 0 && b.seen[w][e] <= b.clock[e] {
				least = min(least, b.seen[w][e])
			}
		}
	}
	return least
}

// arriveAt notes that a warp arrives at an mbarrier.
func (b *blockCheck) arriveAt(w int, addr uint64) {
	b.advance(w)
	m := b.mbar(addr)
	m.arrived.adds(&b.seen[w], &b.fenced[w], b.observed[w], b.warps)
	m.arrived.behind[w] = b.clock[w]
}

// knows makes a warp know what those together know that arrived somewhere.
func (b *blockCheck) knows(w int, c *barCheck) {
	b.advance(w)
	b.seen[w].join(&c.behind, b.warps)
	b.fenced[w].join(&c.fenced, b.warps)
	b.observed[w] = max(b.observed[w], c.observed)
}

// beginCopy makes a copy the next deed of an engine, for a warp.
func (b *blockCheck) beginCopy(e, w int) {
	b.advance(w)
	if max(b.clock[e], b.clock[w]) >= maxClock-1 {
		b.renew()
	}
	b.clock[e] = max(b.clock[e], b.clock[w]) + 1
	b.seen[e].join(&b.seen[w], b.warps)
	b.seen[e][w] = b.clock[w]
	b.observed[e] = max(b.observed[e], b.observed[w])
	if b.mbars == nil {
		b.mbars = map[uint64]*mbarCheck{} // so that settle looks at the engines
	}
}

// sharedPlace returns an address of shared memory in its block; false if it is none.
func sharedPlace(space ptx.Space, addr uint64) (uint64, bool) {
	if space == ptx.NoSpace && addr >= 1<<32 {
		space, addr = window(addr)
		if space != ptx.SharedSpace {
			return 0, false
		}
	}
	if addr >= clusterWindow { // a block's own address, as one of its cluster
		addr %= clusterWindow
	}
	return addr, true
}

// ofLane returns the block of a lane, and its warp.
func (l *launchCheck) ofLane(g *gang, lane int) (*blockCheck, int) {
	return g.team.check[g.blockOf[lane]], int(g.threadOf[lane]) / WarpSize
}

// changesMbarrier notes what an instruction did to an mbarrier, or found out of it.
func (l *launchCheck) changesMbarrier(g *gang, in *inst, lane int, addr uint64, old, now mbarrier, over bool) {
	at, ok := sharedPlace(in.space, addr)
	if !ok || l.x.cluster > 1 {
		return
	}
	b, w := l.ofLane(g, lane)
	switch {
	case in.mode == mbarrierInit || in.mode == mbarrierInvalidate:
		delete(b.mbars, at)
		return
	case in.mode == mbarrierTest || in.mode == mbarrierParity:
		if over {
			b.knows(w, &b.mbar(at).over)
		}
		return
	case in.mode&mbarrierArrive == mbarrierArrive:
		b.arriveAt(w, at)
	}
	if old.phase() != now.phase() {
		b.mbar(at).phase(b.warps)
	}
}

// endsCopy notes that an mbarrier was told that a copy is done.
func (l *launchCheck) endsCopy(g *gang, lane int, addr uint64, old, now mbarrier) {
	at, ok := sharedPlace(ptx.NoSpace, addr)
	if !ok || l.x.cluster > 1 {
		return
	}
	b, _ := l.ofLane(g, lane)
	m := b.mbar(at)
	m.arrived.behind[m.engine] = b.clock[m.engine] + 1
	if old.phase() != now.phase() {
		m.phase(b.warps)
	}
}

// followAsync is follow for asynchronous instructions.
func (l *launchCheck) followAsync(g *gang, in *inst, number int, s *site) {
	v := glance{l: l, g: g, in: in, number: record(number), site: s}
	for lane := range l.lanes(g) {
		b, w := l.ofLane(g, lane)
		switch s.touch {
		case touchMbarrier:
			if at, ok := sharedPlace(in.space, g.r64.lane(in.a, lane)+uint64(in.imm)); ok {
				v.reads, v.writes = s.sync, in.mode != mbarrierTest && in.mode != mbarrierParity
				v.lane(lane, ptx.SharedSpace, at)
			}
		case touchArrive:
			if at, ok := sharedPlace(in.space, g.r64.lane(in.a, lane)+uint64(in.imm)); ok {
				b.arriveAt(w, at)
			}
		case touchWaitGroup:
			if last := b.clock[groupEngine]; last > 0 {
				b.advance(w)
				b.seen[w][groupEngine] = last + 1
			}
		case touchBulkZero:
			v.writes = true
			v.bytes(lane, in.space, g.r64.lane(in.a, lane)+uint64(in.imm), g.r64.lane(in.b, lane))
		case touchBulk:
			v.copies(b, w, lane)
		}
	}
	if s.touch == touchProduct {
		v.product()
	}
}

// copies looks at a bulk copy of a lane.
func (v *glance) copies(b *blockCheck, w, lane int) {
	in := v.in
	v.engine = groupEngine
	if in.e >= 0 {
		if at, ok := sharedPlace(ptx.NoSpace, v.g.r64.lane(in.e, lane)); ok {
			v.engine = b.mbar(at).engine
		}
	}
	b.beginCopy(v.engine, w)
	k, ok := in.k.(*bulkCopy)
	if !ok {
		v.box(lane, in.k.(*tensorCopy))
		return
	}
	n := uint64(v.g.r32.lane(in.c, lane))
	v.reads, v.writes = true, false
	v.bytes(lane, k.from, v.g.r64.lane(in.a, lane)+uint64(in.imm), n)
	v.reads, v.writes = k.reduce != nil, true
	v.bytes(lane, k.to, v.g.r64.lane(in.b, lane), n)
}

// box looks at a copy of a tensor's box, row by row.
func (v *glance) box(lane int, k *tensorCopy) {
	box := v.g.boxOf(v.in, lane)
	shared := func(r boxRow) {
		for i := uint64(0); i < box.row(); i += bulkUnit {
			v.bytes(lane, ptx.SharedSpace, box.swizzled(r.shared+i), bulkUnit)
		}
	}
	for r := range box.rows() {
		v.reads, v.writes = true, false
		if !k.toShared {
			shared(r)
			v.reads, v.writes = k.reduce != "", true
		}
		if r.inside > 0 {
			v.bytes(lane, ptx.GlobalSpace, r.global, r.inside)
		}
		if k.toShared {
			v.reads, v.writes = false, true
			shared(r)
		}
	}
}

// bytes looks at a stretch of memory that a lane uses as a whole.
func (v *glance) bytes(lane int, space ptx.Space, addr, n uint64) {
	if space == ptx.SharedSpace {
		var ok bool
		if addr, ok = sharedPlace(space, addr); !ok {
			return
		}
	} else if space == ptx.NoSpace {
		space, addr = window(addr)
	}
	whole := v.site
	for n > 0 {
		part := *whole
		part.size = min(n, pageBytes-addr%pageBytes)
		v.site = &part
		v.lane(lane, space, addr)
		addr, n = addr+part.size, n-part.size
	}
	v.site = whole
}

// product looks at the matrices in shared memory that warps multiply.
func (v *glance) product() {
	g, in, k := v.g, v.in, v.in.k.(*groupProduct)
	v.reads = true
	g.eachWarp(func(base int, active uint32) {
		lane := base + trailing(uint64(active))
		if in.a >= 0 {
			first := int(g.threadOf[base]) / WarpSize % warpgroup * k.a.rows
			v.matrix(lane, matrixDescriptor(g.r64.lane(in.a, lane)), k.A.Bits()/8, first, k.a.rows, k.a.cols, k.byColumnsA)
		}
		v.matrix(lane, matrixDescriptor(g.r64.lane(in.b, lane)), k.B.Bits()/8, 0, k.N, k.K, k.byColumnsB)
	})
}

// matrix looks at lines of a matrix, a word of four bytes once if its elements are one
// behind the other.
func (v *glance) matrix(lane int, d matrixDescriptor, size, first, lines, length int, across bool) {
	last := ^uint64(0)
	for i := range lines * length {
		outer, inner := i/length, i%length
		if across {
			outer, inner = i%lines, i/lines
		}
		if at := d.address(uint64(first+outer), uint64(inner), uint64(size), across) &^ 3; at != last {
			v.lane(lane, ptx.SharedSpace, at)
			last = at
		}
	}
}
