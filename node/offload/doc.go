// Package offload decides when a node borrows virtual GPUs of other nodes for programs that
// wait or would run faster there, when it lends its own, and when either is over.
//
// It is a pure core: events go in with their time, effects come out in the order in which they are
// to be performed. It has no clock, lock, goroutine, file or connection, and its only random
// numbers come from its seed. The node daemon is its driver.
//
// # Words
//
// A peer is another node, known by the address of its gateway. A ticket is the right to use
// some virtual GPUs (slots) of a lender for a while; its holder is the borrower. To the
// borrower's dispatcher a ticket is a device with that many slots: it puts waiting clients
// there, moves them, and takes them back from there as from any device. The lender serves
// them as ordinary clients, which are guests there.
//
// # Exchange
//
// A node asks each of its peers regularly (Says), more often while clients wait or it holds a
// ticket, and most often while a client would run faster on the peer's fastest device (Keen). A question
// has the number of slots that the borrower wants, 0 as a rule, and the tickets
// of this lender that the borrower holds. The answer has the lender's load, a ticket or none, and
// the tickets that the lender wants back. A node has at most one question to a peer under way, so
// questions and answers of two nodes alternate. These rules make the protocol safe against loss in
// either direction:
//
//   - A ticket that the borrower's question does not name is given up. So if the answer with a
//     ticket is lost, the next question frees it.
//   - The lender asks for the return of a ticket that it does not know. So a lender that was
//     restarted does not go on serving guests that it knows nothing of.
//   - A ticket whose borrower has been silent for Term is free again.
//
// # When a node borrows
//
// It wants as many slots as clients wait that could run elsewhere (Local.Pending), less those for
// which it has borrowed slots that are free. It asks for them if at least Above clients have waited
// for Patience, it lends nothing, no such question is under way, and it has borrowed fewer than
// Most. A node without devices of its own asks at once.
//
// The node draws two peers at random (with the seed) from those that said they had slots to lend,
// and asks the one that claims more. Older claims count less: half after each Half, and nothing
// after Fresh. Drawing two spreads out borrowers that all saw the same status, at little cost to
// each of them; where several still ask the same lender, its tickets decide between them.
//
// Clients may also have wishes (Local.Wishes): further devices that they would use if no other
// client does, although they do not wait for one. For these a node asks for one slot at a time,
// apart: of a device on which there is neither a client nor a ticket, nor a grant. It asks when no slot is
// wanted for a client that waits, and no borrowed slot is free; lenders tell how many such devices
// they have. The other rules hold for these tickets too, except that one which ends unused delays
// only further wishes.
//
// Last, clients may have gains (Local.Gains): they would move to an unused device of a peer that is fast
// enough, as the dispatcher found out by its own rule for moves. For these a node asks for one slot apart,
// of a device at least as fast as the first gain says (Question.Speed), of the peer that claims the
// fastest one. It asks while no other borrowed device is unused to which a client may still go: that one
// may change what others gain. A device that its client has left, and that is too slow for the others, does
// not keep them from a faster one. Such a ticket is given back after a quarter of Linger without a client.
//
// # When a node lends
//
// It lends slots that are free, less Keep and less those for which it gave tickets, whether guests
// came or not; to one borrower no more than Most. It lends none while a client of its own waits or
// waited less than Calm ago, and none while it holds a ticket itself. So no node borrows and lends
// at once, and programs move at most one step: a guest is never passed on (the node does not show
// it borrowed devices), and a borrower takes no guests.
//
// # When it is over
//
// A lender wants tickets back, the last ones first, when clients of its own have waited for
// Patience: as many as it takes for them. A ticket that was given for speed it wants back as soon as a
// client of its own uses the device, or some of it is granted; any ticket if all of its device is
// granted, or takes no clients any more. A borrower gives up a ticket that it was asked for, whose
// device failed, or on which there was no client for Linger. A ticket is given up in two steps: its
// device is drained (Leave), so that clients go home at a kernel boundary, and when it is empty
// (Left) it is not named any more. A client may come home earlier, when a device of its own node
// has become idle and the move pays: that is the dispatcher's decision.
//
// A node without devices keeps its last ticket while it has clients.
//
// # Neither to and fro nor in vain
//
// A lender that refuses is not asked again for Retry, and twice as long each time in a row, up to
// Longest; nor is one whose ticket turned out useless. A borrower whose tickets end unused, because
// no client that waits can go there, waits as long before it borrows at all. A client that runs on
// a borrowed slot ends the series.
//
// A lender that wanted a ticket for speed back before the moves there and home had paid (Gain.Stay) is not
// asked for speed again for as long; a ticket that lasted longer ends the series. So clients lose little
// by a lender whose own clients come and go, and gain from one that leaves them enough time.
//
// # Who may lie
//
// A peer is believed only in what can do no harm. One that claims free slots and gives none is
// asked less and less. A ticket of more slots than were asked for, of a slower device, or of a speed
// that no device has, is refused. A borrower gets no more than Most, whatever it asks for, and cannot keep slots
// by being silent.
package offload
