//go:build race

package stack

import "fmt"

// Where the tests run under the race detector, so do daemons and workers.
var asTheTests = []string{"-race"}

// rounds is how often a program launches a kernel that is to be seen running. Under the
// race detector kernels take ten times as long, so that fewer are seen as well.
func rounds(n int) string { return fmt.Sprint(n / 5) }
