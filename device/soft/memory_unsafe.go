package soft

import "unsafe"

// addressOf returns where bytes lie in the host's memory. It is used for
// alignment only, on memory that the collector does not move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
