// Package vgpu decides which client gets which virtual GPU, when, with how much device memory, and
// which clients have to leave for it.
//
// It is a pure core: events go in with their time, effects come out, in the order in which they are
// to be done. It has no clock, lock, goroutine, file or connection, and knows of workers and
// devices only what events say. The same configuration and events give the same effects, byte for
// byte, on any machine. The driver is a loop around it; the node daemon is one, a test is another,
// and Replay is a third:
//
//	effects := core.Step(now, vgpu.Want{Client: 1, Need: n, Pinned: vgpu.AnyDevice}) // or any other event
//	perform(effects)                                                                 // tell the workers
//	at, ok := core.Next()                                                            // set a timer for a Tick
//
// Events and effects are plain values with one form each in JSON. What a core
// was told and what it decided can be recorded line by line (AppendHeader,
// AppendEntry, AppendEnd) and played again (Replay): that finds out whether
// another version decides otherwise, and where.
//
// # Words
//
// A client is one program's virtual device. A device has slots (its virtual GPUs) and memory; a
// client bound to a slot takes the bytes that it was granted and the device's ContextCost. The
// queues are the paper's: ready (wants a GPU), assigned (bound to a slot), waiting (unbound, has
// not asked again), failed (reported a fault or lost its device). A client that never wanted a GPU
// is in no queue.
//
//	unqueued, waiting, failed --Want--> ready --grant--> assigned
//	assigned --Released--> waiting      any --Faulted, Lost--> failed
//
// # Who is served, in which order
//
// Only Want asks for a slot. It is denied if no device that the client may use could hold it even
// alone. Otherwise the client is ready, and the dispatcher goes through the ready queue after every
// event. (A ready client whose only devices are drained or lost at present is parked: it keeps its
// place in the queue, and no client is watched or told to leave for it.)
//
//   - FCFS: in the order in which clients wanted.
//   - SJF: the shortest GPU phase first: the client's estimate or, without one, its earlier phases'
//     GPU time (each phase counts for a quarter of the mean). Clients of which nothing is known
//     come after all others, in the order in which they wanted.
//   - Credit: clients of users with credit before those of users without, each in the order in
//     which they wanted.
//
// Clients that can be served overtake an earlier one that cannot, but not for ever. When MaxPasses
// clients that wanted later were served, or after MaxWait, the client has waited too long: it goes
// before all others (under Credit, of those with or without credit like itself; several in the
// order in which they wanted). If it cannot be served even then, one device is reserved for it,
// where the fewest bytes are missing: no other client is served or grows there, and idle clients
// are told to leave it one by one, until there is room. Meanwhile the client may still be served on
// another device.
//
// A user's clients have no more slots at a time than SlotLimits or SlotLimit says. A client of a
// user who has them all is served only in exchange for the slot of another client of that user, see
// below; nothing is promised to it before that other client has left. A client for which a device is
// reserved counts among its user's slots: if the user has them all, another of the user's clients is
// told to leave, and those that need less do not take its place again and again.
//
// # Clients that do not leave
//
// A client that was told to leave does so when its kernels have ended, and some never end. So nobody
// keeps room from others for ever while it waits for that:
//
//   - Room of a client that was told to leave MaxWait ago, and the expected time of its move, does not
//     count as coming any more. Others are told to leave instead, if that helps.
//   - A promise or reservation that is not fulfilled within MaxWait is taken back. At that moment all
//     clients are served that fit as it is. The owner goes behind all others that have waited too long,
//     and may keep room the next time for twice as long, up to 512 times MaxWait: so it is served if
//     kernels end at all. After its second time and each later one, the device and the slot of its user
//     are for as long open to clients that have given up less often.
//   - A Grow whose victims have not left within MaxWait is denied.
//
// So a client is served within a bounded time if it fits beside those whose kernels never end, and
// its user has fewer slots than it may; and any client if all kernels end within 512 times MaxWait.
//
// # Where
//
// A device is eligible if it is present and not drained, satisfies the client's pin, could hold the
// client, and is not reserved for another. For a client that was moved by hand only the named
// device is eligible. Of those with a slot and enough memory free:
//
//  1. the device where the client was last, unless an idle one (with no client
//     and promised to none) is faster, or as fast while the last one is not idle;
//  2. otherwise the fastest idle device;
//  3. otherwise that with the fewest clients for its speed;
//
// and of equals that with the lowest number. A client that has a share which can take it goes elsewhere
// only if the device is idle and gives it 1.2 times the speed that it would have at home beside those who are
// there, or no less if it was there last. If there is no such device now, but there will be one when all
// clients that were told to leave have done so, the client waits for that. Otherwise some clients
// have to leave: those on the device where the fewest bytes must be copied out, then with the
// fewest victims, then with the fewest clients for its speed, then with the lowest number.
//
// # Who has to leave
//
// An assigned client is idle if it said so since it was last granted or came to
// be watched, and has not said Busy since.
//
//   - It may lose its slot if it is idle and has been for MaxIdle, or announced
//     a synchronisation point. With MaxIdle zero only the latter.
//   - It may lose its memory if it may lose its slot, or is idle and was
//     granted MinResidence ago or longer.
//   - Under Credit, for a client whose user has credit and that cannot be served
//     by others leaving: one whose user has none and that was granted
//     MinResidence ago or longer, busy or not. The worker lets its kernels end
//     first.
//   - With a Quantum, for a client that cannot be served by others leaving: one whose
//     turn is over, busy or not. See Turns.
//   - It may lose neither while a Revoke or a Grow of it is unanswered.
//
// Two more reasons to leave have nothing to do with waiting clients: the client is moved (ForMove),
// or its device is drained (ForDrain). Busy clients leave for these too; the worker lets their
// kernels end first.
//
// Victims are chosen in this order, each only if it is still needed:
//
//  1. if the user has all slots it may have: one of the same user that may lose
//     its slot, on the device in question if there is one;
//  2. if no slot is free: one that may lose its slot;
//  3. for memory, unbound clients that keep bytes on the device, the longest
//     unbound first, but those that were promised a slot;
//  4. for memory, those that may lose it, one after the other.
//
// Each time it is the one with the fewest bytes that suffice, or with the most bytes if none
// suffices; of equals the one idle for longest, then the one with the lowest number. If all of them
// together do not suffice, none is told to leave. Otherwise they get a Revoke, and the client is
// promised the device: the room is kept for it, and granted when all victims have let go. If they
// kept so many bytes that the client does not fit, or do not leave, it is ready as before. A client that detaches
// before that gives up the promise; its victims leave nevertheless.
//
// Among clients whose turn is over, the victim is, of those that suffice, the one that owes most,
// and then the one that was granted first.
//
// # Turns
//
// With Config.Quantum, clients that are busy and do not fit together take turns.
// A turn begins with Began, when the client's memory is on the device; a client
// that does not say so has a quantum and the expected time of a move for that. It
// is over when it has lasted as long as the longer of these:
//
//   - The client's part of a round. A round has a quantum for each client that is bound to the
//     device or waits for it, and is divided by weight; what others owe the client is added. No
//     client has less than an eighth of a quantum; the others make up for that in proportion to
//     what they have beyond it.
//   - Seven times what moving the client's memory in and out took the last time, or the
//     longer of both if it came while others left, but no more than four quanta.
//
// So where moves take little time, no client waits for longer than the number of clients times the
// quantum, plus the time of their moves and last kernels. A client that had more than its part by
// weight, in GPU time, owes the difference to those who waited meanwhile, up to four quanta. What
// all clients owe each other adds up to 0; a client that detaches leaves its balance to the others.
//
// A client with a higher Priority is served before others in the queue, and when its turn is over
// it leaves only for a client of at least its priority or one that has waited too long.
//
// A client that had to leave for being idle and wanted its device back at once is
// restless: it must be idle for as long as a move takes before it is told so again.
//
// A client whose turn is over gets a Revoke with ForQuantum: its context may stay open for its next
// turn. If the context would be in the way of the client that comes, the reason is ForRoom. Keep
// says how many bytes of the client's memory no other client needs, and may stay too. The same
// holds for a client that has to leave in an idle moment (ForMemory), whose context may then stay
// as well.
//
// # Moves that overlap
//
// With Config.MoveStep a client that comes need not wait until those who make way for it have left.
// A Revoke then names a step, a 32nd of what the victim has to free but no less than MoveStep, and
// its worker says Freed after each. At the first one the client that comes is granted a slot and
// what is free by then, with Coming for all that it will get; at each of the others it is granted
// what has become free (Grant with the same lease and more memory). The last Released grants the
// rest. At no time have all clients of a device together more than it has, since what is granted was
// freed before.
//
// This needs a slot for the client that comes beside those of its victims, and no other promise on
// the device: what becomes free first could be another's. Otherwise the client is granted all at
// once, when all victims have left. So is a client that stands for a further device.
//
// A client that has a part counts as one that grows: it cannot be told to leave for others, and is
// answered with all of it or, if victims kept more than they should and none can make up for it,
// with Deny. Either side may end in the middle. If a victim does, its memory is free; if the client
// that comes does, the victims leave all the same.
//
// # Growing
//
// A Grow is granted if the memory is free and the device is not reserved. If not, victims for
// memory are chosen as above, among other clients than those that grow too. While clients that
// could make the room are not known to be busy, the Grow waits, for GrowWait at most; after that,
// or if there are no such clients, it is denied. The worker then releases everything and wants
// again with its larger need: so two clients that grow never wait for each other.
//
// # Moves to a faster device
//
// With Config.Migrate a client does not stay on a slow or crowded device while a
// better one is idle. After each event, if no client is ready (parked ones
// aside) and none grows, the dispatcher looks at the devices that are idle: up,
// with no client and promised to none. The fastest comes first. A bound client
// is told to leave for such a device (Revoke with ForMove), and its next Want is
// granted there, if all of these hold:
//
//   - It may use that device and fits there, once those who only keep bytes there
//     have let go. It is not pinned elsewhere, was not put where it is by hand,
//     and no Revoke or Grow of it is unanswered.
//   - The gain is at least 1.2. A client's share of a device is the device's speed
//     divided by the number of clients that are bound there and run. Another
//     client that has run less than this one since it was granted counts for that
//     part only; one that never ran a kernel does not count. The gain is the idle
//     device's whole speed divided by the client's share where it is. So of two
//     clients that share a device one moves to an idle device of the same speed.
//   - It has lost as much GPU time as the move costs. Lost is GPU time since the
//     client's grant (Ran) that it would have saved with that gain: time - time /
//     gain. The cost is twice the client's memory divided by MoveBandwidth, for
//     copying out and in, and MoveCost for all else. A client that never runs
//     kernels loses nothing, and is not moved.
//
// If several clients qualify for a device, the one that has lost most goes. One client at a time is
// on its way to a device. If it does not ask for a device within MoveCost after it has left, it
// does something else, and another may go. The idle device is not kept free for it: if others take
// it meanwhile, the client is placed as any is.
//
// Clients do not move to and fro. A move is paid for in advance: what it costs was lost already, so
// all moves together cost no more than what clients lost by staying. This is the ski-rental rule
// (buy when the rent paid so far reaches the price), which costs at most twice what the best choice
// would have, whatever comes next. Moreover, as long as no client comes or goes, each move either
// takes one idle device into use, or takes its client to a faster one, so their number is bounded:
// on n devices by n(n+1)/2.
//
// A loss grows only with Ran, which workers say regularly while kernels run, and
// when they have ended; a client cannot leave earlier. So events find every move
// in time, and the core needs no Tick for them.
//
// # Moves by hand
//
// Move names a client and a device. A bound client leaves (Revoke with ForMove); its next Want is
// served on that device and nowhere else, by the rules above, so it may wait there. It then stays
// until it is unbound for another reason: it is not moved by itself. If the device is drained or
// lost before the client comes there, or the client needs more memory than the device has, or is
// pinned elsewhere, the move is cancelled, and the client is placed as any is. Refuses says
// beforehand why a move is not possible.
//
// # Devices that come and go
//
//	up --Drain--> draining --all have left--> drained --Resume--> up
//	drained, lost --Remove--> removed       any but removed --Lost--> lost
//	lost, removed --Returned, Added--> up
//
// A drained device takes no clients: promises of it are taken back, and all clients that are bound
// or keep bytes there are told to leave (ForDrain); a client that leaves and keeps something is
// told again. The Revoke is also the answer to a Grow. The clients go elsewhere, or wait. A client
// is never denied anything because of a drain: if only drained devices could hold it, it is parked
// until one of them is resumed.
//
// A lost device is gone at once, with all that was there. Its clients are told (Gone), including
// those that only keep bytes there. A client that no other device can hold is parked until the
// device returns: it is not denied for lack of memory that the node normally has. Only if no device
// is left at all, a client that has never had one, and is not pinned to it, is denied. When the
// device is removed, those who wait for it are denied too.
//
// A device that comes back keeps its number and its Usage; it may be another
// one than it was. Added gives a new device the next number, unless one of that
// name is lost or removed.
//
// # Grants
//
// A grant (Admit) is the right of some clients to use certain devices, each whole or a
// share of its memory. A client that is attached under a grant uses one of its shares.
// A share is a device of its own to the rules above: it has the device's number, speed
// and state, its own slots, and its memory; the rest of the device is for clients without
// a grant. So the clients of a share together take no more there than the share, contexts
// included, and make way only for each other. The slot limits of users do not concern them.
//
// What no grant has of a device is its pool. Clients without a grant have it together with those of shares that
// may have more than their memory (Share.Beyond). Whoever needs some of it may have others leave
// that have some, by the rules above, and a new grant takes it from all of them; but a client
// of which the share holds all that it needs beside the share's other clients leaves for none of that.
//
// Where else they may go is the share's reach: nowhere, to any other device of the node, or
// also to those that the node has borrowed (Device.Elsewhere). Such a device they use as clients
// without a grant do: they go there if it is better, by the rules above, and make way for others.
// At home their share is kept for them meanwhile. A device may be there for grants alone, whether one has it now
// or not (Device.Granted): another node has granted it to the job, and it is nobody else's.
//
//   - What was granted is kept: no client without the grant is given any of it, even if the grant's
//     clients do not use it. Together the shares of a device are no more than its memory. No other
//     client is placed on a device that is granted whole.
//   - Clients that are in the way of a new grant are told to leave (ForGrant), busy or not; if a
//     device is granted whole, that is all of its clients. The grant's clients are placed when
//     these have left; those of earlier grants do not wait for that. A client that no device can hold because of
//     grants is parked, not denied.
//   - No more than Limit shares of a grant are used at a time, at home or elsewhere. If more are
//     when the limit is lowered, the clients of the last ones in the grant's order are told to
//     leave (ForLimit). A client that waits only for this is served when all clients of
//     another device of the grant may lose their slots; once it has waited for MaxWait,
//     they are told to leave busy or not.
//   - With a limit of 0 the grant is suspended: all its clients leave, those who keep
//     bytes let go of them, and they are parked. Its shares are free for other grants
//     meanwhile; the limit can be raised again when all of them are free (Refuses).
//   - Withdraw ends the grant. Its clients hold what they have until they are detached, and get
//     nothing more.
//
// # Settings that change
//
// Configure changes the policy, MaxIdle, Quantum, SlotLimit and Migrate, and Limit the limit of one
// user. No client loses what it was granted or promised because of that: the queue is reordered,
// and a user with more slots than allowed gets no further one. Resize changes the slots of a device, and of
// the parts of it that are granted. If it has fewer slots then than clients, those that came last are told to
// leave (ForLimit), busy or not, and nobody is placed there before enough have.
//
// # Clients of an earlier dispatcher
//
// Adopt makes a client known that an earlier dispatcher served, with its lease, or the bytes that
// it keeps, or nothing, and with its counts. Its next lease has a larger number than its last one.
// It keeps what it holds: if the device is smaller now, or the user may have fewer slots, so that
// the client does not fit, it is told to leave (ForMemory) and counts until it has; no client is
// placed there before. Only in this case can a device be over its memory, and, but for Resize, its slots. Grants are
// admitted before clients are adopted that are under them.
//
// # Credit
//
// A user's credit is GPU time. Ran takes it away; at the end of each Period what all users spent is
// given back to those who have a client that is ready or assigned, in proportion to weight (a
// user's is the largest of those clients'). So credit says how far a user is below its share. It is
// bounded to 20 periods either way, and no single report counts for more. Users without such
// clients lose their credit and are forgiven half of their debt each period, also when they detach
// in between. When no user has spent anything for MaxWait, all credits are reset to 0.
//
// # Kept bytes
//
// A client that lets go may keep bytes on the device, for a context that is left open and for
// memory that no other client needed. They count as taken. The client is told to let go of them
// (Revoke with ForMemory) when others need them, (ForMove) before it is granted another device, and
// (ForDrain) when the device is drained.
//
// # Usage
//
// Kernels and GPU time are counted here and nowhere else. Ran is the only event that counts; it
// counts once for the client, once for the device that the client has or had last, and stays with
// the device and with all clients that have gone (View.Past) when the client detaches. A client's
// counters end at 2^62 kernels and nanoseconds; sums saturate at 2^63-1.
//
// # What the driver owes the core
//
// The core relies on its driver for the following. It tolerates everything else: events of any
// kind, in any order, of clients that it does not know.
//
//   - One call at a time. Events are told in the order in which they happened.
//   - The time of a clock that does not go back; an earlier time counts as the last one. A Tick at
//     the time that Next names, if no event came before; later is allowed, and makes waiting
//     clients wait that much longer.
//   - All effects are performed, in the order in which they come, before those
//     of the next event. They may be dropped only if the client's worker is gone
//     and a Detach follows.
//   - A client is attached once, and its number is not given to another one while it is. Detach is
//     told when its worker has let go of the device for good, not when it is about to: what the
//     client took is given to others at once. The same holds for Released and Faulted.
//   - Every Revoke is answered once, as below. A worker that does not answer keeps what it has,
//     until the driver ends it and tells Detach. See Clients that do not leave.
//   - What a worker claims is checked by the driver: a lease that it never had, a
//     client that is not its own. Ran is told once for each piece of work, with
//     what was added since the last one.
//   - A device that is Added or Returned passes Device.Check; otherwise nothing
//     happens. Lost is told when nothing runs there any more.
//   - What people ask for (Move, Drain, Resume, Remove, Returned, Added, Configure, Limit, Resize,
//     Admit, Withdraw, Restrict) is passed to Refuses first, which explains a refusal to them. Step
//     ignores what Refuses refuses.
//   - Clients are adopted before new ones are attached, or at least under numbers
//     that no other client has. A Want, Grow or Revoke that was unanswered with the
//     earlier dispatcher is over: the worker says again what it needs.
//   - A recording must have every event that Step was told, from the first one on, with the same
//     time and the effects that Step returned.
//
// # What workers must do
//
// Messages to and from a worker must arrive in the order in which they were sent.
//
//   - Every Grant that binds a client begins with it unwatched. After Watch on,
//     the worker says at once whether it is busy or idle, and then each time that
//     this changes.
//   - A Revoke is answered with Released, Faulted or Detach. It may cross a Released that the
//     worker sent unasked, and is then answered a second time. So the worker says with every
//     Released and fault the number of the last lease that it was granted, and the daemon keeps
//     from the core what was said before the client's present lease (Effect.Lease).
//   - A worker that is told a step with a Revoke says Freed with what it still has, each time that it
//     has freed about so much, and takes no more memory there until it is granted some again. It need
//     not. After a Grant with Coming it asks neither with Want nor Grow for that much.
//   - A worker that is told to leave for memory, a move or a drain should keep
//     nothing. If it does, it is told a second time.
//   - Gone is told to a worker that only keeps bytes on a device, too.
//   - A Revoke, or Gone, is also the answer to a Grow that it crossed.
package vgpu
