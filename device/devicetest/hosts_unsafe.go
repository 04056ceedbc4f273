package devicetest

import (
	"sync/atomic"
	"unsafe"
)

// addressOf returns the address of memory that Go's runtime does not manage.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// storeWord atomically writes a word that a device is polling.
func storeWord(b []byte, value uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), value)
}
