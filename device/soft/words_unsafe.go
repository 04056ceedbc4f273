package soft

import (
	"sync/atomic"
	"unsafe"
)

// loadWord atomically reads a word of 4 or 8 bytes that kernels or the program may be writing.
// Areas begin at page boundaries and the device address is a multiple of the width, so the host
// address is aligned as atomics need it.
func loadWord(b []byte) uint64 {
	if len(b) == 4 {
		return uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(b)))))
	}
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))))
}

// storeWord atomically writes a word that kernels or the program may be reading.
func storeWord(b []byte, value uint64) {
	if len(b) == 4 {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), uint32(value))
		return
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), value)
}
