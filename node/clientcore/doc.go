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
//	ops, err := core.Message(now, m) // or any other event
//	for err == nil && len(ops) > 0 {
//		last, outcome := perform(ops) // in order, up to the first that fails or asks
//		if last == nil {
//			break
//		}
//		ops, err = core.Outcome(now, last, outcome)
//	}
//
// An error of an event ends the client: it sent what no program sends, or its
// memory could not be moved.
//
// # Operations and their outcomes
//
// Some operations ask (Kind.Asks): what comes next depends on how they end. Such
// an operation is the last of its list, and the executor hands in its Outcome
// before any other event but UrgentMessage, Reached and Later, which are about the
// program's own functions (those of cuLaunchHostFunc): the operation may be waiting
// for one of them to return. Of the other operations only failures are handed in,
// and what stood behind a failed operation in its list is not performed. ReplyAfter
// promises a reply: it counts as performed when the executor has begun to wait for
// the device. If that wait ends in a fault, Found says so.
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
// The core owns what a client has and what it was told. Whenever no outcome is
// awaited it can be saved, and gone on with by the same executor; by another one,
// elsewhere, once no context is open (Save, Detached). The executor owns what
// only exists in its process: open contexts with their streams, events and loaded
// modules, by the numbers that the core gives them; the host copies of memory;
// goroutines that wait. Of a context the core knows only that it is there
// (contexts), so that an executor which has none can be told what to open.
//
//   - Grant: the client may use a device, with so many bytes. Nothing happens until
//     a message needs it; then Open makes a context there with the modules of the
//     journal (every load and unload that gave variables their addresses), Move
//     brings memory, and the message goes on. A message that needs more bytes asks
//     for them (Grow); if that is denied, the lease is released and wanted again.
//   - Revoke: Leave waits for what runs, moves the client's memory to the host
//     and the times of events into the core. Where another client needs the memory,
//     the device takes nobody any more or the client is to go to another, the context
//     is closed too, with the contents of variables kept in the core; otherwise it
//     stays open for the next lease, and the daemon is told how many bytes it keeps. A
//     revocation waits while functions of the program's are under way.
//   - Loss of a device: the context is forgotten without a word to it. If it had
//     the only copy of anything, that is a fault; otherwise the client goes on.
//   - Further devices (Config.Mapping): a mapper decides for each launch which of the devices that
//     the client has runs it. That of the lease is home; others are lent for as long as nobody
//     else needs them (further.go). The directory brings what the kernel uses, and streams that
//     go on at another place wait there for where they were (mapping.go, moveStream).
//   - A device that comes (AddDevice) has the next number, or that of one which is
//     gone; nothing of the client's is there.
//   - Fault: every context is closed, every later call answers with the fault's
//     result until a reset, and the daemon is told that the lease has ended. The
//     program's user is told where it happened.
//   - Adoption: another daemon serves the client. It is told the standing, and asked
//     again for what the last one did not answer.
//   - Reset: an empty client, in a new world (State.World counts them): what is found
//     out later about the work of the one before does not count.
//
// Host copies need room in the node's swap area, which the daemon commits: a large
// client is given some to spare (commit in lease.go), so that not each allocation
// asks.
package clientcore
