// Package jobs has the commands for jobs on a cluster, its head and its nodes, and for a Slurm that
// Muster drives: thin, flags in, text or JSON out.
package jobs
