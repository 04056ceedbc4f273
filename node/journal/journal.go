// Package journal keeps what is needed to rebuild a client whose worker has died: a base, which is
// the client's state at one moment, and a log of the messages that its program has sent since, with
// their data. Both lie in a memory file that outlives the worker.
//
// The package knows the layout of base and log and when they are valid, and nothing about what a
// base or a message means. A worker may be killed between any two instructions. So everything is
// written in two steps: first the bytes, in room that no reader looks at, then a single word that
// makes them count: the log's length for a record, the epoch for a base, an offset or a mark in a
// record for what is added to it later. There are two areas. A new base goes to the one that is not
// in use, which then starts a new log; the epoch counts the bases, and its lowest bit selects the
// area.
//
// One goroutine appends and commits. Others may set marks and data of entries at any time; what
// they do after the next Commit has no effect, because the entry's epoch is over.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"muster/internal/machine"

	"golang.org/x/sys/unix"
)

const (
	magic   = 0x4a4d534d
	version = 2

	headSize = 4096
	areaHead = 64

	atMagic, atVersion, atEpoch, atValid, atArea = 0, 4, 8, 16, 24
	// In the head of an area.
	atBaseSize, atLogSize = 0, 8
)

// Limits of a journal.
const (
	// Area is the size of an area. The file is sparse, so what is not used takes no memory.
	Area = 2 << 30
	// LogLimit is the most bytes that a log may take.
	LogLimit = 512 << 20
	// leastLog is what a log may take however little memory the machine has free, and logShare the
	// share of the free memory that a longer one may take.
	leastLog = 64 << 20
	logShare = 8
	// askAgain is by how much a log grows before the system is asked for its free memory again: the
	// logs of many clients may grow at the same time.
	askAgain = 4 << 20
)

// Size is the size of the file.
const Size = headSize + 2*Area

// Journal is a mapped journal. The goroutine that appends and commits owns it.
type Journal struct {
	mem   []byte
	area  uint64 // size of an area
	limit uint64 // of the log

	mu    sync.Mutex // excludes Commit and Unmap while another goroutine writes to an entry
	epoch uint64
	here  []byte // the area in use
	log   uint64 // offset of the log in the area
	used  uint64 // length of the log
	valid atomic.Bool

	affords uint64 // what Affordable has found out
	asked   uint64 // used at that time

	// Giving is called before the pages of a part of the file are given back; it may be nil. A device
	// that has pinned them would otherwise write to pages that are no longer the file's.
	Giving func(from, to uint64)

	free    func() (bytes uint64, known bool) // memory of the machine
	storing func()                            // in tests only: called before and after each word that counts is changed
}

// Map maps the journal in a file. A file of zeros becomes a journal without a base.
func Map(f *os.File) (*Journal, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < headSize+2*areaHead || info.Size() > Size {
		return nil, fmt.Errorf("a journal of %d bytes", info.Size())
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping a journal of %d bytes (is there a limit, ulimit -v?): %w", info.Size(), err)
	}
	j, err := open(mem, LogLimit)
	if err != nil {
		_ = syscall.Munmap(mem)
	}
	return j, err
}

// open reads the head of a journal, and checks what a damaged one would make it rely on.
func open(mem []byte, limit uint64) (*Journal, error) {
	j := &Journal{mem: mem, area: (uint64(len(mem)) - headSize) / 2 &^ 7, limit: limit, free: machine.FreeMemory}
	le := binary.LittleEndian
	if le.Uint32(mem[atMagic:]) == 0 {
		le.PutUint32(mem[atMagic:], magic)
		le.PutUint32(mem[atVersion:], version)
		le.PutUint64(mem[atArea:], j.area)
	}
	if le.Uint32(mem[atMagic:]) != magic || le.Uint32(mem[atVersion:]) != version || le.Uint64(mem[atArea:]) != j.area {
		return nil, errors.New("the journal was made by another version")
	}
	j.epoch = load64(mem, atEpoch)
	j.here = j.at(j.epoch)
	j.valid.Store(load32(mem, atValid) != 0)
	base := j.number(atBaseSize)
	if base > j.area-areaHead {
		return nil, fmt.Errorf("the journal is damaged: a base of %d bytes", base)
	}
	j.log = align(areaHead + base)
	j.used = load64(j.here, atLogSize)
	if j.log > j.area || j.used > j.area-j.log || j.used%8 != 0 {
		return nil, fmt.Errorf("the journal is damaged: a log of %d bytes", j.used)
	}
	return j, nil
}

// Unmap unmaps the journal. Nothing but late marks may use it afterwards.
func (j *Journal) Unmap() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = syscall.Munmap(j.mem)
	j.mem, j.here, j.epoch = nil, nil, j.epoch+1 // late marks are of an earlier epoch, and are ignored
}

// at returns the area of an epoch.
func (j *Journal) at(epoch uint64) []byte {
	from := j.begin(epoch)
	return j.mem[from : from+j.area : from+j.area]
}

// begin is the offset of an epoch's area in the file.
func (j *Journal) begin(epoch uint64) uint64 { return headSize + (epoch%2)*j.area }

func (j *Journal) number(at int) uint64 { return binary.LittleEndian.Uint64(j.here[at:]) }

func align(n uint64) uint64 { return (n + 7) &^ 7 }

// Valid says whether the client can be rebuilt from the journal. Any goroutine may ask.
func (j *Journal) Valid() bool { return j.valid.Load() }

// Fresh says whether there has never been a base.
func (j *Journal) Fresh() bool { return j.epoch == 0 }

// Invalidate says that the client cannot be rebuilt until the next Commit: something that is needed
// for it is about to be overwritten, or did not fit. The caller must call it before it overwrites
// anything.
func (j *Journal) Invalidate() {
	j.valid.Store(false)
	j.store32(j.mem, atValid, 0)
}

// Used is the length of the log in bytes.
func (j *Journal) Used() uint64 { return j.used }

// Affordable is how many bytes the log may take while the machine has as much memory free as now, or
// as a little while ago.
func (j *Journal) Affordable() uint64 {
	if j.affords == 0 || j.used >= j.asked+askAgain {
		j.affords, j.asked = min(leastLog, j.limit), j.used
		if free, known := j.free(); known {
			j.affords = min(max(leastLog, free/logShare), j.limit)
		}
	}
	return j.affords
}

// Room is how many more bytes the log may take.
func (j *Journal) Room() uint64 {
	most := min(j.limit, j.area-j.log)
	return most - min(most, j.used)
}

// ErrTooLarge says that a base does not fit.
var ErrTooLarge = errors.New("more than a journal holds")

// Commit writes a new base, in sections, and starts a new log. If it fails nothing has changed. A
// base must leave room for a log.
func (j *Journal) Commit(sections ...[]byte) error {
	size := uint64(8 + 8*len(sections))
	for _, s := range sections {
		size += uint64(len(s))
	}
	if room := j.area - areaHead; size > room || room-size < min(j.limit, j.area/2) {
		return fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	}
	next := j.at(j.epoch + 1)
	le := binary.LittleEndian
	le.PutUint64(next[atBaseSize:], size)
	j.store64(next, atLogSize, 0)
	to := next[areaHead:]
	le.PutUint64(to, uint64(len(sections)))
	for i, s := range sections {
		le.PutUint64(to[8+8*i:], uint64(len(s)))
	}
	to = to[8+8*len(sections):]
	for _, s := range sections {
		to = to[copy(to, s):]
	}
	keep := uint64(leastLog)
	if j.affords = 0; j.used > leastLog/2 {
		keep = max(keep, j.log+j.Affordable())
	}
	end := j.log + j.used
	j.begins(size)
	j.giveBack(j.epoch-1, end, keep)
	return nil
}

// begins starts the epoch whose base has been written. Writers of entries end before.
func (j *Journal) begins(base uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.epoch++
	j.here = j.at(j.epoch)
	j.log, j.used, j.affords = align(areaHead+base), 0, 0
	j.store64(j.mem, atEpoch, j.epoch) // from here on the new base counts
	j.store32(j.mem, atValid, 1)
	j.valid.Store(true)
}

// giveBack returns the memory of an epoch's area of which used bytes were used, except for the first spare
// bytes. The next base but one and its log are written there, and making pages again costs more than
// writing to them: so an area whose log was long keeps what the log may take. Otherwise little is
// kept, since a base holds the program's images, which would take memory twice.
func (j *Journal) giveBack(epoch, used, spare uint64) {
	area := j.at(epoch)
	page := uint64(os.Getpagesize())
	from, to := spare&^(page-1), (used+page-1)&^(page-1)
	if to > from && to <= uint64(len(area)) {
		if j.Giving != nil {
			j.Giving(j.begin(epoch)+from, j.begin(epoch)+to)
		}
		_ = unix.Madvise(area[from:to], unix.MADV_REMOVE) // frees the pages of the file; best effort
	}
}

// GiveSpare returns the memory of both areas in which nothing is, and which is otherwise kept for what
// comes next: the client is idle, and others may need it sooner.
func (j *Journal) GiveSpare() {
	j.giveBack(j.epoch+1, j.area, 0)
	j.giveBack(j.epoch, j.area, j.log+j.used+uint64(os.Getpagesize())-1)
}

// Base returns the sections of the base. They are valid until the next Commit.
func (j *Journal) Base() ([][]byte, error) {
	if !j.Valid() {
		return nil, errors.New("it had sent more than its journal holds")
	}
	size := j.number(atBaseSize)
	base := j.here[areaHead : areaHead+size]
	le := binary.LittleEndian
	if len(base) < 8 {
		return nil, errors.New("the journal is damaged: no base where one must be")
	}
	count := le.Uint64(base)
	if count > uint64(len(base)-8)/8 {
		return nil, fmt.Errorf("the journal is damaged: a base of %d sections", count)
	}
	rest := base[8+8*count:]
	sections := make([][]byte, count)
	for i := range sections {
		n := le.Uint64(base[8+8*i:])
		if n > uint64(len(rest)) {
			return nil, fmt.Errorf("the journal is damaged: section %d of %d bytes", i, n)
		}
		sections[i], rest = rest[:n:n], rest[n:]
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("the journal is damaged: %d bytes after the base", len(rest))
	}
	return sections, nil
}
