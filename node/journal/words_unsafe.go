package journal

import (
	"sync/atomic"
	"unsafe"
)

// Words of the journal are written by one process and read by another, which may
// have to make sense of them after the first was killed: they change as a whole.

func load32(b []byte, at int) uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[at]))) }
func load64(b []byte, at int) uint64 { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[at]))) }

func (j *Journal) store32(b []byte, at int, v uint32) {
	j.look()
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[at])), v)
	j.look()
}

func (j *Journal) store64(b []byte, at int, v uint64) {
	j.look()
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[at])), v)
	j.look()
}

// look lets a test see what a process that is killed here would leave.
func (j *Journal) look() {
	if j.storing != nil {
		j.storing()
	}
}
