package device

import "os"

// Sharer is what a context offers whose memory several processes can have at once, each
// at an address of its own. Such memory belongs to no device: every context that maps it
// reaches the same bytes, also on other devices of the machine, and it stays until nobody
// maps it and all its files are closed.
type Sharer interface {
	// NewShared makes memory of so many bytes, a multiple of the granularity. Whoever
	// gets the file, in whichever process, can map it.
	NewShared(size uint64) (*os.File, error)
	// MapShared puts all of it at an address, as Map does; Unmap takes it away, as a
	// whole. The caller keeps the file.
	MapShared(addr, size uint64, f *os.File) error
}
