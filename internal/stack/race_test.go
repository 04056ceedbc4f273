//go:build race

package stack

// Where the tests run under the race detector, so do daemons and workers.
var asTheTests = []string{"-race"}
