//go:build !race

package stack

import (
	"fmt"

	"muster/internal/build"
)

func chooseTests() error { return nil } // all

func buildMuster(to string) error { return build.Program("../..", to) }

// rounds is how often a program launches a kernel that is to be seen running.
func rounds(n int) string { return fmt.Sprint(n) }
