package devicetest

import (
	"sync/atomic"
	"unsafe"
)

// addressOf is where memory of the system's lies.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// storeWord writes a word that a device is looking at.
func storeWord(b []byte, value uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), value)
}
