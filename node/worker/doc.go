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
// # Parts
//
// The loop (worker.go) takes events in turn and gives them to the core. What the core answers the executor (message.go)
// performs: a table (operations.go) says for each kind of operation which part does it. All parts know the session,
// which is the client: the core, the open contexts, the memory shared with its program, the host copies, the journal, the
// timeline. Besides that each has a state of its own, and knows the parts that it needs:
//
//   - mail: what the daemon and the loop tell each other
//   - waits: the loop's waits for devices, and what other goroutines report; early: messages read meanwhile
//   - recovery: the bases from which another worker rebuilds the client; replay: how this one rebuilds it. It
//     wraps the executor, and leaves out what the program already has
//   - orders: the daemon's checkpoints and restores, and how far they are
//   - opener: opens contexts (gpu.go has one of them) and closes them
//   - launches: kernels and graphs; spread: what is known of kernels that have ended
//   - copies: between the program's memory and devices or host copies
//   - ends: questions about the end of work
//   - sequence: order between the streams of one context, or of several
//   - moves: of memory between devices and the host, and out of a device that the client leaves; mover: what the
//     directory's plans say; ahead: host pages made before they are needed
//   - hosts: host functions of the program that streams wait for
//   - reach: the program's memory that kernels access
//   - commons: memory that several clients have
//   - devices: the node's devices, opened when they are needed
//   - replies: what the program is given at once
//   - loader: modules, textures and links, into contexts
//   - passing: reports of GPU time while the loop waits for kernels
//
// What can be understood without all that is a package of its own:
//
//   - line: the connection to the daemon, and to the next one
//   - keeper: the journal by which another worker rebuilds the client
//   - answers: the program's calls that wait for a device
//   - told: what the program, its user and the daemon are told
//   - staging: the program's staging memory, given back in order
//   - hostcopy: the host copies of memory
//   - modules, shifts: the modules of a context, and variables at other addresses than the program knows
//   - pace, turnlock: giving way to others, on devices and on software devices
//   - kernellimit: kernels that run for too long
//   - trace: the timeline of a traced program
//   - clientfile: the files of checkpoints
//   - sharing: files of memory that is shared, from worker to worker
//   - ownprocess: the rights of the process
//
// The comment of node/clientcore says what happens on grant, revocation, loss and fault. This
// package knows no policy and no device backend, and of the daemon its messages alone and, if it is
// lost, the socket at which the next one is found (package line).
package worker
