// Package head is the core of a cluster's head, as a plain value: events in, effects
// out. It knows the jobs that have not ended, the nodes, and which job holds what on
// which node. A policy decides what to start, through policy.State.
//
// The daemon (head/daemon) tells it what users and agents say and what time it is, and carries out
// the effects that it returns. The effects of one call, or of several, are carried out in this
// order:
//
//  1. Records are written to disk, in one transaction.
//  2. Only then are messages sent to agents, answers to users, and changes to subscribers.
//
// So the head never forgets what it has told a user or an agent. A head that was killed continues
// from its records (Restore): messages that it did not send are made again from them when an agent
// greets.
//
// No event takes long, whatever it names: what would is left for later calls in part, and Next says
// that there is more to do. So the answer to a request may come with a later call: see chore.
//
// # Parts
//
// The core is made of parts, each of which knows only parts below it: at the bottom what there is (outbox,
// roster, users, fleet) and what jobs wait for (dependencies); above it the policy (desk), the way to it
// (queue) and what runs (runner); at the top those who speak (intake and actions for users, agents for
// nodes) and those who look (views).
//
// # Jobs and tasks
//
// A job that is started has an attempt, and on each node of its allocation a task (see wire/agent).
// An attempt goes through phases: lending, until the nodes of borrowed devices serve them; running,
// until all its tasks have ended; over. The attempt's resources are freed when its last task has
// ended or the node of that task is given up.
//
// A node that is silent for NodeTimeout is down, and the attempts that had a task there are lost:
// such a job ends as NODE_FAIL or, if its user said --requeue, is started anew. When the node comes
// back, the head tells its agent to stop the tasks of lost attempts that still run there. In no
// other case can a job run twice at the same time.
//
// The package never reads a clock, opens nothing, and draws no random numbers: the daemon hands the
// secrets in.
package head
