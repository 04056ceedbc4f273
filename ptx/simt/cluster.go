package simt

import (
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
)

// Clusters: blocks that see each other's shared memory. The blocks of a cluster are
// always in one team, one behind the other in the order of their ranks, so that a lane
// reaches another block's shared memory by looking up another view of its team. One
// worker runs a team, so no lock protects that memory.

// A shared address below clusterWindow is in the lane's own block. From clusterWindow on,
// the address names a block of the lane's cluster: addr/clusterWindow is the rank of that
// block plus one, and addr%clusterWindow the address in its shared memory. mapa makes such
// addresses, also for the lane's own block. No block has as much shared memory as
// clusterWindow bytes, so the two forms cannot be confused.
const clusterWindow = 1 << 24

// sharedOf returns the block's shared memory to which a lane's address belongs, and the
// address in it. The view is empty, so that the access faults, if the address names a rank
// that the cluster does not have.
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

// clusterSpecial returns the value of a special register that depends on the cluster: the
// position of a block in its cluster, of the cluster in the grid, or the size of either.
// Without a cluster size in the launch every block is a cluster of its own.
func (g *gang) clusterSpecial(s program.Source, block shape.Dim) uint32 {
	x := g.team.x
	c := x.launch.Cluster
	if c == (shape.Dim{}) {
		c = shape.Dim{X: 1, Y: 1, Z: 1}
	}
	n := x.clusters()
	switch s {
	case program.ClusterCtaX:
		return block.X % c.X
	case program.ClusterCtaY:
		return block.Y % c.Y
	case program.ClusterCtaZ:
		return block.Z % c.Z
	case program.ClusterIDX:
		return block.X / c.X
	case program.ClusterIDY:
		return block.Y / c.Y
	case program.ClusterIDZ:
		return block.Z / c.Z
	case program.ClusterSizeX:
		return c.X
	case program.ClusterSizeY:
		return c.Y
	case program.ClusterSizeZ:
		return c.Z
	case program.ClustersX:
		return n.X
	case program.ClustersY:
		return n.Y
	}
	return n.Z
}

// inBlock returns the address of the same place in the shared memory of the block with a
// rank. The window of a generic address (the bits from 32 on) stays. An address that
// already names a rank gets the new one.
func inBlock(addr uint64, rank uint32) uint64 {
	return addr&^(1<<32-1) | uint64((rank+1)*clusterWindow) | addr%clusterWindow
}

// runMapAddress writes to d the address that a has in the shared memory of the block with
// rank b.
func runMapAddress[T regval](g *gang, in *inst) {
	r := fileOf[T](g)
	var d [maxWidth]T
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		d[lane] = T(inBlock(uint64(r.lane(in.A, lane)), g.r32.lane(in.B, lane)))
	}
	v := r.partial(g, in, in.D)
	for lane := g.first; lane < g.end; lane++ {
		if g.mask.has(lane) {
			v[lane] = d[lane]
		}
	}
}

// runBlockRank writes to d the rank of the block whose shared memory holds address a. An
// address without a rank is in the lane's own block.
func runBlockRank[T regval](g *gang, in *inst) {
	r := fileOf[T](g)
	var d [maxWidth]uint32
	for lane := g.first; lane < g.end; lane++ {
		d[lane] = uint32(r.lane(in.A, lane)) / clusterWindow
		if d[lane]--; int32(d[lane]) < 0 {
			d[lane] = g.special(program.ClusterRank, lane)
		}
	}
	g.writeLanes32(in, in.D, &d)
}

// runExplicitCluster sets predicate d if the launch or the kernel gives a cluster size.
func runExplicitCluster(g *gang, in *inst) {
	var m mask
	if g.team.x.launch.Cluster != (shape.Dim{}) {
		m = g.mask
	}
	g.setPredicate(in.D, m)
}

// together says whether all threads have arrived for which barrier number of block b waits:
// as many as the barrier expects, or else all live threads of the block. The cluster's
// barrier waits for the live threads of all blocks of b's cluster. A barrier at which no
// thread has arrived is never complete.
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
