package simt

import (
	"math/bits"

	"muster/ptx/simt/shape"
)

// Shadow memory: what a checker knows about each byte, in pages of 4 KiB. One bit per
// byte says whether it was written. Three records say which threads used a word of 4
// bytes in the running launch. In pages where a thread has used less than a word, there
// are three records for each byte.

const (
	pageBytes = 4096
	pageWords = pageBytes / 4
)

// page is the shadow of a page of memory.
type page struct {
	init [pageBytes / 64]uint64 // a bit for each byte that was written
	full bool                   // all of init is set
	uses *uses                  // nil if no launch has used the page
	used record                 // an upper bound of the records in uses; see reclaim
}

// uses records which threads used the words or bytes of a page: the last writer, and two
// different readers since. Two readers suffice to find that a later write races with a
// read: at least one of them is not the writer itself.
type uses struct {
	shift               uint // 2: an entry for each word; 0: for each byte
	write, read, reread []record
}

func newUses(shift uint) *uses {
	n := pageBytes >> shift
	all := make([]record, 3*n)
	return &uses{shift: shift, write: all[:n:n], read: all[n : 2*n : 2*n], reread: all[2*n:]}
}

func (u *uses) bytes() int {
	if u == nil {
		return 0
	}
	return 3 * 8 * len(u.write)
}

// split returns the same records with an entry for each byte.
func (u *uses) split() *uses {
	s := newUses(0)
	for i := range pageBytes {
		s.write[i], s.read[i], s.reread[i] = u.write[i/4], u.read[i/4], u.reread[i/4]
	}
	return s
}

func (p *page) bytes() int {
	if p == nil {
		return 0
	}
	return pageBytes/8 + 64 + p.uses.bytes()
}

// write marks bytes as written.
func (p *page) write(from, n int) {
	if p.full {
		return
	}
	for i, end := from, from+n; i < end; {
		k := min(64-i%64, end-i)
		p.init[i/64] |= (1<<k - 1) << (i % 64)
		if k == 64 {
			p.init[i/64] = ^uint64(0)
		}
		i += k
	}
	if n >= 64 {
		p.settle()
	}
}

// settle sets full if all of a page is written.
func (p *page) settle() {
	for _, b := range p.init {
		if b != ^uint64(0) {
			return
		}
	}
	p.full = true
}

// unwritten returns the index of the first of n bytes that was never written, or -1.
func (p *page) unwritten(from, n int) int {
	if p.full {
		return -1
	}
	for i, end := from, from+n; i < end; {
		k := min(64-i%64, end-i)
		m := uint64(1<<k - 1)
		if k == 64 {
			m = ^uint64(0)
		}
		if missing := ^(p.init[i/64] >> (i % 64)) & m; missing != 0 {
			return i + bits.TrailingZeros64(missing)
		}
		i += k
	}
	return -1
}

// forget marks a page of shared memory as unwritten, for the next block.
func (p *page) forget() { p.init, p.full = [pageBytes / 64]uint64{}, false }

// record says who used a word, when, and with which instruction: the number of the
// block (22 bits, the highest), the clock of its warp (16), the thread (11) and the
// instruction's site (15). Threads from MaxThreads on are copy engines (check_async.go).
//
// The order of the fields makes comparisons cheap. Numbers of blocks grow from launch to
// launch, so all records of earlier launches are below those of this one. Within a block
// all records from before a moment at which all its warps were ordered are below
// blockCheck.settled. One comparison with such a floor rules most records out.
type record uint64

const (
	threadShift = 15
	clockShift  = 26
	blockShift  = 42
	maxSites    = 1<<15 - 1
	maxWho      = 1<<11 - 1
	maxClock    = 1<<16 - 1
	maxBlockIDs = 1<<22 - 1

	blockMask = record(1<<64 - 1<<blockShift)
	clockMask = record(maxClock << clockShift)
	whoMask   = blockMask | maxWho<<threadShift
)

func (r record) block() uint32 { return uint32(r >> blockShift) }
func (r record) thread() int   { return int(r >> threadShift & maxWho) }
func (r record) warp() int     { return r.thread() / shape.WarpSize }
func (r record) clock() uint16 { return uint16(r >> clockShift) }
func (r record) site() int     { return int(r & maxSites) }
