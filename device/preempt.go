package device

// Preempter is what a context offers whose kernels can be stopped between any
// two instructions. Real GPUs have none: nothing may depend on it that has no
// other way.
//
// To move a context in the middle of a kernel: Suspend, Snapshot, copy memory
// and variables out through a new stream, Close; then elsewhere open the same
// arena, load the same images in the same order, make as many streams, copy
// all in, Restore. Work that was waiting behind the kernels is not part of a
// snapshot: submit it again.
type Preempter interface {
	// Suspend holds all streams that exist: their kernels stop between two
	// instructions and nothing of theirs begins. It returns when none of them
	// touches memory any more. Streams made after it run as ever, so memory can
	// be copied away, unmapped, mapped and copied back while the others are
	// held. Functions that Call runs are not waited for.
	Suspend() error
	// Resume lets the held streams go on.
	Resume() error
	// Snapshot returns the kernels that have begun and not ended, as bytes:
	// their state, their streams and their functions. The context must be
	// suspended, and stays so.
	Snapshot() ([]byte, error)
	// Restore puts the kernels of a snapshot at the head of streams that have
	// no work: the n-th stream made here takes the kernel of the n-th stream
	// there. They go on from where they were stopped, at once unless the
	// context is suspended. It refuses damaged bytes, and modules that differ
	// or lie elsewhere, and then changes nothing.
	Restore(snapshot []byte) error
}
