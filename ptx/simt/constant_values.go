package simt

import (
	"encoding/binary"

	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
)

// fill gives the slot of a constant its value in all lanes of a gang.
func (g *gang) fill(c *program.Constant) {
	switch c.From {
	case program.FromLiteral:
		g.setConstant(c, c.Value)
	case program.FromParam:
		g.setConstant(c, g.team.x.param(int(c.Value), int(c.Size), c.Sign))
	case program.DynamicAddress:
		g.setConstant(c, uint64(shape.Round(g.team.x.static, 16))+c.Value)
	default:
		if c.PerBlock() {
			g.fillBlocks(c)
			return
		}
		v := g.r32.values[c.Slot]
		for lane := range v {
			v[lane] = g.special(c.From, lane)
		}
		g.r32.setExpanded(c.Slot)
		g.r32.regular(c.Slot)
	}
}

// fillBlocks fills a constant that is the same in all lanes of a block: uniform if
// the gang has one block, compressed if no chunk has lanes of two blocks.
func (g *gang) fillBlocks(c *program.Constant) {
	x := g.team.x
	if x.perGang == 1 {
		g.r32.setUniform(c.Slot, g.special(c.From, 0))
		return
	}
	if x.stride%chunk == 0 {
		bases := g.r32.bases[c.Slot]
		for i := range bases {
			if lane := i * chunk; lane%x.stride == 0 {
				bases[i] = g.special(c.From, lane)
			} else {
				bases[i] = bases[i-1]
			}
		}
		g.r32.setCompressed(c.Slot, 0)
		return
	}
	v := g.r32.values[c.Slot]
	for lane := range v {
		v[lane] = g.special(c.From, lane)
	}
	g.r32.setExpanded(c.Slot)
}

func (g *gang) setConstant(c *program.Constant, v uint64) {
	if c.Class == program.Bits64 {
		g.r64.setUniform(c.Slot, v)
	} else {
		g.r32.setUniform(c.Slot, uint32(v))
	}
}

// param reads a value from the parameters of the kernel.
func (x *Execution) param(offset, size int, signed bool) uint64 {
	var b [8]byte
	copy(b[:size], x.paramBytes[offset:])
	v := binary.LittleEndian.Uint64(b[:])
	if signed {
		shift := 64 - 8*size
		v = uint64(int64(v<<shift) >> shift)
	}
	return v
}

// special returns the value of a special register in one lane. Lanes without a
// thread continue the pattern, so that the register stays regular.
func (g *gang) special(s program.Source, lane int) uint32 {
	x := g.team.x
	thread := uint64(g.threadOf[lane])
	inWarp := uint32(lane % g.warp)
	switch s {
	case program.TidX:
		return shape.Split(thread, x.launch.Block).X
	case program.TidY:
		return shape.Split(thread, x.launch.Block).Y
	case program.TidZ:
		return shape.Split(thread, x.launch.Block).Z
	case program.NtidX:
		return x.launch.Block.X
	case program.NtidY:
		return x.launch.Block.Y
	case program.NtidZ:
		return x.launch.Block.Z
	case program.CtaidX:
		return shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid).X
	case program.CtaidY:
		return shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid).Y
	case program.CtaidZ:
		return shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid).Z
	case program.NctaidX:
		return x.launch.Grid.X
	case program.NctaidY:
		return x.launch.Grid.Y
	case program.NctaidZ:
		return x.launch.Grid.Z
	case program.ClusterRank:
		return uint32(g.blockOf[lane]) % uint32(x.cluster)
	case program.ClusterSize:
		return uint32(x.cluster)
	case program.LaneID:
		return inWarp
	case program.WarpID:
		return uint32(thread / shape.WarpSize)
	case program.NwarpID:
		return uint32((x.launch.Block.Count() + shape.WarpSize - 1) / shape.WarpSize)
	case program.LaneMaskEq:
		return 1 << inWarp
	case program.LaneMaskLt:
		return 1<<inWarp - 1
	case program.LaneMaskLe:
		return 1<<inWarp | (1<<inWarp - 1)
	case program.LaneMaskGe:
		return ^uint32(1<<inWarp - 1)
	case program.LaneMaskGt:
		return ^uint32(1<<inWarp | (1<<inWarp - 1))
	case program.DynamicShared:
		return uint32(x.launch.Shared)
	case program.TotalShared:
		return uint32(sharedBytes(x.kernel.Shared, x.launch.Shared)) // without the guards of a checked launch
	case program.WarpWidth:
		return shape.WarpSize
	}
	if s >= program.ClusterCtaX && s <= program.ClustersZ {
		return g.clusterSpecial(s, shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid))
	}
	panic("simt: unknown special register")
}
