package stack

import (
	"fmt"
	"os"
)

// testProcess is a process of a test that is this very binary.
func testProcess(mode string) {
	fmt.Fprintf(os.Stderr, "there is no process %q\n", mode)
	os.Exit(2)
}
