// Package history keeps what was told to a policy.State and what it decided, as
// lines of JSON, and plays them again: any decision of a cluster can be looked at
// afterwards, with the same policy or with another one.
//
// The first line is the header: the version of the format, the policy, and the
// cluster as it was. Every other line is one event, in the order in which it was
// told, with the answer: the ID that a job got, or the error. A line for a step has
// the plan that came of it.
//
// A Recorder hears what a state is told (policy.Event), and writes it. Snapshot writes lines that make a
// state as it is now, without what led to it. Replay tells the events to a fresh
// state and stops at the first answer that is another one. Compare asks another
// policy at every step what it would do, and then goes on as was recorded.
//
// The package is pure: it writes to and reads from what it is handed. It knows
// neither the simulator nor a daemon.
package history
