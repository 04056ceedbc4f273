package worker

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"muster/device"
	"muster/model"
	"muster/vmm"
)

// hostMemory holds the host copies of a client's memory, the swap area of this
// client: a mapping as large as its arena, in memory or in a file.
//
// In memory, pages take room when they are written, and the system kills somebody
// if there is none. In a file a write to a page that the disk has no room for
// would kill this process (SIGBUS), so room is reserved before: reserve when the
// client allocates, release when it frees. Between the two all of an allocation
// may be read and written.
type hostMemory struct {
	base  uint64
	bytes []byte

	file   *os.File // nil in memory
	dir    string
	rooms  rooms
	warned bool // that the disk is full
}

// newHostMemory makes room for addresses of an arena, in memory or in a file
// without a name in a folder.
func newHostMemory(arena vmm.Range, dir string) (*hostMemory, error) {
	h := &hostMemory{base: arena.Addr, dir: dir}
	fd, flags := -1, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE
	if dir != "" {
		f, err := namelessFile(dir)
		if err != nil {
			return nil, fmt.Errorf("making the swap file: %w", err)
		}
		if err := f.Truncate(int64(arena.Size)); err != nil {
			f.Close()
			return nil, fmt.Errorf("making a swap file of %d bytes (sparse): %w", arena.Size, err)
		}
		h.file, fd, flags = f, int(f.Fd()), syscall.MAP_SHARED|syscall.MAP_NORESERVE
		h.rooms = make(rooms, arena.Size/chunk)
	}
	var err error
	h.bytes, err = syscall.Mmap(fd, 0, int(arena.Size), syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		if h.file != nil {
			h.file.Close()
		}
		return nil, fmt.Errorf("reserving %d bytes of address space for host copies (is there a limit, ulimit -v?): %w", arena.Size, err)
	}
	return h, nil
}

// namelessFile makes a file that goes with the process, however that ends.
func namelessFile(dir string) (*os.File, error) {
	const temporary = 0x400000 | syscall.O_DIRECTORY // O_TMPFILE
	if f, err := os.OpenFile(dir, os.O_RDWR|temporary, 0o600); err == nil {
		return f, nil
	}
	// Not every file system has such files.
	return unlinkedFile(dir)
}

// unlinkedFile makes a file that has a name for a moment only.
func unlinkedFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "muster-swap-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// at returns the copy of a range that was checked to lie in an allocation.
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

// reserve makes sure that an allocation has room: device.ErrOutOfMemory says that
// the disk is full. Nothing has changed then.
func (h *hostMemory) reserve(allocation vmm.Range) error {
	if h.file == nil {
		return nil
	}
	first, count := h.chunks(allocation)
	rows := h.rooms.take(first, count)
	for i, row := range rows {
		err := h.allocate(row)
		if err == nil {
			continue
		}
		for _, row := range rows[:i+1] { // the last one may have got a part
			_ = h.punch(row)
		}
		h.rooms.give(first, count)
		return h.full(allocation.Size, err)
	}
	return nil
}

// release gives back the room of an allocation that was reserved, except what
// others share with it.
func (h *hostMemory) release(allocation vmm.Range) error {
	if h.file == nil {
		return nil
	}
	var errs []error
	for _, row := range h.rooms.give(h.chunks(allocation)) {
		errs = append(errs, h.punch(row))
	}
	return errors.Join(errs...)
}

// releaseAll gives back the room of all allocations.
func (h *hostMemory) releaseAll() error {
	if h.file == nil {
		return nil
	}
	clear(h.rooms)
	return h.punch(row{0, len(h.rooms)})
}

// discard says that the contents of whole chunks are not needed any more. In a file
// their room stays reserved until release: it was promised to the client.
func (h *hostMemory) discard(r vmm.Range) error {
	if h.file != nil {
		return nil
	}
	return syscall.Madvise(h.at(r), syscall.MADV_DONTNEED)
}

func (h *hostMemory) close() {
	_ = syscall.Munmap(h.bytes)
	if h.file != nil {
		h.file.Close()
	}
}

func (h *hostMemory) chunks(r vmm.Range) (first, count int) {
	from, to := (r.Addr-h.base)/chunk, (r.Addr-h.base+r.Size-1)/chunk
	return int(from), int(to-from) + 1
}

// maxPiece bounds what one call of the system reserves: a signal makes it begin
// again.
const maxPiece = 256 << 20

// allocate has the disk set room aside for chunks.
func (h *hostMemory) allocate(row row) error {
	for at, end := row.offset(), row.offset()+row.size(); at < end; at += maxPiece {
		size := min(end-at, maxPiece)
		err := uninterrupted(func() error { return syscall.Fallocate(int(h.file.Fd()), 0, at, size) })
		if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
			err = h.write(at, size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write has the disk give room for zeros: not every file system can set it aside.
func (h *hostMemory) write(at, size int64) error {
	zeros := make([]byte, chunk)
	for end := at + size; at < end; at += chunk {
		if _, err := h.file.WriteAt(zeros, at); err != nil {
			return err
		}
	}
	return nil
}

// punch gives the room of chunks back to the disk. A file system that cannot do
// that keeps it for later allocations there.
func (h *hostMemory) punch(row row) error {
	const keepSize, punchHole = 1, 2
	err := uninterrupted(func() error {
		return syscall.Fallocate(int(h.file.Fd()), keepSize|punchHole, row.offset(), row.size())
	})
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("giving back %d bytes of the swap file: %w", row.size(), err)
	}
	return nil
}

func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// full says that the disk has not enough room, and how much it has.
func (h *hostMemory) full(wanted uint64, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return &noRoom{fmt.Sprintf("no room for %s can be reserved in the swap area %s: %v", model.BriefSize(wanted), h.dir, err)}
	}
	var disk syscall.Statfs_t
	if statErr := syscall.Fstatfs(int(h.file.Fd()), &disk); statErr != nil {
		err = errors.Join(err, statErr)
	}
	unit := uint64(disk.Bsize)
	return &noRoom{fmt.Sprintf("the disk of the swap area %s is full, %s are wanted and %s of %s are free (%v): ask the administrator to make room there, or to lower the node's swap.size",
		h.dir, model.BriefSize(wanted), model.BriefSize(disk.Bavail*unit), model.BriefSize(disk.Blocks*unit), err)}
}

// noRoom is a device.ErrOutOfMemory whose text speaks of the swap area alone: the
// device has memory enough.
type noRoom struct{ text string }

func (e *noRoom) Error() string { return e.text }
func (e *noRoom) Unwrap() error { return device.ErrOutOfMemory }

// rooms counts, for each chunk of the swap file, the allocations that touch it:
// chunks with none have no room reserved.
type rooms []uint32

// row is a row of chunks.
type row struct{ first, count int }

func (r row) offset() int64 { return int64(r.first) * chunk }
func (r row) size() int64   { return int64(r.count) * chunk }

// take counts an allocation, and returns the chunks that it is the first in.
func (t rooms) take(first, count int) []row {
	var rows []row
	for i := first; i < first+count; i++ {
		if t[i]++; t[i] == 1 {
			rows = appendChunk(rows, i)
		}
	}
	return rows
}

// give forgets an allocation, and returns the chunks that it was the last in.
func (t rooms) give(first, count int) []row {
	var rows []row
	for i := first; i < first+count; i++ {
		if t[i]--; t[i] == 0 {
			rows = appendChunk(rows, i)
		}
	}
	return rows
}

func appendChunk(rows []row, i int) []row {
	if n := len(rows) - 1; n >= 0 && rows[n].first+rows[n].count == i {
		rows[n].count++
		return rows
	}
	return append(rows, row{i, 1})
}
