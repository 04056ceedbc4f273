// Package cluster hurts a running cluster in every way that it is meant to survive, and
// checks that nothing but the victims' jobs notices.
//
// A campaign is a seed and a number of faults. It starts a head and several nodes with
// software GPUs, each a process of its own, with certificates and a folder each, and has
// them reach each other by way of proxies. A stream of jobs runs there: scripts, arrays,
// commands on two nodes, jobs with GPUs of their own node and of others. Some are
// cancelled or requeued. Meanwhile heads, daemons, supervisors and jobs' processes are
// killed and stopped, links cut and delayed, whole machines killed.
//
// Each job writes a line when it begins and one when it ends. While the campaign lasts,
// the watcher looks at the jobs' processes and at the nodes' books of grants. When the
// faults have ceased and all jobs have ended, the checks (check.go) compare what the head
// says with the lines and with the faults: whatever became of a job must have a reason. Then nothing
// may be left: no process, no loan, no task in a spool, no descriptor in the daemons.
//
// What the seed decides is the cluster, the jobs and the faults. Victims are drawn from
// those that are there, and processes do not run in lock-step, so that the same seed is
// not the same run: what was found is kept with all logs. Package internal/world plays the
// cores of a cluster in virtual time, where a seed is a run.
package cluster
