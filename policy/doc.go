// Package policy decides which job starts where: a policy reads a View, proposes
// starts in it, and what it proposed is the plan, with reasons. Proposals change
// the view's working copy of the cluster and never the cluster itself. The package owns what every policy shares: the state that a view
// looks at, the queue, first-fit placement, trial moves with rollback, and the
// one applier that checks each line of a plan before it becomes true.
//
// # Two books
//
// State keeps capacity twice. The ledger is the truth: plain arrays, changed
// only by Step and by what the driver tells, and checked line by line. The pool behind a View is the
// working copy, with indexes for fast search; a policy changes it by proposing
// starts, so that its next decision sees the last one. What the applier
// refuses is given back to the pool. A policy that errs, or a script that lies,
// cannot oversubscribe.
//
// # What a step costs
//
// View says what changed since the last step: jobs that came, whether anything
// was freed. Policies are expected to use it, and to look at the rest of
// the queue only as far as something changed for it.
//
// The package never reads a clock, never draws random numbers, and knows
// neither the simulator nor the daemons that drive it.
package policy
