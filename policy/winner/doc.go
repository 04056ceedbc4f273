// Package winner solves the auction's integer program, known as winner
// determination: it chooses the bids that win, where each job may win with at
// most one of its bids and no node may give more cores or GPUs than it has.
//
// It works on numbers only. The package knows no job, no cluster and no policy:
// the caller decides who bids, why, and what a bid is worth.
//
// # The program
//
// The numbers in brackets are those of the equations of the auction paper. The
// program maximizes the sum of the values of the winning bids (1), subject to
// these constraints: each job wins with at most one bid (2); a bid that wins
// gets the number of nodes (3) and of cores (4) that it asks for, at least one
// core on each of its nodes (7), and the same number of cores on each node
// where it asks for that (8); and no node gives more cores (5) or GPUs (6) than
// are free on it.
//
// # How it is solved
//
// Search first removes what cannot matter: bids that fit nowhere, bids that
// another bid of the same job dominates, and nodes on which all jobs fit at the
// same time. The remaining problem often falls apart into parts that share no
// node. Search solves each part by itself: greedy rules give a first set of
// winners; prices for nodes (a Lagrangian relaxation) give an upper bound and
// better winners; an ejection search (annealing) improves the winners. If the
// bound is still above them and the part is small, branch and bound with a
// linear program and cutting planes (tree) closes the gap. If the part is
// large, regroup frees one neighbourhood at a time and solves it as a small
// problem.
//
// # What is proven
//
// Floating point finds prices; it proves nothing. Every bound is computed anew
// from prices rounded to integers, in integer arithmetic, and is valid for any
// prices: weak duality needs them to be nonnegative, not to be optimal. So a
// rounding error can make a bound weaker, never wrong. The tolerances
// (tolerance.go) decide only what is tried next.
//
// Every limit is a number of steps, never a time: the same problem and limits
// give the same answer on any machine, however slow. For the same reason
// products that are added up are written float64(a*b): without the conversion a
// compiler may fuse both operations into one that rounds differently.
package winner
