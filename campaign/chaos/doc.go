// Package chaos injects every fault into a running node that it is meant to survive, and checks
// that only the victims notice.
//
// A campaign is a number of faults and a seed. It consists of episodes: each has its own node (a
// real daemon with software GPUs that are too small for what runs on them), a stream of real
// programs, and its share of the faults. The seed determines a plan (plan.go): the node's
// configuration, the programs, the faults, and how much must happen before each. Progress is
// measured in kernels that ran, by the node's status, so that a slow machine plays the same
// campaign; times matter only if nothing makes progress.
//
// The claim (check.go): no wrong result; no leak of processes, descriptors, memory or files; no
// neighbour harmed. A program that was not itself killed ends with the result that it has on an
// idle node, or, if it makes a deliberate error, with that error. A program that may end
// differently has an excuse, which names the fault and the words that the program must have
// printed.
//
// Processes do not run in lock-step, so equal seeds give equal faults in equal order, but not the
// same interleaving. Findings are therefore kept with their logs, and deserve a test of their own.
//
// The package knows Muster as its users do: by its commands, its library, its socket and what the
// system says about its processes.
package chaos
