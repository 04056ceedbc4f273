// Package cuda is a real GPU behind the device contract: it calls NVIDIA's driver
// library, which Devices opens at run time. Nothing of CUDA is
// needed to build it. It must not know who uses it, nor other backends.
//
// The driver does not allow all that the contract hopes for:
//
//   - The contexts of one process share a fault: after an illegal access in
//     one, the driver answers all of them with it. They also share addresses,
//     so two cannot have the same arena. A caller that wants isolation must give
//     each context its own process.
//   - A kernel cannot be stopped. Close waits for the work that was submitted.
//   - What kernels print goes to the standard output of the process. With
//     Options.TakeStdout it goes to Config.Print, and the messages of failed assertions,
//     which the driver writes to standard error, go to Config.Complain.
//   - Unmap of a part of memory that was mapped as one piece waits for all
//     work of the context, and blocks new work meanwhile. Pieces are the aligned
//     32 MiB within a call of Map, and single granules for the rest of it.
//   - Copies of host memory that is not pinned go through a pinned buffer of
//     the stream; submitting one blocks while that is full.
//
// Locks are taken in this order: textures.mu, queue.mu, then bulk.mu, queue.life,
// event.mu or the context's mapping or stack.mu, then caller.use, then
// launcher.mu, then the context's mu, then pins.mu or caller.mu. The context's mu is never
// held while the driver waits for submitted work, nor is mapping, except in split and Close.
package cuda

import "errors"

// ErrNoDriver says that there is no driver, or no device that it can use. Errors
// that wrap it say why.
var ErrNoDriver = errors.New("no usable NVIDIA driver")

// Options say where the driver is.
type Options struct {
	// Library is the driver's path; "" for libcuda.so.1 where the system
	// looks for libraries. Muster's own library of that name is refused.
	Library string
	// TakeStdout redirects the process's standard output to Config.Print, from the
	// first context with a Config.Print on. It is for processes that have no other use
	// for standard output. From the first context on that also has a Config.Complain,
	// standard error is a pipe from which failed assertions are picked out. All else that
	// is written there is passed on a moment later: a process that must log up to its
	// very end needs another descriptor for that.
	TakeStdout bool
}

const defaultLibrary = "libcuda.so.1"
