//go:build !race

package stack

var asTheTests []string
