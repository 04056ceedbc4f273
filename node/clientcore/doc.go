// Package clientcore is all that is known of one client, as a value: its lease,
// modules, streams, events, host functions, the messages it has sent and that
// wait, and the directory of its memory (vmm). It decides what each message of
// the client and each word of the daemon means, and says what is to be done.
//
// It is a pure core, as node/vgpu is for the dispatcher: events go in with their
// time, operations come out, in the order in which they are to be performed. It
// has no clock, lock, goroutine, file or connection, and touches no memory of
// the client's. An executor (node/worker) performs the operations on devices and
// host memory:
//
//	ops, err := core.Message(now, m)     // or any other event
//	for len(ops) > 0 {
//		outcome, asked := perform(ops)   // in order, up to the first that fails
//		if !asked {
//			break
//		}
//		ops, err = core.Outcome(now, outcome)
//	}
//
// An error of an event ends the client: it sent what no program sends, or its
// memory could not be moved.
//
// # Operations and their outcomes
//
// Some operations ask (Kind.Asks): what comes next depends on how they end. Such
// an operation is the last of its list, and the executor hands in its Outcome
// before any other event. Of the others only failures are handed in, and what
// stood behind a failed operation in its list is not performed. ReplyAfter is
// performed when the executor has made sure that the reply will be sent: what
// the executor finds out while it waits, it hands in with Found.
//
// # A message that cannot be done yet
//
// A message is handled from its beginning again each time that something it
// waits for has come: a lease, swap room, a context, memory on the device. Its
// handler looks for what is missing, asks for the first of it, and changes
// nothing that counts before all of it is there. So the message itself is all
// that must be remembered of it. Messages that come meanwhile wait in a queue,
// but for those about the program's own functions, which others may wait for
// (Urgent).
//
// # Who owns which state
//
// The core owns what a client has and what it was told; it can be saved at any
// time between two events and restored elsewhere (State). The executor owns what
// only exists in its process: open contexts with their streams, events and loaded
// modules, by the numbers that the core gives them; the host copies of memory;
// goroutines that wait. Of a context the core knows only that it is there
// (contexts), so that an executor which has none can be told what to open.
//
//   - Grant: the client may use a device. Nothing happens until a message needs
//     it; then Open makes a context there as the journal of modules says, Move
//     brings memory, and the message goes on.
//   - Revoke: Leave waits for what runs, moves the client's memory to the host
//     and the times of events into the core. For memory the context is closed
//     too, with the contents of variables kept in the core; otherwise it stays
//     open for the next lease, and the daemon is told what it takes. A revocation
//     waits while functions of the program's are under way.
//   - Loss of a device: the context is forgotten without a word to it. If it had
//     the only copy of anything, that is a fault; otherwise the client goes on.
//   - Fault: every context is closed, every later call answers with the fault's
//     result until a reset, and the daemon is told that the lease has ended. The
//     program's user is told where it happened.
//   - Reset: an empty client, in a new world: what is found out later about the
//     work of the one before does not count.
package clientcore
