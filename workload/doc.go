// Package workload reads and writes job logs, generates synthetic ones, and describes logs. It
// converts the Standard Workload Format, Slurm's sacct, PBS accounting logs, two published GPU
// traces, a plain CSV and lines of submit options to jobs of package model.
//
// It must not know how jobs are placed or run: no cluster, no policy, no simulator. Random draws
// come from a seed, with bit-identical results on every machine.
package workload
