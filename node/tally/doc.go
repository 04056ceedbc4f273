// Package tally is what a node counts: of each client what it did and how it was swapped, of those that
// have gone the sums, and how much of the last second each client had work on a device. Counts never
// exceed what a sum can hold, whatever workers say. It knows no device and no process.
package tally
