// Package winner solves the auction's integer program: which bids win, when
// each job may win with one of its bids and no node may give more cores or GPUs
// than it has.
//
// It is a puzzle with numbers. The package knows no job, no cluster and no
// policy: who bids, why, and what a bid is worth is decided by the caller.
//
// # The program
//
// The numbers in brackets are those of the equations of the auction paper. The
// sum of the values of the bids that win is made as large as can be (1), so that
// each job wins with at most one bid (2); a bid that wins gets its number of
// nodes (3) and of cores (4), at least one core on each of its nodes (7), and as
// many cores on each as it asks for where it says so (8); and no node gives more
// cores (5) or GPUs (6) than are free on it.
//
// # How it is solved
//
// Search first takes away what cannot matter: bids that fit nowhere, bids that
// are worse than another of the same job in every way, nodes on which everybody
// fits. What is left often falls apart into parts that share nothing. For each
// part a greedy start, prices of nodes (a Lagrangian relaxation, which gives a
// bound) and an ejection search find good winners. While the bound is above
// them and the part is small, a tree search with a linear program and cutting
// planes closes the gap.
//
// # What is proven
//
// Floating point finds prices; it proves nothing. Every bound is computed anew
// from prices rounded to integers, in integer arithmetic, and holds for any
// prices. Every limit is a count of steps: the same problem and limits give the
// same answer on any machine, however slow.
package winner
