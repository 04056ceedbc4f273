// Package hostcopy holds the host copies of a client's memory, which are its swap area: what the client
// has in its arena and on no device, or what a device is to be given back. It knows chunks, files and
// pages, and of devices only that they may pin pages (Pins). It does not know what a client is, when
// memory moves, or what a base holds besides it.
package hostcopy

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"muster/device"
	"muster/internal/together"
	"muster/internal/units"
	"muster/vmm"
	"muster/wire"
)

// Chunk is the unit of memory that moves between places.
const Chunk = 2 << 20

const chunk = Chunk

// Memory is the host copies of a client's memory: a mapping as large as the client's arena, in memory or in a file. Only the loop uses it.
//
// In memory, pages take room when they are first written, and when there is none the kernel kills a
// process. In a file, writing to a page that the disk has no room for would kill this process
// (SIGBUS), so room is reserved beforehand: reserve when the client allocates, release when it
// frees. In between, all of an allocation may be read and written.
//
// A client that is to outlive its worker has two sides, two mappings of the whole arena, in files
// that the daemon holds too. Each chunk is on one of them. What a chunk holds when commit is called
// belongs to the client's base and is not overwritten: the next write to the chunk goes to the
// other side (copy-on-write by chunk, see touch), and the next commit gives up the former side. So
// a worker can die at any time: the base's version of every chunk is intact.
type Memory struct {
	base   uint64
	sides  []*side
	chunks []chunkState
	which  []byte // a bit per chunk: its side; saved with the base
	now    uint32 // number of commits
	moved  []int  // chunks that have changed sides since the last commit
	spare  int    // number of chunks with spare set

	dir string // folder of the files; "": in memory

	// GivesUp is called when there is no room to keep the base's version of something that is about to be
	// written, and the base is given up. It may be nil.
	GivesUp func(why error)

	pins []*Pins // of the contexts that are open

	// maySpare is how many chunks may keep pages that are not in use.
	maySpare func() int
	giving   func(on uint8, r row) // called before pages are given back, in tests only
}

// side is one mapping.
type side struct {
	bytes []byte
	file  *os.File // nil for anonymous memory of this process
}

// chunkState is one chunk of host memory.
type chunkState struct {
	written uint32 // the value of now when the chunk was last given its side
	users   uint32 // allocations in the chunk; counted only in a file
	used    bool   // it holds something
	room    uint8  // a bit per side: room is reserved in the file
	spare   bool   // the side not in use still has pages
}

// Pages that are not in use are kept, because the next base will need them: making pages costs
// several times as much as copying to them. leastSpare chunks may keep them, or 1/spareShare of the
// machine's free memory if that is more.
const (
	leastSpare = (256 << 20) / chunk
	spareShare = 4
)

// spareHere is how many chunks may keep pages that are not in use, on this machine now.
func spareHere() int {
	return max(leastSpare, int(freeHere()/spareShare/chunk))
}

// New maps host copies for the addresses of an arena: in memory, in a nameless file in
// dir, or, if there are held files, in these.
func New(arena vmm.Range, dir string, held []*os.File) (*Memory, error) {
	h := &Memory{base: arena.Addr, dir: dir, chunks: make([]chunkState, arena.Size/chunk), which: make([]byte, (arena.Size/chunk+7)/8), now: 1, maySpare: spareHere}
	files := held
	if len(held) == 0 {
		files = []*os.File{nil}
		if dir != "" {
			f, err := CreateFile(arena.Size, dir, false)
			if err != nil {
				return nil, err
			}
			files[0] = f
		}
	}
	for _, f := range files {
		s, err := mapSide(f, arena.Size)
		if err != nil {
			h.Close()
			return nil, err
		}
		h.sides = append(h.sides, s)
	}
	return h, nil
}

// CreateFile creates a file for the host copies of an arena, in a folder, or in memory if dir
// is "". If huge is set, a file in memory has huge pages where this process may have such a file.
// They save most of the time that pinning takes, but CRIU cannot save a process that has one open:
// only nodes that pin pages, which CRIU cannot save anyway, set it.
func CreateFile(size uint64, dir string, huge bool) (*os.File, error) {
	if dir == "" {
		if huge {
			if f, err := hugeFile(size); err == nil { // else this process may not mount, or the system is old
				return f, nil
			}
		}
		return wire.CreateMemory("muster-host", size)
	}
	f, err := namelessFile(dir)
	if err != nil {
		return nil, fmt.Errorf("making the swap file: %w", err)
	}
	if err := f.Truncate(int64(size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("making a swap file of %d bytes (sparse): %w", size, err)
	}
	return f, nil
}

func mapSide(f *os.File, size uint64) (*side, error) {
	fd, flags := -1, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE
	if f != nil {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if uint64(info.Size()) != size {
			return nil, fmt.Errorf("host copies in a file of %d bytes, where %d are needed", info.Size(), size)
		}
		fd, flags = int(f.Fd()), syscall.MAP_SHARED|syscall.MAP_NORESERVE
	}
	b, err := mapAside(fd, size, syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		return nil, fmt.Errorf("reserving %d bytes of address space for host copies (is there a limit, ulimit -v?): %w", size, err)
	}
	return &side{b, f}, nil
}

// namelessFile creates a file that disappears with the processes that have it open, however they
// end.
func namelessFile(dir string) (*os.File, error) {
	const temporary = 0x400000 | syscall.O_DIRECTORY // O_TMPFILE
	if f, err := os.OpenFile(dir, os.O_RDWR|temporary, 0o600); err == nil {
		return f, nil
	}
	// Not every file system supports O_TMPFILE.
	return unlinkedFile(dir)
}

// unlinkedFile creates a file that has a name only for a moment.
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

// side returns the side that a chunk is on.
func (h *Memory) side(i int) uint8 { return h.which[i/8] >> (i % 8) & 1 }

// flip moves a chunk to its other side.
func (h *Memory) flip(i int) { h.which[i/8] ^= 1 << (i % 8) }

// Each calls f for consecutive pieces of a range, each of which lies on one side.
func (h *Memory) Each(r vmm.Range, f func(addr uint64, piece []byte) error) error {
	for r.Size > 0 {
		first, last := h.span(r)
		end := first + 1
		for on := h.side(first); end <= last && h.side(end) == on; end++ {
		}
		n := min(r.Size, uint64(end)*chunk-(r.Addr-h.base))
		from := r.Addr - h.base
		if err := f(r.Addr, h.sides[h.side(first)].bytes[from:from+n:from+n]); err != nil {
			return err
		}
		r.Addr, r.Size = r.Addr+n, r.Size-n
	}
	return nil
}

// bytes returns the memory of a run of chunks.
func (h *Memory) bytes(r run) []byte {
	return h.sides[r.on].bytes[r.offset() : r.offset()+r.size() : r.offset()+r.size()]
}

// lacking returns the memory that would be written if all chunks of some ranges were, as far as it
// is not known to have pages, in pieces; and its size. It follows the rules of touch.
func (h *Memory) lacking(ranges []vmm.Range) (pieces [][]byte, bytes uint64) {
	var rows runs
	for _, r := range ranges {
		first, last := h.span(r)
		for i := first; i <= last; i++ {
			c, on := &h.chunks[i], h.side(i)
			if c.used && c.written != h.now && len(h.sides) == 2 {
				on = 1 - on
			} else if c.used {
				continue
			}
			if !c.spare {
				rows.add(i, on)
			}
		}
	}
	for _, r := range rows {
		memory := h.bytes(r)
		h.expect(memory)
		pieces = append(pieces, slices.Collect(slices.Chunk(memory, pinMost*chunk))...)
		bytes += uint64(len(memory))
	}
	return pieces, bytes
}

// span returns the first and the last chunk of a range.
func (h *Memory) span(r vmm.Range) (first, last int) {
	return int((r.Addr - h.base) / chunk), int((r.Addr - h.base + r.Size - 1) / chunk)
}

// Read copies a range to a slice.
func (h *Memory) Read(to []byte, addr uint64) {
	_ = h.Each(vmm.Range{Addr: addr, Size: uint64(len(to))}, func(at uint64, piece []byte) error {
		together.Copy(to[at-addr:], piece)
		return nil
	})
}

// FillWord writes a word throughout a range that was touched.
func (h *Memory) FillWord(r vmm.Range, word uint32) error {
	return h.Each(r, func(_ uint64, piece []byte) error {
		parts := slices.Collect(slices.Chunk(piece, chunk))
		together.Do(len(parts), func(i int) { fillBytes(parts[i], word, 4) })
		return nil
	})
}

// errBase says that there is no room for the other side of a chunk, so that the base's version
// cannot be preserved.
var errBase = errors.New("no room for another copy")

// Touch prepares a range to be written: it keeps the base's version of the chunks. If all is set, the
// caller will write the whole range, so chunks that lie in it completely are not copied. If there is no
// room for that, the base is given up.
func (h *Memory) Touch(r vmm.Range, all bool) {
	err := h.touch(r, all)
	if err == nil {
		return
	}
	if h.GivesUp != nil {
		h.GivesUp(err)
	}
	h.Abandon()
	_ = h.touch(r, all)
}

// touch prepares a range to be written: chunks that belong to the base change sides. If all is set,
// the caller will write the whole range, so chunks that lie in it completely are not copied. After
// errBase the chunks before the failing one are ready and the rest is not; the caller can give the
// base up (abandon) and try again.
func (h *Memory) touch(r vmm.Range, all bool) error {
	first, last := h.span(r)
	for i := first; i <= last; i++ {
		c := &h.chunks[i]
		if c.used && c.written != h.now && len(h.sides) == 2 {
			whole := all && uint64(i)*chunk >= r.Addr-h.base && uint64(i+1)*chunk <= r.Addr-h.base+r.Size
			if err := h.leave(i, !whole); err != nil {
				return err
			}
		}
		c.used, c.written = true, h.now
	}
	return nil
}

// leave moves a chunk to its other side, with its contents if keep is set.
func (h *Memory) leave(i int, keep bool) error {
	c, from := &h.chunks[i], h.side(i)
	to := 1 - from
	if h.dir != "" && c.room&(1<<to) == 0 {
		if err := h.allocate(to, row{i, 1}); err != nil {
			return errors.Join(errBase, err)
		}
		c.room |= 1 << to
	}
	h.unspare(c)
	if keep {
		at := i * chunk
		copy(h.sides[to].bytes[at:at+chunk], h.sides[from].bytes[at:at+chunk])
	}
	h.flip(i)
	h.moved = append(h.moved, i)
	return nil
}

// Commit makes the present contents of all chunks the base. The sides that chunks have left are
// given up, but their pages are kept as spare up to a limit.
func (h *Memory) Commit() {
	h.now++
	var gone runs
	most := leastSpare
	if len(h.moved)+h.spare > most {
		most = h.maySpare()
	}
	for _, i := range h.moved {
		c := &h.chunks[i]
		switch {
		case c.spare:
		case h.dir == "" && h.spare < most && c.used:
			c.spare = true
			h.spare++
		default:
			gone.add(i, 1-h.side(i))
		}
	}
	for i := 0; i < len(h.chunks) && h.spare > most; i++ { // memory has become scarce
		if c := &h.chunks[i]; c.spare {
			h.unspare(c)
			gone.add(i, 1-h.side(i))
		}
	}
	h.empty(gone)
	h.moved = h.moved[:0]
}

// Abandon gives the base up: chunks may be overwritten where they are.
func (h *Memory) Abandon() {
	h.Commit()
	for i := range h.chunks {
		h.chunks[i].written = h.now
	}
}

// empty gives the pages of runs back.
func (h *Memory) empty(all runs) {
	for _, r := range all {
		_ = h.punch(r.on, r.row) // what cannot be given back stays until the file is closed
		for i := r.first; i < r.first+r.count; i++ {
			h.chunks[i].room &^= 1 << r.on
		}
	}
}

// Resume continues with the files of a previous worker. Which says the side of each chunk, held are
// the chunks with contents. Room for allocations without contents may have been given back and
// taken by another client since; then the error is device.ErrOutOfMemory. Pages of the sides that
// are not in use are given back.
func (h *Memory) Resume(which []byte, held, allocations []vmm.Range) error {
	if len(which) != len(h.which) {
		return fmt.Errorf("%d bytes of sides, where %d are needed", len(which), len(h.which))
	}
	copy(h.which, which)
	for _, r := range allocations {
		first, last := h.span(r)
		for i := first; i <= last && h.dir != ""; i++ {
			h.chunks[i].users++
		}
	}
	for _, r := range held {
		first, last := h.span(r)
		for i := first; i <= last; i++ {
			h.chunks[i].used = true
			if h.chunks[i].users > 0 {
				h.chunks[i].room = 1 << h.side(i)
			}
		}
	}
	for on := range uint8(len(h.sides)) {
		var gone runs
		for i := range h.chunks {
			if !h.chunks[i].used && h.chunks[i].users == 0 || h.side(i) != on {
				gone.add(i, on)
			}
		}
		for _, r := range gone {
			_ = h.punch(r.on, r.row)
		}
	}
	return h.reserveAgain()
}

// reserveAgain makes sure that all allocations have room.
func (h *Memory) reserveAgain() error {
	var wanted runs
	for i := range h.chunks {
		if c := &h.chunks[i]; c.users > 0 && c.room == 0 {
			wanted.add(i, h.side(i))
		}
	}
	for _, r := range wanted {
		if err := h.allocate(r.on, r.row); err != nil {
			return h.full(uint64(r.size()), err)
		}
	}
	return nil
}

// expect says that all of a piece will be written, so that huge pages save time and waste nothing.
func (h *Memory) expect(piece []byte) {
	if h.dir == "" {
		_ = syscall.Madvise(piece, syscall.MADV_HUGEPAGE) // best effort
	}
}

// Reserve reserves room for an allocation. If the disk is full it changes nothing, and returns
// device.ErrOutOfMemory.
func (h *Memory) Reserve(allocation vmm.Range) error {
	if h.dir == "" {
		return nil
	}
	first, last := h.span(allocation)
	var wanted runs
	for i := first; i <= last; i++ {
		c := &h.chunks[i]
		if c.users++; c.users == 1 && c.room&(1<<h.side(i)) == 0 {
			wanted.add(i, h.side(i))
		}
	}
	for n, r := range wanted {
		err := h.allocate(r.on, r.row)
		if err == nil {
			continue
		}
		h.empty(wanted[:n+1]) // the last one may have got a part
		for i := first; i <= last; i++ {
			h.chunks[i].users--
		}
		return h.full(allocation.Size, err)
	}
	return nil
}

// Release gives back the room of an allocation, except for chunks that other allocations use or
// that belong to the base.
func (h *Memory) Release(allocation vmm.Range) {
	if h.dir == "" {
		return
	}
	first, last := h.span(allocation)
	var gone runs
	for i := first; i <= last; i++ {
		if h.chunks[i].users--; h.chunks[i].users == 0 {
			h.drop(i, &gone)
		}
	}
	h.empty(gone)
}

// ReleaseAll gives back the room of all allocations.
func (h *Memory) ReleaseAll() {
	var gone runs
	for i := range h.chunks {
		if c := &h.chunks[i]; c.users > 0 {
			c.users = 0
			h.drop(i, &gone)
		}
	}
	h.empty(gone)
}

// Discard says that the contents of whole chunks are not needed any more. In a file their room
// stays reserved until release: it was promised to the client.
func (h *Memory) Discard(r vmm.Range) {
	if h.dir != "" {
		return
	}
	first, last := h.span(r)
	var gone runs
	for i := first; i <= last; i++ {
		h.drop(i, &gone)
	}
	h.empty(gone)
}

// drop says that the present contents of a chunk are not needed, and adds the pages that can be
// given back to gone. The base's version stays until the next commit: the chunk changes sides
// instead.
func (h *Memory) drop(i int, gone *runs) {
	c := &h.chunks[i]
	switch {
	case c.used && c.written != h.now && len(h.sides) == 2:
		h.flip(i)
		h.moved = append(h.moved, i)
	case c.spare:
		gone.add(i, 1-h.side(i))
	}
	h.unspare(c)
	gone.add(i, h.side(i))
	c.used, c.written = false, h.now
}

// unspare notes that the spare pages of a chunk are in use again, or given back.
func (h *Memory) unspare(c *chunkState) {
	if c.spare {
		c.spare = false
		h.spare--
	}
}

// Sides says for each chunk, in a bit, which side it is on. A base has it.
func (h *Memory) Sides() []byte { return h.which }

// Moved is how many chunks are there twice: once for the base.
func (h *Memory) Moved() int { return len(h.moved) }

// InFile says whether the host copies are in a file on disk, in which room is reserved.
func (h *Memory) InFile() bool { return h.dir != "" }

// Close unmaps everything.
func (h *Memory) Close() {
	for _, s := range h.sides {
		_ = wire.UnmapAt(s.bytes)
		if s.file != nil {
			s.file.Close()
		}
	}
}

// maxPiece bounds what one system call reserves: a signal makes the call start again.
const maxPiece = 256 << 20

// allocate reserves room for a run of chunks on a side, and notes it in room.
func (h *Memory) allocate(on uint8, row row) error {
	for at, end := row.offset(), row.offset()+row.size(); at < end; at += maxPiece {
		size := min(end-at, maxPiece)
		fd := int(h.sides[on].file.Fd())
		err := uninterrupted(func() error { return syscall.Fallocate(fd, 0, at, size) })
		if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
			err = h.write(on, at, size)
		}
		if err != nil {
			return err
		}
	}
	for i := row.first; i < row.first+row.count; i++ {
		h.chunks[i].room |= 1 << on
	}
	return nil
}

// write reserves room by writing zeros, for file systems without fallocate.
func (h *Memory) write(on uint8, at, size int64) error {
	zeros := make([]byte, chunk)
	for end := at + size; at < end; at += chunk {
		if _, err := h.sides[on].file.WriteAt(zeros, at); err != nil {
			return err
		}
	}
	return nil
}

// punch gives the room of chunks on a side back. It is the only place that does, and unpins
// them first. A file system that cannot punch holes keeps the room for later allocations in the same
// place.
func (h *Memory) punch(on uint8, row row) error {
	on %= uint8(len(h.sides))
	// A device that has them pinned would go on reading and writing pages that belong to nobody.
	for _, p := range h.pins {
		p.unpin(on, row)
	}
	if h.giving != nil {
		h.giving(on, row)
	}
	s := h.sides[on]
	if s.file == nil {
		return syscall.Madvise(s.bytes[row.offset():row.offset()+row.size()], syscall.MADV_DONTNEED)
	}
	const keepSize, punchHole = 1, 2
	err := uninterrupted(func() error {
		return syscall.Fallocate(int(s.file.Fd()), keepSize|punchHole, row.offset(), row.size())
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

// full returns the error for a disk without room, with how much it has.
func (h *Memory) full(wanted uint64, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return &noRoom{fmt.Sprintf("no room for %s can be reserved in the swap area %s: %v", units.BriefSize(wanted), h.dir, err)}
	}
	var disk syscall.Statfs_t
	if statErr := syscall.Fstatfs(int(h.sides[0].file.Fd()), &disk); statErr != nil {
		err = errors.Join(err, statErr)
	}
	unit := uint64(disk.Bsize)
	return &noRoom{fmt.Sprintf("the disk of the swap area %s is full, %s are wanted and %s of %s are free (%v): ask the administrator to make room there, or to lower the node's swap.size",
		h.dir, units.BriefSize(wanted), units.BriefSize(disk.Bavail*unit), units.BriefSize(disk.Blocks*unit), err)}
}

// noRoom is a device.ErrOutOfMemory whose text speaks only of the swap area: the device has enough
// memory.
type noRoom struct{ text string }

func (e *noRoom) Error() string { return e.text }
func (e *noRoom) Unwrap() error { return device.ErrOutOfMemory }

// row is a range of consecutive chunks.
type row struct{ first, count int }

func (r row) offset() int64 { return int64(r.first) * chunk }
func (r row) size() int64   { return int64(r.count) * chunk }

// runs are rows of chunks, each on one side.
type runs []run

type run struct {
	row
	on uint8
}

func (all *runs) add(i int, on uint8) {
	if n := len(*all) - 1; n >= 0 {
		if last := &(*all)[n]; last.on == on && last.first+last.count == i {
			last.count++
			return
		}
	}
	*all = append(*all, run{row{i, 1}, on})
}
