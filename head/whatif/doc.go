// Package whatif is what another policy would have made of a head's own history: jobs
// that have ended, jobs that wait or run, and how nodes were, become a workload and a
// cluster for the simulator, and each policy is asked.
//
// # What is taken for what
//
// The history is that of the store: a document for each ended job, and a log of what nodes
// could be used for. It is always there, unlike a recording (muster head --record), which
// is exact and is for the question what was decided when (muster sim replay).
//
//   - A job comes when the policy first saw it: after its holds, its --begin, limits of
//     users and arrays. These are as they were, whatever the policy. A job that came when the
//     last of the jobs ended that it depends on comes when these end in the simulation.
//   - It runs for as long as it did, wherever: what sharing and borrowing cost it is in that
//     time. On a GPU of another speed it takes as much longer or shorter. It asks for what it
//     asked for, and policies know its time limit only.
//   - What ran when the period began goes on as it did. What waited then is in the queue from
//     the beginning.
//   - What still runs or waits at the end runs for the part of its limit that others used on
//     average. The simulation ends there too.
//   - A job that was cancelled while it waited is withdrawn then, and is not counted. One that
//     failed, or lost its node, ran for as long as it did.
//   - A job that was requeued comes when it first came, and runs for as long as its last
//     attempt. A policy that preempts does so again by itself; the work of a job that was
//     cancelled for another is what it had done.
//   - Nodes that were away, drained or down take nothing new meanwhile.
//   - Priorities and windows are those of the configuration; fair shares begin without a past.
//
// How far all this is from what happened shows in the policy in force itself: it is
// simulated too, and the difference from what was measured is the error of the prediction.
//
// The package reads no clock, and opens nothing.
package whatif
