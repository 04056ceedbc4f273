// Package consres places jobs as Slurm's select/cons_res does, on nodes that
// stand in one row, and decides as its sched/backfill does: in order of priority,
// with whole nodes reserved for those who wait. The policy "slurm" is that; "rgpu"
// is the same with GPUs that are decoupled from nodes, exclusive or shared by
// their memory. The exact rules are in docs/slurm-policies.md.
//
// The package knows views and plans, and no other policy. It never looks at how
// long a job really runs.
package consres
