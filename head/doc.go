// Package head is the core of a cluster's head, as a plain value: events in, effects
// out. It knows the jobs that have not ended, the nodes, and which job holds what on
// which node. A policy decides what to start, through policy.State.
//
// The daemon (head/daemon) tells it what users and agents say and what time it
// is, and does what it answers. Effects of one call, or of several, are carried
// out in this order:
//
//  1. Records are written to disk, in one transaction.
//  2. Only then messages go to agents, answers to users, and changes to those that
//     listen.
//
// So the head never forgets what it has told a user or an agent, and a head that was
// killed goes on with what its records say (Restore): messages that were not sent are
// made again from them when an agent greets.
//
// # Jobs and tasks
//
// A job that is started has an attempt, and on each node of its allocation a task
// (see wire/agent). An attempt goes through phases: lending, until the nodes of
// borrowed devices serve them; running, until all its tasks have ended; over. What
// it held is free for others when the last task has ended or its node is given up.
//
// A node that is silent for NodeTimeout is down, and the attempts that had a task
// there are lost: such a job ends as NODE_FAIL or, if its user said --requeue, is
// started anew. When the node comes back it is told to stop what it still runs of
// them. Nothing is started twice otherwise.
//
// The package never reads a clock, opens nothing, and draws no random numbers: secrets
// are handed in.
package head
