// Package worker is the process that runs one client's GPU work. It carries the
// client's messages from the ring, and the daemon's words from the control
// connection, to the client's core (node/clientcore), and performs what the core
// decides, on devices and on the host copies of the client's memory.
//
// All that is known of the client is the core's, and is a value. The worker owns
// what exists in this process only:
//
//   - a gpu for each place (a device, as vmm names them) where the client has a
//     context, with the streams, events and modules in it, by the core's numbers;
//   - the host copies of the client's memory, and the memory it shares with the
//     program;
//   - goroutines that wait for the device on behalf of single calls.
//
// One goroutine, the loop in worker.go, calls the core: messages, grants and
// revocations are handled one after the other. It never waits for the device on
// behalf of a single call: goroutines that only know a stream or an event do
// that, and answer when it is done. What they share with the loop has a lock:
// staging memory, the sticky result, the program's functions, printed text, and
// what the program's user is told.
//
// Where the loop must wait, for a stream to take more work or for all work to
// end, and streams wait for functions of the program's, it reads the messages
// ahead (waits.go): one of them says that a function has returned.
//
// What happens on grant, revoke, loss and fault is told in the comment of
// node/clientcore. The package knows no policy, no socket of the daemon's and no
// backend of devices.
package worker
