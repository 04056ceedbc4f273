// Package policy decides which job starts where. In each step a policy reads a View, proposes
// starts, and the proposals are the plan, with reasons. A View is not immutable: it shows a working
// copy of the cluster, from which each proposal takes its nodes at once, so that the policy's next
// decision sees the last. The cluster itself changes only when the applier has checked the plan.
//
// The package owns what all policies share: the state behind a view, the queue, first-fit
// placement, trial moves with rollback, and the one applier, which checks each line of a plan
// before it takes effect.
//
// # Two books
//
// State keeps capacity twice. The ledger is the truth: plain arrays, which only Step and the
// driver's calls change, and against which the applier checks each line. The pool behind a View is
// the working copy, with indexes for fast search; a policy changes it by proposing starts. What the
// applier refuses is given back to the pool. So a policy with a bug, or a script that lies, cannot
// oversubscribe the cluster.
//
// # What a step costs
//
// The View says what changed since the last step: which jobs arrived, whether anything was freed. A
// policy should use that, and look at the rest of the queue only as far as something changed for
// it.
//
// The package reads no clock and draws no random numbers, and it knows neither the simulator nor
// the daemons that drive it.
package policy
