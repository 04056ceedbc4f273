package simt

import "muster/ptx"

// Clusters: blocks that see each other's shared memory. The blocks of a cluster are
// always in one team, one behind the other in the order of their ranks, so that
// reaching another block is looking up another view.

// An address of shared memory from clusterWindow on is one of a block of the cluster: its
// rank plus one, times clusterWindow, and the address there. A block's own have both
// forms.
const clusterWindow = 1 << 24

// sharedOf returns the shared memory that an address of a lane means, and the address in it.
func (g *gang) sharedOf(lane int, addr uint64) (view, uint64) {
	b := int(g.blockOf[lane])
	if addr < clusterWindow {
		return g.team.shared[b], addr
	}
	size := g.team.x.cluster
	if rank := addr/clusterWindow - 1; rank < uint64(size) {
		return g.team.shared[b-b%size+int(rank)], addr % clusterWindow
	}
	return view{}, addr
}

// clusterSpecial returns a special register that has to do with the place of a block.
func (g *gang) clusterSpecial(s source, block Dim) uint32 {
	x := g.team.x
	c := x.launch.Cluster
	if c == (Dim{}) {
		c = Dim{1, 1, 1}
	}
	n := x.clusters()
	switch s {
	case clusterCtaX:
		return block.X % c.X
	case clusterCtaY:
		return block.Y % c.Y
	case clusterCtaZ:
		return block.Z % c.Z
	case clusterIDX:
		return block.X / c.X
	case clusterIDY:
		return block.Y / c.Y
	case clusterIDZ:
		return block.Z / c.Z
	case clusterSizeX:
		return c.X
	case clusterSizeY:
		return c.Y
	case clusterSizeZ:
		return c.Z
	case clustersX:
		return n.X
	case clustersY:
		return n.Y
	}
	return n.Z
}

// runMapAddress: d: the address a in shared memory, as that of the block with rank b; size: bytes.
func runMapAddress[T regval](g *gang, in *inst) {
	r := fileOf[T](g)
	var d [maxWidth]T
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr := uint64(r.lane(in.a, lane))
		rest, within := addr&^(1<<32-1), addr%clusterWindow
		d[lane] = T(rest | uint64(uint32(g.r32.lane(in.b, lane)+1)*clusterWindow) | within)
	}
	v := r.partial(g, in, in.d)
	for lane := g.first; lane < g.end; lane++ {
		if g.mask.has(lane) {
			v[lane] = d[lane]
		}
	}
}

// runBlockRank: d: the rank of the block whose shared memory has address a.
func runBlockRank[T regval](g *gang, in *inst) {
	r := fileOf[T](g)
	var d [maxWidth]uint32
	for lane := g.first; lane < g.end; lane++ {
		d[lane] = uint32(r.lane(in.a, lane)) / clusterWindow
		if d[lane]--; int32(d[lane]) < 0 {
			d[lane] = g.special(clusterRank, lane)
		}
	}
	g.writeLanes32(in, in.d, &d)
}

// runExplicitCluster: d: whether the launch, or the kernel, says how large clusters are.
func runExplicitCluster(g *gang, in *inst) {
	var m mask
	if g.team.x.launch.Cluster != (Dim{}) {
		m = g.mask
	}
	g.setPredicate(in.d, m)
}

// together says whether all threads that a barrier waits for are there, seen from a block.
func (t *team) together(b, number int) bool {
	bar := &t.bars[b][number]
	arrived, want := bar.arrived, bar.expected
	if want == 0 {
		want = t.live[b]
	}
	if number == clusterBarrier {
		arrived, want = 0, 0
		for first := b - b%t.x.cluster; first < len(t.live) && first/t.x.cluster == b/t.x.cluster; first++ {
			arrived, want = arrived+t.bars[first][number].arrived, want+t.live[first]
		}
	}
	return arrived > 0 && arrived >= want
}

// mapAddress lowers mapa.
func (l *lowering) mapAddress(in *ptx.Instruction) {
	l.only(in, "shared::cluster")
	l.wants(in, 3)
	t := in.Type(0)
	if t != ptx.U32 && t != ptx.U64 {
		l.refuse("this form is not supported")
	}
	run := runMapAddress[uint32]
	if t == ptx.U64 {
		run = runMapAddress[uint64]
	}
	a, b, d := l.src(&in.Operands[1], t), l.src(&in.Operands[2], ptx.U32), l.dst(&in.Operands[0], t)
	l.emit(op{inst: inst{run: run, a: a.id, b: b.id, d: d.id}, ca: a.class, cb: bits32, cd: d.class, pure: true})
}

// blockRank lowers getctarank.
func (l *lowering) blockRank(in *ptx.Instruction) {
	l.only(in, "shared::cluster")
	l.wants(in, 2)
	t := in.Type(0)
	if t != ptx.U32 && t != ptx.U64 {
		l.refuse("this form is not supported")
	}
	run := runBlockRank[uint32]
	if t == ptx.U64 {
		run = runBlockRank[uint64]
	}
	a, d := l.src(&in.Operands[1], t), l.dst(&in.Operands[0], ptx.U32)
	l.emit(op{inst: inst{run: run, a: a.id, d: d.id}, ca: a.class, cd: bits32, pure: true})
}

// clusterBarrier lowers barrier.cluster.
func (l *lowering) clusterBarrier(in *ptx.Instruction) {
	l.only(in, "cluster", "arrive", "wait", "aligned", "release", "relaxed", "acquire")
	l.wants(in, 0)
	mode := l.one(in, map[string]uint8{"arrive": clusterArrive, "wait": clusterWait})
	l.emit(op{inst: inst{flow: flowBarrier, mode: mode, b: -1, c: -1, d: -1}})
}
