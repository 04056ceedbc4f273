// Package agent is the conversation between a cluster's head and the agent of a node: one type for
// each message, and their encoding on a connection.
//
// A message is a ToHead, which agents send, or a ToAgent, which the head sends; the compiler keeps
// the two apart. The agent dials, greets with Hello, and is answered with Welcome or Refused. From
// then on either side may send at any time.
//
// What runs on a node is a task: the node's part of a job, in one of its attempts. Before the head
// sends Start, it has recorded on disk that it starts the attempt; before the agent starts a
// process, it has the task in its spool. So each message may be lost and may arrive twice:
//
//   - The agent answers Start of a task that it knows with the task's Report, and starts
//     nothing.
//   - It repeats a Report that a task has ended, at the latest in the next Hello, until the head
//     sends Done; then it forgets the task.
//   - Stop, Suspend, Resume and Limit say which state a task should be in, not what to do:
//     receiving one twice changes nothing. For a task that the agent does not know it reports
//     Unknown.
//
// An agent whose spool was lost is another incarnation. A Start names the incarnation that it is
// meant for; the agent refuses one for an earlier incarnation.
//
// An agent that can take no tasks for now, as when the disk of its spool is full, says so in Inventory.
// A Start that it gets nevertheless ends as NotReady: the head may start the job elsewhere.
//
// How a node serves programs is the head's to say (Configure), all of it each time: a later message takes the place
// of an earlier one, and after each greeting the head says it again. Configured says what is in force.
//
// A suspended task can be saved in a folder that several nodes share (Checkpoint). The task stays as it
// is. Once the head has recorded where it was saved, it stops the task, and starts the next attempt from
// there (Start.From), on any node with that folder.
//
// A message is its length in four bytes, little-endian, and JSON, {"kind": ..., "message": ...}.
// Neither side trusts the other, so decoding is strict: unknown kinds and fields, anything after
// the message, and impossible values are refused (ErrRefused). Encode refuses the same, by the same
// code, so that a sender learns it first. A message that is refused ends its own business alone
// (Unreadable): the agent answers a Start with NotBegun, and a Lend and a Configure with an
// error, and both sides pass over any other. Only a message whose end is unknown ends the connection.
//
// The package knows neither head nor node, no policy and no process.
package agent
