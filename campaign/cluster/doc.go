// Package cluster injects every fault into a running cluster that it is meant to survive, and
// checks that only the victims' jobs notice.
//
// A campaign is a seed and a number of faults. It starts a head and several nodes with software
// GPUs, each a process with its own certificates and folder, which reach each other through
// proxies. A stream of jobs runs there: scripts, arrays, commands on two nodes, jobs with GPUs of
// their own node and of others. Some are cancelled or requeued. Meanwhile the campaign kills and
// stops heads, daemons, supervisors and jobs' processes, cuts and delays links, and kills whole
// machines.
//
// Each job writes a line when it begins and one when it ends. During the campaign, the watcher
// checks the jobs' processes and the nodes' grants. When the faults are over and all jobs have
// ended, the checks (check.go) compare what the head says with the lines and with the faults: every
// outcome of a job must have a reason. Then nothing may be left: no process, no loan, no task in a
// spool, no descriptor in the daemons.
//
// The seed determines the cluster, the jobs and the faults. Victims are drawn from those present,
// and processes do not run in lock-step, so equal seeds do not give equal runs: findings are kept
// with all logs. Package campaign/world plays the cores of a cluster in virtual time, where a seed
// determines the run.
package cluster
