package soft

import (
	"sync/atomic"
	"unsafe"
)

// loadWord reads a word of 4 or 8 bytes that others may be writing. Device memory begins
// at a page's beginning, so that the word is where the processor wants it.
func loadWord(b []byte) uint64 {
	if len(b) == 4 {
		return uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(b)))))
	}
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))))
}

// storeWord writes one that others may be reading.
func storeWord(b []byte, value uint64) {
	if len(b) == 4 {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), uint32(value))
		return
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), value)
}
