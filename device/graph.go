package device

// Grapher is what a device offers that runs many kernels, copies and fills, which depend on each
// other, as one piece of work: for each of them that costs less than to submit it.
type Grapher interface {
	// NewGraph makes a graph of a context of the device. The order of the nodes is one that their
	// dependencies allow. It refuses what the device cannot have in a graph. Before is nil, or a
	// graph in whose place the new one comes: if they differ in little the new one may be made of
	// it. In any case the caller closes it, and launches it no more.
	NewGraph(c Context, nodes []GraphNode, before Graph) (Graph, error)
}

// Graph is work that is submitted as a whole, as often as wanted. Two launches of it must not
// overlap.
type Graph interface {
	// Launch submits it all to a stream of its context.
	Launch(on Stream) error
	// Holds says whether it can still be launched: no memory that it copies or fills was
	// unmapped since it was made, and it needs no more stack than it was made with.
	Holds() bool
	// Close takes no more launches. What was launched goes on.
	Close() error
}

// GraphNode is one thing that a graph does: a kernel if there is a function, a fill if Element is
// not 0, or else a copy.
type GraphNode struct {
	After []int // earlier nodes that have ended when it begins

	Function Function
	How      Launch

	// Height rows of Width bytes, Pitch bytes apart.
	To, From      uint64
	ToPitch       uint64
	FromPitch     uint64
	Width, Height uint64
	Value         uint32 // of a fill
	Element       int    // its bytes: 1, 2 or 4
}
