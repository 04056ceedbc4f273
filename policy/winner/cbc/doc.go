// Package cbc is the referee of package winner: the same integer program, given
// to the solver CBC of COIN-OR. It says in tests whether our own solver is right,
// and how it compares; no program of Muster uses it.
//
// It needs cgo, Debian's package coinor-libcbc-dev, and the build tag cbc:
//
//	go test -tags cbc ./policy/winner/cbc/
//
// Without the tag the package holds nothing.
//
// HiGHS is not run here, for no binding of it can be had. It was measured once, in
// version 1.15.1 before its release and on windows of the same kinds, when the
// solver was chosen: of 250 bids it found the optimum, and of 200 jobs with all
// their bids it found less in 20 seconds than a first form of our search in one.
package cbc
