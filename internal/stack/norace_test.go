//go:build !race

package stack

import "fmt"

var asTheTests []string

// rounds is how often a program launches a kernel that is to be seen running.
func rounds(n int) string { return fmt.Sprint(n) }
