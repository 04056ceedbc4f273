package device

// Preempter is implemented by contexts whose kernels can be stopped between any
// two instructions. Real GPUs cannot do that, so every caller must have another way.
//
// To move a context in the middle of its kernels: Suspend, Stopped, copy memory
// and variables out through a new stream, Close; then elsewhere open the same
// arena, load (and unload) the same images in the same order, copy all in, and
// Restore each kernel. Other work that has not ended is not saved: the caller must
// submit it again.
type Preempter interface {
	// Suspend holds all existing streams: their kernels stop between two
	// instructions and their queued work does not begin. It returns when none of
	// them touches memory any more. Streams made later are not held, so the caller
	// can use one to copy memory away, and unmap, map and copy it back meanwhile.
	// Suspend does not wait for functions that Call is running.
	Suspend() error
	// Resume lets the held streams continue.
	Resume() error
	// Stopped returns, for each held stream whose oldest work that has not
	// ended is a kernel, that kernel, in the order in which the streams were
	// made. The context must be suspended, and stays so.
	Stopped() ([]StoppedKernel, error)
	// Restore puts a stopped kernel on a stream that has no work. The kernel
	// continues at once unless the stream is held. Restore refuses damaged bytes,
	// another arena, and modules that differ or have other addresses, and then
	// changes nothing.
	Restore(s Stream, state []byte) error
}

// StoppedKernel is a kernel between two instructions.
type StoppedKernel struct {
	Stream   Stream
	Function string
	State    []byte // for Restore, on any device of the same backend
}
