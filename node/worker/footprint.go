package worker

// footprint is what is kept on the host for a client, as far as the client decides
// how much. The daemon counts it against the client's user and the swap area
// (KindCommit), so that nobody has memory of the node that nobody counts.
type footprint struct {
	memory    uint64 // chunks that allocations touch: they may all have to be on the host
	images    uint64 // of modules: on their way, loaded, or unloaded and still in the journal
	variables uint64 // contents of module variables, which are saved when the client leaves a device
	waiting   uint64 // messages read ahead with their data, and copies of data that wait for a stream
}

// freeFootprint is what each client may have beside its memory without being
// counted: a program that allocates all that it may have must be able to load its
// kernels. The number of clients bounds it.
const freeFootprint = 16 << 20

// bytes is what the daemon is asked for. What comes to more than can be counted
// cannot be had.
func (f footprint) bytes() uint64 {
	beside := sum(sum(f.images, f.variables), f.waiting)
	return sum(f.memory, beside-min(beside, freeFootprint))
}

// sum adds, and stays at the largest number.
func sum(a, b uint64) uint64 {
	if a+b < a {
		return ^uint64(0)
	}
	return a + b
}
