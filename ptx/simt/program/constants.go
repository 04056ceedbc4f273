package program

import (
	"muster/ptx"
)

// Class is the kind of a register.
type Class uint8

const (
	NoClass Class = iota
	Bits32
	Bits64
	Predicate
)

// Source says where the value of a constant slot comes from.
type Source uint8

const (
	FromLiteral Source = iota // value
	FromParam                 // value: offset, size
	TidX
	TidY
	TidZ
	NtidX
	NtidY
	NtidZ
	CtaidX
	CtaidY
	CtaidZ
	NctaidX
	NctaidY
	NctaidZ
	ClusterRank
	ClusterCtaX
	ClusterCtaY
	ClusterCtaZ
	ClusterIDX
	ClusterIDY
	ClusterIDZ
	ClusterSize
	ClusterSizeX
	ClusterSizeY
	ClusterSizeZ
	ClustersX
	ClustersY
	ClustersZ
	LaneID
	WarpID
	NwarpID
	LaneMaskEq
	LaneMaskLe
	LaneMaskLt
	LaneMaskGe
	LaneMaskGt
	DynamicShared  // bytes
	DynamicAddress // of dynamic shared memory, plus value
	staticAddress  // of a static shared variable, plus value; a literal once the kernel is put together
	TotalShared    // bytes
	WarpWidth
)

// Constant is a slot that no instruction writes. Literals, parameters, addresses of
// variables and all special registers except the clocks are constants: they are
// filled in before the first instruction.
type Constant struct {
	Class Class
	Slot  int32
	From  Source
	Size  uint8 // bytes of a parameter
	Sign  bool  // it is widened with its sign
	Value uint64
	of    *ptx.Variable // whose address it is
}

// PerBlock says whether the value depends on the block. Such constants are filled
// in each time a team begins; the others once, when the gang is made.
func (c *Constant) PerBlock() bool {
	return c.From >= CtaidX && c.From <= CtaidZ || c.From >= ClusterRank && c.From <= ClusterIDZ
}

// OfGrid says whether a special register depends on the size of the grid.
func (s Source) OfGrid() bool {
	return s >= NctaidX && s <= NctaidZ || s >= ClusterSize && s <= ClustersZ
}
