// Package workload reads and writes job logs, makes synthetic ones, and
// describes what a log looks like. It turns the Standard Workload Format,
// Slurm's sacct, PBS accounting logs, two published GPU traces, a plain CSV and
// lines of submit options into jobs of package model.
//
// It must not know how jobs are placed or run: no cluster, no policy, no
// simulator. What it draws at random comes from a seed, with the same bytes on
// every machine.
package workload
