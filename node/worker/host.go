package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"muster/device"
	"muster/internal/together"
	"muster/model"
	"muster/vmm"
	"muster/wire"
)

// hostMemory holds the host copies of a client's memory, the swap area of this
// client: a mapping as large as its arena, in memory or in a file.
//
// In memory, pages take room when they are written, and the system kills somebody
// if there is none. In a file a write to a page that the disk has no room for
// would kill this process (SIGBUS), so room is reserved before: reserve when the
// client allocates, release when it frees. Between the two all of an allocation
// may be read and written.
//
// A client that is to outlive its worker has two sides of everything, in files that
// others hold too. Each chunk is on one of them. What a chunk holds when commit is
// called belongs to the client's base and is not written any more: whoever writes
// to the chunk after that gets the other side, and the next commit gives up the
// first one.
type hostMemory struct {
	base   uint64
	sides  []*side
	chunks []hostChunk
	which  []byte // a bit for each chunk: its side
	now    uint32 // counts commits
	moved  []int  // chunks that have left a side since the last commit
	spare  int    // chunks of which both sides have pages though one is not used

	dir    string // of the files; "" in memory
	warned bool   // that the disk is full

	// maySpare is how many chunks may have pages that are not used.
	maySpare func() int
	// giving is told before pages of chunks on a side are given back: a device that has them
	// pinned would go on with pages that are nobody's. It may be nil.
	giving func(on uint8, r row)
}

// side is one mapping.
type side struct {
	bytes []byte
	file  *os.File // nil in memory of this process alone
}

// hostChunk is one chunk of host memory.
type hostChunk struct {
	written uint32 // what now was when it got its side
	users   uint32 // allocations that touch it, in a file
	used    bool   // it holds something
	room    uint8  // the sides that have room in a file, a bit for each
	spare   bool   // the other side has pages
}

// Pages that are not used are kept because they will be used again with the next base: making
// pages costs several times what copying to them does. As many are kept as leastSpare or,
// where the machine has much free memory, one part in spareShare of that.
const (
	leastSpare = (256 << 20) / chunk
	spareShare = 4
)

// spareHere is how many chunks may have pages that are not used, on this machine now.
func spareHere() int {
	var machine syscall.Sysinfo_t
	if err := syscall.Sysinfo(&machine); err != nil {
		return leastSpare
	}
	return max(leastSpare, int(uint64(machine.Freeram)*uint64(machine.Unit)/spareShare/chunk))
}

// newHostMemory makes room for addresses of an arena, in memory or in a file
// without a name in a folder; or in two files that were made before.
func newHostMemory(arena vmm.Range, dir string, held []*os.File) (*hostMemory, error) {
	h := &hostMemory{base: arena.Addr, dir: dir, chunks: make([]hostChunk, arena.Size/chunk), which: make([]byte, (arena.Size/chunk+7)/8), now: 1, maySpare: spareHere}
	files := held
	if len(held) == 0 {
		files = []*os.File{nil}
		if dir != "" {
			f, err := CreateHostFile(arena.Size, dir)
			if err != nil {
				return nil, err
			}
			files[0] = f
		}
	}
	for _, f := range files {
		s, err := mapSide(f, arena.Size)
		if err != nil {
			h.close()
			return nil, err
		}
		h.sides = append(h.sides, s)
	}
	return h, nil
}

// CreateHostFile makes a file for host copies of an arena: in a folder, or in memory if
// that is "".
func CreateHostFile(size uint64, dir string) (*os.File, error) {
	if dir == "" {
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
	b, err := syscall.Mmap(fd, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		return nil, fmt.Errorf("reserving %d bytes of address space for host copies (is there a limit, ulimit -v?): %w", size, err)
	}
	return &side{b, f}, nil
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

// side is which side a chunk is on.
func (h *hostMemory) side(i int) uint8 { return h.which[i/8] >> (i % 8) & 1 }

// flip puts a chunk on its other side.
func (h *hostMemory) flip(i int) { h.which[i/8] ^= 1 << (i % 8) }

// each calls f for the pieces of a range that lie on one side, in order.
func (h *hostMemory) each(r vmm.Range, f func(addr uint64, piece []byte) error) error {
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

// bytes is the memory of a row of chunks on a side.
func (h *hostMemory) bytes(r run) []byte {
	return h.sides[r.on].bytes[r.offset() : r.offset()+r.size() : r.offset()+r.size()]
}

// lacking returns the memory that chunks of some ranges would be written to, as far as it is
// not known to have pages, in pieces, and how many bytes that is.
func (h *hostMemory) lacking(ranges []vmm.Range) (pieces [][]byte, bytes uint64) {
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
		pieces = append(pieces, slices.Collect(slices.Chunk(memory, hostPinMost*chunk))...)
		bytes += uint64(len(memory))
	}
	return pieces, bytes
}

// span are the first and the last chunk of a range.
func (h *hostMemory) span(r vmm.Range) (first, last int) {
	return int((r.Addr - h.base) / chunk), int((r.Addr - h.base + r.Size - 1) / chunk)
}

// read copies a range out.
func (h *hostMemory) read(to []byte, addr uint64) {
	_ = h.each(vmm.Range{Addr: addr, Size: uint64(len(to))}, func(at uint64, piece []byte) error {
		together.Copy(to[at-addr:], piece)
		return nil
	})
}

// errBase says that a chunk of the base cannot be left as it is: there is no room for
// its other side.
var errBase = errors.New("no room for another copy")

// touch makes a range ready to be written: nothing of the base is overwritten by
// that. If all of it will be written, whole chunks need not keep what they hold.
// After errBase, what was touched is ready and the rest is not; abandon helps.
func (h *hostMemory) touch(r vmm.Range, all bool) error {
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

// leave puts a chunk on its other side, with what it holds if keep says so.
func (h *hostMemory) leave(i int, keep bool) error {
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

// commit makes what the chunks hold now the base.
func (h *hostMemory) commit() {
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

// abandon gives the base up: chunks may be written where they are.
func (h *hostMemory) abandon() {
	h.commit()
	for i := range h.chunks {
		h.chunks[i].written = h.now
	}
}

// empty gives pages back.
func (h *hostMemory) empty(all runs) {
	for _, r := range all {
		_ = h.punch(r.on, r.row) // what cannot be given back stays until the end
		for i := r.first; i < r.first+r.count; i++ {
			h.chunks[i].room &^= 1 << r.on
		}
	}
}

// resume goes on with files in which chunks are on the given sides; held are those
// that hold something. The others may have given their room back since, and others
// may have taken it: then device.ErrOutOfMemory says so.
func (h *hostMemory) resume(which []byte, held, allocations []vmm.Range) error {
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
func (h *hostMemory) reserveAgain() error {
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

// expect says that all of a range is about to be written: large pages save time
// then, and waste nothing.
func (h *hostMemory) expect(piece []byte) {
	if h.dir == "" {
		_ = syscall.Madvise(piece, syscall.MADV_HUGEPAGE) // it works without
	}
}

// reserve makes sure that an allocation has room: device.ErrOutOfMemory says that
// the disk is full. Nothing has changed then.
func (h *hostMemory) reserve(allocation vmm.Range) error {
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

// release gives back the room of an allocation that was reserved, except what
// others share with it, and what belongs to the base.
func (h *hostMemory) release(allocation vmm.Range) {
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

// releaseAll gives back the room of all allocations.
func (h *hostMemory) releaseAll() {
	var gone runs
	for i := range h.chunks {
		if c := &h.chunks[i]; c.users > 0 {
			c.users = 0
			h.drop(i, &gone)
		}
	}
	h.empty(gone)
}

// discard says that the contents of whole chunks are not needed any more. In a file
// their room stays reserved until release: it was promised to the client.
func (h *hostMemory) discard(r vmm.Range) {
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

// drop says that nobody needs what a chunk holds now, and adds the pages that can be
// given back for it. What it held when the base was made stays for as long as that
// counts.
func (h *hostMemory) drop(i int, gone *runs) {
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

// unspare says that the other side of a chunk is used again.
func (h *hostMemory) unspare(c *hostChunk) {
	if c.spare {
		c.spare = false
		h.spare--
	}
}

func (h *hostMemory) close() {
	for _, s := range h.sides {
		_ = syscall.Munmap(s.bytes)
		if s.file != nil {
			s.file.Close()
		}
	}
}

// maxPiece bounds what one call of the system reserves: a signal makes it begin
// again.
const maxPiece = 256 << 20

// allocate has the disk set room aside for chunks of a side, and notes that.
func (h *hostMemory) allocate(on uint8, row row) error {
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

// write has the disk give room for zeros: not every file system can set it aside.
func (h *hostMemory) write(on uint8, at, size int64) error {
	zeros := make([]byte, chunk)
	for end := at + size; at < end; at += chunk {
		if _, err := h.sides[on].file.WriteAt(zeros, at); err != nil {
			return err
		}
	}
	return nil
}

// punch gives the room of chunks on a side back. A file system that cannot do that
// keeps it for later allocations there.
func (h *hostMemory) punch(on uint8, row row) error {
	on %= uint8(len(h.sides))
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

// full says that the disk has not enough room, and how much it has.
func (h *hostMemory) full(wanted uint64, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return &noRoom{fmt.Sprintf("no room for %s can be reserved in the swap area %s: %v", model.BriefSize(wanted), h.dir, err)}
	}
	var disk syscall.Statfs_t
	if statErr := syscall.Fstatfs(int(h.sides[0].file.Fd()), &disk); statErr != nil {
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

// row is a row of chunks.
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
