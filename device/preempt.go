package device

// Preempter is what a context offers whose kernels can be stopped between any
// two instructions. Real GPUs have none: nothing may depend on it that has no
// other way.
//
// To move a context in the middle of its kernels: Suspend, Stopped, copy memory
// and variables out through a new stream, Close; then elsewhere open the same
// arena, load (and unload) the same images in the same order, copy all in, and
// Restore each kernel. All other work that has not ended is not part of it:
// submit it again.
type Preempter interface {
	// Suspend holds all streams that exist: their kernels stop between two
	// instructions and nothing of theirs begins. It returns when none of them
	// touches memory any more. Streams made after it run as ever, so memory can
	// be copied away, unmapped, mapped and copied back while the others are
	// held. Functions that Call runs are not waited for.
	Suspend() error
	// Resume lets the held streams go on.
	Resume() error
	// Stopped returns, for each held stream whose oldest work that has not
	// ended is a kernel, that kernel, in the order in which the streams were
	// made. The context must be suspended, and stays so.
	Stopped() ([]StoppedKernel, error)
	// Restore gives a stream that has no work a kernel in the middle of its
	// run, which goes on at once unless the stream is held. It refuses damaged
	// bytes, another arena, and modules that differ or lie elsewhere, and then
	// changes nothing.
	Restore(s Stream, state []byte) error
}

// StoppedKernel is a kernel between two instructions.
type StoppedKernel struct {
	Stream   Stream
	Function string
	State    []byte // for Restore, on any device of the same backend
}
