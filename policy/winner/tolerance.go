package winner

// The tolerances of the search in floating point. They decide what is tried
// next and prove nothing: bounds and winners are checked in integers (doc.go).
// All quantities that they are compared with are shares of bids, between 0 and
// 1, or rows whose largest coefficient is 1. Each must be well above the error
// of what it tests, and the tests depend on each other in this order.
const (
	// pivotNoise and factorNoise are what rounding leaves where a tableau's
	// entry should be 0. Treating it as 0 keeps rows sparse, and keeps noise
	// from growing by division. A factor is multiplied by a whole row before it
	// matters, so it is cut off one digit earlier.
	pivotNoise  = 1e-12
	factorNoise = 1e-11
	// sameShare is how close two shares must be for round to order their bids
	// by value instead: sums of some hundred entries with an error of 1e-12.
	sameShare = 1e-9
	// feasible is how far the simplex lets a basic variable be on the wrong
	// side of 0 (tableau.leaving); smaller shares are noise everywhere.
	feasible = 1e-7
	// violated is by how much a solution must break a row to be given it. It is
	// above feasible, so that a row which the program has already, and
	// satisfies to its tolerance, is not found again.
	violated = 1e-6
	// someShare is the least share of a bid that is in a solution, and the least
	// gain of a weight of shares that is a gain.
	someShare = 1e-6
	// leastPivot is the least entry that may become a pivot: dividing by a
	// smaller one multiplies the error of its row by a million.
	leastPivot = 1e-6
	// almostWhole is how close to 0 or 1 a share counts as decided in a solution that
	// is taken for integral. The winners are then checked exactly.
	almostWhole = 1e-5
	// ruinedBy is the error of a share from which on the tableau is made anew.
	ruinedBy = 1e-4
	// roomToRound is what values, which are integers, may be too low in floating
	// point when they are compared with the next integer.
	roomToRound = 1e-3
)

// Thresholds below which work is not worth its time. They could be others.
const (
	// Cuts that a solution violates by less move the bound too little for the
	// pivots that they cost. Half rows are few, so that less is enough.
	worthACut     = 0.02
	worthAHalfCut = 0.01
	// Bids within decidedShare of 0 or 1 are not looked at for cliques.
	decidedShare = 1e-4
	// overOne is how far above 1 the shares on a node must be before its rows
	// are rounded: bids that share one place violate none.
	overOne = 1e-3
	// fractional is how far from 0 and 1 a job's share must be for branch to
	// try it: on others one side of the branch would change nothing.
	fractional = 0.02
	// slowCuts is the share of its value that a round of cuts at the root must
	// take off for another round to follow.
	slowCuts = 1e-4
	// leastMove bounds what a decision's loss is divided by (its pseudocost).
	leastMove = 1e-3
)
