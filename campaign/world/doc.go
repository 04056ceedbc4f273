// Package world simulates a whole cluster in one process and in virtual time: the core of the head
// and the cores of many agents, with users, a network that delays, repeats and loses messages,
// disks that fail and machines that die at any step. A seed determines the run, event by event.
//
// After each event the world checks the invariants: nothing is started twice, nothing is
// oversubscribed, nothing acknowledged is forgotten. After the last fault it waits until everything
// is quiet, and checks that every accepted job has ended, either exactly once or lost with a node,
// and that nothing is left behind.
//
// It replaces only what the cores leave to others: the daemon's loop with its store, the agents'
// spools, the supervisors with their processes, and the connections.
package world
