// Package model defines Muster's terms as plain values: clusters of nodes and devices, jobs and
// their requests, allocations and grants. It knows their text and JSON forms and validates them.
//
// It decides nothing, keeps no state, and imports only the standard library.
//
// Conventions: sizes are in bytes, bandwidths in bytes per second, and instants and spans are
// time.Duration (instants count from the start of the workload).
package model
