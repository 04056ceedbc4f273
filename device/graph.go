package device

// Graph is work that is submitted as a whole, any number of times. Two launches of it must not
// overlap.
type Graph interface {
	// Launch submits the whole graph to a stream of its context.
	Launch(on Stream) error
	// Holds says whether the graph can still be launched: no memory that it copies or fills was
	// unmapped since it was made, and it needs no more stack than it was made with.
	Holds() bool
	// Close frees the graph. Launches that were made before still run to their end.
	Close() error
}

// GraphNode is one piece of work in a graph: a kernel if Function is set, a fill if Element is
// not 0, or else a copy.
type GraphNode struct {
	After []int // indexes of earlier nodes that must have ended before it begins

	Function Function
	How      Launch

	// Height rows of Width bytes, Pitch bytes apart.
	To, From      uint64
	ToPitch       uint64
	FromPitch     uint64
	Width, Height uint64
	Value         uint32 // of a fill
	Element       int    // bytes of Value that a fill repeats: 1, 2 or 4
}
