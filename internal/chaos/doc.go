// Package chaos hurts a running node in every way that it is meant to survive,
// and checks that nobody but the victim notices.
//
// A campaign is a number of faults and a seed. It is made of episodes: each has a
// node of its own (a real daemon with software GPUs that are too small for what
// runs on them), a stream of real programs, and its share of the faults. What the
// seed decides is a plan (plan.go): the node's configuration, the programs, the
// faults, and how much must happen before each. Progress is counted in kernels that
// ran, as the node's status tells it, so that a slow machine has the same campaign;
// a time only counts where nothing makes progress.
//
// The claim (check.go): no wrong result; no leak of processes, descriptors, memory
// or files; no neighbour harmed. A program that was not itself killed ends with the
// result that it has on an idle node, and one whose error is its own with that
// error. Whoever may end otherwise has an excuse, which names the fault and the words
// that the program must have printed.
//
// Processes do not run in lock-step, so the same seed gives the same faults in the
// same order, but not the same interleaving. What was found is therefore kept with
// its logs, and is worth a test of its own.
//
// It knows Muster as its users do: by its commands, its library, its socket and what
// the system says of its processes.
package chaos
