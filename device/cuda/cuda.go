// Package cuda is a real GPU behind the device contract: NVIDIA's driver
// library, which is opened when a program asks for devices. Nothing of CUDA is
// needed to build it. It must not know who uses it, nor other backends.
//
// What differs from the contract's best, by the nature of the driver:
//
//   - The contexts of one process share a fault: after an illegal access in
//     one, the driver answers all of them with it. They also share addresses,
//     so two cannot have the same arena. Whoever wants isolation gives each
//     context a process.
//   - A kernel cannot be stopped. Close waits for what was submitted.
//   - What kernels print goes to the standard output of the process. With
//     Options.TakeStdout it goes to Config.Print, when a stream, an event or the
//     context is synchronised. What the driver writes of failed assertions to
//     standard error goes to Config.Complain.
//   - Unmap of a part of memory that was mapped as one piece waits for all
//     work of the context, and holds new work back. Pieces are the aligned
//     32 MiB within a call of Map, and single granules for the rest of it.
//   - Copies of host memory that is not pinned go through a pinned buffer of
//     the stream's; submitting one waits while that is full.
//
// Locks are taken in this order: stream.mu, then stream.life, event.mu or the
// context's mapping or stacks, then the context's use, then its mu. Only
// stream.mu and use may be held while the driver waits for work.
package cuda

import "errors"

// ErrNoDriver says that there is no driver, or no device that it can use. It
// is wrapped with why.
var ErrNoDriver = errors.New("no usable NVIDIA driver")

// Options say where the driver is.
type Options struct {
	// Library is the driver's path; "" for libcuda.so.1 where the system
	// looks for libraries. Muster's own library of that name is refused.
	Library string
	// TakeStdout gives the process's standard output to what kernels print,
	// from the first context with a Config.Print on: for processes that have
	// no other use for it. From the first context on that has a Config.Complain
	// too, standard error is read for failed assertions; what else is written
	// there goes where it went, a moment later: a process that logs until its very
	// end needs another descriptor for that.
	TakeStdout bool
}

const defaultLibrary = "libcuda.so.1"
