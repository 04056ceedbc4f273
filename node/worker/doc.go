// Package worker is the process that runs one client's GPU work. It hands the client's messages
// from the ring, and the daemon's messages from the control connection, to the client's core
// (node/clientcore), and performs the operations that the core decides on, on devices and on the
// host copies of the client's memory.
//
// Everything that is known about the client is in the core, as a value. The worker owns what exists
// in this process only:
//
//   - a gpu for each place (a device, as vmm names them) where the client has a
//     context, with its streams, events and modules under the core's numbers;
//   - the host copies of the client's memory, and the memory it shares with the
//     program;
//   - goroutines that wait for the device on behalf of single calls.
//
// One goroutine, the loop in worker.go, calls the core, so messages, grants and revocations are
// handled one at a time and the core needs no lock. The loop never waits for the device on behalf
// of a single call: it starts a goroutine that knows only a stream or an event, waits for it, and
// sends the reply. What these goroutines share with the loop has a lock of its own: staging memory,
// the sticky result, the program's host functions, printed text, and what the program's user is
// told.
//
// A stream may wait for a host function of the program. If the loop must wait for that stream
// (until it accepts more work, or until all work has ended), it keeps reading messages from the
// ring (waits.go): one of them says that the function has returned, and without it the wait would
// never end.
//
// The comment of node/clientcore says what happens on grant, revocation, loss and fault. This
// package knows no policy and no device backend, and of the daemon its messages alone and, if it is
// lost, the socket at which the next one is found (package line).
package worker
