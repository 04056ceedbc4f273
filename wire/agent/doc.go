// Package agent is the conversation between a cluster's head and the agent of a
// node: one type for each message, and how they lie on a connection.
//
// A message is a ToHead, which agents send, or a ToAgent, which the head sends;
// the compiler keeps the two apart. The agent dials, greets with Hello, and is
// answered with Welcome or Refused. From then on both say what they have to say
// in any order.
//
// What runs on a node is a task: the part of a job, in one of its attempts, that
// the node has. The head has it on disk that it starts an attempt before it sends
// Start, and the agent has the task in its spool before it starts a process. So
// each message may be lost and may come twice:
//
//   - Start of a task that the agent knows is answered with its Report and starts
//     nothing;
//   - a Report that a task has ended is repeated, at the latest in the next Hello,
//     until the head says Done; the agent then forgets the task;
//   - Stop, Suspend, Resume and Limit say how things should be, not what to do:
//     saying it twice changes nothing. Of a task that the agent does not know it
//     reports Unknown.
//
// An agent whose spool was lost is another incarnation. What the head asks is
// meant for the one that it names: a Start for an earlier one is refused.
//
// A message is four bytes with its length, the lowest first, and JSON,
// {"kind": ..., "message": ...}. Neither side trusts the other, so decoding is
// strict: unknown kinds and fields, anything behind the message, and values that
// make no sense are refused (ErrRefused).
//
// The package knows neither head nor node, no policy and no process.
package agent
