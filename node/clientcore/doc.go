// Package clientcore is everything that is known about one client, as a value: its lease, modules,
// streams, events, host functions, the messages it has sent that wait, and the directory of its
// memory (vmm). It decides what each message of the client and of the daemon means, and what is to
// be done.
//
// It is a pure core, as node/vgpu is for the dispatcher: events go in with their time, operations
// come out, in the order in which they are to be performed. It has no clock, lock, goroutine, file
// or connection, and touches none of the client's memory. An executor (node/worker) performs the
// operations on devices and host memory:
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
// An error of an event ends the client: the client broke the protocol, or its memory could not be
// moved.
//
// # Parts
//
// Core is made of parts: what the program is told, the lease and the open contexts, memory, modules,
// streams, and so on. Each has its own state, enters the handlers of the messages that are about it in the
// core's table (register), and saves itself: State is made of the parts' states, of which those that other
// packages read have a type with the part's name and a capital letter. A part's struct names the other parts
// that it uses. All stand on step, most on standing, which they embed; none has the Core.
//
// # Operations and their outcomes
//
// Some operations ask (Kind.Asks): what comes next depends on how they end. Such an operation is
// the last of its list. The executor hands in its Outcome before any other event, except
// UrgentMessage, Reached and Later. These are about the program's host functions
// (cuLaunchHostFunc), and the operation may be waiting for one of them to return. Of the other
// operations only failures are handed in, and what follows a failed operation in its list is not
// performed. ReplyAfter promises a reply: it counts as performed when the executor has begun to
// wait for the device. If that wait ends in a fault, the executor reports it with Found.
//
// # A message that cannot be done yet
//
// Each time something that a message waits for has come (a lease, swap room, a context, memory on
// the device), the message is handled again from its beginning. Its handler looks for what is
// missing, asks for the first missing thing, and changes nothing that counts before everything is
// there. So the message itself is all that must be remembered of its progress. Messages that arrive
// meanwhile wait in a queue, except those about host functions, which other messages may wait for
// (Urgent).
//
// # Who owns which state
//
// The core owns what a client has and what it was told. Whenever no outcome is awaited the core can
// be saved, and continued by the same executor; by another one, elsewhere, once no context is open
// (Save, Detached). The executor owns what exists only in its process: open contexts with their
// streams, events and loaded modules, under the core's numbers; the host copies of memory; and
// goroutines that wait. Of a context the core knows only that it exists (Contexts), so that an
// executor without it can be told what to open.
//
//   - Grant: the client may use a device, with a number of bytes. Nothing happens until
//     a message needs it. Then Open makes a context there with the modules of the
//     journal (every load and unload that gave variables their addresses), Move
//     brings memory, and the message goes on. A message that needs more bytes asks
//     for them (Grow); if that is denied, the lease is released and wanted again. While
//     host functions are running it cannot be released, and one of them may wait for what
//     is behind the message: then the message asks again now and then, until they have
//     returned, and fails if none returns for two minutes (awaitFunctions).
//   - Revoke: Leave waits for running work, moves the client's memory to the host
//     and the times of events into the core. If another client needs the memory, if
//     the device accepts no more clients, or if the client is to go to another device,
//     the context is closed too, and the core keeps the contents of variables. Otherwise
//     the context stays open for the next lease, and the daemon is told how many bytes
//     it keeps. A revocation waits while host functions are running.
//   - Loss of a device: the context is forgotten without contacting the device. If it had
//     the only copy of anything, or work in flight, whose copies to the program would never
//     come, that is a fault; otherwise the client goes on.
//   - Further devices (Config.Mapping): a mapper decides for each launch on which of the
//     client's devices it runs. The device of the lease is home; others are lent as long as
//     no other client needs them (loans.go). The directory brings what the kernel uses. A
//     stream that continues at another place waits there for its work at the former one
//     (moveStream).
//   - A device that is added (AddDevice) has the next number, or that of a lost one; the
//     client has nothing there.
//   - Fault: every context is closed, every later call returns the fault's result until
//     a reset, and the daemon is told that the lease has ended. The program's user is
//     told where it happened.
//   - Adoption: another daemon serves the client. It is told the client's standing, and
//     asked again for what the last one did not answer.
//   - Reset: an empty client, in a new world (Core.World counts them). What is found
//     out later about the work of an earlier world does not count.
//
// Host copies need room in the node's swap area, which the daemon commits: a large client is given
// some to spare (room), so that not every allocation has to ask.
package clientcore
