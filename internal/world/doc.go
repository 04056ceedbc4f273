// Package world is a whole cluster in one process and in virtual time: the core of
// the head and the cores of many agents, with users, a network that delays, repeats
// and cuts, disks that fail and machines that die at any step. A run is a seed, and
// the same seed is the same run, event by event.
//
// After each event the world checks what must always hold: nothing is begun twice,
// nothing is oversubscribed, nothing that was acknowledged is forgotten. When its
// faults have ceased it waits until all is quiet, and checks that every accepted job
// has ended, each exactly once or lost with a node, and that nothing is left behind.
//
// It replaces only what the cores leave to others: the daemon's loop with its store,
// the agents' spools, the supervisors with their processes, the connections.
package world
