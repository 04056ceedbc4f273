package simt

import (
	"muster/ptx"
	"muster/ptx/simt/matrix"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensorbox"
)

// Asynchronous instructions under a checker, in launches without clusters.
//
// Bulk copies are accesses of copy engines, which have clocks like warps. A copy is
// ordered after all that the warp which started it was ordered after. No thread is ordered
// after the copy, not even the one that started it, until it has waited for the copy's
// mbarrier or group. A block has a few engines: one for groups, and mbarriers share the
// others. A warp that has waited for a copy also counts as ordered after earlier
// copies of the same engine. So races may be missed, but none is reported wrongly.
//
// Mbarriers order like barriers: a warp that finds a phase complete is ordered after
// the warps that arrived for it. Products of matrices (wgmma) count as reads by their warps
// at the time at which they are issued.

func (s *site) isAsync() bool {
	return s.touch >= program.TouchMbarrier && s.touch < program.TouchOther
}

// sharedPlace returns the offset of an address in its block's shared memory; false if the address is in
// another state space.
func sharedPlace(space ptx.Space, addr uint64) (uint64, bool) {
	if space == ptx.NoSpace && addr >= 1<<32 {
		space, addr = program.Window(addr)
		if space != ptx.SharedSpace {
			return 0, false
		}
	}
	if addr >= clusterWindow { // an address in the cluster; without clusters it is the block's own
		addr %= clusterWindow
	}
	return addr, true
}

// ofLane returns the state of a lane's block, and the lane's warp in it.
func (l *launchCheck) ofLane(g *gang, lane int) (*memcheck.Block, int) {
	return g.team.check[g.blockOf[lane]], int(g.threadOf[lane]) / shape.WarpSize
}

// changesMbarrier records what an instruction did to an mbarrier, or what a test of it found.
func (l *launchCheck) changesMbarrier(g *gang, in *inst, lane int, addr uint64, old, now mbarrier, over bool) {
	at, ok := sharedPlace(in.Space, addr)
	if !ok || l.x.cluster > 1 {
		return
	}
	b, w := l.ofLane(g, lane)
	switch {
	case in.Mode == program.MbarrierInit || in.Mode == program.MbarrierInvalidate:
		delete(b.Mbars, at)
		return
	case in.Mode == program.MbarrierTest || in.Mode == program.MbarrierParity:
		if over {
			b.Knows(w, &b.Mbar(at).Over)
		}
		return
	case in.Mode&program.MbarrierArrive == program.MbarrierArrive:
		b.ArriveAt(w, at)
	}
	if old.phase() != now.phase() {
		b.Mbar(at).Phase(b.Warps)
	}
}

// endsCopy records that a completed copy was reported to an mbarrier.
func (l *launchCheck) endsCopy(g *gang, lane int, addr uint64, old, now mbarrier) {
	at, ok := sharedPlace(ptx.NoSpace, addr)
	if !ok || l.x.cluster > 1 {
		return
	}
	b, _ := l.ofLane(g, lane)
	m := b.Mbar(at)
	m.Arrived.Behind[m.Engine] = b.Clock[m.Engine] + 1
	if old.phase() != now.phase() {
		m.Phase(b.Warps)
	}
}

// followAsync is follow for asynchronous instructions.
func (l *launchCheck) followAsync(g *gang, in *inst, number int, s *site) {
	v := glance{l: l, g: g, in: in, number: memcheck.Record(number), site: s}
	for lane := range l.lanes(g) {
		b, w := l.ofLane(g, lane)
		switch s.touch {
		case program.TouchMbarrier:
			if at, ok := sharedPlace(in.Space, g.r64.lane(in.A, lane)+uint64(in.Imm)); ok {
				v.reads, v.writes = s.sync, in.Mode != program.MbarrierTest && in.Mode != program.MbarrierParity
				v.lane(lane, ptx.SharedSpace, at)
			}
		case program.TouchArrive:
			if at, ok := sharedPlace(in.Space, g.r64.lane(in.A, lane)+uint64(in.Imm)); ok {
				b.ArriveAt(w, at)
			}
		case program.TouchWaitGroup:
			if last := b.Clock[memcheck.GroupEngine]; last > 0 {
				b.Advance(w)
				b.Seen[w][memcheck.GroupEngine] = last + 1
			}
		case program.TouchBulkZero:
			v.writes = true
			v.bytes(lane, in.Space, g.r64.lane(in.A, lane)+uint64(in.Imm), g.r64.lane(in.B, lane))
		case program.TouchBulk:
			v.copies(b, w, lane)
		}
	}
	if s.touch == program.TouchProduct {
		v.product()
	}
}

// copies examines a bulk copy that a lane starts.
func (v *glance) copies(b *memcheck.Block, w, lane int) {
	in := v.in
	v.engine = memcheck.GroupEngine
	if in.E >= 0 {
		if at, ok := sharedPlace(ptx.NoSpace, v.g.r64.lane(in.E, lane)); ok {
			v.engine = b.Mbar(at).Engine
		}
	}
	b.BeginCopy(v.engine, w)
	k, ok := in.K.(*program.BulkCopy)
	if !ok {
		v.box(lane, in.K.(*program.TensorCopy))
		return
	}
	n := uint64(v.g.r32.lane(in.C, lane))
	v.reads, v.writes = true, false
	v.bytes(lane, k.From, v.g.r64.lane(in.A, lane)+uint64(in.Imm), n)
	v.reads, v.writes = k.Reduce != nil, true
	v.bytes(lane, k.To, v.g.r64.lane(in.B, lane), n)
}

// box looks at a copy of a tensor's box, row by row.
func (v *glance) box(lane int, k *program.TensorCopy) {
	box := v.g.boxOf(v.in, lane)
	shared := func(r tensorbox.Row) {
		for i := uint64(0); i < box.Row(); i += bulkUnit {
			v.bytes(lane, ptx.SharedSpace, box.Swizzled(r.Shared+i), bulkUnit)
		}
	}
	for r := range box.Rows() {
		v.reads, v.writes = true, false
		if !k.ToShared {
			shared(r)
			v.reads, v.writes = k.Reduce != "", true
		}
		if r.Inside > 0 {
			v.bytes(lane, ptx.GlobalSpace, r.Global, r.Inside)
		}
		if k.ToShared {
			v.reads, v.writes = false, true
			shared(r)
		}
	}
}

// bytes examines n consecutive bytes that a lane accesses, in parts that do not cross pages.
func (v *glance) bytes(lane int, space ptx.Space, addr, n uint64) {
	if space == ptx.SharedSpace {
		var ok bool
		if addr, ok = sharedPlace(space, addr); !ok {
			return
		}
	} else if space == ptx.NoSpace {
		space, addr = program.Window(addr)
	}
	n = min(n, shape.MaxShared) // one side is shared memory: with more the instruction faults
	whole := v.site
	for n > 0 {
		part := *whole
		part.size = min(n, memcheck.PageBytes-addr%memcheck.PageBytes)
		v.site = &part
		v.lane(lane, space, addr)
		addr, n = addr+part.size, n-part.size
	}
	v.site = whole
}

// product examines the matrices in shared memory that warps multiply.
func (v *glance) product() {
	g, in, k := v.g, v.in, v.in.K.(*matrix.GroupProduct)
	v.reads = true
	g.eachWarp(func(base int, active uint32) {
		lane := base + trailing(uint64(active))
		if in.A >= 0 {
			first := int(g.threadOf[base]) / shape.WarpSize % warpgroup * k.Left.Rows
			v.matrix(lane, matrix.Descriptor(g.r64.lane(in.A, lane)), k.A.Bits()/8, first, k.Left.Rows, k.Left.Cols, k.ByColumnsA)
		}
		v.matrix(lane, matrix.Descriptor(g.r64.lane(in.B, lane)), k.B.Bits()/8, 0, k.N, k.K, k.ByColumnsB)
	})
}

// matrix examines lines of a matrix. Consecutive elements in the same word of four bytes are examined
// once.
func (v *glance) matrix(lane int, d matrix.Descriptor, size, first, lines, length int, across bool) {
	last := ^uint64(0)
	for i := range lines * length {
		outer, inner := i/length, i%length
		if across {
			outer, inner = i%lines, i/lines
		}
		if at := d.Address(uint64(first+outer), uint64(inner), uint64(size), across) &^ 3; at != last {
			v.lane(lane, ptx.SharedSpace, at)
			last = at
		}
	}
}
