// Package tenjobs holds docs/example.md to the truth: its test reads the cluster,
// the ten jobs, the table of results and the charts from the page, and simulates.
// It must know nothing that the page does not say.
package tenjobs
