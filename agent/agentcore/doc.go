// Package agentcore is what the agent of a node knows and decides, as a value: events
// go in, effects come out. It starts no process, writes no file and reads no clock;
// agent does that, and feeds the core.
//
// A task is starting, running, suspended or ended. The core keeps these promises,
// whatever messages are lost, repeated or late, and however often the agent is killed,
// as long as its spool is intact:
//
//   - A task begins at most once. Save comes before Launch, and the supervisor writes
//     down that it begins before it does. What is over leaves a mark in the spool, so
//     that a late Start of it begins nothing.
//   - Stop wins over a Start of the same task, whichever comes first: Stop of a task
//     that is not known leaves a mark too.
//   - The end of a task is reported until the head says Done: at once, every
//     RepeatTime, and in every Hello.
//   - No two tasks have the same core, except one that is suspended: its cores are free
//     for others, and when it goes on it may get other ones.
//
// Marks are dropped after MarkTime, when there are more than MaxMarks (the oldest
// first), and when the node is welcomed by another cluster, whose jobs have numbers of
// their own.
//
// Whoever drives the core performs the effects of an event in their order. If it
// cannot write what Save, SaveStop, SaveEnd or Mark says, it leaves out the rest of
// that event's effects and tells SpoolFailed, and later, with Spool, that it can again.
// Launch and Attach are answered, sooner or later, with Began, Ended or Lost. Ended says
// that the end is on disk already. Lost says that no supervisor is there and none can
// begin any more.
package agentcore
