// Package mccs is the scheduling library of the cluster scheduler in chapter 4 of
// the fourth paper: the 25 calls of its Table 4-1 and the two of Listing 4-3, as
// methods of a Library. A policy is a Program: it registers functions for events, and
// has a main function that takes jobs from a queue, gives them nodes and starts them.
// docs/mccs.md says call by call what the paper means and what is meant here.
//
// # A step
//
// The driver tells a policy.State what happens; the library turns what the view says
// has changed into events, calls the functions that were registered, and then the
// program's main function. It is the thread of the paper that waits for a signal: the
// events of one step are one signal, and begin one round. In a round RemoveJob
// hands out each job of the queue of unassigned jobs at most once, in the order of the
// queue, and nothing when it has been through. So a program that puts back what it
// cannot place waits where that of the paper would spin.
//
// # Jobs, processes and nodes
//
// The paper's job is a number of processes that any node takes, as its runtime lets
// them share its GPUs. Here a job has a request, and the ledger of the state holds
// every start to it. AddNodeToJob therefore answers how many processes the node really
// takes: what its free cores, memory and devices allow. A job may be shared out to
// more processes than a node has GPUs only if it asked for shares of GPUs.
//
// # Who keeps what
//
// The library keeps the queues, who is on which node, and limits. All of it can be
// made again from the view, which is what happens after Reset: every waiting job
// arrives again, and whatever runs is in the queue of assigned jobs.
package mccs
