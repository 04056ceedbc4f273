// Package whatif predicts how another policy would have scheduled a head's own history. Ended jobs,
// jobs that wait or run, and the states of nodes become a workload and a cluster for the simulator,
// which runs each policy.
//
// # The model
//
// The history is that of the store: a document for each ended job, and a log of the states of
// nodes. It always exists, unlike a recording (muster head --record), which is exact and answers
// what was decided when (muster sim replay).
//
//   - A job arrives when the policy first saw it: after its holds, its --begin, and the limits of
//     users and arrays. These are as they were, whatever the policy. A job that arrived when the last
//     job that it depends on ended arrives when that one ends in the simulation.
//   - It runs for as long as it did, wherever: what sharing and borrowing cost it is in that
//     time. On a GPU of another speed its run time scales. It asks for what it asked for, and
//     policies know only its time limit.
//   - Jobs that ran when the period began continue as they did. Jobs that waited then are in the
//     queue from the beginning.
//   - Jobs that still run or wait at the end run for the fraction of their limit that other jobs
//     used on average. The simulation ends there too.
//   - A job that was cancelled while it waited is withdrawn at that time, and is not counted. One
//     that failed, or lost its node, ran for as long as it did.
//   - A job that was requeued arrives when it first arrived, and runs for as long as its last
//     attempt. A policy that preempts does so again by itself; a job that was cancelled in favour of
//     another has the run time that it had until then.
//   - Nodes that were away, drained or down take nothing new in that time.
//   - Priorities and windows are those of the configuration; fair shares begin without past usage.
//
// The error of all this can be measured: the policy in force is simulated too, and its difference
// from what was measured is the error of the prediction.
//
// The package reads no clock, and opens nothing.
package whatif
