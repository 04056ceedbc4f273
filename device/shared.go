package device

import "os"

// Sharer is implemented by contexts that can map memory which several processes share, each
// at its own address. Such memory belongs to no device: every context that maps it, on any
// device of the machine, reaches the same bytes. It exists until no context maps it and all
// its files are closed.
type Sharer interface {
	// NewShared makes size bytes of shared memory; size is a multiple of the granularity.
	// Any process that is passed the file can map it.
	NewShared(size uint64) (*os.File, error)
	// MapShared maps all of the file's memory at addr, as Map does. The caller must unmap it
	// as a whole, in a single Unmap of this range. The caller keeps the file.
	MapShared(addr, size uint64, f *os.File) error
}
