package journal

import (
	"sync/atomic"
	"unsafe"
)

// These words are written by one process and read by another, perhaps after the first was killed.
// They are aligned and written atomically, so the reader never sees half a word; and the stores are
// ordered, so that what was written before a word is visible to whoever sees the word.

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

// look lets a test examine what a process that is killed here would leave behind.
func (j *Journal) look() {
	if j.storing != nil {
		j.storing()
	}
}
