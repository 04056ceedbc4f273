package program

import (
	"muster/ptx"
	"muster/ptx/simt/tensorbox"
	"muster/ptx/simt/tensormap"
)

// The modes of redux of floats: reduxMin or reduxMax, with any of the flags.
const (
	ReduxMin = iota
	ReduxMax
	ReduxAbs = 1 << iota
	ReduxNaN
)

// The modes of warp instructions.
const (
	ShflUp = iota
	ShflDown
	ShflBfly
	ShflIdx

	VoteAll
	VoteAny
	VoteUni
	VoteBallot

	ReduxAdd
	ReduxMinSigned
	ReduxMinUnsigned
	ReduxMaxSigned
	ReduxMaxUnsigned
	ReduxAnd
	ReduxOr
	reduxXor
)

// The operations of barriers; the operands are a: number, b: threads (or -1),
// c: predicate (or -1), d: result.
const (
	BarSync = iota
	BarArrive
	BarPopc
	BarAnd
	BarOr
	ClusterArrive // of the cluster's barrier: it has no operands
	ClusterWait
)

// The operations of mbarrier. mbarrierArrive may be combined with the two flags.
const (
	MbarrierInit uint8 = iota
	MbarrierInvalidate
	MbarrierExpect
	MbarrierComplete
	MbarrierTest   // whether the phase of a state is over
	MbarrierParity // whether the phase of a parity is over
	mbarrierPending
	MbarrierArrive
	ArriveExpecting = 1 << 4 // b is bytes to expect, else the number of arrivals
	ArriveDropping  = 1 << 5
)

// The modes of operations on predicates: what is inverted.
const (
	InvertA = 1 << iota
	InvertB
)

// Touch says how an instruction accesses memory, or orders accesses, for a checker.
type Touch uint8

const (
	TouchNothing Touch = iota
	TouchLoad          // each lane, len(list) elements one after the other
	TouchStore
	TouchAtomic
	TouchCopy   // cp.async
	TouchMatrix // stmatrix: writes rows of 16 bytes
	TouchRows   // ldmatrix: reads rows of 16 bytes
	TouchLoadTile
	TouchStoreTile // wmma: the elements of a fragment
	TouchFence
	TouchTensorMap // tensormap.replace, tensormap.cp_fenceproxy
	TouchMbarrier
	TouchArrive    // cp.async.mbarrier.arrive without .noinc
	TouchBulk      // cp.async.bulk
	TouchBulkZero  // st.bulk
	TouchWaitGroup // cp.async.bulk.wait_group
	TouchProduct   // wgmma: matrices in shared memory
	TouchOther     // accesses memory in a way that the checker does not follow
)

// Transposed is the mode of stmatrix.trans and ldmatrix.trans.
const Transposed = 1

// TensorCopy is what cp.async.bulk.tensor and cp.reduce.async.bulk.tensor do beyond their
// registers.
type TensorCopy struct {
	Rank     int
	ToShared bool
	Reduce   string // the operation; the map has the type. "": it copies
	Mode     tensorbox.Mode
}

// Coordinates returns how many coordinates an instruction has.
func (k *TensorCopy) Coordinates() int {
	if k.Mode == tensorbox.Rows {
		return 1 + tensorbox.NamedRows
	}
	return k.Rank
}

// MapPart is what tensormap.replace replaces.
type MapPart struct {
	Field   tensormap.Field
	Element int
}

// BulkCopy is what cp.async.bulk and cp.reduce.async.bulk do beyond their registers.
type BulkCopy struct {
	To, From ptx.Space // NoSpace: generic
	Reduce   AtomicOp  // nil: it copies
	Size     uint64    // of an element, if it reduces
}

// geometry is how an instruction addresses a texture or a surface.
type geometry struct {
	Dims    int // coordinates of an element
	Layered bool
	Cube    bool
	vector  int // elements of the operand with the coordinates; PTX ignores some of them
}

// used is how many elements of the vector are coordinates.
func (g geometry) used() int {
	n := g.Dims
	if g.Cube {
		n = 3
	}
	if g.Layered {
		n++
	}
	return n
}

// TextureOp is what tex, tld4, suld and sust do beyond their registers.
type TextureOp struct {
	geometry
	Integer bool // coordinates are integers
	Level   string
	Channel int // of tld4; -1 for tex
	Clamp   string
	Bytes   uint64 // of a channel, of surfaces
	Query   string
}
