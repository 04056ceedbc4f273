package simt

import (
	"encoding/binary"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

// class is the kind of a register.
type class uint8

const (
	none class = iota
	bits32
	bits64
	predicate
)

// source says where the value of a constant slot comes from.
type source uint8

const (
	fromLiteral source = iota // value
	fromParam                 // value: offset, size
	tidX
	tidY
	tidZ
	ntidX
	ntidY
	ntidZ
	ctaidX
	ctaidY
	ctaidZ
	nctaidX
	nctaidY
	nctaidZ
	clusterRank
	clusterCtaX
	clusterCtaY
	clusterCtaZ
	clusterIDX
	clusterIDY
	clusterIDZ
	clusterSize
	clusterSizeX
	clusterSizeY
	clusterSizeZ
	clustersX
	clustersY
	clustersZ
	laneID
	warpID
	nwarpID
	laneMaskEq
	laneMaskLe
	laneMaskLt
	laneMaskGe
	laneMaskGt
	dynamicShared  // bytes
	dynamicAddress // of dynamic shared memory, plus value
	staticAddress  // of a static shared variable, plus value; a literal once the kernel is put together
	totalShared    // bytes
	warpSize
)

// constant is a slot that no instruction writes. Literals, parameters, addresses of
// variables and all special registers except the clocks are constants: they are
// filled in before the first instruction.
type constant struct {
	class class
	slot  int32
	from  source
	size  uint8 // bytes of a parameter
	sign  bool  // it is widened with its sign
	value uint64
	of    *ptx.Variable // whose address it is
}

// perBlock says whether the value depends on the block. Such constants are filled
// in each time a team begins; the others once, when the gang is made.
func (c *constant) perBlock() bool {
	return c.from >= ctaidX && c.from <= ctaidZ || c.from >= clusterRank && c.from <= clusterIDZ
}

// ofGrid says whether a special register depends on the size of the grid.
func (s source) ofGrid() bool {
	return s >= nctaidX && s <= nctaidZ || s >= clusterSize && s <= clustersZ
}

// fill gives the slot its value in all lanes of a gang.
func (c *constant) fill(g *gang) {
	switch c.from {
	case fromLiteral:
		c.set(g, c.value)
	case fromParam:
		c.set(g, g.team.x.param(int(c.value), int(c.size), c.sign))
	case dynamicAddress:
		c.set(g, uint64(round(g.team.x.static, 16))+c.value)
	default:
		if c.perBlock() {
			c.fillBlocks(g)
			return
		}
		v := g.r32.values[c.slot]
		for lane := range v {
			v[lane] = g.special(c.from, lane)
		}
		g.r32.setExpanded(c.slot)
		g.r32.regular(c.slot)
	}
}

// fillBlocks fills a constant that is the same in all lanes of a block: uniform if
// the gang has one block, compressed if no chunk has lanes of two blocks.
func (c *constant) fillBlocks(g *gang) {
	x := g.team.x
	if x.perGang == 1 {
		g.r32.setUniform(c.slot, g.special(c.from, 0))
		return
	}
	if x.stride%chunk == 0 {
		bases := g.r32.bases[c.slot]
		for i := range bases {
			if lane := i * chunk; lane%x.stride == 0 {
				bases[i] = g.special(c.from, lane)
			} else {
				bases[i] = bases[i-1]
			}
		}
		g.r32.setCompressed(c.slot, 0)
		return
	}
	v := g.r32.values[c.slot]
	for lane := range v {
		v[lane] = g.special(c.from, lane)
	}
	g.r32.setExpanded(c.slot)
}

func (c *constant) set(g *gang, v uint64) {
	if c.class == bits64 {
		g.r64.setUniform(c.slot, v)
	} else {
		g.r32.setUniform(c.slot, uint32(v))
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
func (g *gang) special(s source, lane int) uint32 {
	x := g.team.x
	thread := uint64(g.threadOf[lane])
	inWarp := uint32(lane % g.warp)
	switch s {
	case tidX:
		return shape.Split(thread, x.launch.Block).X
	case tidY:
		return shape.Split(thread, x.launch.Block).Y
	case tidZ:
		return shape.Split(thread, x.launch.Block).Z
	case ntidX:
		return x.launch.Block.X
	case ntidY:
		return x.launch.Block.Y
	case ntidZ:
		return x.launch.Block.Z
	case ctaidX:
		return shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid).X
	case ctaidY:
		return shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid).Y
	case ctaidZ:
		return shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid).Z
	case nctaidX:
		return x.launch.Grid.X
	case nctaidY:
		return x.launch.Grid.Y
	case nctaidZ:
		return x.launch.Grid.Z
	case clusterRank:
		return uint32(g.blockOf[lane]) % uint32(x.cluster)
	case clusterSize:
		return uint32(x.cluster)
	case laneID:
		return inWarp
	case warpID:
		return uint32(thread / shape.WarpSize)
	case nwarpID:
		return uint32((x.launch.Block.Count() + shape.WarpSize - 1) / shape.WarpSize)
	case laneMaskEq:
		return 1 << inWarp
	case laneMaskLt:
		return 1<<inWarp - 1
	case laneMaskLe:
		return 1<<inWarp | (1<<inWarp - 1)
	case laneMaskGe:
		return ^uint32(1<<inWarp - 1)
	case laneMaskGt:
		return ^uint32(1<<inWarp | (1<<inWarp - 1))
	case dynamicShared:
		return uint32(x.launch.Shared)
	case totalShared:
		return uint32(sharedBytes(x.kernel.Shared, x.launch.Shared)) // without the guards of a checked launch
	case warpSize:
		return shape.WarpSize
	}
	if s >= clusterCtaX && s <= clustersZ {
		return g.clusterSpecial(s, shape.Split(g.team.blocks[g.blockOf[lane]], x.launch.Grid))
	}
	panic("simt: unknown special register")
}
