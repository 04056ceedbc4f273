// Package auction is the AUCSCHED scheduler: a window of waiting jobs bids for
// sets of nodes, and the bids with the largest sum of priorities win. Among
// equal sums the bids that break up the machine least win.
//
// The package makes nodesets, bids, preferences and values, and turns the bids
// that won into starts. Which bids win is a puzzle with numbers, and
// package winner's business: the solver is behind an interface, its answer is
// checked, and where it has none a simple one takes its place, so that every
// step schedules. The package knows no clock, no simulator and no experiment.
package auction
