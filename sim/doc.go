// Package sim runs workloads in virtual time: jobs on nodes, under a policy, with the network that
// borrowed GPUs use. Time is an integer, every decision is the policy's, and the same inputs give
// the same result on every machine.
//
// It knows neither the daemons nor any way to show results, and it never reads a clock.
package sim
