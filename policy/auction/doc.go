// Package auction is the AUCSCHED scheduler: a window of waiting jobs bids for
// sets of nodes, and the bids with the largest sum of priorities win. Among
// equal sums the bids that fragment the cluster least win.
//
// The package makes nodesets, bids, preferences and values, and turns winning
// bids into starts. Package winner decides which bids win, as a problem of
// numbers only. The solver is behind an interface; its answer is checked, and
// if it fails a greedy solver takes its place, so that every step schedules.
// The package knows no clock, no simulator and no experiment.
package auction
