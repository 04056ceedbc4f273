package devicetest

import "unsafe"

// addressOf is where memory of the system's lies.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
