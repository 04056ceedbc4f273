package worker

import (
	"fmt"
	"os"
	"syscall"

	"muster/vmm"
)

// hostMemory holds the host copies of a client's memory: a mapping as large as
// its arena, of which only pages that were written take room.
type hostMemory struct {
	base  uint64
	bytes []byte
	file  *os.File // nil in memory
}

// newHostMemory reserves the copies of an arena, in memory or in a file
// without a name in a folder.
func newHostMemory(arena vmm.Range, dir string) (*hostMemory, error) {
	h := &hostMemory{base: arena.Addr}
	fd, flags := -1, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE
	if dir != "" {
		f, err := os.CreateTemp(dir, "muster-swap-*")
		if err != nil {
			return nil, fmt.Errorf("making the swap file: %w", err)
		}
		// Without a name it is gone when the process is.
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return nil, err
		}
		if err := f.Truncate(int64(arena.Size)); err != nil {
			f.Close()
			return nil, fmt.Errorf("making a swap file of %d bytes (sparse): %w", arena.Size, err)
		}
		h.file, fd, flags = f, int(f.Fd()), syscall.MAP_SHARED|syscall.MAP_NORESERVE
	}
	var err error
	h.bytes, err = syscall.Mmap(fd, 0, int(arena.Size), syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		return nil, fmt.Errorf("reserving %d bytes of address space for host copies (is there a limit, ulimit -v?): %w", arena.Size, err)
	}
	return h, nil
}

// at returns the copy of a range that was checked to lie in the arena.
func (h *hostMemory) at(r vmm.Range) []byte {
	from := r.Addr - h.base
	return h.bytes[from : from+r.Size : from+r.Size]
}

// expect says that all of a range is about to be written: large pages save time
// then, and waste nothing.
func (h *hostMemory) expect(r vmm.Range) {
	if h.file == nil {
		_ = syscall.Madvise(h.at(r), syscall.MADV_HUGEPAGE) // it works without
	}
}

// discard gives the pages of a range back.
func (h *hostMemory) discard(r vmm.Range) error {
	if h.file == nil {
		return syscall.Madvise(h.at(r), syscall.MADV_DONTNEED)
	}
	const keepSize, punchHole = 1, 2
	return syscall.Fallocate(int(h.file.Fd()), keepSize|punchHole, int64(r.Addr-h.base), int64(r.Size))
}

func (h *hostMemory) close() {
	_ = syscall.Munmap(h.bytes)
	if h.file != nil {
		h.file.Close()
	}
}
