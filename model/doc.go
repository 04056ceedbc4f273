// Package model holds the words of Muster as plain values: clusters of nodes
// and devices, jobs and what they request, allocations and what they were
// granted. It knows their text and JSON forms and checks that they make sense.
//
// It decides nothing, keeps no state, and imports only the standard library.
//
// Conventions: sizes are bytes, bandwidths bytes per second, instants and
// spans are time.Duration (instants count from the start of the workload).
package model
