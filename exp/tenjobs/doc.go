// Package tenjobs checks docs/example.md: its test reads the cluster, the ten jobs, the table of
// results and the charts from the page, and simulates them. It must not know anything that the page
// does not say.
package tenjobs
