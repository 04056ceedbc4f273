// Package cbc is the referee of package winner: the same integer program, given
// to the solver CBC of COIN-OR. It says in tests whether our own solver is right,
// and how it compares; no program of Muster uses it.
//
// It needs cgo, Debian's package coinor-libcbc-dev, and the build tag cbc:
//
//	go test -tags cbc ./internal/cbc/
//
// Without the tag the package holds nothing.
package cbc
