//go:build cgo

package become

// The constructor in enter.c runs before Go does, so a process becomes its program within about a
// millisecond, however much the executable has to prepare.

// #cgo CFLAGS: -Wall -O2
import "C"
