// Package consres places jobs as Slurm's select/cons_res does on nodes in one
// row, and schedules as its sched/backfill does: in the order of priority, with
// whole nodes reserved for waiting jobs. That is the policy "slurm". The policy
// "rgpu" is the same with GPUs that are decoupled from nodes, exclusive or
// shared by memory. The exact rules are in docs/slurm-policies.md.
//
// The package knows views and plans, and no other policy. It never looks at how
// long a job really runs, only at estimates.
package consres
