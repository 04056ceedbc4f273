package journal

import (
	"sync/atomic"
	"unsafe"
)

// Words of the journal are written by one process and read by another, which may
// have to make sense of them after the first was killed: they change as a whole.

func load32(b []byte, at int) uint32     { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[at]))) }
func store32(b []byte, at int, v uint32) { atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[at])), v) }
func load64(b []byte, at int) uint64     { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[at]))) }
func store64(b []byte, at int, v uint64) { atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[at])), v) }
