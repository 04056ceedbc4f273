// Package worker is the process that runs one client's GPU work: it reads the
// client's messages from the ring, keeps its GPU virtual memory, and uses the
// device that the daemon granted, for as long as it is granted.
//
// One goroutine, the loop in session.go, owns all state: messages, grants and
// revocations are handled one after the other. It never waits for the device on
// behalf of a single call: goroutines that only know a stream or an event do
// that, and answer when it is done. What they share with the loop has a lock:
// staging memory, the sticky result, the program's functions.
//
// Where the loop must wait, for a stream to take more work or for all work to
// end, and streams wait for functions of the program's, it reads the messages
// ahead (backlog.go): one of them says that a function has returned.
//
// Until the first launch there is no device. Allocations, copies and fills are
// served from the host copies of the client's memory, and what an image holds
// is found out by inspection. A launch asks the daemon for a lease; then what
// the kernel needs is mapped and copied in bulk. When the lease is revoked,
// what runs may end, the memory moves to the host copies, and the client is
// where it was before its first launch. The next lease may be for another
// device.
//
// The package knows no policy, no socket of the daemon's and no backend of
// devices.
package worker
