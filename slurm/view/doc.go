// Package view shows people what happens in a Slurm whose jobs Muster places: a job, as Slurm's own
// commands and the driver's words in its comments tell of it, and what the driver does.
//
// It knows the words that driver and plug-in write (slurm/words) and the driver's status. It asks
// squeue about jobs, so that everybody may use it who may see the job; it decides nothing.
package view
